"""Exercise 1.1: the free list."""

import itertools
import random
import re
from collections import deque

from lessons_exercises.lesson_01.native import free_list_class
from lessons_lib.checks import Crash, Exercise, Mistake, NoEnd, Text


class FreeList:
    def __init__(self, num_blocks):
        self.block_ids = list(range(num_blocks))[::-1]

    def pop(self):
        if not self.block_ids:
            raise Crash  # in C++ the vector is empty; the check builds with assertions
        return self.block_ids.pop()

    def push(self, block_id):
        self.block_ids.append(block_id)

    def size(self):
        return len(self.block_ids)


class FirstInFirstOut(FreeList):
    def __init__(self, num_blocks):
        self.block_ids = deque(range(num_blocks))

    def pop(self):
        return self.block_ids.popleft()


class HighestFirst(FreeList):
    def __init__(self, num_blocks):
        self.block_ids = list(range(num_blocks))


class LowestFirst(FreeList):
    def pop(self):
        self.block_ids.remove(lowest := min(self.block_ids))
        return lowest


class KeepsWhatItGives(FreeList):
    def pop(self):
        return self.block_ids[-1]


class OneMissing(FreeList):
    def __init__(self, num_blocks):
        self.block_ids = list(range(1, num_blocks))[::-1]


class OneTooMany(FreeList):
    def __init__(self, num_blocks):
        self.block_ids = list(range(num_blocks + 1))[::-1]


class FromOne(FreeList):
    def __init__(self, num_blocks):
        self.block_ids = list(range(1, num_blocks + 1))[::-1]


class BehindZeros(FreeList):
    def __init__(self, num_blocks):
        self.block_ids = [0] * num_blocks + list(range(num_blocks))[::-1]


class EveryIdZero(FreeList):
    def __init__(self, num_blocks):
        self.block_ids = [0] * num_blocks


class WritesBehindTheEnd(FreeList):
    def __init__(self, num_blocks):
        raise Crash


class LeftEmpty(FreeList):
    def __init__(self, num_blocks):
        self.block_ids = []


class NeverFilled(FreeList):
    def __init__(self, num_blocks):
        raise NoEnd


class RemovesBeforeReading(FreeList):
    def pop(self):
        super().pop()
        if not self.block_ids:
            raise Crash
        return self.block_ids[-1]


class CapacityForSize(FreeList):
    """A vector that grew by push_back has doubled its room each time."""

    def __init__(self, num_blocks):
        super().__init__(num_blocks)
        self.capacity = 1 << (num_blocks - 1).bit_length()

    def size(self):
        return self.capacity


class ReservedForSize(CapacityForSize):
    def __init__(self, num_blocks):
        super().__init__(num_blocks)
        self.capacity = num_blocks


class LastIdRefused(FreeList):
    def pop(self):
        if len(self.block_ids) == 1:
            raise RuntimeError("the list is empty")
        return super().pop()


class OneLess(FreeList):
    def size(self):
        return super().size() - 1


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
    yield 1000, tuple(["pop"] * 1000)
    yield 100, tuple(["pop"] * 60 + list(range(0, 60, 2)) + ["pop"] * 30)


def hidden(seed):
    """Longer runs on longer lists.

    The last call of each is a pop(). Its result shows the order.
    """
    chance = random.Random(seed)
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
    free_list = FreeList(num_blocks)
    for call in calls:
        if call == "pop":
            if not free_list.size():
                return False
            free_list.pop()
        elif call in free_list.block_ids:
            return False
        else:
            free_list.push(call)
    return True


def observe(free_list_type, case):
    """What the last call gives, and the size after it.

    Each shorter sequence is another case.
    """
    num_blocks, calls = case
    free_list, result = free_list_type(num_blocks), None
    for call in calls:
        result = free_list.pop() if call == "pop" else free_list.push(call)
    last = f"pop() gives {result}, " if calls and calls[-1] == "pop" else ""
    return Text(f"{last}size() is {free_list.size()}")


def same(expected, actual):
    """The learner's own exceptions are compared without their words."""
    return _without_words(expected) == _without_words(actual)


def _without_words(result):
    return re.sub(r"^RuntimeError\b.*", "RuntimeError", result, flags=re.DOTALL)


def describe(case):
    num_blocks, calls = case
    shown = [
        f"FreeList({num_blocks})",
        *("pop()" if call == "pop" else f"push({call})" for call in calls),
    ]
    return ", ".join(
        shown if len(shown) < 12 else [*shown[:3], f"… {len(shown) - 5} more …", *shown[-2:]]
    )


FILL = (
    "for (int block_id = num_blocks - 1; block_id >= 0; --block_id) "
    "block_ids_.push_back(block_id);"
)
FILL_UPWARDS = (
    "for (int block_id = 0; block_id < num_blocks; ++block_id) block_ids_.push_back(block_id);"
)

