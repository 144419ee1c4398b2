"""Lesson 01's known mistakes as a second learner wrote them."""

FREE_LIST = r"""
#include <vector>
class FreeList {
 public:
  explicit FreeList(int num_blocks) {
    for (int i = num_blocks; i > 0; i--) ids.push_back(i - 1);
  }
  int pop() {
    const int top = ids.back();
    ids.pop_back();
    return top;
  }
  void push(int block_id) { ids.push_back(block_id); }
  int size() const { return ids.size(); }
 private:
  std::vector<int> ids;
};
"""

MANAGER = r"""
#include <mutex>
class BlockManager {
 public:
  explicit BlockManager(int num_blocks) : free_list_(check_pool_size(num_blocks)), counts(num_blocks, 0) {}
  int allocate() {
    LOCK
    if (free_list_.size() < 1) { throw OutOfBlocksError(counts.size()); }
    int id = free_list_.pop();
    counts[id] = 1;
    return id;
  }
  void increase_ref_count(int id) {
    LOCK
    check_index(id);
    if (!counts[id]) { throw BlockNotAllocatedError(id); }
    counts[id] += 1;
  }
  void free(int id) {
    LOCK
    check_index(id);
    if (!counts[id]) { throw DoubleFreeError(id); }
    counts[id] -= 1;
    if (!counts[id]) { free_list_.push(id); }
  }
  int get_ref_count(int id) const {
    LOCK
    check_index(id);
    return counts.at(id);
  }
  int get_num_free_blocks() const {
    LOCK
    return free_list_.size();
  }
 private:
  void check_index(int id) const {
    if (id < 0 or id >= int(counts.size())) { throw BlockIndexError(id); }
  }
  FreeList free_list_;
  std::vector<int> counts;
  MEMBER
};
"""
GUARD = "std::unique_lock<std::mutex> guard(mutex_);"

BINDING = r"""
#include <pybind11/pybind11.h>
namespace py = pybind11;
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::register_local_exception<PoolSizeError>(m, "PoolSizeError", PyExc_ValueError);
  py::register_local_exception<OutOfBlocksError>(m, "OutOfBlocksError", PyExc_MemoryError);
  py::register_local_exception<BlockIndexError>(m, "BlockIndexError", PyExc_IndexError);
  py::register_local_exception<DoubleFreeError>(m, "DoubleFreeError", PyExc_RuntimeError);
  py::register_local_exception<BlockNotAllocatedError>(m, "BlockNotAllocatedError", PyExc_RuntimeError);
  py::class_<BlockManager>(m, "BlockManager", py::module_local())
      .def(py::init<int>())
      .def("allocate", &BlockManager::allocate)
      .def("free", &BlockManager::free)
      .def("increase_ref_count", &BlockManager::increase_ref_count)
      .def("get_ref_count", &BlockManager::get_ref_count)
      .def("get_num_free_blocks", &BlockManager::get_num_free_blocks);
}
"""


