"""Exercise 2.2: from positions in a sequence to slots in the pool."""

import random

import torch

from lessons_exercises import tensors
from lessons_lib.checks import Exercise, Mistake
from paged_attention.slots import slot_mapping


def observe(answer, case):
    block_size, blocks, positions, spare = case
    block_ids = torch.tensor(blocks + [-1] * spare, dtype=torch.int32)
    positions = torch.tensor(positions, dtype=torch.int64)
    result = tensors.values(answer(block_ids, positions, block_size))
    return (
        result,
        tensors.Values(block_ids, "block_ids afterwards"),
        tensors.Values(positions, "positions afterwards"),
    )


def in_place(block_ids, positions, block_size):
    blocks = block_ids[positions // block_size].long()
    positions %= block_size
    positions += blocks * block_size
    return positions.clone()


def offsets_left(block_ids, positions, block_size):
    blocks = block_ids[positions // block_size].long()
    positions %= block_size
    return blocks * block_size + positions


def padding_overwritten(block_ids, positions, block_size):
    block_ids[block_ids == -1] = 0
    return slot_mapping(block_ids, positions, block_size)


def row_multiplied(block_ids, positions, block_size):
    block_ids *= block_size
    return block_ids[positions // block_size].long() + positions % block_size


def made_from_a_list(block_ids, positions, block_size):
    return torch.tensor(
        slot_mapping(block_ids, positions, block_size).tolist(), dtype=torch.int32
    )


def all_from_the_first(block_ids, positions, block_size):
    every = block_ids.long()[:, None] * block_size + torch.arange(block_size)
    return every.flatten()[: len(positions)]


def with_block_size(assumed):
    return lambda block_ids, positions, block_size: slot_mapping(block_ids, positions, assumed)


def one_by_one(join):
    """Our slots, each computed alone and joined by `join`, which may fail for none."""

    def wrong(block_ids, positions, block_size):
        return join(
            [slot_mapping(block_ids, position[None], block_size)[0] for position in positions]
        )

    return wrong


def looked_up(entries, offsets=lambda positions, block_size: positions % block_size):
    """Block id times block size plus offset, with other entries or other offsets."""

    def wrong(block_ids, positions, block_size):
        return block_ids[entries(positions, block_size)].long() * block_size + offsets(
            positions, block_size
        )

    return wrong


def changed_before_use(block_ids, positions, block_size):
    positions %= block_size
    return block_ids[positions // block_size].long() * block_size + positions


def without_block_zero(block_ids, positions, block_size):
    return slot_mapping(block_ids[block_ids > 0], positions, block_size)


def describe(case):
    block_size, blocks, positions, spare = case
    return f"block_ids {blocks + [-1] * spare}, positions {positions}, block_size {block_size}"


# (block size, the sequence's blocks, positions, entries of -1 behind them)
CASES = [
    (2, [0], [0], 0),
    (2, [3], [0], 1),
    (2, [3], [1], 1),
    (2, [3], [0, 1], 1),
    (2, [3, 1], [1, 2], 0),
    (2, [3, 1], [2, 3], 2),
    (4, [5, 0, 2], [0, 4, 8], 1),
    (4, [5, 0, 2], [11], 0),
    (4, [5, 0, 2], [7, 3, 0], 1),
    (3, [4, 7, 1], list(range(9)), 0),
    (1, [6, 2, 4], [0, 1, 2], 1),
    (16, [9, 3], [15, 16, 31], 6),
    (2, [3, 1], [], 0),
    (16, [2**30 + 7, 200_000_000], [3, 30], 0),
]


def hidden(seed):
    """Any positions in any order; none; one pool whose slots do not fit into 32 bits."""
    chance = random.Random(seed)
    for number in range(12):
        block_size, length = chance.randint(1, 20), chance.randint(1, 6)
        blocks = chance.sample(range(2 * length), length)
        num_tokens = block_size * length
        yield (
            block_size,
            blocks,
            chance.sample(range(num_tokens), chance.randint(1, min(num_tokens, 9))),
            number % 3,
        )
    yield chance.randint(2, 20), chance.sample(range(9), 3), [], 2
    yield (
        16,
        [chance.randrange(2**28, 2**31) for _ in range(3)],
        [chance.randrange(16), chance.randrange(16, 48)],
        1,
    )


EXERCISE = Exercise(
    id="2.2",
    title="slots",
    answer_name="slot_mapping",
    reference=slot_mapping,
    cases=lambda: CASES,
    size=lambda case: (len(case[2]), len(case[1]) + case[3], case[0], max(case[1])),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    mistakes=(
        Mistake(
            "logical-for-physical",
            "You use the number of the block within the sequence. "
            "Where that block lies in the pool, the block table says.",
            lambda block_ids, positions, block_size: positions,
        ),
        Mistake(
            "pages-assumed-contiguous",
            "You look up the first block and count on from there. A sequence's blocks need "
            "not lie side by side: each position's own block has to be looked up.",
            lambda block_ids, positions, block_size: (
                block_ids[:1].long() * block_size + positions
            ),
        ),
        Mistake(
            "position-for-offset",
            "You add the whole position to the start of the block. "
            "Within its block a token is at an offset that begins at 0 again in each block.",
            lambda block_ids, positions, block_size: (
                block_ids[positions // block_size].long() * block_size + positions
            ),
        ),
        Mistake(
            "block-not-multiplied",
            "Your slot is the block id plus the offset. "
            "A block of block_size tokens takes up as many slots.",
            lambda block_ids, positions, block_size: (
                block_ids[positions // block_size].long() + positions % block_size
            ),
        ),
        Mistake(
            "offset-forgotten",
            "All tokens of a block get its first slot. Each has an offset of its own.",
            lambda block_ids, positions, block_size: (
                block_ids[positions // block_size].long() * block_size
            ),
        ),
        Mistake(
            "blocks-for-slots",
            "These are the block ids of the tokens. "
            "A slot is a place for one token: the block's first slot and the offset in it.",
            lambda block_ids, positions, block_size: block_ids[positions // block_size].long(),
        ),
        Mistake(
            "block-boundary-off-by-one",
            "You count positions from 1. "
            "The token at position block_size is the first of the second block.",
            lambda block_ids, positions, block_size: (
                block_ids[(positions - 1).clamp(min=0) // block_size].long() * block_size
                + (positions - 1) % block_size
            ),
            also=(
                lambda block_ids, positions, block_size: (
                    block_ids[(positions - 1) // block_size].long() * block_size
                    + (positions - 1) % block_size
                ),
                looked_up(
                    lambda positions, block_size: positions // block_size,
                    lambda positions, block_size: (positions - 1) % block_size,
                ),
            ),
        ),
        Mistake(
            "divided-by-the-wrong-size",
            "Quotient and remainder have changed places: the quotient of position "
            "and block_size is the block, the remainder is the offset.",
            lambda block_ids, positions, block_size: (
                block_ids[(positions % block_size).clamp(max=len(block_ids) - 1)].long()
                * block_size
                + positions // block_size
            ),
            also=(
                lambda block_ids, positions, block_size: (
                    block_ids[positions % block_size].long() * block_size
                    + positions // block_size
                ),
            ),
        ),
        Mistake(
            "rounds-to-nearest",
            "You round to the nearest entry, so the second half of a block is looked up "
            "in the next one. A position belongs to the block that it has begun.",
            looked_up(lambda positions, block_size: (positions / block_size).round().long()),
        ),
        Mistake(
            "float-index",
            "`/` gives a float tensor, and a float is no index. "
            "Two integers divide with `//`.",
            looked_up(lambda positions, block_size: positions / block_size),
        ),
        Mistake(
            "row-length-for-block-size",
            "You multiply the block id by the length of the row. "
            "A block takes up block_size slots; how many entries the row has does not matter.",
            lambda block_ids, positions, block_size: (
                block_ids[positions // block_size].long() * len(block_ids)
                + positions % block_size
            ),
        ),
        Mistake(
            "offset-multiplied",
            "You add the offset to block_size before you multiply. "
            "The block id is multiplied by block_size alone.",
            lambda block_ids, positions, block_size: (
                block_ids[positions // block_size].long()
                * (block_size + positions % block_size)
            ),
        ),
        Mistake(
            "block-zero-forgotten",
            "You leave out the entries of 0, and look up in a shorter row. "
            "0 is a block like the others; an entry without a block is -1.",
            without_block_zero,
        ),
        Mistake(
            "column-for-row",
            "The slots are right, in the shape (num_tokens, 1). "
            "The docstring asks for (num_tokens,).",
            lambda block_ids, positions, block_size: slot_mapping(
                block_ids, positions, block_size
            )[:, None],
        ),
        Mistake(
            "changed-before-use",
            "`%=` changed the positions, and then you divide what is left of them: "
            "every token is looked up in the first block. "
            "`positions % block_size` makes a new tensor.",
            changed_before_use,
        ),
        Mistake(
            "position-for-index",
            "You look up the table's entry number `position`. "
            "An entry stands for a whole block of tokens.",
            lambda block_ids, positions, block_size: (
                block_ids[positions].long() * block_size + positions % block_size
            ),
        ),
        Mistake(
            "inputs-changed",
            "The slots are right, and one of the arguments is not what it was. `+=` and `%=` "
            "change a tensor in place, and the row is part of the block table itself.",
            in_place,
            also=(padding_overwritten, offsets_left, row_multiplied),
        ),
        Mistake(
            "empty-is-float",
            "For no positions your tensor is float32, PyTorch's choice for an empty list. "
            "Say the dtype.",
            lambda block_ids, positions, block_size: (
                slot_mapping(block_ids, positions, block_size)
                if len(positions)
                else torch.tensor([])
            ),
        ),
        Mistake(
            "nothing-to-join",
            "For no positions your function fails: `torch.stack` and `torch.cat` need "
            "at least one tensor. A step may have no token of a sequence.",
            one_by_one(torch.stack),
            also=(one_by_one(lambda slots: torch.cat([slot[None] for slot in slots])),),
        ),
        Mistake(
            "float-slots",
            "Your slots were floats on their way. "
            "A float32 has 24 bits for its digits, so large slots are rounded.",
            lambda block_ids, positions, block_size: (
                block_ids[positions // block_size].float() * block_size
                + positions % block_size
            ).long(),
            also=(
                lambda block_ids, positions, block_size: (
                    (block_ids[positions // block_size].float() * block_size).long()
                    + positions % block_size
                ),
            ),
        ),
        Mistake(
            "slots-int32",
            "Your slots are int32, and the docstring asks for int64. "
            "A kernel multiplies a slot by heads and head_size to find an address, "
            "and in a large pool int32 is too small for that.",
            lambda block_ids, positions, block_size: (
                block_ids[positions // block_size] * block_size + positions % block_size
            ).int(),
            also=(made_from_a_list,),
        ),
        Mistake(
            "overflows-int32",
            "The product was computed in int32, the type of the block table, "
            "and ran over its end. Change the type before you multiply, not after.",
            lambda block_ids, positions, block_size: (
                (block_ids[positions // block_size] * block_size).long()
                + positions % block_size
            ),
        ),
        Mistake(
            "positions-assumed-from-zero",
            "You take the positions for 0, 1, 2, … A call may ask for any of them, "
            "in any order.",
            all_from_the_first,
            also=(
                lambda block_ids, positions, block_size: (
                    block_ids[positions // block_size].long() * block_size
                    + torch.arange(len(positions)) % block_size
                ),
            ),
        ),
        Mistake(
            "slots-sorted",
            "Your slots are in rising order. Slot i belongs to positions[i].",
            lambda block_ids, positions, block_size: (
                slot_mapping(block_ids, positions, block_size).sort().values
            ),
        ),
        Mistake(
            "positions-sorted",
            "You sort the positions first. "
            "Slot i belongs to positions[i], in the order in which they were given.",
            lambda block_ids, positions, block_size: slot_mapping(
                block_ids, positions.sort().values, block_size
            ),
            also=(
                lambda block_ids, positions, block_size: slot_mapping(
                    block_ids, positions.unique(), block_size
                ),
            ),
        ),
        Mistake(
            "entry-too-early",
            "You look one entry too early in the block table. "
            "The entry of the first block has the number 0.",
            looked_up(lambda positions, block_size: positions // block_size - 1),
        ),
        Mistake(
            "one-block-for-all",
            "You look up the block of the first position and use it for all. "
            "Each position may be in another block.",
            lambda block_ids, positions, block_size: (
                block_ids[positions[0] // block_size].long() * block_size
                + positions % block_size
            ),
        ),
        Mistake(
            "block-size-ignored",
            "Your blocks always have the same size. "
            "How many tokens a block holds is an argument.",
            with_block_size(4),
            also=(with_block_size(16), with_block_size(2)),
        ),
        Mistake(
            "list-for-tensor",
            "The slots are in a list. "
            "They will index a tensor, and the docstring asks for one.",
            lambda block_ids, positions, block_size: slot_mapping(
                block_ids, positions, block_size
            ).tolist(),
        ),
    ),
    hints=(
        (
            "Which entry of the block table belongs to position 5 "
            "when a block holds 4 tokens? And to positions 3 and 4?"
        ),
        (
            "A tensor can be indexed by a tensor: "
            "`block_ids[positions // block_size]` looks up all blocks at once."
        ),
        "The table is int32, slots are int64: `.long()` changes the type.",
    ),
)
