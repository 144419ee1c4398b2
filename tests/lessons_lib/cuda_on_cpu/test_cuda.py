"""One call for CUDA: built for the CPU, called with tensors, and what goes wrong is said
before, during or after.
"""

import os
import pickle
import re
import subprocess
import sys

import pytest
import torch

from lessons_lib import CompileError, KernelError, build_cuda, cuda_builds, run_isolated
from lessons_lib.paths import ROOT

ADD = """
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}
extern "C" int add(const float* a, const float* b, float* out, int n, cudaStream_t stream) {
  add_kernel<<<(n + 63) / 64, 64, 0, stream>>>(a, b, out, n);
  return cudaGetLastError();
}
"""
SCALE = """
struct Params {
  float* x;
  int rows, columns, row_stride;
  float factor;
};
__global__ void scale_kernel(Params params) {
  float* row = params.x + blockIdx.x * params.row_stride;
  if (threadIdx.x < params.columns) row[threadIdx.x] *= params.factor;
}
extern "C" int scale(Params params, cudaStream_t stream) {
  scale_kernel<<<params.rows, 32, 0, stream>>>(params);
  return cudaGetLastError();
}
extern "C" int refuse(int code) { return code; }
extern "C" int scale_too_wide(float* x, cudaStream_t stream) {
  scale_kernel<<<1, 2048, 0, stream>>>(Params{x, 1, 2048, 1, 1.0f});
  return 0;  // swallows the error
}
"""
CPU_TARGETS = ("fast", "checked")


