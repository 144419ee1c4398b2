"""Exercise 1.3: thread safety.

The class needs one `mutable std::mutex mutex_;`. It is mutable because the const methods lock
it too.

`std::lock_guard<std::mutex> guard(mutex_);` locks at that line. It unlocks at the end of the
method, even after an error.

It is the first line of every public method, before any look at the data.
"""

import itertools
import re
from concurrent.futures import ThreadPoolExecutor

from lessons_content.exercises.kit import Text, counted, exercise
from lessons_content.lesson_01 import e1_2_reference_counts as reference_counts
from lessons_content.lesson_01.const_locks import GUARDS, recognise
from lessons_content.lesson_01.native import METHODS, without_comments
from lessons_content.lesson_01.native import watched_block_manager_class as build
from paged_attention.pool.block_manager import PythonBlockManager

# Races are rare, so the check does not wait for one: no two calls run at a time. It looks
# which data each method touches, and which lock the method holds at that moment. If two
# methods touch the same data and one of them changes it, both must hold the same lock, in all
# threads. Where a method gives the lock back in between, the check lets another call in: see
# watched.h.


class ThreadSafeBlockManager(PythonBlockManager):
    """What the watch says where each method holds one lock from first line to last."""

    has_mutex = True

    def is_locked(self):
        return False

    def record(self):
        pass

    def uses(self):
        return dict.fromkeys(METHODS, "")

    def meet(self, gap, first, second):
        return None  # there is no gap


def cases():
    yield "alone", (1, ())
    yield "gives back", 2
    for then in ((), (("increase_ref_count", 0),), (("free", 0),)):
        yield "alone", (1, (("allocate",), *then))
    for case in reference_counts.cases():
        if len(case[1]) <= 2 or len(case[1]) == 400:
            yield "alone", case
    yield "after an error", 1
    yield "data", 3
    yield from (("meet", (num_blocks, users)) for users in (1, 2) for num_blocks in (1, 2, 3))


def hidden(chance):
    """Half of what exercise 1.2 has, then the data and the meetings, on other pools."""
    yield from (("alone", case) for case in list(reference_counts.hidden(chance))[::2])
    for kind in ("gives back", "after an error", "data"):
        yield kind, chance.randint(5, 40)
    for users in (1, 2, 3):
        yield "meet", (chance.randint(4, 40), users)


def observe(manager_type, case):
    """A case: its kind, and the size of the pool; for "meet" also the users of block 0."""
    kind, detail = case
    return KINDS[kind][0](manager_type, detail)


def _gives_back(manager_type, num_blocks):
    """Whether the mutex is free when a method has returned, which its manager called last."""
    for name in METHODS:
        manager = manager_type(num_blocks)
        block_id = manager.allocate() if name in ("free", "increase_ref_count") else 0
        if _perform(manager, name, block_id).startswith(NEVER):
            return Text(f"{name}() never returns")
        if manager.is_locked():
            return Text(f"{name}() has returned, but mutex_ is still locked")
    return Text("mutex_ is free after each method")


def _after_an_error(manager_type, num_blocks):
    """Each method that can fail fails; then the manager still answers."""
    manager, none = manager_type(num_blocks), num_blocks + 4
    calls = [
        (name, block_id) for name in ("free", "increase_ref_count") for block_id in (none, 0)
    ]
    calls += [("get_ref_count", none)] + [("allocate", 0)] * (num_blocks + 1)
    for name, block_id in calls:
        if _perform(manager, name, block_id).startswith(NEVER):
            return Text(f"{name}() never returns after an earlier call raised its error")
    if manager.is_locked():
        return Text("mutex_ is still locked after an error")
    return Text("the manager answers after each error")


