"""Exercise 1.2: the block manager with reference counts and errors."""

import itertools
import random
import re

from lessons_exercises.lesson_01.native import StandardOutOfRange, block_manager_class
from lessons_lib.checks import Crash, Exercise, Mistake, Text
from paged_attention.block_manager import (
    BlockIndexError,
    BlockNotAllocatedError,
    DoubleFreeError,
    OutOfBlocksError,
    PythonBlockManager,
)


class FreeIgnoresCount(PythonBlockManager):
    def free(self, block_id):
        self.check_index(block_id)
        if self.ref_counts[block_id] == 0:
            raise DoubleFreeError(f"block {block_id} is already free")
        self.ref_counts[block_id] = 0
        self.free_blocks.append(block_id)


class DoubleFreeUnnoticed(PythonBlockManager):
    def free(self, block_id):
        self.check_index(block_id)
        self.ref_counts[block_id] -= 1
        if self.ref_counts[block_id] == 0:
            self.free_blocks.append(block_id)


class FreesAtEachCall(PythonBlockManager):
    def free(self, block_id):
        self.check_index(block_id)
        if self.ref_counts[block_id] == 0:
            raise DoubleFreeError(f"block {block_id} is already free")
        self.ref_counts[block_id] -= 1
        self.free_blocks.append(block_id)


class FreesIntoListTwice(PythonBlockManager):
    def free(self, block_id):
        self.check_index(block_id)
        if self.ref_counts[block_id] > 0:
            self.ref_counts[block_id] -= 1
        if self.ref_counts[block_id] == 0:
            self.free_blocks.append(block_id)


class CountNotReset(PythonBlockManager):
    def free(self, block_id):
        self.check_index(block_id)
        if self.ref_counts[block_id] == 0:
            raise DoubleFreeError(f"block {block_id} is already free")
        if self.ref_counts[block_id] == 1:
            self.free_blocks.append(block_id)
        else:
            self.ref_counts[block_id] -= 1


class CountNeverLowered(CountNotReset):
    def free(self, block_id):
        shared = self.get_ref_count(block_id) > 1
        if not shared:
            super().free(block_id)


class SharedCountKept(PythonBlockManager):
    def free(self, block_id):
        if self.get_ref_count(block_id) <= 1:
            super().free(block_id)


class AllocatesByIncrease(PythonBlockManager):
    def allocate(self):
        block_id = super().allocate()
        self.ref_counts[block_id] = 0
        self.increase_ref_count(block_id)


class CountsFreesAsOne(CountNotReset):
    """Like CountNotReset, but allocate() adds 1 to the old count."""

    def allocate(self):
        left = list(self.ref_counts)
        block_id = super().allocate()
        self.ref_counts[block_id] = left[block_id] + 1
        return block_id


class AllocatesWithoutCount(PythonBlockManager):
    def allocate(self):
        block_id = super().allocate()
        self.ref_counts[block_id] = 0
        return block_id


class SharesFreeBlocks(PythonBlockManager):
    def increase_ref_count(self, block_id):
        self.ref_counts[self.check_index(block_id)] += 1


class ExhaustedUnnoticed(PythonBlockManager):
    def allocate(self):
        if not self.free_blocks:
            raise Crash
        return super().allocate()


class OneIndexTooMany(PythonBlockManager):
    def check_index(self, block_id):
        if block_id == len(self.ref_counts):
            raise Crash
        return super().check_index(block_id)


class NegativeIndexAccepted(PythonBlockManager):
    def check_index(self, block_id):
        if block_id < 0:
            raise Crash
        return super().check_index(block_id)


class VectorsOwnError(PythonBlockManager):
    def check_index(self, block_id):
        if not 0 <= block_id < len(self.ref_counts):
            raise StandardOutOfRange("it names no block")
        return block_id


class FreedBlockLost(PythonBlockManager):
    def free(self, block_id):
        self.check_index(block_id)
        if self.ref_counts[block_id] == 0:
            raise DoubleFreeError(f"block {block_id} is already free")
        self.ref_counts[block_id] -= 1


