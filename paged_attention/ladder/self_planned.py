"""Rung 9 of the ladder: a kernel that plans its own work, on the device.

Neither the plan nor a launch reads a tensor on the host, and the buffers stay where they are.
So one CUDA graph can hold both, for any lengths.
"""

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lessons_lib.cuda.library import CudaLibrary
from paged_attention.ladder.rungs import (
    FP8,
    Shape,
    check_decode_call,
    check_heads,
    check_shape,
    num_multiprocessors,
    num_warps,
    rung_library,
    shared_bytes,
)
from paged_attention.ladder.work_plan import BUSY
from paged_attention.validate import (
    KERNEL_DTYPES,
    check_chunks,
    check_contiguous,
    check_devices,
    check_tensor,
    signature_of,
)

Prepared = Callable[..., None]
NUMBER = 9
MOST_SEQS = 4096  # that kernels/ladder/plan.cuh has room for
MOST_BLOCKS = 256  # likewise


class SelfPlannedDecode:
    """Rung 9 with its buffers. `plan` once for a batch, then a call for each layer.

    The calls share the buffers, so they must run one after another.

    max_num_seqs: the most sequences of a batch, up to 4,096.
    dtype: of q.
    kv_dtype: of the caches; None means dtype.
    target: as for `build_cuda`; None takes "gpu" on a GPU and "fast" on the CPU.
    library: a library with the rung's interface; None takes the course's own.
    num_blocks: that share the work; None takes one for each multiprocessor.
    early: whether attention may begin before the kernel before it has ended; it then waits for
        it. Needs a GPU of compute capability 9.0 or more.
    Raises ValueError or TypeError for a shape that the rung is not made for.
    """

    def __init__(
        self,
        max_num_seqs: int,
        *,
        num_q_heads: int,
        num_kv_heads: int,
        head_size: int,
        block_size: int,
        dtype: torch.dtype,
        kv_dtype: torch.dtype | None = None,
        device: torch.device | str,
        target: str | None = None,
        library: CudaLibrary | None = None,
        num_blocks: int | None = None,
        early: bool = False,
    ):
        check_heads(num_q_heads, num_kv_heads)
        self.device = device = torch.empty(0, device=device).device  # with its number
        if num_blocks is None:
            num_blocks = min(num_multiprocessors(device), MOST_BLOCKS)
        for name, value, most in (
            ("max_num_seqs", max_num_seqs, MOST_SEQS),
            ("num_blocks", num_blocks, MOST_BLOCKS),
        ):
            if not 1 <= value <= most:
                raise ValueError(f"{name} must be 1 to {most}, not {value}")
        self.max_num_seqs, self.num_blocks = max_num_seqs, num_blocks
        self.num_q_heads, self.num_kv_heads = num_q_heads, num_kv_heads
        self.shape = shape = Shape(
            dtype,
            head_size,
            num_q_heads // num_kv_heads,
            block_size,
            kv_dtype,
            shared_bytes(device),
        )
        check_shape(NUMBER, shape)
        self.library = library or rung_library(
            NUMBER, shape, target or ("gpu" if device.type == "cuda" else "fast")
        )
        # fp8 has more to compute for each byte, so all blocks share the work
        busy = 1.0 if shape.cache_dtype == FP8 else BUSY
        self.busy = max(1, int(busy * num_blocks))
        self.buffers = make_buffers(max_num_seqs, num_kv_heads, num_blocks, shape, device)
        self.num_seqs, self.early = 0, early  # nothing is planned
        self.num_wrong = torch.zeros(1, dtype=torch.int32, device=device)
        self._plan: Prepared | None = None
        self._check_table: Prepared | None = None
        self._attend: Prepared | None = None
        self._checked: tuple | None = None  # the signature of what the last call checked

    def table_fits(
        self, block_table: Tensor, context_lens: Tensor, num_blocks: int, block_size: int
    ) -> bool:
        """Whether attention through this table reads inside a pool of num_blocks blocks.

        It waits for the device. The arguments are those of `table_fits` of validate.py.
        """
        arguments = dict(
            block_table=block_table,
            context_lens=context_lens,
            num_seqs=len(block_table),
            max_blocks_per_seq=block_table.shape[1],
            num_blocks=num_blocks,
            num_wrong=self.num_wrong,
        )
        if self._check_table is None:
            self._check_table = self.library.check_table.prepare(**arguments)
        self._check_table(**arguments)
        fits = not self.num_wrong.item()
        if not fits:
            self.num_wrong.zero_()
        return fits

    def plan(self, context_lens: Tensor) -> None:
        """Launches the planning kernel. The next calls are for this batch.

        context_lens: int32 (num_seqs,). The kernel reads it when it runs; it takes a negative
            number for 0.
        Raises TypeError or ValueError naming what does not fit.
        Raises KernelError when the launch fails.
        """
        check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
        check_contiguous("context_lens", context_lens)
        num_seqs = len(context_lens)
        if not 1 <= num_seqs <= self.max_num_seqs:
            raise ValueError(
                f"context_lens must be of 1 to {self.max_num_seqs} sequences "
                f"(max_num_seqs), not {num_seqs}"
            )
        check_devices(items=self.buffers["items"], context_lens=context_lens)
        self.num_seqs = num_seqs
        changes = dict(context_lens=context_lens, num_seqs=num_seqs)
        if self._plan is None:
            self._plan = self.library.plan_work.prepare(
                **changes,
                num_kv_heads=self.num_kv_heads,
                num_blocks=self.num_blocks,
                busy=self.busy,
                items=self.buffers["items"],
                header=self.buffers["header"],
            )
        self._plan(**changes)

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
        """Launches attention for the batch that was planned last.

        It looks at no value of a tensor, so the caller must make sure that the table is right.
        Shapes, dtypes and devices are checked when they are not those of the last call.

        q: (num_seqs, num_q_heads, head_size), with any distance between sequences.
        k_cache, v_cache: (num_blocks, block_size, num_kv_heads, head_size).
        block_table: int32 (num_seqs, max_blocks_per_seq).
        k_scales, v_scales: float32 (num_kv_heads,), factors for the numbers of an fp8 cache.
        scale: the factor for the scores; None takes 1 / sqrt(head_size).
        out: where the result goes; None makes a new tensor.
        Returns `out`.
        Raises RuntimeError if nothing is planned.
        Raises TypeError or ValueError naming what does not fit the plan.
        Raises KernelError when the launch fails.
        """
        if out is None:
            out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        tensors: dict[str, Any] = dict(
            out=out,
            q=q,
            k_cache=k_cache,
            v_cache=v_cache,
            block_table=block_table,
            k_scales=k_scales,
            v_scales=v_scales,
        )
        scale = 1 / math.sqrt(self.shape.head_size) if scale is None else scale
        signature = (self.num_seqs, *map(signature_of, tensors.values()))
        attend = self._attend
        if attend is None or signature != self._checked:
            self._check(tensors)
            attend = self._attend = self.library.paged_attention_planned.prepare(
                **tensors, **self._sizes(q, block_table), scale=scale, **self.buffers
            )
            self._checked = signature
        addresses = out.data_ptr() | q.data_ptr() | k_cache.data_ptr() | v_cache.data_ptr()
        if addresses % 16:
            check_chunks(q=q, k_cache=k_cache, v_cache=v_cache, out=out)
        attend(**tensors, scale=scale)
        return out

    def _check(self, tensors: dict[str, Any]) -> None:
        if self.num_seqs == 0:
            raise RuntimeError("nothing is planned: call plan(context_lens) first")
        check_decode_call(
            NUMBER, self.shape, self.num_seqs, self.num_q_heads, self.num_kv_heads, **tensors
        )
        check_devices(items=self.buffers["items"], q=tensors["q"])

    def _sizes(self, q: Tensor, block_table: Tensor) -> dict:
        """What the kernel is told besides tensors, buffers and the scale."""
        return dict(
            context_lens=None,  # they are in the plan
            scores=None,
            q_stride=q.stride(0),
            num_seqs=self.num_seqs,
            num_q_heads=self.num_q_heads,
            num_kv_heads=self.num_kv_heads,
            head_size=self.shape.head_size,
            block_size=self.shape.block_size,
            max_blocks_per_seq=block_table.shape[1],
            max_context_len=0,
            num_blocks=self.num_blocks,
            early=int(self.early),
            dtype=KERNEL_DTYPES.index(self.shape.dtype),
        )


