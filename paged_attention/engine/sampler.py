"""From a row of logits to a token."""

import torch
from torch import Tensor

from paged_attention.engine.request import SamplingParams


def sample(logits: Tensor, params: SamplingParams, generator: torch.Generator) -> int:
    """The next token. logits: (vocab_size,), not changed. generator: the request's own; every draw comes from it.

    Temperature 0 takes the likeliest token and draws nothing. Above, the logits are divided by it. Then only the top_k
    likeliest tokens stay. Of these, whose probabilities add up to 1 again, only the likeliest stay, as few as reach top_p
    together. One of those is drawn. top_k may be None, which keeps all, or larger than the vocabulary.
    """
    # BEGIN SOLUTION 8.7
    if params.temperature == 0:
        return int(logits.argmax())
    likeliest, order = (logits.double().cpu() / params.temperature).sort(descending=True)  # as the generator is
    if params.top_k is not None:
        likeliest, order = likeliest[: params.top_k], order[: params.top_k]
    p = torch.softmax(likeliest, dim=-1)
    p = p.masked_fill(p.cumsum(-1) - p >= params.top_p, 0.0)  # what stands before it reaches top_p already
    return int(order[torch.multinomial(p, 1, generator=generator)])
    # END SOLUTION