class FreeCountsBeforeItChecks(PythonBlockManager):
    def free(self, block_id):
        self.check_index(block_id)
        self.ref_counts[block_id] -= 1
        if self.ref_counts[block_id] == -1:
            raise DoubleFreeError(f"block {block_id} is already free")
        if self.ref_counts[block_id] == 0:
            self.free_blocks.append(block_id)


class FreeCountsBelowZero(PythonBlockManager):
    def free(self, block_id):
        self.check_index(block_id)
        self.ref_counts[block_id] -= 1
        if self.ref_counts[block_id] < 0:
            raise DoubleFreeError(f"block {block_id} is already free")
        if self.ref_counts[block_id] == 0:
            self.free_blocks.append(block_id)


class SharesBeforeItChecks(PythonBlockManager):
    def increase_ref_count(self, block_id):
        self.check_index(block_id)
        self.ref_counts[block_id] += 1
        if self.ref_counts[block_id] == 1:
            raise BlockNotAllocatedError(f"block {block_id} is free, so it cannot be shared")


class FreeThrowsTheOtherError(PythonBlockManager):
    def free(self, block_id):
        try:
            super().free(block_id)
        except DoubleFreeError:
            raise BlockNotAllocatedError(
                f"block {block_id} is free, so it cannot be shared"
            ) from None


class ShareThrowsTheOtherError(PythonBlockManager):
    def increase_ref_count(self, block_id):
        try:
            super().increase_ref_count(block_id)
        except BlockNotAllocatedError:
            raise DoubleFreeError(f"block {block_id} is already free") from None


class ErrorsSwapped(FreeThrowsTheOtherError, ShareThrowsTheOtherError):
    pass


def with_errors_that_name(number, *errors):
    """A manager whose `errors` have number(manager, block_id) instead of the id."""

    class Manager(PythonBlockManager):
        def check_index(self, block_id):
            try:
                return super().check_index(block_id)
            except BlockIndexError:
                shown = number(self, block_id) if BlockIndexError in errors else block_id
                raise BlockIndexError(f"there is no block {shown}") from None

        def increase_ref_count(self, block_id):
            try:
                super().increase_ref_count(block_id)
            except BlockNotAllocatedError:
                shown = (
                    number(self, block_id) if BlockNotAllocatedError in errors else block_id
                )
                raise BlockNotAllocatedError(
                    f"block {shown} is free, so it cannot be shared"
                ) from None

        def free(self, block_id):
            try:
                super().free(block_id)
            except DoubleFreeError:
                shown = number(self, block_id) if DoubleFreeError in errors else block_id
                raise DoubleFreeError(f"block {shown} is already free") from None

    return Manager


def its_count(manager, block_id):
    return manager.ref_counts[block_id]


def size_of_the_pool(manager, block_id):
    return len(manager.ref_counts)


class CountOfFreeBlockRefused(PythonBlockManager):
    def get_ref_count(self, block_id):
        if self.ref_counts[self.check_index(block_id)] == 0:
            raise BlockNotAllocatedError(f"block {block_id} is free, so it cannot be shared")
        return super().get_ref_count(block_id)


class CountOfFreeBlockDoubleFree(PythonBlockManager):
    def get_ref_count(self, block_id):
        if self.ref_counts[self.check_index(block_id)] == 0:
            raise DoubleFreeError(f"block {block_id} is already free")
        return super().get_ref_count(block_id)


class NoIndexCheckInGet(PythonBlockManager):
    def get_ref_count(self, block_id):
        if not 0 <= block_id < len(self.ref_counts):
            raise Crash
        return super().get_ref_count(block_id)


class NoIndexCheckInFree(PythonBlockManager):
    def free(self, block_id):
        if not 0 <= block_id < len(self.ref_counts):
            raise Crash
        super().free(block_id)


class FirstBlockRefused(PythonBlockManager):
    def check_index(self, block_id):
        if block_id == 0:
            raise BlockIndexError("there is no block 0")
        return super().check_index(block_id)


class IndexAgainstFreeBlocks(PythonBlockManager):
    def check_index(self, block_id):
        if not 0 <= block_id < len(self.free_blocks):
            raise BlockIndexError(f"there is no block {block_id}")
        return block_id


