"""The engine on several ranks that share its weights: the same tokens, with less memory."""

import os
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, LlamaConfig

from lessons_bench.servers import random_model
from paged_attention.engine.checkpoint import SMALL_MODEL, load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts
from paged_attention.engine.parallel import engine as parallel
from paged_attention.engine.parallel.cuts import collectives, kept_by_rank
from paged_attention.engine.parallel.engine import parallel_engine, serve_parallel
from paged_attention.engine.parallel.model import (
    check_cuts,
    load_parallel_model,
    parallel_model,
)
from paged_attention.engine.parallel.ranks import Ranks
from paged_attention.engine.parallel.weights import RandomWeights, SavedWeights
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.served import UnsupportedModelError
from paged_attention.engine.shards import ShardError, run_sharded
from paged_attention.tiny_qwen3.tasks import encode

PROMPTS = [encode(text) for text in ("Cq7b>", "Vq7b9>", "Sqxbza>", "Ka17..q42...z93?zq>")]
PARAMS = [
    SamplingParams(max_new_tokens=16, temperature=temperature, seed=3, ignore_end=True)
    for temperature in (0, 0.7, 0, 1)
]
NEITHER = FastParts(graphs=False, ahead=False)
FLOAT = torch.float32
LLAMA = LlamaConfig(
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=96,
    vocab_size=46,
    max_position_embeddings=256,
    tie_word_embeddings=False,
    attention_bias=True,
    mlp_bias=True,
    bos_token_id=None,
    eos_token_id=None,
)


def test_columns_are_collected_where_they_are(monkeypatch):
    def all_gather(parts, part):
        for rank, each in enumerate(parts):
            each.copy_(part + 10 * rank)

    monkeypatch.setattr(dist, "all_gather", all_gather)
    ranks, out = Ranks.__new__(Ranks), torch.zeros(2, 4)
    ranks.size = 2
    with torch.device("meta"):  # what is made without a device cannot be read
        ranks.join(torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu"), out)
    assert out.tolist() == [[1, 2, 11, 12], [3, 4, 13, 14]]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_only_on_one_rank_may_the_layers_be_pytorchs_own(monkeypatch, size):
    engine = SimpleNamespace(runner=SimpleNamespace(fused=None, reasons={"layers": "why"}))
    monkeypatch.setattr(parallel, "fast_engine", lambda model, parts: engine)
    model = SimpleNamespace(ranks=SimpleNamespace(size=size))
    for parts, words in ((FastParts(), "why"), (FastParts(layers=False), "needs the part")):
        if size == 1:
            assert parallel_engine(model, parts) is engine
        else:
            with pytest.raises(UnsupportedModelError, match=words):
                parallel_engine(model, parts)


def load_llama(device):
    """With biases, and a head of its own, which is cut too."""
    return parallel_model(LLAMA, RandomWeights(FLOAT, torch.device(device), 5), FLOAT, device)


def load_whose_parts_are_pytorchs(device):
    """Checks on each rank that what we fill is what PyTorch keeps."""
    model = load_parallel_model(device=device)
    whole, rank, size = load_model(), dist.get_rank(), dist.get_world_size()
    num_cut = 0
    for name, parameter in model.named_parameters():
        expected = whole.get_parameter(name)
        if isinstance(parameter, DTensor):
            layer = name.split(".")[-2]
            expected = expected[kept_by_rank(layer, tuple(expected.shape), rank, size)]
            (placement,) = parameter.placements
            theirs = whole.get_parameter(name).chunk(size, dim=placement.dim)[rank]
            assert torch.equal(expected, theirs), name
            parameter, num_cut = parameter.to_local(), num_cut + 1
        assert torch.equal(parameter, expected), name
    assert num_cut == 7 * model.config.num_hidden_layers
    return model


def engine_with_recorded_steps(model, **options):
    engine = parallel_engine(model, FastParts(), **options)
    assert engine.runner.graphs and set(engine.runner.reasons) <= {"plan"}
    return engine


def load_and_die(device):
    if dist.get_rank() == 1:
        os._exit(3)
    return load_parallel_model(device=device)


@pytest.fixture(scope="module")
def alone():
    requests = Engine(load_model(), num_blocks=64).generate(PROMPTS, PARAMS)
    return [request.output for request in requests]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(FastParts(), marks=pytest.mark.heavy),
        *(pytest.param(parts, marks=pytest.mark.slow) for parts in (None, NEITHER)),
    ],
    ids=str,
)
def test_two_ranks_give_the_tokens_of_one_with_half_of_what_is_cut(parts, alone):
    run = serve_parallel(PROMPTS, PARAMS, 2, "gloo", parts=parts, num_blocks=64)
    assert run.answers == alone
    whole = load_model()
    cut = sum(
        parameter.nbytes for name, parameter in whole.named_parameters() if "_proj" in name
    )
    rest = sum(parameter.nbytes for parameter in whole.parameters()) - cut
    assert run.weight_bytes == rest + cut // 2
    assert run.cache_bytes == Engine(whole, num_blocks=64).manager.kv_cache.nbytes // 2


