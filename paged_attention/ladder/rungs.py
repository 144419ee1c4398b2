"""The rungs of the ladder of paged kernels (lesson 07).

Which files they have, what they are compiled for, and what their calls take.
"""

import functools
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lessons_lib.cuda.builds import choose_target
from lessons_lib.cuda.inline import read_kernel
from lessons_lib.cuda.library import CudaLibrary, build_cuda
from lessons_lib.paths import KERNELS
from paged_attention import gpu_needs
from paged_attention.gpu_needs import Need
from paged_attention.validate import (
    KERNEL_DTYPES,
    check_chunks,
    check_contiguous,
    check_launch,
    check_tensor,
)

HEAD_SIZES = (64, 128, 256)
MOST_QUERIES_PER_KV_HEAD = 16
FP8 = torch.float8_e4m3fn
HALF_PRECISION = KERNEL_DTYPES[1:]
TYPES = {
    torch.float32: "float",
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    FP8: "Fp8",
}
SHARED_BYTES_ON_CPU = 232_448  # an H100's
MULTIPROCESSORS_ON_CPU = 4  # few, so that small batches are split too


@dataclass(frozen=True)
class Shape:
    """What a rung is compiled for.

    dtype: of q and out.
    kv_dtype: of the caches; None means dtype.
    shared_bytes: the shared memory that a block may have.
    """

    dtype: torch.dtype
    head_size: int
    queries_per_kv_head: int
    block_size: int
    kv_dtype: torch.dtype | None = None
    shared_bytes: int = SHARED_BYTES_ON_CPU

    @property
    def cache_dtype(self) -> torch.dtype:
        return self.kv_dtype or self.dtype


def shape_text(shape: Shape) -> str:
    """Returns kernels/ladder/shape.cuh with the numbers and types of `shape`.

    Raises ValueError if that file lacks a line.
    """
    text = read_kernel("ladder/shape.cuh")
    lines = {"using Number": TYPES[shape.dtype], "using KvNumber": TYPES[shape.cache_dtype]}
    lines |= {
        f"constexpr int {name}": getattr(shape, name)
        for name in ("head_size", "queries_per_kv_head", "block_size", "shared_bytes")
    }
    for line, value in lines.items():
        text, count = re.subn(
            rf"^{line} = \w+;", f"{line} = {value};", text, flags=re.MULTILINE
        )
        if count != 1:
            raise ValueError(
                f"kernels/ladder/shape.cuh must have one line `{line} = …;`, "
                f"and it has {count}"
            )
    return text


@dataclass(frozen=True)
class Rung:
    """A kernel of a ladder.

    file: its path below kernels/.
    needs: the least GPU that it runs on.
    architecture: what it is compiled for, if it needs what only one kind of GPU has.
    plans: what is made before a launch: "scores" (memory for them), "splits" of each context,
        equal shares of "work", or that "on the device"; "" for nothing.
    dtypes: of queries and of the result.
    fp8: whether it reads caches of 8 bits: "never", "always" or "also".
    loads: bytes that a thread reads at once.
    launcher: the function in its file.
    """

    number: int
    title: str
    file: str
    needs: Need = gpu_needs.EVERY
    architecture: str = ""
    plans: str = ""
    dtypes: tuple[torch.dtype, ...] = HALF_PRECISION
    fp8: str = "never"
    loads: int = 16
    launcher: str = "paged_attention"

    @property
    def files(self) -> tuple[str, ...]:
        """All files that it needs, each after those that it includes. Its own is the last."""
        return _with_includes(self.file)


