"""What a kernel gets of the caller's tensors in checked mode, what is asked of its outputs,
and what is given back.
"""

import itertools

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cuda_text import Kernels, error_of, integers, launcher
from lessons_lib import KernelError
from lessons_lib.cuda_on_cpu.report_messages import position

KINDS = {"uint8": "uint8_t", "float32": "float", "float64": "double"}
WIDE = {2: "short", 4: "int", 8: "double", 16: "float4"}
MANY = [f"x{number}" for number in range(64)]
FILL = "{0} first, {1} out_first, int n, {0} second, {1} out_second, int m, int launches"
KERNELS = """
__global__ void address_kernel(const float* x, int* out) {
  out[0] = reinterpret_cast<uintptr_t>(x) % 256;
}
template <class T>
__global__ void fill_kernel(const bool* first, T* out_first, int n, const bool* second,
                            T* out_second, int m) {
  for (int i = 0; i < n; ++i) if (first[i]) out_first[i] = T(3);
  for (int i = 0; i < m; ++i) if (second[i]) out_second[i] = T(4);
}
__global__ void each_way_kernel(const float* a, float* aa, int* b) {
  int i = ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * 8 +
          (threadIdx.z * 2 + threadIdx.y) * 2 + threadIdx.x;
  aa[i] = 2 * a[i];
  atomicAdd(b, 1);
}
__global__ void wide_kernel(const float4* a, float* out) {
  float4 four = a[1];
  out[0] = four.x + four.y + four.z + four.w;
}
extern "C" int wide(const float* a, float* out, cudaStream_t stream) {
  wide_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<const float4*>(a), out);
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
template <class T>
__global__ void read_at_kernel(const char* x, int at, int in_shared, T* to) {
  __shared__ double4 array[4];
  memset(array, 1, sizeof array);
  const char* begin = in_shared ? reinterpret_cast<const char*>(array) : x;
  *to = *reinterpret_cast<const T*>(begin + at);
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
struct Many { FIELDS };
__global__ void many_kernel(Many many) { *many.x63 = *many.x0 + *many.x31; }
extern "C" int one_more(Many many, float* more, cudaStream_t stream) { return 0; }
""".replace("FIELDS", " ".join(f"int* {name};" for name in MANY))


def fill(name: str, kind: str) -> str:
    return f"""
extern "C" int fill_{name}({FILL.format("const bool*", f"{kind}*")}, cudaStream_t stream) {{
  for (int i = 0; i < launches; ++i)
    fill_kernel<{kind}><<<1, 1, 0, stream>>>(first, out_first, n, second, out_second, m);
  return cudaGetLastError();
}}"""


TEXT = KERNELS + "".join(
    [
        launcher("address(const float* x, int* out)"),
        launcher(
            "each_way(const float* a, float* aa, int* b)", "dim3(2, 3, 2)", "dim3(2, 2, 2)"
        ),
        launcher("copy(const float* from, float* to, int n, int at, int what)"),
        launcher("known_length(const float* from, float* out, int at, int what)"),
        launcher("many(Many many)"),
        *map(fill, KINDS, KINDS.values()),
        *(
            launcher(
                f"read_{name}_{size}(const {kind}* x, int at, int in_shared, double* to)",
                arguments=f"(const char*)x, at, in_shared, ({wide}*)to",
                kernel=f"read_at_kernel<{wide}>",
            )
            for name, kind in KINDS.items()
            for size, wide in WIDE.items()
        ),
    ]
)


library = Kernels(TEXT, "tensors")


@pytest.mark.parametrize("offset", [0, 1, 5, 63, 64, 100])
def test_a_tensor_keeps_its_place_within_256_bytes(offset):
    """Vector accesses depend on it."""
    x, out = torch.zeros(200)[offset:], integers("checked", 1)
    library().address(x, out)
    assert out.item() == x.data_ptr() % 256


flags = st.lists(st.booleans(), max_size=9)


