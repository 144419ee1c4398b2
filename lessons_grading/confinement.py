"""What isolates a sandbox: bubblewrap and systemd's limits."""

import json
import os
import secrets
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from lessons_grading import system_calls
from lessons_grading.controller import WRITTEN
from lessons_lib import rooms
from lessons_lib.paths import ROOT, build_folder

SCRATCH = "/scratch"  # in the sandbox, the only large folder
WRITABLE = (SCRATCH, "/tmp", "/dev/shm", *(f"{ROOT}/{name}" for name in WRITTEN))
SMALL = 64 << 20  # bytes of every other disk
SPARE_NUMBERS = 4096  # of users; where root grades, each sandbox draws one
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/fonts", "/etc/localtime"),
)
COURSE = ("lessons_lib", "lessons_grading")  # rooms that hold no answers
WEIGHTS = "paged_attention/tiny_qwen3"  # they hold no answers either
INSTALL = (
    "Grading needs bubblewrap and libseccomp, which keep submissions away from your files: "
    "sudo apt-get install bubblewrap libseccomp2 (Fedora: dnf install bubblewrap libseccomp). "
    "Without them, --no-sandbox runs submissions as plain processes, which can read and "
    "delete all that you can."
)
NOT_AS_ROOT = (
    "Grading as root needs thousands of user numbers, which some containers lack. "
    "Grade as an ordinary user."
)
MANAGER = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
# Runs a command in the cgroup that systemd has put this shell into. It fails if that is not
# one of version 2 with both limits. If memory runs out, the kernel ends the whole cgroup at
# once, so that no part of it goes on alone.
IN_ITS_CGROUP = f"""
IFS=: read -r number none path < /proc/self/cgroup
cgroup="/sys/fs/cgroup$path"
test -e "$cgroup/pids.max" && echo 1 > "$cgroup/memory.oom.group" || exit 1
unset {" ".join(MANAGER)}
exec "$@"
"""


@cache
def bubblewrap() -> str:
    """Where bubblewrap is, or "". Never a relative path: the sandbox has another folder."""
    found = shutil.which("bwrap")
    return os.path.abspath(found) if found else ""


@cache
def words_of_bubblewrap() -> list[str]:
    """The words of its help, which show the options that it has."""
    ran = subprocess.run([bubblewrap(), "--help"], capture_output=True, text=True)
    return ran.stdout.split()


