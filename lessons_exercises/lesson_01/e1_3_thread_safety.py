"""Exercise 1.3: the block manager that several threads may use.

Races are rare, so the check does not wait for one. It needs no second thread. It looks which
data each method touches, and which lock it holds at that moment. If two methods touch the same
data and one of them changes it, both must hold the same lock. Where a method gives the lock
back in between, the check lets another call in. See watched.h.
"""

import itertools
import random
import re

from lessons_exercises.lesson_01 import e1_2_reference_counts as reference_counts
from lessons_exercises.lesson_01 import thread_models as models
from lessons_exercises.lesson_01.native import METHODS, watched_block_manager_class
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text


def cases():
    yield "alone", (1, ())
    yield "gives back", 2
    for calls in (
        (("allocate",),),
        (("allocate",), ("increase_ref_count", 0)),
        (("allocate",), ("free", 0)),
    ):
        yield "alone", (1, calls)
    for case in reference_counts.cases():
        if len(case[1]) <= 2 or len(case[1]) == 400:
            yield "alone", case
    yield "after an error", 1
    yield "data", 3
    for users in (1, 2):
        for num_blocks in (1, 2, 3):
            yield "meet", (num_blocks, users)


def hidden(seed):
    """Half of what exercise 1.2 has, then the data and the meetings, on other pools."""
    chance = random.Random(seed)
    yield from (("alone", case) for case in list(reference_counts.hidden(seed))[::2])
    for kind in ("gives back", "after an error", "data"):
        yield kind, chance.randint(5, 40)
    for users in (1, 2, 3):
        yield "meet", (chance.randint(4, 40), users)


def observe(manager_type, case):
    """A case: its kind, and the size of the pool.

    For "meet" also how many users block 0 has.
    """
    kind, detail = case
    return {
        "alone": reference_counts.observe,
        "gives back": _gives_back,
        "after an error": _after_an_error,
        "data": _data,
        "meet": _meet,
    }[kind](manager_type, detail)


def _gives_back(manager_type, num_blocks):
    """Whether the mutex is free when a method has returned.

    Each is the last call that its manager gets.
    """
    for name in METHODS:
        manager = manager_type(num_blocks)
        arguments = (0,) if name == "get_ref_count" else ()
        if name in ("free", "increase_ref_count"):
            arguments = (manager.allocate(),)
        result = reference_counts.perform(manager, (name, *arguments))
        if result.startswith(NEVER):
            return Text(f"{name}() never returns")
        if manager.is_locked():
            return Text(f"{name}() has returned, but mutex_ is still locked")
    return Text("mutex_ is free after each method")


def _after_an_error(manager_type, num_blocks):
    """Each method that can fail fails; then the manager still answers."""
    manager, none = manager_type(num_blocks), num_blocks + 4
    calls = [
        ("free", none),
        ("free", 0),
        ("increase_ref_count", none),
        ("increase_ref_count", 0),
        ("get_ref_count", none),
        *[("allocate",)] * (num_blocks + 1),
    ]
    for call in calls:
        if reference_counts.perform(manager, call).startswith(NEVER):
            return Text(f"{call[0]}() never returns after an earlier call raised its error")
    return Text(
        "the manager answers after each error"
        if not manager.is_locked()
        else "mutex_ is still locked after an error"
    )


def _data(manager_type, num_blocks):
    """Which lock each method holds while it touches what another one changes.

    On every path through it.
    """
    manager, none = manager_type(num_blocks), num_blocks + 4
    manager.record()
    for call in 2 * (
        *[("allocate",)] * (num_blocks + 1),
        ("increase_ref_count", 0),
        ("free", 0),
        ("get_ref_count", 0),
        ("get_ref_count", none),
        ("get_num_free_blocks",),
        ("free", 0),
        ("free", 0),
        ("get_ref_count", 0),
        ("increase_ref_count", 0),
        ("increase_ref_count", none),
        ("free", none),
        ("get_num_free_blocks",),
        *(("free", block_id) for block_id in range(1, num_blocks)),
    ):
        reference_counts.perform(manager, call)
    wrong = [f"{name}() {use}" for name, use in manager.uses().items() if use]
    if len(wrong) == len(METHODS) and not manager.has_mutex:
        wrong.insert(0, "there is no member mutex_")
    return Text("; ".join(wrong) or ALL_COVERED)


