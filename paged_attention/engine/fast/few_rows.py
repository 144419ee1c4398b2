"""Products of few rows by our own kernel, which reads weights faster than cuBLAS does."""

import functools

import torch
from torch import Tensor

from lessons_lib.cuda.inline import read_kernel
from lessons_lib.cuda.library import CudaLibrary, build_cuda
from paged_attention.engine.fast.graph import launch
from paged_attention.ladder.rungs import num_multiprocessors, shared_bytes
from paged_attention.validate import KERNEL_DTYPES

KERNEL_FILES = (
    "numbers.cuh",
    "early.cuh",
    "ladder/shape.cuh",
    "ladder/async_copy.cuh",
    "ladder/matrix.cuh",
    "engine/few_rows.cu",
)
MOST_ROWS = 16
FEATURES, COLUMNS = 16, 128  # of which a weight has multiples


@functools.cache
def few_rows_library(target: str) -> CudaLibrary:
    """Builds the kernel, once for each target."""
    return build_cuda(
        *map(read_kernel, KERNEL_FILES), names=KERNEL_FILES, target=target, name="few_rows"
    )


class FewRows:
    """y = x Wᵀ for an x of at most 16 rows.

    target: "gpu", or "fast" or "checked" on the CPU.
    early: whether the kernel may begin before the one before it has ended.
    """

    def __init__(self, target: str, device: torch.device, early: bool):
        self.library = few_rows_library(target)
        self.card = dict(
            multiprocessors=num_multiprocessors(device),
            shared_bytes=shared_bytes(device),
            early=int(early),
        )

    def takes(self, x: Tensor, weight: Tensor) -> bool:
        """Whether the kernel is made for these shapes and numbers, and for their places."""
        num_features, size = weight.shape
        return (
            1 <= len(x) <= MOST_ROWS
            and num_features % FEATURES == size % COLUMNS == 0
            and x.dtype == weight.dtype
            and x.dtype in KERNEL_DTYPES[1:]
            and x.is_contiguous()
            and weight.is_contiguous()
            and (x.data_ptr() | weight.data_ptr()) % 16 == 0
        )

    def __call__(self, x: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
        """x: (num_rows, size). weight: (num_features, size). takes() holds for both.

        out: contiguous (num_rows, num_features); None makes a new tensor.
        Returns `out`.
        """
        if out is None:
            out = torch.empty(len(x), len(weight), dtype=x.dtype, device=x.device)
        launch(
            self.library.few_rows,
            y=out,
            x=x,
            w=weight,
            num_rows=len(x),
            num_features=len(weight),
            size=weight.shape[1],
            dtype=KERNEL_DTYPES.index(x.dtype),
            **self.card,
        )
        return out
