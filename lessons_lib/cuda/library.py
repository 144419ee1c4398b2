"""Calls CUDA in one way: on a GPU, on the CPU, or on the CPU with every access watched."""

from collections.abc import Iterator
from contextlib import contextmanager

from lessons_lib.cuda import arguments, builds, signatures
from lessons_lib.cuda.calls import Access, CallOnCpu, CallOnGpu, processors
from lessons_lib.cuda.compiler_errors import CompileError
from lessons_lib.cuda.counts import Counts
from lessons_lib.cuda.inline import _check_sources
from lessons_lib.cuda.launches import Launch, Launches
from lessons_lib.cuda.prepared import PreparedOnCpu, PreparedOnGpu
from lessons_lib.cuda_on_cpu.reports import KernelError

__all__ = [
    "Access",
    "Counts",
    "CudaLibrary",
    "KernelError",
    "Launch",
    "Launches",
    "build_cuda",
]


def build_cuda(
    *sources: str,
    names: tuple[str, ...] = (),
    target: str | None = None,
    name: str = "cuda",
    architecture: str = "",
) -> "CudaLibrary":
    """Compiles CUDA and returns its `extern "C"` functions. They take tensors and numbers.

    sources: CUDA texts, compiled as one file in this order. The same texts compile only once.
    names: names for the texts in error messages.
    target: "gpu" (nvcc), "fast" (CPU) or "checked" (CPU, every access watched). None takes
        "gpu" if there is a GPU, else "checked".
    architecture: of the GPU, such as "90a" for features that only Hopper has; "" takes
        features that this GPU and all newer ones have. It has no effect on the CPU.
    Raises TypeError if a source is not text.
    Raises CompileError, with the learner's line, if the code does not compile.
    Raises RuntimeError if this machine does not have the target.
    """
    texts = _check_sources(sources, names)
    target = builds.choose_target(target)
    functions = signatures.functions(texts)
    taken = [
        function
        for function in functions
        if hasattr(CudaLibrary, function) or function in ("target", "texts")
    ]
    if taken:
        raise CompileError(
            f"A function cannot be called {taken[0]} here: "
            "the library has a method of that name."
        )
    run: CallOnGpu | CallOnCpu
    if target == "gpu":
        run = CallOnGpu(builds.build_for_gpu(texts, name, architecture), texts)
    else:
        runtime = builds.runtime_library(target == "checked")
        run = CallOnCpu(
            builds.build_for_cpu(texts, name, target, runtime),
            runtime,
            texts,
            target == "checked",
        )
    return CudaLibrary(run, functions, texts, target)


