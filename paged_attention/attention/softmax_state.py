"""The online softmax of lesson 03: attention over keys that arrive in parts."""

import torch
from torch import Tensor

NO_KEY = float("-inf")  # the maximum of a row without keys, and the score of a masked key


def finite(m: Tensor) -> Tensor:
    """Replaces the maximum of each row that has seen no key with 0.

    There, exp(-inf - m) is then 0. Otherwise it would be exp(-inf + inf), which is NaN.
    """
    return m.masked_fill(m == NO_KEY, 0.0)


def widen(x: Tensor) -> Tensor:
    """Converts numbers of less than 32 bits to float32. Sums of many terms need that."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class SoftmaxState:
    """The state of a softmax-weighted sum after some of its keys. Each row has its own state.

    `m` (...,): the largest score so far, NO_KEY before the first.
    `l` (...,): the sum of exp(score - m).
    `acc` (..., head_size): the sum of exp(score - m) * value.

    All three are float32, or float64 where the scores and values are. They are on the scores'
    device.
    Sources: for m and l Milakov and Gimelshein, arXiv:1805.02867, section 3; for acc
    FlashAttention, arXiv:2205.14135.
    """

    def __init__(self, *shape: int, head_size: int, dtype: torch.dtype = torch.float32):
        """Makes the state before the first key.

        shape: the shape of the rows.
        dtype: of the scores and values. m, l and acc have it too, or float32 where it has
            fewer bits.
        """
        # BEGIN SOLUTION 3.2
        dtype = torch.promote_types(dtype, torch.float32)
        self.m = torch.full(shape, NO_KEY, dtype=dtype)
        self.l = torch.zeros(shape, dtype=dtype)
        self.acc = torch.zeros(*shape, head_size, dtype=dtype)
        # END SOLUTION

    def update(self, scores: Tensor, values: Tensor) -> None:
        """Takes in more keys.

        scores: (..., num_keys), -inf where masked. They may have fewer bits than the sums.
        values: (..., num_keys, head_size). They broadcast over the rows: with a size of 1, all
            rows along that dimension share the values. In attention the shape is
            (heads, 1, num_keys, head_size), because the queries of a head share their values.
        """
        # BEGIN SOLUTION 3.2
        # they begin on the CPU
        self.m, self.l, self.acc = (x.to(scores.device) for x in (self.m, self.l, self.acc))
        scores, values = scores.to(self.m.dtype), values.to(self.m.dtype)
        m = torch.maximum(self.m, scores.amax(-1))
        old = torch.exp(self.m - finite(m))
        p = torch.exp(scores - finite(m)[..., None])
        self.l = old * self.l + p.sum(-1)
        self.acc = old[..., None] * self.acc + (p[..., None, :] @ values).squeeze(-2)
        self.m = m
        # END SOLUTION

    def merge(self, other: "SoftmaxState") -> None:
        """Takes in all the keys that another state of the same rows has seen.

        `other` is not changed.
        """
        # BEGIN SOLUTION 3.3
        m = torch.maximum(self.m, other.m)
        mine, theirs = (torch.exp(state.m - finite(m)) for state in (self, other))
        self.l = mine * self.l + theirs * other.l
        self.acc = mine[..., None] * self.acc + theirs[..., None] * other.acc
        self.m = m
        # END SOLUTION

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns (o, m, l). It changes nothing, so more keys may follow.

        o: (..., head_size), the attention output; 0 in rows that have seen no key.
        """
        # BEGIN SOLUTION 3.2
        o = self.acc / self.l.masked_fill(self.l == 0, 1.0)[..., None]
        return o, self.m, self.l
        # END SOLUTION
