"""Makes `.venv` and installs what the lessons import, or an extra: install.py EXTRA -- ARGS

It runs before any package is installed, so it imports only the standard library. uv does the
work where it is installed, otherwise pip. Without an NVIDIA card, PyTorch comes from its index
for the CPU, unless you have named your own index. ARGS are pip's.
"""

import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOG = VENV / "install.log"
PYPI = "https://pypi.org/simple/"
CPU_INDEX = os.environ.get("PYTORCH_CPU_INDEX", "https://download.pytorch.org/whl/cpu")
EVERY = 4  # seconds between two progress lines of a step
PATIENCE = 5  # seconds to wait for an index to answer
NO_ANSWER = f"no answer in {PATIENCE} seconds"
SLOW_PIP = (25, 0)  # older versions need twice the time, and show no progress of a download
# uv reads none of pip's settings, so pip does the work if one of these is set.
OWN_INDEX = ("index-url", "extra-index-url", "find-links", "no-index")
OF_PIP_ONLY = (*OWN_INDEX, "constraint", "proxy", "cert", "client-cert", "trusted-host")


class CannotInstall(Exception):
    """The installation failed. The text says why, and what to do."""


def main(words: Sequence[str]) -> int:
    """Installs, and returns the exit status."""
    cut = words.index("--") if "--" in words else len(words)
    extras, arguments = words[:cut], list(words[cut + 1 :])
    began = time.monotonic()
    try:
        if not extras:
            _make_venv()
        installer = _Installer(arguments)
        if extras:
            installer.install(f"What `{extras[0]}` needs", *_requirements(extras[0]))
        else:
            _install_lessons(installer)
    except CannotInstall as error:
        print(f"\n{error}\n", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. Call it again, and it goes on.", file=sys.stderr)
        return 130
    print(f"Ready after {time.monotonic() - began:.0f} s.", flush=True)
    return 0


def _make_venv() -> None:
    print(f"Setting up {VENV.name}, once.", flush=True)
    words = [str(PYTHON), "-c", "import sys; print(sys.prefix)"]
    try:
        prefix = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    except OSError:
        prefix = ""
    if prefix != str(VENV):
        VENV.mkdir(exist_ok=True)
        _run("An environment for Python", [sys.executable, "-m", "venv", "--clear", str(VENV)])


def _install_lessons(installer: "_Installer") -> None:
    if sys.platform == "linux" and not installer.has_own_index and not _has_nvidia_card():
        print(f"  No NVIDIA card: PyTorch for the CPU is taken from {CPU_INDEX}", flush=True)
        try:
            if reason := _why_unreachable(CPU_INDEX):
                raise CannotInstall(f"  It cannot be reached: {reason}")
            installer.install("PyTorch", "--no-deps", "--index-url", CPU_INDEX, "torch")
        except CannotInstall as error:
            print(
                f"{error}\n  So PyTorch comes with CUDA, 2 GB more. If you know a mirror, "
                "end this, and:\n    export PYTORCH_CPU_INDEX=https://host/whl/cpu",
                flush=True,
            )
    installer.install("What the lessons import", "--editable", str(ROOT))


class _Installer:
    """uv or pip, with the indexes that it asks."""

    def __init__(self, arguments: list[str]):
        self.arguments = arguments
        settings = _settings_of_pip() | _indexes_in(arguments)
        self.is_uv = bool(
            shutil.which("uv") and not arguments and not settings.keys() & set(OF_PIP_ONLY)
        )
        if self.is_uv:
            own = [name for name in os.environ if re.match("UV_.*(INDEX|FIND_LINKS)", name)]
            self.has_own_index = bool(own) or _uv_has_an_index()
            main = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
            self._require("" if "UV_NO_INDEX" in own else main or PYPI)
            return
        self.has_own_index = bool(settings.keys() & set(OWN_INDEX))
        without = settings.get("no-index", "false") not in ("false", "0", "no", "off")
        self._require(
            "" if without else settings.get("index-url", PYPI), settings.get("proxy", "")
        )
        if _version_of_pip() < SLOW_PIP:
            words = self._words("--upgrade", "pip")
            _run("A newer pip", words, may_fail=True)  # if it fails, the old pip also works

    def install(self, what: str, *words: str) -> None:
        """Installs the packages that pip's `words` name. Raises CannotInstall."""
        _run(what, self._words(*words))

    def _words(self, *words: str) -> list[str]:
        # uv would take a space in the folder's name for the end of the path.
        constraints = ["--constraint", "constraints.txt"]
        if self.is_uv:
            return ["uv", "pip", "install", "--python", str(PYTHON), *constraints, *words]
        # Most modules are never imported. Python compiles the others when they are first
        # imported.
        pip = ["-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
        if _version_of_pip() >= SLOW_PIP:
            pip.append("--progress-bar=raw")
        return [str(PYTHON), *pip, *constraints, *self.arguments, *words]

    def _require(self, index: str, proxy: str = "") -> None:
        """Warns if `index` may be unreachable. Raises CannotInstall if it certainly is."""
        reason = _why_unreachable(index, proxy) if index.startswith("http") else ""
        tool = "UV" if self.is_uv else "PIP"
        message = (
            f"The index of packages {index} cannot be reached: {reason}.\n"
            "  Is this machine online? If it is, set what fits, and call it again:\n"
            "    a proxy:             export https_proxy=http://host:port\n"
            f"    a mirror:            export {tool}_INDEX_URL=https://host/simple\n"
            f"    a folder of wheels:  export {tool}_NO_INDEX=1 {tool}_FIND_LINKS=/folder"
        )
        if reason == NO_ANSWER:
            print(f"{message}\n  It is tried all the same.", flush=True)
        elif reason:
            raise CannotInstall(message)


def _settings_of_pip() -> dict[str, str]:
    """pip's settings, from its files and its environment variables."""
    words = [str(PYTHON), "-m", "pip", "config", "list"]
    listed = subprocess.run(words, capture_output=True, text=True).stdout
    found = re.findall(r"^(\w+|:env:)\.([\w-]+)='(.+)'$", listed, re.MULTILINE)
    return {name: value for _, name, value in sorted(found, key=lambda one: one[0] == ":env:")}


def _indexes_in(arguments: list[str]) -> dict[str, str]:
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-i", "--index-url")
    parser.add_argument("--extra-index-url")
    parser.add_argument("-f", "--find-links")
    parser.add_argument("--no-index", action="store_const", const="true")
    parser.add_argument("--proxy")
    found, _ = parser.parse_known_args(arguments)
    return {name.replace("_", "-"): value for name, value in vars(found).items() if value}


def _uv_has_an_index() -> bool:
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    files = (Path("/etc/uv/uv.toml"), home / "uv" / "uv.toml")
    return any(file.is_file() and "index" in file.read_text() for file in files)


def _version_of_pip() -> tuple[int, ...]:
    found = _distributions("pip")
    return tuple(map(int, re.findall(r"\d+", found[-1].name))) if found else (0,)


def _requirements(extra: str) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["optional-dependencies"][extra]


def _has_nvidia_card() -> bool:
    try:
        found = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.returncode == 0 and "GPU" in found.stdout


def _why_unreachable(index: str, proxy: str = "") -> str:
    """Why nothing answers at `index`, or "".

    A thread asks, because looking up a name can hang.
    """
    reasons: list[str] = []

    def ask():
        proxies = {"http": proxy, "https": proxy} if proxy else None
        opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
        try:
            opener.open(urllib.request.Request(index, method="HEAD"), timeout=60).close()
        except urllib.error.HTTPError:
            pass  # it answers, with an error
        except OSError as error:
            reason = getattr(error, "reason", error)
            # an SSL error does not count: the installer has its own certificates
            if not isinstance(reason, ssl.SSLError):
                reasons.append(str(reason))
                return
        reasons.append("")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return reasons[0] if reasons else NO_ANSWER


def _run(what: str, words: Sequence[str], may_fail: bool = False) -> None:
    """Runs a command and shows its progress every few seconds. Raises CannotInstall."""
    print(f"  {what} …", flush=True)
    began = time.monotonic()
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()), daemon=True)
    reader.start()
    while True:
        reader.join(EVERY)
        if not reader.is_alive():
            break
        print(f"    {time.monotonic() - began:3.0f} s  {_in_short(lines)}", flush=True)
    status = process.wait()
    with open(LOG, "a", encoding="utf-8") as log:
        log.writelines([f"$ {shlex.join(words)}\n", *lines])
    if status and not may_fail:
        end = "".join(line for line in lines[-30:] if not line.startswith("Progress "))
        raise CannotInstall(f"{end}\nThis did not work. All that was said is in {LOG}")


def _in_short(lines: list[str]) -> str:
    """The last message of a command, in one short line."""
    said = [line.strip() for line in lines if re.match(r"\s*[A-Z]", line)]
    if any(line.startswith("Installing collected") for line in said):
        return f"Installing: {len(_distributions('*'))} packages are there"
    progress = re.match(r"Progress (\d+) of ([1-9]\d*)", said[-1]) if said else None
    plain = [line for line in said if not line.startswith(("Progress ", "WARNING: Location"))]
    last = re.sub(r"\S+/|-(cp|py)3\S*\.whl| \(from .*", "", plain[-1] if plain else "…")
    share = f", {100 * int(progress[1]) // int(progress[2])} %" if progress else ""
    return f"{last[:70]}{share}"


def _distributions(name: str) -> list[Path]:
    return sorted(VENV.glob(f"lib/python3*/site-packages/{name}-*.dist-info"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
