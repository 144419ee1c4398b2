"""The small random model of lesson 05: what it computes, by hand and in float64; the pool
changes nothing of it.
"""

import math

import pytest
import torch

from paged_attention.attention.tiny_transformer import (
    TinyTransformer,
    dense,
    generate_dense,
    generate_paged,
    merge_of_reference,
)
from paged_attention.pool.kv_cache import PagedAttentionManager


def normed(x):
    return x / (x.square().mean(-1, keepdim=True) + torch.finfo(torch.float32).eps).sqrt()


def by_hand(model, tokens):
    """The logits and each layer's output, token after token and head after head."""
    x, trace = model.embedding.double()[tokens], []
    for attention, (up, down) in zip(model.attentions, model.mlps, strict=True):
        q, k, v = (heads.double() for heads in attention.project(normed(x).float()))
        o = torch.zeros_like(q)
        for token in range(len(tokens)):
            for head in range(q.shape[1]):
                shared = head * k.shape[1] // q.shape[1]
                scores = k[: token + 1, shared] @ q[token, head] / math.sqrt(q.shape[2])
                o[token, head] = scores.softmax(0) @ v[: token + 1, shared]
        x = x + o.flatten(1) @ attention.wo.double().T
        hidden = normed(x) @ up.double()
        x = x + hidden * hidden.sigmoid() @ down.double()
        trace.append(x)
    return normed(x) @ model.embedding.double().T, trace


def test_the_model_computes_what_it_says():
    model = TinyTransformer(
        num_layers=3, num_q_heads=4, num_kv_heads=2, head_size=6, dim=10, vocab_size=17, seed=5
    )
    tokens = torch.tensor([3, 16, 0, 7, 7])
    logits, trace = model(tokens, dense, merge_of_reference)
    expected, expected_trace = by_hand(model, tokens)
    assert logits.shape == (5, 17) and len(trace) == 3
    torch.testing.assert_close(logits.double(), expected, rtol=1e-4, atol=1e-4)
    for layer, hand in zip(trace, expected_trace, strict=True):
        torch.testing.assert_close(layer.double(), hand, rtol=1e-4, atol=1e-4)


def test_the_seed_says_which_model_it_is():
    tokens = torch.arange(9)
    first, again, other = (
        TinyTransformer(seed=seed)(tokens, dense, merge_of_reference)[0] for seed in (1, 1, 2)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_the_pool_changes_no_token_and_is_empty_afterwards(block_size):
    model, prompt = TinyTransformer(num_layers=2, seed=364), [3, 14, 15, 92]
    manager = PagedAttentionManager(20, block_size, 2, 8, 1, 20, num_layers=2)
    for num_tokens in (1, 8):
        expected = generate_dense(model, prompt, num_tokens)
        assert len(expected) == num_tokens
        assert (
            generate_paged(model, prompt, num_tokens, manager, merge_of_reference) == expected
        )
        assert manager.block_manager.get_num_free_blocks() == 20 and not manager.sequences
