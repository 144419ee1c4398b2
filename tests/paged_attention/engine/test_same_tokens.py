"""Every path gives the tokens that transformers gives with its own cache: greedy, float32, at
least 20 of them.
"""

import functools

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.divergence import locate_divergence
from paged_attention.engine.engine import Engine
from paged_attention.engine.faults import FAULTS, fill_with_leftovers, plant
from paged_attention.engine.paths import CPU_ONLY, PATHS
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.tasks import TASKS, encode, recall

NUM_TOKENS = 20
PARAMS = SamplingParams(max_new_tokens=NUM_TOKENS, ignore_end=True)
# they take 16-bit numbers only: test_fused.py
PATHS_ON_THE_CPU = [path for path in PATHS if path not in ("fast", "fused")]


pytestmark = pytest.mark.usefixtures("one_thread")


def prompts_of_many_lengths(count: int) -> list[list[int]]:
    """From a single token to several hundred; every fourth asks another question about the
    same pairs.
    """
    random = np.random.default_rng(3)
    pairs = recall(random, 1.0, 230)[0].split("?")[0]
    prompts = [encode("C")]
    for number in range(1, count):
        if number % 4 == 0:
            name = next(filter(str.isalpha, pairs[1 + number :]))
            prompts.append(encode(f"{pairs}?{name}>"))
        else:
            prompts.append(encode(TASKS[list(TASKS)[number % 4]](random, random.random())[0]))
    return prompts


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def model(request):
    return load_model(device=request.param)


@pytest.fixture(scope="module")
def dense():
    """transformers' own tokens, one prompt at a time."""
    model = load_model()
    endless = GenerationConfig(max_new_tokens=NUM_TOKENS, do_sample=False, pad_token_id=0)
    model.generation_config = endless

    @functools.cache
    def continued(prompt: tuple[int, ...]) -> list[int]:
        row = torch.tensor([prompt])
        return model.generate(
            row, attention_mask=torch.ones_like(row), generation_config=endless
        )[0, len(prompt) :].tolist()

    return lambda prompt: continued(tuple(prompt))


def skip_where_it_is_for_a_cpu(path, model):
    if path in CPU_ONLY and model.device.type != "cpu":
        pytest.skip(f"path {path} is for a CPU")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", PATHS_ON_THE_CPU)
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param({"max_num_seqs": 1}, id="alone", marks=pytest.mark.slow),
        pytest.param({"num_blocks": 600, "max_num_seqs": 32}, id="together"),
        pytest.param(
            {"num_blocks": 52, "block_size": 8, "token_budget": 48}, id="a tight pool"
        ),
    ],
)
def test_the_same_tokens_on_every_path(model, dense, path, sizes):
    skip_where_it_is_for_a_cpu(path, model)
    prompts = prompts_of_many_lengths(6 if path == "kernel" else 20)
    assert min(map(len, prompts)) == 1 and max(map(len, prompts)) > 200
    requests = Engine(model, path=path, **sizes).generate(prompts, PARAMS)
    assert [request.output for request in requests] == [dense(prompt) for prompt in prompts]
    if sizes.get("num_blocks") == 52 and path != "kernel":
        assert any(request.num_preempted for request in requests)


@pytest.mark.parametrize("path", [path for path in PATHS_ON_THE_CPU if path != "gather"])
def test_paths_that_agree_never_part(model, path):
    skip_where_it_is_for_a_cpu(path, model)
    prompt = encode(recall(np.random.default_rng(0), 0.3)[0])
    engines = [Engine(model, path=name, block_size=8) for name in ("gather", path)]
    assert locate_divergence(*engines, prompt, num_tokens=4) is None


@pytest.mark.parametrize(
    ("fault", "token", "head", "block", "what"),
    [
        # the first token of a block that the last step did not have
        ("table one step late", 104, 0, 13, "output"),
        ("a block of another sequence", 8, 0, 1, "output"),
        ("tail not masked", 101, 0, 12, "output"),
        ("KV head = h % num_kv_heads", 0, 1, 0, "output"),
        ("accumulator not rescaled", 8, 2, 0, "output"),
        ("position + 1 at decode", 102, 0, 12, "key"),
    ],
)
def test_a_fault_is_found_where_it_was_planted(model, fault, token, head, block, what):
    text, _ = recall(np.random.default_rng(5), 0.4)
    assert len(text) == 102
    leftovers = [encode(recall(np.random.default_rng(seed), 1.0)[0]) for seed in range(4)]
    engines = [
        Engine(model, path="paged_torch", block_size=8, num_blocks=300) for _ in range(2)
    ]
    for engine in engines:
        fill_with_leftovers(engine, leftovers)
    plant(engines[1], fault)
    found = locate_divergence(*engines, encode(text))
    assert (found.token, found.layer, found.head) == (token, 0, head)
    assert (found.block, found.what) == (block, what)
    assert f"token {token}, layer 0" in str(found)
    # both are free for other work again
    assert not engines[0].requests and not engines[1].requests


def test_a_permutation_of_full_blocks_is_no_fault(model):
    engines = [Engine(model, path="paged_torch", block_size=8) for _ in range(2)]
    plant(engines[1], "full blocks permuted")
    prompt = encode(recall(np.random.default_rng(5), 0.4)[0])
    assert locate_divergence(*engines, prompt) is None


def test_an_engine_at_work_is_refused(model):
    engines = [Engine(model, path="gather", num_blocks=20) for _ in range(2)]
    engines[1].add("a", [1, 2], PARAMS)
    with pytest.raises(ValueError, match="other requests"):
        locate_divergence(*engines, [1, 2])


def test_different_chunks_are_refused(model):
    engines = [Engine(model, path="gather", token_budget=budget) for budget in (16, 32)]
    with pytest.raises(ValueError, match="token_budget"):
        locate_divergence(*engines, [3] * 40)
    assert not engines[0].requests and not engines[1].requests


def test_an_unknown_fault_is_refused(model):
    with pytest.raises(KeyError, match="there is no fault 'x'; there are table one step late"):
        plant(Engine(model, num_blocks=4), "x")
    assert len(FAULTS) == 7