EXERCISE = Exercise(
    id="1.1",
    title="the free list",
    answer_name="free_list",
    language="c++",
    reference=FreeList,
    prepare=free_list_class,
    cases=cases,
    size=lambda case: (len(case[1]), case[0]),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=same,
    mistakes=(
        Mistake(
            "fifo-not-lifo",
            "Your list is a queue: it hands out the block that came back first. "
            "Nothing breaks, but the exercise asks for a stack. "
            "A stack hands out the block that came back last. "
            "Taking from the end moves no other element.",
            FirstInFirstOut,
            (
                (FILL, FILL_UPWARDS),
                ("int block_id = block_ids_.back();", "int block_id = block_ids_.front();"),
                ("block_ids_.pop_back();", "block_ids_.erase(block_ids_.begin());"),
            ),
        ),
        Mistake(
            "size-is-the-last-index",
            "size() gives one less than the number of ids: it gives the index of the top. "
            "A list of one id has size 1.",
            OneLess,
            (("return block_ids_.size();", "return block_ids_.size() - 1;"),),
        ),
        Mistake(
            "highest-first",
            "The first pop() gives the highest id. A stack hands out its top first. "
            "In which order do the ids have to go in, so that 0 is on top?",
            HighestFirst,
            ((FILL, FILL_UPWARDS),),
        ),
        Mistake(
            "lowest-first",
            "You hand out the lowest free id. The list should give the id that was pushed "
            "last, whatever its number. Looking for the lowest one also takes longer "
            "the more blocks are free.",
            LowestFirst,
            (
                ("#include <vector>", "#include <algorithm>\n#include <vector>"),
                (
                    "int block_id = block_ids_.back();",
                    (
                        "auto lowest = std::min_element(block_ids_.begin(), "
                        "block_ids_.end()); int block_id = *lowest;"
                    ),
                ),
                ("block_ids_.pop_back();", "block_ids_.erase(lowest);"),
            ),
        ),
        Mistake(
            "pop-does-not-remove",
            "pop() gives the top id but leaves it in the list. "
            "The next pop() gives the same block again, "
            "and two sequences would overwrite each other. "
            "In C++, back() looks and pop_back() removes.",
            KeepsWhatItGives,
            (("block_ids_.pop_back();", ""),),
        ),
        Mistake(
            "one-block-missing",
            "The list starts with one id too few. "
            "Which ids does your loop visit first and last?",
            OneMissing,
            (("block_id >= 0", "block_id > 0"),),
        ),
        Mistake(
            "one-block-too-many",
            "The list starts with one id too many. "
            "Which ids does your loop visit first and last? The highest id is num_blocks - 1.",
            OneTooMany,
            (
                (
                    "int block_id = num_blocks - 1; block_id",
                    "int block_id = num_blocks; block_id",
                ),
            ),
        ),
        Mistake(
            "ids-start-at-one",
            "Your ids go from 1 to num_blocks. "
            "They are indices into the pool, so they go from 0 to num_blocks - 1.",
            FromOne,
            (
                (
                    "block_ids_.push_back(block_id);\n    // END SOLUTION\n  }\n  // Takes",
                    (
                        "block_ids_.push_back(block_id + 1);\n"
                        "    // END SOLUTION\n"
                        "  }\n"
                        "  // Takes"
                    ),
                ),
            ),
        ),
        Mistake(
            "ids-behind-zeros",
            "The list starts twice as long as it should. "
            "The vector was made with num_blocks zeros in it, "
            "and push_back() adds the ids after those. Make it empty, "
            "or give the existing elements their ids.",
            BehindZeros,
            ((FILL, f"block_ids_.resize(num_blocks); {FILL}"),),
        ),
        Mistake(
            "every-id-zero",
            "The list has the right length, but every id in it is 0. "
            "A vector that is made with num_blocks elements has them all at 0. "
            "Give each one its id.",
            EveryIdZero,
            ((FILL, "block_ids_.resize(num_blocks); "),),
        ),
        Mistake(
            "writes-behind-the-end",
            "The constructor uses an element that the vector does not have. "
            "`reserve()` makes room, but the size stays 0. "
            "`block_ids_[i]` needs an element that exists, and push_back() makes one.",
            WritesBehindTheEnd,
            (
                (
                    FILL,
                    (
                        "block_ids_.reserve(num_blocks);\n"
                        "    for (int i = 0; i < num_blocks; ++i) "
                        "block_ids_[i] = num_blocks - 1 - i;"
                    ),
                ),
            ),
        ),
        Mistake(
            "constructor-leaves-it-empty",
            "After the constructor the list is empty. "
            "If you declare a variable inside it with the member's name, "
            "that is a different variable. It is gone when the constructor ends.",
            LeftEmpty,
            ((FILL, f"std::vector<int> block_ids_; {FILL}"),),
        ),
        Mistake(
            "constructor-never-ends",
            "The constructor's loop does not end. An unsigned number, such as a size_t, "
            "is never below 0. Which value ends the loop, "
            "and does the variable ever get there?",
            NeverFilled,
            (
                (
                    FILL,
                    (
                        "for (unsigned i = num_blocks - 1; i >= 0; --i) "
                        "if (size() < num_blocks) push(i);"
                    ),
                ),
            ),
        ),
        Mistake(
            "removes-before-reading",
            "pop() removes the top first and looks at the top afterwards. "
            "By then the top is another id, or there is none at all. Read first.",
            RemovesBeforeReading,
            (
                (
                    "int block_id = block_ids_.back();\n    block_ids_.pop_back();",
                    "block_ids_.pop_back();\n    int block_id = block_ids_.back();",
                ),
            ),
        ),
        Mistake(
            "capacity-for-size",
            "size() gives how many ids the vector has room for, not how many it holds.",
            CapacityForSize,
            (("return block_ids_.size();", "return block_ids_.capacity();"),),
            also=(ReservedForSize,),
        ),
        Mistake(
            "last-id-refused",
            "pop() throws while the list still has one id. "
            "At which size is nothing left to give?",
            LastIdRefused,
            (
                (
                    "int block_id = block_ids_.back();",
                    (
                        "if (block_ids_.size() < 2) "
                        'throw std::runtime_error("none is left");\n'
                        "    int block_id = block_ids_.back();"
                    ),
                ),
            ),
        ),
    ),
    hints=(
        (
            "`std::vector` is a stack already: "
            "push_back() puts on top, back() looks at the top, pop_back() removes it."
        ),
        (
            "The last id that the constructor pushes is the first one popped. "
            "So push the ids from the highest to the lowest."
        ),
        "pop() needs three steps: read the top, remove it, return what you read.",
    ),
)
