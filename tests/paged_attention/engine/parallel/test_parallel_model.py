"""A rank's part of a model, in one process: the other ranks of its group do nothing."""

import contextlib
import copy
import math

import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig

from paged_attention.engine.checkpoint import SMALL_MODEL, load_model
from paged_attention.engine.fast import FastParts
from paged_attention.engine.fast.layers import local_of
from paged_attention.engine.parallel.cuts import Collective, collectives
from paged_attention.engine.parallel.engine import parallel_engine
from paged_attention.engine.parallel.model import (
    check_cuts,
    parallel_model,
)
from paged_attention.engine.parallel.weights import RandomWeights, SavedWeights
from paged_attention.engine.supported_models import UnsupportedModelError, head_size_of
from ranks import group
from small_sizes import BIASES, SIZES

OWN = dict(hidden_size=12, num_attention_heads=6, intermediate_size=10, vocab_size=14)
CUT = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"}
ALL = slice(None)


def llama(**changes):
    return LlamaConfig(**SIZES | OWN | BIASES | {"tie_word_embeddings": False} | changes)


class Numbered:
    """Weights that differ everywhere: by their names, and from place to place."""

    def __init__(self):
        self.names = []

    def whole(self, name, shape):
        own = sum(map(ord, name)) / 1000
        return torch.arange(math.prod(shape)).view(shape) / 1000 + own

    def part(self, name, shape, kept):
        self.names.append(name)
        return self.whole(name, shape)[kept]


def of_rank(rank, size, config, dtype=torch.float32):
    with group(rank, size):
        return parallel_model(config, Numbered(), dtype, "cpu")


# What a rank keeps


@pytest.mark.parametrize(
    "rank, size, dtype", [(0, 2, torch.float32), (1, 2, torch.float64), (2, 3, torch.bfloat16)]
)
def test_a_rank_holds_the_part_of_each_weight_that_pytorch_would_give_it(rank, size, dtype):
    config = llama(num_key_value_heads=6, intermediate_size=18, vocab_size=24)
    model, numbers = of_rank(rank, size, config, dtype), Numbered()
    cut = set()
    for name, parameter in model.named_parameters():
        expected = numbers.whole(name, parameter.shape)
        if isinstance(parameter, DTensor):
            (placement,) = parameter.placements
            if placement.is_shard():
                expected = expected.chunk(size, dim=placement.dim)[rank]
            cut.add(name.split(".")[-2])
        assert torch.equal(local_of(parameter), expected.to(dtype)), name
        assert local_of(parameter).dtype == dtype
    assert cut == CUT and not model.training


def test_one_rank_is_the_whole_model():
    model = of_rank(0, 1, llama())
    assert not any(isinstance(each, DTensor) for each in model.parameters())
    whole = AutoModelForCausalLM.from_config(llama(), dtype=torch.float32).eval()
    whole.load_state_dict(model.state_dict())
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(model(tokens).logits, whole(tokens).logits)


def test_a_head_that_is_the_embedding_stays_tied_and_is_not_read():
    weights = Numbered()
    with group(1, 2):
        model = parallel_model(llama(tie_word_embeddings=True), weights, torch.float32, "cpu")
    embedding = model.model.embed_tokens.weight
    assert model.lm_head.weight is embedding and "lm_head.weight" not in weights.names
    assert torch.equal(embedding, weights.whole("model.embed_tokens.weight", (14, 12)))


