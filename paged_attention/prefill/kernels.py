"""The ladder of prefill kernels: causal attention of any batch over a paged cache.

A rung is compiled for the shapes of a model, planned for a batch, and then launched.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from lessons_lib.cuda.library import CudaLibrary
from paged_attention.ladder.decode import (
    Shape,
    num_multiprocessors,
    shared_bytes,
)
from paged_attention.prefill.plan import PrefillPlan, plan_all_tiles, plan_needed_tiles
from paged_attention.prefill.rungs import (
    PREFILL_DTYPES,
    PREFILL_RUNGS,
    best_prefill_rung,
    check_prefill_shape,
    prefill_library,
)
from paged_attention.prefill.tile_sizes import tile_sizes
from paged_attention.transfer import send
from paged_attention.validate import (
    check_chunks,
    check_contiguous,
    check_devices,
    check_launch,
    check_tensor,
    signature_of,
)


class PagedPrefill:
    """A rung of the prefill ladder, planned for a batch. Each call launches it.

    The work is divided and the workspace allocated only once, here. The calls read no tensor
    on the host, so a CUDA graph can hold them. They share the workspace, so they must run one
    after another.

    number: of the rung.
    cu_seqlens_q: int32 (num_seqs + 1,), where each sequence's queries begin in q, and where
        the last one's end. A sequence may have no query. It is read once, now.
    seq_lens_kv: int32 (num_seqs,), each sequence's keys, including those of its queries. It is
        read once, now.
    dtype: of q and the caches.
    target: as for `build_cuda`; None takes "gpu" on a GPU and "fast" on the CPU.
    library: a library with the rung's interface; None takes the course's own.
    most_tiles: from rung 4 on, the most tiles of keys of an item; None chooses.
    lengths: each sequence's number of queries and of keys, where the caller has them on the
        host. Then nothing is read from the device, and nothing checked.
    Raises TypeError or ValueError naming the argument that does not fit.
    """

    def __init__(
        self,
        number: int,
        cu_seqlens_q: Tensor,
        seq_lens_kv: Tensor,
        *,
        num_q_heads: int,
        num_kv_heads: int,
        head_size: int,
        block_size: int,
        dtype: torch.dtype,
        target: str | None = None,
        library: CudaLibrary | None = None,
        most_tiles: int | None = None,
        lengths: tuple[np.ndarray, np.ndarray] | None = None,
    ):
        if num_kv_heads < 1 or num_q_heads < 1 or num_q_heads % num_kv_heads:
            raise ValueError(
                f"num_q_heads must be a multiple of the {num_kv_heads} KV heads, "
                f"not {num_q_heads}"
            )
        if most_tiles is not None and most_tiles < 1:
            raise ValueError(f"most_tiles must be positive, not {most_tiles}")
        q_lens, kv_lens = lengths or check_lengths(cu_seqlens_q, seq_lens_kv)
        self.number, self.device = number, seq_lens_kv.device
        self.cu_seqlens_q, self.seq_lens_kv = cu_seqlens_q, seq_lens_kv
        self.num_q_heads, self.num_kv_heads = num_q_heads, num_kv_heads
        self.num_tokens = int(q_lens.sum())
        self.most_keys = int(kv_lens.max(initial=0))
        self.shape = Shape(
            dtype,
            head_size,
            num_q_heads // num_kv_heads,
            block_size,
            shared_bytes=shared_bytes(self.device),
        )
        check_prefill_shape(number, self.shape)
        self.library = library or prefill_library(
            number, self.shape, target or ("gpu" if self.device.type == "cuda" else "fast")
        )
        self.plan: PrefillPlan | None = None
        self.workspace: dict[str, Tensor | int | None] = {}
        self._checked: tuple | None = None  # what the last call checked, but for addresses
        self._prepared: Callable | None = None
        self._copies_boxes = PREFILL_RUNGS[number].copies_boxes
        if PREFILL_RUNGS[number].plans and self.num_tokens:
            self._plan(q_lens, kv_lens, most_tiles)

    def _plan(self, q_lens: np.ndarray, kv_lens: np.ndarray, most_tiles: int | None):
        sizes = tile_sizes(self.number, self.shape)
        rung = PREFILL_RUNGS[self.number]
        heads = self.shape.queries_per_kv_head if rung.packs_heads else 1
        if rung.plans == "tiles":
            plan = plan_all_tiles(q_lens, kv_lens, heads, sizes)
        else:
            # of a multiprocessor
            is_small = self.shape.head_size <= 128 and not rung.copies_boxes
            blocks_at_once = 2 if is_small else 1
            num_slots = blocks_at_once * num_multiprocessors(self.device)
            plan = plan_needed_tiles(
                q_lens, kv_lens, heads, sizes, self.num_kv_heads, num_slots, most_tiles
            )
        self.plan = plan
        self.workspace = {
            "items": send(plan.items, torch.int32, self.device),
            "num_items": len(plan.items),
            "planned_rows": sizes.rows,
            "planned_keys": sizes.keys,
        }
        if rung.plans == "needed tiles":
            rows = (plan.num_parts, self.num_kv_heads, sizes.rows)
            cut = plan.num_parts > 0
            self.workspace |= {
                "cut_tiles": send(plan.cut_tiles, torch.int32, self.device) if cut else None,
                "num_cut_tiles": len(plan.cut_tiles),
                "part_o": self._floats(*rows, self.shape.head_size) if cut else None,
                "part_ml": self._floats(*rows, 2) if cut else None,
            }
        if rung.copies_boxes:
            self.workspace["num_slots"] = num_slots

    def _floats(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=self.device)

    def __call__(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        block_table: Tensor,
        scale: float | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Launches the rung.

        It looks at no value of a tensor, so the caller must make sure that the table is right.

        q: (num_tokens, num_q_heads, head_size), with any distance between tokens.
        k_cache, v_cache: (num_blocks, block_size, num_kv_heads, head_size).
        block_table: int32 (num_seqs, max_blocks_per_seq).
        scale: the factor for the scores; None takes 1 / sqrt(head_size).
        out: where the result goes; None makes a new tensor.
        Returns `out`.
        Raises TypeError or ValueError naming what does not fit the plan.
        Raises KernelError when the launch fails.
        """
        if out is None:
            out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        scale = 1 / math.sqrt(self.shape.head_size) if scale is None else scale
        tensors = dict(out=out, q=q, k_cache=k_cache, v_cache=v_cache, block_table=block_table)
        signature = (scale, *map(signature_of, tensors.values()))
        if self._prepared is not None and signature == self._checked:
            check_chunks(out=out, q=q, k_cache=k_cache, v_cache=v_cache)
            self._prepared(**tensors)
            return out
        self._check_call(out, q, k_cache, v_cache, block_table, scale)
        if self.num_tokens == 0:
            return out
        usual = scale > 0
        if not usual:  # the kernels' factor is more than 0; these are the same scores
            tensors["q"] = -q if scale < 0 else torch.zeros_like(q)
        self._prepared = self.library.paged_prefill.prepare(
            **tensors,
            cu_seqlens_q=self.cu_seqlens_q,
            seq_lens_kv=self.seq_lens_kv,
            q_stride=tensors["q"].stride(0),
            num_tokens=len(q),
            num_seqs=len(self.seq_lens_kv),
            num_q_heads=self.num_q_heads,
            num_kv_heads=self.num_kv_heads,
            max_blocks_per_seq=block_table.shape[1],
            scale=-scale if scale < 0 else scale or 1.0,
            **(dict(num_blocks=len(k_cache)) if self._copies_boxes else {}),
            **self.workspace,
        )
        self._checked = signature if usual else None
        self._prepared()
        return out

    def _check_call(self, out, q, k_cache, v_cache, block_table, scale):
        shape, num_seqs = self.shape, len(self.seq_lens_kv)
        check_tensor("q", q, ("num_tokens", self.num_q_heads, shape.head_size), shape.dtype)
        if len(q) != self.num_tokens:
            raise ValueError(
                f"cu_seqlens_q must end at the {len(q)} tokens of q, not at {self.num_tokens}"
            )
        check_tensor("out", out, tuple(q.shape), shape.dtype)
        cache_shape = ("num_blocks", shape.block_size, self.num_kv_heads, shape.head_size)
        check_tensor("k_cache", k_cache, cache_shape, shape.dtype)
        check_tensor("v_cache", v_cache, tuple(k_cache.shape), shape.dtype)
        check_tensor("block_table", block_table, (num_seqs, "max_blocks_per_seq"), torch.int32)
        if not math.isfinite(scale):
            raise ValueError(f"scale must be a finite number, not {scale}")
        tensors = dict(q=q, k_cache=k_cache, v_cache=v_cache, out=out)
        check_launch(
            shape.block_size,
            self.most_keys,
            **tensors,
            block_table=block_table,
            seq_lens_kv=self.seq_lens_kv,
        )
        check_chunks(**tensors)


