"""Exercise 1.5: a second sequence that shares the first one's blocks."""

import random
import re
from collections.abc import Iterator

import torch

from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.block_manager import PythonBlockManager


class BlockManager:
    """The five methods of a block manager and no more, as the compiled one has them."""

    def __init__(self, num_blocks):
        inner = PythonBlockManager(num_blocks)
        self.allocate, self.free = inner.allocate, inner.free
        self.increase_ref_count = inner.increase_ref_count
        self.get_ref_count = inner.get_ref_count
        self.get_num_free_blocks = inner.get_num_free_blocks

    def __repr__(self):
        return "the manager"


def fork(manager, blocks):
    for block_id in blocks:
        manager.increase_ref_count(block_id)
    return list(blocks)


def same_list_object(manager, blocks):
    for block_id in blocks:
        manager.increase_ref_count(block_id)
    return blocks


def counts_not_increased(manager, blocks):
    return list(blocks)


def allocates_copies(manager, blocks):
    return [manager.allocate() for _ in blocks]


def last_block_not_shared(manager, blocks):
    for block_id in blocks[:-1]:
        manager.increase_ref_count(block_id)
    return [*blocks[:-1], manager.allocate()] if blocks else []


def returns_nothing(manager, blocks):
    for block_id in blocks:
        manager.increase_ref_count(block_id)


def counts_by_position(manager, blocks):
    for block_id in range(len(blocks)):
        manager.increase_ref_count(block_id)
    return list(blocks)


def counting(chosen):
    """Our fork, but only the blocks in chosen(blocks) have one user more."""

    def wrong(manager, blocks):
        for block_id in chosen(blocks):
            manager.increase_ref_count(block_id)
        return list(blocks)

    return wrong


def giving(child):
    """Our fork with another result: child(blocks)."""

    def wrong(manager, blocks):
        fork(manager, blocks)
        return child(blocks)

    return wrong


def new_last_block(manager, blocks):
    for block_id in blocks[:-1]:
        manager.increase_ref_count(block_id)
    return [*blocks[:-1], manager.allocate()]


def returns_inside_the_loop(manager, blocks):
    for block_id in blocks:
        manager.increase_ref_count(block_id)
        return list(blocks)


def takes_from_the_parent(manager, blocks):
    child = fork(manager, blocks)
    blocks.clear()
    return child


def not_run_yet(manager, blocks):
    for block_id in blocks:
        manager.increase_ref_count(block_id)
        yield block_id


def counts_to_two(manager, blocks):
    for block_id in blocks:
        if manager.get_ref_count(block_id) == 1:
            manager.increase_ref_count(block_id)
    return list(blocks)


def appended_to_the_parent(manager, blocks):
    fork(manager, blocks)
    blocks += blocks
    return blocks


def appended_to_the_parent_and_copied(manager, blocks):
    return list(appended_to_the_parent(manager, blocks))


def with_the_manager(manager, blocks):
    return manager, fork(manager, blocks)


def unknown_name(manager, blocks):
    return [manager.no_such_name for _ in blocks]  # raises, if there is a block


def unknown_name_at_once(manager, blocks):
    return manager.no_such_name


# (size of the pool, blocks of the parent in its order, how many forks of it there are already)
CASES = [
    (2, [0], 0),
    (2, [], 0),
    (3, [0, 1], 0),
    (6, [4, 1, 3], 0),
    (6, [5, 0, 2], 2),
    (4, [3, 2, 1, 0], 0),
    (3, [2, 1], 1),
]


def hidden(seed):
    chance = random.Random(seed)
    for length in (1, 2, 3, 3, 4, 5, 6, 8, 10):
        num_blocks = length + chance.randint(1, 6)
        yield num_blocks, chance.sample(range(num_blocks), length), chance.randint(0, 3)


def observe(answer, case):
    num_blocks, parent, forks = case
    manager = BlockManager(num_blocks)
    for _ in range(num_blocks):
        manager.allocate()
    for block_id in set(range(num_blocks)) - set(parent):
        manager.free(block_id)
    for _ in range(forks):
        for block_id in parent:
            manager.increase_ref_count(block_id)
    blocks = list(parent)
    child = answer(manager, blocks)
    kind = "the parent's own list" if child is blocks else "a new list"
    if isinstance(child, list):
        shown = f"{kind} {child}"
    elif isinstance(child, Iterator):  # its text would name the learner's function
        shown = f"something of type {type(child).__name__}"
    else:
        shown = f"{child!r}, of type {type(child).__name__}"
    counts = [manager.get_ref_count(block_id) for block_id in range(num_blocks)]
    return Text(f"returns {shown}; parent {blocks}; reference counts {counts}")


def same(expected, actual):
    """Which name the manager lacks makes no difference."""
    return _without_the_name(expected) == _without_the_name(actual)


def _without_the_name(result):
    return re.sub(
        r"^(AttributeError: 'BlockManager' object has no attribute) .*", r"\1", result
    )


def describe(case):
    num_blocks, parent, forks = case
    earlier = f" (already forked {forks} times)" if forks else ""
    return (
        f"a pool of {num_blocks}; the parent's blocks are {parent}{earlier}; "
        f"fork(manager, {parent})"
    )


