"""A product of a few rows with a weight, in shares of its depth (kernels/engine/few_rows.cu).

A decode step has as many rows as sequences. To multiply so few is to read the weight, and a
library's product of matrices, made for many rows, takes several times as long as that.
"""

from collections.abc import Iterable

import torch

from paged_attention.rungs import num_multiprocessors, shared_bytes
from paged_attention.validate import KERNEL_DTYPES

# besides those of the other kernels between the products
KERNEL_FILES = (
    "ladder/shape.cuh",
    "ladder/async_copy.cuh",
    "ladder/matrix.cuh",
    "prefill/matrix_loads.cuh",
    "engine/few_rows.cu",
)
MOST_ROWS = 64
COLUMNS_AT_ONCE = 32
SHARE_STEP = 128  # a share of the depth is a multiple of it


def shares_of(
    shapes: Iterable[torch.Size], dtype: torch.dtype, device: torch.device
) -> dict[torch.Size, int]:
    """The shares of weights whose products are divided, by the weights' shapes.

    shapes: (num_columns, depth) of each.
    Returns nothing for the CPU, where a library's product is faster, nor for float32.
    """
    if device.type != "cuda" or dtype not in KERNEL_DTYPES[1:]:
        return {}
    card = num_multiprocessors(device), shared_bytes(device)
    shares = {shape: choose_share(shape[0], shape[1], *card) for shape in shapes}
    return {shape: share for shape, share in shares.items() if share is not None}


def choose_share(
    num_columns: int, depth: int, multiprocessors: int, most_bytes: int
) -> int | None:
    """Chooses the share of the depth that a thread block takes.

    The blocks should be nearly as many as multiprocessors, and no more: then all of the weight
    is asked for at once.

    most_bytes: of shared memory, that a block may have; its share has to fit.
    Returns None where the product is better left to the library.
    """
    columns, rest = divmod(num_columns, COLUMNS_AT_ONCE)
    row_bytes = 2 * (MOST_ROWS + COLUMNS_AT_ONCE)
    fitting = [
        share
        for share in range(SHARE_STEP, depth + 1, SHARE_STEP)
        if depth % share == 0
        and share * row_bytes <= most_bytes
        and columns * (depth // share) <= multiprocessors
    ]
    if rest or not fitting or columns * (depth // fitting[0]) < multiprocessors // 2:
        return None
    return fitting[0]
