"""What belongs to no sequence reaches no result, on any path of the engine.

Here free blocks, slots past a sequence's last token, blocks of other sequences and block 0
hold NaN, infinities and 3e38. Requests arrive, end, wait and share prefixes.
"""

from dataclasses import replace
from functools import partial
from itertools import accumulate
from types import SimpleNamespace

import pytest
import torch
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from transformers import Qwen3Config, Qwen3ForCausalLM

from paged_attention.engine import paths
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.divergence import locate_divergence
from paged_attention.engine.engine import Engine
from paged_attention.engine.faults import each_alone
from paged_attention.engine.paths import PATHS
from paged_attention.engine.request import RequestError, SamplingParams
from paged_attention.kv_cache import PagedAttentionManager
from paged_attention.metadata import build_metadata, cumulative_lengths
from paged_attention.tiny_qwen3.tasks import decode, encode
from poison import POISONS, fill_where, on_each_device, owned_slots, poisons
from prefill_batch import attention
from rounding import assert_within_rounding

HALF = torch.float16
BFLOAT = torch.bfloat16
FLOAT = torch.float32
FOR_16_BITS = ("fast", "fused")  # paths whose kernels take no float32
NEEDS = getattr(paths, "NEEDS", {})
CLOSE = {FLOAT: {"rtol": 1e-3, "atol": 1e-3}, BFLOAT: {"rtol": 0.1, "atol": 0.2}}

on_each_path = pytest.mark.parametrize("path", PATHS)
by_poison = pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)


pytestmark = pytest.mark.usefixtures("one_thread")


def skip_where_missing(path, device):
    if path in NEEDS and (device == "cpu" or NEEDS[path]()):
        pytest.skip(f"path {path} cannot be taken here")


# Paths


SEQUENCES = {
    "prompt": (0, 5),
    "single": (20, 1),
    "full block": (15, 1),
    "first of a block": (16, 1),
    "chunk": (13, 7),
    # tokens before, and new ones
    "one token": (0, 1),
    "longest": (30, 1),
    "bystander": (11, 3),
}
BATCH = [(name, new) for name, (_, new) in SEQUENCES.items() if name != "bystander"]
BLOCK_SIZE = 8


def scene(device, dtype):
    """A manager whose pool is almost full (block 0 is free), queries and metadata."""
    generator = torch.Generator().manual_seed(5)
    manager = PagedAttentionManager(23, BLOCK_SIZE, 2, 64, 8, 5, dtype=dtype, device=device)
    free = [manager.block_manager.allocate() for _ in range(23)]
    # what is freed first is taken last
    for block_id in [0, *(1 + torch.randperm(22, generator=generator)).tolist()]:
        manager.block_manager.free(free[block_id])
    for name, (past, new) in SEQUENCES.items():
        manager.add_sequence(name, past + new)
    assert not owned_slots(manager)[0].any()
    manager.kv_cache.copy_(torch.randn(manager.kv_cache.shape, generator=generator))
    metadata = build_metadata(manager, BATCH)
    q = torch.randn(len(metadata.slot_mapping), 4, 64, generator=generator).to(device, dtype)
    return manager, q, metadata


def past_the_last_token(manager):
    owned = owned_slots(manager)
    return owned.any(1, keepdim=True) & ~owned


def block_0(manager):
    where = torch.zeros_like(owned_slots(manager))
    where[0] = True
    return where


def blocks_of_the_bystander(manager):
    where = torch.zeros_like(owned_slots(manager))
    where[manager.blocks_of("bystander")] = True
    return where


PLACES = {
    "past the last token": past_the_last_token,
    "free blocks": lambda manager: ~owned_slots(manager).any(1, keepdim=True),
    "block 0": block_0,
    "a bystander's blocks": blocks_of_the_bystander,
    "all of it": lambda manager: ~owned_slots(manager) | blocks_of_the_bystander(manager),
}


