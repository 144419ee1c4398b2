"""The ladder of paged kernels (lesson 07), on tensors.

A rung is compiled for the shapes of a model, planned for a batch, and then launched.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lessons_lib.cuda.library import CudaLibrary
from paged_attention.attention.paged_kernel import SHARED_BYTES_FOR_SCORES
from paged_attention.ladder.rungs import (
    FP8,
    HEAD_SIZES,
    MOST_QUERIES_PER_KV_HEAD,
    RUNGS,
    Rung,
    Shape,
    check_card,
    check_decode_call,
    check_heads,
    check_shape,
    num_multiprocessors,
    num_warps,
    rung_library,
    rung_texts,
    shape_text,
    shared_bytes,
)
from paged_attention.ladder.self_planned import (
    MOST_SEQS,
    SelfPlannedDecode,
    kept_decode,
    place_of,
)
from paged_attention.ladder.splits import choose_num_splits
from paged_attention.ladder.work_plan import (
    BUSY,
    best_plan,
    choose_heads_at_once,
    choose_plan,
    plan_work,
    tiles_of,
)
from paged_attention.validate import (
    KERNEL_DTYPES,
    check_block_table,
    check_contiguous,
    check_decode_tensors,
    check_paged_decode,
    check_tensor,
    signature_of,
)

__all__ = [
    "FP8",
    "HEAD_SIZES",
    "MOST_QUERIES_PER_KV_HEAD",
    "RUNGS",
    "PagedDecode",
    "Rung",
    "Shape",
    "attn_paged_fast",
    "check_card",
    "check_shape",
    "num_multiprocessors",
    "rung_library",
    "rung_texts",
    "shape_text",
    "shared_bytes",
]


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
    heads_at_once: for rungs 7 and 8; None chooses.
    num_blocks: for rungs 7 to 9; None chooses.
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
        check_heads(num_q_heads, num_kv_heads)
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
        match RUNGS[number].plans:
            case "scores":
                self._plan_scores()
            case "splits":
                self._plan_splits(lens, num_splits)
            case "work":
                self._plan_work(lens, heads_at_once, num_blocks)
            case "on the device":
                self._plan_on_device(num_blocks)

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
        if heads_at_once is not None and (
            heads_at_once < 1 or most % heads_at_once or self.num_kv_heads % heads_at_once
        ):
            raise ValueError(
                f"heads_at_once must divide the {self.num_kv_heads} KV heads "
                f"and the {most} warps of a block, not {heads_at_once}"
            )
        if num_blocks is not None and num_blocks < 1:
            raise ValueError(f"num_blocks must be positive, not {num_blocks}")
        # with fp8 there is more to compute for each byte
        busy = BUSY if RUNGS[self.number].fp8 == "never" else 1.0
        if heads_at_once is None and num_blocks is None:
            heads_at_once, plan = choose_plan(
                lens, self.num_kv_heads, most, multiprocessors, busy
            )
        else:
            heads_at_once = heads_at_once or choose_heads_at_once(
                lens, self.num_kv_heads, most, multiprocessors
            )
            if num_blocks is None:
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

    def _plan_on_device(self, num_blocks: int | None):
        decode = SelfPlannedDecode(
            len(self.context_lens),
            num_q_heads=self.num_q_heads,
            num_kv_heads=self.num_kv_heads,
            head_size=self.shape.head_size,
            block_size=self.shape.block_size,
            dtype=self.shape.dtype,
            kv_dtype=self.shape.kv_dtype,
            device=self.device,
            library=self.library,
            num_blocks=num_blocks,
        )
        decode.plan(self.context_lens)
        self.workspace = {**decode.buffers, "num_blocks": decode.num_blocks}

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
            Rung 8 takes them, and rung 9 for such caches.
        scale: the factor for the scores; None takes 1 / sqrt(head_size).
        out: where the result goes; None makes a new tensor.
        Returns `out`.
        Raises TypeError or ValueError naming what does not fit the plan.
        Raises KernelError when the launch fails.
        """
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
        check_decode_call(
            self.number,
            self.shape,
            len(self.context_lens),
            self.num_q_heads,
            self.num_kv_heads,
            self.max_context_len,
            out=out,
            q=q,
            k_cache=k_cache,
            v_cache=v_cache,
            block_table=block_table,
            k_scales=k_scales,
            v_scales=v_scales,
            context_lens=self.context_lens,
        )
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
        rung = RUNGS[self.number]
        if rung.fp8 != "never":
            arguments |= dict(k_scales=k_scales, v_scales=v_scales)
        if rung.plans == "on the device":
            arguments["early"] = 0
        getattr(self.library, rung.launcher)(**arguments, **self.workspace)
        return out


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
    """Computes paged attention of a decode step with rung 9, which plans on the device.

    It waits for the device once, to check the table. To decode the same batch more than once,
    or without waiting, keep a SelfPlannedDecode. More than 4,096 sequences are planned on the
    host, for rung 7 or 8. The arguments are not changed.

    The arguments are those of `attn_paged_cuda`, with narrower limits: q is float16 or
    bfloat16; head_size is 64, 128 or 256, and for fp8 caches 128 or 256; a KV head has at most
    16 query heads.
    k_scales, v_scales: float32 (num_kv_heads,), for fp8 caches.
    target: as for `SelfPlannedDecode`.
    Returns (num_seqs, num_q_heads, head_size) of q's dtype.
    Raises TypeError or ValueError naming the argument that does not fit, before any launch.
    Raises KernelError when the launch fails.
    """
    fp8 = isinstance(k_cache, Tensor) and k_cache.dtype == FP8
    tensors = q, k_cache, v_cache, block_table, context_lens
    num_seqs = len(q) if isinstance(q, Tensor) and q.dim() else 0
    if num_seqs > MOST_SEQS:
        check_paged_decode(*tensors, FP8 if fp8 else None)
        decode = PagedDecode(
            8 if fp8 else 7, context_lens, **_model(q, k_cache), target=target
        )
        return decode(q, k_cache, v_cache, block_table, k_scales, v_scales, scale)
    _check_once(*tensors, FP8 if fp8 else None)
    room = min(MOST_SEQS, 1 << (num_seqs - 1).bit_length())  # so that few are ever kept
    place, model = place_of(q.device), _model(q, k_cache)
    planned = kept_decode(place, room, **model, device=q.device, target=target)
    num_blocks, block_size, _, _ = k_cache.shape
    if not planned.table_fits(block_table, context_lens, num_blocks, block_size):
        check_block_table(block_table, context_lens, num_blocks, block_size)  # names the entry
    planned.plan(context_lens)
    return planned(q, k_cache, v_cache, block_table, k_scales, v_scales, scale)


# Signatures of tensors that `check_decode_tensors` has accepted.
_checked: set[tuple] = set()
MOST_CHECKED = 64


def _check_once(*arguments) -> None:
    """`check_decode_tensors`, for tensors that do not look like those of an earlier call."""
    signature = tuple(map(signature_of, arguments))
    if signature in _checked:
        return
    check_decode_tensors(*arguments)
    if len(_checked) == MOST_CHECKED:
        _checked.clear()
    _checked.add(signature)


def _model(q: Tensor, k_cache: Tensor) -> dict[str, Any]:
    """What a rung is made for, of tensors with the right shapes."""
    return dict(
        num_q_heads=q.shape[1],
        num_kv_heads=k_cache.shape[2],
        head_size=q.shape[2],
        block_size=k_cache.shape[1],
        dtype=q.dtype,
        kv_dtype=k_cache.dtype,
    )
