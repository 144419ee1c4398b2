"""From a row of logits to a token."""

import torch
from torch import Tensor

from paged_attention.engine.draws import draw_number
from paged_attention.engine.request import SamplingParams


def sample(logits: Tensor, params: SamplingParams, position: int) -> int:
    """Chooses the next token.

    Temperature 0 takes the likeliest token and draws nothing. Above 0, a token is drawn:

    1. The logits are divided by the temperature.
    2. The tokens are sorted, the likeliest first. Of equal ones, the lowest token comes first.
    3. Only the first top_k tokens stay. If top_k is None or larger than the vocabulary, all
       stay.
    4. The probabilities of these tokens add up to 1 again.
    5. Of these, only the first stay: as few as reach top_p together.
    6. The random number is draw_number(params.seed, position), times the sum of what has
       stayed. The token is the first one at which the running sum reaches it.

    logits: (vocab_size,), not changed.
    position: the place of the token to choose in its sequence, from 0.
    """
    # BEGIN SOLUTION 8.7
    if params.temperature == 0:
        return int(logits.argmax())
    logits = logits.double() / params.temperature
    likeliest, order = logits.sort(descending=True, stable=True)
    if params.top_k is not None:
        likeliest, order = likeliest[: params.top_k], order[: params.top_k]
    p = torch.softmax(likeliest, dim=-1)
    # A token goes if those before it reach top_p already.
    # `p.cumsum(-1) - p` would round their sum once more: 0.75 - 0.25000000000000006 < 0.5.
    before = torch.cat([p.new_zeros(1), p.cumsum(-1)[:-1]])
    p = p.masked_fill(before >= params.top_p, 0.0)
    running = p.cumsum(-1)
    number = draw_number(params.seed, position) * running[-1]
    return int(order[(running < number).sum()])
    # END SOLUTION