def _data(manager_type, num_blocks):
    """Which lock each method holds while it touches what others change, on each path."""
    manager, none = manager_type(num_blocks), num_blocks + 4
    manager.record()
    add, free, get, num_free = METHODS[1:]
    calls = [("allocate", 0)] * (num_blocks + 1)
    calls += [(add, 0), (free, 0), (get, 0), (get, none), (num_free, 0), (free, 0), (free, 0)]
    calls += [(get, 0), (add, 0), (add, none), (free, none), (num_free, 0)]
    calls += [(free, block_id) for block_id in range(1, num_blocks)]
    for _ in range(2):  # each time in a thread of its own
        with ThreadPoolExecutor(1) as thread:
            list(thread.map(lambda call: _perform(manager, *call), calls))
    wrong = [f"{name}() {use}" for name, use in manager.uses().items() if use]
    if len(wrong) == len(METHODS) and not manager.has_mutex:
        wrong.insert(0, "there is no member mutex_")
    return Text("; ".join(wrong) or ALL_COVERED)


def _meet(manager_type, detail):
    """Every pair of methods. The second one comes in wherever the first holds no lock."""
    for first, second in itertools.product([(name, 0) for name in METHODS], repeat=2):
        one_by_one = _in_turn(manager_type, detail, first, second)
        other_way = _in_turn(manager_type, detail, second, first)
        in_turn = (one_by_one, (*other_way[1::-1], other_way[2]))
        for gap in itertools.count():
            manager = _manager(manager_type, detail)
            results = manager.meet(gap, first, second)
            if results is None:
                break
            (one, other), state = results, reference_counts.state(manager, detail[0])
            if (one, other, state) not in in_turn:
                return Text(f"{first[0]}(): {one}; {second[0]}() in between: {other}; {state}")
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
    results = [_perform(manager, *call) for call in calls]
    return (*results, reference_counts.state(manager, detail[0]))


def _perform(manager, name, block_id):
    """What a method does, with the block's id if it takes one."""
    call = (name, block_id) if name in reference_counts.TAKE_AN_ID else (name,)
    return reference_counts.perform(manager, call)


NEVER = "NeverComesBack"
ALL_COVERED = "each method holds one lock while it touches what others change"
LOCKS = "all methods, and which lock they hold while they touch what others change"
# Each kind of cases: how an answer is tried on them; how many calls that is one after the
# other, where the case does not say it; and that in words.
KINDS = {
    "alone": (reference_counts.observe, None, None),
    "gives back": (_gives_back, 0, "each method is called, and then a look at mutex_"),
    "after an error": (_after_an_error, 7, "one call after another that raises"),
    "data": (_data, 36, LOCKS),
    "meet": (_meet, None, "two threads, each with one call"),
}


def size(case):
    """Calls one after the other, and blocks."""
    kind, detail = case
    return reference_counts.size(detail) if kind == "alone" else (KINDS[kind][1], detail)


def describe(case):
    kind, detail = case
    if kind == "alone":
        return reference_counts.describe(detail)
    pool = f"BlockManager({detail})"
    if kind == "meet":
        pool = f"BlockManager({detail[0]}), block 0 has {counted(detail[1], 'user')}"
    return f"{pool}: {KINDS[kind][2]}"


NAMELESS = rf"[;{{}}]\s*(?:std\s*::\s*)?{GUARDS}\s*(?:<[^;>]*>)?\s*"


def name_from_text(source: str) -> str | None:
    """A guard without a name. Around a name alone, round brackets declare a variable."""
    text = without_comments(source)
    if re.search(NAMELESS + r"\(\s*mutex_\s*\)\s*;", text):
        return "guard-locks-nothing"
    if re.search(NAMELESS + r"[({]", text):
        return "guard-dies-at-once"
    return reference_counts.name_from_text(source)


EXERCISE = exercise(
    globals(),
    answer_name="safe_block_manager",
    language="c++",
    reference=ThreadSafeBlockManager,
    prepare=build,
    # a mistake that one thread shows makes many meetings go wrong as well
    chancy=lambda case: case[0] == "meet",
    points=2,
    time_limit=30.0,
)
