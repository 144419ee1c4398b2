"""Exercise 2.3: keys and values into their slots."""

import math
import random

import torch

from lessons_exercises import tensors
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.slots import write_kv
from paged_attention.validate import check_write


def whole_blocks(k_cache, v_cache, slots, k, v):
    k_cache[slots] = k
    v_cache[slots] = v


def whole_blocks_one_by_one(k_cache, v_cache, slots, k, v):
    for token, slot in enumerate(slots):
        k_cache[slot] = k[token]
        v_cache[slot] = v[token]


def keys_only(k_cache, v_cache, slots, k, v):
    k_cache.view(-1, *k_cache.shape[2:])[slots] = k


def into_a_copy(k_cache, v_cache, slots, k, v):
    k_cache.clone().view(-1, *k_cache.shape[2:])[slots] = k
    v_cache.clone().view(-1, *v_cache.shape[2:])[slots] = v


def into_a_transposed_copy(k_cache, v_cache, slots, k, v):
    k_cache.transpose(0, 1).reshape(-1, *k_cache.shape[2:])[slots] = k
    v_cache.transpose(0, 1).reshape(-1, *v_cache.shape[2:])[slots] = v


def read_at_the_slots(k_cache, v_cache, slots, k, v):
    k_cache.view(-1, *k_cache.shape[2:])[:] = k[slots]
    v_cache.view(-1, *v_cache.shape[2:])[:] = v[slots]


def without_slot_zero(k_cache, v_cache, slots, k, v):
    write_kv(k_cache, v_cache, slots[slots > 0], k[slots > 0], v[slots > 0])


def all_else_wiped(k_cache, v_cache, slots, k, v):
    k_cache.zero_()
    v_cache.zero_()
    write_kv(k_cache, v_cache, slots, k, v)


def in_rows_of_slots(k_cache, v_cache, slots, k, v):
    write_kv(k_cache, v_cache, slots.sort().values, k, v)