@on_each_device
@on_each_path
@pytest.mark.parametrize("dtype", [FLOAT, HALF, BFLOAT], ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_a_path_reads_what_its_sequences_own_and_nothing_else(path, device, dtype, place):
    if path in FOR_16_BITS and dtype == FLOAT:
        pytest.skip(f"path {path} takes 16-bit numbers")
    skip_where_missing(path, device)
    manager, q, metadata = scene(device, dtype)
    caches, where = manager.kv_cache[0], PLACES[place](manager)
    expected = PATHS[path](metadata)(q, *caches)
    assert expected.isfinite().all()
    padding = metadata.block_table < 0
    for poison in POISONS.values():
        fill_where(caches, where.expand(caches.shape[1:3]), poison)
        for entry in (-1, 0, manager.blocks_of("bystander")[0]):
            table = metadata.block_table.masked_fill(padding, entry)
            o = PATHS[path](replace(metadata, block_table=table))(q, *caches)
            torch.testing.assert_close(o, expected)  # a GPU may add in another order


@on_each_device
@on_each_path
@by_poison
def test_the_others_do_not_notice_what_one_of_the_batch_has_in_its_own_blocks(
    path, device, poison
):
    skip_where_missing(path, device)
    manager, q, metadata = scene(device, BFLOAT if path in FOR_16_BITS else FLOAT)
    caches = manager.kv_cache[0]
    expected = PATHS[path](metadata)(q, *caches)
    q_lens = [new for _, new in BATCH]
    for index, (name, q_len) in enumerate(BATCH):
        poisoned = caches.clone()
        where = torch.zeros(caches.shape[1:3], dtype=torch.bool)
        where[manager.blocks_of(name)] = True
        fill_where(poisoned, where, poison)
        o = PATHS[path](metadata)(q, *poisoned)
        end = list(accumulate(q_lens))[index]
        others = torch.ones(len(q), dtype=torch.bool)
        others[end - q_len : end] = False
        torch.testing.assert_close(o[others], expected[others], rtol=1e-5, atol=1e-6)


@on_each_device
@by_poison
@pytest.mark.parametrize("rescale", [True, False])
def test_a_planted_fault_is_no_other_fault(device, poison, rescale):
    """Lesson 08's attention that forgets to rescale does so with its own keys and values
    only.
    """
    manager, q, metadata = scene(device, FLOAT)
    caches = manager.kv_cache[0]
    expected = each_alone(q, *caches, metadata, rescale=rescale)
    fill_where(caches, PLACES["all of it"](manager), poison)
    torch.testing.assert_close(each_alone(q, *caches, metadata, rescale=rescale), expected)


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
    engine = Engine(model, path=path, **{"block_size": 4} | sizes)
    requests = []
    logits = {}
    choose = engine.sample

    def choose_and_keep(row, params, position):
        logits.setdefault(params.seed, []).append(row.clone())
        return choose(row, params, position)

    engine.sample = choose_and_keep

    def step():
        engine.step()
        if poison is not None:
            poison_the_rest(engine, poison)

    if poison is not None:
        poison_the_rest(engine, poison)
    for number, (action, *details) in enumerate(trace):
        if action == "add":
            own = SamplingParams(details[1], seed=number)  # a seed, to tell requests apart
            try:
                requests.append(engine.add(number, details[0], own))
            except RequestError:
                pass  # too long for this pool
        elif action == "step":
            for _ in range(details[0]):
                step()
        elif details[0] < len(requests) and requests[details[0]].reason is None:
            engine.cancel(requests[details[0]].id)
            if poison is not None:
                poison_the_rest(engine, poison)
    while engine.scheduler.has_work():
        step()
    return requests, [logits.get(request.params.seed, []) for request in requests]


text = list(range(1, 25))
prompts = st.one_of(
    st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=9),
    st.integers(1, 20).map(lambda length: text[:length]),
    st.tuples(st.integers(4, 16), st.integers(0, 9)).map(
        lambda pair: [*text[: pair[0]], pair[1]]
    ),
)
add = st.tuples(st.just("add"), prompts, st.integers(3, 9))
actions = st.one_of(
    add,
    add,
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.tuples(st.just("cancel"), st.integers(0, 4)),
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
        ("add", text[:9], 8),
        ("step", 2),
        ("add", [*text[:8], 3, 4], 8),
        ("add", [7, 8, 9], 9),
        ("step", 3),
        ("add", [2] * 9, 8),
        ("cancel", 2),
    ],
    "sizes": {"num_blocks": 6, "token_budget": 12, "max_num_seqs": 4, "prefix_sharing": True},
}


