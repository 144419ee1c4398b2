"""Exercise 1.3: the block manager that several threads may use.

Races are rare, so the check does not wait for one. It holds the manager's own mutex and looks who waits for it: a method
that comes back meanwhile took no lock. Two threads that wait at the door for the same last block then show whether the
look and the act are under one lock. What waits is asleep: how long a call takes on a busy machine says nothing.
"""

import functools
import random
import re
import threading

from lessons_lib.checks import Crash, Exercise, Mistake, Stuck, Text
from lessons_lib.own_time import Stopwatch, observe_thread
from solutions.checks.lesson_01 import reference_counts
from solutions.checks.lesson_01 import thread_models as models
from solutions.checks.lesson_01.lock_scopes import works_after_release
from solutions.checks.lesson_01.native import METHODS, block_manager_class
from solutions.checks.words import counted

PATIENCE = 0.1  # seconds of its own that a call may take, while the mutex is held, before it counts as waiting
LOOK_EVERY = 0.01  # seconds


def cases():
    yield "alone", (1, ())
    yield "gives back", 2  # early, since a call that never comes back costs each later case its patience
    for calls in ((("allocate",),), (("allocate",), ("increase_ref_count", 0)), (("allocate",), ("free", 0))):
        yield "alone", (1, calls)
    for case in reference_counts.cases():
        if len(case[1]) <= 2 or len(case[1]) == 400:
            yield "alone", case
    yield "waits", 8
    yield "after an error", 1
    yield "keeps allocate", 4
    yield "keeps free", 4
    yield "free and share", 2
    yield "two free", (3, 1)
    yield "two free", (3, 2)
    yield "two allocate", 1
    yield "stress", None


def hidden(seed):
    """Half of what exercise 1.2 has, by one thread; then the meetings of threads on pools of other sizes."""
    chance = random.Random(seed)
    yield from (("alone", case) for case in list(reference_counts.hidden(seed))[::2])
    for kind in ("gives back", "waits", "after an error", "keeps allocate", "keeps free", "free and share", "two allocate"):
        yield kind, chance.randint(9, 40)
    for users in (1, 2, 3):
        yield "two free", (chance.randint(4, 40), users)


def observe(manager_type, case):
    """A case: its kind, and the size of the pool; for "two free" also how many users the block has."""
    kind, detail = case
    return {"alone": _alone, "gives back": _gives_back, "waits": _waits, "after an error": _after_an_error, "keeps allocate": _keeps_allocate,
            "keeps free": _keeps_free, "free and share": _free_and_share, "two free": _two_free,
            "two allocate": _two_allocate, "stress": _stress}[kind](manager_type, detail)


def _alone(manager_type, case):
    """One thread only: what exercise 1.2 asked for, and every call comes back."""
    return _in_thread(reference_counts.observe, manager_type, case).result(manager_type.patience)


def _gives_back(manager_type, num_blocks):
    """Whether the mutex is free when a method has come back; each is the last call that its manager gets."""
    for name in METHODS:
        manager = manager_type(num_blocks)
        arguments = (manager.allocate(),) if name in ("free", "increase_ref_count") else (0,) if name == "get_ref_count" else ()
        if _in_thread(getattr(manager, name), *arguments).result(manager.patience) == STUCK:
            return Stuck(f"{name}() never comes back")
        if manager.is_locked():
            return Text(f"{name}() has come back, and mutex_ is still locked")
    return Text("mutex_ is free after each method")


def _waits(manager_type, num_blocks):
    """Which calls wait while somebody else holds the mutex; all are made at once."""
    manager = manager_type(num_blocks)
    freed, increased, read, shared = (manager.allocate() for _ in range(4))
    manager.increase_ref_count(shared)
    manager.at_the_door = 0
    if not manager.lock():
        return Text("there is no member mutex_")
    arguments = {"free": (freed,), "increase_ref_count": (increased,), "get_ref_count": (read,)}
    calls = {name: _in_thread(getattr(manager, name), *arguments.get(name, ())) for name in METHODS}
    calls["free of a shared block"] = _in_thread(manager.free, shared)
    while True:
        waiting = [name for name, call in calls.items() if not call.has_returned()]
        if manager.at_the_door >= len(waiting):  # only our models can tell, and need no patience
            break
        if all(calls[name].own_time() > PATIENCE for name in waiting):
            break
    manager.unlock()
    for call in calls.values():
        call.comes_back(manager.patience)
    ahead = [name for name in calls if name not in waiting]
    return Text(f"without waiting: {', '.join(ahead)}" if ahead else "every call waited")


