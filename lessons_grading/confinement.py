"""What isolates a sandbox: bubblewrap, a filter of system calls, and systemd's limits."""

import json
import os
import platform
import shutil
import site
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from lessons_grading.controller import WRITTEN
from lessons_lib.paths import ROOT, build_folder

SCRATCH = "/scratch"  # in the sandbox, the only large folder
WRITABLE = (SCRATCH, "/tmp", "/dev/shm", *(f"{ROOT}/{name}" for name in WRITTEN))
SMALL = 64 << 20  # bytes of every other disk
SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/nix",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/fonts",
    "/etc/localtime",
)
COURSE = (
    "lessons_bench",
    "lessons_command",
    "lessons_draw",
    "lessons_grading",
    "lessons_guide",
    "lessons_lib",
    "lessons_processes",
)  # parts of the course without answers
WEIGHTS = "paged_attention/tiny_qwen3"
INSTALL = (
    "Grading needs bubblewrap, which keeps submissions away from your files: "
    "sudo apt-get install bubblewrap (Fedora: dnf install bubblewrap). Without it, "
    "--no-sandbox runs them as plain processes, which can read and delete all that you can."
)
# System calls that a submission does not get, with their numbers on (x86-64, AArch64). They
# use memory that belongs to no process and is counted nowhere, look into other processes, or
# help only to break out.
REFUSED = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
}
MANAGER = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
# Runs a command in the cgroup that systemd has put this shell into. It fails where that is
# none of version 2 with both limits; and where memory runs out, the kernel ends all of it at
# once, so that nothing half dead goes on.
IN_ITS_CGROUP = f"""
IFS=: read -r number none path < /proc/self/cgroup
cgroup="/sys/fs/cgroup$path"
test -e "$cgroup/pids.max" && echo 1 > "$cgroup/memory.oom.group" || exit 1
unset {" ".join(MANAGER)}
exec "$@"
"""
# the column above; AUDIT_ARCH_…
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
# BPF instructions: ld [k]; jeq; jge; ret
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
# SECCOMP_RET_…; the last with ENOSYS
_ALLOW, _KILL, _NO_SUCH_CALL = 0x7FFF0000, 0x80000000, 0x00050026
_X32 = 0x40000000  # calls with other numbers


def system_call_filter() -> bytes:
    """A seccomp program: ENOSYS for REFUSED. Empty for processors that are not listed here."""
    if platform.machine() not in _ARCHITECTURES:
        return b""
    column, architecture = _ARCHITECTURES[platform.machine()]
    numbers = [each[column] for each in REFUSED.values()]
    begin = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
    ]
    # A jump skips this number of instructions: here all except the last.
    tests = [(_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    program = [
        *begin,
        (_AT_LEAST, len(numbers) + 1, 0, _X32),
        *tests,
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NO_SUCH_CALL),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


@cache
def bubblewrap() -> str | None:
    """Where bubblewrap is. Never a relative path: the sandbox starts from another folder."""
    found = shutil.which("bwrap")
    return found and os.path.abspath(found)


@cache
def words_of_bubblewrap() -> list[str]:
    """The words of its help, which show the options that it has."""
    program = bubblewrap()
    assert program is not None  # `missing` comes first
    return subprocess.run([program, "--help"], capture_output=True, text=True).stdout.split()


@cache
def missing() -> str | None:
    """Why there is no sandbox here, and what to install; None if there is one."""
    if not bubblewrap():
        return INSTALL
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


@contextmanager
def command_line(
    disk: int, unseen: tuple[str, ...] = ()
) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """The words before a command, and the descriptors that it needs during this context."""
    program = system_call_filter()
    end, other = os.pipe()
    try:
        os.write(other, program)
        os.close(other)
        words = [*_namespaces(), *_mounts(disk, unseen)]
        yield ([*words, "--seccomp", str(end)], (end,)) if program else (words, ())
    finally:
        os.close(end)


def _namespaces() -> list[str]:
    program, known = bubblewrap(), words_of_bubblewrap()
    assert program is not None  # `missing` comes first
    return [
        program,
        "--unshare-all",
        "--unshare-user",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
        # else bubblewrap's process is in there, and its descriptors are open to all
        "--as-pid-1",
        "--uid",
        "1000",
        "--gid",
        "1000",
        *(["--disable-userns"] if "--disable-userns" in known else []),
    ]


def _mounts(disk: int, unseen: tuple[str, ...]) -> list[str]:
    sized = "--size" in words_of_bubblewrap()

    def empty(folder, size=SMALL):
        return [*(["--size", str(size)] if sized else []), "--tmpfs", str(folder)]

    prefixes = sorted(
        {
            sys.prefix,
            sys.base_prefix,
            *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
        }
    )
    around = [*SYSTEM, *(path for path in prefixes if not Path(path).is_relative_to(ROOT))]
    seen = [
        *around,
        *(path for path in prefixes if path not in around),
        *(f"{ROOT}/{name}" for name in COURSE),
    ]
    words = [
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        *empty("/dev/shm"),
        *empty("/tmp"),
        *empty(SCRATCH, disk),
    ]
    for path in seen[: len(around)]:
        words += (
            ["--symlink", os.readlink(path), path]
            if os.path.islink(path) and path in SYSTEM
            else ["--ro-bind-try", path, path]
        )
    # else it is a package
    if any(ROOT.is_relative_to(path) for path in around) and not (ROOT / "torch").exists():
        words += empty(ROOT)
    for path in seen[len(around) :]:
        words += ["--ro-bind-try", path, path]
    # wherever the course may be installed
    for place in {ROOT, *map(Path, site.getsitepackages())}:
        for name in WRITTEN:
            words += empty(place / name) if place == ROOT or (place / name).is_dir() else []
    words += ["--ro-bind", f"{ROOT}/{WEIGHTS}", f"{ROOT}/{WEIGHTS}"]  # this holds no answers
    # the same for all, and slow to build
    for runtime in build_folder().glob("cuda_on_cpu_*/finished"):
        words += ["--ro-bind", str(runtime.parent), f"{SCRATCH}/build/{runtime.parent.name}"]
    for folder in unseen:
        if any(Path(folder).is_relative_to(path) for path in seen) and Path(folder).is_dir():
            words += empty(folder, 4096)
    # Who is root outside could change the kernel's settings. And what is in /dev is counted
    # nowhere, and would still be there when the answers are tried.
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


@cache
def systemd_scope() -> str | None:
    """`systemd-run`, if it can make a cgroup for a sandbox. The kernel keeps its limits."""
    tool = shutil.which("systemd-run")
    probe = tool and subprocess.run(
        [*_scope(tool, 1 << 30, 64), "true"], capture_output=True, stdin=subprocess.DEVNULL
    )
    return tool if probe and probe.returncode == 0 else None


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
    return [
        "env",
        *found_by,
        tool,
        *manager,
        "--scope",
        "--quiet",
        "--collect",
        *options,
        "--",
        "sh",
        "-c",
        IN_ITS_CGROUP,
        "sh",
    ]