def _meet(manager_type, detail):
    """Every pair of methods. The second one comes in wherever the first holds no lock."""
    for first, second in itertools.product(CALLS, repeat=2):
        one_by_one = _in_turn(manager_type, detail, first, second)
        other_way = _in_turn(manager_type, detail, second, first)
        in_turn = (one_by_one, (*other_way[1::-1], other_way[2]))
        for gap in itertools.count():
            manager = _manager(manager_type, detail)
            results = manager.meet(gap, first, second)
            if results is None:
                break
            outcome = (*results, _state(manager, detail))
            if outcome not in in_turn:
                return Text(
                    f"{first[0]}(): {outcome[0]}; {second[0]}() in between: {outcome[1]}; "
                    f"{outcome[2]}"
                )
    return Text("as if one had come after the other")


def _manager(manager_type, detail):
    """One block of the pool has `users` users. All others but one are in use too."""
    num_blocks, users = detail
    manager = manager_type(num_blocks)
    for _ in range(max(1, num_blocks - 1)):
        manager.allocate()
    for _ in range(users - 1):
        manager.increase_ref_count(0)
    return manager


def _in_turn(manager_type, detail, *calls):
    manager = _manager(manager_type, detail)
    results = [
        reference_counts.perform(manager, call[: 1 + models.TAKES_ID[call[0]]])
        for call in calls
    ]
    return (*results, _state(manager, detail))


def _state(manager, detail):
    return reference_counts.state(manager, detail[0])


NEVER = "NeverComesBack"
ALL_COVERED = "each method holds one lock while it touches what others change"
CALLS = [(name, 0) for name in METHODS]


# one after the other; in "gives back" each call has its own manager
CALLS_OF = {"gives back": 0, "after an error": 7, "data": 36}


def size(case):
    """Calls one after the other, and blocks."""
    kind, detail = case
    return reference_counts.size(detail) if kind == "alone" else (CALLS_OF[kind], detail)


def describe(case):
    kind, detail = case
    if kind == "alone":
        return reference_counts.describe(detail)
    if kind == "meet":
        return (
            f"BlockManager({detail[0]}), block 0 has {counted(detail[1], 'user')}: "
            "two threads, each with one call"
        )
    words = {
        "gives back": "each method is called, and then a look at mutex_",
        "after an error": "one call after another that raises",
        "data": "all methods, and which lock they hold while they touch what others change",
    }[kind]
    return f"BlockManager({detail}): {words}"


NAMELESS = re.compile(
    r"[;{}]\s*(?:std\s*::\s*)?(?:lock_guard|unique_lock|scoped_lock|shared_lock)\s*(?:<[^;>]*>)?\s*[({]"
)


def name_from_text(source: str) -> str | None:
    """A guard without a name.

    In round brackets it is a new variable called mutex_, and running shows no lock at all.
    """
    nameless = NAMELESS.search(reference_counts.without_comments(source))
    return "guard-dies-at-once" if nameless else reference_counts.name_from_text(source)


LOCK = "std::lock_guard<std::mutex> lock(mutex_);"
MEMBER = "mutable std::mutex mutex_;"
LOCK_IN = {
    method: f"{signature} {{\n    // BEGIN SOLUTION 1.3\n    {LOCK}"
    for method, signature in {
        "allocate": "int allocate()",
        "increase_ref_count": "void increase_ref_count(int block_id)",
        "free": "void free(int block_id)",
        "get_ref_count": "int get_ref_count(int block_id) const",
        "get_num_free_blocks": "int get_num_free_blocks() const",
    }.items()
}


def _without_lock(*methods):
    return tuple((LOCK_IN[method], LOCK_IN[method].replace(LOCK, "")) for method in methods)


