"""The engine on several ranks that share its weights: the same tokens, with less memory."""

import pytest
import torch
from transformers import LlamaConfig

from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts
from paged_attention.engine.parallel.engine import parallel_engine, serve_parallel
from paged_attention.engine.parallel.model import load_parallel_model, parallel_model
from paged_attention.engine.parallel.shards import run_sharded
from paged_attention.engine.parallel.weights import RandomWeights
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.supported_models import UnsupportedModelError
from paged_attention.tiny_qwen3.tasks import encode
from small_sizes import BIASES, SIZES

pytestmark = pytest.mark.slow
NIGHTLY = pytest.mark.slow(nightly=True)
PROMPTS = [encode(text) for text in ("Cq7b>", "Vq7b9>", "Sqxbza>", "Ka17..q42...z93?zq>")]
PARAMS = [
    SamplingParams(max_new_tokens=16, temperature=temperature, seed=3, ignore_end=True)
    for temperature in (0, 0.7, 0, 1)
]
PLAINER = [
    pytest.param(parts, marks=NIGHTLY)
    for parts in (None, FastParts(graphs=False, ahead=False))
]
FLOAT = torch.float32
LLAMA = LlamaConfig(**SIZES, **BIASES, tie_word_embeddings=False)


def load_llama(device):
    """With biases, and a head of its own, which is cut too."""
    return parallel_model(LLAMA, RandomWeights(FLOAT, torch.device(device), 5), FLOAT, device)


def engine_with_all_parts(model, parts, **options):
    """The ranks' sums are in recorded steps. Without these, it would go on, with the same
    tokens.
    """
    engine = parallel_engine(model, parts, **options)
    if parts:
        assert bool(engine.runner.graphs) == parts.graphs
        assert set(engine.runner.reasons) <= {"plan"}
    return engine


@pytest.fixture(scope="module")
def alone():
    requests = Engine(load_model(), num_blocks=64).generate(PROMPTS, PARAMS)
    return [request.output for request in requests]


@pytest.mark.parametrize("parts", [FastParts(), *PLAINER], ids=str)
def test_two_ranks_give_the_tokens_of_one_with_half_of_what_is_cut(parts, alone):
    make = dict(load=load_parallel_model, make_engine=engine_with_all_parts, parts=parts)
    run = run_sharded(PROMPTS, PARAMS, 2, "gloo", **make, num_blocks=64)
    assert run.answers == alone
    whole = load_model()
    cut = sum(
        parameter.nbytes for name, parameter in whole.named_parameters() if "_proj" in name
    )
    rest = sum(parameter.nbytes for parameter in whole.parameters()) - cut
    assert run.weight_bytes == rest + cut // 2
    assert run.cache_bytes == Engine(whole, num_blocks=64).manager.kv_cache.nbytes // 2


@pytest.mark.parametrize("parts", [FastParts(), PLAINER[0]], ids=str)
def test_a_small_pool_and_shared_prefixes(parts):
    """Requests are preempted and share blocks, on each rank alike."""
    prompts = [encode("K" + "." * 40 + f"a{n}>") for n in range(6)]
    params = SamplingParams(max_new_tokens=60, ignore_end=True)
    sizes = dict(num_blocks=20, block_size=8, token_budget=24)
    requests = Engine(load_model(), **sizes).generate(prompts, params)
    expected = [each.output for each in requests]
    run = serve_parallel(prompts, params, 2, "gloo", parts=parts, **sizes)
    assert run.answers == expected


def test_each_rank_has_the_parts_that_are_asked_for():
    with pytest.raises(UnsupportedModelError, match="needs the part `layers`"):
        serve_parallel(
            PROMPTS, PARAMS, 2, "gloo", parts=FastParts(layers=False), num_blocks=64
        )


@pytest.mark.parametrize("parts", [FastParts(), PLAINER[0]], ids=str)
def test_biases_and_a_head_that_is_cut(parts):
    prompts, params = [[1, 2, 3], [7] * 9], SamplingParams(max_new_tokens=12)
    others = dict(backend="gloo", load=load_llama, parts=parts, num_blocks=32)
    one, two = (serve_parallel(prompts, params, size, **others) for size in (1, 2))
    assert one.answers == two.answers and two.weight_bytes < 0.7 * one.weight_bytes
