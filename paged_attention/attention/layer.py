"""The projections of one attention layer, as every lesson from 03 on uses them."""

import torch
from torch import Tensor, nn


class AttentionLayer(nn.Module):
    """The projections around attention: from hidden states to q, k and v, and back.

    There are no biases and no positions.

    `index`: the layer's place in the model. Its part of the pool is `manager.kv_cache[index]`.
    """

    def __init__(
        self,
        dim: int,
        num_q_heads: int,
        num_kv_heads: int,
        head_size: int,
        index: int = 0,
        seed: int = 0,
    ):
        super().__init__()
        if num_kv_heads < 1 or num_q_heads % num_kv_heads:
            raise ValueError(
                "num_q_heads must be a multiple of num_kv_heads, "
                f"not {num_q_heads} with {num_kv_heads}"
            )
        self.num_q_heads = num_q_heads
        self.num_kv_heads = num_kv_heads
        self.head_size = head_size
        self.index = index
        generator = torch.Generator().manual_seed(seed)
        self.wq, self.wk, self.wv = (
            nn.Parameter(
                torch.randn(heads * head_size, dim, generator=generator) / dim**0.5,
                requires_grad=False,
            )
            for heads in (num_q_heads, num_kv_heads, num_kv_heads)
        )
        self.wo = nn.Parameter(
            torch.randn(dim, num_q_heads * head_size, generator=generator)
            / (num_q_heads * head_size) ** 0.5,
            requires_grad=False,
        )

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Computes queries, keys and values.

        x: (..., dim).
        Returns q (..., num_q_heads, head_size) and k, v (..., num_kv_heads, head_size).
        """
        return tuple(
            (x @ w.T).unflatten(-1, (-1, self.head_size)) for w in (self.wq, self.wk, self.wv)
        )

    def output(self, o: Tensor) -> Tensor:
        """Projects attention's output back to hidden states.

        o: (..., num_q_heads, head_size).
        Returns (..., dim).
        """
        return o.flatten(-2) @ self.wo.T