EXERCISE = Exercise(
    id="1.3",
    title="thread safety",
    answer_name="safe_block_manager",
    language="c++",
    reference=models.ThreadSafeBlockManager,
    prepare=watched_block_manager_class,
    cases=cases,
    size=size,
    hidden=hidden,
    observe=observe,
    describe=describe,
    # a mistake that one thread shows makes many meetings go wrong as well
    chancy=lambda case: case[0] == "meet",
    name_from_text=name_from_text,
    points=2,
    time_limit=30.0,
    mistakes=(
        *(mistake for mistake in reference_counts.EXERCISE.mistakes if mistake.wrong is None),
        Mistake(
            "no-mutex",
            "No method takes a lock, and there is no member `mutex_` to take. "
            "A mutex made inside a method does not count. Each call makes a new one, "
            "and that keeps no other thread out.",
            models.NoMutex,
            (*_without_lock(*METHODS), (MEMBER, "")),
        ),
        Mistake(
            "mutex-never-locked",
            "The member `mutex_` is there, but no method waits for it. "
            "Does each method lock that member, or does it lock its own mutex, "
            "made inside the method?",
            models.misusing(models.WITHOUT, *METHODS),
            _without_lock(*METHODS),
            also=(
                models.misusing(models.ANOTHER, *METHODS),
                *(models.misusing(models.ANOTHER, *methods) for methods in models.subsets(4)),
            ),
        ),
        Mistake(
            "reads-without-lock",
            "The methods that change something take the lock, but those that read do not. "
            "While one thread is in the middle of a change, another reads half of it. "
            "C++ calls that a data race and promises nothing.",
            models.misusing(models.WITHOUT, "get_ref_count", "get_num_free_blocks"),
            _without_lock("get_ref_count", "get_num_free_blocks"),
        ),
        Mistake(
            "num-free-without-lock",
            "get_num_free_blocks() reads the free list "
            "while another thread may be changing it. Reading takes the lock too.",
            models.misusing(models.WITHOUT, "get_num_free_blocks"),
            _without_lock("get_num_free_blocks"),
        ),
        Mistake(
            "increase-without-lock",
            "increase_ref_count() does not take the lock. `++count` is three steps: read, "
            "add, write. An increase between another thread's read and write is lost.",
            models.misusing(models.WITHOUT, "increase_ref_count"),
            _without_lock("increase_ref_count"),
        ),
        Mistake(
            "get-ref-count-without-lock",
            "get_ref_count() reads a count while another thread may be changing it. "
            "Reading takes the lock too.",
            models.misusing(models.WITHOUT, "get_ref_count"),
            _without_lock("get_ref_count"),
        ),
        Mistake(
            "free-without-lock",
            "free() does not take the lock. It changes a count and the free list. "
            "Another thread can come between any two of its steps.",
            models.misusing(models.WITHOUT, "free"),
            _without_lock("free"),
        ),
        Mistake(
            "allocate-without-lock",
            "allocate() does not take the lock. "
            "Two threads that are in it at the same moment get the same block.",
            models.misusing(models.WITHOUT, "allocate"),
            _without_lock("allocate"),
        ),
        Mistake(
            "some-methods-without-lock",
            "Several methods do not take the lock. The case below names them. "
            "A lock helps only if every public method takes it, "
            "including those that only read.",
            models.misusing(models.WITHOUT, *METHODS[1:]),
            _without_lock(
                "increase_ref_count", "free", "get_ref_count", "get_num_free_blocks"
            ),
            also=tuple(
                models.misusing(models.WITHOUT, *methods)
                for methods in models.subsets(2, 3, 4)
                if methods != ("get_ref_count", "get_num_free_blocks")
            ),
        ),
        Mistake(
            "count-changed-outside-lock",
            "free() lowers the count without the lock. "
            "If two threads free a shared block at the same moment, "
            "one of the two steps can be lost, or both threads can find the count at 0. "
            "The look at the count, the change of it and the free list belong under one lock.",
            models.misusing(models.CHANGES_BEFORE, "free"),
            (
                (LOCK_IN["free"], LOCK_IN["free"].replace(LOCK, "")),
                (
                    "if (--ref_counts_[block_id] == 0) free_list_.push(block_id);",
                    (
                        f"if (--ref_counts_[block_id] == 0) {{ {LOCK} "
                        "free_list_.push(block_id); }"
                    ),
                ),
            ),
        ),
        Mistake(
            "check-outside-lock",
            "free() looks at the count first and takes the lock afterwards. "
            "Two threads can both look, both see one user, and both free. "
            "The look and the change belong under one lock.",
            models.misusing(models.LOOKS_BEFORE, "free"),
            (
                (
                    (
                        f"{LOCK_IN['free']}\n"
                        "    // END SOLUTION\n"
                        "    // BEGIN SOLUTION 1.2\n"
                        "    check_index(block_id);\n"
                        "    if (ref_counts_[block_id] == 0) throw DoubleFreeError(block_id);"
                    ),
                    LOCK_IN["free"].replace(
                        LOCK,
                        "check_index(block_id); if (ref_counts_[block_id] == 0) "
                        f"throw DoubleFreeError(block_id); {LOCK}",
                    ),
                ),
            ),
        ),
        Mistake(
            "check-outside-lock-in-allocate",
            "allocate() looks whether a block is left, and takes the lock afterwards. "
            "Two threads can both see the last block. "
            "The second one then takes from an empty list. "
            "The look and the change belong under one lock.",
            models.misusing(models.LOOKS_BEFORE, "allocate"),
            (
                (
                    (
                        f"{LOCK_IN['allocate']}\n"
                        "    // END SOLUTION\n"
                        "    // BEGIN SOLUTION 1.2\n"
                        "    if (free_list_.size() == 0) "
                        "throw OutOfBlocksError(ref_counts_.size());"
                    ),
                    LOCK_IN["allocate"].replace(
                        LOCK,
                        "if (free_list_.size() == 0) "
                        f"throw OutOfBlocksError(ref_counts_.size()); {LOCK}",
                    ),
                ),
            ),
        ),
        Mistake(
            "check-outside-lock-in-increase",
            "increase_ref_count() looks at the count and takes the lock afterwards. "
            "In between, another thread may free the block. "
            "The block is then in use and in the free list at once. "
            "The look and the change belong under one lock.",
            models.misusing(models.LOOKS_BEFORE, "increase_ref_count"),
            (
                (
                    (
                        f"{LOCK_IN['increase_ref_count']}\n"
                        "    // END SOLUTION\n"
                        "    // BEGIN SOLUTION 1.2\n"
                        "    check_index(block_id);\n"
                        "    if (ref_counts_[block_id] == 0) "
                        "throw BlockNotAllocatedError(block_id);"
                    ),
                    LOCK_IN["increase_ref_count"].replace(
                        LOCK,
                        "check_index(block_id); if (ref_counts_[block_id] == 0) "
                        f"throw BlockNotAllocatedError(block_id); {LOCK}",
                    ),
                ),
            ),
        ),
        Mistake(
            "returns-before-unlock",
            "A method locks by hand and returns without reaching an `unlock()`. "
            "The next call waits forever. A std::lock_guard unlocks whichever way the method "
            "ends.",
            models.never_unlocks("get_num_free_blocks"),
            (
                (
                    LOCK_IN["get_num_free_blocks"],
                    LOCK_IN["get_num_free_blocks"].replace(LOCK, "mutex_.lock();"),
                ),
            ),
            also=tuple(
                models.never_unlocks(*methods)
                for methods in (
                    ("allocate",),
                    ("free",),
                    ("increase_ref_count",),
                    ("get_ref_count",),
                    ("get_ref_count", "get_num_free_blocks"),
                    ("allocate", "get_ref_count", "get_num_free_blocks"),
                    METHODS,
                )
            ),
        ),
        Mistake(
            "keeps-lock-after-error",
            "A method locks by hand. When it throws, nothing unlocks, "
            "and the next call waits forever. A std::lock_guard unlocks whichever way "
            "the method ends.",
            models.KeepsLockAfterError,
            (
                (LOCK_IN["free"], LOCK_IN["free"].replace(LOCK, "mutex_.lock();")),
                (
                    "if (--ref_counts_[block_id] == 0) free_list_.push(block_id);",
                    (
                        "if (--ref_counts_[block_id] == 0) free_list_.push(block_id);\n"
                        "    mutex_.unlock();"
                    ),
                ),
            ),
            also=(
                models.keeps_lock_after_error("allocate"),
                models.keeps_lock_after_error("increase_ref_count"),
                models.keeps_lock_after_error(*METHODS),
            ),
        ),
        Mistake(
            "locks-twice",
            "allocate() takes the lock and then calls a method that takes it again. "
            "A std::mutex does not know that it is the same thread. "
            "So the thread waits for itself. Inside the lock, use the data, "
            "not the public methods.",
            models.LocksTwice,
            (
                (
                    "if (free_list_.size() == 0) throw Out",
                    "if (get_num_free_blocks() == 0) throw Out",
                ),
            ),
        ),
        Mistake(
            "locks-twice-in-free",
            "free() takes the lock and then calls a method that takes it again. "
            "A std::mutex does not know that it is the same thread. "
            "So the thread waits for itself. Inside the lock, use the data, "
            "not the public methods.",
            models.FreeLocksTwice,
            (
                (
                    "check_index(block_id);\n    if (ref_counts_[block_id] == 0) throw Double",
                    "if (get_ref_count(block_id) == 0) throw Double",
                ),
            ),
            also=(models.FreeLocksTwiceAtItsEnd, models.FreeLocksTwiceInTheMiddle),
        ),
        Mistake(
            "check-index-locks-too",
            "check_index() takes the lock, but the methods that call it hold the lock "
            "already. So the thread waits for itself. Only the public methods lock. "
            "What they call inside does not.",
            models.CheckIndexLocksToo,
            (
                (
                    "void check_index(int block_id) const {",
                    f"void check_index(int block_id) const {{ {LOCK}",
                ),
            ),
        ),
        Mistake(
            "guard-dies-at-once",
            "A method takes the lock and gives it back before its work is done. "
            "A guard holds the lock until the closing brace of the block that it is in. "
            "A guard without a name holds it only until the semicolon. "
            "Name it, and put it at the top of the method.",
            models.misusing(models.AFTER, *METHODS),
            tuple(
                (LOCK_IN[name], LOCK_IN[name].replace(LOCK, f"{{ {LOCK} }}"))
                for name in METHODS
            ),
            also=(
                *(
                    models.misusing(models.AFTER, *methods)
                    for methods in models.subsets(1, 2, 3, 4)
                ),
                models.FreesInTwoSteps,
                *map(
                    models.lets_go_or_keeps_it, ("increase_ref_count", "free", "get_ref_count")
                ),
                models.SharesInTwoSteps,
                models.AllocatesInTwoSteps,
            ),
        ),
        Mistake(
            "changes-under-a-shared-lock",
            "A method changes data under a shared lock. "
            "Several threads can hold a shared lock at once: "
            "it is for threads that only read. A thread that changes something takes "
            "the lock for itself alone.",
            models.misusing(models.SHARED, "free"),
            (
                (MEMBER, MEMBER.replace("std::mutex", "std::shared_mutex")),
                ("#include <mutex>", "#include <mutex>\n#include <shared_mutex>"),
                *(
                    (
                        lines,
                        lines.replace(
                            LOCK,
                            f"std::{'shared' if name == 'free' else 'unique'}_lock "
                            "lock(mutex_);",
                        ),
                    )
                    for name, lines in LOCK_IN.items()
                ),
            ),
            also=tuple(
                models.misusing(models.SHARED, *methods)
                for size in (1, 2, 3)
                for methods in itertools.combinations(METHODS[:3], size)
            ),
        ),
    ),
    hints=(
        (
            "The class needs one `mutable std::mutex mutex_;`. "
            "It is mutable because the const methods lock it too."
        ),
        (
            "`std::lock_guard<std::mutex> guard(mutex_);` locks at that line. "
            "It unlocks at the end of the method, even after an error."
        ),
        "It is the first line of every public method, before any look at the data.",
    ),
)
