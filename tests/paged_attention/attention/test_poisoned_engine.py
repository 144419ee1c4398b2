"""What belongs to no request reaches none of an engine's answers: free blocks, slots past the
last token and those of others hold NaN, infinities and 3e38, while requests arrive, end, wait
and share prefixes.
"""

from functools import partial

import pytest
import torch
from hypothesis import event, example, given
from hypothesis import strategies as st
from transformers import Qwen3Config, Qwen3ForCausalLM

from dense_attention import pool_attention
from examples import few
from paged_attention.engine.engine import Engine
from paged_attention.engine.paths import PATHS
from paged_attention.engine.request import SamplingParams
from poison import POISONS, fill_where, on_each_device, owned_slots, poisons
from poisoned_paths import FOR_16_BITS, by_poison, on_each_path, skip_where_missing
from rounding import assert_within_rounding
from traces import actions, play

HALF = torch.float16
BFLOAT = torch.bfloat16
FLOAT = torch.float32
CLOSE = {FLOAT: {"rtol": 1e-3, "atol": 1e-3}, BFLOAT: {"rtol": 0.1, "atol": 0.2}}

pytestmark = pytest.mark.usefixtures("one_thread")


# The engine


VOCAB_SIZE = 29


def random_model(dtype, device):
    """Two layers of random numbers, in shapes that every path takes."""
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        head_dim=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config).to(device, dtype).eval()


@pytest.fixture(scope="module")
def models():
    """models(path, device): the engine's model, and the same once more, which attends as
    transformers does.
    """
    made = {}

    def get(path, device):
        key = BFLOAT if path in FOR_16_BITS else FLOAT, device
        if key not in made:
            made[key] = random_model(*key), random_model(*key)
        return made[key]

    return get


def poison_the_rest(engine, poison):
    """All slots that hold no token of a running request and none that the prefix cache
    keeps.
    """
    fill_where(
        engine.manager.kv_cache,
        ~owned_slots(engine.manager, engine.prefix_cache.blocks.values()),
        poison,
    )


def serve(model, path, trace, sizes, poison=None):
    """The requests of a trace, and of each the logits that its tokens were chosen from."""
    engine, logits = Engine(model, path=path, **{"block_size": 4} | sizes), {}
    choose, step = engine.sample, engine.step

    def choose_and_keep(row, params, position):
        logits.setdefault(id(params), []).append(row.clone())
        return choose(row, params, position)

    def poisoned_step():
        poison_the_rest(engine, poison)
        return step()

    engine.sample = choose_and_keep
    if poison is not None:
        engine.step = poisoned_step
    requests = play(engine, trace)
    return requests, [logits.get(id(request.params), []) for request in requests]


text = list(range(1, 25))
prompts = st.one_of(
    st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=9),
    st.integers(1, 20).map(lambda length: text[:length]),
    st.tuples(st.integers(4, 16), st.integers(0, 9)).map(
        lambda pair: [*text[: pair[0]], pair[1]]
    ),
)


traces = st.lists(
    actions(prompts, st.builds(SamplingParams, st.integers(3, 9))), min_size=3, max_size=12
)
all_sizes = st.fixed_dictionaries(
    {
        "num_blocks": st.integers(5, 9),
        "token_budget": st.integers(6, 24),
        "max_num_seqs": st.integers(2, 5),
        "prefix_sharing": st.sampled_from([True, True, False]),
    }
)
# Two share a prefix, one is cancelled, and the pool is too small for the rest.
EXAMPLE = {
    "trace": [
        ("add", text[:9], [SamplingParams(8)]),
        ("step", 2),
        ("add", [*text[:8], 3, 4], [SamplingParams(8)]),
        ("add", [7, 8, 9], [SamplingParams(9)]),
        ("step", 3),
        ("add", [2] * 9, [SamplingParams(8)]),
        ("cancel", 2),
    ],
    "sizes": {"num_blocks": 6, "token_budget": 12, "max_num_seqs": 4, "prefix_sharing": True},
}


