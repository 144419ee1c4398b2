"""The fused layers: the logits of transformers, from weights that are kept once."""

import copy
import functools

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from dense_attention import dense_attention
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.cpu.layers import CpuModel
from paged_attention.engine.cpu.parts import CpuParts
from paged_attention.engine.fast.layers import (
    FusedModel,
    UnfusedModelError,
    check_fused,
    merge,
)
from small_sizes import BIASES, SIZES

TOKENS = torch.tensor([8, 11, 3, 40, 9])
POSITIONS = torch.arange(5)


pytestmark = pytest.mark.usefixtures("one_thread")


@functools.cache
def llama():
    """A model that has biases everywhere, and a head that is not its embedding."""
    torch.manual_seed(3)
    others = dict(hidden_size=128, head_dim=32, tie_word_embeddings=False)
    own = LlamaForCausalLM(LlamaConfig(**SIZES | BIASES | others)).eval()
    for name, parameter in own.named_parameters():
        if name.endswith(("bias", "norm.weight")):
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return own


def pool_of(own):
    config = own.config
    return torch.zeros(config.num_hidden_layers, 2, 3, 4, config.num_key_value_heads, 32)


def attend(q, k_cache, v_cache):
    """Attention of one sequence, which has the slots from 2 on."""
    k, v = (cache.flatten(0, 1)[2 : 2 + len(q)] for cache in (k_cache, v_cache))
    return dense_attention(q, k, v).to(q.dtype)


def for_a_gpu(own):
    return FusedModel(own, pool_of(own), 12, "fast")


def for_a_cpu(own):
    return CpuModel(own, pool_of(own), 12, CpuParts())


@torch.inference_mode()
def logits_of(own, make=for_a_gpu, **others):
    return make(own)(TOKENS, POSITIONS, POSITIONS + 2, attend, **others)


@pytest.mark.parametrize("make", [for_a_gpu, for_a_cpu])
@pytest.mark.parametrize("build", [load_model, llama])
def test_the_logits_are_those_of_transformers(build, make):
    own = build()
    with torch.inference_mode():
        expected = own(input_ids=TOKENS[None], use_cache=False).logits[0]
    close = functools.partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)
    close(logits_of(own, make), expected)
    close(logits_of(own, make, last=torch.tensor([4, 1])), expected[[4, 1]])
    if make is for_a_gpu:
        out = torch.zeros_like(expected)
        assert logits_of(own, out=out) is out
        close(out, expected)


def test_a_product_that_is_cut_is_summed_over_the_ranks():
    class Ranks:
        size = 2

        def sum(self, x):
            x += 100  # what the other ranks have

    own = load_model()
    own.ranks = Ranks()
    fused = for_a_gpu(own)
    added = fused.sum_over_ranks(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.25]))
    assert added.tolist() == [101.5, 102.25]  # each rank has all of the bias


# ---- Which models are fused


PROBLEMS = [
    ({"model_type": "gemma"}, "float32", "of the type gemma; only qwen3 and llama are fused"),
    ({"hidden_act": "gelu"}, "float32", "has the activation gelu; only silu is fused"),
    ({}, "float64", "has numbers of torch.float64"),
    ({"head_dim": 31}, "float32", "has heads of 31; only even sizes up to 256 are fused"),
    ({"head_dim": 258}, "float32", "has heads of 258; only even sizes up to 256 are fused"),
    ({"hidden_size": 66}, "float32", "hidden_size = 66, which is not a multiple of 4"),
    ({"hidden_size": 68}, "bfloat16", "hidden_size = 68, which is not a multiple of 8"),
    ({"intermediate_size": 132}, "float16", "intermediate_size = 132, which is not .* of 8"),
    # at the limits
    ({"head_dim": 256, "hidden_size": 68}, "float32", None),
    ({"hidden_size": 72}, "bfloat16", None),
]


@pytest.mark.parametrize(("changes", "dtype", "problem"), PROBLEMS)
def test_a_model_that_is_not_fused_says_why(changes, dtype, problem):
    config = copy.deepcopy(llama().config)
    config.__dict__.update(changes)
    if problem is None:
        check_fused(config, getattr(torch, dtype))
        return
    with pytest.raises(UnfusedModelError, match=f"^the model .*{problem}$"):
        check_fused(config, getattr(torch, dtype))
    assert issubclass(UnfusedModelError, ValueError)


# ---- Weights in one tensor


def linears(*rows):
    return [torch.nn.Linear(3, number, bias=False) for number in rows]


def test_weights_that_only_look_merged_are_merged_anew():
    first, second = linears(2, 5)
    merge(first, second)
    (gap,) = linears(4)
    gap.weight.data = second.weight.data[1:]
    for modules in ([second, first], [first, gap], [first, *linears(5)]):
        expected = torch.cat([module.weight.detach().clone() for module in modules])
        assert torch.equal(merge(*modules)[0], expected)
