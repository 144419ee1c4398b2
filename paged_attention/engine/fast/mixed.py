"""A step with chunks of prompts: its tensors, made without waiting for the device."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from paged_attention.attention.fused import Attend
from paged_attention.attention.metadata import BatchMetadata, cumulative_lengths
from paged_attention.engine.fast.graph_sizes import smallest_that_fits
from paged_attention.engine.fp8 import WidenedBlocks
from paged_attention.engine.paths import gather, is_hopper, is_one_long_prompt
from paged_attention.ladder.decode import Shape, shared_bytes
from paged_attention.ladder.rungs import FP8
from paged_attention.prefill.kernels import PagedPrefill
from paged_attention.prefill.rungs import best_prefill_rung
from paged_attention.transfer import send


class MixedStep:
    """What the model is given for a step.

    Sequences with a single new token come first in the row of tokens, then the chunks.

    `tokens`, `positions`, `slots`: int64 (num_tokens,).
    `last`: int64 (len(scheduled),), the place of each request's last new token, in the order
        of `scheduled`.
    `size`: of the recorded pieces that it runs in, to which these were sent; None: it runs
        unrecorded.
    """

    def __init__(self, scheduled, rows: list[int], lengths: list[int], runner):
        """rows, lengths: of each sequence, its row of the table and its number of tokens."""
        self.runner, self.device = runner, runner.device
        order = sorted(range(len(rows)), key=lambda seq: scheduled[seq][1] > 1)
        q_lens = np.array([scheduled[seq][1] for seq in order])
        kv_lens, rows_in_order = np.array(lengths)[order], np.array(rows)[order]
        ends = np.cumsum(q_lens)
        # (num_tokens,): each token's sequence in this order, and its position there
        seq_of = np.repeat(np.arange(len(order)), q_lens)
        positions = np.arange(len(seq_of)) - (ends - kv_lens)[seq_of]
        manager = runner.manager
        blocks = manager.table.cpu.numpy()[
            rows_in_order[seq_of], positions // manager.block_size
        ]
        slots = blocks.astype(np.int64) * manager.block_size + positions % manager.block_size
        last = np.empty_like(ends)
        last[order] = ends - 1
        tokens = tokens_of(scheduled, order)
        self.num_tokens = len(tokens)
        self._send_all(np.stack([tokens, positions, slots, rows_in_order[seq_of]]), last)
        self._plan(q_lens, kv_lens, rows_in_order)

    def _send_all(self, numbers: np.ndarray, last: np.ndarray) -> None:
        """numbers: (4, num_tokens), of each token itself, its position, slot and row."""
        pieces = self.runner.pieces
        size = smallest_that_fits(self.num_tokens, pieces.graphs if pieces else ())
        self.size = size if pieces and size in pieces.graphs else None
        if self.size:
            sent = pieces.send(numbers, last, size)
            self.tokens, self.positions, self.slots, self.last = sent
            return
        self.last = self._send(last)
        self.tokens, self.positions, self.slots, rows = self._send(numbers)
        if numbers[0].min() < 0:  # still on the device
            last_tokens = self.runner.state.last_tokens[rows]
            self.tokens = self.tokens.where(self.tokens >= 0, last_tokens)

    def _send(self, numbers, dtype=torch.int64) -> Tensor:
        return send(numbers, dtype, self.device)

    def _plan(self, q_lens: np.ndarray, kv_lens: np.ndarray, rows: np.ndarray) -> None:
        self.num_single = int((q_lens == 1).sum())
        table = self.runner.manager.block_table[self._send(rows)]
        single, chunks = slice(self.num_single), slice(self.num_single, None)
        self.single_table = table[single]
        if self.num_single:
            self.runner.plan(self._send(kv_lens[single], torch.int32))
        self.attend_chunks: Callable | None = None
        if self.num_single < len(rows):
            lengths = q_lens[chunks], kv_lens[chunks]
            if self.runner.manager.kv_cache.dtype == FP8:
                self.attend_chunks = self._plan_widened(*lengths, rows[chunks])
            else:
                self.attend_chunks = self._plan_chunks(*lengths, table[chunks])

    def _plan_widened(self, q_lens: np.ndarray, kv_lens: np.ndarray, rows: np.ndarray):
        """Plans attention over copies of the chunks' blocks, with the queries' numbers."""
        manager = self.runner.manager
        table = manager.table.cpu.numpy()[rows]
        blocks = WidenedBlocks(table, kv_lens, manager.block_size, self.device)
        attend = self._plan_chunks(q_lens, kv_lens, blocks.table)
        return lambda q, k_cache, v_cache, out: attend(
            q, blocks.widen(k_cache, q.dtype), blocks.widen(v_cache, q.dtype), out=out
        )

    def _plan_chunks(self, q_lens: np.ndarray, kv_lens: np.ndarray, table: Tensor) -> Callable:
        kernel = chunk_kernel(self.runner)
        starts = cumulative_lengths(q_lens.tolist())
        # The lengths stay on the host: `gather` reads them there.
        metadata = BatchMetadata(starts, torch.tensor(kv_lens).int(), table, self.slots)
        if kernel is None or (is_hopper(self.device) and is_one_long_prompt(metadata)):
            return _into(gather(metadata))
        number, shape = kernel
        num_kv_heads = self.runner.manager.kv_cache.shape[4]
        prefill = PagedPrefill(
            number,
            self._send(starts.tolist(), torch.int32),
            self._send(kv_lens, torch.int32),
            num_q_heads=num_kv_heads * shape.queries_per_kv_head,
            num_kv_heads=num_kv_heads,
            head_size=shape.head_size,
            block_size=shape.block_size,
            dtype=shape.dtype,
            lengths=(q_lens, kv_lens),
        )
        return lambda q, k_cache, v_cache, out: prefill(q, k_cache, v_cache, table, out=out)

    def attend(self, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        """q: (num_tokens, num_q_heads, head_size). Returns its shape."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        self.attend_into(q, out)(k_cache, v_cache)
        return out

    def attend_into(self, q: Tensor, out: Tensor) -> Callable[[Tensor, Tensor], None]:
        """Returns the attention of queries that are in the same place in each layer.

        q: as for `attend`. out: where the result goes, likewise.
        """
        n, attentions = self.num_single, []
        if n:
            single = partial(self.runner.attend_single, block_table=self.single_table)
            attentions.append(partial(single, q[:n], out=out[:n]))
        if self.attend_chunks is not None:
            attentions.append(partial(self.attend_chunks, q[n:], out=out[n:]))

        def attend(k_cache: Tensor, v_cache: Tensor) -> None:
            for each in attentions:
                each(k_cache, v_cache)

        return attend


def tokens_of(scheduled, order: list[int]) -> list[int]:
    """The tokens that a step computes. Those that only the device knows are negative."""
    tokens: list[int] = []
    for seq in order:
        request, num_tokens = scheduled[seq]
        start = request.num_computed
        tokens += request.tokens[start : start + num_tokens]
    return tokens


def chunk_kernel(runner) -> tuple[int, Shape] | None:
    """The best rung of the prefill ladder, and what it is compiled for.

    None if there is none for the model's shapes that runs on this machine's GPU.
    """
    kv_cache = runner.manager.kv_cache
    *_, block_size, num_kv_heads, head_size = kv_cache.shape
    group = runner.model.config.num_attention_heads // num_kv_heads
    most = shared_bytes(runner.device)
    shape = Shape(runner.dtype, head_size, group, block_size, shared_bytes=most)
    target = "gpu" if runner.device.type == "cuda" else "fast"
    try:
        return best_prefill_rung(shape, target), shape
    except (TypeError, ValueError):
        return None


def _into(attend: Attend) -> Callable:
    """Makes an attention write into `out` instead of returning a new tensor."""
    return lambda q, k_cache, v_cache, out: out.copy_(attend(q, k_cache, v_cache))
