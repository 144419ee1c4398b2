"""What the checks of arguments let through and what they refuse, at the edges of both."""

import pytest
import torch

from int32 import integers
from paged_attention import validate
from paged_attention.kv_cache import PagedAttentionManager, UnknownSequenceError
from paged_attention.layer import AttentionLayer
from paged_attention.validate import check_tensor
from refused import refused

HALF, FLOAT = torch.float16, torch.float32
CACHE = torch.zeros(3, 4, 2, 8)


def test_a_number_with_a_point_is_no_integer():
    assert validate.as_integer("size", torch.tensor(3)) == 3
    refused(
        TypeError,
        r"size must be an integer, not float: 3\.0",
        validate.as_integer,
        "size",
        3.0,
    )


def test_the_first_size_below_1_is_named():
    validate.check_positive(first=1, second=2)
    refused(
        ValueError,
        "second must be positive, not 0",
        validate.check_positive,
        first=1,
        second=0,
    )
    refused(
        ValueError,
        "first must be positive, not -1",
        validate.check_positive,
        first=-1,
        second=0,
    )


@pytest.mark.parametrize(
    "tensor, shape, dtype, error, words",
    [
        (3, (), None, TypeError, "t must be a tensor, not int"),
        (
            CACHE,
            (3, 4, 2),
            None,
            ValueError,
            r"t must have the shape \(3, 4, 2\), not \(3, 4, 2, 8",
        ),
        (CACHE, (3, 4, 2, 7), None, ValueError, r"shape \(3, 4, 2, 7\), not"),
        (CACHE, (2, "any", 2, 8), FLOAT, ValueError, r"shape \(2, any, 2, 8\), not"),
        (CACHE[0, 0, 0], (7,), None, ValueError, r"shape \(7,\), not \(8,\)"),
        (CACHE[0, 0, 0], ("any", "any"), None, ValueError, r"shape \(any, any\), not \(8,\)"),
        (CACHE, (3, 4, 2, 8), HALF, TypeError, "t must be torch.float16, not torch.float32"),
    ],
)
def test_a_tensor_has_a_shape_and_a_dtype(tensor, shape, dtype, error, words):
    refused(error, words, check_tensor, "t", tensor, shape, dtype)


def test_a_size_may_have_a_name_and_a_dtype_may_be_left_out():
    check_tensor("t", CACHE, (3, "any", 2, "any"))
    check_tensor("t", CACHE, (3, 4, 2, 8), FLOAT)
    check_tensor("t", CACHE[:0], ("any", 4, 2, 8), FLOAT)


def test_both_caches_have_the_same_shape_and_dtype():
    validate.check_caches(CACHE, CACHE.clone())
    for k_cache, v_cache, error, words in (
        (
            CACHE[0],
            CACHE[0],
            ValueError,
            "k_cache must have the shape .num_blocks, block_size",
        ),
        (CACHE, CACHE[:2], ValueError, "v_cache must have the shape"),
        (CACHE, CACHE.half(), TypeError, "v_cache must be torch.float32"),
        (3, CACHE, TypeError, "k_cache must be a tensor"),
    ):
        refused(error, words, validate.check_caches, k_cache, v_cache)


def test_the_first_number_outside_is_named_with_its_place():
    validate.check_range("ids", integers(2, 4), 2, 5, "the ids")
    validate.check_range("ids", integers(), 2, 5, "the ids")
    check = validate.check_range
    refused(
        ValueError,
        r"^ids holds 5 \(entry 1\); the ids are 2 to 4$",
        check,
        "ids",
        integers(4, 5, 1),
        2,
        5,
        "the ids",
    )
    refused(
        ValueError,
        r"^ids holds 1 \(entry 3\)",
        check,
        "ids",
        integers(2, 3, 4, 1).reshape(2, 2),
        2,
        5,
        "the ids",
    )


ROWS = torch.zeros(2, 2, 8)


@pytest.mark.parametrize(
    "changes, error, words",
    [
        (dict(v_cache=CACHE[:2]), ValueError, "v_cache must have the shape"),
        (
            dict(slots=torch.tensor([[0, 1]])),
            ValueError,
            "slots must have the shape .num_tokens",
        ),
        (dict(slots=integers(0, 1)), TypeError, "slots must be torch.int64"),
        (dict(k=ROWS[:1]), ValueError, r"k must have the shape \(2, 2, 8\)"),
        (dict(k=ROWS.half()), TypeError, "k must be torch.float32"),
        (dict(v=ROWS[:, :1]), ValueError, r"v must have the shape \(2, 2, 8\)"),
        (dict(v=ROWS.half()), TypeError, "v must be torch.float32"),
        (dict(slots=torch.tensor([0, 12])), ValueError, r"slots holds 12 .* are 0 to 11"),
        (dict(slots=torch.tensor([-1, 11])), ValueError, r"slots holds -1 \(entry 0\)"),
        (dict(slots=torch.tensor([7, 7])), ValueError, "slots holds 7 more than once"),
    ],
)
def test_what_is_written_fits_its_slots(changes, error, words):
    right = dict(k_cache=CACHE, v_cache=CACHE, slots=torch.tensor([0, 11]), k=ROWS, v=ROWS)
    validate.check_write(**right)
    refused(error, words, validate.check_write, **right | changes)


