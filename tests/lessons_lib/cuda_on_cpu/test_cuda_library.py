"""What a CUDA library is to Python: its functions as methods, its settings, and what it can
list of the calls inside. Nothing is compiled: the calls go to stand-ins.
"""

from pathlib import Path

import pytest
import torch

from lessons_lib import cuda
from lessons_lib.compiler_errors import CompileError
from lessons_lib.cuda_calls import processors

SOURCE = """
struct Sizes { int rows; float* table; };
extern "C" int add(const float* a, float* out, int n) { return 0; }
extern "C" int fill(Sizes sizes, cudaStream_t stream) { return 0; }
"""
RUNTIME = Path("/built/runtime.so")


class OnCpu:
    """Remembers what it was made of and how it was called."""

    traced, accesses, counted, counts = (), [], (), None
    stream, failing_launch, launches, settings = 0, 0, None, None

    def __init__(self, library, runtime, texts, checked):
        self.made_of, self.checked = (library, runtime, texts), checked
        self.calls = []

    def __call__(self, function, values, device):
        self.calls.append((function.name, dict(values), device))


class OnGpu:
    def __init__(self, library, texts):
        self.made_of, self.calls = (library, texts), []

    __call__ = OnCpu.__call__


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch):
    """A library is the tuple of its arguments. This machine's best target is "fast"."""
    monkeypatch.setattr(cuda, "CallOnCpu", OnCpu)
    monkeypatch.setattr(cuda, "CallOnGpu", OnGpu)
    monkeypatch.setattr(cuda, "PreparedOnGpu", lambda *made_of: ("prepared", *made_of))
    for name, stand_in in {
        "choose_target": lambda target: target or "fast",
        "runtime_library": lambda checked: RUNTIME / str(checked),
        "build_for_cpu": lambda *how: ("cpu", *how),
        "build_for_gpu": lambda *how: ("gpu", *how),
    }.items():
        monkeypatch.setattr(cuda.cuda_builds, name, stand_in)


def build(target="checked", source=SOURCE, **how):
    return cuda.build_cuda(source, target=target, **how)


@pytest.fixture(params=["options", "launches", "trace", "count"])
def setting(request):
    return request.param


def test_the_module_offers_what_it_names():
    assert {"build_cuda", "CudaLibrary"} < set(cuda.__all__)
    assert all(hasattr(cuda, name) for name in cuda.__all__)


@pytest.mark.parametrize("target, checked", [("fast", False), ("checked", True)])
def test_a_cpu_target_has_a_runtime_of_its_own(target, checked):
    library, texts = build(target), {"your code": SOURCE}
    runtime = RUNTIME / str(checked)
    assert library._run.made_of == (("cpu", texts, "cuda", target, runtime), runtime, texts)
    assert library._run.checked is checked
    assert (library.target, library.texts) == (target, texts)


def test_a_gpu_gets_the_architecture_too():
    library = build("gpu", names=("a.cu",), name="mine", architecture="90a")
    texts = {"a.cu": SOURCE}
    assert library._run.made_of == (("gpu", texts, "mine", "90a"), texts)
    assert build("gpu")._run.made_of[0][2:] == ("cuda", "")


def test_without_a_target_it_is_the_best_that_is_here():
    assert build(None).target == "fast"


@pytest.mark.parametrize("name", ["trace", "options", "target", "texts"])
def test_a_function_cannot_have_the_name_of_what_a_library_has(name):
    with pytest.raises(
        CompileError, match=f"A function cannot be called {name} here: the lib"
    ):
        build(source=f'extern "C" int {name}(int n) {{ return 0; }}')


def test_a_function_is_a_method_that_tells_what_it_takes():
    library = build()
    assert repr(library.add) == "add(const float* a, float* out, int n)"
    assert (library.add.__name__, library.add.__doc__) == ("add", repr(library.add))
    assert repr(library) == (
        "<CudaLibrary for target 'checked':\n"
        "  add(const float* a, float* out, int n)\n"
        "  fill(int rows, float* table)>"
    )
    assert {"add", "fill", "options", "target"} <= set(dir(library))
    with pytest.raises(AttributeError, match="has no function sub. It has: add, fill$"):
        library.sub


def test_a_library_that_is_only_half_made_has_no_functions():
    with pytest.raises(AttributeError, match="has no function add"):
        cuda.CudaLibrary.__new__(cuda.CudaLibrary).add


def test_a_call_gets_its_values_by_name_and_the_device_of_its_tensors():
    library, a, out = build(), torch.zeros(3), torch.zeros(3)
    library.add(a, n=3, out=out)
    library.add(None, None, 2)
    (name, values, device), (_, others, no_device) = library._run.calls
    assert name == "add" and values["a"] is a and values["out"] is out and values["n"] == 3
    assert device == torch.device("cpu")
    assert others == {"a": None, "out": None, "n": 2} and no_device is None
    with pytest.raises(TypeError, match="add: missing argument n"):
        library.add(a, out)


