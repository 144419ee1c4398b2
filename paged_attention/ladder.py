"""The ladder of paged kernels (lesson 07).

A rung is compiled for the shapes of a model, planned for a batch, and then launched.
"""

import functools
import math
import re
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lessons_lib.cuda import CudaLibrary, build_cuda
from lessons_lib.cuda_builds import choose_target
from lessons_lib.inline import read_kernel
from lessons_lib.paths import KERNELS
from paged_attention.paged_kernel import SHARED_BYTES_FOR_SCORES
from paged_attention.splits import choose_num_splits
from paged_attention.validate import (
    KERNEL_DTYPES,
    check_chunks,
    check_contiguous,
    check_launch,
    check_paged_decode,
    check_tensor,
)
from paged_attention.work_plan import (
    BUSY,
    best_plan,
    choose_heads_at_once,
    plan_work,
    tiles_of,
)

HEAD_SIZES = (64, 128, 256)
MOST_QUERIES_PER_KV_HEAD = 16
FP8 = torch.float8_e4m3fn
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
    """A kernel of the ladder. file: its path below kernels/."""

    number: int
    title: str
    file: str

    @property
    def files(self) -> tuple[str, ...]:
        """All files that it needs, each after those that it includes. Its own is the last."""
        return _with_includes(self.file)