def _after_an_error(manager_type, num_blocks):
    """Each method that can fail fails; then the manager still answers."""
    manager, none = manager_type(num_blocks), num_blocks + 4
    calls = [("free", none), ("free", 0), ("increase_ref_count", none), ("increase_ref_count", 0), ("get_ref_count", none),
             *[("allocate",)] * (num_blocks + 1)]
    for call in calls:
        result = _in_thread(reference_counts.perform, manager, call).result(manager.patience)
        if result == STUCK:
            return Stuck(f"{call[0]}() never comes back after an earlier call raised its error")
    return Text("the manager answers after each error")


def _keeps_allocate(manager_type, num_blocks):
    """Whether the method holds the mutex to its end."""
    return _kept("allocate", manager_type(num_blocks).keeps_lock_during("allocate"))


def _keeps_free(manager_type, num_blocks):
    manager = manager_type(num_blocks)
    return _kept("free", manager.keeps_lock_during("free", manager.allocate()))


def _kept(method, kept):
    return Text(f"{method}() {'holds the mutex' if kept else 'has let go of the mutex'}")


def _free_and_share(manager_type, num_blocks):
    """One thread frees a block's last use while another wants to share it; several times, since either may be first."""
    for _ in range(4):
        manager = manager_type(num_blocks)
        block_id = manager.allocate()
        manager.at_the_door = 0
        held = manager.lock()
        free = _in_thread(reference_counts.perform, manager, ("free", block_id))
        free.comes_to_the_door(manager, 1, PATIENCE / 4)
        share = _in_thread(reference_counts.perform, manager, ("increase_ref_count", block_id))
        share.comes_to_the_door(manager, 2, PATIENCE / 4)
        if held:
            manager.unlock()
        free.result(manager.patience), share.result(manager.patience)
        if (manager.get_ref_count(block_id) > 0) == (manager.get_num_free_blocks() == num_blocks):
            return Text("the block is in the free list and in use")
    return Text("the block is free or in use")


def _two_free(manager_type, detail):
    num_blocks, users = detail
    manager = manager_type(num_blocks)
    block_id = manager.allocate()
    for _ in range(users - 1):
        manager.increase_ref_count(block_id)
    manager.at_the_door = 0
    results = _both_at_the_door(manager, ("free", block_id))
    return Text(f"{results}; {reference_counts.state(manager, num_blocks)}")


def _two_allocate(manager_type, num_blocks):
    manager = manager_type(num_blocks)
    for _ in range(num_blocks - 1):
        manager.allocate()
    manager.at_the_door = 0
    results = _both_at_the_door(manager, ("allocate",))
    if getattr(manager, "crashed", False):
        raise Crash
    return Text(f"{results}; {reference_counts.state(manager, num_blocks)}")


def _stress(manager_type, _):
    return Text(f"the manager {manager_type.stress()}")


def _both_at_the_door(manager, call):
    """Two threads make the call and come as far as the mutex lets them; then the door opens."""
    held = manager.lock()
    calls = [_in_thread(reference_counts.perform, manager, call) for _ in range(2)]
    if held:
        for call in calls:
            call.comes_to_the_door(manager, 2, PATIENCE)
        manager.unlock()
    return " and ".join(sorted(str(call.result(manager.patience)) for call in calls))


STUCK = Stuck("the call never comes back")


