"""Exercise 1.2: reference counts and errors.

Write check_index() first. Every method that takes a block_id calls it before anything else.

The order is the same in each method. Look for what can be wrong, and throw. Only then change
something.

free() takes one user away. The block returns to the free list exactly when that was the last
user, that is, when the count becomes 0.
"""

import itertools
import random
import re

from lessons_content.exercises.kit import Text, exercise
from lessons_content.lesson_01 import native
from paged_attention.pool.block_manager import PythonBlockManager

TAKE_AN_ID = "free", "increase_ref_count", "get_ref_count"


def cases():
    """Every sequence of up to four calls on pools of one and two blocks.

    Shorter ones come first. Those of up to two calls also have ids that do not exist. Then
    come large pools, many users and a long run.
    """
    for num_blocks in (0, -1, -7):
        yield num_blocks, ()
    for length in range(5):
        for num_blocks in (1, 2):
            ids = range(-1, num_blocks + 1) if length <= 2 else range(num_blocks)
            for calls in itertools.product(_calls(ids), repeat=length):
                yield num_blocks, calls
    for wrong in (2**31 - 1, -(2**31)):
        for name in TAKE_AN_ID:
            yield 2, ((name, wrong),)
    yield 1, (("allocate",), *[("increase_ref_count", 0)] * 300)
    yield 1000, (("allocate",),) * 1000
    yield 8, _run(random.Random(12), range(8), 400)


def hidden(chance):
    """Runs on pools of other sizes, now and then with an id that does not exist.

    Then ids just outside the pool, and a pool that cannot be made.
    """
    for length in (3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 25, 30):
        num_blocks = chance.randint(2, 4)
        yield num_blocks, (("allocate",), *_run(chance, range(num_blocks), length))
    for name in TAKE_AN_ID:
        num_blocks = chance.randint(3, 40)
        for wrong in (num_blocks, -chance.randint(1, num_blocks)):
            yield num_blocks, (("allocate",), (name, wrong))
    yield chance.randint(3, 40), (("allocate",), *_run(chance, range(-1, 4), 30))
    yield -chance.randint(2, 100), ()


def _run(chance, block_ids, length):
    calls = [("allocate",), *_calls(block_ids)]
    return tuple(chance.choice(calls) for _ in range(length))


def _calls(block_ids):
    yield ("allocate",)
    for block_id in block_ids:
        yield "increase_ref_count", block_id
        yield "free", block_id
        if block_id < 0 or block_id == block_ids[-1] and block_ids[0] < 0:
            yield "get_ref_count", block_id


def observe(manager_type, case):
    """What the last call does, and the state after it. Each shorter sequence is a case too."""
    num_blocks, calls = case
    manager = manager_type(num_blocks)
    for call in calls[:-1]:
        perform(manager, call)
    last = f"{perform(manager, calls[-1])}; " if calls else ""
    return Text(f"{last}{state(manager, num_blocks)}")


def perform(manager, call) -> str:
    name, *arguments = call
    try:
        result = getattr(manager, name)(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error" if result is None else f"returns {result}"


def state(manager, num_blocks) -> str:
    counts = [manager.get_ref_count(block_id) for block_id in range(num_blocks)]
    return f"then reference counts {counts}, {manager.get_num_free_blocks()} free"


def size(case):
    num_blocks, calls = case
    return len(calls), abs(num_blocks)


def describe(case):
    num_blocks, calls = case
    shown = [f"{name}({', '.join(map(str, arguments))})" for name, *arguments in calls]
    if len(shown) >= 12:
        shown = [f"{len(shown)} calls"]
    return ", ".join([f"BlockManager({num_blocks})", *shown])


NAMES = "|".join(error.__name__ for error in native.OUR_ERRORS)
# an error that is thrown as a pointer, and one that is made and dropped
ERRORS_NOT_THROWN = {
    "throws-a-pointer": r"\bthrow\s+new\b",
    "error-made-not-thrown": (
        rf"(?:[;{{}})]|\belse\b)\s*(?:{NAMES})\s*(?:\([^;]*\)|\{{[^;]*\}})\s*;"
    ),
}
# an id that has to be both negative and too large, and an `if` that assigns a number
CONDITIONS = {
    "both-at-once": r"\b(\w+)\s*<\s*0\s*&&\s*\1\s*>|\b(\w+)\s*>=?[^;&|]*&&\s*\2\s*<\s*0\b",
    "assignment-in-if": r"\bif\s*\(\s*[\w.()\[\]+-]+\s*=\s*\w+\s*\)",
}


def name_from_text(source: str, known: dict[str, str] = ERRORS_NOT_THROWN) -> str | None:
    """The first mistake in `known` that the text shows. 1.3 asks for those of errors."""
    text = native.without_comments(source)
    return next((slug for slug, shown in known.items() if re.search(shown, text)), None)


EXERCISE = exercise(
    globals(),
    answer_name="block_manager",
    language="c++",
    reference=PythonBlockManager,
    prepare=native.block_manager_class,
    name_from_text=lambda source: name_from_text(source, ERRORS_NOT_THROWN | CONDITIONS),
    points=2,
)
