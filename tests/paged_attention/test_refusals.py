"""What the pool and the steps of a layer refuse: by name, and nothing is changed."""

from functools import partial

import pytest
import torch

from int32 import integers
from manager_state import state_of
from paged_attention.attention.by_request import forward_prefill
from paged_attention.attention.decode import forward_decoding, forward_decoding_loop
from paged_attention.attention.layer import AttentionLayer
from paged_attention.attention.metadata import build_metadata
from paged_attention.engine.fast import reserve_blocks
from paged_attention.pool.block_manager import OutOfBlocksError
from paged_attention.pool.kv_cache import (
    DuplicateSequenceError,
    OutOfRowsError,
    PagedAttentionManager,
    SequenceTooLongError,
    UnknownSequenceError,
)
from paged_attention.pool.slots import write_kv
from refused import refused

SIZES = dict(
    num_blocks=7,
    block_size=4,
    num_kv_heads=2,
    head_size=8,
    max_num_seqs=5,
    max_blocks_per_seq=3,
    num_layers=2,
)


@pytest.fixture
def manager():
    """Sequence 1 has 5 tokens, sequence 2 has none, 3 has 8 and 4 has 1. 2 blocks are free."""
    made = PagedAttentionManager(**SIZES)
    made.kv_cache.fill_(torch.nan)
    for seq_id, length in ((1, 5), (2, 0), (3, 8), (4, 1)):
        made.add_sequence(seq_id, length)
    return made


@pytest.mark.parametrize("name", SIZES)
def test_a_size_below_one_is_named(name):
    words = f"{name} must be positive, not 0"
    refused(ValueError, words, PagedAttentionManager, **SIZES | {name: 0})


# The manager's methods


@pytest.mark.parametrize(
    "name, arguments, error, words",
    [
        ("add_sequence", (1, 1), DuplicateSequenceError, "sequence 1 exists already"),
        ("add_sequence", (7, -3), ValueError, "num_tokens must be 0 or more, not -3"),
        ("add_sequence", (7, 2.5), TypeError, "float"),
        ("add_sequence", (7, None), TypeError, "NoneType"),
        ("add_sequence", (7, 2**70), SequenceTooLongError, f"{2**70} tokens need"),
        ("add_sequence", (7, 13), SequenceTooLongError, "13 tokens need 4 blocks of 4"),
        ("add_sequence", (7, 12), OutOfBlocksError, "needs 3 blocks, and 2 are free"),
        ("append_token", (7,), UnknownSequenceError, r"no sequence 7; the.*\[1, 2, 3, 4\]"),
        ("fork_sequence", (7, 8), UnknownSequenceError, "no sequence 7"),
        ("fork_sequence", (1, 1), DuplicateSequenceError, "sequence 1 exists"),
        ("free_sequence", (7,), UnknownSequenceError, "no sequence 7"),
        ("get_block_table_for_seq", (7,), UnknownSequenceError, "no sequence 7"),
    ],
)
def test_what_the_manager_cannot_do_is_refused(manager, name, arguments, error, words):
    before = state_of(manager)
    refused(error, words, getattr(manager, name), *arguments)
    assert state_of(manager) == before


def test_a_sequence_needs_a_row_of_its_own(manager):
    manager.add_sequence(5, 0)
    before = state_of(manager)
    for call in (partial(manager.add_sequence, 6, 0), partial(manager.fork_sequence, 1, 6)):
        refused(OutOfRowsError, "all 5 rows of the block table are in use", call)
    assert state_of(manager) == before