def test_tensors_must_be_where_the_library_was_built_for():
    with pytest.raises(
        ValueError, match="a is on cpu, but this library was built for the GPU"
    ):
        build("gpu").add(torch.zeros(1), None, 1)
    with pytest.raises(ValueError, match="a is on meta, but .* was built for the CPU"):
        build("fast").add(torch.zeros(1, device="meta"), None, 1)


def test_a_prepared_call_keeps_its_values_and_takes_others():
    library, a = build(), torch.zeros(3)
    prepared = library.add.prepare(a, None, 3)
    assert library._run.calls == []
    prepared()
    prepared(n=2, a=None)
    assert [(values["n"], device) for _, values, device in library._run.calls] == [
        (3, torch.device("cpu")),
        (2, None),
    ]
    with pytest.raises(TypeError, match="n takes a whole number"):
        library.add.prepare(a, None, 0.5)


def test_a_prepared_call_on_a_gpu_is_made_of_what_was_checked():
    library = build("gpu")
    what, run, function, values, device = library.add.prepare(None, n=3, out=None)
    assert (what, run, function.name) == ("prepared", library._run, "add")
    assert values == {"a": None, "n": 3, "out": None} and device is None


def test_settings_are_the_usual_ones_unless_they_are_given():
    library = build("fast")
    library.options()
    assert library._run.settings == (0, processors(), 20_000_000)
    library.options(seed=3, os_threads=2, step_limit=10)
    assert library._run.settings == (3, 2, 10)


@pytest.mark.parametrize(
    "name, least, most",
    [("seed", 0, 2**31 - 1), ("os_threads", 1, 1024), ("step_limit", 1, 2**62)],
)
def test_a_setting_is_a_whole_number_within_its_limits(name, least, most):
    library = build("fast")
    for value in (least, most):
        library.options(**{name: value})
        assert value in library._run.settings
    before = library._run.settings
    for value in (least - 1, most + 1, 1.0, "1"):
        with pytest.raises(
            ValueError, match=f"{name} is a whole number from {least} to {most}"
        ):
            library.options(**{name: value})
    assert library._run.settings == before


def test_what_is_for_the_cpu_is_refused_on_a_gpu(setting):
    with pytest.raises(RuntimeError, match=f"{setting} is for the CPU targets; this library"):
        with getattr(build("gpu"), setting)():
            pass


@pytest.mark.parametrize("what", ["trace", "count"])
def test_only_a_watched_library_traces_and_counts(what):
    with pytest.raises(RuntimeError, match=f'{what} works with target="checked" only'):
        with getattr(build("fast"), what)("a"):
            pass


@pytest.mark.parametrize("what", ["trace", "count"])
@pytest.mark.parametrize(
    "names, refused", [((), "none"), (("a", "n"), "n"), (("x", "a", "rows"), "x, rows")]
)
def test_only_tensors_are_traced_and_counted(what, names, refused):
    with pytest.raises(
        ValueError, match=f"{what} takes names of .*; not {refused}$"
    ) as caught:
        with getattr(build(), what)(*names):
            pass
    assert " a, out, table; " in str(caught.value)


def test_a_trace_is_for_the_calls_inside():
    library = build()
    run, before = library._run, ("before",)
    run.traced, run.accesses = before, ["earlier"]
    with library.trace("a", "table") as accesses:
        assert run.traced == ("a", "table") and run.accesses is accesses and accesses == []
        with library.trace("out") as others:
            assert run.traced == ("out",) and run.accesses is others is not accesses
        assert run.traced == ("a", "table") and run.accesses is accesses
    assert (run.traced, run.accesses) == (before, ["earlier"])


def test_counts_are_of_the_calls_inside():
    library = build()
    run = library._run
    with library.count("a") as counts:
        assert run.counted == ("a",) and run.counts is counts and counts == cuda.Counts()
        with library.count("out", "a") as others:
            assert run.counted == ("out", "a") and run.counts is others is not counts
        assert run.counted == ("a",) and run.counts is counts
    assert (run.counted, run.counts) == ((), None)


@pytest.mark.parametrize("target", ["fast", "checked"])
def test_launches_are_those_of_the_calls_inside(target):
    library = build(target)
    run = library._run
    with library.launches() as launches:
        assert run.launches is launches and launches == cuda.Launches()
        assert (run.stream, run.failing_launch) == (0, 0)
        with library.launches(stream=7, failing=2) as others:
            assert (run.stream, run.failing_launch) == (7, 2)
            assert run.launches is others is not launches
        assert (run.stream, run.failing_launch, run.launches) == (0, 0, launches)
    assert (run.stream, run.failing_launch, run.launches) == (0, 0, None)


@pytest.mark.parametrize("ask", ["trace", "count", "launches"])
def test_an_error_inside_ends_a_trace_too(ask):
    library = build()
    with pytest.raises(KeyError), getattr(library, ask)(*["a"][: ask != "launches"]):
        raise KeyError
    run = library._run
    assert (run.traced, run.counted, run.launches) == ((), (), None)
