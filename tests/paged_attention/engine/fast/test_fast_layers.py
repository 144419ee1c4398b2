"""The fused layers: the logits of transformers, from weights that are kept once."""

import functools
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig, LlamaForCausalLM

from lessons_lib.inline import read_kernel
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.fast import layers
from paged_attention.engine.fast.layers import (
    KERNEL_FILES,
    FusedModel,
    UnfusedModelError,
    check_fused,
    local_of,
    merge,
    turns_of,
)
from paged_attention.rungs import FP8

META = torch.device("meta")
TOKENS = torch.tensor([8, 11, 3, 40, 9])
POSITIONS = torch.arange(5)


pytestmark = pytest.mark.usefixtures("one_thread")


@functools.cache
def qwen3():
    return load_model()


@functools.cache
def llama():
    """A model that has biases everywhere, and a head that is not its embedding."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=45,
        hidden_size=128,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=64,
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=False,
    )
    own = LlamaForCausalLM(config).eval()
    for name, parameter in own.named_parameters():
        if name.endswith(("bias", "norm.weight")):
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return own


def pool_of(own, dtype=torch.float32):
    config = own.config
    shape = (config.num_hidden_layers, 2, 3, 4, config.num_key_value_heads, 32)
    return torch.zeros(shape).to(dtype)


def attend(q, k_cache, v_cache):
    """Attention of one sequence, which has the slots from 2 on."""
    k, v = (cache.float().flatten(0, 1)[2 : 2 + len(q)] for cache in (k_cache, v_cache))
    q, k, v = (heads.transpose(0, 1)[None] for heads in (q, k, v))
    out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out[0].transpose(0, 1)


@torch.inference_mode()
def logits_of(own, kv_dtype=torch.float32, **others):
    fused = FusedModel(own, pool_of(own, kv_dtype), 12, "fast")
    return fused(TOKENS, POSITIONS, POSITIONS + 2, attend, **others)


@pytest.mark.parametrize("build", [qwen3, llama])
def test_the_logits_are_those_of_transformers(build):
    own = build()
    with torch.inference_mode():
        expected = own(input_ids=TOKENS[None], use_cache=False).logits[0]
    close = functools.partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)
    close(logits_of(own), expected)
    close(logits_of(own, last=torch.tensor([4, 1])), expected[[4, 1]])
    out = torch.zeros_like(expected)
    assert logits_of(own, out=out) is out
    close(out, expected)


def test_a_pool_of_8_bits_gets_numbers_of_8_bits():
    own = qwen3()
    caches = {}
    for dtype in (torch.float32, FP8):
        pool = caches[dtype] = pool_of(own, dtype)
        with torch.inference_mode():
            fused = FusedModel(own, pool, 12, "fast")
            fused(TOKENS, POSITIONS, POSITIONS + 2, lambda q, *_: torch.zeros_like(q))
    expected, found = caches[torch.float32], caches[FP8].float()
    assert ((found - expected).abs() <= expected.abs() / 16 + 2**-9).all()
    assert (found[:, :, 1] != 0).any()


def test_a_slot_of_minus_1_writes_nowhere():
    own = qwen3()
    pool = pool_of(own)
    with torch.inference_mode():
        fused = FusedModel(own, pool, 12, "fast")
        fused(TOKENS, POSITIONS, torch.full((5,), -1), lambda q, *_: q)
    assert (pool == 0).all()


def test_a_pool_of_another_number_of_layers_is_an_error():
    fused = FusedModel(qwen3(), pool_of(qwen3())[:3], 12, "fast")
    with pytest.raises(ValueError), torch.inference_mode():
        fused(TOKENS, POSITIONS, POSITIONS + 2, attend)


@pytest.mark.parametrize("given", [True, False])
def test_a_head_that_is_cut_is_joined_from_all_ranks(given):
    """Each rank has some of the columns."""

    def join(part, out):
        assert part.shape == (2, 3)
        joined.append(out)

    joined, own = [], object.__new__(FusedModel)
    own.layers, own.kv_cache, own.last_norm = [], [], None
    make = dict(dtype=torch.float16, device=META)
    own.embedding, own.vocab_size = torch.empty(9, 8, **make), 6
    own.head = torch.empty(3, 8, **make)  # this rank's half of the vocabulary
    own.add_norm = lambda residual, x, weight: residual
    own.ranks = SimpleNamespace(join=join)
    out = torch.empty(2, 6, **make) if given else None
    tokens = torch.zeros(2, dtype=torch.int64, device=META)
    logits = own(tokens, tokens, tokens, None, out=out)
    assert (logits.shape, logits.dtype, logits.device) == ((2, 6), torch.float16, META)
    assert joined == [logits] and (logits is out or not given)


def test_the_gated_numbers_are_like_what_they_are_made_of():
    own = object.__new__(FusedModel)
    own.dtype, own.launch = 1, lambda name, **arguments: None
    out = own.gate(torch.empty(3, 10, dtype=torch.float16, device=META))
    assert (out.shape, out.dtype, out.device) == ((3, 5), torch.float16, META)


def test_the_kernels_are_built_with_the_names_of_their_files(monkeypatch):
    seen = []
    monkeypatch.setattr(
        layers, "build_cuda", lambda *texts, **named: seen.append((texts, named))
    )
    layers.step_kernels.__wrapped__("gpu")
    texts = tuple(read_kernel(file) for file in KERNEL_FILES)
    assert seen == [(texts, dict(names=KERNEL_FILES, target="gpu", name="step"))]


def test_a_tensor_that_pytorch_has_cut_is_this_ranks_part():
    whole = torch.ones(4)
    cut = SimpleNamespace(to_local=lambda: whole[:2])
    assert local_of(cut).tolist() == [1.0, 1.0] and local_of(whole) is whole


class Adapted(torch.nn.Linear):
    def forward(self, x):
        return 1.5 * super().forward(x)


def test_a_layer_that_does_more_than_a_linear_is_not_merged():
    plain, adapted = torch.nn.Linear(3, 2), Adapted(3, 2)
    message = "type .*Adapted; only torch.nn.Linear is fused"
    with pytest.raises(UnfusedModelError, match=message):
        merge(plain, adapted)


def test_layers_without_biases_have_none_when_they_are_merged():
    one, other = (torch.nn.Linear(3, rows, bias=False) for rows in (2, 4))
    weight, bias = merge(one, other)
    assert weight.shape == (6, 3) and bias is None


# ---- Positions


def test_each_position_has_the_cosines_and_sines_of_its_angles():
    half, base = 16, qwen3().config.rope_parameters["rope_theta"]
    angles = torch.arange(7)[:, None] * base ** (-torch.arange(half) / half)
    expected = torch.stack([angles.cos(), angles.sin()], -1)
    turns = turns_of(qwen3(), 7)
    torch.testing.assert_close(turns, expected, rtol=1e-4, atol=1e-5)
    assert turns.is_contiguous()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_cosines_and_sines_have_32_bits_and_lie_where_the_model_is(device):
    own = load_model().to(device)
    torch.set_default_dtype(torch.float64)
    try:
        turns = turns_of(own, 7)
    finally:
        torch.set_default_dtype(torch.float32)
    assert (turns.dtype, turns.device.type) == (torch.float32, device)


# ---- Which models are fused


@pytest.mark.parametrize(
    ("other", "dtype", "problem"),
    [
        (
            {"model_type": "gemma"},
            "float32",
            "is of the type gemma; only qwen3 and llama are fused",
        ),
        ({"hidden_act": "gelu"}, "float32", "has the activation gelu; only silu is fused"),
        ({}, "float64", "has numbers of torch.float64"),
        ({"head_dim": 31}, "float32", "has heads of 31; only even sizes up to 256 are fused"),
        (
            {"head_dim": 258},
            "float32",
            "has heads of 258; only even sizes up to 256 are fused",
        ),
        ({"hidden_size": 66}, "float32", "has hidden_size = 66, which is not a multiple of 4"),
        (
            {"hidden_size": 68},
            "bfloat16",
            "has hidden_size = 68, which is not a multiple of 8",
        ),
        (
            {"intermediate_size": 132},
            "float16",
            "has intermediate_size = 132, which is not a multiple of 8",
        ),
    ],
)
def test_a_model_that_is_not_fused_says_why(other, dtype, problem):
    given = dict(
        model_type="llama",
        hidden_act="silu",
        head_dim=32,
        hidden_size=128,
        intermediate_size=256,
        num_attention_heads=4,
    )
    check_fused(SimpleNamespace(**given), torch.float32)
    with pytest.raises(UnfusedModelError) as raised:
        check_fused(SimpleNamespace(**given | other), getattr(torch, dtype))
    assert str(raised.value) == f"the model {problem}" and isinstance(raised.value, ValueError)


def test_a_model_that_is_not_fused_stays_as_it_was():
    own = load_model(dtype=torch.float64)
    weight = own.model.layers[0].self_attn.q_proj.weight.data_ptr()
    with pytest.raises(UnfusedModelError, match="has numbers of torch.float64"):
        FusedModel(own, pool_of(own), 8, "fast")
    assert own.model.layers[0].self_attn.q_proj.weight.data_ptr() == weight


@pytest.mark.parametrize(
    "other, dtype",
    [({"head_dim": 256, "hidden_size": 68}, "float32"), ({"hidden_size": 72}, "bfloat16")],
)
def test_sizes_at_the_limits_are_fused(other, dtype):
    config = qwen3().config
    check_fused(type(config)(**config.to_dict() | other), getattr(torch, dtype))


def weights(*shapes):
    return [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]


def test_weights_that_are_merged_share_their_memory_and_are_merged_once():
    parts = weights((2, 3), (5, 3), (1, 3))
    expected = torch.cat([part.detach().clone() for part in parts])
    whole = layers._merge(parts)
    assert torch.equal(whole, expected) and whole.is_contiguous()
    parts[1].data += 1
    assert torch.equal(whole[2:7], expected[2:7] + 1)
    again = layers._merge(parts)
    assert again.data_ptr() == whole.data_ptr() and torch.equal(again, whole)
    assert again.shape == (8, 3)


def test_weights_that_only_look_merged_are_merged_anew():
    first, second = weights((2, 3), (5, 3))
    layers._merge([first, second])
    for parts in (
        [second, first],  # the other order
        [first, torch.nn.Parameter(second.detach()[1:])],  # a gap
        [
            torch.nn.Parameter(first.detach().t()),
            *weights((3, 2)),
        ],  # not one row after another
        weights((2, 3), (2, 3)),  # of two pieces of memory
    ):
        expected = torch.cat([part.detach().clone() for part in parts])
        assert not layers._are_adjacent(parts)
        assert torch.equal(layers._merge(parts), expected)


@pytest.mark.parametrize("size", [1, 2])
def test_a_product_that_is_cut_is_summed_over_the_ranks(size):
    class Ranks:
        def __init__(self):
            self.size, self.summed = size, []

        def sum(self, x):
            self.summed.append(x.clone())
            x += 100

    whole, ranks = qwen3(), Ranks()
    kv_cache = pool_of(whole)
    assert FusedModel(whole, kv_cache, 8, "fast").ranks is None
    whole.ranks = ranks
    try:
        fused = FusedModel(whole, kv_cache, 8, "fast")
    finally:
        del whole.ranks
    x = torch.tensor([1.0, 2.0])
    added = fused.sum_over_ranks(x, torch.tensor([0.5, 0.25]))  # each rank has all of the bias
    assert added.tolist() == ([101.5, 102.25] if size == 2 else [1.5, 2.25])
    assert [each.tolist() for each in ranks.summed] == [[1.0, 2.0]] * (size - 1)