_ALL: dict[str, Any] = {"dtypes": KERNEL_DTYPES}
_TWO_PASSES: dict[str, Any] = {"plans": "scores", **_ALL}
_FP8: dict[str, Any] = {"plans": "work", "fp8": "always", "launcher": "paged_attention_fp8"}
_PLANS_ITSELF: dict[str, Any] = {
    "plans": "on the device",
    "fp8": "also",
    "launcher": "paged_attention_planned",
}
RUNGS = (
    Rung(0, "one thread's softmax", "ladder/0_serial_softmax.cu", loads=2, **_TWO_PASSES),
    Rung(1, "parallel softmax", "ladder/1_parallel_softmax.cu", loads=2, **_TWO_PASSES),
    Rung(2, "wide loads", "ladder/2_wide_loads.cu", **_TWO_PASSES),
    Rung(3, "one pass", "ladder/3_one_pass.cu", **_ALL),
    Rung(
        4, "query heads packed, tensor cores", "ladder/4_tensor_cores.cu", gpu_needs.PRODUCTS
    ),
    Rung(5, "copies in stages", "ladder/5_async_copies.cu", gpu_needs.COPIES),
    Rung(6, "split KV", "ladder/6_split_kv.cu", gpu_needs.COPIES, plans="splits"),
    Rung(7, "balanced, one launch", "ladder/7_balanced.cu", gpu_needs.COPIES, plans="work"),
    Rung(8, "fp8 cache", "ladder/8_fp8.cu", gpu_needs.EIGHT_BITS, **_FP8),
    Rung(
        9,
        "plans its own work",
        "ladder/9_plans_itself.cu",
        gpu_needs.COPIES,
        **_PLANS_ITSELF,
    ),
)


def _with_includes(file: str) -> tuple[str, ...]:
    folder = (KERNELS / file).parent
    found: dict[str, None] = {}
    for include in re.findall(
        r'^#include "(.+)"', (KERNELS / file).read_text(encoding="utf-8"), re.MULTILINE
    ):
        found |= dict.fromkeys(
            _with_includes(str((folder / include).resolve().relative_to(KERNELS.resolve())))
        )
    return (*found, file)


def rung_texts(number: int, shape: Shape) -> dict[str, str]:
    """Returns a rung's texts by file name, in the order in which they are compiled."""
    texts = {file: read_kernel(file) for file in RUNGS[number].files}
    return texts | {"ladder/shape.cuh": shape_text(shape)}


@functools.cache
def rung_library(number: int, shape: Shape, target: str | None = None) -> CudaLibrary:
    """Compiles a rung of the ladder for `shape`.

    target: as for `build_cuda`.
    Raises ValueError or TypeError for a shape that the rung is not made for.
    Raises ValueError if this machine's GPU cannot run the rung.
    """
    check_shape(number, shape)
    check_card(number, target, shape.cache_dtype)
    texts = rung_texts(number, shape)
    return build_cuda(
        *texts.values(), names=tuple(texts), target=target, name=f"ladder_{number}"
    )


def check_shape(number: int, shape: Shape) -> None:
    """Raises ValueError or TypeError naming what a rung is not made for."""
    if not 0 <= number < len(RUNGS):
        raise ValueError(
            f"number must be a rung of the ladder, 0 to {len(RUNGS) - 1}, not {number}"
        )
    rung = RUNGS[number]
    is_fp8 = rung.fp8 == "always" or (rung.fp8 == "also" and shape.cache_dtype == FP8)
    dtypes = (torch.float16,) if is_fp8 else rung.dtypes  # 8-bit numbers are widened to it
    if shape.dtype not in dtypes:
        raise TypeError(
            f"dtype must be {' or '.join(map(str, dtypes))} for rung {number}, "
            f"not {shape.dtype}"
        )
    expected = FP8 if is_fp8 else shape.dtype
    if shape.cache_dtype != expected:
        raise TypeError(
            f"kv_dtype must be {expected} for rung {number}, not {shape.cache_dtype}"
        )
    sizes = HEAD_SIZES[1:] if is_fp8 else HEAD_SIZES
    if shape.head_size not in sizes:
        raise ValueError(
            f"head_size must be {' or '.join(map(str, sizes))} for rung {number}, "
            f"not {shape.head_size}"
        )
    if not 1 <= shape.queries_per_kv_head <= MOST_QUERIES_PER_KV_HEAD:
        raise ValueError(
            f"a KV head must be shared by 1 to {MOST_QUERIES_PER_KV_HEAD} query heads, "
            f"not {shape.queries_per_kv_head}"
        )
    if shape.block_size < 1:
        raise ValueError(f"block_size must be positive, not {shape.block_size}")