@cache
def missing() -> str | None:
    """Why there is no sandbox here, and what to install; None if there is one."""
    if not (bubblewrap() and system_calls.library()):
        return INSTALL
    try:
        system_calls.program()
    except OSError as error:
        return f"{error}. {INSTALL}"
    if is_root() and _numbers()[1] < 2 * SPARE_NUMBERS:
        return NOT_AS_ROOT
    with command_line(disk=SMALL) as (words, descriptors):
        probe = subprocess.run(
            [*words, "true"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
        )
    if probe.returncode:
        return f"bubblewrap is here and does not work ({probe.stderr.strip()}). {INSTALL}"
    return None


def is_root() -> bool:
    """Whether root grades. Then a sandbox becomes another user: see controller.py."""
    return os.getuid() == 0


# The words before a command, and the descriptors that it needs.
CommandLine = tuple[list[str], tuple[int, ...]]


@contextmanager
def command_line(disk: int, unseen: tuple[str, ...] = ()) -> Iterator[CommandLine]:
    """What runs a command in a sandbox, during this context."""
    end, other = os.pipe()
    with open(end):
        with open(other, "wb") as filtering:
            filtering.write(system_calls.program())
        yield [*_namespaces(), *_mounts(disk, unseen), "--seccomp", str(end)], (end,)


def _namespaces() -> list[str]:
    """The namespaces of a sandbox, in words of bubblewrap.

    Root gets no user namespace: the system would still take the sandbox for root. Instead the
    sandbox gives up root before it does anything else.
    """
    user = ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    user += ["--disable-userns"] if "--disable-userns" in words_of_bubblewrap() else []
    becomes_another = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [
        bubblewrap(),
        *(f"--unshare-{kind}" for kind in ("ipc", "pid", "net", "uts", "cgroup-try")),
        "--die-with-parent",
        "--new-session",
        # else bubblewrap's process is in there, and its descriptors are open to all
        "--as-pid-1",
        "--cap-drop",
        "ALL",
        *(becomes_another if is_root() else user),
    ]


def _mounts(disk: int, unseen: tuple[str, ...]) -> list[str]:
    sized = "--size" in words_of_bubblewrap()

    def empty(folder, size=SMALL):
        return [*(["--size", str(size)] if sized else []), "--tmpfs", str(folder)]

    own = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    prefixes = sorted({sys.prefix, sys.base_prefix, *own})
    around = [*SYSTEM, *(path for path in prefixes if not Path(path).is_relative_to(ROOT))]
    within = [path for path in prefixes if path not in around]
    within += [f"{ROOT}/{name}" for name in COURSE]
    content = [f"{ROOT}/{name}" for name in (*rooms.shown_content(), WEIGHTS)]
    seen = [*around, *within, *content]
    words = ["--proc", "/proc", "--dev", "/dev"]
    # a shared map of this one is memory that can be hidden
    words += ["--dev-bind", "/dev/null", "/dev/zero"]
    words += [*empty("/dev/shm"), *empty("/tmp"), *empty(SCRATCH, disk)]
    # bubblewrap's own folders around what is seen, in /tmp too, may be closed to all but root
    around_all = {str(parent) for path in seen for parent in Path(path).parents} - {"/"}
    words += [word for folder in sorted(around_all) for word in ("--dir", folder)]
    for path in around:
        words += (
            ["--symlink", os.readlink(path), path]
            if os.path.islink(path) and path in SYSTEM
            else ["--ro-bind-try", path, path]
        )
    # else it is a package
    if any(ROOT.is_relative_to(path) for path in around) and not (ROOT / "torch").exists():
        words += empty(ROOT)
    for path in within:
        words += ["--ro-bind-try", path, path]
    # wherever the course may be installed
    for place in {ROOT, *map(Path, site.getsitepackages())}:
        for name in WRITTEN:
            words += empty(place / name) if place == ROOT or (place / name).is_dir() else []
    for path in content:
        words += ["--dir", str(Path(path).parent), "--ro-bind", path, path]
    # the same for all, and slow to build
    for runtime in build_folder().glob("cuda_on_cpu_*/finished"):
        words += ["--ro-bind", str(runtime.parent), f"{SCRATCH}/build/{runtime.parent.name}"]
    for folder in unseen:
        if any(Path(folder).is_relative_to(path) for path in seen) and Path(folder).is_dir():
            words += empty(folder, 4096)
    # What is in /dev is counted nowhere, and would still be there when the answers are tried.
    for folder in ("/proc", "/dev", "/"):
        words += ["--remount-ro", folder]
    return [*words, "--chdir", SCRATCH]


def environment(folder: str, limits: dict[str, int]) -> dict[str, str]:
    """The environment variables of a submission. It gets no others.

    limits: names in the module `resource`, each with a number.
    """
    compiler = {"CXX": os.environ["CXX"]} if "CXX" in os.environ else {}
    path = os.pathsep.join(
        [str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]
    )
    return compiler | {
        "LESSONS_GRADE_USER": str(_number_of_nobody()),
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "USER": "student",
        "HOME": folder,
        "TMPDIR": folder,
        "IPYTHONDIR": f"{folder}/ipython",
        "MPLCONFIGDIR": f"{folder}/matplotlib",
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "LESSONS_BUILD_DIR": f"{folder}/build",
        "LESSONS_PROGRESS_DIR": f"{folder}/progress",
        "LESSONS_GRADE_FOLDER": folder,
        "LESSONS_GRADE_LIMITS": json.dumps(limits),
    }


def _number_of_nobody() -> int:
    """The number of a user that does not exist: another one for each sandbox."""
    first, count = _numbers()
    return first + count - 3 - secrets.randbelow(SPARE_NUMBERS)


def _numbers() -> tuple[int, int]:
    """The first of the last range of user numbers here, and how many there are."""
    first, _, count = map(int, Path("/proc/self/uid_map").read_text().split()[-3:])
    return first, min(count, 1 << 31)


@cache
def systemd_scope() -> str | None:
    """`systemd-run`, if it can make a cgroup for a sandbox. The kernel keeps its limits."""
    if not (tool := shutil.which("systemd-run")):
        return None
    words = [*_scope(tool, 1 << 30, 64), "true"]
    probe = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL)
    return tool if probe.returncode == 0 else None


def in_scope(memory: int, tasks: int) -> list[str]:
    """The words before a command that put it into a cgroup. Empty if there is no cgroup."""
    tool = systemd_scope()
    return _scope(tool, memory, tasks) if tool else []


def _scope(tool: str, memory: int, tasks: int) -> list[str]:
    # A user's manager is found by these, which are not in the environment of a sandbox.
    found_by = [f"{name}={os.environ[name]}" for name in MANAGER if name in os.environ]
    manager = [] if os.getuid() == 0 else ["--user"]
    limits = {"MemoryMax": memory, "MemorySwapMax": 0, "TasksMax": tasks}
    options = [f"--property={name}={value}" for name, value in limits.items()]
    command = [tool, *manager, "--scope", "--quiet", "--collect", *options]
    return ["env", *found_by, *command, "--", "sh", "-c", IN_ITS_CGROUP, "sh"]