def when_exhausted(
    minimum, words="no block is free: {total} of {total} are in use", returned=None
):
    """A manager whose allocate() gives up when `minimum` or fewer blocks are free.

    It raises, or returns a number.
    """

    class Manager(PythonBlockManager):
        def allocate(self):
            if len(self.free_blocks) > minimum:
                return super().allocate()
            if returned is not None:
                return returned
            raise OutOfBlocksError(words.format(total=len(self.ref_counts)))

    return Manager


class LastBlockLost(PythonBlockManager):
    def allocate(self):
        if not self.free_blocks:
            raise Crash
        block_id = self.free_blocks.pop()
        if not self.free_blocks:
            raise OutOfBlocksError(
                "no block is free: "
                f"{len(self.ref_counts)} of {len(self.ref_counts)} are in use"
            )
        self.ref_counts[block_id] = 1
        return block_id


class CountSetToTwo(PythonBlockManager):
    def increase_ref_count(self, block_id):
        super().increase_ref_count(block_id)
        self.ref_counts[block_id] = 2


def with_free_blocks(count):
    """A manager whose get_num_free_blocks() is count(manager)."""
    return type("Manager", (PythonBlockManager,), {"get_num_free_blocks": count})


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
            yield from (
                (num_blocks, calls) for calls in itertools.product(_calls(ids), repeat=length)
            )
    for wrong in (2**31 - 1, -(2**31)):
        for name in ("free", "increase_ref_count", "get_ref_count"):
            yield 2, ((name, wrong),)
    yield 1, (("allocate",), *[("increase_ref_count", 0)] * 300)
    yield 1000, (("allocate",),) * 1000
    yield 8, _run(random.Random(12), range(8), 400)


def hidden(seed):
    """Runs on pools of other sizes, now and then with an id that does not exist.

    Then ids just outside the pool, and a pool that cannot be made.
    """
    chance = random.Random(seed)
    for length in (3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 25, 30):
        num_blocks = chance.randint(2, 4)
        yield num_blocks, (("allocate",), *_run(chance, range(num_blocks), length))
    for name in ("free", "increase_ref_count", "get_ref_count"):
        num_blocks = chance.randint(3, 40)
        yield from (
            (num_blocks, (("allocate",), (name, wrong)))
            for wrong in (num_blocks, -chance.randint(1, num_blocks))
        )
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
    """What the last call does, and the state after it.

    Each shorter sequence is another case.
    """
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
    return ", ".join(
        [
            f"BlockManager({num_blocks})",
            *(shown if len(shown) < 12 else [f"{len(shown)} calls"]),
        ]
    )


ERRORS = (
    "PoolSizeError|OutOfBlocksError|BlockIndexError|DoubleFreeError|BlockNotAllocatedError"
)


def without_comments(source: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)


def name_from_text(source: str) -> str | None:
    """An error thrown as a pointer, and one that is made and dropped."""
    text = without_comments(source)
    if re.search(r"\bthrow\s+new\b", text):
        return "throws-a-pointer"
    if re.search(rf"[;{{}})]\s*({ERRORS})\s*\([^;]*\)\s*;", text):
        return "error-made-not-thrown"
    return None