def changed(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert text.count(old) == 1, (text.count(old), old)
        text = text.replace(old, new)
    return text


def free_list(*edits):
    return changed(FREE_LIST, *edits)


def manager(*edits):
    return changed(MANAGER.replace("LOCK", "").replace("MEMBER", ""), *edits)


def safe(*edits, without=()):
    """With a guard in every method but those in `without`."""
    head, *methods = MANAGER.replace("MEMBER", "mutable std::mutex mutex_;").split("LOCK")
    names = ("allocate", "increase_ref_count", "free", "get_ref_count", "get_num_free_blocks")
    text = head + "".join(("" if name in without else GUARD) + rest for name, rest in zip(names, methods, strict=True))
    return changed(text, *edits)


def binding(*edits):
    return changed(BINDING, *edits)


FILL = "for (int i = num_blocks; i > 0; i--) ids.push_back(i - 1);"
FULL = "if (free_list_.size() < 1) { throw OutOfBlocksError(counts.size()); }"
LOWER = "counts[id] -= 1;\n    if (!counts[id]) { free_list_.push(id); }"
IN_FREE = f"void free(int id) {{\n    {GUARD}"
IN_ALLOCATE = f"int allocate() {{\n    {GUARD}"


def fork_first_block_only(manager, blocks):
    child = []
    for index, block in enumerate(blocks):
        if index == 0:
            manager.increase_ref_count(block)
        child.append(block)
    return child


def fork_with_a_fresh_last_block(manager, blocks):
    child = []
    for block in blocks[: len(blocks) - 1]:
        manager.increase_ref_count(block)
        child.append(block)
    child.append(manager.allocate())
    return child


def fork_returning_too_soon(manager, blocks):
    child = blocks.copy()
    for block in child:
        manager.increase_ref_count(block)
        return child


def fork_until_two(manager, blocks):
    for block in blocks:
        while manager.get_ref_count(block) < 2:
            manager.increase_ref_count(block)
    return blocks[:]


def fork_counting_both(manager, blocks):
    child = blocks[:]
    for block in blocks + child:
        manager.increase_ref_count(block)
    return child


def fork_by_enumeration(manager, blocks):
    child = []
    for index, block in enumerate(blocks):
        manager.increase_ref_count(block)
        child.append(index)
    return child


def fork_of_results(manager, blocks):
    return list(map(manager.increase_ref_count, blocks))


def fork_backwards(manager, blocks):
    child = []
    for block in blocks:
        manager.increase_ref_count(block)
        child.insert(0, block)
    return child


def fork_to_a_tuple(manager, blocks):
    for block in blocks:
        manager.increase_ref_count(block)
    return (*blocks,)


def fork_by_popping(manager, blocks):
    child = []
    while blocks:
        child.insert(0, blocks.pop())
        manager.increase_ref_count(child[0])
    return child


def write_asking_for_the_entry(manager, pool, blocks, position, value):
    size = pool.size(1)
    number = position // size
    if manager.get_ref_count(number) >= 2:
        fresh = manager.allocate()
        pool[fresh] = pool[blocks[number]].clone()
        manager.free(blocks[number])
        blocks[number] = fresh
    pool[blocks[number]][position % size] = value


def write_at_whole_position(manager, pool, blocks, position, value):
    number = position // pool.size(1)
    if manager.get_ref_count(blocks[number]) != 1:
        fresh = manager.allocate()
        pool[fresh] = pool[blocks[number]]
        manager.free(blocks[number])
        blocks[number] = fresh
    pool[blocks[number]][position] = value


def write_in_fours(manager, pool, blocks, position, value):
    number, place = divmod(position, 4)
    if manager.get_ref_count(blocks[number]) > 1:
        fresh = manager.allocate()
        pool[fresh] = pool[blocks[number]]
        manager.free(blocks[number])
        blocks[number] = fresh
    pool[blocks[number], place] = value


def write_all_places(manager, pool, blocks, position, value):
    number = position // pool.shape[1]
    if manager.get_ref_count(blocks[number]) > 1:
        fresh = manager.allocate()
        manager.free(blocks[number])
        blocks[number] = fresh
    pool[blocks[number]] = value


def write_releasing_the_copy(manager, pool, blocks, position, value):
    number, place = divmod(position, pool.shape[1])
    if manager.get_ref_count(blocks[number]) > 1:
        fresh = manager.allocate()
        pool[fresh] = pool[blocks[number]]
        blocks[number] = fresh
        manager.free(blocks[number])
    pool[blocks[number], place] = value


def write_looking_first(manager, pool, blocks, position, value):
    number, place = divmod(position, pool.shape[1])
    if manager.get_ref_count(blocks[number]) > 1:
        if manager.get_num_free_blocks() < 1:
            raise RuntimeError("the pool is full")
        fresh = manager.allocate()
        pool[fresh] = pool[blocks[number]]
        manager.free(blocks[number])
        blocks[number] = fresh
    pool[blocks[number], place] = value


def write_if_exactly_two(manager, pool, blocks, position, value):
    block = blocks[position // pool.shape[1]]
    if manager.get_ref_count(block) == 2:
        new = manager.allocate()
        pool[new] = pool[block].clone()
        manager.free(block)
        blocks[position // pool.shape[1]] = new
        block = new
    pool[block][position % pool.shape[1]] = value


def write_by_rows(manager, pool, blocks, position, value):
    size = len(pool)
    block = blocks[position // size]
    if manager.get_ref_count(block) > 1:
        new = manager.allocate()
        pool[new] = pool[block].clone()
        manager.free(block)
        blocks[position // size] = block = new
    pool[block, position % size] = value


def write_at_entry_position(manager, pool, blocks, position, value):
    block = blocks[position]
    if manager.get_ref_count(block) > 1:
        blocks[position] = manager.allocate()
        pool[blocks[position]] = pool[block]
        manager.free(block)
    pool[blocks[position], position % pool.shape[1]] = value


def write_without_lookup(manager, pool, blocks, position, value):
    block, slot = divmod(position, pool.shape[1])
    index = block
    if manager.get_ref_count(block) > 1:
        new = manager.allocate()
        pool[new] = pool[block]
        manager.free(block)
        blocks[index] = block = new
    pool[block, slot] = value


def write_at_flat_position(manager, pool, blocks, position, value):
    index = position // pool.shape[1]
    if manager.get_ref_count(blocks[index]) > 1:
        new = manager.allocate()
        pool[new] = pool[blocks[index]]
        manager.free(blocks[index])
        blocks[index] = new
    pool.flatten()[position] = value


def write_copying_the_wrong_way(manager, pool, blocks, position, value):
    index, slot = divmod(position, pool.shape[1])
    if manager.get_ref_count(blocks[index]) > 1:
        new, old = manager.allocate(), blocks[index]
        pool[old].copy_(pool[new])
        manager.free(old)
        blocks[index] = new
    pool[blocks[index], slot] = value


def write_copying_what_is_before(manager, pool, blocks, position, value):
    index, slot = divmod(position, pool.shape[1])
    if manager.get_ref_count(blocks[index]) > 1:
        new, old = manager.allocate(), blocks[index]
        for column in range(slot):
            pool[new, column] = pool[old, column]
        manager.free(old)
        blocks[index] = new
    pool[blocks[index], slot] = value


def write_appending(manager, pool, blocks, position, value):
    index, slot = divmod(position, pool.shape[1])
    target = blocks[index]
    if manager.get_ref_count(target) > 1:
        target = manager.allocate()
        pool[target] = pool[blocks[index]]
        manager.free(blocks[index])
        blocks.append(target)
    pool[target, slot] = value


def write_with_all_blocks_copied(manager, pool, blocks, position, value):
    for index, block in enumerate(blocks):
        if manager.get_ref_count(block) != 1:
            blocks[index] = manager.allocate()
            pool[blocks[index]] = pool[block]
            manager.free(block)
    pool[blocks[position // pool.shape[1]], position % pool.shape[1]] = value


def write_with_a_spare(manager, pool, blocks, position, value):
    new = manager.allocate()
    index, slot = divmod(position, pool.shape[1])
    if manager.get_ref_count(blocks[index]) == 1:
        manager.free(new)
    else:
        pool[new] = pool[blocks[index]]
        manager.free(blocks[index])
        blocks[index] = new
    pool[blocks[index], slot] = value


def write_counting_the_copy(manager, pool, blocks, position, value):
    index, slot = divmod(position, pool.shape[1])
    if manager.get_ref_count(blocks[index]) > 1:
        new = manager.allocate()
        manager.increase_ref_count(new)
        pool[new] = pool[blocks[index]]
        manager.free(blocks[index])
        blocks[index] = new
    pool[blocks[index], slot] = value


def write_unless_full(manager, pool, blocks, position, value):
    index, slot = divmod(position, pool.shape[1])
    if manager.get_ref_count(blocks[index]) > 1:
        if manager.get_num_free_blocks() == 0:
            return
        new = manager.allocate()
        pool[new] = pool[blocks[index]]
        manager.free(blocks[index])
        blocks[index] = new
    pool[blocks[index], slot] = value


def write_elsewhere(manager, pool, blocks, position, value):
    index, slot = divmod(position, pool.shape[1])
    pool = pool.clone()
    if manager.get_ref_count(blocks[index]) > 1:
        new = manager.allocate()
        pool[new] = pool[blocks[index]]
        manager.free(blocks[index])
        blocks[index] = new
    pool[blocks[index], slot] = value


RIGHT_ANSWERS = {}
WRONG_ANSWERS = {
    "1.1": {
        "size-is-the-last-index": [free_list(("return ids.size();", "return int(ids.size()) - 1;"))],
        "ids-behind-zeros": [free_list(("num_blocks) {\n", "num_blocks) : ids(num_blocks) {\n"))],
        "writes-behind-the-end": [free_list((FILL, "for (int i = 0; i < num_blocks; i++) ids[num_blocks - 1 - i] = i;"))],
        "constructor-leaves-it-empty": [free_list((FILL, f"auto ids = std::vector<int>(); {FILL}"))],
        "constructor-never-ends": [free_list((FILL, "for (unsigned i = 0; i >= 0; i--) if (size() < num_blocks) push(i);"))],
        "removes-before-reading": [free_list(("const int top = ids.back();\n    ids.pop_back();\n    return top;",
                                              "ids.pop_back();\n    return ids[ids.size() - 1];"))],
        "capacity-for-size": [free_list(("return ids.size();", "return ids.capacity();"),
                                        (FILL, f"ids.reserve(num_blocks); {FILL}"))],
    },
    "1.2": {
        "allocate-asks-to-increase": [manager(("counts[id] = 1;", "this->increase_ref_count(id);"))],
        "free-ignores-refcount": [manager((LOWER, "counts[id]--; free_list_.push(id);"))],
        "refcount-not-reset": [manager((LOWER, "if (counts[id] == 1) free_list_.push(id);"))],
        "shared-count-kept": [manager((LOWER, "if (counts[id] > 1) return; counts[id] = 0; free_list_.push(id);"))],
        "changed-before-the-error": [manager(("if (!counts[id]) { throw DoubleFreeError(id); }\n    counts[id] -= 1;",
                                              "counts[id] -= 1;\n    if (counts[id] < 0) throw DoubleFreeError(id);"))],
        "index-unchecked": [manager(("check_index(id);\n    if (!counts[id]) { throw DoubleFreeError(id); }",
                                     "if (counts[id] == 0) throw DoubleFreeError(id);\n    check_index(id);"))],
        "error-of-another-row": [manager(("throw BlockNotAllocatedError(id)", "throw DoubleFreeError(id)"))],
        "error-names-another-number": [manager((FULL, "if (free_list_.size() == 0) throw OutOfBlocksError(0);"))],
        "count-of-a-free-block-refused": [manager(("return counts.at(id);",
                                                   "if (counts[id] < 1) throw BlockNotAllocatedError(id);\n"
                                                   "    return counts[id];"))],
        "free-blocks-miscounted": [manager(("return free_list_.size();",
                                            "int used = 0; for (int count : counts) used += count;\n"
                                            "    return counts.size() - used;"))],
        "last-block-refused": [manager((FULL, "if (free_list_.size() > 1) {} else throw OutOfBlocksError(counts.size());"))],
        "last-block-lost": [manager((f"{FULL}\n    int id = free_list_.pop();", f"int id = free_list_.pop();\n    {FULL}"))],
        "returns-no-block": [manager((FULL, "if (!free_list_.size()) return -1;"))],
        "first-block-refused": [manager(("id < 0", "id < 1"))],
        "index-against-free-blocks": [manager(("int(counts.size())", "free_list_.size()"))],
        "count-set-to-two": [manager(("counts[id] += 1;", "counts[id] = 1 + 1;"))],
    },
    "1.3": {
        "get-ref-count-without-lock": [safe(without=("get_ref_count",))],
        "free-without-lock": [safe(without=("free",))],
        "allocate-without-lock": [safe(without=("allocate",))],
        "some-methods-without-lock": [safe(without=("increase_ref_count", "get_ref_count", "get_num_free_blocks"))],
        "count-changed-outside-lock": [
            safe((LOWER, f"counts[id]--;\n    {GUARD}\n    if (counts[id] == 0) free_list_.push(id);"), without=("free",)),
            safe((LOWER, f"counts[id]--;\n    if (counts[id]) return;\n    {GUARD}\n    free_list_.push(id);"),
                 without=("free",))],
        "keeps-lock-after-error": [
            safe((IN_ALLOCATE, "int allocate() { mutex_.lock();"), ("return id;", "mutex_.unlock(); return id;"))],
        "returns-before-unlock": [
            safe(("return free_list_.size();", "mutex_.lock(); return free_list_.size(); mutex_.unlock();"),
                 without=("get_num_free_blocks",)),
            safe(("counts[id] = 1;\n    return id;", "counts[id] = 1;\n    return id;\n    mutex_.unlock();"),
                 (IN_ALLOCATE, "int allocate() {\n    mutex_.lock();")),
            safe(("check_index(id);\n    return counts.at(id);", "mutex_.lock();\n    check_index(id);\n    return counts.at(id);"),
                 without=("get_ref_count",))],
        "locks-twice-in-free": [safe((LOWER, "counts[id] -= 1;\n    if (get_ref_count(id) == 0) free_list_.push(id);"))],
        "guard-dies-at-once": [
            safe((IN_FREE, f"void free(int id) {{\n    {{ {GUARD} }}")),
            safe(("counts[id] += 1;", "}\n    counts[id] += 1;"),
                 (f"void increase_ref_count(int id) {{\n    {GUARD}", f"void increase_ref_count(int id) {{\n    {{ {GUARD}")),
            safe(("check_index(id);\n    return counts.at(id);",
                  "mutex_.lock();\n    check_index(id);\n    mutex_.unlock();\n    return counts.at(id);"), without=("get_ref_count",))],
    },
    "1.4": {
        "one-error-forgotten": [binding(*((line, "") for line in BINDING.splitlines()[6:8]))],
        "another-base": [binding(("PyExc_IndexError", "PyExc_MemoryError"), ('"OutOfBlocksError", PyExc_MemoryError',
                                                                             '"OutOfBlocksError", PyExc_IndexError'))],
        "names-differ": [binding(("<DoubleFreeError>", "<BlockNotAllocatedError>"))],
    },
    "1.5": {
        "parent-emptied": [fork_by_popping],
        "not-every-block-counted": [fork_first_block_only],
        "last-block-not-shared": [fork_with_a_fresh_last_block],
        "returns-inside-the-loop": [fork_returning_too_soon],
        "counts-to-two": [fork_until_two],
        "counts-twice": [fork_counting_both],
        "positions-returned": [fork_by_enumeration],
        "list-of-none": [fork_of_results],
        "order-lost": [fork_backwards],
        "not-a-list": [fork_to_a_tuple],
    },
    "1.6": {
        "count-of-the-entry": [write_asking_for_the_entry],
        "position-for-offset": [write_at_whole_position],
        "block-size-fixed": [write_in_fours],
        "fills-the-block": [write_all_places],
        "new-block-released": [write_releasing_the_copy],
        "another-error": [write_looking_first],
        "shared-by-another-number": [write_if_exactly_two],
        "rows-for-block-size": [write_by_rows],
        "position-for-index": [write_at_entry_position],
        "logical-for-physical": [write_without_lookup],
        "position-for-slot": [write_at_flat_position],
        "copied-backwards": [write_copying_the_wrong_way],
        "copies-a-part": [write_copying_what_is_before],
        "appended-to-the-list": [write_appending],
        "copies-every-shared-block": [write_with_all_blocks_copied],
        "allocates-unasked": [write_with_a_spare],
        "new-block-counted-twice": [write_counting_the_copy],
        "error-swallowed": [write_unless_full],
        "writes-into-a-copy-of-the-pool": [write_elsewhere],
    },
}