class CudaLibrary:
    """The functions of a CUDA text as methods: `library.add(a, b, out, n)`.

    Pointers take tensors or None. A tensor for a `const` pointer stays unchanged. A tensor
    whose name begins with `out` must be written completely. The stream is PyTorch's current
    one. A kernel that goes wrong raises KernelError; the next call works again.
    """

    def __init__(
        self,
        run: CallOnGpu | CallOnCpu,
        functions: dict[str, signatures.Function],
        texts: dict[str, str],
        target: str,
    ):
        self.target, self.texts, self._run = target, texts, run
        self._functions = {
            name: _Callable(self, function) for name, function in functions.items()
        }

    def __getattr__(self, name: str):
        functions = self.__dict__.get("_functions", {})
        if name in functions:
            return functions[name]
        raise AttributeError(
            f"This library has no function {name}. It has: {', '.join(functions)}"
        )

    def __dir__(self):
        return [*super().__dir__(), *self._functions]

    def __repr__(self):
        functions = "".join(f"\n  {call}" for call in self._functions.values())
        return f"<CudaLibrary for target {self.target!r}:{functions}>"

    def options(
        self, *, seed: int = 0, os_threads: int | None = None, step_limit: int = 20_000_000
    ):
        """Settings for the CPU targets, from the next call on.

        seed: 0 lets threads take turns in order; any other number shuffles them.
        os_threads: how many processor threads target "fast" uses; None takes all.
        step_limit: how many steps a thread may take before target "checked" calls it endless.
        """
        run = self._cpu("options")
        threads = processors() if os_threads is None else os_threads
        for name, value, least, most in (
            ("seed", seed, 0, 2**31 - 1),
            ("os_threads", threads, 1, 1024),
            ("step_limit", step_limit, 1, 2**62),
        ):
            if not isinstance(value, int) or not least <= value <= most:
                raise ValueError(
                    f"options: {name} is a whole number from {least} to {most}, not {value!r}"
                )
        run.settings = (seed, threads, step_limit)

    @contextmanager
    def trace(self, *names: str) -> Iterator[list[Access]]:
        """`with library.trace("k_cache") as accesses:` lists each Access to these tensors.

        It lists the accesses of the calls within the `with`, in order. The name of a shared
        array is `"__shared__ row"`; its elements are counted in one row. Only for target
        "checked".
        """
        run = self._watched("trace", names)
        before = run.traced, run.accesses
        run.traced, run.accesses = names, []
        try:
            yield run.accesses
        finally:
            run.traced, run.accesses = before

    @contextmanager
    def count(self, *names: str) -> Iterator[Counts]:
        """`with library.count("k_cache") as counts:` adds up the work of the calls within it.

        The result is a Counts, with the bytes and loads of the named tensors. Only for target
        "checked".
        """
        run = self._watched("count", names)
        before = run.counted, run.counts
        run.counted, run.counts = names, Counts()
        try:
            yield run.counts
        finally:
            run.counted, run.counts = before

    @contextmanager
    def launches(self, *, stream: int = 0, failing: int = 0) -> Iterator[Launches]:
        """`with library.launches() as launches:` lists each Launch of the calls within it.

        `launches.returned` is the result of the last call's function. For the CPU targets.

        stream: the number of the stream that these calls get; 0 is the default stream.
        failing: the number, from 1, of a launch. In each call that launch fails with error 9,
            as with a wrong configuration. The call then raises KernelError, whatever its
            function returns.
        """
        run = self._cpu("launches")
        before = run.stream, run.failing_launch, run.launches
        run.stream, run.failing_launch, run.launches = stream, failing, Launches()
        try:
            yield run.launches
        finally:
            run.stream, run.failing_launch, run.launches = before

    def _watched(self, what: str, names: tuple[str, ...]) -> CallOnCpu:
        """The CPU call, after a check of the tensors' names. For `trace` and `count`."""
        run = self._cpu(what)
        if not run.checked:
            raise RuntimeError(f'{what} works with target="checked" only.')
        arguments = [
            argument
            for call in self._functions.values()
            for argument in call.function.arguments
        ]
        known = {argument.name for argument in arguments if argument.pointer}
        if what == "trace":
            known |= {name for name in names if name.startswith("__shared__ ")}
        unknown = ", ".join(name for name in names if name not in known)
        if unknown or not names:
            raise ValueError(
                f"{what} takes names of tensors, {', '.join(sorted(known))}; "
                f"not {unknown or 'none'}"
            )
        return run

    def _cpu(self, what: str) -> CallOnCpu:
        if isinstance(self._run, CallOnGpu):
            raise RuntimeError(
                f"{what} is for the CPU targets; this library was built for the GPU."
            )
        return self._run


class _Callable:
    """One function of a library."""

    def __init__(self, library: CudaLibrary, function: signatures.Function):
        self.library, self.function = library, function
        self.__name__, self.__doc__ = function.name, str(function)

    def __call__(self, *values, **named):
        self.library._run(self.function, *self._checked(values, named))

    def prepare(self, *values, **named) -> PreparedOnGpu | PreparedOnCpu:
        """Checks arguments and keeps them for calls that should take little time on the host.

        `add = library.add.prepare(a, b, out, n)`; then `add()` launches, and `add(b=other)`
        launches with another `b`, which stays for later calls. On a GPU such a call checks
        nothing. So a new argument must fit as the checked one did, on the same device, and
        every kept tensor must still exist.
        """
        given, device = self._checked(values, named)
        if isinstance(self.library._run, CallOnGpu):
            return PreparedOnGpu(self.library._run, self.function, given, device)
        return PreparedOnCpu(self.library._run, self.function, given)

    def _checked(self, values: tuple, named: dict):
        """The value of each argument by name, and the device of the tensors."""
        given = arguments.bind(self.function, values, named)
        device = arguments.check(
            self.function, given, "cuda" if self.library.target == "gpu" else "cpu"
        )
        return given, device

    def __repr__(self):
        return str(self.function)
