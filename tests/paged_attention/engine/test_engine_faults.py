"""Each planted fault is the one that its name says, and nothing else; and it is found."""

import numpy as np
import pytest
import torch

from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.divergence import locate_divergence
from paged_attention.engine.engine import Engine
from paged_attention.engine.faults import FAULTS, fill_with_leftovers, plant
from paged_attention.engine.paths import CPU_ONLY, PATHS
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.tasks import encode, recall

pytestmark = pytest.mark.usefixtures("one_thread")


def engine():
    return Engine(load_model(), path="gather", block_size=8, num_blocks=12, max_num_seqs=2)


def test_leftovers_are_whole_blocks_of_the_prompts():
    filled, prompt = engine(), list(range(2, 17))
    fill_with_leftovers(filled, [prompt])
    blocks = filled.manager.kv_cache.transpose(0, 2).flatten(1)
    assert blocks.isfinite().all() and len(blocks.unique(dim=0)) == 1  # 15 tokens fill one
    assert filled.manager.block_manager.get_num_free_blocks() == 12
    assert not filled.prefix_cache.blocks
    own = engine()
    own.generate([prompt], SamplingParams(max_new_tokens=1))
    own_blocks = own.manager.kv_cache.transpose(0, 2).flatten(1)
    assert any(torch.equal(blocks[0], each) for each in own_blocks)


def test_an_engine_at_work_keeps_what_it_has():
    busy = engine()
    busy.add("a", [1, 2, 3], SamplingParams(max_new_tokens=4))
    busy.step()
    before = busy.manager.kv_cache.clone()
    with pytest.raises(ValueError, match="the engine has requests"):
        fill_with_leftovers(busy, [[1, 2]])
    assert torch.equal(busy.manager.kv_cache, before)


# Where it is found


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def model(request):
    return load_model(device=request.param)


@pytest.mark.parametrize("path", sorted(PATHS.keys() - {"gather", "fast", "fused"}))
def test_paths_that_agree_never_part(model, path):
    if path in CPU_ONLY and model.device.type != "cpu":
        pytest.skip(f"path {path} is for a CPU")
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
    def path(metadata):
        tables.append(metadata.block_table[0].tolist())
        return PATHS["paged_torch"](metadata)

    tables, engines = [], [Engine(model, path=path, block_size=8) for _ in range(2)]
    plant(engines[1], "full blocks permuted")
    prompt = encode(recall(np.random.default_rng(5), 0.4)[0])
    assert locate_divergence(*engines, prompt) is None
    assert any(table[0] > table[1] for table in tables)  # the last blocks come first


def test_only_steps_of_single_tokens_visit_their_full_blocks_in_reverse_order(model):
    def path(metadata):
        seen.append((metadata.cu_seqlens_q.diff().tolist(), metadata.block_table.tolist()))
        return PATHS["paged_torch"](metadata)

    seen, tables = [], []
    for fault in (False, True):
        own = Engine(model, path=path, block_size=8, num_blocks=12, max_num_seqs=2)
        if fault:
            plant(own, "full blocks permuted")
        own.add("long", list(range(2, 19)), SamplingParams(max_new_tokens=3, ignore_end=True))
        own.step()
        own.add("new", [5] * 20, SamplingParams(max_new_tokens=1))  # beside a single token
        own.step()
        own.run()
        tables.append(seen[1][1])
        assert seen[1][0] == [1, 20]
        seen.clear()
    (long, new), (of_long, of_new) = tables
    assert of_long == [long[1], long[0], *long[2:]] and of_new == new


def test_an_engine_at_work_is_refused(model):
    engines = [Engine(model, path="gather", num_blocks=20) for _ in range(2)]
    engines[1].add("a", [1, 2])
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
