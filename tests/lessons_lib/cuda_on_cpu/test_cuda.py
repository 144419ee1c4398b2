"""One call for CUDA: built for the CPU, called with tensors, and what goes wrong is said
before, during or after.
"""

import os
import re

import pytest
import torch

from cuda_text import ON_CPU, Kernels, error_of, launcher
from lessons_lib import CompileError, KernelError, build_cuda, run_isolated

ADD = """
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}""" + launcher(
    "add(const float* a, const float* b, float* out, int n)", "(n + 63) / 64", "64"
)
TEXT = (
    ADD
    + """
struct Params {
  float* x;
  int rows, columns, row_stride;
  float factor;
};
__global__ void scale_kernel(Params params) {
  float* row = params.x + blockIdx.x * params.row_stride;
  if (threadIdx.x < params.columns) row[threadIdx.x] *= params.factor;
}
__global__ void both_kernel(float* k, float* v) {
  k[2 * threadIdx.x] += 1;
  v[2 * threadIdx.x] += 2;
}
extern "C" int refuse(int code) { return code; }"""
    + launcher("scale(Params params)", "params.rows", "32")
    + launcher("both(float* k, float* v)", threads="8")
)
kernels = Kernels(TEXT, "cuda")


def numbers(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.arange(n, dtype=torch.float32), torch.ones(n), torch.full((n,), float("nan"))


@pytest.fixture(params=ON_CPU)
def target(request):
    return request.param


def test_a_kernel_adds_vectors(target):
    library = kernels(target)
    a, b, out = numbers(150)
    library.add(a, b, out, 150)
    assert torch.equal(out, a + b) and library.target == target
    out.zero_()
    library.add(a, n=0 + 150, out=out, b=b)
    assert torch.equal(out, a + b)


def test_a_text_needs_no_include_and_several_count_as_one():
    kernel, launcher = ADD.split('extern "C"')
    library = build_cuda(
        kernel, f'extern "C"{launcher}', names=("kernel.cu", "launcher.cu"), target="checked"
    )
    a, b, out = numbers(3)
    library.add(a, b, out, 3)
    assert out.tolist() == [1, 2, 3]


def test_a_library_shows_what_it_has(target):
    library = kernels(target)
    assert {"add", "scale", "options", "trace"} <= set(dir(library))
    assert f"target '{target}'" in repr(library)
    words = "add(const float* a, const float* b, float* out, int n)"
    assert words in repr(library) and words == repr(library.add) == library.add.__doc__
    assert repr(library.scale).startswith("scale(float* x, int rows, int columns, int row_str")
    with pytest.raises(
        AttributeError, match="no function sub. It has: add, refuse, scale, both"
    ):
        library.sub


def test_memory_between_the_elements_stays_as_it_is(target):
    library = kernels(target)
    whole = torch.arange(40.0).view(4, 10)
    part, expected = whole[1:3, 2:5], whole.clone()
    expected[1:3, 2:5] *= 2
    library.scale(x=part, rows=2, columns=3, row_stride=10, factor=2)
    assert torch.equal(whole, expected)


def test_tensors_that_interlace_are_both_updated(target):
    pairs = torch.zeros(8, 2)
    kernels(target).both(pairs[:, 0], pairs[:, 1])
    assert pairs.tolist() == [[1, 2]] * 8


def test_after_an_error_nothing_has_changed_and_the_next_call_works():
    library = kernels()
    a, b, out = numbers(100)
    found = error_of(library.add, a, b[:80], out, 100)
    assert (found.kind, found.kernel, found.name) == ("out-of-bounds", "add_kernel", "b")
    assert (found.source, found.line) == ("your code", 4)
    assert (found.block, found.thread) == ((1, 0, 0), (16, 0, 0))
    assert str(found).startswith(
        "Thread 16 reads b[80], outside of the tensor: b has the shape (80,).\n"
        "    your code, line 4: if (i < n)"
    )
    assert out.isnan().all()
    with pytest.raises(KernelError, match=r"out\[99\] was never written"):
        library.add(a, b, out, 99)
    library.add(a, b, out, 100)
    assert torch.equal(out, a + b)


def test_what_a_function_returns_is_told_with_what_it_launches(target):
    library = kernels(target)
    words = "refuse, which launches add_kernel and .*scale_kernel, returned 7: unrecognized"
    with pytest.raises(KernelError, match=words):
        library.refuse(7)


def test_accesses_are_traced_until_an_error():
    library = kernels()
    a, b, out = numbers(70)
    with library.trace("a", "out") as accesses:
        library.add(a, b, out, 70)
    assert len(accesses) == 140
    assert {(access.source, access.line) for access in accesses} == {("your code", 4)}
    with library.trace("b") as accesses, pytest.raises(KernelError):
        library.add(a, b[:60], out, 70)
    assert [access.index for access in accesses] == [(i,) for i in range(60)]


@pytest.mark.parametrize("what", ["trace", "count"])
def test_what_cannot_be_traced_or_counted_is_said(what):
    library = kernels()
    for names, refused in (((), "none"), (("a", "n"), "n"), (("y", "a", "rows"), "y, rows")):
        words = f"{what} takes names of tensors, a, b, k, out, v, x; not {refused}$"
        with pytest.raises(ValueError, match=words), getattr(library, what)(*names):
            pass
    fast = kernels("fast")
    words = f'{what} works with target="checked" only'
    with pytest.raises(RuntimeError, match=words), getattr(fast, what)("a"):
        pass


def test_a_trace_inside_another_has_its_own_and_an_error_ends_it():
    library = kernels()

    def add(n):
        library.add(*numbers(n), n)

    with library.trace("a") as outer, library.count("a") as counts:
        add(2)
        with (
            pytest.raises(KeyError),
            library.trace("b") as inner,
            library.count("b") as others,
        ):
            add(3)
            raise KeyError
        add(4)
    add(5)
    assert [access.name for access in outer] == ["a"] * 6
    assert [access.name for access in inner] == ["b"] * 3
    assert (counts.bytes_read, others.bytes_read) == (4 * 6, 4 * 3)


@pytest.mark.parametrize(
    "broken, line, words",
    [
        ("float x = ;", 3, r"expected (primary-)?expression"),  # GCC's words, and Clang's
        ("add_kernel<<<1, 2>>>;", 3, "come the kernel's arguments"),
        ("add_kernel<<<1, 2>>>(1);", 3, ""),
    ],
)
def test_code_that_does_not_compile_is_an_error_at_its_line(target, broken, line, words):
    with pytest.raises(CompileError) as caught:
        build_cuda(
            ADD,
            f'extern "C" int f(int n)\n{{\n  {broken}\n  return 0;\n}}',
            names=("add.cu", "broken.cu"),
            target=target,
        )
    assert (caught.value.source, caught.value.line) == ("broken.cu", line) and re.search(
        words, str(caught.value)
    )
    assert f"\n    {'  ' + broken}" in str(caught.value)


def test_what_a_library_has_for_itself_is_no_name_of_a_function():
    for name in ("trace", "options", "target", "texts"):
        with pytest.raises(CompileError, match=f"A function cannot be called {name} here"):
            build_cuda(f'extern "C" int {name}(int n) {{ return 0; }}')


def test_both_targets_live_in_one_process_and_in_an_isolated_one():
    def both(text):
        a, b, out = numbers(20)
        for target in ON_CPU:
            build_cuda(text, target=target).add(a, b, out, 20)
        try:
            build_cuda(text, target="checked").add(a, b, out, 21)
        except KernelError as error:
            return error.kind, error.line

    assert both(TEXT) == ("out-of-bounds", 4)
    assert run_isolated(both, TEXT, time_limit=60).value == ("out-of-bounds", 4)


def test_a_kernel_that_the_processor_stops_is_an_error_in_both_targets(target):
    text = """__global__ void stop_kernel(const int* x, int* out) {
  out[threadIdx.x] = 7 / x[threadIdx.x];
}
extern "C" int nested(int* out, cudaStream_t stream) {
  auto inner = [] (const int* x, int* out) { stop_kernel<<<1, 1>>>(x, out); };
  inner<<<1, 1, 0, stream>>>(out, out);
  return cudaGetLastError();
}""" + launcher("stop(const int* x, int* out)", "3", "4")
    library = build_cuda(text, target=target)
    out, x = torch.zeros(4, dtype=torch.int), torch.tensor([1, 7, 0, 2], dtype=torch.int32)
    with pytest.raises(KernelError, match="Thread 2 divides an integer by zero") as caught:
        library.stop(x, out)
    found = caught.value
    assert (found.kind, found.line, found.block) == ("division-by-zero", 2, (0, 0, 0))
    with pytest.raises(KernelError, match="a kernel cannot launch kernels here"):
        library.nested(out)


def test_a_tensor_given_twice_is_one_memory_and_a_part_of_it_is_refused():
    library = kernels()
    library.add(a := torch.zeros(100), torch.ones(100), a, 100)
    assert torch.equal(a, torch.ones(100))
    with pytest.raises(ValueError, match="add: a shares a part of its memory with out, which"):
        library.add(a[:50], torch.ones(50), a[1:51], 50)


@pytest.mark.parametrize(
    "name, least, most",
    [("seed", 0, 2**31 - 1), ("os_threads", 1, 1024), ("step_limit", 1, 2**62)],
)
def test_a_setting_is_a_whole_number_within_its_limits(name, least, most):
    library = kernels("fast")
    words = f"options: {name} is a whole number from {least} to {most}"
    for value in (least - 1, most + 1, 1.0, "1"):
        with pytest.raises(ValueError, match=words):
            library.options(**{name: value})
    library.options(**{name: least}), library.options(**{name: most})


def test_a_build_that_was_just_made_names_lines_too():
    """A library that is loaded where it is made and then moved would have none."""
    library = build_cuda(f"{ADD}// {os.urandom(8).hex()}", target="checked")
    found = error_of(library.add, *numbers(4), 5)
    assert (found.kind, found.line) == ("out-of-bounds", 4)