@on_each_device
@on_each_path
@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(trace=st.lists(actions, min_size=3, max_size=12), sizes=all_sizes, poison=poisons)
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
        assert_within_rounding(o, q, attention(q, k_cache, v_cache, metadata))
        if seen is not None:
            seen.append(metadata.cu_seqlens_q.diff().tolist())
        return o

    return attend_and_compare


in_16_bits = pytest.mark.parametrize("dtype", [BFLOAT, HALF], ids=str)
BLOCKS_OF_8 = {**EXAMPLE["sizes"], "num_blocks": 4, "block_size": 8}


ORDERS = {
    "chunks between single tokens": (BATCH, (torch.Tensor, torch.Tensor)),
    "chunks last": (sorted(BATCH, key=lambda pair: pair[1] > 1), (slice, slice)),
    "chunks only": ([pair for pair in BATCH if pair[1] > 1], ()),
}


@in_16_bits
@on_each_device
@pytest.mark.parametrize("batch, rows", ORDERS.values(), ids=ORDERS)
def test_the_fast_path_is_within_rounding_of_float64(monkeypatch, dtype, device, batch, rows):
    manager, q, _ = scene(device, dtype)
    metadata, parts, part_of = build_metadata(manager, batch), [], paths.part_of
    monkeypatch.setattr(
        paths, "part_of", lambda *arguments: parts.append(part_of(*arguments)) or parts[-1]
    )
    q = q[: len(metadata.slot_mapping)]
    heads_first = q.transpose(0, 1).contiguous().transpose(0, 1)  # as some models have them
    fill_where(manager.kv_cache, PLACES["all of it"](manager), POISONS["NaN"])
    for queries in (q, heads_first):
        compared(metadata)(queries, *manager.kv_cache[0])
    # where no others lie between them, their rows are a view
    assert tuple(type(place) for place, _ in parts[: len(rows)]) == rows
    assert len(parts) == 2 * len(rows)
    for place, part in parts:
        assert torch.equal(part.slot_mapping, metadata.slot_mapping[place])


