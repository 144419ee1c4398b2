"""From a row of logits to a token."""

import torch
from torch import Tensor

from paged_attention.engine.request import SamplingParams


def sample(logits: Tensor, params: SamplingParams, generator: torch.Generator) -> int:
    """Chooses the next token.

    Temperature 0 takes the likeliest token and draws nothing. Above 0, a token is drawn:

    1. The logits are divided by the temperature.
    2. Only the top_k likeliest tokens stay. If top_k is None or larger than the vocabulary,
       all stay.
    3. The probabilities of these tokens add up to 1 again.
    4. Of these, only the likeliest stay: as few as reach top_p together.
    5. One of those is drawn.

    logits: (vocab_size,), not changed.
    generator: the request's own; every draw comes from it.
    """
    # BEGIN SOLUTION 8.7
    if params.temperature == 0:
        return int(logits.argmax())
    # on the CPU, as the generator is
    likeliest, order = (logits.double().cpu() / params.temperature).sort(descending=True)
    if params.top_k is not None:
        likeliest, order = likeliest[: params.top_k], order[: params.top_k]
    p = torch.softmax(likeliest, dim=-1)
    # A token goes if those before it reach top_p already.
    p = p.masked_fill(p.cumsum(-1) - p >= params.top_p, 0.0)
    return int(order[torch.multinomial(p, 1, generator=generator)])
    # END SOLUTION
