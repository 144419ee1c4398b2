"""A call of a function in a CUDA library, on a GPU or under the runtime's watch."""

import ctypes
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from lessons_lib.cuda.arguments import has_gaps, same_memory, span_bytes, to_c
from lessons_lib.cuda.counts import Counts, CountsOfCall
from lessons_lib.cuda.inline import _load
from lessons_lib.cuda.launches import Launches, RecordedLaunch
from lessons_lib.cuda.signatures import Function, Parameter
from lessons_lib.cuda_on_cpu import report_messages, reports
from lessons_lib.cuda_on_cpu.elements import tensor_index
from lessons_lib.cuda_on_cpu.rewrite import kernels_launched
from lessons_lib.cuda_on_cpu.source_lines import lines_at

# numbers that the runtime has for kinds of tensors
_INPUT, _UPDATED, _OUTPUT, _INTEGERS = 0, 1, 2, 8
_one_at_a_time = threading.Lock()  # the runtime has only one report and one set of tensors


@dataclass(frozen=True)
class Access:
    """An access of a thread to a traced element. kind: "read", "write" or "atomic"."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    name: str
    index: tuple[int, ...]
    kind: str
    line: int | None  # the learner's line; in other code it is None, and so is the text's name
    source: str | None


class CallOnGpu:
    """Calls functions that nvcc compiled."""

    def __init__(self, library: ctypes.CDLL, texts: dict[str, str]):
        self.library = library
        self.kernels = {kernel for text in texts.values() for kernel in kernels_launched(text)}
        library.lessons_lib_error_text.restype = ctypes.c_char_p

    def __call__(self, function: Function, values: dict, device: torch.device | None):
        """Launches and returns at once, as CUDA does.

        Raises KernelError if CUDA refuses it.
        """
        addresses = {
            name: value.data_ptr() if isinstance(value, torch.Tensor) else value
            for name, value in values.items()
        }
        with torch.cuda.device(device):
            stream = torch.cuda.current_stream(device).cuda_stream
            self.launch(function, lambda: _call(self.library, function, addresses, stream))

    def launch(self, function: Function, call: Callable[[], int]) -> None:
        """Raises KernelError if `call` returns an error or leaves one as the last error."""
        self.library.lessons_lib_last_error()  # forgets an error of an earlier call
        code = call()
        code = self.library.lessons_lib_last_error() or code
        if code:
            text = self.library.lessons_lib_error_text(code).decode()
            # A kernel runs after its launch returns, so a later call often gets its error.
            earlier = (
                " This may come from a kernel that was launched before." if code >= 700 else ""
            )
            raise _refused(function, self.kernels, code, text, earlier)


class CallOnCpu:
    """Calls functions that were compiled for the CPU, and asks the runtime for a report."""

    def __init__(
        self, library: ctypes.CDLL, runtime: Path, texts: dict[str, str], checked: bool
    ):
        self.library, self.texts, self.checked = library, texts, checked
        self.kernels = {kernel for text in texts.values() for kernel in kernels_launched(text)}
        self.settings = (0, processors(), 20_000_000)  # seed, processor threads, step limit
        self.traced: tuple[str, ...] = ()
        self.accesses: list[Access] = []
        self.counted: tuple[str, ...] = ()
        self.counts: Counts | None = None
        self.stream, self.failing_launch = 0, 0
        self.launches: Launches | None = None
        self.runtime = _load(runtime, _load_checked_runtime if checked else _load_runtime)

    def __call__(self, function: Function, values: dict, device: torch.device | None):
        """Runs to the end.

        If this raises KernelError in checked mode, no tensor has changed.
        """
        with _one_at_a_time:
            self.runtime.cuda_on_cpu_clear()
            self.runtime.cuda_on_cpu_options(*self.settings)
            self.runtime.cuda_on_cpu_begin_call(self.failing_launch)
            if self.checked:
                self._call_watched(function, values)
            else:
                tensors = {
                    name: value
                    for name, value in values.items()
                    if isinstance(value, torch.Tensor)
                }
                code = self._launch(
                    function, values | {name: t.data_ptr() for name, t in tensors.items()}
                )
                self._raise_error(function, code, tensors)

    def _call_watched(self, function: Function, values: dict):
        watched, went_well, same = {}, False, same_memory(function, values)
        try:
            self.runtime.cuda_on_cpu_trace(",".join(self.traced).encode())
            self.runtime.cuda_on_cpu_count(",".join(self.counted).encode())
            addresses = {}
            for argument in function.arguments:
                value = values[argument.name]
                if isinstance(value, torch.Tensor) and argument.name not in same:
                    watched[argument.name] = value, _separate(argument, value)
                    in_place = argument.name in same.values()
                    addresses[argument.name] = self._watch(
                        argument, watched[argument.name][1], in_place
                    )
            addresses.update((name, addresses[other]) for name, other in same.items())
            code = self._launch(function, values | addresses)
            if code == 0:
                self.runtime.cuda_on_cpu_finish()
            tensors = {name: tensor for name, (tensor, _) in watched.items()}
            self._collect_accesses(tensors)
            self._add_counts()
            self._raise_error(function, code, tensors)
            went_well = True
        finally:
            self.runtime.cuda_on_cpu_release(int(went_well))
            self.runtime.cuda_on_cpu_trace(b"")
        for argument in function.arguments:
            if argument.name in watched and not argument.const:
                tensor, separate = watched[argument.name]
                if separate is not tensor:
                    tensor.detach().copy_(separate)

    def _launch(self, function: Function, addresses: dict) -> int:
        code = _call(self.library, function, addresses, self.stream)
        if self.launches is not None:
            count = self.runtime.cuda_on_cpu_launches(None, 0)
            recorded = (RecordedLaunch * count)()
            self.runtime.cuda_on_cpu_launches(recorded, count)
            self.launches += [launch.as_launch() for launch in recorded]
            self.launches.returned = code
        return code

    def _watch(self, argument: Parameter, tensor: torch.Tensor, in_place: bool) -> int:
        # The runtime knows no strides. It would require an output's gaps to be written too.
        output = argument.name.startswith("out") and not has_gaps(tensor) and not in_place
        kind = _INPUT if argument.const else _OUTPUT if output else _UPDATED
        kind += _INTEGERS * (tensor.dtype == torch.int32)
        address = self.runtime.cuda_on_cpu_tensor(
            argument.name.encode(),
            tensor.data_ptr(),
            span_bytes(tensor),
            tensor.element_size(),
            kind,
        )
        if not address:
            raise RuntimeError(
                f"{argument.name}: there is no room to watch {span_bytes(tensor)} bytes, or "
                'there are more than 64 tensors. Watch a smaller case, or use target="fast".'
            )
        return address

    def _raise_error(self, function: Function, code: int, tensors: dict):
        code = code or self.runtime.cuda_on_cpu_last_error()
        report = self.runtime.cuda_on_cpu_report(code).decode(errors="replace") if code else ""
        if report:
            raise report_messages.explain(reports.parse(report), self.texts, tensors)
        if code:
            text = self.runtime.cuda_on_cpu_error_text(code).decode()
            raise _refused(function, self.kernels, code, text)

    def _collect_accesses(self, tensors: dict):
        count = self.runtime.cuda_on_cpu_traced(None, 0) if self.traced else 0
        traced = (_Traced * count)()
        self.runtime.cuda_on_cpu_traced(traced, count)
        lines = lines_at({access.pc for access in traced}, self.texts)
        for access in traced:
            name, line = self.traced[access.name], lines[access.pc]
            tensor = tensors.get(name)
            last = access.byte + access.size - 1
            # a wide access gives an entry for each element
            for element in range(access.byte // access.element, last // access.element + 1):
                index = None
                if tensor is not None:
                    index = tensor_index(tensor.shape, tensor.stride(), element)
                self.accesses.append(
                    Access(
                        tuple(access.block),
                        tuple(access.thread),
                        name,
                        (element,) if index is None else index,
                        ("read", "write", "atomic")[access.kind],
                        line.number if line else None,
                        line.source if line else None,
                    )
                )

    def _add_counts(self):
        if self.counts is None:
            return
        counts = CountsOfCall()
        self.runtime.cuda_on_cpu_counted(ctypes.byref(counts))
        self.counts.add(counts)


class _Traced(ctypes.Structure):
    _fields_ = [
        ("block", ctypes.c_uint * 3),
        ("thread", ctypes.c_uint * 3),
        ("name", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("byte", ctypes.c_size_t),
        ("size", ctypes.c_size_t),
        ("element", ctypes.c_size_t),
        ("pc", ctypes.c_size_t),
    ]


def _load_runtime(path: Path) -> ctypes.CDLL:
    runtime = ctypes.CDLL(str(path))
    runtime.cuda_on_cpu_options.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong]
    runtime.cuda_on_cpu_report.restype = ctypes.c_char_p
    runtime.cuda_on_cpu_error_text.restype = ctypes.c_char_p
    runtime.cuda_on_cpu_launches.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    runtime.cuda_on_cpu_launches.restype = ctypes.c_size_t
    return runtime


def _load_checked_runtime(path: Path) -> ctypes.CDLL:
    runtime = _load_runtime(path)
    runtime.cuda_on_cpu_tensor.argtypes = [
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
    ]
    runtime.cuda_on_cpu_tensor.restype = ctypes.c_void_p
    runtime.cuda_on_cpu_traced.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    runtime.cuda_on_cpu_traced.restype = ctypes.c_size_t
    return runtime


def _separate(argument: Parameter, tensor: torch.Tensor) -> torch.Tensor:
    """`tensor`, or a copy with the same strides if it has gaps and is written.

    The memory in the gaps belongs to other tensors, so it must not be written back.
    """
    if argument.const or not has_gaps(tensor):
        return tensor
    memory = torch.empty(span_bytes(tensor) // tensor.element_size(), dtype=tensor.dtype)
    separate = memory.as_strided(tensor.shape, tensor.stride())
    return separate.copy_(tensor.detach())


def _call(library: ctypes.CDLL, function: Function, addresses: dict, stream: int) -> int:
    called = library[function.name]
    called.argtypes = function.ctypes
    return called(*to_c(function, addresses, stream))


def _refused(
    function: Function, kernels: set[str], code: int, text: str, more: str = ""
) -> reports.KernelError:
    kernel = min(kernels) if len(kernels) == 1 else None
    launched = f", which launches {' and '.join(sorted(kernels))}," if kernels else ""
    return reports.KernelError(
        f"{function.name}{launched} returned {code}{f': {text}' if text else ''}. "
        f"A launcher returns cudaGetLastError(), which is 0 when the launch went well.{more}",
        "bad-launch",
        kernel,
    )


def processors() -> int:
    """How many processors this process may use."""
    return (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )
