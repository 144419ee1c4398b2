"""What a kernel gets of the caller's tensors in checked mode, what is asked of its outputs,
and what is given back.
"""

import functools

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lessons_lib import KernelError, build_cuda
from lessons_lib.cuda_on_cpu.report_messages import position

KINDS = {
    "uint8": (torch.uint8, "uint8_t"),
    "float32": (torch.float32, "float"),
    "float64": (torch.float64, "double"),
}
MANY = [f"x{number}" for number in range(64)]
TEXT = (
    """
__global__ void address_kernel(const float* x, int* out) {
  out[0] = reinterpret_cast<uintptr_t>(x) %% 256;
}
extern "C" int address(const float* x, int* out, cudaStream_t stream) {
  address_kernel<<<1, 1, 0, stream>>>(x, out);
  return cudaGetLastError();
}
template <class T>
__global__ void fill_kernel(const bool* first, T* out_first, int n, const bool* second,
                            T* out_second, int m) {
  for (int i = 0; i < n; ++i) if (first[i]) out_first[i] = T(3);
  for (int i = 0; i < m; ++i) if (second[i]) out_second[i] = T(4);
}
template <class T>
int launch_fill(const bool* first, T* out_first, int n, const bool* second, T* out_second,
                int m, int launches, cudaStream_t stream) {
  for (int i = 0; i < launches; ++i)
    fill_kernel<T><<<1, 1, 0, stream>>>(first, out_first, n, second, out_second, m);
  return cudaGetLastError();
}
__global__ void each_way_kernel(const float* a, float* aa, int* b) {
  int i = ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * 8 +
          (threadIdx.z * 2 + threadIdx.y) * 2 + threadIdx.x;
  aa[i] = 2 * a[i];
  atomicAdd(b, 1);
}
extern "C" int each_way(const float* a, float* aa, int* b, cudaStream_t stream) {
  each_way_kernel<<<dim3(2, 3, 2), dim3(2, 2, 2), 0, stream>>>(a, aa, b);
  return cudaGetLastError();
}
__global__ void wide_kernel(const float4* a, float* out) {
  float4 four = a[1];
  out[0] = four.x + four.y + four.z + four.w;
}
extern "C" int wide(const float* a, float* out, cudaStream_t stream) {
  wide_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<const float4*>(a), out);
  return cudaGetLastError();
}
__global__ void add_kernel(int* x, const int* y, int fault) {
  x[threadIdx.x] += y[threadIdx.x];
  if (fault && threadIdx.x == 3) x[100] = 1;
}
extern "C" int add(int* x, const int* y, int fault, cudaStream_t stream) {
  add_kernel<<<1, 4, 0, stream>>>(x, y, fault);
  return cudaGetLastError();
}
__global__ void copy_kernel(const float* from, float* to, int n, int at, int what) {
  __shared__ float array[4];
  extern __shared__ float none[];
  if (what == 0) memcpy(to + at, from + at, n);
  if (what == 1) memmove(to + at, from + at, n);
  if (what == 2) memset(to + at, 0, n);
  if (what == 3) memcpy(to + at, array + 4, n);  // past the end
  if (what == 4) memset(none, 0, n);
}
extern "C" int copy(const float* from, float* to, int n, int at, int what,
                    cudaStream_t stream) {
  copy_kernel<<<1, 1, 0, stream>>>(from, to, n, at, what);
  return cudaGetLastError();
}
// Copies whose length the compiler knows.
__global__ void known_length_kernel(const float* from, float* out, int at, int what) {
  __shared__ float array[4];
  if (what != 3) memset(array, 0, sizeof array);
  if (what == 0) memcpy(out, from + at, 4 * sizeof(float));
  if (what == 1) memmove(out + at, from, 4 * sizeof(float));
  if (what == 2) memset(out + at, 0, 4 * sizeof(float));
  if (what == 3) memset(array + at, 0, 4 * sizeof(float));
  if (what == 4) {
    float four[4];
    memcpy(four, from + at, sizeof four);
    for (int i = 0; i < 4; ++i) out[i] = four[i] + array[i];
  }
  if (what == 3) for (int i = 0; i < 4; ++i) out[i] = array[i];
}
extern "C" int known_length(const float* from, float* out, int at, int what,
                            cudaStream_t stream) {
  known_length_kernel<<<1, 1, 0, stream>>>(from, out, at, what);
  return cudaGetLastError();
}
template <class T>
__global__ void read_at_kernel(const char* x, int at, int in_shared, T* to) {
  __shared__ double4 array[4];
  memset(array, 1, sizeof array);
  const char* begin = in_shared ? reinterpret_cast<const char*>(array) : x;
  *to = *reinterpret_cast<const T*>(begin + at);
}
template <class T>
int launch_read(const void* x, int at, int in_shared, void* to, cudaStream_t stream) {
  read_at_kernel<T>
      <<<1, 1, 0, stream>>>(static_cast<const char*>(x), at, in_shared, static_cast<T*>(to));
  return cudaGetLastError();
}
__global__ void two_blocks_kernel(int* x, int one, int other) {
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  if (block == one || block == other) x[2] = block;
}
extern "C" int two_blocks(int* x, int one, int other, int a, int b, int c,
                          cudaStream_t stream) {
  two_blocks_kernel<<<dim3(a, b, c), 1, 0, stream>>>(x, one, other);
  return cudaGetLastError();
}
struct Many { %s };
__global__ void many_kernel(Many many) { *many.x63 = *many.x0 + *many.x31; }
extern "C" int many(Many many, cudaStream_t stream) {
  many_kernel<<<1, 1, 0, stream>>>(many);
  return cudaGetLastError();
}
extern "C" int one_more(Many many, float* more, cudaStream_t stream) { return 0; }
"""
    % " ".join(f"int* {name};" for name in MANY)
    + "".join(
        f"""
extern "C" int fill_{name}(const bool* first, {kind}* out_first, int n, const bool* second,
                           {kind}* out_second, int m, int launches, cudaStream_t stream) {{
  return launch_fill<{kind}>(first, out_first, n, second, out_second, m, launches, stream);
}}
extern "C" int read_{name}(const {kind}* x, int size, int at, int in_shared, double* to,
                           cudaStream_t stream) {{
  if (size == 2) return launch_read<short>(x, at, in_shared, to, stream);
  if (size == 4) return launch_read<int>(x, at, in_shared, to, stream);
  if (size == 8) return launch_read<double>(x, at, in_shared, to, stream);
  return launch_read<float4>(x, at, in_shared, to, stream);
}}"""
        for name, (_, kind) in KINDS.items()
    )
)


@functools.cache
def library():
    return build_cuda(TEXT, target="checked", name="tensors")


@pytest.mark.parametrize("offset", [0, 1, 5, 63, 64, 100])
def test_a_tensor_keeps_its_place_within_256_bytes(offset):
    """Vector accesses depend on it."""
    x, out = torch.zeros(200)[offset:], torch.zeros(1, dtype=torch.int32)
    library().address(x, out)
    assert out.item() == x.data_ptr() % 256


flags = st.lists(st.booleans(), max_size=9)


@given(st.sampled_from(sorted(KINDS)), flags, flags, st.integers(0, 2))
@example("float32", [], [True, False], 1)
@example("float64", [True], [True, False, True, False], 2)
@settings(max_examples=60, deadline=None)
def test_each_element_of_each_output_has_to_be_written_in_each_call(
    name, first, second, launches
):
    def call(one, two, launches):
        out = [torch.full((len(flags),), 9, dtype=KINDS[name][0]) for flags in (one, two)]
        getattr(library(), f"fill_{name}")(
            torch.tensor(one, dtype=torch.bool),
            out[0],
            len(one),
            torch.tensor(two, dtype=torch.bool),
            out[1],
            len(two),
            launches,
        )
        return out

    before = call([True] * len(first), [True] * len(second), 1)
    assert before[0].eq(3).all() and before[1].eq(4).all()
    gaps = {"out_first": first, "out_second": second}
    gaps = {
        out: [place for place, flag in enumerate(flags) if not (flag and launches)]
        for out, flags in gaps.items()
    }
    incomplete = [out for out, places in gaps.items() if places]
    if not incomplete:
        call(first, second, launches)
        return
    with pytest.raises(KernelError) as caught:
        call(first, second, launches)
    places, others = gaps[incomplete[0]], len(gaps[incomplete[0]]) - 1
    assert (caught.value.kind, caught.value.name) == ("output-unwritten", incomplete[0])
    words = {0: "", 1: f", nor was 1 other element of {incomplete[0]}"}.get(
        others, f", nor were {others} other elements of {incomplete[0]}"
    )
    whole = len(first if incomplete[0] == "out_first" else second)
    assert str(caught.value).startswith(
        f"{incomplete[0]}[{places[0]}] was never written{words}."
    ), (caught.value, whole)
    assert ("launched no kernel" in str(caught.value)) == (launches == 0)


def each_way():
    a = torch.arange(96.0)
    aa = torch.zeros(96)
    b = torch.zeros(1, dtype=torch.int32)
    library().each_way(a, aa, b)
    assert torch.equal(aa, 2 * a) and b.item() == 96


@pytest.mark.parametrize("names", [("a",), ("aa",), ("b",), ("a", "b"), ("b", "aa")])
def test_a_trace_has_the_accesses_of_the_tensors_that_are_named(names):
    with library().trace(*names) as accesses:
        each_way()
    places = [
        ((x, y, z), (i, j, k))
        for z in range(2)
        for y in range(3)
        for x in range(2)
        for k in range(2)
        for j in range(2)
        for i in range(2)
    ]
    for name in ("a", "aa", "b"):
        mine = [access for access in accesses if access.name == name]
        assert [(access.block, access.thread) for access in mine] == (
            places if name in names else []
        )
        assert [access.index for access in mine] == [
            (0 if name == "b" else place,) for place in range(len(mine))
        ]
        assert {access.kind for access in mine} <= {
            {"a": "read", "aa": "write", "b": "atomic"}[name]
        }
    with library().trace("a") as accesses:
        pass
    each_way()
    assert not accesses


@pytest.mark.parametrize(
    "names, read", [(("a",), 96 * 4), (("aa",), 0), (("a", "aa"), 96 * 4), (("b",), 0)]
)
def test_a_count_has_the_loads_of_the_tensors_that_are_named(names, read):
    with library().count(*names) as counts:
        each_way()
    assert counts.bytes_read == read


def test_a_wide_access_is_one_to_each_of_its_elements():
    with library().trace("a") as accesses:
        numbers = torch.arange(64.0)
        begin = -numbers.data_ptr() // 4 % 4  # at a multiple of 16 bytes
        library().wide(numbers[begin:], out := torch.zeros(1))
    assert [access.index for access in accesses] == [(4,), (5,), (6,), (7,)]
    assert out.item() == 22 + 4 * begin


def test_a_call_that_fails_leaves_all_as_it_was_and_another_changes_what_is_written():
    x = torch.arange(4, dtype=torch.int32)
    y = torch.tensor([5, 6, 7, 8], dtype=torch.int32)
    with pytest.raises(KernelError, match=r"Thread 3 writes x\[100\]"):
        library().add(x, y, 1)
    assert x.tolist() == [0, 1, 2, 3] and y.tolist() == [5, 6, 7, 8]
    for _ in range(2):  # each call begins with what the tensors hold then
        library().add(x, y, 0)
    assert x.tolist() == [10, 13, 16, 19] and y.tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize("what", range(5))
def test_a_copy_of_no_bytes_touches_nothing(what):
    numbers, to = torch.arange(4.0), torch.full((4,), 9.0)
    for at in (0, 4, 100):
        library().copy(numbers, to, 0, at, what)
    assert to.tolist() == [9] * 4
    with pytest.raises(KernelError, match=r"(read|write)s (to|from|array|none)\["):
        library().copy(numbers, to, 8, 3, what)
    if what < 3:
        library().copy(numbers, to, 8, 1, what)
        assert to.tolist() == [9, *([0, 0] if what == 2 else [1, 2]), 9]


@pytest.mark.parametrize("what", range(5))
def test_a_copy_of_a_known_length_is_watched_too(what):
    numbers, out = torch.arange(4.0), torch.full((4,), 9.0)
    library().known_length(numbers, out, 0, what)
    assert out.tolist() == ([0] * 4 if what in (2, 3) else [0, 1, 2, 3])
    with pytest.raises(
        KernelError,
        match=(
            r"(read|write)s (from|out|array)\[1\] and the 3 after it, outside of|writes"
            r" array\[1\] and"
        ),
    ):
        library().known_length(numbers, out, 1, what)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_an_access_has_to_be_at_a_multiple_of_its_size(name, size):
    """As on a GPU."""
    x = torch.zeros(16, dtype=torch.float64).view(KINDS[name][0])
    to = torch.zeros(2, dtype=torch.float64)
    first = -x.data_ptr() % 16  # the byte that is a multiple of 16
    for in_shared in (0, 1):
        for at in range(17):
            where = at if in_shared else first + at
            if size == 16 and at == 8 and (in_shared or name == "float64"):
                continue  # it may be two doubles, which may lie there
            if at % size == 0:
                getattr(library(), f"read_{name}")(x, size, where, in_shared, to)
                continue
            with pytest.raises(KernelError) as caught:
                getattr(library(), f"read_{name}")(x, size, where, in_shared, to)
            assert (caught.value.kind, caught.value.name) == (
                "misaligned",
                "array" if in_shared else "x",
            ), caught.value
            assert (
                f"as {size} bytes at once, but their address is no multiple of {size}."
                in str(caught.value)
            )


@pytest.mark.parametrize("grid", [(6, 1, 1), (2, 3, 1), (2, 3, 2), (1, 2, 3)])
def test_the_other_block_is_named_by_its_place_in_the_grid(grid):
    width, height, _ = grid
    for one, other in ((0, 1), (1, 4), (3, 5), (2, 3)):
        with pytest.raises(KernelError) as caught:
            library().two_blocks(torch.zeros(4, dtype=torch.int32), one, other, *grid)
        mine, others = (
            (block % width, block // width % height, block // width // height)
            for block in (other, one)
        )
        assert (caught.value.kind, caught.value.block) == ("race-between-blocks", mine)
        assert f"x[2], which block {position(others)} wrote in the same launch." in str(
            caught.value
        )


def test_64_tensors_have_room_and_no_more():
    tensors = {
        name: torch.full((1,), number, dtype=torch.int32) for number, name in enumerate(MANY)
    }
    for _ in range(2):
        library().many(**tensors)
        assert tensors["x63"].item() == 31
    with pytest.raises(
        RuntimeError,
        match="more: there is no room to watch 4 bytes, or there are more than 64 tensors",
    ):
        library().one_more(**tensors, more=torch.zeros(1))
    library().many(**tensors)
