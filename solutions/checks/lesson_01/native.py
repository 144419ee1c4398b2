"""The learner's C++ classes as Python objects, for the checks: built as a plain library and called through ctypes."""

import ctypes
import threading
from pathlib import Path

from lessons_lib.inline import QUICK, build_library, read_kernel
from paged_attention import block_manager as errors


class StandardOutOfRange(Exception):
    """C++'s own std::out_of_range, whose text differs between standard libraries."""


# Out-of-range indexing and pop_back() of an empty vector end the process instead of using what lies there.
CHECKED = (*QUICK, "-D_GLIBCXX_ASSERTIONS", "-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_FAST")
# By the numbers of block_manager_abi.cpp.
ERRORS = (None, errors.PoolSizeError, errors.OutOfBlocksError, errors.BlockIndexError, errors.DoubleFreeError,
          errors.BlockNotAllocatedError, StandardOutOfRange, RuntimeError)
METHODS = ("allocate", "increase_ref_count", "free", "get_ref_count", "get_num_free_blocks")
LOCK, UNLOCK, TRY_LOCK = range(3)
NAP = 10_000_000  # microseconds, in which to look whether the mutex is held; a look ends it
STRESS_ROUNDS = 200
PATIENCE_ALONE = 0.3  # seconds of its own after which a call with nobody in its way counts as stuck


def free_list_class(source: str) -> type:
    """A Python class over the C++ class `FreeList` in `source`."""
    library = build_library(source, _read("free_list_abi.cpp"), names=("your code", "the check"), name="check",
                            flags=CHECKED)
    library.free_list_new.restype = ctypes.c_void_p
    library.free_list_delete.argtypes = [ctypes.c_void_p]

    class NativeFreeList:
        def __init__(self, num_blocks):
            message = ctypes.create_string_buffer(256)
            self.pointer = ctypes.c_void_p(library.free_list_new(num_blocks, message))
            if not self.pointer:
                raise RuntimeError(message.value.decode())

        def __del__(self):
            library.free_list_delete(self.pointer)

        def pop(self):
            return self._call(library.free_list_pop, ctypes.byref(result := ctypes.c_int())) or result.value

        def push(self, block_id):
            self._call(library.free_list_push, block_id)

        def size(self):
            return library.free_list_size(self.pointer)

        def _call(self, function, argument):
            message = ctypes.create_string_buffer(256)
            if function(self.pointer, argument, message):
                raise RuntimeError(message.value.decode())

    return NativeFreeList


def block_manager_class(source: str) -> type:
    """A Python class over the C++ class `BlockManager` in `source`; our errors and a FreeList that naps stand before it."""
    library = build_library(
        read_kernel("block_errors.h"), _read("watched_free_list.h"), source, read_kernel("block_manager_stress.cpp"),
        _read("block_manager_abi.cpp"), name="check", flags=(*CHECKED, "-fno-access-control", "-pthread"),
        names=("block_errors.h", "FreeList", "your code", "the stress test", "the check"))
    library.manager_new.restype = ctypes.c_void_p
    library.manager_delete.argtypes = [ctypes.c_void_p]

    class NativeBlockManager:
        at_the_door = 0  # only the models of thread_safety.py can tell
        patience = PATIENCE_ALONE

        def __init__(self, num_blocks):
            code, message = ctypes.c_int(), ctypes.create_string_buffer(256)
            self.pointer = ctypes.c_void_p(library.manager_new(num_blocks, ctypes.byref(code), message))
            _raise(code.value, message)

        def __del__(self):
            library.manager_delete(self.pointer)

        def lock(self):
            """Takes the learner's mutex; False where there is none."""
            return library.manager_mutex(self.pointer, LOCK) == 1

        def unlock(self):
            library.manager_mutex(self.pointer, UNLOCK)

        def is_locked(self):
            """Whether somebody holds the learner's mutex."""
            return library.manager_mutex(self.pointer, TRY_LOCK) == 0

        def keeps_lock_during(self, method, *arguments):
            """Whether the mutex is held while the method is in the middle of changing the free list."""
            library.set_nap(NAP)
            thread = threading.Thread(target=getattr(self, method), args=arguments, daemon=True)
            thread.start()
            while thread.is_alive() and not library.is_napping():
                pass
            held = not (library.is_napping() and library.manager_mutex(self.pointer, TRY_LOCK) == 1)
            library.set_nap(1)
            thread.join()
            return held

        @staticmethod
        def stress():
            """Whether four threads that allocate and free at the same time break the manager."""
            return "breaks" if library.manager_stress(4, STRESS_ROUNDS) else "holds"

    for number, name in enumerate(METHODS):
        setattr(NativeBlockManager, name, _method(library, number))
    return NativeBlockManager


def _method(library, number):
    def call(self, block_id=0):
        result, message = ctypes.c_int(NO_RESULT), ctypes.create_string_buffer(256)
        _raise(library.manager_call(self.pointer, number, block_id, ctypes.byref(result), message), message)
        return None if result.value == NO_RESULT else result.value
    return call


NO_RESULT = -(2**31)  # what a method without a result leaves


def _raise(code: int, message):
    if code:
        raise ERRORS[code](message.value.decode(errors="replace"))


def _read(file_name: str) -> str:
    return (Path(__file__).parent / file_name).read_text(encoding="utf-8")
