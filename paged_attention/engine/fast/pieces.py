"""The work of a step between its attentions, recorded.

A step with prompts has other lengths each time, so its attention cannot be recorded. All else
depends on the number of tokens only. Padding fills that up to one that was recorded.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from paged_attention.engine.fast.graph import StepGraph, capture
from paged_attention.engine.fast.layers import FusedModel
from paged_attention.engine.fast.state import PADDING
from paged_attention.transfer import send_into

NUM_INPUTS = 4  # of a token: itself, its position, its slot, its sequence's row


class Pieces:
    """A model in pieces: before the first attention, between each two, and after the last.

    The pieces hand each other what they compute in tensors that stay where they are. All sizes
    use the first rows of these.

    fused: the model.
    last_tokens: int64, by row of the block table, where a token that only the device knows is.
    most_tokens: the largest size.
    most_last: the most tokens of a step with logits.
    `graphs`: by size, which is a number of tokens, the pieces in their order.
    """

    def __init__(
        self, fused: FusedModel, last_tokens: Tensor, most_tokens: int, most_last: int
    ):
        self.fused, self.last_tokens = fused, last_tokens
        self.caches = [tuple(cache) for cache in fused.kv_cache]
        weights = fused.embedding
        rows = partial(torch.zeros, dtype=weights.dtype, device=weights.device)
        self.inputs = torch.zeros(
            NUM_INPUTS * most_tokens + most_last, dtype=torch.int64, device=weights.device
        )
        self.residual = rows(most_tokens, weights.shape[1])
        self.qkv = rows(most_tokens, len(fused.layers[0].w_qkv))
        self.attended = rows(most_tokens, fused.num_q_heads, fused.head_size)
        self.graphs: dict[int, list[StepGraph]] = {}

    def capture(self, size: int, pool) -> None:
        """Records the pieces for a number of tokens. pool and errors: as for `capture`."""
        _, _, slots, _ = self._places(size).zero_()
        slots.fill_(PADDING)  # a recording may run the piece
        last = len(self.fused.layers)
        self.graphs[size] = [
            # The shapes of those between two attentions are the same.
            capture(
                partial(self._piece, index, size),
                self.inputs.device,
                pool,
                warm_up=index in (0, 1, last),
            )
            for index in range(last + 1)
        ]

    def _places(self, size: int) -> Tensor:
        return self.inputs[: NUM_INPUTS * size].view(NUM_INPUTS, size)

    def _piece(self, index: int, size: int) -> None:
        """The work between attention index - 1 and attention index."""
        fused, residual = self.fused, self.residual[:size]
        tokens, positions, slots, rows = self._places(size)
        if index == 0:
            x, tokens = None, tokens.where(tokens >= 0, self.last_tokens[rows])
            torch.index_select(fused.embedding, 0, tokens, out=residual)
        else:
            layer = fused.layers[index - 1]
            x = fused.after_attention(self.attended[:size], residual, layer)
        if index == len(fused.layers):
            residual.copy_(fused.add_norm(residual, x, fused.last_norm))
            return
        layer = fused.layers[index]
        x = fused.add_norm(residual, x, layer.norm)
        qkv = fused.product(x, layer.w_qkv, layer.b_qkv, out=self.qkv[:size])
        fused.rotate_and_write(qkv, layer, positions, slots, *self.caches[index])

    def send(self, numbers: np.ndarray, last: np.ndarray, size: int) -> tuple[Tensor, ...]:
        """Sends what a step is given to where the pieces of this size read it.

        numbers: (NUM_INPUTS, num_tokens), of size tokens at most.
        last: the places of the tokens with logits.
        Returns the tokens, positions, slots and `last` on the device.
        """
        num_tokens = numbers.shape[1]
        padded = np.zeros((NUM_INPUTS, size), np.int64)
        padded[2] = PADDING
        padded[:, :num_tokens] = numbers
        both = np.concatenate([padded.ravel(), last])
        send_into(self.inputs[: len(both)], both)
        tokens, positions, slots, _ = self._places(size)[:, :num_tokens]
        return tokens, positions, slots, self.inputs[NUM_INPUTS * size : len(both)]

    def run(self, size: int, num_tokens: int, attend_into: Callable, last: Tensor) -> Tensor:
        """Runs the model on what was sent last.

        attend_into: attend_into(q, out) gives the step's attention of (k_cache, v_cache).
        Returns the logits of the tokens `last`, (len(last), vocab_size).
        """
        fused, pieces = self.fused, self.graphs[size]
        heads = self.qkv[:num_tokens].view(num_tokens, -1, fused.head_size)
        attend = attend_into(heads[:, : fused.num_q_heads], self.attended[:num_tokens])
        for piece, cache in zip(pieces, self.caches):
            piece.replay()
            attend(*cache)
        pieces[-1].replay()
        return fused.logits(self.residual[last])