def test_of_several_slots_the_one_that_is_there_twice_is_named():
    slots, rows = torch.tensor([1, 5, 3, 5, 3]), torch.zeros(5, 2, 8)
    refused(
        ValueError,
        "slots holds 5 more than once",
        validate.check_write,
        CACHE,
        CACHE,
        slots,
        rows,
        rows,
    )


def test_a_batch_names_each_sequence_once():
    validate.check_seq_ids([3])
    validate.check_seq_ids([3, 4])
    refused(ValueError, "the batch is empty", validate.check_seq_ids, [])
    refused(
        ValueError,
        "sequence 4 is named more than once",
        validate.check_seq_ids,
        [3, 4, 5, 4, 3],
    )


@pytest.fixture
def manager():
    """Two layers; sequence 1 has 5 tokens, sequence 2 has none and sequence 3 has 8."""
    made = PagedAttentionManager(8, 4, 2, 8, 4, 3, num_layers=2)
    for seq_id, length in ((1, 5), (2, 0), (3, 8)):
        made.add_sequence(seq_id, length)
    return made


def layer(num_kv_heads=2, head_size=8, index=0):
    return AttentionLayer(16, 4, num_kv_heads, head_size, index=index)


def test_a_layer_has_the_heads_of_the_pool_and_a_part_of_it(manager):
    validate.check_layer(layer(index=0), manager)
    validate.check_layer(layer(index=1), manager)
    for wrong, words in (
        (layer(num_kv_heads=1), "the pool's 2 KV heads of size 8, not 1 of size 8"),
        (layer(head_size=4), "the pool's 2 KV heads of size 8, not 2 of size 4"),
        (layer(index=2), "layers, 0 to 1, not 2"),
        (layer(index=-1), "layers, 0 to 1, not -1"),
    ):
        refused(ValueError, words, validate.check_layer, wrong, manager)


@pytest.mark.parametrize(
    "changes, error, words",
    [
        (dict(seq_ids=[1, 1]), ValueError, "named more than once"),
        (dict(layer=layer(index=2)), ValueError, "layer.index"),
        (dict(request_num_blocks=[2]), ValueError, "each of the 2 sequences, not 1 entries"),
        (
            dict(request_num_blocks=[1, 2]),
            ValueError,
            "sequence 1 1 blocks, and its 5 tokens fill 2",
        ),
        (
            dict(request_num_blocks=[2, 3]),
            ValueError,
            "sequence 3 3 blocks, and its 8 tokens fill 2",
        ),
        (dict(x=torch.zeros(3, 4, 16)), ValueError, r"x must have the shape \(4, 4, 16\)"),
        (dict(x=torch.zeros(4, 3, 16)), ValueError, r"x must have the shape \(4, 4, 16\)"),
        (dict(x=torch.zeros(4, 4, 15)), ValueError, r"x must have the shape \(4, 4, 16\)"),
        (dict(x=torch.zeros(4, 4, 16).half()), TypeError, "x must be torch.float32"),
        (dict(seq_ids=[1, 9]), UnknownSequenceError, "no sequence 9"),
    ],
)
def test_a_prefill_has_the_blocks_of_its_sequences(manager, changes, error, words):
    right = dict(
        layer=layer(), x=torch.zeros(4, 4, 16), request_num_blocks=[2, 2], seq_ids=[1, 3]
    )
    validate.check_prefill(**right, manager=manager)
    refused(error, words, validate.check_prefill, **right | changes, manager=manager)


@pytest.mark.parametrize(
    "changes, error, words",
    [
        (dict(seq_ids=[]), ValueError, "the batch is empty"),
        (dict(layer=layer(index=2)), ValueError, "layer.index"),
        (dict(x=torch.zeros(1, 16)), ValueError, r"x must have the shape \(2, 16\)"),
        (dict(x=torch.zeros(2, 15)), ValueError, r"x must have the shape \(2, 16\)"),
        (dict(x=torch.zeros(2, 16).half()), TypeError, "x must be torch.float32"),
        (dict(seq_ids=[1, 2]), ValueError, "sequence 2 has no token"),
    ],
)
def test_a_decode_is_of_sequences_with_a_token(manager, changes, error, words):
    manager.add_sequence(4, 1)
    right = dict(layer=layer(), x=torch.zeros(2, 16), seq_ids=[1, 4])
    validate.check_decoding(**right, manager=manager)
    refused(error, words, validate.check_decoding, **right | changes, manager=manager)


def test_a_step_has_a_token_of_each_sequence_and_no_more_than_there_are(manager):
    validate.check_scheduled([(1, 1), (3, 8)], manager)
    validate.check_scheduled([(9, 100)])
    check = validate.check_scheduled
    refused(ValueError, "the batch is empty", check, [])
    refused(ValueError, "sequence 1 is scheduled with 0 tokens", check, [(1, 0)])
    refused(ValueError, "sequence 1 is scheduled with -1 tokens", check, [(1, -1)], manager)
    refused(
        ValueError,
        "sequence 3 is scheduled with 9 tokens, and it has 8",
        check,
        [(1, 5), (3, 9)],
        manager,
    )
    refused(TypeError, "float", check, [(1, 1.0)])
