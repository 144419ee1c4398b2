"""The online softmax of lesson 03: attention over keys that arrive part by part."""

import torch
from torch import Tensor

NO_KEY = float("-inf")  # the maximum of a row that has seen no key, and the score of a masked one


def finite(m: Tensor) -> Tensor:
    """The maxima with 0 where no key was seen, so that exp(-inf - m) is 0 there and not exp(-inf + inf), a NaN."""
    return m.masked_fill(m == NO_KEY, 0.0)


def widen(x: Tensor) -> Tensor:
    """The numbers in float32 where they have fewer bits. Sums of many terms are kept in no less."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class SoftmaxState:
    """What is known of a softmax-weighted sum after some of its keys. Each row has a state of its own.

    `m` (...,): the largest score so far, NO_KEY before the first. `l` (...,): the sum of exp(score - m).
    `acc` (..., head_size): the sum of exp(score - m) * value. All three are float32, or float64 where the scores and values
    are. They are where the scores are, on the same device.
    Sources: for m and l Milakov and Gimelshein, arXiv:1805.02867, section 3; for acc FlashAttention, arXiv:2205.14135.
    """

    def __init__(self, *shape: int, head_size: int, dtype: torch.dtype = torch.float32):
        """The state before the first key, for rows of this shape. dtype: of the scores and values; m, l and acc are kept in
        it too, but in float32 where it has fewer bits."""
        # BEGIN SOLUTION 3.2
        dtype = torch.promote_types(dtype, torch.float32)
        self.m = torch.full(shape, NO_KEY, dtype=dtype)
        self.l = torch.zeros(shape, dtype=dtype)
        self.acc = torch.zeros(*shape, head_size, dtype=dtype)
        # END SOLUTION

    def update(self, scores: Tensor, values: Tensor) -> None:
        """Takes in more keys.

        scores: (..., num_keys), -inf where masked. They may have fewer bits than the sums.
        values: (..., num_keys, head_size). It broadcasts over the rows: a size of 1 stands for all rows along that
        dimension. Attention gives (heads, 1, num_keys, head_size), since the queries of a head share their values.
        """
        # BEGIN SOLUTION 3.2
        self.m, self.l, self.acc = (x.to(scores.device) for x in (self.m, self.l, self.acc))  # they begin on the CPU
        scores, values = scores.to(self.m.dtype), values.to(self.m.dtype)
        m = torch.maximum(self.m, scores.amax(-1))
        old = torch.exp(self.m - finite(m))
        p = torch.exp(scores - finite(m)[..., None])
        self.l = old * self.l + p.sum(-1)
        self.acc = old[..., None] * self.acc + (p[..., None, :] @ values).squeeze(-2)
        self.m = m
        # END SOLUTION

    def merge(self, other: "SoftmaxState") -> None:
        """Takes in all the keys that another state of the same rows has seen; `other` is not changed."""
        # BEGIN SOLUTION 3.3
        m = torch.maximum(self.m, other.m)
        mine, theirs = (torch.exp(state.m - finite(m)) for state in (self, other))
        self.l = mine * self.l + theirs * other.l
        self.acc = mine[..., None] * self.acc + theirs[..., None] * other.acc
        self.m = m
        # END SOLUTION

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        """(o, m, l): o (..., head_size) is the attention output, 0 in rows that have seen no key.

        Changes nothing: more keys may follow.
        """
        # BEGIN SOLUTION 3.2
        o = self.acc / self.l.masked_fill(self.l == 0, 1.0)[..., None]
        return o, self.m, self.l
        # END SOLUTION
