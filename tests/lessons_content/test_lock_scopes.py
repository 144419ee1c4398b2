"""Exercise 1.3's watch: which lock is held at each touch of shared data, and what becomes of a
call that comes in between.
"""

import re

import pytest

from lessons_content.lesson_01.e1_3_thread_safety import ALL_COVERED, observe
from lessons_content.lesson_01.native import (
    USES,
    NeverComesBack,
    watched_block_manager_class,
)

_, _, LOOKS_BEFORE, CHANGES_BEFORE, AFTER, ANOTHER, WITHOUT = USES
GUARD = "std::lock_guard<std::mutex> guard(mutex_);"
CLASS = """
#include <mutex>
class BlockManager {
 public:
  explicit BlockManager(int num_blocks) : list(num_blocks), counts(num_blocks, 0) {}
  int allocate() {
    GUARD
    if (list.size() == 0) throw OutOfBlocksError(0);
    int b = list.pop();
    counts[b] = 1;
    return b;
  }
  void increase_ref_count(int b) {
    GUARD check(b);
    if (counts[b] == 0) throw BlockNotAllocatedError(b);
    ++counts[b];
  }
  void free(int b) {
    GUARD check(b);
    if (counts[b] == 0) throw DoubleFreeError(b);
    if (--counts[b] == 0) list.push(b);
  }
  int get_ref_count(int b) const { GUARD check(b); return counts[b]; }
  int get_num_free_blocks() const { GUARD return list.size(); }
 private:
  void check(int b) const { if (b < 0 || b >= int(counts.size())) throw BlockIndexError(b); }
  FreeList list;
  std::vector<int> counts;
  mutable std::mutex mutex_;
};
"""


def manager_with(**methods):
    """The class above, with these bodies instead of those of the methods of these names."""
    text = CLASS
    for name, body in methods.items():
        text, found = re.subn(
            rf"( {name}\(.*?\)[^{{]*) \{{\s+GUARD.*? \}}\n(?=  \w| private:)",
            lambda match, body=body: f"{match[1]} {{ {body} }}\n",
            text,
            flags=re.DOTALL,
        )
        assert found == 1
    return watched_block_manager_class(text.replace("GUARD", GUARD))


def uses(**methods):
    """How the methods use the lock, those that use it right left out."""
    said = observe(manager_with(**methods), ("data", 3))
    return "" if said == ALL_COVERED else str(said)


CHECKS = "check(b); if (!counts[b]) throw DoubleFreeError(b);"
UNCOVERED = [
    ("increase_ref_count", "{ GUARD check(b); } ++counts[b];", AFTER),
    ("get_num_free_blocks", "{ GUARD } return list.size();", AFTER),
    ("get_ref_count", "check(b); mutex_.lock(); mutex_.unlock(); return counts[b];", AFTER),
    ("get_ref_count", "HOLD check(b); hold.unlock(); return counts.at(b);", AFTER),
    ("get_ref_count", "std::lock_guard<std::mutex>{mutex_}; return counts.at(b);", AFTER),
    ("free", f"{CHECKS} GUARD if (--counts[b] == 0) list.push(b);", LOOKS_BEFORE),
    ("free", f"{CHECKS} if (--counts[b]) return; GUARD list.push(b);", CHANGES_BEFORE),
    ("get_num_free_blocks", "return list.size();", WITHOUT),
    ("get_num_free_blocks", "std::mutex own; OWN return list.size();", ANOTHER),
    ("get_num_free_blocks", "static std::mutex own; OWN return list.size();", ANOTHER),
]
COVERED = [
    (
        "free",
        f"{{ GUARD check(b); }} {{ GUARD {CHECKS} if (--counts[b] == 0) list.push(b); }}",
    ),
    ("get_ref_count", "std::vector<int> copy; { GUARD copy = counts; } return copy.at(b);"),
    ("get_ref_count", "check(b); int n; { GUARD n = counts[b]; } return n;"),
    ("get_ref_count", "mutex_.lock(); int n = counts.at(b); mutex_.unlock(); return n;"),
    ("get_ref_count", "DEFERRED hold.lock(); check(b); return counts[b];"),
]


def written_out(body: str) -> str:
    """Other ways to lock than GUARD."""
    return (
        body.replace("DEFERRED", "std::unique_lock<std::mutex> hold(mutex_, std::defer_lock);")
        .replace("HOLD", "std::unique_lock<std::mutex> hold(mutex_);")
        .replace("OWN", "std::lock_guard<std::mutex> hold(own);")
    )


@pytest.mark.slow
@pytest.mark.parametrize(("method", "body", "use"), UNCOVERED)
def test_data_that_is_touched_without_the_lock_is_seen(method, body, use):
    assert uses(**{method: written_out(body)}) == f"{method}() {use}"


@pytest.mark.slow
@pytest.mark.parametrize(("method", "body"), COVERED)
def test_an_unusual_right_lock_is_left_alone(method, body):
    manager_type = manager_with(**{method: written_out(body)})
    assert observe(manager_type, ("data", 3)) == ALL_COVERED
    assert observe(manager_type, ("meet", (2, 1))) == "as if one had come after the other"


def test_two_locks_where_one_is_needed_are_seen_though_all_data_is_covered():
    manager_type = manager_with(
        free=(
            "{ GUARD check(b); if (!counts[b]) throw DoubleFreeError(b); } { "
            "GUARD if (--counts[b] == 0) list.push(b); }"
        )
    )
    assert observe(manager_type, ("data", 3)) == ALL_COVERED
    assert (
        observe(manager_type, ("meet", (2, 1)))
        == "free(): no error; free() in between: no error; then reference counts [-1, 0], 2"
        " free"
    )
    assert observe(manager_type, ("meet", (2, 2))) == "as if one had come after the other"


@pytest.mark.slow
def test_a_lock_that_is_taken_twice_or_kept_is_no_endless_wait():
    manager = manager_with(
        free="GUARD if (get_ref_count(b) == 0) return;",
        allocate="mutex_.lock(); return list.pop();",
    )(2)
    with pytest.raises(NeverComesBack):
        manager.free(0)
    assert not manager.is_locked()
    manager.allocate()
    assert manager.is_locked()
    with pytest.raises(NeverComesBack):
        manager.get_num_free_blocks()
