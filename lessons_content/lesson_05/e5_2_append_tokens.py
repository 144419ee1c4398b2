"""Exercise 5.2: room for a whole batch, or for none of it.

Two passes over the batch: the first only counts and may raise, the second changes. What could
still fail in the second one?

A sequence of length n that gets m tokens needs blocks_for(n + m) - blocks_for(n) fresh blocks.
blocks_for() also raises when the row is too short.

Copies come on top: a sequence whose last block is partly filled writes into it. Count these
writers for each block, and compare with the block's users. The writer that is left alone with
a block needs no copy.
"""

import copy

from lessons_content.exercises.kit import changed, counted, error_of, exercise, retold
from lessons_content.lesson_05.managers import books, make_manager, read, state, write
from lessons_lib.checks import Raised, Text, raised
from paged_attention.pool.kv_cache import PagedAttentionManager, UnknownSequenceError

# Errors that an answer raises by accident. The others are compared by their kind alone.
SLIPS = (NameError, AttributeError, TypeError, LookupError, ArithmeticError)

# (blocks in the pool, block size, entries of a row, the past, the batch); the past: ("A", 3)
# starts sequence A with 3 tokens, or appends them to it; ("A", "B") forks B from A.
CASES = [
    (1, 4, 4, [("A", 0)], [("A", 1)]),
    (1, 4, 4, [("A", 3)], [("A", 1)]),
    (1, 4, 4, [("A", 4)], [("A", 1)]),
    (2, 4, 4, [("A", 3)], [("A", 3)]),
    (1, 4, 4, [("A", 3)], [("A", 2)]),
    (2, 4, 4, [("A", 4)], [("A", 4)]),
    (3, 4, 4, [("A", 4), ("B", 4)], [("A", 1), ("B", 1)]),
    (3, 4, 4, [("A", 2), ("B", 3)], [("A", 2), ("B", 2)]),
    (2, 4, 4, [("A", 2), ("B", 3)], [("A", 2), ("B", 2)]),
    (2, 4, 4, [("A", 1), ("B", 2)], [("A", 1), ("B", 1)]),
    (3, 4, 4, [("A", 1), ("B", 4), ("C", 1)], [("A", 1), ("B", 1), ("C", 1)]),
    (3, 4, 4, [("A", 4), ("B", 2)], [("B", 2), ("A", 4)]),
    (4, 2, 2, [("A", 1), ("B", 3)], [("A", 1), ("B", 2)]),
    (1, 4, 4, [("A", 3), ("A", "B")], [("A", 1)]),
    (2, 4, 4, [("A", 3), ("A", "B")], [("B", 1)]),
    (2, 4, 4, [("A", 3), ("A", "B")], [("A", 1), ("B", 1)]),
    (2, 4, 4, [("A", 2), ("A", "B")], [("A", 3)]),
    (2, 4, 4, [("A", 2), ("A", "B"), ("A", "C")], [("A", 1), ("B", 1)]),
    (3, 4, 4, [("A", 2), ("A", "B"), ("A", "C")], [("A", 1), ("B", 1)]),
    (3, 4, 4, [("A", 2), ("A", "B"), ("A", "C")], [("C", 1), ("A", 2), ("B", 1)]),
    (2, 4, 4, [("A", 2), ("A", "B"), ("A", "C")], [("A", 1)]),
    (2, 4, 4, [("A", 2), ("A", "B"), ("A", "C")], [("A", 2)]),
    (2, 4, 4, [("X", 3), ("A", 2), ("A", "B")], [("X", 1), ("A", 1)]),
    (3, 4, 4, [("X", 3), ("A", 2), ("A", "B")], [("X", 1), ("A", 1)]),
    (2, 4, 4, [("A", 4), ("A", "B"), ("B", 1)], [("B", 1)]),
    (3, 4, 4, [("A", 4), ("A", "B")], [("A", 1), ("B", 1)]),
    (2, 4, 4, [("A", 4), ("A", "B")], [("A", 1), ("B", 1)]),
    (5, 4, 4, [("A", 3), ("A", "B"), ("C", 5)], [("C", 3), ("A", 5), ("B", 1)]),
    (4, 4, 4, [("A", 3), ("A", "B"), ("C", 5)], [("C", 3), ("A", 5), ("B", 1)]),
    (9, 16, 4, [("A", 16), ("B", 0), ("C", 31)], [("A", 1), ("B", 40), ("C", 2)]),
    (8, 16, 4, [("A", 16), ("B", 0), ("C", 31)], [("A", 1), ("B", 50), ("C", 2)]),
    (6, 1, 4, [("A", 2), ("A", "B"), ("C", 1)], [("B", 2), ("C", 1)]),
    (4, 4, 2, [("A", 2), ("B", 4)], [("A", 3), ("Z", 1)]),
]
CASES += [  # bad input
    (9, 4, 4, [("A", 4)], [("A", 1), ("A", 1)]),
    (9, 4, 4, [("A", 4)], []),
    (9, 4, 4, [("A", 4), ("B", 3)], [("B", 1), ("A", 0)]),
]