@pytest.mark.slow
@pytest.mark.parametrize("parts", [FastParts(), None], ids=str)
def test_a_small_pool_and_shared_prefixes(parts):
    """Requests are preempted and share blocks, on each rank alike."""
    prompts = [encode("K" + "." * 40 + f"a{n}>") for n in range(6)]
    params = SamplingParams(max_new_tokens=60, ignore_end=True)
    sizes = dict(num_blocks=20, block_size=8, token_budget=24)
    expected = [
        each.output for each in Engine(load_model(), **sizes).generate(prompts, params)
    ]
    run = serve_parallel(prompts, params, 2, "gloo", parts=parts, **sizes)
    assert run.answers == expected


@pytest.mark.slow
@pytest.mark.parametrize("parts", [FastParts(), None], ids=str)
def test_biases_and_a_head_that_is_cut(parts):
    one, two = (
        serve_parallel(
            [[1, 2, 3], [7] * 9],
            SamplingParams(max_new_tokens=12),
            world_size,
            "gloo",
            load_llama,
            parts,
            num_blocks=32,
        )
        for world_size in (1, 2)
    )
    assert one.answers == two.answers and two.weight_bytes < 0.7 * one.weight_bytes


@pytest.mark.slow
def test_each_rank_keeps_what_pytorch_would_give_it(alone):
    run = serve_parallel(
        PROMPTS, PARAMS, 2, "gloo", load_whose_parts_are_pytorchs, num_blocks=64
    )
    assert run.answers == alone


@pytest.mark.heavy
def test_the_ranks_sums_are_in_recorded_steps(alone):
    """Without one, the engine would go on and give the same tokens."""
    run = run_sharded(
        PROMPTS,
        PARAMS,
        2,
        "gloo",
        load_parallel_model,
        make_engine=engine_with_recorded_steps,
        num_blocks=64,
    )
    assert run.answers == alone


@pytest.mark.heavy
def test_a_rank_that_dies_ends_all_and_is_named():
    with pytest.raises(ShardError, match="rank 1 ended without an answer"):
        serve_parallel(PROMPTS, PARAMS, 2, "gloo", load_and_die, num_blocks=64)


def test_too_few_gpus_are_a_sentence():
    if torch.cuda.device_count() >= 64:
        pytest.skip("this machine has them")
    with pytest.raises(ValueError, match="NCCL needs a GPU for each of the 64 ranks"):
        serve_parallel(PROMPTS, PARAMS, 64, "nccl", num_blocks=64)


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(num_key_value_heads=3, num_attention_heads=6), "3 KV heads, and 2 does not"),
        (dict(intermediate_size=97), "97 numbers of the MLP"),
        (dict(vocab_size=45, tie_word_embeddings=False), "45 tokens of the vocabulary"),
    ],
)
def test_what_does_not_divide_is_named(changes, words):
    config = AutoConfig.from_pretrained(SMALL_MODEL)
    config.update(changes)
    with pytest.raises(ValueError, match=words):
        check_cuts(config, 2)


def test_other_models_are_refused_by_name():
    with pytest.raises(UnsupportedModelError, match="of the type qwen3_moe; only qwen3 and"):
        check_cuts(SimpleNamespace(model_type="qwen3_moe"), 2)


def test_the_error_of_heads_that_do_not_divide_comes_from_the_ranks():
    with pytest.raises(ValueError, match="must divide the model's 2 KV heads, and 3 does not"):
        serve_parallel(PROMPTS, PARAMS, 3, "gloo", num_blocks=64)


def test_fast_parts_without_fused_layers_are_refused_on_several_ranks():
    parts = FastParts(layers=False)
    with pytest.raises(UnsupportedModelError, match="needs the part `layers`"):
        serve_parallel(PROMPTS, PARAMS, 2, "gloo", parts=parts, num_blocks=64)


def test_a_folder_that_is_not_there_is_named_and_nobody_else_is_asked(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder '.*nowhere'"):
        load_parallel_model(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="holds no config.json"):
        load_parallel_model(tmp_path)


def test_a_saved_weight_is_read_in_parts():
    weights, whole = SavedWeights(SMALL_MODEL), load_model()
    name = "model.layers.0.mlp.down_proj.weight"
    expected = whole.get_parameter(name)
    kept = slice(3, 9), slice(2, 7)
    assert torch.equal(weights.part(name, expected.shape, kept), expected[kept])
    with pytest.raises(UnsupportedModelError, match="'x' is missing"):
        weights.part("x", expected.shape, kept)
    with pytest.raises(UnsupportedModelError, match="has the shape"):
        weights.part(name, torch.Size([2, 3]), kept)


def test_random_weights_are_those_of_one_rank():
    weights = RandomWeights(FLOAT, torch.device("cpu"), seed=4)
    whole = weights.part("a", torch.Size([6, 4]), (slice(0, 6), slice(0, 4)))
    assert torch.equal(
        weights.part("a", torch.Size([6, 4]), (slice(2, 4), slice(0, 4))), whole[2:4]
    )
    assert not torch.equal(
        weights.part("b", torch.Size([6, 4]), (slice(0, 6), slice(0, 4))), whole
    )


def test_the_collectives_of_a_step():
    config = random_model(2, "cpu", FLOAT, hidden_size=64, vocab_size=100).config
    assert [what.kind for what in collectives(config, 2)] == ["all_reduce"] * 4
    assert collectives(config, 1) == []
    config.tie_word_embeddings = False
    *sums, head = collectives(config, 2)
    assert {what.numbers for what in sums} == {64}
    assert (head.kind, head.numbers) == ("all_gather", 100)
