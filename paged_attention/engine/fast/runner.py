"""Runs the model over a step as lesson 08's runner does, and keeps the GPU busy."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from paged_attention.engine.attention import PagedStep, plugged_in
from paged_attention.engine.fast.decode import decode_attention
from paged_attention.engine.fast.few_rows import FewRows
from paged_attention.engine.fast.graph import GraphError, StepGraph, capture, launch
from paged_attention.engine.fast.graph_sizes import smallest_that_fits
from paged_attention.engine.fast.layers import FusedModel, UnfusedModelError
from paged_attention.engine.fast.mixed import MixedStep, chunk_kernel
from paged_attention.engine.fast.parts import FastParts
from paged_attention.engine.fast.pieces import Pieces
from paged_attention.engine.fast.reserve_blocks import append_tokens
from paged_attention.engine.fast.sampler import draw_where_wanted, likeliest_tokens
from paged_attention.engine.fast.state import SentTable, StepState
from paged_attention.engine.forks import logits_of_each
from paged_attention.engine.request import Request
from paged_attention.gpu_needs import COPIES, EARLY, Need, lack_of
from paged_attention.pool.kv_cache import Sequence
from paged_attention.prefill.rungs import prefill_library
from paged_attention.transfer import Arriving, send


class FastRunner:
    """A model and its paged cache, with parts that can be left out.

    runner: the engine's own, of lesson 08, which this one replaces.
    sizes: the batch sizes of the recorded decode steps.
    piece_sizes: the numbers of tokens of the recorded pieces of other steps.
    `reasons`: for each part that could not be had, why. The others are in.
    `graphs`: the recorded steps, by batch size.
    `pieces`: the recorded pieces; None if that part is out.
    `graph_bytes`: the GPU's memory that they take.
    `on_tokens`: where the device samples, called with a step's requests, its logits and its
        tokens, both still on the device. None calls nothing.
    """

    on_tokens: Callable[[list[tuple[Request, int]], Tensor, Tensor], None] | None = None

    def __init__(self, runner, parts: FastParts, sizes: list[int], piece_sizes: list[int]):
        model, manager = runner.model, runner.manager
        self.model, self.manager, self.parts = model, manager, parts
        self.dtype = model.dtype  # model.to() may change the model's
        self.layer_forward = partial(_forward_with_padding, forward=runner.forward)
        self.device, self.reasons = manager.kv_cache.device, {}
        target = "gpu" if self.device.type == "cuda" else "fast"
        max_num_seqs, width = manager.table.cpu.shape
        manager.table = SentTable(max_num_seqs, width, self.device)
        manager.block_table = manager.table.on_device
        # A proxy: a circle of references would keep the pool of an engine that is dropped.
        manager.append_tokens = partial(append_tokens, weakref.proxy(manager))
        self.state = StepState(manager.block_table, manager.block_size, target)
        heads = model.config.num_attention_heads
        early = parts.early and self._card_has("early", EARLY) and self.device.type == "cuda"
        self.decode, reason = decode_attention(
            manager, heads, model.dtype, target, parts.plan, early
        )
        if reason:
            self.reasons["plan"] = reason
        if (kernel := chunk_kernel(self)) is not None:
            prefill_library(*kernel, target)  # compiled now, not in a step
        self.fused = self._fuse(target, early) if parts.layers else None
        # One tensor for all recorded steps, since each would keep its own.
        of_all = max_num_seqs, model.config.vocab_size
        self.logits = torch.empty(of_all, dtype=model.dtype, device=self.device)
        # By row: the sequence whose next token `state` has, and how many are in the cache.
        self.held: dict[int, tuple[Sequence, int]] = {}
        # The rows of the last decode step, and its size with padding: `state` has them.
        self.batch: tuple[list[int], int] | None = None
        self.graphs: dict[int, StepGraph] = {}
        self.pieces: Pieces | None = None
        self.graph_bytes = 0
        if parts.graphs:
            if parts.pieces and self.fused is not None and piece_sizes:
                most = max(piece_sizes)
                tokens = self.state.last_tokens
                self.pieces = Pieces(self.fused, tokens, most, max_num_seqs)
            self._capture(sizes, piece_sizes)

    def _card_has(self, part: str, need: Need) -> bool:
        """Whether the GPU has what a part needs. If not, notes the reason."""
        if reason := lack_of(need, self.device):
            self.reasons[part] = reason
        return not reason

    def _fuse(self, target: str, early: bool) -> FusedModel | None:
        longest, few_rows = self.manager.max_blocks_per_seq * self.manager.block_size, None
        if self.parts.few_rows and self._card_has("few_rows", COPIES):
            few_rows = FewRows(target, self.device, early)
        try:
            return FusedModel(
                self.model, self.manager.kv_cache, longest, target, few_rows, early
            )
        except UnfusedModelError as error:
            self.reasons["layers"] = str(error)
            return None

    @torch.inference_mode()
    def _capture(self, sizes: list[int], piece_sizes: list[int]) -> None:
        """Records decode steps, and pieces of the others. All share one memory."""
        on_gpu = self.device.type == "cuda"
        pool = torch.cuda.graph_pool_handle() if on_gpu else None

        def record(size: int) -> None:
            self.graphs[size] = capture(partial(self._decode, size), self.device, pool)

        self._record("graphs", sizes, record)
        if self.pieces is not None:
            self._record("pieces", piece_sizes, partial(self.pieces.capture, pool=pool))
        if on_gpu:  # what PyTorch has reserved says less: a capture gives back what is unused
            self.graph_bytes = sum(
                segment["total_size"]
                for segment in torch.cuda.memory_snapshot()
                if segment["segment_pool_id"] == pool
            )

    def _record(self, part: str, sizes: list[int], record: Callable[[int], None]) -> None:
        """Records each size, the largest first, which has the memory for all."""
        try:
            for size in sorted(sizes, reverse=True):
                record(size)
        except (GraphError, torch.OutOfMemoryError) as error:
            self.reasons[part] = str(error).splitlines()[0]

    @torch.inference_mode()
    def run(self, scheduled: list[tuple[Request, int]]) -> Tensor | Arriving:
        """Runs the model over a step.

        Returns the logits after each request's last token of the step, (len(scheduled),
            vocab_size). Where the device samples, returns the tokens, int64
            (len(scheduled),); where the host is ahead, these are still on their way.
        """
        self.manager.table.send()
        sequences = [self.manager.get(request.id) for request, _ in scheduled]
        rows = [sequence.row for sequence in sequences]
        lengths = [sequence.length for sequence in sequences]
        run = self._run_decode if self._decodes(scheduled, sequences) else self._run_mixed
        for row in rows:
            self.held.pop(row, None)  # a step that fails may have moved the state on
        logits, tokens = run(scheduled, rows, lengths)
        result = logits
        if tokens is not None:
            params = [request.params for request, _ in scheduled]
            drawn = self._draw(tokens, logits, params, rows, lengths)
            arriving = Arriving(drawn)
            if self.on_tokens is not None:
                self.on_tokens(scheduled, logits, drawn)
            result = arriving if self.parts.ahead else arriving.wait()
        for sequence, (request, _) in zip(sequences, scheduled):
            if sequence.length == len(request.tokens):  # else the next token is the prompt's
                self.held[sequence.row] = sequence, sequence.length
        return result

    def _draw(self, tokens, logits, params, rows, lengths) -> Tensor:
        """Replaces the likeliest tokens where others are wanted."""
        drawn = draw_where_wanted(tokens, logits, params, lengths)
        if drawn is not tokens:
            self.state.choose(send(rows, torch.int64, self.device), drawn)
        return drawn

    def _decodes(self, scheduled, sequences: list[Sequence]) -> bool:
        """Whether each request computes one token, and the device has its state."""

        def is_held(sequence: Sequence, num_computed: int) -> bool:
            held, length = self.held.get(sequence.row, (None, 0))
            return held is sequence and length == num_computed

        return all(
            num_tokens == 1 and is_held(sequence, request.num_computed)
            for sequence, (request, num_tokens) in zip(sequences, scheduled)
        )

    def _run_decode(self, scheduled, rows: list[int], lengths: list[int]) -> tuple:
        num_seqs = len(scheduled)
        size = smallest_that_fits(num_seqs, self.graphs)
        tokens = [request.tokens[request.num_computed] for request, _ in scheduled]
        if (rows, size) != self.batch:
            self.batch = None  # if sending fails, nobody knows what is there
            self.state.set_rows(rows, size)
            self.batch = rows, size
        if not self.parts.state:
            self.state.fill(rows, tokens, lengths, size)
        elif not self.parts.sampling:
            places = send(rows, torch.int64, self.device)
            self.state.choose(places, send(tokens, torch.int64, self.device))
        graph = self.graphs.get(size)
        results = graph.replay() if graph else self._decode(size)
        return tuple(rows if rows is None else rows[:num_seqs] for rows in results)

    def _decode(self, size: int) -> tuple[Tensor, Tensor | None]:
        """A decode step of the first `size` places of the state. A graph records this.

        Returns the logits, and the likeliest tokens if the device samples.
        """
        state = self.state
        if self.parts.state:
            state.advance(size)
        self.plan(state.context_lens[:size])
        attend = partial(self.attend_single, block_table=state.block_table[:size])
        places = state.tokens[:size], state.positions[:size], state.slots[:size]
        logits = self.forward(*places, attend, out=self.logits[:size])
        return self._choose(state.rows[:size], logits)

    def _choose(self, rows: Tensor, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        if not self.parts.sampling:
            return logits, None
        tokens = likeliest_tokens(logits)
        self.state.choose(rows, tokens)
        return logits, tokens

    def plan(self, context_lens: Tensor) -> None:
        """Plans the attention of single new tokens, once for all layers of a step."""
        launch(self.decode.plan, context_lens)

    def attend_single(self, q, k_cache, v_cache, block_table, out=None) -> Tensor:
        """Attention of single new tokens, by the last plan."""
        if out is None:
            out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        launch(self.decode, q, k_cache, v_cache, block_table, out=out)
        return out

    def _run_mixed(self, scheduled, rows: list[int], lengths: list[int]) -> tuple:
        computing = [place for place, (_, num_tokens) in enumerate(scheduled) if num_tokens]
        batch, its_rows, its_lengths = (
            [each[place] for place in computing] for each in (scheduled, rows, lengths)
        )
        step = MixedStep(batch, its_rows, its_lengths, self)
        self.state.remember(rows, lengths)
        places, last = (step.tokens, step.positions, step.slots), step.last
        if len(computing) < len(scheduled):
            last = last[send(logits_of_each(scheduled), torch.int64, self.device)]
        if self.pieces is not None and step.size is not None:
            logits = self.pieces.run(step.size, step.num_tokens, step.attend_into, last)
        else:
            logits = self.forward(*places, step.attend, last)
        return self._choose(send(rows, torch.int64, self.device), logits)

    def forward(self, tokens, positions, slots, attend, last=None, out=None) -> Tensor:
        """Runs the model, with fused layers if it has them. See FusedModel."""
        if self.fused is not None:
            return self.fused(tokens, positions, slots, attend, last, out)
        attention = self.model.config._attn_implementation
        try:
            with plugged_in(self.model, self.layer_forward):
                logits = self.model(
                    input_ids=tokens[None],
                    position_ids=positions[None],
                    logits_to_keep=0 if last is None else last,
                    use_cache=False,
                    paged=PagedStep(self.manager.kv_cache, slots, attend),
                ).logits[0]
        except BaseException:
            # Ctrl-C may have come while the plug was being removed.
            self.model.config._attn_implementation = attention
            raise
        return logits if out is None else out.copy_(logits)


def _forward_with_padding(
    module, query, key, value, attention_mask=None, *, paged, forward, **others
):
    """Calls lesson 08's attention, which must write each key and value somewhere.

    Padding writes what the first sequence writes, into the same slot.
    """
    real = paged.slot_mapping >= 0
    slots = paged.slot_mapping.where(real, paged.slot_mapping[:1].clamp(min=0))
    key, value = (heads.where(real[:, None], heads[:, :, :1]) for heads in (key, value))
    return forward(module, query, key, value, paged=replace(paged, slot_mapping=slots))
