"""How much shared memory a launch may ask for: as a GPU was seen to have it
(cuda_shared_memory.csv), on each target.
"""

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from lessons_lib import CompileError, KernelError, build_cuda
from paged_attention.paged_kernel import attn_paged_cuda, paged_attention_library
from paged_batch import Batch, Recorder, assert_right

on_gpu = pytest.param(
    "gpu",
    marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
)
DEFAULT, MOST = 48 * 1024, 227 * 1024


@dataclass(frozen=True)
class Row:
    """A line of the table. `attribute`: the values that cudaFuncSetAttribute is given, with
    what it returns for each.
    """

    static: int
    attribute: tuple[tuple[int, int], ...]
    size: int
    most: int
    ran: int
    refused: int

    def known_before_a_launch(self) -> bool:
        """Whether the call of cudaFuncSetAttribute that fails does so without the shared
        arrays, which the CPU has not yet seen.
        """
        return all(code == 0 or not 0 <= value <= MOST for value, code in self.attribute)


def read_table() -> list[Row]:
    text = (Path(__file__).parent / "cuda_shared_memory.csv").read_text().splitlines()
    rows = []
    for line in csv.DictReader(line for line in text if not line.startswith("#")):
        values = [] if line["attribute"] == "unset" else map(int, line["attribute"].split(";"))
        codes = map(int, line["codes"].split(";")) if line["codes"] else ()
        rows.append(
            Row(
                int(line["static"]),
                tuple(zip(values, codes, strict=True)),
                *(int(line[name]) for name in ("size", "most", "ran", "refused")),
            )
        )
    return rows


ROWS = read_table()
each_row = pytest.mark.parametrize(
    "number",
    range(len(ROWS)),
    ids=[
        f"{row.static}-{';'.join(str(a) for a, _ in row.attribute) or 'unset'}" for row in ROWS
    ],
)
TEXT = """
template <int bytes, int row>
__global__ void shared_kernel(int* out, int zero) {
  extern __shared__ __align__(128) char dynamic[];
  if (zero) out[0] = dynamic[0];  // nvcc forgets an array that is not used
  if constexpr (bytes > 0) {
    __shared__ volatile char fixed[bytes];
    fixed[bytes - 1] = 1;
    out[0] = fixed[bytes - 1];
  } else {
    out[0] = 1;
  }
}
#define EACH_ROW(row, bytes) case row: return use(shared_kernel<bytes, row>);
template <class Use> int with_kernel(int row, Use use) {
  switch (row) {
    %s
  }
  return -1;
}
extern "C" int attribute(int row, int bytes) {
  return with_kernel(row, [=](auto* kernel) {
    return int(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  });
}
extern "C" int launch(int row, int* out, int bytes, cudaStream_t stream) {
  return with_kernel(row, [=](auto* kernel) {
    kernel<<<1, 1, bytes, stream>>>(out, 0);
    return int(cudaGetLastError()); });
}
extern "C" int carveout(int percent) {
  return cudaFuncSetAttribute(shared_kernel<0, 0>,
                              cudaFuncAttributePreferredSharedMemoryCarveout, percent);
}
""" % "\n    ".join(f"EACH_ROW({number}, {row.static})" for number, row in enumerate(ROWS))


@functools.cache
def library(target: str):
    return build_cuda(TEXT, target=target, name="shared_memory")


def code_of(call, *arguments) -> int:
    """0, or 1 if CUDA calls an argument invalid."""
    try:
        call(*arguments)
    except KernelError as error:
        assert error.kind == "bad-launch", error
        return 1
    return 0


def launch(target: str, number: int, dynamic: int) -> int:
    out = torch.zeros(1, dtype=torch.int32, device="cuda" if target == "gpu" else "cpu")
    code = code_of(library(target).launch, number, out, dynamic)
    assert out.item() == (code == 0)
    return code


@pytest.mark.parametrize("target", ["fast", "checked", on_gpu])
@each_row
def test_the_targets_do_what_the_gpu_did(number, target):
    row = ROWS[number]
    exact = target == "gpu" or row.known_before_a_launch()
    for value, code in row.attribute:
        assert code_of(library(target).attribute, number, value) == (code if exact else 0)
    if not exact:  # the call should have failed: on the CPU each launch does, and says why
        with pytest.raises(
            KernelError,
            match="with the shared arrays it is more than 227 KiB; on a GPU that call fails",
        ):
            library(target).launch(number, torch.zeros(1, dtype=torch.int32), 0)
        return
    assert launch(target, number, row.ran) == 0
    assert launch(target, number, row.refused) == 1
    assert launch(target, number, 0) == 0


