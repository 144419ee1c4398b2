"""What isolates a sandbox: bubblewrap, a filter of system calls, and systemd's limits."""

import errno
import json
import os
import platform
import secrets
import shutil
import site
import socket
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
# use memory that belongs to no process and is counted nowhere, outlive their process, hide
# work, look into other processes, or help only to break out.
REFUSED = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "vmsplice": (278, 75),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "mq_open": (240, 180),
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
    # a process that waits because it asked for less could hide the work of others
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone3": (435, 435),  # glibc then calls clone, whose flags can be seen
}
# Calls that depend on their arguments.
ARGUMENTS = {
    "mmap": (9, 222),
    "clone": (56, 220),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "setsockopt": (54, 208),
}
_SHARED_WITHOUT_FILE, _HUGE = 0x21, 0x40000  # MAP_SHARED | MAP_ANONYMOUS, MAP_HUGETLB
_NEW_USER = 0x10000000  # CLONE_NEWUSER
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
# Larger buffers of a socket: SO_SNDBUF, SO_RCVBUF, and those of root.
_BUFFERS = (7, 8, 32, 33)
NOT_AS_ROOT = (
    "Grading as root needs a filter of system calls, which is written for x86-64 and AArch64, "
    "and thousands of user numbers, which some containers lack. Grade as an ordinary user."
)
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
# BPF instructions: ld [k]; and; jeq; jge; ret
_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
# SECCOMP_RET_…; to the last an error is added, and 0 means that nothing was done
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000  # calls with other numbers
_Program = list[tuple[int, int, int, int]]


def system_call_filter() -> bytes:
    """A seccomp program. Empty for processors that are not listed here.

    There are libraries that write such programs (libseccomp), and none of them comes with
    bubblewrap or can be installed by pip alone.
    """
    if platform.machine() not in _ARCHITECTURES:
        return b""
    column, architecture = _ARCHITECTURES[platform.machine()]
    program: _Program = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
    ]
    for numbers in REFUSED.values():
        program += _rule(numbers[column], errno.ENOSYS)
    number = {name: numbers[column] for name, numbers in ARGUMENTS.items()}
    for flags in (_SHARED_WITHOUT_FILE, _HUGE):
        program += _rule(number["mmap"], errno.ENOMEM, (3, flags, (flags,)))
    program += _rule(number["clone"], errno.EPERM, (0, _NEW_USER, (_NEW_USER,)))
    families = 0, ~0, _FAMILIES
    for name in ("socket", "socketpair"):
        program += _rule(number[name], 0, families, otherwise=errno.EAFNOSUPPORT)
    on_sockets = 1, ~0, (socket.SOL_SOCKET,)
    program += _rule(number["setsockopt"], 0, on_sockets, (2, ~0, _BUFFERS))
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _rule(number: int, error: int, *tests, otherwise: int | None = None) -> _Program:
    """Instructions that fail a system call with `error` if all tests hold.

    tests: (argument, mask, values): one of these is what is left of the argument.
    otherwise: the error if one of them does not hold; then the call is allowed if all do.
    """
    body = [(_RETURN, 0, 0, _ALLOW if otherwise else _FAIL | error)]
    missed = [(_RETURN, 0, 0, _FAIL | otherwise)] if otherwise else []
    for argument, mask, values in reversed(tests):
        rest = len(body)
        found = [
            (_EQUAL, len(values) - place, 0, value)
            for place, value in enumerate(values[:-1], 1)
        ]
        last = (_EQUAL, 0, rest, values[-1])
        load = [(_LOAD, 0, 0, 16 + 8 * argument), (_AND, 0, 0, mask & 0xFFFFFFFF)]
        body = [*load, *found, last, *body]
    body += missed
    return [(_LOAD, 0, 0, 0), (_EQUAL, 0, len(body), number), *body]


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
    if is_root() and not (system_call_filter() and _number_of_nobody() > 0):
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
    """Whether we are root here. Then a sandbox becomes another user: see controller.py."""
    return os.getuid() == 0


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
    """Root has no need of a user namespace, in which the system would still take the sandbox
    for root. The sandbox then gives up root before it does anything else.
    """
    program, known = bubblewrap(), words_of_bubblewrap()
    assert program is not None  # `missing` comes first
    user = ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    user += ["--disable-userns"] if "--disable-userns" in known else []
    becomes_another = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [
        program,
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
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
        # a shared map of this one is memory that can be hidden
        "--dev-bind",
        "/dev/null",
        "/dev/zero",
        *empty("/dev/shm"),
        *empty("/tmp"),
        *empty(SCRATCH, disk),
    ]
    # bubblewrap's own folders around what is seen, in /tmp too, may be closed to all but root
    around_all = {str(parent) for path in seen for parent in Path(path).parents} - {"/"}
    words += [word for folder in sorted(around_all) for word in ("--dir", folder)]
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
    first, _, count = map(int, Path("/proc/self/uid_map").read_text().split()[-3:])
    return first + min(count, 1 << 31) - 3 - secrets.randbelow(4096)


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
