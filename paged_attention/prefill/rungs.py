"""The rungs of the prefill ladder: what each needs, and its library."""

import functools
from dataclasses import dataclass
from typing import Any

import torch

from lessons_lib.cuda.builds import choose_target
from lessons_lib.cuda.inline import read_kernel
from lessons_lib.cuda.library import CudaLibrary, build_cuda
from paged_attention import gpu_needs
from paged_attention.ladder.rungs import (
    HEAD_SIZES,
    MOST_QUERIES_PER_KV_HEAD,
    Rung,
    Shape,
    shape_text,
)


@dataclass(frozen=True)
class PrefillRung(Rung):
    """A kernel of this ladder. It plans all "tiles", or the "needed tiles".

    tensor_cores: whether it multiplies with them.
    packs_heads: whether the query heads of a KV head share a tile.
    copies_boxes: whether whole blocks are copied, by the card's bulk copies.
    """

    tensor_cores: bool = True
    packs_heads: bool = False
    copies_boxes: bool = False


_PACKED: dict[str, Any] = {"plans": "tiles", "packs_heads": True}
_NEEDED: dict[str, Any] = {"plans": "needed tiles", "packs_heads": True}
_HOPPER: dict[str, Any] = {"architecture": "90a", "copies_boxes": True, **_NEEDED}
PREFILL_RUNGS = (
    PrefillRung(0, "each query as a decode", "prefill/0_each_query.cu", tensor_cores=False),
    PrefillRung(
        1,
        "tiles of queries and keys",
        "prefill/1_tiles.cu",
        plans="tiles",
        tensor_cores=False,
    ),
    PrefillRung(
        2, "tensor cores", "prefill/2_tensor_cores.cu", gpu_needs.COPIES, plans="tiles"
    ),
    PrefillRung(
        3, "query heads packed", "prefill/3_packed_heads.cu", gpu_needs.COPIES, **_PACKED
    ),
    PrefillRung(
        4,
        "only what the causal edge needs",
        "prefill/4_causal_edge.cu",
        gpu_needs.COPIES,
        **_NEEDED,
    ),
    PrefillRung(
        5, "Hopper's copies and products", "prefill/5_hopper.cu", gpu_needs.GROUPS, **_HOPPER
    ),
)
PREFILL_DTYPES = (torch.float16, torch.bfloat16)
BLOCK_SIZES = range(8, 65)
BLOCK_SIZES_OF_BOXES = (8, 16, 32, 64)  # of rung 5, which copies whole blocks into tiles


def check_prefill_shape(number: int, shape: Shape) -> None:
    """Raises ValueError or TypeError naming what a rung is not made for."""
    if number not in range(len(PREFILL_RUNGS)):
        raise ValueError(
            f"number must be a rung of the prefill ladder, 0 to {PREFILL_RUNGS[-1].number}, "
            f"not {number}"
        )
    if shape.dtype not in PREFILL_DTYPES:
        raise TypeError(
            f"dtype must be {' or '.join(map(str, PREFILL_DTYPES))}, not {shape.dtype}"
        )
    if shape.cache_dtype != shape.dtype:
        raise TypeError(f"kv_dtype must be {shape.dtype}, as q's, not {shape.cache_dtype}")
    if shape.head_size not in HEAD_SIZES:
        raise ValueError(
            f"head_size must be {' or '.join(map(str, HEAD_SIZES))}, not {shape.head_size}"
        )
    if shape.block_size not in BLOCK_SIZES:
        raise ValueError(
            f"block_size must be {BLOCK_SIZES[0]} to {BLOCK_SIZES[-1]}, not {shape.block_size}"
        )
    is_boxed = PREFILL_RUNGS[number].copies_boxes
    if is_boxed and shape.block_size not in BLOCK_SIZES_OF_BOXES:
        *others, last = BLOCK_SIZES_OF_BOXES
        raise ValueError(
            f"block_size must be {', '.join(map(str, others))} or {last} for rung {number}, "
            f"not {shape.block_size}"
        )
    if not 1 <= shape.queries_per_kv_head <= MOST_QUERIES_PER_KV_HEAD:
        raise ValueError(
            f"a KV head must be shared by 1 to {MOST_QUERIES_PER_KV_HEAD} query heads, "
            f"not {shape.queries_per_kv_head}"
        )


def lack_of_card(number: int) -> str:
    """Says what this machine's GPU lacks for a rung of this ladder; "" if it can run it."""
    return gpu_needs.lack(PREFILL_RUNGS[number].needs, [rung.needs for rung in PREFILL_RUNGS])


def check_prefill_card(number: int, target: str | None) -> None:
    """Raises ValueError if this machine's GPU lacks instructions that a rung needs."""
    if choose_target(target) == "gpu" and (lack := lack_of_card(number)):
        raise ValueError(f"rung {number} of the prefill ladder {lack}")


def best_prefill_rung(shape: Shape, target: str | None = None) -> int:
    """Returns the fastest rung that is made for a shape, and runs where `target` is.

    Rung 5 on a Hopper GPU, and rung 4 elsewhere: on the CPU there is nothing to gain.
    Raises TypeError or ValueError naming what the ladder is not made for.
    """
    check_prefill_shape(4, shape)
    on_gpu = choose_target(target) == "gpu"
    if on_gpu and not lack_of_card(5) and shape.block_size in BLOCK_SIZES_OF_BOXES:
        return 5
    check_prefill_card(4, target)
    return 4


def prefill_texts(number: int, shape: Shape) -> dict[str, str]:
    """Returns a rung's texts by file name, in the order in which they are compiled."""
    texts = {file: read_kernel(file) for file in PREFILL_RUNGS[number].files}
    return texts | {"ladder/shape.cuh": shape_text(shape)}


@functools.cache
def prefill_library(number: int, shape: Shape, target: str | None = None) -> CudaLibrary:
    """Compiles a rung of the prefill ladder for `shape`.

    target: as for `build_cuda`.
    Raises ValueError or TypeError for a shape that the rung is not made for.
    Raises ValueError if this machine's GPU cannot run the rung.
    """
    check_prefill_shape(number, shape)
    check_prefill_card(number, target)
    texts = prefill_texts(number, shape)
    return build_cuda(
        *texts.values(),
        names=tuple(texts),
        target=target,
        name=f"prefill_{number}",
        architecture=PREFILL_RUNGS[number].architecture,
    )
