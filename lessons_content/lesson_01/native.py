"""The learner's C++ classes as Python objects, for the checks.

They are built as a plain library and called through ctypes.
"""

import ctypes
import re
import sys
from pathlib import Path

from lessons_lib.cuda.inline import QUICK, build_library, read_kernel
from paged_attention.pool import block_manager as errors


class NeverComesBack(Exception):
    """A call that waits for a lock of its own thread, or for one that is never released."""


class StandardOutOfRange(Exception):
    """C++'s own std::out_of_range, whose text differs between standard libraries."""


# Out-of-range indexing and pop_back() of an empty vector end the process instead of using what
# lies there.
CHECKED = (
    *QUICK,
    "-D_GLIBCXX_ASSERTIONS",
    "-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_FAST",
)
OUR_ERRORS = (
    errors.PoolSizeError,
    errors.OutOfBlocksError,
    errors.BlockIndexError,
    errors.DoubleFreeError,
    errors.BlockNotAllocatedError,
)
# In the order of the numbers in block_manager_abi.cpp.
ERRORS = (None, *OUR_ERRORS, StandardOutOfRange, RuntimeError, NeverComesBack)
METHODS = ("allocate", "increase_ref_count", "free", "get_ref_count", "get_num_free_blocks")
NAMES = ("block_errors.h", "FreeList", "your code", "the check")
# For watched.h, so that its hooks and its operator new are called.
WATCHED = (*CHECKED, "-fsanitize=thread", "-fno-access-control", "-Wno-attributes")
LINK = () if sys.platform == "darwin" else ("-Wl,-Bsymbolic-functions", "-ldl")
# How a method used the lock, in the order of the numbers in watched.h.
USES = (
    "",
    "changes the data under a shared lock",
    "looks at the data before it takes the lock",
    "changes the data before it takes the lock",
    "touches the data after it has given the lock back",
    "locks a different mutex than the others do",
    "touches the data without the lock",
)


def free_list_class(source: str) -> type:
    """A Python class over the C++ class `FreeList` in `source`."""
    texts, names = (source, _read("free_list_abi.cpp")), ("your code", "the check")
    library = build_library(*texts, names=names, name="check", flags=CHECKED)
    return _class_over(library, "free_list", ("pop", "push", "size"))


def block_manager_class(source: str) -> type:
    """A Python class over the C++ class `BlockManager` in `source`.

    Our errors and a FreeList come before it.
    """
    library = build_library(*_manager_texts(source), names=NAMES, name="check", flags=CHECKED)
    return _class_over(library, "manager", METHODS)


def watched_block_manager_class(source: str) -> type:
    """The same, and it tells what its methods do with locks and data: see watched.h."""
    texts = _read("watched.h"), *_manager_texts(source), _read("watched_abi.cpp")
    names = "the watch", *NAMES, "the watch's calls"
    library = build_library(*texts, name="check", names=names, flags=WATCHED, link=LINK)
    base = _class_over(library, "watched_manager", METHODS)

    class Outcome(ctypes.Structure):
        _fields_ = [(name, ctypes.c_int) for name in ("code", "result")]
        _fields_ += [("message", ctypes.c_char * 256)]

        def words(self) -> str:
            if self.code:
                return f"{ERRORS[self.code].__name__}: {self.message.decode(errors='replace')}"
            return "no error" if self.result == NO_RESULT else f"returns {self.result}"

    class WatchedBlockManager(base):
        def __init__(self, num_blocks):
            super().__init__(num_blocks)
            self.has_mutex = library.has_mutex(self.pointer) == 1

        def is_locked(self) -> bool:
            """Whether a lock is held, between two calls."""
            return library.is_locked() == 1

        def record(self):
            library.record()

        def uses(self) -> dict[str, str]:
            """For each method: how it used the lock since record(). "" if all is well."""
            numbers = (ctypes.c_int * len(METHODS))()
            library.uses_of_locks(numbers)
            return {name: USES[number] for name, number in zip(METHODS, numbers, strict=True)}

        def meet(self, gap, *calls):
            """Two calls. The second one comes in a gap of the first, where that holds no lock.

            Each is (method, block id). Returns their results, or None if there is no such gap.
            """
            outcomes = (Outcome * 2)(Outcome(0, NO_RESULT), Outcome(0, NO_RESULT))
            methods = (ctypes.c_int * 2)(*(METHODS.index(name) for name, _ in calls))
            ids = (ctypes.c_int * 2)(*(block_id for _, block_id in calls))
            came = library.meet(self.pointer, gap, methods, ids, outcomes)
            return tuple(outcome.words() for outcome in outcomes) if came else None

    return WatchedBlockManager


def _manager_texts(source):
    errors_and_list = read_kernel("block_errors.h"), _read("free_list.h")
    return (*errors_and_list, source, _read("block_manager_abi.cpp"))


def _class_over(library, name: str, methods: tuple[str, ...]) -> type:
    """A Python class over the functions `name`_new, _call and _delete of a library."""
    new, call_method, delete = (
        getattr(library, f"{name}_{part}") for part in ("new", "call", "delete")
    )
    new.restype, delete.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

    class Native:
        def __init__(self, num_blocks):
            code, message = ctypes.c_int(), ctypes.create_string_buffer(256)
            self.pointer = ctypes.c_void_p(new(num_blocks, ctypes.byref(code), message))
            _raise(code.value, message)

        def __del__(self):
            delete(self.pointer)

    for number, method in enumerate(methods):
        setattr(Native, method, _method(call_method, number))
    return Native


def _method(function, number):
    def call(self, block_id=0):
        result, message = ctypes.c_int(NO_RESULT), ctypes.create_string_buffer(256)
        code = function(self.pointer, number, block_id, ctypes.byref(result), message)
        _raise(code, message)
        return None if result.value == NO_RESULT else result.value

    return call


NO_RESULT = -(2**31)  # what a method without a result leaves


def _raise(code: int, message):
    if code == ERRORS.index(NeverComesBack):
        raise NeverComesBack("it waits forever")
    if code:
        raise ERRORS[code](message.value.decode(errors="replace"))


def without_comments(source: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)


def _read(file_name: str) -> str:
    return (Path(__file__).parent / file_name).read_text(encoding="utf-8")