@pytest.mark.parametrize("head_dim", [None, 4])
def test_its_config_counts_the_ranks_own_heads_and_the_given_one_does_not_change(head_dim):
    config = llama(head_dim=head_dim, rope_theta=500.0)
    before = copy.deepcopy(config)
    model = of_rank(1, 2, config)
    own = model.config
    assert (own.num_attention_heads, own.num_key_value_heads) == (3, 1)
    assert own.intermediate_size == 5 and own.hidden_size == 12
    assert head_size_of(own) == (head_dim or 2)
    assert (model.ranks.rank, model.ranks.size) == (1, 2)
    # What is computed and not saved is that of the whole model.
    ours, theirs = (
        dict(each.named_buffers())
        for each in (model, AutoModelForCausalLM.from_config(before))
    )
    assert ours.keys() == theirs.keys() and theirs
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    own.rope_parameters["rope_theta"] = 7.0
    assert config.to_dict() == before.to_dict()


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(num_key_value_heads=3), "the model's 3 KV heads, and 2 does not"),
        (dict(num_attention_heads=7), "the model's 7 query heads"),
        (dict(intermediate_size=9), "the model's 9 numbers of the MLP"),
        (dict(vocab_size=15), "the model's 15 tokens of the vocabulary"),
    ],
)
def test_what_does_not_divide_is_named(changes, words):
    check_cuts(llama(), 2)
    config = llama()
    config.update(changes)
    with pytest.raises(ValueError, match=words):
        check_cuts(config, 2)
    check_cuts(config, 1)
    config.tie_word_embeddings = True  # then no head is cut
    with contextlib.nullcontext() if "vocab_size" in changes else pytest.raises(ValueError):
        check_cuts(config, 2)


def test_a_model_that_is_not_cut_here_is_refused_before_it_is_built():
    with pytest.raises(UnsupportedModelError, match="type mistral; only qwen3 and llama"):
        of_rank(0, 2, MistralConfig())
    with pytest.raises(ValueError, match="2 KV heads, and 3 does not"):
        of_rank(0, 3, llama())


def test_a_fast_engine_on_several_ranks_needs_fused_layers():
    """On one rank it takes PyTorch's own, and lesson 08's engine always does."""
    without, fused = FastParts(layers=False, graphs=False), FastParts(graphs=False)
    for parts, words in ((without, "needs the part `layers`"), (fused, "intermediate_size")):
        with group(0, 2):
            model = parallel_model(llama(), Numbered(), torch.float32, "cpu")
            with pytest.raises(UnsupportedModelError, match=words):
                parallel_engine(model, parts, num_blocks=3)
            assert parallel_engine(model, num_blocks=3).manager.kv_cache.shape[2] == 3
        engine = parallel_engine(of_rank(0, 1, llama()), parts, num_blocks=3)
        assert engine.runner.fused is None


# Where the weights come from


def test_a_saved_weight_is_read_in_parts():
    weights, whole = SavedWeights(SMALL_MODEL), load_model()
    name = "model.layers.0.mlp.down_proj.weight"
    expected = whole.get_parameter(name)
    kept = slice(3, 9), slice(2, 7)
    assert torch.equal(weights.part(name, expected.shape, kept), expected[kept])
    with pytest.raises(UnsupportedModelError, match="'x' is missing"):
        weights.part("x", expected.shape, kept)
    with pytest.raises(UnsupportedModelError, match=r"has the shape .* and not \(3, 2\)"):
        weights.part(name, torch.Size([3, 2]), (ALL, ALL))


def test_random_weights_depend_on_name_and_seed_alone():
    def weights(name="a", *seed, columns=slice(1, 3)):
        made = RandomWeights(torch.float32, torch.device("cpu"), *seed)
        return made.part(name, torch.Size([6, 4]), (ALL, columns))

    torch.manual_seed(1)
    first = weights()
    assert torch.equal(first, weights()) and torch.equal(first, weights("a", 0))
    assert torch.equal(first, weights(columns=ALL)[:, 1:3])  # the same on one rank
    assert not torch.equal(first, weights("b")) and not torch.equal(first, weights("a", 1))
    assert first.untyped_storage().nbytes() == 6 * 2 * 4  # the rest is not kept


# What the ranks do together


def test_a_step_has_two_sums_a_layer_and_a_head_that_is_cut_is_collected():
    config = llama(tie_word_embeddings=True)
    sums = [
        Collective(f"model.layers.{layer}.{name}", "all_reduce", 12)
        for layer in (0, 1)
        for name in ("self_attn.o_proj", "mlp.down_proj")
    ]
    assert collectives(config, 2) == collectives(config, 3) == sums
    assert collectives(llama(), 2) == [*sums, Collective("lm_head", "all_gather", 14)]
    assert collectives(config, 1) == []
