"""How much shared memory a launch may ask for: as a GPU was seen to have it
(cuda_shared_memory.csv), on each target.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from cuda_text import Kernels, device_of, each_target, integers, launcher, on_cpu
from lessons_lib import CompileError, KernelError, build_cuda
from paged_attention.attention.paged_kernel import attn_paged_cuda, paged_attention_library
from paged_batch import Batch, Recorder, assert_right

DEFAULT, MOST = 48 * 1024, 227 * 1024


class Row(NamedTuple):
    """A line of the table. `attribute`: the values that cudaFuncSetAttribute is given, with
    what it returns for each.
    """

    static: int
    attribute: tuple[tuple[int, int], ...]
    size: int
    most: int
    ran: int
    refused: int


def read_row(static, attribute, codes, *sizes) -> Row:
    values = [] if attribute == "unset" else map(int, attribute.split(";"))
    pairs = zip(values, map(int, codes.split(";") if codes else ()), strict=True)
    return Row(int(static), tuple(pairs), *map(int, sizes))


TABLE = (Path(__file__).parent / "cuda_shared_memory.csv").read_text().splitlines()
ROWS = [read_row(*row) for row in csv.reader(TABLE) if row[0][0] not in "#s"]
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


library = Kernels(TEXT, "shared_memory")


def code_of(call, *arguments) -> int:
    """0, or 1 if CUDA calls an argument invalid."""
    try:
        call(*arguments)
    except KernelError as error:
        assert error.kind == "bad-launch", error
        return 1
    return 0


def launch(target: str, number: int, dynamic: int) -> int:
    out = integers(target, 1)
    code = code_of(library(target).launch, number, out, dynamic)
    assert out.item() == (code == 0)
    return code


@each_target
def test_the_targets_do_what_the_gpu_did(target):
    for number, row in enumerate(ROWS):
        # the CPU has not yet seen the shared arrays, which may make the call fail
        exact = target == "gpu" or all(c == 0 or not 0 <= v <= MOST for v, c in row.attribute)
        for value, code in row.attribute:
            found = code_of(library(target).attribute, number, value)
            assert found == (code if exact else 0), row
        if exact:
            for size, code in ((row.ran, 0), (row.refused, 1), (0, 0)):
                assert launch(target, number, size) == code, row
            continue
        # on the CPU each launch fails instead, and says why
        words = "with the shared arrays it is more than 227 KiB; on a GPU that call fails"
        with pytest.raises(KernelError, match=words):
            library(target).launch(number, integers(target, 1), 0)


def number_of(static: int, *attribute: tuple[int, int]) -> int:
    return next(
        n for n, row in enumerate(ROWS) if (row.static, row.attribute) == (static, attribute)
    )


@on_cpu
@pytest.mark.parametrize(
    "number, allowed, asked, words",
    [
        (number_of(640), None, 48513, "dynamic shared memory are more than 48 KiB together"),
        (
            number_of(0, (1024, 0)),
            1024,
            1025,
            "more .* than cudaFuncSetAttribute allowed this",
        ),
        (number_of(0), -1, 0, "no negative number of bytes"),
        (number_of(0), MOST + 1, 0, "more dynamic shared memory than a block can have"),
    ],
)
def test_a_refusal_says_what_to_do(target, number, allowed, asked, words):
    with pytest.raises(KernelError, match=words):
        if allowed is not None:
            library(target).attribute(number, allowed)
        library(target).launch(number, integers(target, 1), asked)


@each_target
def test_a_carveout_is_a_wish_that_changes_nothing(target):
    for percent, code in ((-2, 1), (-1, 0), (0, 0), (50, 0), (100, 0), (101, 1)):
        assert code_of(library(target).carveout, percent) == code


# Bytes of the first array, type and number of the second, and whether they fit into 48 KiB.
ARRAYS = [
    (DEFAULT - 16, "char", 16, True),
    (DEFAULT - 16, "int", 4, True),
    (DEFAULT - 17, "int", 4, True),
    (DEFAULT - 40, "double", 5, True),
    (DEFAULT - 16, "char", 17, False),
    (DEFAULT - 15, "int", 4, False),
    (DEFAULT - 39, "double", 5, False),
]
PAIRS = [
    f"""
__global__ void pair_{number}_kernel(char* out) {{
  __shared__ volatile char a[{first}];
  __shared__ volatile {kind} b[{second}];
  for (int i = threadIdx.x; i < {first}; i += blockDim.x) a[i] = 3;
  b[threadIdx.x] = 4;
  out[threadIdx.x] = char(a[threadIdx.x] + b[threadIdx.x]);
}}"""
    + launcher(f"pair_{number}(char* out)", threads="4")
    for number, (first, kind, second, _) in enumerate(ARRAYS)
]
together = Kernels("".join(PAIRS), "arrays")


def alone(target: str, text: str):
    """On a GPU a kernel has its own file, since nvcc refuses a file as a whole."""
    return build_cuda(text, target=target) if target == "gpu" else together(target)


@each_target
@pytest.mark.parametrize("number", range(len(ARRAYS)))
def test_arrays_have_48_kib_and_not_a_byte_more(target, number):
    """Each lies at a multiple of its type's size. nvcc refuses what does not fit."""
    out = torch.zeros(4, dtype=torch.int8, device=device_of(target))
    if ARRAYS[number][-1]:
        getattr(alone(target, PAIRS[number]), f"pair_{number}")(out)
        assert out.tolist() == [7] * 4
        return
    words = "" if target == "gpu" else "more than 48 KiB of shared arrays; nvcc refuses th"
    with pytest.raises(CompileError if target == "gpu" else KernelError, match=words):
        getattr(alone(target, PAIRS[number]), f"pair_{number}")(out)


@each_target
@pytest.mark.parametrize("tokens", [12_127, 12_128, 12_129, 12_288, 12_289])
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
