"""The next tokens of a whole batch, on the device."""

import torch
from torch import Tensor

from paged_attention.engine.draws import as_int64, draw_all
from paged_attention.engine.request import SamplingParams
from paged_attention.transfer import send

NOT_FINITE = -1  # no token, because the logits were not finite


def sample_all(logits: Tensor, params: list[SamplingParams], positions: list[int]) -> Tensor:
    """Chooses a token for each row as `sample` of lesson 08 does.

    Nothing is read on the host.

    logits: (num_seqs, vocab_size), not changed.
    positions: of the tokens to choose, in their sequences.
    Returns int64 (num_seqs,), with NOT_FINITE for a row with a NaN or inf, or with nothing but
        -inf.
    """
    return draw_where_wanted(likeliest_tokens(logits), logits, params, positions)


def likeliest_tokens(logits: Tensor) -> Tensor:
    """The tokens at temperature 0, or NOT_FINITE. A graph can hold this."""
    highest, tokens = logits.max(-1)
    return tokens.where(highest.isfinite(), NOT_FINITE)


def draw_where_wanted(
    likeliest: Tensor, logits: Tensor, params: list[SamplingParams], positions: list[int]
) -> Tensor:
    """Replaces the likeliest tokens by drawn ones where the temperature is above 0."""
    drawing = [row for row, own in enumerate(params) if own.temperature > 0]
    if not drawing:
        return likeliest
    rows = send(drawing, torch.int64, logits.device)
    drawn = _draw(
        logits[rows], [params[row] for row in drawing], [positions[row] for row in drawing]
    )
    return likeliest.index_copy(0, rows, drawn.where(likeliest[rows] >= 0, NOT_FINITE))


def _draw(logits: Tensor, params: list[SamplingParams], positions: list[int]) -> Tensor:
    def column(numbers, dtype):
        return send(numbers, dtype, logits.device)

    vocab_size = logits.shape[1]
    seeds = column([as_int64(own.seed) for own in params], torch.int64)
    return draw_tokens(
        logits,
        column([own.temperature for own in params], torch.float64),
        column([min(own.top_k or vocab_size, vocab_size) for own in params], torch.int64),
        column([own.top_p for own in params], torch.float64),
        draw_all(seeds, column(positions, torch.int64)),
    )


def draw_tokens(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, numbers: Tensor
) -> Tensor:
    """Draws a token for each row as `sample` of lesson 08 does, for all rows at once.

    Nothing is read on the host. So every row goes through the same operations, whatever its
    parameters are.

    logits: (num_seqs, vocab_size), of any float dtype, not changed.
    temperature: float64 (num_seqs,), above 0.
    top_k: int64 (num_seqs,), 1 to vocab_size.
    top_p: float64 (num_seqs,), above 0 and at most 1.
    numbers: float64 (num_seqs,), each row's random number, in [0, 1).
    Returns int64 (num_seqs,). A row that is not finite gets some token from 0 to
        vocab_size - 1, which is never used.
    """
    # BEGIN SOLUTION 10.5
    scaled = logits.double() / temperature[:, None]
    likeliest, order = scaled.sort(dim=-1, descending=True, stable=True)
    place = torch.arange(logits.shape[1], device=logits.device)
    p = likeliest.masked_fill(place >= top_k[:, None], -torch.inf).softmax(-1)
    before = torch.nn.functional.pad(p.cumsum(-1)[:, :-1], (1, 0))
    p = p.masked_fill(before >= top_p[:, None], 0.0)
    running = p.cumsum(-1)
    chosen = (running < numbers[:, None] * running[:, -1:]).sum(-1, keepdim=True)
    return order.gather(1, chosen)[:, 0]
    # END SOLUTION