def check_heads(num_q_heads: int, num_kv_heads: int) -> None:
    """Raises ValueError if the KV heads cannot be shared evenly by the query heads."""
    if num_kv_heads < 1 or num_q_heads < 1 or num_q_heads % num_kv_heads:
        raise ValueError(
            f"num_q_heads must be a multiple of the {num_kv_heads} KV heads, not {num_q_heads}"
        )


def lack_of_card(number: int, kv_dtype: torch.dtype | None = None) -> str:
    """Says what this machine's GPU lacks for a rung; "" if it can run it.

    kv_dtype: of the caches; None means 16 or 32 bits, and for rung 8 always 8.
    """
    need = gpu_needs.EIGHT_BITS if kv_dtype == FP8 else RUNGS[number].needs
    return gpu_needs.lack(need, [rung.needs for rung in RUNGS])


def check_card(number: int, target: str | None, kv_dtype: torch.dtype | None = None) -> None:
    """Raises ValueError if this machine's GPU lacks instructions that a rung needs."""
    if choose_target(target) == "gpu" and (lack := lack_of_card(number, kv_dtype)):
        cache = " with a cache of 8 bits" if kv_dtype == FP8 else ""
        raise ValueError(f"rung {number}{cache} {lack}")


def check_decode_call(
    number: int,
    shape: Shape,
    num_seqs: int,
    num_q_heads: int,
    num_kv_heads: int,
    longest: int = 0,
    *,
    out: Tensor,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    k_scales: Tensor | None,
    v_scales: Tensor | None,
    **others: Tensor,
) -> None:
    """Checks the tensors of a call of a rung.

    longest: tokens of the longest context, if that is known.
    others: further tensors, on the same device.
    Raises TypeError or ValueError naming what does not fit the plan.
    """
    check_tensor("q", q, (num_seqs, num_q_heads, shape.head_size), shape.dtype)
    check_tensor("out", out, tuple(q.shape), shape.dtype)
    cache = ("num_blocks", shape.block_size, num_kv_heads, shape.head_size)
    check_tensor("k_cache", k_cache, cache, shape.cache_dtype)
    check_tensor("v_cache", v_cache, tuple(k_cache.shape), shape.cache_dtype)
    check_tensor("block_table", block_table, (num_seqs, "max_blocks_per_seq"), torch.int32)
    if shape.cache_dtype == FP8:
        scales: dict[str, Any] = dict(k_scales=k_scales, v_scales=v_scales)
        for name, tensor in scales.items():
            check_tensor(name, tensor, (num_kv_heads,), torch.float32)
            check_contiguous(name, tensor)
        others |= scales
    elif k_scales is not None or v_scales is not None:
        raise ValueError(
            "k_scales and v_scales are for fp8 caches, in rung 8 or 9; "
            f"this is rung {number} for {shape.cache_dtype}"
        )
    tensors = dict(q=q, k_cache=k_cache, v_cache=v_cache, out=out)
    check_launch(shape.block_size, longest, **tensors, block_table=block_table, **others)
    if RUNGS[number].loads == 16:
        check_chunks(**tensors)


def num_multiprocessors(device: torch.device) -> int:
    """Returns a GPU's number of multiprocessors.

    For the CPU it is a number that makes small batches split.
    """
    if device.type != "cuda":
        return MULTIPROCESSORS_ON_CPU
    return torch.cuda.get_device_properties(device).multi_processor_count


def shared_bytes(device: torch.device) -> int:
    """Returns the bytes of shared memory that a block may ask for."""
    if device.type != "cuda":
        return SHARED_BYTES_ON_CPU
    properties = torch.cuda.get_device_properties(device)
    return properties.shared_memory_per_block_optin  # type: ignore[attr-defined]  # not in its stub


def num_warps(shape: Shape) -> int:
    """Returns the warps of a block from rung 7 on: as many as have room for their tiles."""
    return 4 if shape.head_size * shape.cache_dtype.itemsize > 256 else 8