class _in_thread:
    """Runs a function in a thread that nobody has to wait for."""

    def __init__(self, function, *arguments):
        self.value = STUCK
        self.thread = threading.Thread(target=self._run, args=(function, *arguments), daemon=True)
        self.thread.start()
        self.begin_to_wait()

    def _run(self, function, *arguments):
        try:
            self.value = function(*arguments)
        except Crash:
            pass  # the caller reads it off the manager
        except Exception as error:
            self.value = Text(f"{type(error).__name__}: {error}")

    def begin_to_wait(self):
        self.own_time = Stopwatch(functools.partial(observe_thread, self.thread.native_id), LOOK_EVERY).look

    def has_returned(self) -> bool:
        self.thread.join(LOOK_EVERY / 5)
        return not self.thread.is_alive()

    def comes_back(self, patience) -> bool:
        """Whether the call returns before it has taken `patience` seconds of its own from now on."""
        self.begin_to_wait()
        while not self.has_returned():
            if self.own_time() > patience:
                return False
        return True

    def comes_to_the_door(self, manager, visitors, patience):
        """Waits until the call has returned or waits at the mutex. Our models tell when `visitors` calls do."""
        while not (self.has_returned() or manager.at_the_door >= visitors or self.own_time() > patience):
            pass

    def result(self, patience):
        return self.value if self.comes_back(patience) else STUCK


def size(case):
    """Threads, calls, blocks; "gives back" makes one call of each method, on a manager of its own each time."""
    kind, detail = case
    if kind == "alone":
        return 1, *reference_counts.size(detail)
    if kind == "gives back":
        return 1, 1, 0
    return 4 if kind == "stress" else 2, 2, detail[0] if kind == "two free" else detail or 0


def describe(case):
    kind, detail = case
    if kind == "alone":
        return reference_counts.describe(detail)
    if kind == "two free":
        return f"BlockManager({detail[0]}): two threads free the same block, which has {counted(detail[1], 'user')}"
    words = {
        "gives back": "each method is called, and then a look at mutex_",
        "waits": "one thread holds mutex_, others call each method, and free() for a shared block too",
        "free and share": "one thread frees the last use of a block, another shares it",
        "after an error": "one call after another that raises",
        "keeps allocate": "a look at mutex_ while allocate() changes the free list",
        "keeps free": "a look at mutex_ while free() changes the free list",
        "two allocate": "two threads allocate, and one block is left",
        "stress": "four threads allocate and free as fast as they can",
    }[kind]
    return f"BlockManager({detail}): {words}" if detail else words


def recognise(source: str) -> str | None:
    """A guard without a name, or one that ends too early, is wrong in any program, and tests would seldom see it."""
    guard = r"\b(lock_guard|unique_lock|scoped_lock|shared_lock)\s*(<[^;>]*>)?\s*[({]"
    text = reference_counts.without_comments(source)
    if re.search(guard, text) or works_after_release(text):
        return "guard-dies-at-once"
    return reference_counts.recognise(source)


LOCK = "std::lock_guard<std::mutex> lock(mutex_);"
MEMBER = "mutable std::mutex mutex_;"
LOCK_IN = {method: f"{signature} {{\n    // BEGIN SOLUTION 1.3\n    {LOCK}" for method, signature in {
    "allocate": "int allocate()", "increase_ref_count": "void increase_ref_count(int block_id)",
    "free": "void free(int block_id)", "get_ref_count": "int get_ref_count(int block_id) const",
    "get_num_free_blocks": "int get_num_free_blocks() const"}.items()}


def _without_lock(*methods):
    return tuple((LOCK_IN[method], LOCK_IN[method].replace(LOCK, "")) for method in methods)


