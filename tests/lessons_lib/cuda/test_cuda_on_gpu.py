"""What a library that nvcc compiled gets, now or prepared for later, and what becomes of its
errors. The machine is made up; its nvcc compiles C++ that notes what it gets.
"""

import pytest
import torch
from torch.utils import cpp_extension

from cuda_machine import GpuMachine, on_gpu
from cuda_text import error_of
from lessons_lib import KernelError, build_cuda

TEXT = """
#include <cstdint>
struct Sizes { const int* table; long long stride; };
extern "C" int note(int n, double* noted, const float* x, Sizes sizes, float scale,
                    cudaStream_t stream) {
  double values[] = {double(n), double(uintptr_t(x)), double(uintptr_t(sizes.table)),
                     double(sizes.stride), scale, double(uintptr_t(stream))};
  for (int i = 0; i < 6; ++i) noted[i] = values[i];
  return 0;
}
extern "C" int without_stream(double* noted) { return noted[0] = 5, 0; }
extern "C" int fail(int leaves, int returns) {
  if (leaves) last_error = leaves;
  return returns;
}
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("LESSONS_BUILD_DIR", str(folder))
        yield GpuMachine(monkeypatch, folder)


@pytest.fixture
def library(machine):
    machine.streams = 0
    return build_cuda(TEXT, target="gpu")


def memory(number: int = 1) -> torch.Tensor:
    return on_gpu(torch.zeros(6, dtype=torch.float64), number)


def numbers(**changes) -> dict:
    return dict(n=3, noted=memory(), x=None, table=None, stride=2**40, scale=0.5) | changes


def call_now(function, **values):
    function(**values)


def call_prepared(function, **values):
    function.prepare(**values)()


at_both_times = pytest.mark.parametrize("call", [call_now, call_prepared])


@at_both_times
def test_a_function_gets_addresses_numbers_structs_and_the_stream_of_the_gpu(library, call):
    noted, x = memory(), on_gpu(torch.zeros(2), 1)
    table = on_gpu(torch.zeros(2, dtype=torch.int32), 1)
    call(library.note, **numbers(noted=noted, x=x, table=table))
    assert noted.tolist() == [3, x.data_ptr(), table.data_ptr(), 2**40, 0.5, 1001]
    other = memory(2)
    call(library.note, **numbers(noted=other))
    assert other.tolist() == [3, 0, 0, 2**40, 0.5, 2002]
    call(library.without_stream, noted=other)
    assert other[0] == 5


@at_both_times
@pytest.mark.parametrize("leaves, returns", [(0, 9), (9, 0), (9, 1)])
def test_an_error_has_its_reason(library, call, leaves, returns):
    with pytest.raises(KernelError, match="^fail returned 9: reason 9. A launcher returns"):
        call(library.fail, leaves=leaves, returns=returns)
    call(library.fail, leaves=0, returns=0)  # it is forgotten


@at_both_times
@pytest.mark.parametrize("code, earlier", [(699, False), (700, True), (701, True)])
def test_an_error_of_a_running_kernel_may_come_from_an_earlier_one(
    library, call, code, earlier
):
    found = error_of(call, library.fail, leaves=0, returns=code)
    end = "This may come from a kernel that was launched before."
    assert str(found).endswith(end) == earlier


def test_what_is_given_again_changes_and_the_rest_stays(library):
    noted, x = memory(), on_gpu(torch.zeros(2), 1)
    call = library.note.prepare(**numbers(noted=noted))
    assert noted.tolist() == [0] * 6  # it is only prepared
    call()
    assert noted.tolist() == [3, 0, 0, 2**40, 0.5, 1001]
    call(x=x, stride=7)
    assert noted.tolist() == [3, x.data_ptr(), 0, 7, 0.5, 1002]
    call(n=4, x=None, scale=2)
    assert noted.tolist() == [4, 0, 0, 7, 2, 1003]
    with pytest.raises(KeyError, match="speed"):
        call(speed=1)


def test_two_prepared_calls_of_a_function_do_not_change_each_other(library):
    noted = memory()
    one, other = (library.note.prepare(**numbers(noted=noted, n=n)) for n in (1, 2))
    for call, changes, n in ((one, {}, 1), (other, dict(n=5), 5), (one, {}, 1)):
        call(**changes)
        assert noted[0] == n


@pytest.mark.parametrize("setting", ["options", "launches", "trace", "count"])
def test_what_is_for_the_cpu_is_refused_on_a_gpu(library, setting):
    with pytest.raises(RuntimeError, match=f"{setting} is for the CPU targets; this library"):
        with getattr(library, setting)():
            pass


def test_without_a_target_it_is_the_best_that_is_here(library, monkeypatch):
    assert build_cuda(TEXT).target == "gpu"
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    monkeypatch.delenv("LESSONS_BUILD_DIR")  # it has the CPU's runtime
    plain = 'extern "C" int nothing(cudaStream_t stream) { return 0; }'
    assert build_cuda(plain).target == "checked"
    with pytest.raises(
        RuntimeError,
        match='"gpu" cannot be had here: nvcc is not .* "checked" and "fast" need',
    ):
        build_cuda(plain, target="gpu")
    with pytest.raises(ValueError, match="one of gpu, fast, checked, or None .*; not 'cpu'"):
        build_cuda(plain, target="cpu")


def compiled(machine) -> list[str]:
    return [call for call in machine.calls() if " -c " in call]


def test_another_kind_of_gpu_is_another_build(machine, library, monkeypatch):
    before = len(compiled(machine))
    build_cuda(TEXT, target="gpu")
    assert len(compiled(machine)) == before
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))
    build_cuda(TEXT, target="gpu")
    assert len(compiled(machine)) == before + 1
