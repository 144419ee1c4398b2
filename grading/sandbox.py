"""One sandbox: a process that runs the functions of worker.py on a submission, and that cannot do any harm.

With bubblewrap it sees the course and the system, both read-only, has no network and a small disk of its own; all that it
starts ends with it. A watcher beside it ends it when it takes more than it may.
"""

import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from lessons_lib.compiler_errors import CompileError
from lessons_lib.isolation import BUSY, Outcome
from lessons_lib.paths import ROOT, build_folder

START_LIMIT = 60.0  # seconds of its own; PyTorch is imported
PATIENCE = 60.0  # seconds beyond a run's longest time, after which a sandbox is taken for dead
WATCH_EVERY = 0.2  # seconds
MANY = 24  # processes, for which there is no time to look at each of them for long
LARGEST_MESSAGE = 64 << 20  # bytes
SCRATCH = "/scratch"  # inside: the only folder that is not read-only, but for a small /tmp
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix", "/etc/alternatives", "/etc/ld.so.cache",
          "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/fonts", "/etc/localtime")
COURSE = ("bench", "draw", "grading", "kernels", "lessons_lib", "paged_attention", "solutions")
INSTALL = ("Grading needs bubblewrap, which keeps submissions away from your files: sudo apt-get install bubblewrap (Fedora: "
           "dnf install bubblewrap). Without it, --no-sandbox runs them as plain processes, which can read and delete all "
           "that you can.")


@dataclass(frozen=True)
class Limits:
    """What one submission may take. Sizes are bytes. Seconds of cells are their own (own_time.py); the notebook's are real.

    `memory` and `processes`: of all its processes together. `output`: what its cells may write. `disk`: its files.
    `sandboxed`: False runs it as a plain process. `unseen`: folders that it must not see, wherever they are.
    """

    cell_seconds: float = 60.0
    notebook_seconds: float = 600.0
    memory: int = 4 << 30
    processes: int = 64
    output: int = 10 << 20
    disk: int = 1 << 30
    sandboxed: bool = True
    unseen: tuple[str, ...] = ()


@cache
def missing() -> str | None:
    """Why there is no sandbox on this machine, in a sentence that says what to install; None where there is one."""
    if not shutil.which("bwrap"):
        return INSTALL
    probe = subprocess.run([*_bubblewrap(Limits()), "true"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if probe.returncode:
        return f"bubblewrap is here and does not work ({probe.stderr.strip()}). {INSTALL}"
    return None


class Sandbox:
    """Starts on construction. Raises RuntimeError where it cannot be started."""

    def __init__(self, limits: Limits):
        self.limits, self.reason, self.alive = limits, "", True
        self._folder = tempfile.TemporaryDirectory(prefix="grade-")
        self._deadline = time.monotonic() + START_LIMIT
        self._start()
        threading.Thread(target=self._watch, daemon=True).start()
        if self.receive() != ["ready"]:
            reason = self.reason or Path(self._folder.name, "errors").read_text(errors="replace").strip()[-500:]
            self.close()
            raise RuntimeError(f"The sandbox could not be started: {reason}")

    def _start(self):
        folder = SCRATCH if self.limits.sandboxed else self._folder.name
        command = [sys.executable, "-P", "-c", "from grading.worker import serve; serve()"]
        if self.limits.sandboxed:
            command = [*_bubblewrap(self.limits), *command]
        orders, self._orders = os.pipe()
        self._replies, replies = os.pipe()
        with open(Path(self._folder.name, "errors"), "wb") as errors:
            self._process = subprocess.Popen(command, stdin=orders, stdout=replies, stderr=errors, cwd=self._folder.name,
                                             env=_environment(self.limits, folder), start_new_session=True)
        os.close(orders)
        os.close(replies)
        self._orders, self._replies = Connection(self._orders, readable=False), Connection(self._replies, writable=False)

    def run(self, function: str, *arguments, time_limit: float, output_limit: float | None = None) -> "Run":
        """Starts a function of worker.py. One at a time."""
        return Run(self, {"function": function, "arguments": arguments, "time_limit": time_limit,
                          "output_limit": output_limit or sys.maxsize})

    def send(self, order):
        self._deadline = time.monotonic() + PATIENCE
        with suppress(OSError):  # it has ended; `receive` will say so
            self._orders.send_bytes(json.dumps(order).encode())

    def receive(self, seconds: float = START_LIMIT):
        """The next message, or None when the sandbox has ended: `reason` says why."""
        self._deadline = time.monotonic() + BUSY * seconds + PATIENCE
        try:
            return json.loads(self._replies.recv_bytes(LARGEST_MESSAGE))
        except (EOFError, OSError, ValueError, RecursionError) as error:
            self._end("its sandbox ended" if isinstance(error, EOFError) else "what came from its sandbox cannot be read")
            return None
        finally:
            self._deadline = float("inf")

    def close(self):
        """Ends it, with all that it has started."""
        self._end("it was closed")
        for end in (self._orders, self._replies):
            end.close()
        self._folder.cleanup()

    def _watch(self):
        while self.alive and self._process.poll() is None:
            if reason := self._too_much():
                self._end(reason)
            time.sleep(WATCH_EVERY)

    def _too_much(self) -> str:
        processes = _tree(self._process.pid)
        if len(processes) > self.limits.processes:  # first: it may be why nothing reacts
            return f"it started more than {self.limits.processes} processes"
        if time.monotonic() > self._deadline:
            return "it did not react any more"
        # What processes share counts for each of them in the quick sum, and once in the exact one, which takes its time.
        if sum(map(_memory, processes)) > self.limits.memory and (
                len(processes) > MANY or sum(map(_share, processes)) > self.limits.memory):
            return f"it took more than {self.limits.memory / 2**30:g} GB of memory, in {len(processes)} processes"
        if max(map(_disk, processes), default=0) > self.limits.disk:
            return f"it wrote more than {self.limits.disk / 2**30:.2g} GB of files"
        return ""

    def _end(self, reason: str):
        self.alive, self.reason = False, self.reason or reason
        for process in _tree(self._process.pid) if self._process.poll() is None else ():
            with suppress(psutil.Error):
                process.kill()
        self._process.kill()
        self._process.wait()


class Run:
    """A function at work in a sandbox: `next` gives what it reports, and then `outcome` is what became of it."""

    def __init__(self, sandbox: Sandbox, order: dict):
        self.sandbox, self.time_limit, self.outcome, self._owes_answer = sandbox, order["time_limit"], None, False
        sandbox.send(order)

    def next(self, seconds: float | None = None):
        """What it reports next, None when it has ended. `seconds`: what it may take from now on."""
        if self.outcome:
            return None
        if self._owes_answer:
            self.sandbox.send(seconds)
        self.time_limit = self.time_limit if seconds is None else seconds
        match self.sandbox.receive(self.time_limit):
            case ["report", report] if report is not None:
                self._owes_answer = True
                return report
            case ["ended", {"ending": str(ending), "detail": str(detail), "printed": str(printed), "error": error}]:
                self.outcome = Outcome(ending, None, error and _error(*map(str, error)), detail, printed)
            case _:
                self.sandbox._end("what came from its sandbox cannot be read")
                self.outcome = Outcome("crashed", detail=self.sandbox.reason)
        return None

    def stop(self):
        """Ends it, if it has not ended."""
        while self.next(0) is not None:
            pass


def _error(name: str, words: str) -> BaseException:
    """An exception of this name that describes itself in these words."""
    words = words.removeprefix(f"{name}: ")
    return CompileError(words) if name == "CompileError" else type(name, (Exception,), {})(words)


def _bubblewrap(limits: Limits) -> list[str]:
    """The words before the command."""
    words = _words_of_bubblewrap()

    def disk(folder, size):
        return [*(["--size", str(size)] if "--size" in words else []), "--tmpfs", folder]

    prefixes = {sys.prefix, sys.base_prefix, *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])}
    seen = [*SYSTEM, *sorted(prefixes), *(str(ROOT / name) for name in COURSE)]
    command = ["bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
               "--uid", "1000", "--gid", "1000", *(["--disable-userns"] if "--disable-userns" in words else []),
               "--proc", "/proc", "--dev", "/dev", *disk("/dev/shm", 64 << 20), *disk("/tmp", 64 << 20),
               *disk(SCRATCH, limits.disk)]
    for path in seen:
        command += ["--symlink", os.readlink(path), path] if os.path.islink(path) and path in SYSTEM else \
            ["--ro-bind-try", path, path]
    for runtime in build_folder().glob("cuda_on_cpu_*/finished"):  # the same for all, and it takes seconds to build
        command += ["--ro-bind", str(runtime.parent), f"{SCRATCH}/build/{runtime.parent.name}"]
    for folder in limits.unseen:
        if any(Path(folder).is_relative_to(path) for path in seen) and Path(folder).is_dir():
            command += disk(folder, 4096)
    return [*command, "--remount-ro", "/", "--chdir", SCRATCH]