def check_lengths(cu_seqlens_q: Tensor, seq_lens_kv: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Checks the lengths of a batch, and returns each sequence's queries and keys.

    It reads the tensors, so on a GPU it waits for them.
    """
    check_tensor("seq_lens_kv", seq_lens_kv, ("num_seqs",), torch.int32)
    check_tensor("cu_seqlens_q", cu_seqlens_q, (len(seq_lens_kv) + 1,), torch.int32)
    check_devices(seq_lens_kv=seq_lens_kv, cu_seqlens_q=cu_seqlens_q)
    check_contiguous("seq_lens_kv", seq_lens_kv)
    check_contiguous("cu_seqlens_q", cu_seqlens_q)
    starts = cu_seqlens_q.cpu().numpy().astype(np.int64)
    kv_lens = seq_lens_kv.cpu().numpy().astype(np.int64)
    q_lens = np.diff(starts)
    if starts[0] != 0:
        raise ValueError(f"cu_seqlens_q must begin with 0, not {starts[0]}")
    if (q_lens < 0).any():
        seq = int((q_lens < 0).argmax())
        raise ValueError(
            f"cu_seqlens_q must ascend, and after {starts[seq]} it has {starts[seq + 1]} "
            f"(sequence {seq})"
        )
    if (kv_lens < 0).any():
        seq = int((kv_lens < 0).argmax())
        raise ValueError(
            f"seq_lens_kv holds {kv_lens[seq]} for sequence {seq}; "
            "a context has 0 tokens or more"
        )
    if (kv_lens < q_lens).any():
        seq = int((kv_lens < q_lens).argmax())
        raise ValueError(
            f"seq_lens_kv gives sequence {seq} {kv_lens[seq]} keys, "
            f"fewer than its {q_lens[seq]} queries"
        )
    return q_lens, kv_lens


def check_prefill_table(
    block_table: Tensor, seq_lens_kv: Tensor, num_blocks: int, block_size: int
) -> None:
    """Refuses a block table through which a kernel would read outside the pool.

    Entries that no key needs are not looked at. It reads the table, so on a GPU it waits.
    """
    table, kv_lens = block_table.cpu().numpy(), seq_lens_kv.cpu().numpy()
    needed = -(-kv_lens // block_size)
    if (needed > table.shape[1]).any():
        seq = int((needed > table.shape[1]).argmax())
        raise ValueError(
            f"seq_lens_kv gives sequence {seq} {kv_lens[seq]} keys, "
            f"which need {needed[seq]} blocks, "
            f"and block_table has {table.shape[1]} entries in a row"
        )
    wrong = (np.arange(table.shape[1]) < needed[:, None]) & (
        (table < 0) | (table >= num_blocks)
    )
    if wrong.any():
        seq, entry = np.argwhere(wrong)[0]
        raise ValueError(
            f"block_table, row {seq}, holds {table[seq, entry]} (entry {entry}); "
            f"the blocks of this pool are 0 to {num_blocks - 1}"
        )


def attn_paged_prefill(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    metadata,
    scale: float | None = None,
    target: str | None = None,
    number: int | None = None,
) -> Tensor:
    """Computes causal paged attention of a batch with a rung of the prefill ladder.

    The batch may mix whole prompts, chunks and single new tokens. Query i of a sequence with n
    queries and c keys sees the keys 0 … c - n + i. Slots without a key of the batch are not
    read, and may hold NaN. Every call plans anew. To compute the same batch more than once, as
    for each layer of a model, keep a PagedPrefill. The arguments are not changed.

    q: float16 or bfloat16 (num_tokens, num_q_heads, head_size), with any distance between
        tokens; head_size is 64, 128 or 256.
    k_cache, v_cache: (num_blocks, block_size, num_kv_heads, head_size) of q's dtype; a KV head
        has at most 16 query heads, and a block 8 to 64 tokens.
    metadata: the BatchMetadata. A sequence may have no query. Entries of its table that no key
        needs may be anything. The slot_mapping is not used.
    scale: the factor for the scores; None takes 1 / sqrt(head_size).
    target: as for `PagedPrefill`.
    number: of the rung; None takes the best.
    Returns the shape and dtype of q.
    Raises TypeError or ValueError naming the argument that does not fit, before any launch.
    Raises KernelError when the launch fails.
    """
    check_tensor("q", q, ("num_tokens", "num_q_heads", "head_size"))
    check_tensor("k_cache", k_cache, ("num_blocks", "block_size", "num_kv_heads", q.shape[2]))
    _, num_q_heads, head_size = q.shape
    num_blocks, block_size, num_kv_heads, _ = k_cache.shape
    if q.dtype not in PREFILL_DTYPES:
        raise TypeError(f"q must be torch.float16 or torch.bfloat16, not {q.dtype}")
    if num_kv_heads == 0 or num_q_heads == 0 or num_q_heads % num_kv_heads:
        raise ValueError(
            f"q must have a multiple of the cache's {num_kv_heads} KV heads, "
            f"not {num_q_heads} heads"
        )
    group = num_q_heads // num_kv_heads
    if number is None:
        place = target or ("gpu" if q.device.type == "cuda" else "fast")
        number = best_prefill_rung(Shape(q.dtype, head_size, group, block_size), place)
    prefill = PagedPrefill(
        number,
        metadata.cu_seqlens_q,
        metadata.seq_lens_kv,
        num_q_heads=num_q_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        block_size=block_size,
        dtype=q.dtype,
        target=target,
    )
    table = metadata.block_table
    check_tensor(
        "block_table", table, (len(metadata.seq_lens_kv), "max_blocks_per_seq"), torch.int32
    )
    check_devices(q=q, block_table=table, seq_lens_kv=metadata.seq_lens_kv)
    check_prefill_table(table, metadata.seq_lens_kv, num_blocks, block_size)
    return prefill(q, k_cache, v_cache, table, scale)
