"""The engine on several ranks that share its weights: the same tokens, with less memory."""

import os

import pytest
import torch
import torch.distributed as dist
from transformers import LlamaConfig

from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts
from paged_attention.engine.parallel.engine import parallel_engine, serve_parallel
from paged_attention.engine.parallel.model import load_parallel_model, parallel_model
from paged_attention.engine.parallel.weights import RandomWeights
from paged_attention.engine.request import SamplingParams
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


def load_llama(device):
    """With biases, and a head of its own, which is cut too."""
    return parallel_model(LLAMA, RandomWeights(FLOAT, torch.device(device), 5), FLOAT, device)


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