@cache
def _words_of_bubblewrap() -> list[str]:
    return subprocess.run(["bwrap", "--help"], capture_output=True, text=True).stdout.split()


def _environment(limits: Limits, folder: str) -> dict[str, str]:
    """All that a submission gets to know of ours."""
    compiler = {"CXX": os.environ["CXX"]} if "CXX" in os.environ else {}
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
    process_limits = {"RLIMIT_DATA": limits.memory * 3 // 4, "RLIMIT_FSIZE": limits.disk, "RLIMIT_NOFILE": 1024,
                      "RLIMIT_CORE": 0}
    return compiler | {
        "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8", "USER": "student",
        "HOME": folder, "TMPDIR": folder, "IPYTHONDIR": f"{folder}/ipython", "MPLCONFIGDIR": f"{folder}/matplotlib",
        "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
        "LESSONS_BUILD_DIR": f"{folder}/build", "LESSONS_PROGRESS_DIR": f"{folder}/progress",
        "LESSONS_GRADE_FOLDER": folder, "LESSONS_GRADE_LIMITS": json.dumps(process_limits),
    }


def _tree(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def _memory(process: psutil.Process) -> int:
    """Bytes in memory, without the files that it has mapped."""
    return _sum_of_lines(f"/proc/{process.pid}/status", ("RssAnon:", "RssShmem:"))


def _share(process: psutil.Process) -> int:
    """As `_memory`, with its share of what several processes have in common."""
    return _sum_of_lines(f"/proc/{process.pid}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))


def _sum_of_lines(file: str, names: tuple[str, ...]) -> int:
    try:
        return sum(int(line.split()[1]) << 10 for line in Path(file).read_text().splitlines() if line.startswith(names))
    except (OSError, ValueError):  # it has ended
        return 0


def _disk(process: psutil.Process) -> int:
    """Bytes of files in its sandbox, where bubblewrap (before 0.7) cannot limit them itself."""
    if "--size" in _words_of_bubblewrap():
        return 0
    try:
        disk = os.statvfs(f"/proc/{process.pid}/root{SCRATCH}")
        return (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    except OSError:
        return 0
