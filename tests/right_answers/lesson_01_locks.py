"""Lesson 01, exercise 1.3: locks as others write them, and what only looks like a lock."""

from right_answers.lesson_01 import _safe
from right_answers.lesson_01_second import GUARD, MANAGER, changed, safe

HELPER = """ private:
  std::unique_lock<std::mutex> hold() const { return std::unique_lock<std::mutex>(mutex_); }
  void check_index"""
RAII_OF_ITS_OWN = """ private:
  struct Inside {
    explicit Inside(std::mutex& door) : door_(door) { door_.lock(); }
    ~Inside() { door_.unlock(); }
    std::mutex& door_;
  };
  void check_index"""


def locked_by(line, *edits, member="mutable std::mutex mutex_;"):
    return changed(MANAGER.replace("LOCK", line).replace("MEMBER", member), *edits)


HELPER_RETURNS_A_LOCK = locked_by("auto guard = hold();", (" private:\n  void check_index", HELPER))
MADE_BY_A_HELPER_FUNCTION = locked_by("Inside inside(mutex_);", (" private:\n  void check_index", RAII_OF_ITS_OWN))
CALLED_WITH_THE_LOCK = changed(
    MANAGER.replace("MEMBER", "mutable std::mutex mutex_;").replace("    LOCK\n", ""),
    ("  int allocate() {", "  int allocate() { return locked([&] { return take(); }); }\n  int take() {"),
    ("  void increase_ref_count(int id) {", "  void increase_ref_count(int id) { locked([&] { share(id); }); }\n  void share(int id) {"),
    ("  void free(int id) {", "  void free(int id) { locked([&] { give(id); }); }\n  void give(int id) {"),
    ("  int get_ref_count(int id) const {", "  int get_ref_count(int id) const { return locked([&] { return look(id); }); }\n"
                                           "  int look(int id) const {"),
    ("  int get_num_free_blocks() const {", "  int get_num_free_blocks() const { return locked([&] { return left(); }); }\n"
                                           "  int left() const {"),
    (" public:\n", "  template <class Body> auto locked(Body body) const { std::scoped_lock hold(mutex_); return body(); }\n public:\n"))
DEFERRED = locked_by("std::unique_lock<std::mutex> hold(mutex_, std::defer_lock); hold.lock();")
ADOPTED = locked_by("mutex_.lock(); std::lock_guard<std::mutex> hold(mutex_, std::adopt_lock);")
TRIED_UNTIL_IT_OPENS = locked_by("std::unique_lock hold(mutex_, std::try_to_lock); while (!hold) hold.try_lock();")
# The index is checked under one lock and the block under another: the number of blocks never changes.
INDEX_UNDER_A_LOCK_OF_ITS_OWN = safe(
    (f"void free(int id) {{\n    {GUARD}\n    check_index(id);",
     f"void free(int id) {{\n    {{ {GUARD} check_index(id); }}\n    {GUARD}"))
COPY_READ_AFTERWARDS = safe(("    check_index(id);\n    return counts.at(id);",
                             "    check_index(id);\n    std::vector<int> copy = counts;\n    guard.unlock();\n    return copy[id];"))
# What is counted is an atomic as well, and needs no lock to be read.
COUNTED_ATOMICALLY = changed(
    MANAGER.replace("MEMBER", "mutable std::mutex mutex_;\n  std::atomic<int> left_{0};").replace("LOCK", GUARD),
    ("#include <mutex>", "#include <atomic>\n#include <mutex>"), (", counts(num_blocks, 0) {}", ", counts(num_blocks, 0), left_(num_blocks) {}"),
    ("    counts[id] = 1;", "    counts[id] = 1;\n    --left_;"), ("{ free_list_.push(id); }", "{ free_list_.push(id); ++left_; }"),
    (f"const {{\n    {GUARD}\n    return free_list_.size();", "const {\n    return left_.load();"))
PREPARED_ONCE = locked_by(
    f"std::call_once(filled_, [this] {{ counts.assign(size_, 0); }});\n    {GUARD}",
    (", counts(num_blocks, 0) {}", ", size_(num_blocks) {}"), ("  std::vector<int> counts;", "  mutable std::vector<int> counts;"),
    member="mutable std::mutex mutex_;\n  mutable std::once_flag filled_;\n  int size_;")

RIGHT_ANSWERS = {"1.3": [
    _safe("std::mutex", "auto guard = std::lock_guard(mutex_);"),
    _safe("std::mutex", "auto guard = std::unique_lock<std::mutex>{mutex_};"),
    _safe("std::timed_mutex", "std::lock_guard hold{mutex_};"),
    _safe("std::mutex", "std::lock_guard<decltype(mutex_)> hold(mutex_);").replace("mutex_", "door"),
    HELPER_RETURNS_A_LOCK, MADE_BY_A_HELPER_FUNCTION, CALLED_WITH_THE_LOCK, DEFERRED, ADOPTED, TRIED_UNTIL_IT_OPENS,
    INDEX_UNDER_A_LOCK_OF_ITS_OWN, COPY_READ_AFTERWARDS, COUNTED_ATOMICALLY, PREPARED_ONCE,
]}

LOOK = "if (!counts[id]) { throw DoubleFreeError(id); }"
WRONG_ANSWERS = {"1.3": {
    "guard-dies-at-once": [
        locked_by("std::lock_guard<std::mutex>{mutex_};"), locked_by("std::unique_lock<std::mutex>{mutex_};"),
        locked_by("hold();", (" private:\n  void check_index", HELPER)),
        # The look under one lock, the act under another.
        safe((f"    {LOOK}\n", f"    {LOOK}\n    guard.unlock();\n    guard.lock();\n")),
        safe(("    if (!counts[id]) { throw BlockNotAllocatedError(id); }\n",
              "    if (!counts[id]) { throw BlockNotAllocatedError(id); }\n    guard.unlock();\n    guard.lock();\n")),
        safe(("    int id = free_list_.pop();\n", "    guard.unlock();\n    guard.lock();\n    int id = free_list_.pop();\n")),
    ],
    "mutex-never-locked": [locked_by("std::mutex door; std::lock_guard<std::mutex> guard(door);"),
                           locked_by("static std::mutex door; std::lock_guard<std::mutex> guard(door);")],
    "changes-under-a-shared-lock": [locked_by("std::shared_lock<std::shared_mutex> hold(mutex_);", ("#include <mutex>", "#include <shared_mutex>"),
                                              member="mutable std::shared_mutex mutex_;")],
}}
