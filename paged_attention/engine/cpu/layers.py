"""A model's layers on a CPU: weights of 8, 16 or 32 bits, and float32 between them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, silu

from paged_attention.attention.fused import Attend
from paged_attention.engine.attention import PagedStep
from paged_attention.engine.cpu.library import NUMBERS, bits_of, cpu_library
from paged_attention.engine.cpu.parts import CpuParts
from paged_attention.engine.fast.layers import FusedModel, UnfusedModelError

MOST_ROWS = 4  # of our product; with more rows, PyTorch's is faster


@dataclass(frozen=True)
class NarrowWeight:
    """A weight in 8 bits: numbers * scales[:, None].

    numbers: int8 (num_features, size), from -127 to 127.
    scales: float32 (num_features,).
    """

    numbers: Tensor
    scales: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> "NarrowWeight":
        """Rounds each row to 127 steps on either side of 0."""
        wide = weight.float()
        scales = wide.abs().amax(dim=1).clamp(min=1e-30) / 127
        return cls((wide / scales[:, None]).round().to(torch.int8), scales)


class CpuModel(FusedModel):
    """A dense Qwen3 or Llama model of transformers, with fused layers for a CPU.

    forward: writes keys and values and attends, like `paged_attention_forward`; None does both
        in functions of our own.
    Raises UnfusedModelError, which names what is not fused.
    """

    def __init__(
        self, model, kv_cache: Tensor, num_positions: int, parts: CpuParts, forward=None
    ):
        if model.dtype not in NUMBERS:
            raise UnfusedModelError(f"the model has numbers of {model.dtype}")
        super().__init__(model, kv_cache, num_positions, "cpu")
        self.forward = forward
        self.modules = {
            own: each.self_attn for own, each in zip(self.layers, model.model.layers)
        }
        self.most_rows = MOST_ROWS if parts.few_rows else 0
        self.last_norm = self.last_norm.float()
        for layer in self.layers:
            for name in ("norm", "mlp_norm", "q_norm", "k_norm"):
                weight = getattr(layer, name)
                setattr(layer, name, None if weight is None else weight.float())
            if parts.narrow_weights:
                for name in ("w_qkv", "w_out", "w_gate_up", "w_down"):
                    setattr(layer, name, NarrowWeight.of(getattr(layer, name)))
        if parts.narrow_weights:
            self.head: Any = NarrowWeight.of(self.head)

    def build_kernels(self, target: str):
        return cpu_library()

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        slots: Tensor,
        attend: Attend,
        last: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Runs the model, as FusedModel does. Returns float32 logits, and never `out`."""
        residual, x = embedding(tokens, self.embedding).float(), None
        for layer, cache in zip(self.layers, self.kv_cache, strict=True):
            x = self.add_norm(residual, x, layer.norm)
            x = self.attention(x, layer, positions, slots, attend, cache)
            x = self.product(x, layer.w_out, layer.b_out)
            x = self.add_norm(residual, x, layer.mlp_norm)
            x = self.gate(self.product(x, layer.w_gate_up, layer.b_gate_up))
            x = self.product(x, layer.w_down, layer.b_down)
        x = self.add_norm(residual, x, self.last_norm)
        return self.product(x if last is None else x[last], self.head)

    def product(
        self,
        x: Tensor,
        weight: Tensor | NarrowWeight,
        bias: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """x: float32 (num_tokens, size). Returns float32 (num_tokens, num_features), and never
        `out`.
        """
        if isinstance(weight, NarrowWeight):
            numbers, scales = weight.numbers, weight.scales
            pieces = [self.own_product(rows, numbers, scales) for rows in x.split(MOST_ROWS)]
            y = torch.cat(pieces)
        elif len(x) <= self.most_rows:
            y = self.own_product(x, weight)
        else:
            return linear(x.to(weight.dtype), weight, bias).float()
        return y if bias is None else y.add_(bias)

    def own_product(self, x: Tensor, weight: Tensor, scales: Tensor | None = None) -> Tensor:
        """Our product of at most MOST_ROWS rows."""
        out = torch.empty(len(x), len(weight))
        sizes = len(x), *weight.shape, bits_of(weight)
        self.kernels("product", out, x.contiguous(), weight, scales, *sizes)
        return out

    def add_norm(self, residual: Tensor, x: Tensor | None, weight: Tensor) -> Tensor:
        out = torch.empty_like(residual)
        self.kernels("add_norms", out, residual, x, weight, *residual.shape, self.epsilon)
        return out

    def project(
        self, x: Tensor, layer, positions: Tensor, slots: Tensor, k_cache, v_cache
    ) -> Tensor:
        qkv = self.product(x, layer.w_qkv, layer.b_qkv)
        self.kernels(
            "rotate",
            *(qkv, k_cache, v_cache, layer.q_norm, layer.k_norm, self.turns),
            *(positions, slots, len(x), self.num_q_heads, self.num_kv_heads, self.head_size),
            *(self.epsilon, bits_of(k_cache)),
        )
        return qkv.view(len(x), -1, self.head_size)[:, : self.num_q_heads]

    def attention(
        self, x: Tensor, layer, positions: Tensor, slots: Tensor, attend: Attend, cache: Tensor
    ) -> Tensor:
        """Returns (num_tokens, num_q_heads * head_size), before the product with w_out."""
        if self.forward is None:
            return attend(self.project(x, layer, positions, slots, *cache), *cache).flatten(1)
        # as transformers gives them: (1, heads, num_tokens, head_size), of the pool's numbers
        fresh = torch.empty(2, len(x), self.num_kv_heads, self.head_size)
        q = self.project(x, layer, positions, torch.arange(len(x)), *fresh)
        heads = (each.to(cache.dtype).transpose(0, 1)[None] for each in (q, *fresh))
        step = PagedStep(self.kv_cache, slots, attend)
        return self.forward(self.modules[layer], *heads, paged=step)[0][0].flatten(1).float()

    def gate(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=1)
        return silu(gate).mul_(up)
