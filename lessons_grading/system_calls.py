"""The filter of a sandbox's system calls, which the system's libseccomp writes."""

import ctypes
import errno
import os
import socket
from functools import cache

# What a submission does not get, and why.
REFUSED = {
    "memory that belongs to no process and is counted nowhere": (
        "memfd_create memfd_secret vmsplice shmget shmat io_uring_setup userfaultfd"
    ),
    "what outlives its process": "msgget mq_open semget add_key request_key keyctl",
    "a look into other processes": (
        "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp perf_event_open bpf"
    ),
    "a process that waits because it asked for less, and hides the work of others": (
        "setpriority sched_setparam sched_setscheduler sched_setattr"
    ),
    # without clone3, glibc calls clone, whose flags can be seen
    "namespaces, in which it has more rights": "unshare setns clone3",
}
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
# Larger buffers of a socket: SO_SNDBUF, SO_RCVBUF, and those of root.
_BUFFERS = (7, 8, 32, 33)
_SHARED_WITHOUT_FILE, _HUGE = 0x21, 0x40000  # MAP_SHARED | MAP_ANONYMOUS, MAP_HUGETLB
_NEW_USER = 0x10000000  # CLONE_NEWUSER
_INT = 0xFFFFFFFF  # all that the kernel reads of an argument that is an int
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000  # to the second an error is added; 0 does nothing
_OTHER_NUMBERS = 2  # SCMP_FLTATR_ACT_BADARCH: calls by the numbers of another processor
_GREATER, _MASKED_EQUAL = 6, 7


class _Test(ctypes.Structure):
    """Of an argument: libseccomp's struct scmp_arg_cmp."""

    _fields_ = [
        ("argument", ctypes.c_uint),
        ("how", ctypes.c_int),
        ("one", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
    ]


@cache
def library() -> ctypes.CDLL | None:
    """libseccomp, which package managers and systemd need too; or None."""
    try:
        found = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return None
    found.seccomp_init.restype = ctypes.c_void_p
    return found


@cache
def program() -> bytes:
    """The filter as bubblewrap takes it. Raises OSError where it cannot be made."""
    seccomp = library()
    assert seccomp is not None  # `confinement.missing` comes first
    rules = ctypes.c_void_p(seccomp.seccomp_init(_ALLOW))

    def refuse(call: str, error: int, *tests: _Test):
        number = seccomp.seccomp_syscall_resolve_name(call.encode())
        if seccomp.seccomp_rule_add_array(
            rules, _FAIL | error, number, len(tests), (_Test * len(tests))(*tests)
        ):
            raise OSError(f"libseccomp is too old: it cannot refuse {call}")

    seccomp.seccomp_attr_set(rules, _OTHER_NUMBERS, _FAIL | errno.ENOSYS)
    for call in " ".join(REFUSED.values()).split():
        refuse(call, errno.ENOSYS)
    for flags in (_SHARED_WITHOUT_FILE, _HUGE):
        refuse("mmap", errno.ENOMEM, _Test(3, _MASKED_EQUAL, flags, flags))
    refuse("clone", errno.EPERM, _Test(0, _MASKED_EQUAL, _NEW_USER, _NEW_USER))
    for call in ("socket", "socketpair"):
        refuse(call, errno.EAFNOSUPPORT, _Test(0, _GREATER, max(_FAMILIES)))
        for family in {*range(max(_FAMILIES))} - {*_FAMILIES}:
            refuse(call, errno.EAFNOSUPPORT, _Test(0, _MASKED_EQUAL, _INT, family))
    of_sockets = _Test(1, _MASKED_EQUAL, _INT, socket.SOL_SOCKET)
    for option in _BUFFERS:
        refuse("setsockopt", 0, of_sockets, _Test(2, _MASKED_EQUAL, _INT, option))
    end, other = os.pipe()
    with open(end, "rb") as written:
        failed = seccomp.seccomp_export_bpf(rules, other)
        os.close(other)
        seccomp.seccomp_release(rules)
        if failed:
            raise OSError("libseccomp cannot write the filter of system calls")
        return written.read()