EXERCISE = Exercise(
    id="1.2",
    title="reference counts and errors",
    answer_name="block_manager",
    language="c++",
    reference=PythonBlockManager,
    prepare=block_manager_class,
    cases=cases,
    size=size,
    hidden=hidden,
    observe=observe,
    describe=describe,
    name_from_text=name_from_text,
    points=2,
    mistakes=(
        Mistake(
            "free-ignores-refcount",
            "free() gives the block back although another sequence still uses it. "
            "The next allocate() would hand it to a third sequence, "
            "which would overwrite what the second one still reads. "
            "A block goes back only when its last user lets go.",
            FreeIgnoresCount,
            (
                (
                    "if (--ref_counts_[block_id] == 0) free_list_.push(block_id);",
                    "ref_counts_[block_id] = 0; free_list_.push(block_id);",
                ),
            ),
            also=(FreesAtEachCall,),
        ),
        Mistake(
            "double-free-unnoticed",
            "free() of a block that is already free passes without an error, "
            "and its count drops below zero.",
            DoubleFreeUnnoticed,
            (("if (ref_counts_[block_id] == 0) throw DoubleFreeError(block_id);", ""),),
        ),
        Mistake(
            "block-in-list-twice",
            "Freeing a block twice puts its id into the free list twice. "
            "Two sequences will then be given the same block. "
            "free() of a block with a count of 0 is an error, not a second free.",
            FreesIntoListTwice,
            (
                (
                    "if (ref_counts_[block_id] == 0) throw DoubleFreeError(block_id);",
                    "if (ref_counts_[block_id] > 0) --ref_counts_[block_id];",
                ),
                (
                    "if (--ref_counts_[block_id] == 0) free_list_.push(block_id);",
                    "if (ref_counts_[block_id] == 0) free_list_.push(block_id);",
                ),
            ),
        ),
        Mistake(
            "refcount-not-reset",
            "The block went back to the free list, but its count still says 1. "
            "So get_ref_count() says that the block is in use, "
            "and a second free() passes unnoticed.",
            CountNotReset,
            (
                (
                    "if (--ref_counts_[block_id] == 0) free_list_.push(block_id);",
                    (
                        "if (ref_counts_[block_id] == 1) free_list_.push(block_id); "
                        "else --ref_counts_[block_id];"
                    ),
                ),
            ),
            also=(CountNeverLowered, CountsFreesAsOne),
        ),
        Mistake(
            "shared-count-kept",
            "free() of a shared block changes nothing. The block has one user less now. "
            "The count goes down at each call, and the block goes back when the count "
            "reaches 0.",
            SharedCountKept,
            (
                (
                    "if (--ref_counts_[block_id] == 0) free_list_.push(block_id);",
                    (
                        "if (ref_counts_[block_id] == 1) { ref_counts_[block_id] = 0; "
                        "free_list_.push(block_id); }"
                    ),
                ),
            ),
        ),
        Mistake(
            "allocate-asks-to-increase",
            "allocate() sets the count with increase_ref_count(), "
            "which refuses a free block. This block's count is still 0, so it is refused. "
            "By then it is out of the free list, and lost.",
            AllocatesByIncrease,
            (
                (
                    "ref_counts_[block_id] = 1;",
                    (
                        "if (ref_counts_[block_id] == 0) "
                        "throw BlockNotAllocatedError(block_id);\n"
                        "    ++ref_counts_[block_id];"
                    ),
                ),
            ),
        ),
        Mistake(
            "allocated-with-count-zero",
            "allocate() hands out a block but leaves its count at 0, "
            "as if the block had no user.",
            AllocatesWithoutCount,
            (("ref_counts_[block_id] = 1;", ""),),
        ),
        Mistake(
            "shares-a-free-block",
            "increase_ref_count() accepts a free block. Its id is still in the free list, "
            "so the next allocate() gives it to another sequence.",
            SharesFreeBlocks,
            (("if (ref_counts_[block_id] == 0) throw BlockNotAllocatedError(block_id);", ""),),
        ),
        Mistake(
            "exhausted-unnoticed",
            "allocate() on a full pool takes from an empty list. C++ does not forbid that. "
            "In a real run it returns whatever lies in memory. Look before you pop.",
            ExhaustedUnnoticed,
            (("if (free_list_.size() == 0) throw OutOfBlocksError(ref_counts_.size());", ""),),
        ),
        Mistake(
            "index-off-by-one",
            "The id num_blocks, one past the last block, is not refused here. "
            "Your code touches memory past the end of the array. "
            "The ids go from 0 to num_blocks - 1. Does this method check the index at all, "
            "and before anything else?",
            OneIndexTooMany,
            (
                (
                    "block_id >= int(ref_counts_.size())",
                    "block_id > int(ref_counts_.size())",
                ),
            ),
        ),
        Mistake(
            "negative-index-accepted",
            "A negative id is not refused here, "
            "and your code touches memory before the array. Unlike Python, "
            "C++ does not count from the end.",
            NegativeIndexAccepted,
            (("block_id < 0 || ", ""),),
        ),
        Mistake(
            "error-of-the-vector",
            "The error for a wrong id is std::vector's own, most likely from at(). "
            "It does not name the block, and Python could not tell it from any other "
            "IndexError. Throw BlockIndexError(block_id).",
            VectorsOwnError,
            (
                (
                    (
                        "if (block_id < 0 || block_id >= int(ref_counts_.size())) "
                        "throw BlockIndexError(block_id);"
                    ),
                    "ref_counts_.at(block_id);",
                ),
            ),
        ),
        Mistake(
            "freed-block-lost",
            "The last user lets go, but the block does not come back to the free list. "
            "It is lost for good.",
            FreedBlockLost,
            (
                (
                    "if (--ref_counts_[block_id] == 0) free_list_.push(block_id);",
                    "--ref_counts_[block_id];",
                ),
            ),
        ),
        Mistake(
            "throws-a-pointer",
            "`throw new` throws a pointer, and no handler of that error catches a pointer. "
            "C++ throws the error itself: `throw OutOfBlocksError(…)`.",
            None,
            (("throw OutOfBlocksError", "throw new OutOfBlocksError"),),
        ),
        Mistake(
            "error-made-not-thrown",
            "One line makes an error but does not throw it, so the method goes on. "
            "An error needs the word `throw`.",
            None,
            (("throw OutOfBlocksError", "OutOfBlocksError"),),
        ),
        Mistake(
            "shared-before-the-error",
            "The error is right, but increase_ref_count() had changed the count before it "
            "threw. A call that fails leaves everything as it was. Check first, then change.",
            SharesBeforeItChecks,
            (
                (
                    (
                        "if (ref_counts_[block_id] == 0) "
                        "throw BlockNotAllocatedError(block_id);\n"
                        "    ++ref_counts_[block_id];"
                    ),
                    (
                        "if (ref_counts_[block_id]++ == 0) "
                        "throw BlockNotAllocatedError(block_id);"
                    ),
                ),
            ),
        ),
        Mistake(
            "changed-before-the-error",
            "The error is right, but the count had been changed before it was thrown. "
            "A call that fails leaves everything as it was. Check first, then change.",
            FreeCountsBeforeItChecks,
            (
                (
                    (
                        "if (ref_counts_[block_id] == 0) throw DoubleFreeError(block_id);\n"
                        "    if (--ref_counts_[block_id] == 0)"
                    ),
                    (
                        "if (ref_counts_[block_id]-- == 0) throw DoubleFreeError(block_id);\n"
                        "    if (ref_counts_[block_id] == 0)"
                    ),
                ),
            ),
            also=(FreeCountsBelowZero,),
        ),
        Mistake(
            "index-unchecked",
            "A method uses block_id as an index before check_index() has seen it. "
            "So it touches memory outside the array. The case below shows which method.",
            NoIndexCheckInGet,
            (
                (
                    "check_index(block_id);\n    return ref_counts_[block_id];",
                    "return ref_counts_[block_id];",
                ),
            ),
            also=(NoIndexCheckInFree,),
        ),
        Mistake(
            "error-of-another-row",
            "free() and increase_ref_count() each have their own error for a free block. "
            "Here it is the other one's. The table above says which error belongs to which "
            "call.",
            FreeThrowsTheOtherError,
            (("throw DoubleFreeError(block_id);", "throw BlockNotAllocatedError(block_id);"),),
            also=(ShareThrowsTheOtherError, ErrorsSwapped),
        ),
        Mistake(
            "error-names-another-number",
            "The error is right, but the number in it is wrong. "
            "OutOfBlocksError takes the number of blocks in the whole pool, "
            "not the number of free ones.",
            when_exhausted(0, "no block is free: 0 of 0 are in use"),
            (
                (
                    "throw OutOfBlocksError(ref_counts_.size());",
                    "throw OutOfBlocksError(free_list_.size());",
                ),
            ),
        ),
        Mistake(
            "error-without-the-id",
            "The error is right, but the number in it is wrong. BlockIndexError, "
            "BlockNotAllocatedError and DoubleFreeError take the id of the block "
            "that the call was about.",
            with_errors_that_name(its_count, BlockNotAllocatedError),
            (
                (
                    "throw BlockNotAllocatedError(block_id);",
                    "throw BlockNotAllocatedError(ref_counts_[block_id]);",
                ),
            ),
            also=(
                with_errors_that_name(its_count, DoubleFreeError),
                with_errors_that_name(its_count, BlockNotAllocatedError, DoubleFreeError),
                with_errors_that_name(size_of_the_pool, BlockIndexError),
                with_errors_that_name(size_of_the_pool, BlockNotAllocatedError),
                with_errors_that_name(size_of_the_pool, DoubleFreeError),
                with_errors_that_name(
                    size_of_the_pool, BlockNotAllocatedError, DoubleFreeError
                ),
                with_errors_that_name(
                    size_of_the_pool, BlockIndexError, BlockNotAllocatedError, DoubleFreeError
                ),
            ),
        ),
        Mistake(
            "count-of-a-free-block-refused",
            "get_ref_count() of a free block throws. But asking for that count is no error: "
            "it is 0.",
            CountOfFreeBlockRefused,
            (
                (
                    "check_index(block_id);\n    return ref_counts_[block_id];",
                    (
                        "check_index(block_id);\n"
                        "    if (ref_counts_[block_id] == 0) "
                        "throw BlockNotAllocatedError(block_id);\n"
                        "    return ref_counts_[block_id];"
                    ),
                ),
            ),
            also=(CountOfFreeBlockDoubleFree,),
        ),
        Mistake(
            "free-blocks-miscounted",
            "get_num_free_blocks() counts something else: the blocks in use, all blocks, "
            "or users. The free blocks are those in the free list.",
            with_free_blocks(
                lambda manager: len(manager.ref_counts) - len(manager.free_blocks)
            ),
            (("return free_list_.size();", "return ref_counts_.size() - free_list_.size();"),),
            also=(
                with_free_blocks(lambda manager: len(manager.ref_counts)),
                with_free_blocks(
                    lambda manager: len(manager.ref_counts) - sum(manager.ref_counts)
                ),
            ),
        ),
        Mistake(
            "last-block-refused",
            "allocate() throws although a block is free. "
            "The pool has run out only when no block is left.",
            when_exhausted(1),
            (
                (
                    "if (free_list_.size() == 0) throw Out",
                    "if (free_list_.size() <= 1) throw Out",
                ),
            ),
        ),
        Mistake(
            "last-block-lost",
            "allocate() takes a block first, and then looks whether one is left. "
            "So the last block is refused, and yet it is out of the free list. Look first.",
            LastBlockLost,
            (
                (
                    (
                        "if (free_list_.size() == 0) "
                        "throw OutOfBlocksError(ref_counts_.size());\n"
                        "    int block_id = free_list_.pop();"
                    ),
                    (
                        "int block_id = free_list_.pop();\n"
                        "    if (free_list_.size() == 0) "
                        "throw OutOfBlocksError(ref_counts_.size());"
                    ),
                ),
            ),
        ),
        Mistake(
            "returns-no-block",
            "allocate() on a full pool returns a number and throws no error. "
            "A caller that does not check takes the number for a block id.",
            when_exhausted(0, returned=-1),
            (("throw OutOfBlocksError(ref_counts_.size());", "return -1;"),),
        ),
        Mistake(
            "first-block-refused",
            "Block 0 is refused. The ids begin at 0.",
            FirstBlockRefused,
            (("block_id < 0 || ", "block_id <= 0 || "),),
        ),
        Mistake(
            "index-against-free-blocks",
            "check_index() compares the id with the number of free blocks, "
            "which changes with every call. The ids that exist never change: "
            "there is one for each block of the pool.",
            IndexAgainstFreeBlocks,
            (
                (
                    "block_id >= int(ref_counts_.size())",
                    "block_id >= free_list_.size()",
                ),
            ),
        ),
        Mistake(
            "count-set-to-two",
            "increase_ref_count() sets the count to 2. A third user makes it 3.",
            CountSetToTwo,
            (("++ref_counts_[block_id];", "ref_counts_[block_id] = 2;"),),
        ),
    ),
    hints=(
        (
            "Write check_index() first. Every method that takes a block_id calls it before "
            "anything else."
        ),
        (
            "The order is the same in each method. Look for what can be wrong, and throw. "
            "Only then change something."
        ),
        (
            "free() takes one user away. The block returns to the free list exactly when "
            "that was the last user, that is, when the count becomes 0."
        ),
    ),
)