EXERCISE = Exercise(
    id="1.5",
    title="fork a sequence",
    answer_name="fork",
    reference=fork,
    cases=lambda: CASES,
    size=lambda case: (len(case[1]), case[2], case[0]),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=same,
    mistakes=(
        Mistake(
            "same-list-object",
            "The child gets the parent's own list. When one of them grows by a block, "
            "the other grows too. The blocks are shared; the lists that name them are not.",
            same_list_object,
        ),
        Mistake(
            "counts-not-increased",
            "The child uses the parent's blocks, and the manager does not know. "
            "When the parent is freed, its blocks go to somebody else "
            "while the child still reads them.",
            counts_not_increased,
        ),
        Mistake(
            "allocates-copies",
            "Your fork takes fresh blocks. That is a copy: "
            "it needs as much memory again, and nothing has been written into those blocks. "
            "A fork shares the blocks that are there.",
            allocates_copies,
        ),
        Mistake(
            "last-block-not-shared",
            "You share all blocks but the last and give the child a fresh, empty one. "
            "The last block holds tokens that both sequences have; it is shared as well, "
            "until one of them writes to it.",
            last_block_not_shared,
            also=(new_last_block,),
        ),
        Mistake(
            "not-every-block-counted",
            "Only some of the blocks have one user more. The child uses all of them.",
            counting(lambda blocks: blocks[:1]),
            also=(
                counting(lambda blocks: blocks[-1:]),
                counting(lambda blocks: [blocks[-1]]),
                counting(lambda blocks: [blocks[0]]),
                counting(lambda blocks: blocks[:-1]),
                counting(lambda blocks: blocks[1:]),
            ),
        ),
        Mistake(
            "returns-inside-the-loop",
            "Your `return` stands inside the loop. So the function ends "
            "after the first block, and without any block it returns nothing.",
            returns_inside_the_loop,
        ),
        Mistake(
            "counts-to-two",
            "A block that is shared already gets no further user. "
            "Each fork adds one, whatever the count is.",
            counts_to_two,
        ),
        Mistake(
            "counts-twice",
            "Each block has two users more. One fork adds one sequence.",
            counting(lambda blocks: [*blocks, *blocks]),
        ),
        Mistake(
            "returns-nothing",
            "The counts are right, but fork() returns None. "
            "It returns the child's list of blocks.",
            returns_nothing,
        ),
        Mistake(
            "positions-for-ids",
            "You counted up the positions 0, 1, 2, … of the list. "
            "The ids are what stands at those positions.",
            counts_by_position,
        ),
        Mistake(
            "positions-returned",
            "The counts are right, "
            "and the child's list holds the positions 0, 1, 2, … in place of the ids.",
            giving(lambda blocks: list(range(len(blocks)))),
        ),
        Mistake(
            "list-of-none",
            "`increase_ref_count()` returns nothing, so a list of its results holds None. "
            "The child's list holds the ids.",
            giving(lambda blocks: [None] * len(blocks)),
        ),
        Mistake(
            "order-lost",
            "The ids are there, in another order than the parent's. "
            "The order says which tokens stand in which block.",
            giving(lambda blocks: blocks[::-1]),
            also=(giving(sorted), giving(lambda blocks: list(set(blocks)))),
        ),
        Mistake(
            "not-a-list",
            "The ids are right, and they are not in a list. "
            "The child's list will grow, and its entries will be replaced.",
            giving(tuple),
            also=(
                giving(set),
                giving(torch.tensor),
                giving(iter),
                giving(lambda blocks: map(int, blocks)),
                giving(lambda blocks: (block_id for block_id in blocks)),
            ),
        ),
        Mistake(
            "not-run-yet",
            "Nothing has happened yet: with `yield` in it, a function gives a generator, "
            "and runs only when somebody asks that for its items. "
            "fork() counts at once, and returns a list.",
            not_run_yet,
        ),
        Mistake(
            "parent-emptied",
            "The child's list is right, and the parent's is empty: you took its ids out. "
            "The first sequence goes on, so its list stays as it was.",
            takes_from_the_parent,
        ),
        Mistake(
            "parent-grown",
            "The ids went to the end of the parent's own list, which is twice as long now. "
            "The parent's list stays as it is; the child needs another one.",
            appended_to_the_parent,
            also=(appended_to_the_parent_and_copied,),
        ),
        Mistake(
            "range-for-the-ids",
            "You count up a range of ids, from one block of the list to another. "
            "A sequence's blocks need not follow each other: "
            "only the ids in the list are meant.",
            counting(lambda blocks: range(blocks[0], blocks[-1] + 1) if blocks else ()),
            also=(
                counting(lambda blocks: range(blocks[0], blocks[-1] + 1)),
                counting(
                    lambda blocks: range(blocks[0], blocks[0] + len(blocks)) if blocks else ()
                ),
                counting(lambda blocks: range(blocks[0], blocks[0] + len(blocks))),
                counting(lambda blocks: range(min(blocks), max(blocks) + 1) if blocks else ()),
                counting(lambda blocks: range(min(blocks), max(blocks) + 1)),
            ),
        ),
        Mistake(
            "no-such-name",
            "The manager has nothing of the name that the error shows. Its counts "
            "are inside it: it has five methods, and one of them adds a user to a block.",
            unknown_name,
            also=(unknown_name_at_once,),
        ),
        Mistake(
            "more-than-the-list",
            "The child's list is right, and you return something else along with it. "
            "fork() returns that one list.",
            with_the_manager,
            also=(
                lambda manager, blocks: with_the_manager(manager, blocks)[::-1],
                giving(lambda blocks: (blocks, list(blocks))),
                giving(lambda blocks: (list(blocks), blocks)),
                giving(lambda blocks: [blocks, list(blocks)]),
            ),
        ),
    ),
    hints=(
        "How many sequences use each of these blocks before the fork, and how many after it?",
        "The child needs a list of its own with the same ids in it: `list(blocks)`.",
    ),
)