def hidden(chance):
    """Any past and batch, in a pool that is just large enough or not; then bad input."""
    for number in range(18):
        block_size = chance.randint(1, 5)
        names, past = "ABCD"[: 1 + number // 3], []
        for index, name in enumerate(names):
            if index and chance.random() < 0.5:
                past.append((chance.choice(names[:index]), name))
            else:
                past.append((name, chance.randint(0, 2 * block_size)))
        if number % 3:
            past.append((chance.choice(names), chance.randint(1, block_size)))
        chosen = chance.sample(names, chance.randint(1, len(names)))
        batch = [(name, chance.randint(1, 2 * block_size)) for name in chosen]
        case = 64, block_size, 8, past, batch
        manager = make_manager(PagedAttentionManager.append_tokens, *case[:4])
        num_free = manager.block_manager.get_num_free_blocks
        num_before = 64 - num_free()
        manager.append_tokens(batch)
        num_blocks = 64 - num_free() - chance.choice((0, 0, 1))
        yield max(num_blocks, num_before, 1), *case[1:]
    length, row = chance.randint(5, 9), chance.randint(3, 4)
    past = [("A", 4), ("B", length)]
    yield 9, 4, row, past, [("A", chance.randint(1, 4)), ("B", 17 - length)]
    yield 9, 4, 4, past, [("A", chance.randint(1, 3)), ("B", -chance.randint(0, 3))]


def is_bad(case):
    """Whether the batch is empty, names a sequence twice, or adds no token to one."""
    batch = case[4]
    return len(dict(batch)) < max(1, len(batch)) or min(dict(batch).values()) < 1


def observe(answer, case):
    manager, scheduled = make_manager(answer, *case[:4]), list(case[4])
    pool, before = manager.kv_cache, books(manager)
    texts = read(manager)
    error = error_of(manager.append_tokens, scheduled)
    if scheduled != case[4]:
        return Text("the list of the batch has been changed")
    if error is None:
        return read_back(manager, texts)
    kind = type(error).__name__
    if manager.kv_cache is not pool:
        return Text(f"{kind}, and the manager has another pool: kv_cache is a copy")
    if isinstance(error, SLIPS) and not isinstance(error, UnknownSequenceError):
        return raised(error)
    left = f"this is left behind: {state(manager)}"
    ending = f", and {'nothing has changed' if books(manager) == before else left}"
    refused, told = Refused(f"{kind}{ending}"), retold(error, ending)
    refused.shown, refused.where = str(told), told.where
    return refused


class Refused(Raised):
    """The result of a call that raised, and what it left behind.

    Two are equal if they raise the same kind of error; the learner sees what it says.
    """

    def __repr__(self):
        return self.shown


def read_back(manager, texts):
    """Writes all new tokens, and then reads every sequence. texts: what each held before."""
    expected = {name: text + write(manager, name, len(text)) for name, text in texts.items()}
    for name in changed(expected, read(manager)):
        wrong = f"sequence {name} does not read what it wrote"
        return Text(f"no error, and {wrong}: {state(manager)}")
    return Text(f"no error; {state(manager)}")


def describe(case):
    num_blocks, block_size, row, past, scheduled = case
    steps = []
    for number, (name, second) in enumerate(past):
        if isinstance(second, str):
            steps.append(f"{second} forked from {name}")
            continue
        is_started = any(name in step for step in past[:number])
        tokens = counted(second, "token")
        steps.append(f"{tokens} appended to {name}" if is_started else f"{name} with {tokens}")
    return (
        f"{counted(num_blocks, 'block')} of {block_size}, rows of {row} entries; "
        f"{', '.join(steps)}; append_tokens({scheduled})"
    )


EXERCISE = exercise(
    globals(),
    reference=PagedAttentionManager.append_tokens,
    size=lambda case: (
        len(case[3]) + len(case[4]),
        sum(count for _, count in case[3] + case[4] if isinstance(count, int)),
        case[0] * case[1],
    ),
    chancy=is_bad,  # other mistakes keep their names, with the check and without it
    points=3,
)