EXERCISE = Exercise(
    id="1.3",
    title="thread safety",
    answer_name="safe_block_manager",
    language="c++",
    reference=models.ThreadSafeBlockManager,
    prepare=block_manager_class,
    cases=cases,
    size=size,
    hidden=hidden,
    observe=observe,
    describe=describe,
    chancy=lambda case: case[0] in ("free and share", "two free", "two allocate", "stress"),
    recognise=recognise,
    points=2,
    time_limit=30.0,
    mistakes=(
        *(mistake for mistake in reference_counts.EXERCISE.mistakes if mistake.wrong is None),
        Mistake("no-mutex",
                "The check finds no member `mutex_`, which it needs to look who waits. If yours has another name, rename "
                "it. A mutex made inside a method does not count: it is a new one at each call and keeps nobody out.",
                models.NoMutex, (*_without_lock(*METHODS), (MEMBER, ""))),
        Mistake("mutex-never-locked",
                "The member `mutex_` is there, and no method waits for it. Does each method lock that member, and not a "
                "mutex of its own made inside the method?",
                models.NeverLocked, _without_lock(*METHODS)),
        Mistake("reads-without-lock",
                "The methods that change something take the lock, and those that read do not. While one thread is in "
                "the middle of a change, another reads half of it; C++ calls that a data race and promises nothing.",
                models.ReadsWithoutLock, _without_lock("get_ref_count", "get_num_free_blocks")),
        Mistake("num-free-without-lock",
                "get_num_free_blocks() reads the free list while another thread may be changing it. Reading takes the "
                "lock too.",
                models.NumFreeWithoutLock, _without_lock("get_num_free_blocks")),
        Mistake("increase-without-lock",
                "increase_ref_count() does not take the lock. `++count` is three steps (read, add, write), and an "
                "increase between another thread's read and write is lost.",
                models.IncreaseWithoutLock, _without_lock("increase_ref_count")),
        Mistake("get-ref-count-without-lock",
                "get_ref_count() reads a count while another thread may be changing it. Reading takes the lock too.",
                models.CountWithoutLock, _without_lock("get_ref_count")),
        Mistake("free-without-lock",
                "free() does not take the lock. It changes a count and the free list, and another thread can come between "
                "any two of its steps.",
                models.FreeWithoutLock, _without_lock("free")),
        Mistake("allocate-without-lock",
                "allocate() does not take the lock. Two threads in it at the same moment are given the same block.",
                models.AllocateWithoutLock, _without_lock("allocate")),
        Mistake("some-methods-without-lock",
                "Several methods do not take the lock; the case below names them. A lock helps only when everybody takes "
                "it: every public method, those that only read too.",
                models.OnlyAllocateLocks,
                _without_lock("increase_ref_count", "free", "get_ref_count", "get_num_free_blocks"),
                also=(models.OnlyFreeListLocked, models.CountsAndReadsUnlocked)),
        Mistake("count-changed-outside-lock",
                "free() lowers the count without the lock. Two threads that free a shared block at the same moment can lose "
                "one of the two steps, or both find the count at 0. The look, the count and the free list belong under one "
                "lock.",
                models.FreeLocksPushOnly,
                ((LOCK_IN["free"], LOCK_IN["free"].replace(LOCK, "")),
                 ("if (--ref_counts_[block_id] == 0) free_list_.push(block_id);",
                  f"if (--ref_counts_[block_id] == 0) {{ {LOCK} free_list_.push(block_id); }}")),
                also=(models.FreeCountsOutside,)),
        Mistake("check-outside-lock",
                "free() looks at the count first and takes the lock afterwards. Two threads can both look, both see one "
                "user, and both free: the look and the act belong under one lock.",
                models.FreeChecksOutside,
                ((f"{LOCK_IN['free']}\n    // END SOLUTION\n    // BEGIN SOLUTION 1.2\n    check_index(block_id);\n"
                  "    if (ref_counts_[block_id] == 0) throw DoubleFreeError(block_id);",
                  LOCK_IN["free"].replace(LOCK, "check_index(block_id); if (ref_counts_[block_id] == 0) throw "
                                                f"DoubleFreeError(block_id); {LOCK}")),)),
        Mistake("check-outside-lock-in-allocate",
                "allocate() looks whether a block is left and takes the lock afterwards. Two threads can both see the "
                "last block; the second one then takes from an empty list. The look and the act belong under one lock.",
                models.AllocateChecksOutside,
                ((f"{LOCK_IN['allocate']}\n    // END SOLUTION\n    // BEGIN SOLUTION 1.2\n"
                  "    if (free_list_.size() == 0) throw OutOfBlocksError(ref_counts_.size());",
                  LOCK_IN["allocate"].replace(LOCK, "if (free_list_.size() == 0) throw "
                                                    f"OutOfBlocksError(ref_counts_.size()); {LOCK}")),)),
        Mistake("check-outside-lock-in-increase",
                "increase_ref_count() looks at the count and takes the lock afterwards. In between another thread may "
                "free the block, which then is in use and in the free list at once. The look and the act belong under "
                "one lock.",
                models.IncreaseChecksOutside,
                ((f"{LOCK_IN['increase_ref_count']}\n    // END SOLUTION\n    // BEGIN SOLUTION 1.2\n"
                  "    check_index(block_id);\n    if (ref_counts_[block_id] == 0) throw BlockNotAllocatedError(block_id);",
                  LOCK_IN["increase_ref_count"].replace(
                      LOCK, "check_index(block_id); if (ref_counts_[block_id] == 0) throw "
                            f"BlockNotAllocatedError(block_id); {LOCK}")),)),
        Mistake("returns-before-unlock",
                "A method locks by hand and returns, and its `unlock()` is never reached: the next call waits for ever. A "
                "std::lock_guard unlocks whichever way its method is left.",
                models.never_unlocks("get_num_free_blocks"),
                ((LOCK_IN["get_num_free_blocks"], LOCK_IN["get_num_free_blocks"].replace(LOCK, "mutex_.lock();")),),
                also=tuple(models.never_unlocks(*methods) for methods in (
                    ("allocate",), ("free",), ("increase_ref_count",), ("get_ref_count",),
                    ("get_ref_count", "get_num_free_blocks"), ("allocate", "get_ref_count", "get_num_free_blocks"), METHODS))),
        Mistake("keeps-lock-after-error",
                "A method locks by hand, and when it throws, nothing unlocks: the next call waits for ever. A "
                "std::lock_guard unlocks whichever way its method is left.",
                models.KeepsLockAfterError,
                ((LOCK_IN["free"], LOCK_IN["free"].replace(LOCK, "mutex_.lock();")),
                 ("if (--ref_counts_[block_id] == 0) free_list_.push(block_id);",
                  "if (--ref_counts_[block_id] == 0) free_list_.push(block_id);\n    mutex_.unlock();")),
                also=(models.keeps_lock_after_error("allocate"), models.keeps_lock_after_error("increase_ref_count"),
                      models.keeps_lock_after_error(*METHODS))),
        Mistake("locks-twice",
                "allocate() takes the lock and then calls a method that takes it again. A std::mutex does not know that "
                "it is you: the thread waits for itself. Inside the lock, use the data, not the public methods.",
                models.LocksTwice, (("if (free_list_.size() == 0) throw Out", "if (get_num_free_blocks() == 0) throw Out"),)),
        Mistake("locks-twice-in-free",
                "free() takes the lock and then calls a method that takes it again. A std::mutex does not know that it is "
                "you: the thread waits for itself. Inside the lock, use the data, not the public methods.",
                models.FreeLocksTwice,
                (("check_index(block_id);\n    if (ref_counts_[block_id] == 0) throw Double",
                  "if (get_ref_count(block_id) == 0) throw Double"),), also=(models.FreeLocksTwiceAtItsEnd,)),
        Mistake("check-index-locks-too",
                "check_index() takes the lock, and the methods that call it hold it already: the thread waits for "
                "itself. Only the public methods lock; what they call inside does not.",
                models.CheckIndexLocksToo,
                (("void check_index(int block_id) const {", f"void check_index(int block_id) const {{ {LOCK}"),)),
        Mistake("guard-dies-at-once",
                "A method takes the lock and gives it back before its work is done. A guard holds the lock until the "
                "closing brace of the block that it stands in, and a guard without a name only until the semicolon: "
                "name it, and put it at the top of the method.",
                models.GuardDiesAtOnce,
                tuple((LOCK_IN[name], LOCK_IN[name].replace(LOCK, f"{{ {LOCK} }}"))
                      for name in METHODS),
                also=(models.GuardDiesInAllocate, models.GuardDiesInFree)),
    ),
    hints=(
        "The class needs one `mutable std::mutex mutex_;` (mutable, because the const methods lock it too).",
        "`std::lock_guard<std::mutex> guard(mutex_);` locks where it stands and unlocks at the end of the method, after an "
        "error as well.",
        "It is the first line of every public method, before any look at the data.",
    ),
)