def make_buffers(
    max_num_seqs: int, num_kv_heads: int, num_blocks: int, shape: Shape, device: torch.device
) -> dict[str, Tensor]:
    """Allocates what a plan is written into, and what the blocks hand over to each other.

    A row ends in one item and a block ends in one, so there are no more items than rows and
    blocks together. A block has at most two parts.
    """
    most = num_warps(shape)
    most_heads = most if num_kv_heads % most == 0 else 2 if num_kv_heads % 2 == 0 else 1
    query_tiles = -(-shape.queries_per_kv_head // 8)
    state = (query_tiles, shape.head_size // 16 + 1, 32, 4)
    # the attention kernel looks one item ahead
    num_items = num_blocks + max_num_seqs * num_kv_heads + 1
    return {
        "items": torch.empty((num_items, 8), dtype=torch.int32, device=device),
        "header": torch.empty(2 + max_num_seqs, dtype=torch.int32, device=device),
        "parts": torch.empty(
            (2 * num_blocks * most_heads, *state), dtype=torch.float32, device=device
        ),
        "arrived": torch.zeros(2 * num_blocks, dtype=torch.int32, device=device),
    }


@functools.lru_cache(maxsize=4)
def kept_decode(place: int, max_num_seqs: int, **model) -> SelfPlannedDecode:
    """Keeps the last few, so that a call need not allocate buffers.

    place: a stream of the GPU, or a thread of the CPU. What runs in another place at the same
        time must not use these buffers.
    model: the arguments of SelfPlannedDecode.
    """
    return SelfPlannedDecode(max_num_seqs, **model)


def place_of(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.current_stream(device).cuda_stream
    return threading.get_ident()