@pytest.mark.parametrize(
    "call", [PagedAttentionManager.append_tokens, reserve_blocks.append_tokens, build_metadata]
)
@pytest.mark.parametrize(
    "scheduled, error, words",
    [
        ([], ValueError, "the batch is empty.*at least one"),
        ([(1, 1), (3, 1), (1, 2)], ValueError, "sequence 1 is named more than once"),
        ([(1, 1), (3, 0)], ValueError, "sequence 3 is scheduled with 0 tokens; it must be 1"),
        ([(1, -2)], ValueError, "sequence 1 is scheduled with -2 tokens"),
        ([(1, 1), (3, 0.5)], TypeError, "float"),
        ([(7, 1)], UnknownSequenceError, r"no sequence 7; .*\[1, 2, 3, 4\]"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(manager, call, scheduled, error, words):
    before = state_of(manager)
    refused(error, words, call, manager, scheduled)
    assert state_of(manager) == before


def test_metadata_is_of_tokens_that_are_there(manager):
    words = "sequence 3 is scheduled with 9 tokens, and it has 8"
    refused(ValueError, words, build_metadata, manager, [(1, 5), (3, 9)])


def test_a_batch_that_runs_out_in_the_middle_leaves_every_sequence_as_it_was(manager):
    manager.append_tokens([(1, 3)])
    before = state_of(manager)
    words = "the batch needs 3 blocks, and 2 are free"
    refused(OutOfBlocksError, words, manager.append_tokens, [(1, 1), (2, 1), (4, 4)])
    words = "sequence 2 needs 3 blocks, and 2 are free"
    refused(OutOfBlocksError, words, reserve_blocks.append_tokens, manager, [(2, 12)])
    assert state_of(manager) == before


# Writing keys and values


POOL = torch.zeros(3, 4, 2, 8)
ROWS = torch.ones(2, 2, 8)


@pytest.mark.parametrize(
    "name, value, error, words",
    [
        ("slots", integers(0, 1), TypeError, "slots must be torch.int64, not torch.int32"),
        ("slots", torch.tensor([[0, 1]]), ValueError, "slots must have the shape .num_tokens"),
        ("slots", torch.tensor([0, -1]), ValueError, r"slots holds -1 \(entry 1\).* 0 to 11"),
        ("slots", torch.tensor([12, 1]), ValueError, r"slots holds 12 \(entry 0\).* 0 to 11"),
        ("slots", torch.tensor([7, 7]), ValueError, "slots holds 7 more than once"),
        ("k", ROWS[:1], ValueError, r"k must have the shape \(2, 2, 8\), not \(1, 2, 8\)"),
        ("k", ROWS.half(), TypeError, "k must be torch.float32, not torch.float16"),
        ("v", ROWS[:, :1], ValueError, r"v must have the shape \(2, 2, 8\)"),
        ("v", ROWS.half(), TypeError, "v must be torch.float32"),
        ("v", [1.0], TypeError, "v must be a tensor, not list"),
        ("v_cache", POOL[:2], ValueError, r"v_cache must have the shape \(3, 4, 2, 8\)"),
        ("k_cache", POOL[0], ValueError, "k_cache must have the shape .num_blocks"),
    ],
)
def test_what_does_not_fit_its_slots_is_not_written(name, value, error, words):
    caches = dict(k_cache=POOL.clone(), v_cache=POOL.clone())
    right = caches | dict(slots=torch.tensor([0, 11]), k=ROWS, v=ROWS)
    refused(error, words, write_kv, **right | {name: value})
    assert not any(cache.any() for cache in caches.values())
    write_kv(**right)


def test_of_several_slots_the_one_that_is_there_twice_is_named():
    caches, rows = torch.zeros(2, 3, 4, 2, 8), torch.ones(2, 5, 2, 8)
    slots = torch.tensor([1, 5, 3, 5, 3])
    refused(ValueError, "slots holds 5 more than once", write_kv, *caches, slots, *rows)
    assert not caches.any()


# The steps of a layer


def layer(num_kv_heads=2, head_size=8, index=1):
    return AttentionLayer(16, 6, num_kv_heads, head_size, index=index)


X = torch.zeros(4, 4, 16)
BOTH = [  # of forward_prefill and of forward_decoding
    (dict(layer=layer(num_kv_heads=1)), ValueError, "2 KV heads of size 8, not 1 of size 8"),
    (dict(layer=layer(head_size=4)), ValueError, "2 KV heads of size 8, not 2 of size 4"),
    (dict(layer=layer(index=2)), ValueError, "layer.index .* layers, 0 to 1, not 2"),
    (dict(layer=layer(index=-1)), ValueError, "layers, 0 to 1, not -1"),
    (dict(x=[1.0]), TypeError, "x must be a tensor, not list"),
    (dict(seq_ids=[1, 1]), ValueError, "sequence 1 is named more than once"),
    (dict(seq_ids=[1, 9]), UnknownSequenceError, "no sequence 9"),
]
PREFILL = [
    *BOTH,
    (dict(x=X.double()), TypeError, "x must be torch.float32, not torch.float64"),
    (dict(x=X[1:]), ValueError, r"x must have the shape \(4, 4, 16\), not \(3, 4, 16\)"),
    (dict(x=X[:, 1:]), ValueError, r"x must have the shape \(4, 4, 16\), not \(4, 3, 16\)"),
    (dict(x=X[..., 1:]), ValueError, r"x must have the shape \(4, 4, 16\), not \(4, 4, 15\)"),
    (dict(x=X.flatten(0, 1)), ValueError, r"the shape \(4, 4, 16\), not \(16, 16\)"),
    (dict(request_num_blocks=[4]), ValueError, "each of the 2 sequences, not 1 entries"),
    (dict(request_num_blocks=[1, 3]), ValueError, "1 1 blocks, and its 5 tokens fill 2"),
    (dict(request_num_blocks=[2, 3]), ValueError, "3 3 blocks, and its 8 tokens fill 2"),
    (dict(seq_ids=[], request_num_blocks=[], x=X[:0]), ValueError, "the batch is empty"),
]
DECODING = [
    *BOTH,
    (dict(x=X[0, :2].double()), TypeError, "x must be torch.float32, not torch.float64"),
    (dict(x=X[0, :1]), ValueError, r"x must have the shape \(2, 16\), not \(1, 16\)"),
    (dict(x=X[0, :2, 1:]), ValueError, r"x must have the shape \(2, 16\), not \(2, 15\)"),
    (dict(x=X[:2, :1]), ValueError, r"x must have the shape \(2, 16\), not \(2, 1, 16\)"),
    (dict(seq_ids=[1, 2]), ValueError, "sequence 2 has no token; append"),
    (dict(seq_ids=[], x=X[0, :0]), ValueError, "the batch is empty"),
]
STEPS = [
    *((forward_prefill, *row) for row in PREFILL),
    *((form, *row) for form in (forward_decoding, forward_decoding_loop) for row in DECODING),
]


@pytest.mark.parametrize(
    "step, changes, error, words",
    STEPS,
    ids=[f"{step.__name__}-{words[:30]}" for step, _, _, words in STEPS],
)
def test_a_step_that_does_not_fit_its_pool_is_refused(manager, step, changes, error, words):
    right = dict(layer=layer(), manager=manager)
    if step is forward_prefill:
        right |= dict(x=X, request_num_blocks=[2, 2], seq_ids=[1, 3])
    else:
        right |= dict(x=X[0, :2], seq_ids=[1, 4])
    before = state_of(manager)
    refused(error, words, step, **right | changes)
    assert state_of(manager) == before
    step(**right)


@pytest.mark.parametrize("num_q_heads, num_kv_heads", [(3, 2), (2, 0), (2, -1)])
def test_a_layer_whose_heads_do_not_divide_is_refused(num_q_heads, num_kv_heads):
    words = f"multiple of num_kv_heads, not {num_q_heads} with {num_kv_heads}"
    refused(ValueError, words, AttentionLayer, 6, num_q_heads, num_kv_heads, 3)
