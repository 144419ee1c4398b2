"""Exercise 1.1: the free list.

`std::vector` is a stack already: push_back() puts on top, back() looks at the top, pop_back()
removes it.

The last id that the constructor pushes is the first one popped. So push the ids from the
highest to the lowest.

pop() needs three steps: read the top, remove it, return what you read.
"""

import itertools
import re

from lessons_content.exercises.kit import Text, exercise
from lessons_content.lesson_01.native import free_list_class, without_comments


class FreeList:
    def __init__(self, num_blocks):
        self.block_ids = list(range(num_blocks))[::-1]

    def pop(self):
        return self.block_ids.pop()

    def push(self, block_id):
        self.block_ids.append(block_id)

    def size(self):
        return len(self.block_ids)


def cases():
    """Every valid sequence of up to five calls on lists of up to three ids.

    Shorter ones come first. At the end there is a long one.
    """
    for length in range(6):
        # on a list of one id, looking at what is left is a crash like any other
        for num_blocks in (2, 1, 3):
            for calls in itertools.product(["pop", *range(num_blocks)], repeat=length):
                if _valid(num_blocks, calls):
                    yield num_blocks, calls
    yield 1000, ("pop",) * 1000
    yield 100, ("pop",) * 60 + tuple(range(0, 60, 2)) + ("pop",) * 30


def hidden(chance):
    """Longer runs on longer lists. The last call of each is a pop(): it shows the order."""
    for length in (2, 3, 4, 6, 8, 11, 15, 20, 30, 50):
        num_blocks, calls = chance.randint(4, 12), []
        while len(calls) < length or calls[-1] != "pop":
            call = chance.choice(["pop", "pop", *range(num_blocks)])
            if _valid(num_blocks, [*calls, call]):
                calls.append(call)
        yield num_blocks, tuple(calls)
    num_blocks = chance.randint(20, 200)
    yield num_blocks, ("pop",) * num_blocks


def _valid(num_blocks, calls):
    """pop() only while something is there; push(id) only for an id that was popped."""
    block_ids = FreeList(num_blocks).block_ids
    for call in calls:
        if call == "pop" and block_ids:
            block_ids.pop()
        elif call == "pop" or call in block_ids:
            return False
        else:
            block_ids.append(call)
    return True


def observe(free_list_type, case):
    """What the last call gives, and the size after it. Each shorter sequence is a case too."""
    num_blocks, calls = case
    free_list, result = free_list_type(num_blocks), None
    for call in calls:
        result = free_list.pop() if call == "pop" else free_list.push(call)
    last = f"pop() gives {result}, " if calls and calls[-1] == "pop" else ""
    return Text(f"{last}size() is {free_list.size()}")


def same(expected, actual):
    """The learner's own exceptions are compared without their words.

    But memory that has run out is told apart: a loop that does not end takes all of it.
    """
    return _without_words(expected) == _without_words(actual)


def _without_words(result):
    if "bad_alloc" in result:
        return result
    return re.sub(r"^RuntimeError\b.*", "RuntimeError", result, flags=re.DOTALL)


def describe(case):
    num_blocks, calls = case
    shown = ["pop()" if call == "pop" else f"push({call})" for call in calls]
    shown.insert(0, f"FreeList({num_blocks})")
    if len(shown) >= 12:
        shown[3:-2] = [f"… {len(shown) - 5} more …"]
    return ", ".join(shown)


UNSIGNED = r"(?:std::)?(?:size_t|uint\d+_t)|unsigned(?:\s+(?:int|long|short|char))*"


def name_from_text(source: str) -> str | None:
    """A loop that goes on while an unsigned number is 0 or more."""
    loop = rf"\bfor\s*\(\s*(?:{UNSIGNED})\s+(\w+)[^;]*;\s*(?:\1\s*>=\s*0|0\s*<=\s*\1)\s*;"
    return "constructor-never-ends" if re.search(loop, without_comments(source)) else None


EXERCISE = exercise(
    globals(),
    answer_name="free_list",
    language="c++",
    reference=FreeList,
    prepare=free_list_class,
    size=lambda case: (len(case[1]), case[0]),
)