def test_the_table_follows_the_rule_that_the_stand_in_has():
    """Unset: 48 KiB, the arrays included, in steps of 128 bytes, the extern array's alignment.
    Else what was said last, if all fits into 227 KiB.
    """
    for row in ROWS:
        assert row.size == -(-row.static // 128) * 128
        most = DEFAULT - row.size
        for value, code in row.attribute:
            assert code == (not 0 <= value <= MOST - row.size)
            most = most if code else value
        assert (row.most, row.ran, row.refused) == (most, most, most + 1)


@pytest.mark.parametrize("target", ["fast", "checked"])
def test_a_refusal_says_what_to_do(target):
    def says(number, dynamic, *values):
        for value in values:
            library(target).attribute(number, value)
        with pytest.raises(KernelError) as caught:
            library(target).launch(number, torch.zeros(1, dtype=torch.int32), dynamic)
        return str(caught.value)

    plain, with_arrays = (
        next(
            number
            for number, row in enumerate(ROWS)
            if (row.static, row.attribute) == (static, ())
        )
        for static in (0, 640)
    )
    assert (
        "more than 48 KiB of dynamic shared memory, "
        "which cudaFuncSetAttribute must allow this kernel first" in says(plain, 49153)
    )
    assert "shared arrays and dynamic shared memory are more than 48 KiB together" in says(
        with_arrays, 48513
    )
    assert "more than 227 KiB of dynamic shared memory" in says(plain, MOST + 1)
    low = next(number for number, row in enumerate(ROWS) if row.attribute == ((1024, 0),))
    assert "more dynamic shared memory than cudaFuncSetAttribute allowed this kernel" in says(
        low, 1025, 1024
    )
    for value, words in (
        (-1, "no negative number of bytes"),
        (MOST + 1, "more dynamic shared memory than a block can have"),
    ):
        with pytest.raises(KernelError, match=words):
            library(target).attribute(plain, value)


@pytest.mark.parametrize("target", ["fast", "checked", on_gpu])
def test_a_carveout_is_a_wish_that_changes_nothing(target):
    for percent, code in ((-2, 1), (-1, 0), (0, 0), (50, 0), (100, 0), (101, 1)):
        assert code_of(library(target).carveout, percent) == code


STEP = """
__global__ void step_kernel(int* out, int zero) {
  __shared__ volatile char fixed[1];
  extern __shared__ %s char dynamic[];
  fixed[0] = 1;
  out[0] = zero ? dynamic[0] : fixed[0];
}
extern "C" int step(int* out, int bytes, cudaStream_t stream) {
  step_kernel<<<1, 1, bytes, stream>>>(out, 0);
  return cudaGetLastError();
}"""


@pytest.mark.parametrize("target", ["fast", "checked", on_gpu])
@pytest.mark.parametrize(
    "alignment, size",
    [("", 16), ("__align__(8)", 16), ("__align__(32)", 32), ("__align__(64)", 64)],
)
def test_an_extern_array_begins_at_a_multiple_of_its_alignment_and_of_16(
    target, alignment, size
):
    """`nvcc -Xptxas -v` calls these sizes the kernel's shared memory."""
    call = build_cuda(STEP % alignment, target=target).step
    out = torch.zeros(1, dtype=torch.int32, device="cuda" if target == "gpu" else "cpu")
    assert (
        code_of(call, out, DEFAULT - size) == 0 and code_of(call, out, DEFAULT - size + 1) == 1
    )


MANY = """
__global__ void many_kernel(char* out) {
  __shared__ volatile char a[%d];
  __shared__ volatile %s b[%d];
  for (int i = threadIdx.x; i < %d; i += blockDim.x) a[i] = 3;
  b[threadIdx.x] = 4;
  out[threadIdx.x] = char(a[threadIdx.x] + b[threadIdx.x]);
}
extern "C" int many(char* out, cudaStream_t stream) {
  many_kernel<<<1, 4, 0, stream>>>(out);
  return cudaGetLastError();
}"""


@pytest.mark.parametrize("target", ["fast", "checked", on_gpu])
@pytest.mark.parametrize(
    "first, kind, second, fits",
    [
        (49152 - 16, "char", 16, True),
        (49152 - 16, "char", 17, False),
        (49152 - 16, "int", 4, True),
        (49152 - 17, "int", 4, True),
        (49152 - 15, "int", 4, False),
        (49152 - 40, "double", 5, True),
        (49152 - 39, "double", 5, False),
    ],
)
def test_arrays_have_48_kib_and_not_a_byte_more(target, first, kind, second, fits):
    """Each lies at a multiple of its type's size. nvcc refuses what does not fit."""
    out = torch.zeros(4, dtype=torch.int8, device="cuda" if target == "gpu" else "cpu")
    text = MANY % (first, kind, second, first)
    if fits:
        build_cuda(text, target=target).many(out)
        assert out.tolist() == [7] * 4
    elif target == "gpu":
        with pytest.raises(CompileError):
            build_cuda(text, target=target)
    else:
        with pytest.raises(
            KernelError, match="more than 48 KiB of shared arrays; nvcc refuses that"
        ):
            build_cuda(text, target=target).many(out)


@pytest.mark.parametrize("target", ["fast", "checked", on_gpu])
@pytest.mark.parametrize(
    "tokens", [12_000, 12_001, 12_127, 12_128, 12_129, 12_287, 12_288, 12_289]
)
def test_the_courses_launcher_takes_contexts_whose_scores_just_fit(target, tokens):
    """12,288 scores are 48 KiB, and the kernel has shared arrays besides: cudaFuncSetAttribute
    allows both together.
    """
    tensors = Batch((tokens,), num_q_heads=1, head_size=8, seed=tokens).tensors(target)
    asked = Recorder()
    # which would give such long contexts a workspace
    attn_paged_cuda(**tensors, library=asked)
    out = torch.empty_like(tensors["q"])
    paged_attention_library(target).paged_attention(
        **asked.fields | {"scores": None, "out": out}
    )
    assert_right(out, tensors)
