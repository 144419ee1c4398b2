"""The course's attention is in a model for the length of a step, and in no other model; named
models are served.
"""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from paged_attention.engine.attention import plugged_in
from paged_attention.engine.engine import Engine
from paged_attention.engine.paths import PATHS
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.supported_models import UnsupportedModelError, check_config
from small_sizes import SIZES

MOE = dict(
    moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, decoder_sparse_step=2
)
WINDOW = dict(use_sliding_window=True, sliding_window=8)
PROMPTS = [[1, 2, 3, 4, 5], [7], list(range(40)), [1, 2, 3, 4, 5, 6, 7, 8, 9]]
PARAMS = SamplingParams(max_new_tokens=8)


def scaled(kind, **others):
    """Rotary embeddings of another type. Those with a factor are made for longer contexts."""
    return {"rope_scaling": {"rope_type": kind} | others}


def random_model(kind, seed=0, **changes):
    """A model with random weights. Its sharper attention makes it notice a wrong key."""
    config_class, model_class = {
        "qwen3": (Qwen3Config, Qwen3ForCausalLM),
        "llama": (LlamaConfig, LlamaForCausalLM),
        "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM),
    }[kind]
    own = {"qwen3": {"head_dim": 16}, "llama": {}, "qwen3_moe": MOE}[kind]
    torch.manual_seed(seed)
    config = config_class(**SIZES | own | {"initializer_range": 0.2} | changes)
    return model_class(config).eval()


def dense(model, prompt, params=PARAMS):
    """transformers' own continuation."""
    row = torch.tensor([prompt])
    greedy = dict(attention_mask=torch.ones_like(row), do_sample=False, pad_token_id=0)
    both = model.generate(row, **greedy, max_new_tokens=params.max_new_tokens)
    return both[0, len(prompt) :].tolist()


def served(model, prompts=PROMPTS, **options):
    sizes = {"num_blocks": 40, "block_size": 4, "token_budget": 16}
    requests = Engine(model, **sizes | options).generate(prompts, PARAMS)
    return [request.output for request in requests]


pytestmark = pytest.mark.usefixtures("one_thread")


# these two take a GPU and other heads
@pytest.mark.parametrize("path", sorted(PATHS.keys() - {"fast", "fused"}))
@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe", "llama"])
def test_what_is_served_gives_the_tokens_of_transformers(kind, path):
    model = random_model(kind)
    prompts = PROMPTS[:2] if path == "kernel" else PROMPTS
    assert served(model, prompts, path=path) == [dense(model, prompt) for prompt in prompts]


@pytest.mark.parametrize(
    "changes",
    [
        {"head_dim": 24},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"attention_bias": True},
        {"tie_word_embeddings": True},
        {"attention_dropout": 0.5},
        {"rope_theta": 500.0},
        scaled("linear", factor=2.0),
        scaled("yarn", factor=4.0, original_max_position_embeddings=32),
        scaled(
            "llama3",
            factor=4.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=32,
        ),
    ],
    ids=str,
)
def test_what_a_llama_may_bring(changes):
    model = random_model("llama", **changes)
    assert served(model) == [dense(model, prompt) for prompt in PROMPTS]


@pytest.mark.parametrize("head_dim", [None, 16])
def test_a_config_need_not_name_the_head_size(head_dim):
    model = random_model("qwen3_moe", **({} if head_dim is None else {"head_dim": head_dim}))
    assert hasattr(model.config, "head_dim") == (head_dim is not None)
    assert Engine(model, num_blocks=4).manager.kv_cache.shape[-1] == (head_dim or 8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_the_cache_has_the_numbers_of_the_model(dtype):
    model = random_model("llama").to(dtype)
    engine = Engine(model, num_blocks=40, path="gather")
    [request] = engine.generate(PROMPTS[:1], PARAMS)
    assert engine.manager.kv_cache.dtype == dtype and request.reason == "length"


LONGROPE = scaled(
    "longrope",
    short_factor=[1.0] * 4,
    long_factor=[2.0] * 4,
    original_max_position_embeddings=32,
)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            MistralConfig(sliding_window=None),
            "of the type mistral; the engine runs qwen3, qwen3_",
        ),
        (Qwen3Config(**SIZES, **WINDOW, max_window_layers=1), "sliding window"),
        (Qwen3MoeConfig(**SIZES, **MOE, **WINDOW), "sliding window"),
        (
            LlamaConfig(**SIZES, **scaled("dynamic", factor=2.0)),
            "rotary embeddings of the type dynamic",
        ),
        (LlamaConfig(**SIZES, **LONGROPE), "of the type longrope"),
    ],
)
def test_what_would_run_and_be_wrong_is_refused(config, words):
    with pytest.raises(UnsupportedModelError, match=words):
        check_config(config)
    model = torch.nn.Module()
    model.config = config
    with pytest.raises(UnsupportedModelError, match=words):
        Engine(model)


def test_windows_that_no_layer_uses_are_no_reason():
    check_config(Qwen3Config(**SIZES, **WINDOW, max_window_layers=2))
    check_config(Qwen3MoeConfig(**SIZES, **MOE, sliding_window=8))


def test_in_the_middle_of_a_step_other_models_are_what_they_were():
    """Also one that shares the model's config."""
    first = random_model("llama")
    second = LlamaForCausalLM(first.config).eval()
    expected, seen = dense(second, PROMPTS[0]), []

    def path(metadata):
        def attend(q, k_cache, v_cache):  # called in a layer of the first
            assert torch.is_inference_mode_enabled()
            if not seen:
                seen.append(dense(second, PROMPTS[0]))
                seen.extend(served(second, PROMPTS[:1]))
            return PATHS["gather"](metadata)(q, k_cache, v_cache)

        return attend

    assert served(first, PROMPTS[1:2], path=path) == [dense(first, PROMPTS[1])]
    assert seen == [expected, expected]


def test_engines_in_several_threads():
    """Of one model, and of two that share a config."""
    first = random_model("llama")
    models = [first, first, LlamaForCausalLM(first.config).eval()]
    expected = [[dense(model, prompt) for prompt in PROMPTS] for model in models]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(served, models)) == expected
    assert first.config._attn_implementation == models[2].config._attn_implementation == "sdpa"


def test_a_model_is_what_it_was_before_and_so_are_its_copies():
    model = random_model("qwen3")
    model.set_attn_implementation("eager")
    expected = [dense(model, prompt) for prompt in PROMPTS]
    early = copy.deepcopy(model)
    assert served(model) == expected
    late = copy.deepcopy(model)
    for each in (model, early, late):
        assert each.config._attn_implementation == "eager"
        assert [dense(each, prompt) for prompt in PROMPTS] == served(each) == expected
    assert len({id(each.config) for each in (model, early, late)}) == 3


def test_a_foreign_plug_between_steps_changes_nothing():
    def foreign(*arguments, **named):
        raise AssertionError("not the engine's")

    model = random_model("qwen3")
    expected = dense(model, PROMPTS[2])
    engine = Engine(model, num_blocks=40, token_budget=16)
    request = engine.add("a", PROMPTS[2], PARAMS)
    engine.step()
    with plugged_in(model, foreign):
        engine.step()
        with pytest.raises(AssertionError, match="not the engine's"):
            model(torch.tensor([[1]]))
    model.set_attn_implementation("eager")
    engine.run()
    assert request.output == expected and model.config._attn_implementation == "eager"