def indices_swapped(k_cache, v_cache, slots, k, v):
    block_size = k_cache.shape[1]
    k_cache[slots % block_size, slots // block_size] = k
    v_cache[slots % block_size, slots // block_size] = v


def heads_before_tokens(k_cache, v_cache, slots, k, v):
    for cache, new in ((k_cache, k), (v_cache, v)):
        cache.view(-1, *cache.shape[2:])[slots] = new.transpose(0, 1).reshape(new.shape)


def one_slot_on(k_cache, v_cache, slots, k, v):
    total = k_cache.shape[0] * k_cache.shape[1]
    write_kv(k_cache, v_cache, (slots + 1) % total, k, v)


def side_by_side(k_cache, v_cache, slots, k, v):
    for cache, new in ((k_cache, k), (v_cache, v)):
        if len(slots):
            flat = cache.view(-1, *cache.shape[2:])
            count = min(len(new), len(flat) - int(slots[0]))
            flat[int(slots[0]) : int(slots[0]) + count] = new[:count]


def added(k_cache, v_cache, slots, k, v):
    k_cache.view(-1, *k_cache.shape[2:])[slots] += k
    v_cache.view(-1, *v_cache.shape[2:])[slots] += v


def inputs_changed(k_cache, v_cache, slots, k, v):
    offsets = slots % k_cache.shape[1]
    slots //= k_cache.shape[1]
    k_cache[slots, offsets] = k
    v_cache[slots, offsets] = v


def keys_changed(k_cache, v_cache, slots, k, v):
    write_kv(k_cache, v_cache, slots, k, v)
    k.zero_()


def keys_in_both(k_cache, v_cache, slots, k, v):
    write_kv(k_cache, v_cache, slots, k, k)


def values_in_both(k_cache, v_cache, slots, k, v):
    write_kv(k_cache, v_cache, slots, v, v)


def divided_by(dimension):
    def wrong(k_cache, v_cache, slots, k, v):
        size = k_cache.shape[dimension]
        k_cache[slots // size, slots % size] = k
        v_cache[slots // size, slots % size] = v

    return wrong


def in_rows_of_blocks(k_cache, v_cache, slots, k, v):
    k_cache.view(len(k_cache), -1)[slots] = k.flatten(1)
    v_cache.view(len(v_cache), -1)[slots] = v.flatten(1)


def behind_the_first(k_cache, v_cache, slots, k, v):
    first = slots[0]
    k_cache.view(-1, *k_cache.shape[2:])[first : first + len(k)] = k
    v_cache.view(-1, *v_cache.shape[2:])[first : first + len(v)] = v


def token_by_token(token=lambda index, slot: index, stop=False):
    """One token after the other: which of the new keys, and whether the first one ends it."""

    def wrong(k_cache, v_cache, slots, k, v):
        for index, slot in enumerate(slots.tolist()):
            k_cache.view(-1, *k_cache.shape[2:])[slot] = k[token(index, slot)]
            v_cache.view(-1, *v_cache.shape[2:])[slot] = v[token(index, slot)]
            if stop:
                return

    return wrong


def one_head_only(k_cache, v_cache, slots, k, v):
    k_cache.view(-1, *k_cache.shape[2:])[slots, 0] = k[:, 0]
    v_cache.view(-1, *v_cache.shape[2:])[slots, 0] = v[:, 0]


def both_into_the_keys(k_cache, v_cache, slots, k, v):
    write_kv(k_cache, v_cache.clone(), slots, k, v)
    write_kv(k_cache, v_cache.clone(), slots, v, v)


def viewed(*shape):
    """Writes through a flat view of another shape; "head_size" stands for the caches' own."""

    def wrong(k_cache, v_cache, slots, k, v):
        sizes = [k_cache.shape[3] if size == "head_size" else size for size in shape]
        k_cache.view(*sizes)[slots] = k
        v_cache.view(*sizes)[slots] = v

    return wrong


def number_by_number(k_cache, v_cache, slots, k, v):
    k_cache.view(-1)[slots] = k.flatten()
    v_cache.view(-1)[slots] = v.flatten()


def into_the_first_slots(k_cache, v_cache, slots, k, v):
    write_kv(k_cache, v_cache, torch.arange(len(slots)), k, v)


def unchecked(k_cache, v_cache, slots, k, v):
    k_cache.view(-1, *k_cache.shape[2:])[slots] = k
    v_cache.view(-1, *v_cache.shape[2:])[slots] = v


def checked_after(k_cache, v_cache, slots, k, v):
    unchecked(k_cache, v_cache, slots, k, v)
    check_write(k_cache, v_cache, slots, k, v)


WRONG_ARGUMENTS = {
    "one slot twice": lambda slots, k, v: (torch.full_like(slots, int(slots[0])), k, v),
    "a slot below 0": lambda slots, k, v: (slots - int(slots[0]) - 1, k, v),
    "values of another dtype": lambda slots, k, v: (slots, k, v.double()),
}
# (num_blocks, block_size, num_kv_heads, head_size, slots), and perhaps what is wrong with the
# arguments
CASES = [
    (2, 2, 1, 1, [0]),
    (2, 2, 1, 1, [3]),
    (2, 2, 2, 3, [1]),
    (2, 2, 2, 3, []),
    (3, 2, 1, 2, [4, 1]),
    (3, 2, 2, 2, [2, 3]),
    (3, 4, 2, 2, [5, 2]),
    (4, 3, 3, 2, [7, 8, 0]),
    (4, 3, 2, 4, [11, 3, 4, 9, 10]),
    (3, 1, 2, 2, [2, 0]),
    (5, 16, 7, 8, [79, 16, 17]),
    *((3, 2, 2, 2, [4, 1], flaw) for flaw in WRONG_ARGUMENTS),
]


def hidden(seed):
    chance = random.Random(seed)
    for num_tokens in (1, 1, 2, 2, 3, 4, 5, 6, 7, 9):
        num_blocks, block_size = chance.randint(3, 6), chance.randint(3, 6)
        slots = chance.sample(range(num_blocks * block_size), num_tokens)
        yield num_blocks, block_size, chance.randint(1, 4), chance.randint(1, 8), slots
    for flaw in WRONG_ARGUMENTS:
        yield 4, 3, 2, chance.randint(2, 8), chance.sample(range(12), 2), flaw


def observe(answer, case):
    num_blocks, block_size, num_kv_heads, head_size, slots, *flaw = case
    pool = torch.arange(2.0 * num_blocks * block_size * num_kv_heads * head_size)
    k_cache, v_cache = pool.view(2, num_blocks, block_size, num_kv_heads, head_size)
    k = -1.0 - torch.arange(float(len(slots) * num_kv_heads * head_size)).view(
        len(slots), num_kv_heads, head_size
    )
    slots, v = torch.tensor(slots, dtype=torch.int64), k - 1000.0
    if flaw:
        return _refusal(answer, k_cache, v_cache, *WRONG_ARGUMENTS[flaw[0]](slots, k, v))
    given = {"slots afterwards": slots, "k afterwards": k, "v afterwards": v}
    answer(k_cache, v_cache, slots, k, v)
    return (
        tensors.Values(k_cache.clone(), "k_cache"),
        tensors.Values(v_cache.clone(), "v_cache"),
        *(tensors.Values(tensor.clone(), name) for name, tensor in given.items()),
    )


def _refusal(answer, k_cache, v_cache, slots, k, v):
    """Whether wrong arguments are refused, and the caches are as they were."""
    before = k_cache.clone(), v_cache.clone()
    try:
        answer(k_cache, v_cache, slots, k, v)
        ending = "no error"
    except NotImplementedError:
        raise
    except (TypeError, ValueError):
        ending = "ValueError or TypeError"
    except Exception as error:
        ending = type(error).__name__
    written = not (torch.equal(k_cache, before[0]) and torch.equal(v_cache, before[1]))
    return Text(f"{ending}, {'something' if written else 'nothing'} written")


def describe(case):
    num_blocks, block_size, num_kv_heads, head_size, slots, *flaw = case
    if flaw:
        return (
            f"k_cache {(num_blocks, block_size, num_kv_heads, head_size)}; "
            f"wrong arguments: {flaw[0]}"
        )
    return (
        f"k_cache {(num_blocks, block_size, num_kv_heads, head_size)}, slots {slots}; "
        "old numbers are 0 or more, new keys -1 and below, new values -1001 and below"
    )


EXERCISE = Exercise(
    id="2.3",
    title="write keys and values",
    answer_name="write_kv",
    reference=write_kv,
    cases=lambda: CASES,
    size=lambda case: (len(case[4]), math.prod(case[:4])),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    # whether the arguments are checked has nothing to do with what is written
    chancy=lambda case: len(case) > 5,
    mistakes=(
        Mistake(
            "write-selects-whole-blocks",
            "`k_cache[slots]` takes a slot for a block id: the first dimension of the cache "
            "counts blocks. So whole blocks are written, or ones that do not exist. "
            "Look at the cache in a shape whose first dimension counts slots.",
            whole_blocks,
            also=(whole_blocks_one_by_one, in_rows_of_blocks),
        ),
        Mistake(
            "keys-only", "The keys are in place, and the values were not written.", keys_only
        ),
        Mistake(
            "kv-swapped",
            "The keys stand where the values belong, and the values where the keys belong.",
            lambda k_cache, v_cache, slots, k, v: write_kv(k_cache, v_cache, slots, v, k),
        ),
        Mistake(
            "writes-into-a-copy",
            "The caches are as they were: you wrote into a copy. `view` shows the same "
            "memory in another shape; `clone`, `contiguous` or `reshape` may copy it.",
            into_a_copy,
            also=(into_a_transposed_copy,),
        ),
        Mistake(
            "slots-sorted",
            "Token i goes into slots[i]. "
            "Your tokens are in the order of the slots, which need not rise.",
            in_rows_of_slots,
        ),
        Mistake(
            "slots-assumed-contiguous",
            "Only the first token is sure to be in its place: "
            "you write the others behind it. Each token has a slot of its own.",
            side_by_side,
            also=(behind_the_first,),
        ),
        Mistake(
            "slot-for-token",
            "You take the slot for the number of the token too. "
            "k and v hold the new tokens only: entry i belongs to slots[i].",
            token_by_token(lambda index, slot: slot),
        ),
        Mistake(
            "returns-inside-the-loop",
            "Only the first token is written: the function ends inside its loop.",
            token_by_token(stop=True),
        ),
        Mistake(
            "first-head-only",
            "Only the first head of each token is written. A slot holds all heads.",
            one_head_only,
        ),
        Mistake(
            "both-into-the-keys",
            "The values went into k_cache, over the keys, and v_cache is as it was. "
            "Which cache does each view look at?",
            both_into_the_keys,
        ),
        Mistake(
            "block-and-offset-swapped",
            "Block and offset have changed places: "
            "the slot divided by block_size is the block, the remainder is the offset.",
            indices_swapped,
        ),
        Mistake(
            "heads-scrambled",
            "Heads and tokens are mixed up: the numbers were transposed on their way. "
            "k has the shape (num_tokens, num_kv_heads, head_size), "
            "which is that of the slots already.",
            heads_before_tokens,
        ),
        Mistake(
            "reads-at-the-slots",
            "`slots` indexes k and v, and all of the cache is written. "
            "Slots are places in the cache: entry i of k goes to slots[i] there.",
            read_at_the_slots,
        ),
        Mistake(
            "slot-zero-forgotten",
            "The token of slot 0 is not written. Slot 0 is a slot like the others.",
            without_slot_zero,
        ),
        Mistake(
            "all-else-wiped",
            "The new numbers are in place, and all else in the caches is 0. "
            "The other slots hold tokens that are still read.",
            all_else_wiped,
        ),
        Mistake(
            "slot-off-by-one",
            "Every token is one slot too far. Slots count from 0.",
            one_slot_on,
        ),
        Mistake(
            "inputs-changed",
            "The caches are right, and the slots, "
            "the keys or the values that were handed in are not what they were.",
            inputs_changed,
            also=(keys_changed,),
        ),
        Mistake(
            "added-to-old",
            "The new numbers were added to what was there. "
            "A slot may hold an earlier sequence's numbers; they are replaced.",
            added,
        ),
        Mistake(
            "keys-in-both",
            "Both halves hold the same: the keys, or the values, went into both. "
            "A slip of the copy, perhaps.",
            keys_in_both,
            also=(values_in_both,),
        ),
        Mistake(
            "divided-by-another-size",
            "The slot is divided by another size than block_size, "
            "which is the second dimension of the cache.",
            divided_by(0),
            also=(divided_by(2), divided_by(3)),
        ),
        Mistake(
            "one-head-in-the-view",
            "Your flat view has one head in each slot, as the cache in the example above. "
            "Each slot holds num_kv_heads heads of head_size numbers.",
            viewed(-1, 1, "head_size"),
            also=(viewed(-1, 1, 2),),
        ),
        Mistake(
            "numbers-for-slots",
            "The first dimension of your view counts single numbers. "
            "It has to count slots, with the heads and their numbers behind it.",
            viewed(-1),
            also=(viewed(-1, "head_size"), number_by_number),
        ),
        Mistake(
            "slots-ignored",
            "The tokens went into the first slots of the pool, whatever `slots` says.",
            into_the_first_slots,
        ),
        Mistake(
            "arguments-unchecked",
            "What is written is right, and wrong arguments are not refused. "
            "`check_write` does that; call it before anything is written.",
            unchecked,
        ),
        Mistake(
            "checked-after-writing",
            "Wrong arguments are refused when something has been written already. "
            "Check first.",
            checked_after,
        ),
    ),
    hints=(
        (
            "In which shape does the cache have one row for each slot? "
            "No number moves for that: `view` is enough."
        ),
        "`tensor[indices] = rows` writes row i to place indices[i].",
    ),
)