@given(st.sampled_from(sorted(KINDS)), flags, flags, st.integers(0, 2))
@example("float32", [], [True, False], 1)
@example("float64", [True], [True, False, True, False], 2)
@settings(max_examples=60)
def test_each_element_of_each_output_has_to_be_written_in_each_call(
    name, first, second, launches
):
    def call(one, two, launches):
        out = [
            torch.full((len(flags),), 9, dtype=getattr(torch, name)) for flags in (one, two)
        ]
        first, second = (torch.tensor(flags, dtype=torch.bool) for flags in (one, two))
        function = getattr(library(), f"fill_{name}")
        function(first, out[0], len(one), second, out[1], len(two), launches)
        return out

    before = call([True] * len(first), [True] * len(second), 1)
    assert before[0].eq(3).all() and before[1].eq(4).all()
    gaps = {
        out: [place for place, flag in enumerate(flags) if not (flag and launches)]
        for out, flags in (("out_first", first), ("out_second", second))
    }
    incomplete = [out for out, places in gaps.items() if places]
    if not incomplete:
        call(first, second, launches)
        return
    found = error_of(call, first, second, launches)
    out, (place, *others) = incomplete[0], gaps[incomplete[0]]
    assert (found.kind, found.name) == ("output-unwritten", out)
    words = {0: "", 1: f", nor was 1 other element of {out}"}.get(
        len(others), f", nor were {len(others)} other elements of {out}"
    )
    assert str(found).startswith(f"{out}[{place}] was never written{words}.")
    assert ("launched no kernel" in str(found)) == (launches == 0)


def each_way():
    a = torch.arange(96.0)
    aa = torch.zeros(96)
    b = integers("checked", 1)
    library().each_way(a, aa, b)
    assert torch.equal(aa, 2 * a) and b.item() == 96


@pytest.mark.parametrize("names", [("a",), ("aa",), ("b",), ("a", "b"), ("b", "aa")])
def test_a_trace_has_the_accesses_of_the_tensors_that_are_named(names):
    with library().trace(*names) as accesses:
        each_way()
    places = [
        (index[2::-1], index[:2:-1])
        for index in itertools.product(*map(range, (2, 3, 2, 2, 2, 2)))
    ]
    for name, kind in (("a", "read"), ("aa", "write"), ("b", "atomic")):
        mine = [access for access in accesses if access.name == name]
        expected = places if name in names else []
        assert [(access.block, access.thread) for access in mine] == expected
        indices = [0 if name == "b" else place for place in range(len(expected))]
        assert [(access.index, access.kind) for access in mine] == [
            ((index,), kind) for index in indices
        ]
    with library().trace("a") as accesses:
        pass
    each_way()
    assert not accesses


def test_a_wide_access_is_one_to_each_of_its_elements():
    with library().trace("a") as accesses:
        numbers = torch.arange(64.0)
        begin = -numbers.data_ptr() // 4 % 4  # at a multiple of 16 bytes
        library().wide(numbers[begin:], out := torch.zeros(1))
    assert [access.index for access in accesses] == [(4,), (5,), (6,), (7,)]
    assert out.item() == 22 + 4 * begin


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
    words = r"(read|write)s (from|out|array)\[1\] and the 3 after it, (outside of|but)"
    with pytest.raises(KernelError, match=words):
        library().known_length(numbers, out, 1, what)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("size", WIDE)
def test_an_access_has_to_be_at_a_multiple_of_its_size(name, size):
    """As on a GPU."""
    x = torch.zeros(16, dtype=torch.float64).view(getattr(torch, name))
    to, read = torch.zeros(2, dtype=torch.float64), getattr(library(), f"read_{name}_{size}")
    first = -x.data_ptr() % 16  # the byte that is a multiple of 16
    for in_shared, at in itertools.product((0, 1), range(17)):
        where = at if in_shared else first + at
        if size == 16 and at == 8 and (in_shared or name == "float64"):
            continue  # it may be two doubles, which may lie there
        if at % size == 0:
            read(x, where, in_shared, to)
            continue
        words = f"as {size} bytes at once, but their address is no multiple of {size}."
        with pytest.raises(KernelError, match=words) as caught:
            read(x, where, in_shared, to)
        memory = "array" if in_shared else "x"
        assert (caught.value.kind, caught.value.name) == ("misaligned", memory), caught.value


@pytest.mark.parametrize("grid", [(6, 1, 1), (2, 3, 1), (2, 3, 2), (1, 2, 3)])
def test_the_other_block_is_named_by_its_place_in_the_grid(grid):
    width, height, _ = grid
    for one, other in ((0, 1), (1, 4), (3, 5), (2, 3)):
        found = error_of(library().two_blocks, integers("checked", 4), one, other, *grid)
        mine, others = (
            (block % width, block // width % height, block // width // height)
            for block in (other, one)
        )
        assert (found.kind, found.block) == ("race-between-blocks", mine)
        assert f"x[2], which block {position(others)} wrote in the same launch." in str(found)


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
