"""A small language model of random numbers (lesson 05).

It is short enough to read, and it runs on the pool.
"""

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from paged_attention.attention.layer import AttentionLayer
from paged_attention.attention.metadata import attn_paged_torch, build_metadata
from paged_attention.pool.slots import write_kv


class TinyTransformer:
    """A model: an embedding, layers of attention and MLP, and the embedding again as head.

    The layers have residual connections.
    """

    def __init__(
        self,
        num_layers: int = 4,
        num_q_heads: int = 6,
        num_kv_heads: int = 2,
        head_size: int = 8,
        dim: int = 48,
        vocab_size: int = 100,
        seed: int = 0,
    ):
        generator = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(vocab_size, dim, generator=generator) / 50
        self.attentions = [
            AttentionLayer(dim, num_q_heads, num_kv_heads, head_size, index, seed=seed + index)
            for index in range(num_layers)
        ]
        for attention in self.attentions:
            attention.wq.mul_(3)  # sharper attention; otherwise all tokens would be much alike
        self.mlps = [
            (
                torch.randn(dim, 2 * dim, generator=generator) / dim**0.5,
                torch.randn(2 * dim, dim, generator=generator) / dim**0.5,
            )
            for _ in range(num_layers)
        ]

    def __call__(self, tokens: Tensor, attend, merge_heads) -> tuple[Tensor, list[Tensor]]:
        """Computes the logits of a row of tokens.

        tokens: int64 (num_tokens,).
        attend: attend(layer, q, k, v) gives attention's output (num_tokens, num_q_heads,
            head_size).
        merge_heads: makes that into (num_tokens, num_q_heads * head_size).
        Returns the logits (num_tokens, vocab_size), and the trace: each layer's output
            (num_tokens, dim).
        """
        x, trace = self.embedding[tokens], []
        for attention, (up, down) in zip(self.attentions, self.mlps, strict=True):
            o = attend(attention.index, *attention.project(rms_norm(x, x.shape[-1:])))
            x = x + merge_heads(o) @ attention.wo.T
            x = x + silu(rms_norm(x, x.shape[-1:]) @ up) @ down
            trace.append(x)
        return rms_norm(x, x.shape[-1:]) @ self.embedding.T, trace


def dense(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Computes attention over one whole sequence with PyTorch, without a pool."""
    # (1, heads, num_tokens, head_size)
    q, k, v = (heads.transpose(0, 1)[None] for heads in (q, k, v))
    o = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return o[0].transpose(0, 1)


def paged(manager, scheduled: list[tuple[int, int]]):
    """Returns a batch's attention through the pool.

    It writes the new keys and values, then reads what the metadata name.
    """
    metadata = build_metadata(manager, scheduled)

    def attend(layer, q, k, v):
        k_cache, v_cache = manager.kv_cache[layer]
        write_kv(k_cache, v_cache, metadata.slot_mapping, k, v)
        return attn_paged_torch(q, k_cache, v_cache, metadata)

    return attend


def merge_of_reference(o: Tensor) -> Tensor:
    """Merges the heads without the fault, for the reference."""
    return o.flatten(1)


def generate_dense(model: TinyTransformer, prompt: list[int], num_tokens: int) -> list[int]:
    """Generates greedily without a cache. This is the reference.

    It is slow, because every new token computes everything again.
    """
    tokens = list(prompt)
    for _ in range(num_tokens):
        logits, _ = model(torch.tensor(tokens), dense, merge_of_reference)
        tokens.append(int(logits[-1].argmax()))
    return tokens[len(prompt) :]


def generate_paged(
    model: TinyTransformer, prompt: list[int], num_tokens: int, manager, merge_heads
) -> list[int]:
    """Generates greedily through the pool: one prefill, then one token at a time."""
    manager.add_sequence(0, 0)
    tokens, new = [], list(prompt)
    for _ in range(num_tokens):
        manager.append_tokens([(0, len(new))])
        logits, _ = model(torch.tensor(new), paged(manager, [(0, len(new))]), merge_heads)
        tokens += (new := [int(logits[-1].argmax())])
    manager.free_sequence(0)
    return tokens


def merge_in_a_hurry(o: Tensor) -> Tensor:
    """From (num_tokens, num_heads, head_size) to (num_tokens, num_heads * head_size)."""
    return o.transpose(0, 1).contiguous().view(len(o), -1)