def numbers(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.arange(n, dtype=torch.float32), torch.ones(n), torch.full((n,), float("nan"))


@pytest.fixture(params=CPU_TARGETS)
def target(request):
    return request.param


def test_a_kernel_adds_vectors(target):
    library = build_cuda(ADD, target=target)
    a, b, out = numbers(150)
    library.add(a, b, out, 150)
    assert torch.equal(out, a + b) and library.target == target
    out.zero_()
    library.add(a, n=0 + 150, out=out, b=b)
    assert torch.equal(out, a + b)


def test_a_text_needs_no_include_and_several_count_as_one(target):
    kernel, launcher = ADD.split('extern "C"')
    library = build_cuda(
        kernel, f'extern "C"{launcher}', names=("kernel.cu", "launcher.cu"), target=target
    )
    a, b, out = numbers(3)
    library.add(a, b, out, 3)
    assert out.tolist() == [1, 2, 3]


def test_a_library_shows_what_it_has(target):
    library = build_cuda(ADD, SCALE, target=target)
    assert {"add", "scale", "options", "trace"} <= set(dir(library))
    assert f"target '{target}'" in repr(library)
    assert "add(const float* a, const float* b, float* out, int n)" in repr(library)
    assert (
        repr(library.scale)
        == "scale(float* x, int rows, int columns, int row_stride, float factor)"
    )
    with pytest.raises(AttributeError, match="no function sub. It has: add, scale, refuse"):
        library.sub


def test_memory_between_the_elements_stays_as_it_is(target):
    library = build_cuda(SCALE, target=target)
    whole = torch.arange(40.0).view(4, 10)
    part, expected = whole[1:3, 2:5], whole.clone()
    expected[1:3, 2:5] *= 2
    library.scale(x=part, rows=2, columns=3, row_stride=10, factor=2)
    assert torch.equal(whole, expected)


def test_tensors_that_interlace_are_both_updated(target):
    text = """
__global__ void both_kernel(float* k, float* v) {
  k[2 * threadIdx.x] += 1;
  v[2 * threadIdx.x] += 2;
}
extern "C" int both(float* k, float* v, cudaStream_t stream) {
  both_kernel<<<1, 8, 0, stream>>>(k, v);
  return cudaGetLastError();
}"""
    pairs = torch.zeros(8, 2)
    build_cuda(text, target=target).both(pairs[:, 0], pairs[:, 1])
    assert pairs.tolist() == [[1, 2]] * 8


def test_after_an_error_nothing_has_changed_and_the_next_call_works():
    library = build_cuda(ADD, target="checked")
    a, b, out = numbers(100)
    with pytest.raises(KernelError) as caught:
        library.add(a, b[:80], out, 100)
    found = caught.value
    assert (found.kind, found.kernel, found.name) == ("out-of-bounds", "add_kernel", "b")
    assert (found.source, found.line, found.block, found.thread) == (
        "your code",
        4,
        (1, 0, 0),
        (16, 0, 0),
    )
    assert str(found).startswith(
        "Thread 16 reads b[80], outside of the tensor: b has the shape (80,).\n"
        "    your code, line 4: if (i < n)"
    )
    assert str(pickle.loads(pickle.dumps(found))) == str(found)
    assert out.isnan().all()
    with pytest.raises(KernelError, match=r"out\[99\] was never written"):
        library.add(a, b, out, 99)
    library.add(a, b, out, 100)
    assert torch.equal(out, a + b)


def test_the_same_text_under_another_name_is_called_by_that():
    for name in ("first.cu", "folder/second one.cu"):
        with pytest.raises(KernelError) as caught:
            build_cuda(ADD, names=(name,), target="checked").add(*numbers(10), 11)
        assert (caught.value.source, caught.value.line) == (name, 4)


def test_a_refused_launch_is_named_even_if_the_launcher_swallows_it(target):
    library = build_cuda(SCALE, target=target)
    for call in (
        lambda: library.scale_too_wide(torch.zeros(3)),
        lambda: library.scale(x=torch.zeros(3), rows=0, columns=3, row_stride=3, factor=1),
    ):
        with pytest.raises(KernelError, match="scale_kernel") as caught:
            call()
        assert (caught.value.kind, caught.value.kernel) == ("bad-launch", "scale_kernel")
        assert caught.value.line in (12, 17)
    with pytest.raises(
        KernelError,
        match="refuse, which launches scale_kernel, returned 7: unrecognized error code. ",
    ):
        library.refuse(7)
    x = torch.ones(3)
    library.scale(x=x, rows=1, columns=3, row_stride=3, factor=3)
    assert x.tolist() == [3, 3, 3]


def test_wrong_arguments_are_named_before_anything_runs(target):
    library = build_cuda(ADD, target=target)
    a, b, out = numbers(4)
    for arguments, error, words in (
        ((a.double(), b, out, 4), TypeError, "add: a takes a tensor of torch.float32"),
        ((a, b, out), TypeError, "add: missing argument n"),
        ((a, b, out, 4.5), TypeError, "add: n takes a whole number"),
        ((a, b, out.to("meta"), 4), ValueError, "add: out is on meta"),
    ):
        with pytest.raises(error, match=words):
            library.add(*arguments)


def test_bytes_are_picked_from_two_numbers(target):
    text = """
__global__ void pick_kernel(const int* a, const int* b, const int* selectors, int* out) {
  int i = threadIdx.x;
  out[i] = __byte_perm(a[i], b[i], selectors[i]);
}
extern "C" int pick(const int* a, const int* b, const int* selectors, int* out, int n,
                    cudaStream_t stream) {
  pick_kernel<<<1, n, 0, stream>>>(a, b, selectors, out);
  return cudaGetLastError();
}"""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randint(-(2**31), 2**31, (2, 256), generator=generator).int()
    digits = torch.randint(0, 8, (256, 4), generator=generator)
    selectors = (digits << torch.tensor([0, 4, 8, 12])).sum(1).int()
    out = torch.zeros(256, dtype=torch.int32)
    build_cuda(text, target=target).pick(a, b, selectors, out, 256)
    both = torch.stack([a, b], 1).view(torch.uint8)  # (256, 8), the lowest byte of a first
    assert torch.equal(out, both.gather(1, digits).view(torch.int32).flatten())


def test_a_null_pointer_is_reported():
    with pytest.raises(KernelError, match="through a null pointer") as caught:
        build_cuda(ADD, target="checked").add(None, *numbers(4)[1:], 4)
    assert (caught.value.kind, caught.value.line) == ("no-address", 4)


def test_accesses_are_traced():
    library = build_cuda(ADD, target="checked")
    a, b, out = numbers(70)
    with library.trace("a", "out") as accesses:
        library.add(a, b, out, 70)
        assert len(accesses) == 140
    library.add(a, b, out, 70)
    assert len(accesses) == 140 and {access.line for access in accesses} == {4}
    assert [
        (access.block, access.thread, access.index, access.kind)
        for access in accesses
        if access.name == "out"
    ] == [((i // 64, 0, 0), (i % 64, 0, 0), (i,), "write") for i in range(70)]
    with library.trace("b") as accesses, pytest.raises(KernelError):
        library.add(a, b[:60], out, 70)
    assert [access.index for access in accesses] == [(i,) for i in range(60)]


def test_what_cannot_be_traced_is_said():
    library = build_cuda(ADD, target="checked")
    for names, words in ((("c",), "a, b, out; not c"), ((), "not none")):
        with pytest.raises(ValueError, match=words), library.trace(*names):
            pass
    with (
        pytest.raises(RuntimeError, match='target="checked" only'),
        build_cuda(ADD, target="fast").trace("a"),
    ):
        pass


def test_threads_take_turns_in_another_order_with_a_seed():
    library = build_cuda(ADD, target="checked")
    a, b, out = numbers(64)
    orders = []
    for seed in (0, 1, 2, 1):
        library.options(seed=seed)
        with library.trace("a") as accesses:
            library.add(a, b, out, 64)
        orders.append([access.index for access in accesses])
    assert orders[0] == [(i,) for i in range(64)]
    assert orders[1] == orders[3] and len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == orders[0] for order in orders)


def test_an_endless_loop_ends():
    text = """__global__ void wait_kernel(volatile int* flag) {
  while (*flag == 0) {
  }
}
extern "C" int wait(int* flag, cudaStream_t stream) {
  wait_kernel<<<1, 2, 0, stream>>>(flag);
  return cudaGetLastError();
}"""
    library = build_cuda(text, target="checked")
    library.options(step_limit=10_000)
    with pytest.raises(KernelError, match="still running after 10000 steps") as caught:
        library.wait(torch.zeros(1, dtype=torch.int32))
    assert caught.value.kind == "no-end" and caught.value.line == 2
    library.wait(torch.ones(1, dtype=torch.int32))


@pytest.mark.parametrize(
    "broken, line, words",
    [
        ("float x = ;", 3, r"expected (primary-)?expression"),  # GCC's words, and Clang's
        ("__shared__ float x = 0;", 3, "has no initial value"),
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


def test_what_python_could_not_call_is_refused():
    with pytest.raises(CompileError, match="begins with  extern"):
        build_cuda("__global__ void k() {}", target="fast")
    with pytest.raises(CompileError, match="A function cannot be called trace here"):
        build_cuda('extern "C" int trace(int n) { return 0; }', target="fast")
    with pytest.raises(TypeError, match="source 1 is int: 3"):
        build_cuda(3)


def test_a_target_that_is_not_there_says_what_is_missing(monkeypatch):
    with pytest.raises(ValueError, match="gpu, fast, checked, or None"):
        build_cuda(ADD, target="cpu")
    monkeypatch.setattr(cuda_builds, "no_gpu", lambda: "nvcc is not installed.")
    with pytest.raises(
        RuntimeError,
        match='cannot be had here: nvcc is not installed. The targets "checked" and "fast"',
    ):
        build_cuda(ADD, target="gpu")
    assert build_cuda(ADD).target == "checked"


def test_both_targets_live_in_one_process_and_in_an_isolated_one():
    def both(text):
        a, b, out = numbers(20)
        for target in CPU_TARGETS:
            build_cuda(text, target=target).add(a, b, out, 20)
        try:
            build_cuda(text, target="checked").add(a, b, out, 21)
        except KernelError as error:
            return error.kind, error.line

    assert both(ADD) == ("out-of-bounds", 4)
    assert run_isolated(both, ADD, time_limit=60).value == ("out-of-bounds", 4)


def test_importing_the_library_does_not_import_pytorch():
    program = (
        "import sys, lessons_lib; assert 'torch' not in sys.modules; lessons_lib.build_cuda; "
        "assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_a_kernel_that_the_processor_stops_is_an_error_in_both_targets(target):
    text = """__global__ void stop_kernel(const int* x, int* out) {
  out[threadIdx.x] = 7 / x[threadIdx.x];
}
extern "C" int stop(const int* x, int* out, cudaStream_t stream) {
  stop_kernel<<<3, 4, 0, stream>>>(x, out);
  return cudaGetLastError();
}
extern "C" int nested(int* out, cudaStream_t stream) {
  auto inner = [] (const int* x, int* out) { stop_kernel<<<1, 1>>>(x, out); };
  inner<<<1, 1, 0, stream>>>(out, out);
  return cudaGetLastError();
}"""
    library = build_cuda(text, target=target)
    out = torch.zeros(4, dtype=torch.int)
    with pytest.raises(KernelError, match="Thread 2 divides an integer by zero") as caught:
        library.stop(torch.tensor([1, 7, 0, 2], dtype=torch.int32), out)
    assert (caught.value.kind, caught.value.line, caught.value.block) == (
        "division-by-zero",
        2,
        (0, 0, 0),
    )
    with pytest.raises(KernelError, match="a kernel cannot launch kernels here"):
        library.nested(out)


def test_a_tensor_given_twice_is_one_memory_and_a_part_of_it_is_refused():
    library = build_cuda(ADD, target="checked")
    library.add(a := torch.zeros(100), torch.ones(100), a, 100)
    assert torch.equal(a, torch.ones(100))
    with pytest.raises(
        ValueError,
        match=(
            r"add: a shares a part of its memory with out, which is written; pass a.clone\(\)"
        ),
    ):
        library.add(a[:50], torch.ones(50), a[1:51], 50)
    with pytest.raises(ValueError, match="out may be written, but some of its elements share"):
        library.add(a, a, a[:1].expand(100), 100)


def test_options_are_checked():
    for name, value in (
        ("seed", "a"),
        ("seed", 2**40),
        ("os_threads", 0),
        ("os_threads", -1),
        ("step_limit", 0),
    ):
        with pytest.raises(ValueError, match=f"options: {name} is a whole number from"):
            build_cuda(ADD, target="fast").options(**{name: value})


NEW = """
import torch
from lessons_lib import KernelError, build_cuda

text = '''
__global__ void past(float* x) {
    x[threadIdx.x + 1] = 1;
}
extern "C" int run(float* x, cudaStream_t stream) {
    past<<<1, 4, 0, stream>>>(x);
    return cudaGetLastError();
}'''
try:
    build_cuda(text, target="checked").run(torch.zeros(4))
except KernelError as error:
    print(error.line)
"""


def test_a_build_that_was_just_made_names_lines_too(tmp_path):
    """A library that is loaded where it is made and then moved would have none."""
    words = [sys.executable, "-c", NEW]
    place = os.environ | {"LESSONS_BUILD_DIR": str(tmp_path)}
    done = subprocess.run(words, env=place, capture_output=True, text=True)
    assert done.stdout.endswith("3\n"), done.stderr