@on_each_device
@on_each_path
@few(3, drawn_anew=6)
@given(trace=traces, sizes=all_sizes, poison=poisons)
@example(**EXAMPLE, poison=POISONS["inf"])
@example(**EXAMPLE, poison=POISONS["3e38"])
def test_any_trace_gives_the_same_in_a_poisoned_pool(
    models, path, device, trace, sizes, poison
):
    skip_where_missing(path, device)
    model, dense = models(path, device)
    requests, logits = serve(model, path, trace, sizes, poison)
    expected, expected_logits = serve(model, path, trace, sizes)
    event(f"preempted: {any(request.num_preempted for request in requests)}")
    if trace is EXAMPLE["trace"]:
        assert {request.reason for request in requests} == {"length", "cancelled"}
        assert any(request.num_preempted for request in requests)
    for request, clean, rows, clean_rows in zip(
        requests, expected, logits, expected_logits, strict=True
    ):
        assert (request.tokens, request.reason) == (clean.tokens, clean.reason)
        assert len(rows) == len(request.output)
        if rows:
            torch.testing.assert_close(
                torch.stack(rows), torch.stack(clean_rows), rtol=1e-4, atol=1e-4
            )
            alone = dense(input_ids=torch.tensor([request.tokens[:-1]], device=device)).logits[
                0, -len(rows) :
            ]
            torch.testing.assert_close(torch.stack(rows), alone, **CLOSE[model.dtype])


# Path "fast" in its own numbers


def compared(metadata, path=PATHS["fast"], seen=None):
    """The path; each of its results is compared with attention in float64."""
    attend = path(metadata)

    def attend_and_compare(q, k_cache, v_cache):
        o = attend(q, k_cache, v_cache)
        assert_within_rounding(o, q, pool_attention(q, k_cache, v_cache, metadata))
        if seen is not None:
            seen.append(metadata.cu_seqlens_q.diff().tolist())
        return o

    return attend_and_compare


in_16_bits = pytest.mark.parametrize("dtype", [BFLOAT, HALF], ids=str)
BLOCKS_OF_8 = {**EXAMPLE["sizes"], "num_blocks": 4, "block_size": 8}


@in_16_bits
@on_each_device
@few(3, drawn_anew=6)
@given(
    trace=traces,
    sizes=all_sizes.map(
        lambda sizes: {**sizes, "block_size": 8, "num_blocks": sizes["num_blocks"] // 2 + 1}
    ),
    poison=poisons,
)
def test_each_step_of_the_fast_path_is_within_rounding_of_float64(
    dtype, device, trace, sizes, poison
):
    model = random_model(dtype, device)
    requests, _ = serve(model, compared, trace, sizes, poison)
    assert not any(request.reason == "not finite" for request in requests)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype, poison", [(BFLOAT, POISONS["NaN"]), (HALF, POISONS["inf"])])
def test_a_step_with_chunks_and_single_tokens_is_clean_in_checked_mode(dtype, poison):
    path, seen = partial(PATHS["fast"], target="checked"), []
    requests, _ = serve(
        random_model(dtype, "cpu"),
        partial(compared, path=path, seen=seen),
        EXAMPLE["trace"],
        BLOCKS_OF_8,
        poison,
    )
    assert {request.reason for request in requests} == {"length", "cancelled"}
    assert any(request.num_preempted for request in requests)
    assert any(1 in q_lens and max(q_lens) > 1 for q_lens in seen)  # a mix
    assert any(sum(q_len > 1 for q_len in q_lens) > 1 for q_lens in seen)  # several chunks


@on_each_device
@on_each_path
@by_poison
def test_a_request_with_infinite_numbers_leaves_none_in_a_prefix_that_others_share(
    models, path, device, poison
):
    """The last token of the first prompt has a poisoned embedding. Its layers multiply it by 0
    for the tokens before it, which are computed in the same step; their blocks are full, and
    the second prompt begins with them.
    """
    skip_where_missing(path, device)
    model, dense = models(path, device)
    bad, prompt = VOCAB_SIZE - 1, text[:16]
    embedding = model.get_input_embeddings().weight
    good = embedding[bad].clone()
    with torch.no_grad():
        embedding[bad] = poison
    try:
        engine = Engine(model, path=path, block_size=4, num_blocks=20)
        engine.add("first", [*prompt, bad], SamplingParams(max_new_tokens=2))
        engine.run()
        rows, choose = [], engine.sample
        engine.sample = lambda row, *others: rows.append(row.clone()) or choose(row, *others)
        second = engine.add("second", [*prompt, 3], SamplingParams(max_new_tokens=3))
        engine.run()
    finally:
        with torch.no_grad():
            embedding[bad] = good
    alone = dense(input_ids=torch.tensor([second.tokens[:-1]], device=device)).logits[0, -3:]
    torch.testing.assert_close(
        torch.stack(rows)[:, :bad], alone[:, :bad], **CLOSE[model.dtype]
    )
