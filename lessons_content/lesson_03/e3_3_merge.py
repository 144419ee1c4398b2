"""Exercise 3.3: merge two states.

An update rescales one side, because the other is counted from the new maximum already. Here
both sides may need it.

Each side has its own factor, exp(its maximum - the new maximum), and one of the two is 1. `l`
and `acc` of a side take the same factor.

Assign to `self.m` last, and use `finite()` where you subtract the new maximum.
"""

import math

import torch

from lessons_content.exercises.kit import counted, exercise, tensors
from lessons_content.lesson_03.requests import FEW, in_digits, simple, tens
from paged_attention.attention.softmax_state import NO_KEY, SoftmaxState, finite


def merge_in_double(self, other):
    m = torch.maximum(self.m, other.m)
    mine, theirs = (torch.exp((state.m - finite(m)).double()) for state in (self, other))
    self.l = mine * self.l + theirs * other.l
    self.acc = mine[..., None] * self.acc + theirs[..., None] * other.acc
    self.m = m


TWICE = "twice"

# (rows, keys that the first has seen, keys that the second has seen, head size, centre of the
# second's scores, seed). Where there are more than two rows, the last row of the first state
# and the first row of the second have seen no key.
CASES = [
    ((1,), 1, 1, 1, 1.0, 1),
    ((1,), 1, 1, 1, -1.0, 2),
    ((1,), 2, 1, 2, 2.0, 3),
    ((1,), 1, 3, 2, -2.0, 4),
    ((1,), 0, 2, 2, 0.0, 5),
    ((1,), 2, 0, 2, 0.0, 6),
    ((1,), 0, 0, 2, 0.0, 7),
    ((3,), 4, 4, 4, 0.0, 8),
    ((4,), 3, 5, 8, 200.0, 9),
    ((4,), 3, 5, 8, -200.0, 10),
    ((7, 4), 16, 5, 16, 1.0, 11),
    ((1,), 0, 2, 2, 0.0, 12, TWICE),
]


def hidden(chance):
    shapes = (1,), (1,), (1,), (3,), (5,), (6,), (2, 4), (4, 3), (3, 5), (2, 2, 3)
    for number, rows in enumerate(shapes):
        keys = chance.randint(1, 6), chance.randint(1, 6)
        keys = {0: (0, keys[0]), 1: (keys[0], 0), 2: (0, 0)}.get(number, keys)
        head_size = chance.randint(1, 9)
        centre = chance.choice((-200.0, -2.0, 0.0, 2.0, 200.0))
        yield rows, *keys, head_size, centre, chance.randrange(2**31)
    rows, num_others = (chance.randint(1, 5),), chance.randint(1, 6)
    yield rows, 0, num_others, chance.randint(1, 9), 0.0, chance.randrange(2**31), TWICE


def states(case):
    """Both states, and where the first merges twice the one that it merges last."""
    rows, num_keys, num_others, head_size, centre, seed, *twice = case
    generator = torch.Generator().manual_seed(seed)
    score, keys_before = simple((1,), generator), 0
    for size, middle, masked in ((num_keys, 0.0, -1), (num_others, centre, 0)):
        state = SoftmaxState(*rows, head_size=head_size)
        if size and is_small(case):
            # all keys have the same score, so that l is their number
            scores = middle + score.expand(1, size)
            state.update(scores, tens((1, size, head_size), keys_before))
        elif size:
            scores = middle + torch.randn(*rows, size, generator=generator)
            if rows[-1] > 2:
                scores[..., masked, :] = NO_KEY
            state.update(scores, torch.randn(*rows, size, head_size, generator=generator))
        keys_before += size
        yield state
    if twice:
        yield next(states((rows, num_others, 0, head_size, centre, seed + 1)))


def is_small(case):
    """Whether its numbers are simple, and a message shows them."""
    rows, num_keys, num_others, head_size = case[:4]
    return rows == (1,) and (num_keys + num_others) * (1 + head_size) <= FEW


def observe(answer, case):
    mine, other, *third = states(case)
    for each in (other, *third):
        answer(mine, each)
    result = (*mine.finish(), other.m, other.l, other.acc)
    return tensors.values(result, "o", "m", "l", "other.m", "other.l", "other.acc")


def describe(case):
    rows, num_keys, num_others, head_size, centre, _, *twice = case
    words = ["one row" if rows == (1,) else f"rows {rows}"]
    if rows[-1] > 2:
        words[0] += " (one of each state has seen no key)"
    if is_small(case):
        names = "self", "other", "then a third state is merged into self"
        for name, state in zip(names, states(case)):
            numbers = (
                f"{part} {in_digits(getattr(state, part))}" for part in ("m", "l", "acc")
            )
            words.append(f"{name}: {', '.join(numbers)}")
        return "; ".join(words)
    mine, others = (
        f"{counted(size, 'key')} with scores around {middle:g}" if size else "no key"
        for size, middle in ((num_keys, 0.0), (num_others, centre))
    )
    words += [f"self has seen {mine}, other {others}", f"head_size {head_size}"]
    if twice:
        words.append(
            f"then a third state with {counted(num_others, 'key')} is merged into self"
        )
    return "; ".join(words)


EXERCISE = exercise(
    globals(),
    tensors,
    answer_name="merge",
    reference=merge_in_double,
    size=lambda case: (math.prod(case[0]) * sum(case[1:3]) * case[3], len(case)),
)