RUNGS = (
    Rung(0, "one thread's softmax", "ladder/0_serial_softmax.cu"),
    Rung(1, "parallel softmax", "ladder/1_parallel_softmax.cu"),
    Rung(2, "wide loads", "ladder/2_wide_loads.cu"),
    Rung(3, "one pass", "ladder/3_one_pass.cu"),
    Rung(4, "query heads packed, tensor cores", "ladder/4_tensor_cores.cu"),
    Rung(5, "copies in stages", "ladder/5_async_copies.cu"),
    Rung(6, "split KV", "ladder/6_split_kv.cu"),
    Rung(7, "balanced, one launch", "ladder/7_balanced.cu"),
    Rung(8, "fp8 cache", "ladder/8_fp8.cu"),
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
    check_card(number, target)
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
    dtypes: tuple[torch.dtype, ...] = (torch.float16,)
    if number <= 3:
        dtypes = KERNEL_DTYPES
    elif number <= 7:
        dtypes = KERNEL_DTYPES[1:]
    if shape.dtype not in dtypes:
        raise TypeError(
            f"dtype must be {' or '.join(map(str, dtypes))} for rung {number}, "
            f"not {shape.dtype}"
        )
    expected = FP8 if number == 8 else shape.dtype
    if shape.cache_dtype != expected:
        raise TypeError(
            f"kv_dtype must be {expected} for rung {number}, not {shape.cache_dtype}"
        )
    sizes = HEAD_SIZES[1:] if number == 8 else HEAD_SIZES
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


def check_card(number: int, target: str | None) -> None:
    """Raises ValueError if this machine's GPU lacks instructions that a rung needs."""
    needed = (8, 9) if number == 8 else (8, 0) if number >= 4 else (0, 0)
    if choose_target(target) == "gpu" and (has := torch.cuda.get_device_capability()) < needed:
        raise ValueError(
            f"rung {number} needs a GPU of compute capability {needed[0]}.{needed[1]} "
            f"or more, and {torch.cuda.get_device_name()} has {has[0]}.{has[1]}"
        )


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
    """Returns the warps of a block of rungs 7 and 8: as many as have room for their tiles."""
    return 4 if shape.head_size * shape.cache_dtype.itemsize > 256 else 8


class PagedDecode:
    """A rung of the ladder, planned for a batch. Each call launches it.

    The work is divided and the workspace allocated only once, here. The calls read no tensor
    on the host, so a CUDA graph can hold them. They share the workspace, so they must run one
    after another.

    number: of the rung.
    context_lens: int32 (num_seqs,), on the device of the launches. It is read once, now.
    dtype: of q.
    kv_dtype: of the caches; None means dtype.
    target: as for `build_cuda`; None takes "gpu" on a GPU and "fast" on the CPU.
    library: a library with the rung's interface; None takes the course's own.
    num_splits: for rung 6; None chooses.
    heads_at_once, num_blocks: for rungs 7 and 8; None chooses.
    Raises ValueError or TypeError for a shape that the rung is not made for.
    """

    def __init__(
        self,
        number: int,
        context_lens: Tensor,
        *,
        num_q_heads: int,
        num_kv_heads: int,
        head_size: int,
        block_size: int,
        dtype: torch.dtype,
        kv_dtype: torch.dtype | None = None,
        target: str | None = None,
        library: CudaLibrary | None = None,
        num_splits: int | None = None,
        heads_at_once: int | None = None,
        num_blocks: int | None = None,
    ):
        check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
        check_contiguous("context_lens", context_lens)
        if len(context_lens) == 0:
            raise ValueError("context_lens is empty; a batch holds at least one sequence")
        if num_kv_heads < 1 or num_q_heads < 1 or num_q_heads % num_kv_heads:
            raise ValueError(
                f"num_q_heads must be a multiple of the {num_kv_heads} KV heads, "
                f"not {num_q_heads}"
            )
        device = context_lens.device
        self.number, self.context_lens, self.device = number, context_lens, device
        self.num_q_heads, self.num_kv_heads = num_q_heads, num_kv_heads
        self.shape = Shape(
            dtype,
            head_size,
            num_q_heads // num_kv_heads,
            block_size,
            kv_dtype,
            shared_bytes(device),
        )
        check_shape(number, self.shape)
        self.library = library or rung_library(
            number, self.shape, target or ("gpu" if device.type == "cuda" else "fast")
        )
        lens = context_lens.cpu().numpy()
        if lens.min() < 0:
            raise ValueError(
                f"context_lens holds {lens.min()} for sequence {lens.argmin()}; "
                "a context has 0 tokens or more"
            )
        self.max_context_len = int(lens.max())
        self.scores: Tensor | None = None
        self.workspace: dict[str, Tensor | int] = {}
        if number <= 2:
            self._plan_scores()
        elif number == 6:
            self._plan_splits(lens, num_splits)
        elif number >= 7:
            self._plan_work(lens, heads_at_once, num_blocks)

    def _plan_scores(self):
        if self.max_context_len * torch.float32.itemsize > SHARED_BYTES_FOR_SCORES:
            self.scores = self._floats(
                len(self.context_lens), self.num_q_heads, self.max_context_len
            )

    def _plan_splits(self, lens: np.ndarray, num_splits: int | None):
        if num_splits is None:
            num_splits = choose_num_splits(
                len(lens) * self.num_kv_heads,
                int(tiles_of(lens).max()),
                num_multiprocessors(self.device),
            )
        if num_splits < 1:
            raise ValueError(f"num_splits must be positive, not {num_splits}")
        heads = (num_splits, len(lens), self.num_q_heads)
        self.workspace = {
            "part_o": self._floats(*heads, self.shape.head_size),
            "part_m": self._floats(*heads),
            "part_l": self._floats(*heads),
            "num_splits": num_splits,
        }

    def _plan_work(self, lens: np.ndarray, heads_at_once: int | None, num_blocks: int | None):
        multiprocessors = num_multiprocessors(self.device)
        most = num_warps(self.shape)
        if heads_at_once is None:
            heads_at_once = choose_heads_at_once(
                lens, self.num_kv_heads, most, multiprocessors
            )
        if heads_at_once < 1 or most % heads_at_once or self.num_kv_heads % heads_at_once:
            raise ValueError(
                f"heads_at_once must divide the {self.num_kv_heads} KV heads "
                f"and the {most} warps of a block, not {heads_at_once}"
            )
        if num_blocks is not None and num_blocks < 1:
            raise ValueError(f"num_blocks must be positive, not {num_blocks}")
        if num_blocks is None:
            busy = BUSY if self.number == 7 else 1.0  # fp8 has more to compute for each byte
            plan = best_plan(lens, self.num_kv_heads, heads_at_once, multiprocessors, busy)
        else:
            plan = plan_work(lens, self.num_kv_heads, num_blocks, heads_at_once)
        num_parts = max(1, plan.num_parts) * heads_at_once  # an empty tensor has no address
        query_tiles = -(-self.shape.queries_per_kv_head // 8)
        of_dims = self.shape.head_size // 16 + 1
        items = np.pad(plan.items, ((0, 1), (0, 0)))  # the kernel looks one item ahead
        self.workspace = {
            "items": torch.from_numpy(items).to(self.device),
            "parts": self._floats(num_parts, query_tiles, of_dims, 32, 4),
            "arrived": torch.zeros(num_parts, dtype=torch.int32, device=self.device),
            "num_blocks": plan.num_blocks,
            "heads_at_once": heads_at_once,
        }

    def _floats(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=self.device)

    def __call__(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        block_table: Tensor,
        k_scales: Tensor | None = None,
        v_scales: Tensor | None = None,
        scale: float | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Launches the rung.

        It looks at no value of a tensor, so the caller must make sure that the table is right.

        q: (num_seqs, num_q_heads, head_size), with any distance between sequences.
        k_cache, v_cache: (num_blocks, block_size, num_kv_heads, head_size).
        block_table: int32 (num_seqs, max_blocks_per_seq).
        k_scales, v_scales: float32 (num_kv_heads,), factors for the numbers of an fp8 cache.
            Only rung 8 takes them.
        scale: the factor for the scores; None takes 1 / sqrt(head_size).
        out: where the result goes; None makes a new tensor.
        Returns `out`.
        Raises TypeError or ValueError naming what does not fit the plan.
        Raises KernelError when the launch fails.
        """
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
        self._check_call(out, q, k_cache, v_cache, block_table, k_scales, v_scales)
        head_size = self.shape.head_size
        arguments = dict(
            out=out,
            q=q,
            k_cache=k_cache,
            v_cache=v_cache,
            block_table=block_table,
            context_lens=self.context_lens,
            scores=self.scores,
            q_stride=q.stride(0),
            num_seqs=len(q),
            num_q_heads=self.num_q_heads,
            num_kv_heads=self.num_kv_heads,
            head_size=head_size,
            block_size=self.shape.block_size,
            max_blocks_per_seq=block_table.shape[1],
            max_context_len=self.max_context_len,
            dtype=KERNEL_DTYPES.index(q.dtype),
            scale=1 / math.sqrt(head_size) if scale is None else scale,
        )
        if self.number == 8:
            self.library.paged_attention_fp8(
                **arguments, k_scales=k_scales, v_scales=v_scales, **self.workspace
            )
        else:
            self.library.paged_attention(**arguments, **self.workspace)
        return out

    def _check_call(self, out, q, k_cache, v_cache, block_table, k_scales, v_scales):
        shape, num_seqs = self.shape, len(self.context_lens)
        check_tensor("q", q, (num_seqs, self.num_q_heads, shape.head_size), shape.dtype)
        check_tensor("out", out, tuple(q.shape), shape.dtype)
        check_tensor(
            "k_cache",
            k_cache,
            ("num_blocks", shape.block_size, self.num_kv_heads, shape.head_size),
            shape.cache_dtype,
        )
        check_tensor("v_cache", v_cache, tuple(k_cache.shape), shape.cache_dtype)
        check_tensor("block_table", block_table, (num_seqs, "max_blocks_per_seq"), torch.int32)
        scales = {"k_scales": k_scales, "v_scales": v_scales}
        if self.number == 8:
            for name, tensor in scales.items():
                check_tensor(name, tensor, (self.num_kv_heads,), torch.float32)
                check_contiguous(name, tensor)
        elif k_scales is not None or v_scales is not None:
            raise ValueError(
                f"k_scales and v_scales are for fp8 caches, rung 8; this is rung {self.number}"
            )
        tensors = dict(q=q, k_cache=k_cache, v_cache=v_cache, out=out)
        check_launch(
            shape.block_size,
            self.max_context_len,
            **tensors,
            block_table=block_table,
            context_lens=self.context_lens,
            **(scales if self.number == 8 else {}),
        )
        if self.number >= 2:  # loads of 16 bytes
            check_chunks(**tensors)


def attn_paged_fast(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    k_scales: Tensor | None = None,
    v_scales: Tensor | None = None,
    scale: float | None = None,
    target: str | None = None,
) -> Tensor:
    """Computes paged attention of a decode step with the last rung that fits.

    That is rung 8 for caches of torch.float8_e4m3fn, else rung 7. Every call plans anew. To
    decode the same batch more than once, keep a PagedDecode. The arguments are not changed.

    The arguments are those of `attn_paged_cuda`, with narrower limits: q is float16 or
    bfloat16; head_size is 64, 128 or 256, and for fp8 caches 128 or 256; a KV head has at most
    16 query heads.
    k_scales, v_scales: float32 (num_kv_heads,), for fp8 caches.
    target: as for `PagedDecode`.
    Returns (num_seqs, num_q_heads, head_size) of q's dtype.
    Raises TypeError or ValueError naming the argument that does not fit, before any launch.
    Raises KernelError when the launch fails.
    """
    fp8 = isinstance(k_cache, Tensor) and k_cache.dtype == FP8
    check_paged_decode(q, k_cache, v_cache, block_table, context_lens, FP8 if fp8 else None)
    _, num_q_heads, head_size = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    decode = PagedDecode(
        8 if fp8 else 7,
        context_lens,
        num_q_heads=num_q_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        block_size=block_size,
        dtype=q.dtype,
        kv_dtype=k_cache.dtype,
        target=target,
    )
    return decode(q, k_cache, v_cache, block_table, k_scales, v_scales, scale)