@in_16_bits
@on_each_device
@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(
    trace=st.lists(actions, min_size=3, max_size=12),
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


@in_16_bits
@pytest.mark.parametrize("poison", [POISONS["NaN"], POISONS["inf"]])
@pytest.mark.parametrize("target", ["fast", "checked"])
def test_a_step_with_chunks_and_single_tokens_on_both_targets(dtype, target, poison):
    path, seen = partial(PATHS["fast"], target=target), []
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


class Plans:
    """PagedPrefill, and how often it was planned and called."""

    def __init__(self, monkeypatch):
        self.planned = self.called = 0
        prefill = paths.PagedPrefill

        def plan(*arguments, **named):
            self.planned += 1
            planned = prefill(*arguments, **named)

            def call(*tensors):
                self.called += 1
                return planned(*tensors)

            return call

        monkeypatch.setattr(paths, "PagedPrefill", plan)


def test_the_chunks_of_a_step_have_one_plan_and_a_launch_in_each_layer(monkeypatch):
    plans, seen = Plans(monkeypatch), []
    monkeypatch.setattr(paths, "attend_one", None)  # no chunk goes by itself
    serve(
        random_model(BFLOAT, "cpu"),
        partial(compared, seen=seen),
        EXAMPLE["trace"],
        BLOCKS_OF_8,
    )
    with_chunks = sum(max(q_lens) > 1 for q_lens in seen)  # in each of two layers
    assert len(seen) > with_chunks > 2
    assert (plans.planned, plans.called) == (with_chunks // 2, with_chunks)


@pytest.mark.parametrize(
    "dtype, head_size, block_size, num_q_heads",
    [(FLOAT, 64, 8, 4), (HALF, 32, 8, 4), (HALF, 64, 4, 4), (HALF, 64, 8, 34)],
    ids=["float32", "heads of 32", "blocks of 4", "17 query heads"],
)
def test_chunks_that_the_kernel_is_not_made_for_go_as_before(
    monkeypatch, dtype, head_size, block_size, num_q_heads
):
    plans = Plans(monkeypatch)
    manager = PagedAttentionManager(9, block_size, 2, head_size, 8, 5, dtype=dtype)
    for name, length in (("prompt", 5), ("chunk", 14)):
        manager.add_sequence(name, length)
    manager.kv_cache.normal_(generator=torch.Generator().manual_seed(0))
    metadata = build_metadata(manager, [("prompt", 5), ("chunk", 7)])
    q = torch.randn(12, num_q_heads, head_size).to(dtype)
    o, gathered = (
        PATHS[path](metadata)(q, *manager.kv_cache[0]) for path in ("fast", "gather")
    )
    assert torch.equal(o, gathered) and plans.planned == 0


@pytest.mark.parametrize(
    "new, kept, expected",
    [
        ([8192], [0], True),
        ([8191], [0], False),
        ([8192], [1], False),
        ([8192, 8192], [0, 0], False),
        ([], [], False),
    ],
)
def test_one_long_whole_prompt(new, kept, expected):
    """new: each sequence's tokens in this step; kept: those in the cache already."""
    kv_lens = torch.tensor([a + b for a, b in zip(new, kept, strict=True)], dtype=torch.int32)
    metadata = SimpleNamespace(cu_seqlens_q=cumulative_lengths(new), seq_lens_kv=kv_lens)
    assert paths.is_one_long_prompt(metadata) == expected


def test_a_long_prompt_on_a_hopper_card_goes_to_pytorch(monkeypatch):
    monkeypatch.setattr(paths, "is_hopper", lambda device: True)
    monkeypatch.setattr(paths, "LONG_PROMPT", 520)
    plans = Plans(monkeypatch)
    manager = PagedAttentionManager(70, 8, 1, 64, 1, 70, dtype=BFLOAT)
    manager.add_sequence("prompt", 520)
    manager.kv_cache.normal_(generator=torch.Generator().manual_seed(0))
    metadata = build_metadata(manager, [("prompt", 520)])
    q = torch.randn(520, 2, 64).to(BFLOAT)
    o, gathered = (
        PATHS[path](metadata)(q, *manager.kv_cache[0]) for path in ("fast", "gather")
    )
    assert torch.equal(o, gathered) and plans.planned == 0


@pytest.fixture(scope="module")
def small_models():
    return {
        device: load_model(device=device)
        for device in ("cpu", "cuda")
        if device == "cpu" or torch.cuda.is_available()
    }


@on_each_device
@pytest.mark.parametrize("path", [path for path in PATHS if path not in FOR_16_BITS])
@by_poison
def test_the_next_request_in_the_same_blocks_answers_as_if_alone(
    small_models, path, device, poison
):
    engine = Engine(small_models[device], path=path, num_blocks=6)
    first = engine.add(
        "first", encode("Ka17..q42...z93?zq>"), SamplingParams(max_new_tokens=20)
    )
    for _ in range(3):
        engine.step()
    blocks = engine.manager.blocks_of("first")
    engine.manager.kv_cache[:, 1, blocks] = poison
    engine.cancel("first")
    engine.prefix_cache.clear()
    others = [
        engine.add(prompt, encode(prompt), SamplingParams(max_new_tokens=8))
        for prompt in ("Cq7b>", "Vabc1>", "Sxqb>")
    ]
    engine.step()
    assert first.reason == "cancelled"
    assert set(blocks) & {
        block_id for other in others for block_id in engine.manager.blocks_of(other.id)
    }
    engine.run()
    assert [decode(other.output) for other in others] == ["q7b$", "1cba$", "bqx$"]


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


@by_poison
@pytest.mark.parametrize("path", ["gather", "paged_torch", "blockwise", "batched"])
def test_poison_is_no_divergence(small_models, path, poison):
    engines = [
        Engine(small_models["cpu"], path=name, num_blocks=8) for name in ("gather", path)
    ]
    poison_the_rest(engines[1], poison)
    assert locate_divergence(*engines, encode("Ka17..q42...z93?zq>"), num_tokens=3) is None
