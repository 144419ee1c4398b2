"""What a call on a GPU gives to the library, now or prepared for later, and what it makes of
an error. The library and PyTorch's GPU are stand-ins.
"""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from cuda_stand_ins import Library
from lessons_lib import KernelError
from lessons_lib.cuda_calls import CallOnGpu
from lessons_lib.cuda_prepared import PreparedOnCpu, PreparedOnGpu
from lessons_lib.cuda_signatures import functions

TEXT = """
struct Sizes { const int* table; long long stride; };
extern "C" int f(int n, float* out, Sizes sizes, float scale, cudaStream_t stream) {
  scale_kernel<<<1, 1>>>(out);
}
extern "C" int g(float* x) {}
"""
F, G = (functions({"your code": TEXT})[name] for name in "fg")


class GpuLibrary(Library):
    """A library that nvcc compiled. CUDA keeps the last error until somebody asks for it."""

    def __init__(self):
        super().__init__(self.launch)
        self.last_error, self.returned, self.leaves = 0, 0, 0
        self.lessons_lib_error_text = ErrorText()

    def launch(self, *values):
        self.last_error = self.leaves or self.last_error
        return self.returned

    def lessons_lib_last_error(self):
        last, self.last_error = self.last_error, 0
        return last


class ErrorText:
    restype = ctypes.c_int

    def __call__(self, code):
        return b"reason %d" % code if self.restype is ctypes.c_char_p else 0


@pytest.fixture
def gpu(monkeypatch):
    """Each GPU has its own streams, and another one is current each time that it is asked."""
    made = SimpleNamespace(current=None, asked=0)

    class Device:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            made.current = self.device

        def __exit__(self, *_):
            made.current = None

    def current_stream(device):
        assert device == made.current
        made.asked += 1
        return SimpleNamespace(cuda_stream=1000 * device + made.asked)

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    return made


def call_now(library, function, device=1, **values):
    CallOnGpu(library, {"your code": TEXT})(function, values, device)


def prepare(library, function, device=1, **values):
    run = CallOnGpu(library, {"your code": TEXT})
    return PreparedOnGpu(run, function, values, device)


def call_prepared(library, function, device=1, **values):
    prepare(library, function, device, **values)()


def numbers(**changes) -> dict:
    return dict(n=3, out=None, table=None, stride=2**40, scale=0.5) | changes


at_both_times = pytest.mark.parametrize("call", [call_now, call_prepared])


@at_both_times
def test_a_function_gets_addresses_numbers_structs_and_the_stream(gpu, call):
    library = GpuLibrary()
    out, table = torch.zeros(2), torch.zeros(2, dtype=torch.int32)
    call(library, F, **numbers(out=out, table=table))
    call(library, F, device=2, **numbers())
    assert library.got == [
        ("f", 3, out.data_ptr(), dict(table=table.data_ptr(), stride=2**40), 0.5, 1001),
        ("f", 3, None, dict(table=None, stride=2**40), 0.5, 2002),
    ]


@at_both_times
def test_a_function_without_a_stream_gets_none(gpu, call):
    library, x = GpuLibrary(), torch.zeros(1)
    call(library, G, x=x)
    assert library.got == [("g", x.data_ptr())]


@at_both_times
@pytest.mark.parametrize("how", ["returned", "left", "both"])
def test_an_error_has_its_reason(gpu, call, how):
    library = GpuLibrary()
    if how != "returned":
        library.leaves = 9
    if how != "left":
        library.returned = 9 if how == "returned" else 1
    with pytest.raises(KernelError) as caught:
        call(library, F, **numbers())
    assert str(caught.value).startswith(
        "f, which launches scale_kernel, returned 9: reason 9. A launcher returns"
    )
    assert caught.value.kernel == "scale_kernel" and library.last_error == 0


@at_both_times
def test_an_error_from_somewhere_else_is_not_the_functions(gpu, call):
    library = GpuLibrary()
    library.last_error = 9
    call(library, F, **numbers())
    assert len(library.got) == 1


@at_both_times
@pytest.mark.parametrize("code, earlier", [(699, False), (700, True), (701, True)])
def test_an_error_of_a_running_kernel_may_come_from_an_earlier_one(gpu, call, code, earlier):
    library = GpuLibrary()
    library.returned = code
    with pytest.raises(KernelError) as caught:
        call(library, F, **numbers())
    end = "This may come from a kernel that was launched before."
    assert str(caught.value).endswith(end) == earlier
    assert "None" not in str(caught.value)


def test_what_is_given_again_changes_and_the_rest_stays(gpu):
    library, out = GpuLibrary(), torch.zeros(2)
    call = prepare(library, F, **numbers())
    assert library.got == []  # it is only prepared
    call()
    call(out=out, stride=7)
    call(n=4, out=None, scale=2)
    assert library.got == [
        ("f", 3, None, dict(table=None, stride=2**40), 0.5, 1001),
        ("f", 3, out.data_ptr(), dict(table=None, stride=7), 0.5, 1002),
        ("f", 4, None, dict(table=None, stride=7), 2, 1003),
    ]
    with pytest.raises(KeyError, match="speed"):
        call(speed=1)


def test_two_prepared_calls_of_a_function_do_not_change_each_other(gpu):
    library = GpuLibrary()
    one, other = prepare(library, F, **numbers(n=1)), prepare(library, F, **numbers(n=2))
    one(), other(n=5), one()
    assert [values[1] for values in library.got] == [1, 5, 1]


def test_a_prepared_call_on_the_cpu_is_checked_each_time():
    calls = []
    x, y = torch.zeros(1), torch.ones(1)
    call = PreparedOnCpu(lambda *those: calls.append(those), F, numbers(out=x, n=1))
    call()
    call(n=2, out=y)
    with pytest.raises(TypeError, match="f: n takes a whole number"):
        call(n=0.5, out=x)
    call()
    cpu = torch.device("cpu")
    assert [(function, device) for function, _, device in calls] == [(F, cpu)] * 3
    assert [values for _, values, _ in calls[1:]] == [numbers(out=y, n=2)] * 2
