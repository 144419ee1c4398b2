"""Lesson 01's known mistakes as a third learner wrote them."""

import torch
from right_answers.lesson_01_second import FILL, binding, changed, free_list, manager

WITH_OWN_CLASSES = """py::register_local_exception<PoolSizeError>(m, "PoolSizeError", PyExc_ValueError);
  py::register_local_exception<OutOfBlocksError>(m, "OutOfBlocksError", PyExc_MemoryError);
  py::register_local_exception<BlockIndexError>(m, "BlockIndexError", PyExc_IndexError);
  py::register_local_exception<DoubleFreeError>(m, "DoubleFreeError", PyExc_RuntimeError);
  py::register_local_exception<BlockNotAllocatedError>(m, "BlockNotAllocatedError", PyExc_RuntimeError);"""
WITH_PYTHONS_CLASSES = """py::register_exception_translator([](std::exception_ptr p) {
    try { if (p) std::rethrow_exception(p); }
    catch (const PoolSizeError& e) { PyErr_SetString(PyExc_ValueError, e.what()); }
    catch (const OutOfBlocksError& e) { PyErr_SetString(PyExc_MemoryError, e.what()); }
    catch (const BlockIndexError& e) { PyErr_SetString(PyExc_IndexError, e.what()); }
    catch (const DoubleFreeError& e) { PyErr_SetString(PyExc_RuntimeError, e.what()); }
    catch (const BlockNotAllocatedError& e) { PyErr_SetString(PyExc_RuntimeError, e.what()); }
  });"""


def fork_with_yield(manager, blocks):
    for block in blocks:
        manager.increase_ref_count(block)
        yield block


def fork_into_the_parent(manager, blocks):
    for block in tuple(blocks):
        manager.increase_ref_count(block)
        blocks.append(block)
    return blocks


def fork_from_first_to_last(manager, blocks):
    if blocks:
        first, last = blocks[0], blocks[-1]
        for block in range(first, last + 1):
            manager.increase_ref_count(block)
    return blocks.copy()


def fork_by_the_counts(manager, blocks):
    for block in blocks:
        manager.ref_counts[block] += 1
    return blocks.copy()


def fork_by_a_counter(manager, blocks):
    counts = manager.counts
    for block in blocks:
        counts[block] += 1
    return blocks.copy()


def fork_with_its_manager(manager, blocks):
    for block in blocks:
        manager.increase_ref_count(block)
    return manager, blocks[:]


WRITE = """
def write(manager, pool, blocks, position, value):
    size = pool.shape[1]
    i, o = divmod(position, size)
    old = blocks[i]
    if manager.get_ref_count(old) > 1:
        new = manager.allocate()
        pool[new] = pool[old]
        manager.free(old)
        blocks[i] = new
    pool[blocks[i], o] = value
"""


def write(*edits):
    namespace = {"torch": torch}
    exec(changed(WRITE, *edits), namespace)
    return namespace["write"]


RIGHT_ANSWERS = {}
WRONG_ANSWERS = {
    "1.1": {
        "every-id-zero": [free_list((FILL, "ids = std::vector<int>(num_blocks, 0);"))],
        "last-id-refused": [free_list(("#include <vector>", "#include <stdexcept>\n#include <vector>"), (
            "    const int top", "    if (ids.size() <= 1) {\n      throw std::out_of_range(\"empty\");\n    }\n"
            "    const int top"))],
    },
    "1.2": {
        "error-without-the-id": [
            manager(("throw BlockNotAllocatedError(id);", "throw BlockNotAllocatedError(counts[id]);")),
            manager(("throw DoubleFreeError(id);", "throw DoubleFreeError(counts.at(id));")),
            manager(("throw BlockIndexError(id);", "throw BlockIndexError(counts.size());"))],
    },
    "1.4": {
        "base-class-swallows": [binding(("<PoolSizeError>", "<std::invalid_argument>"))],
        "no-classes-of-their-own": [binding((WITH_OWN_CLASSES, WITH_PYTHONS_CLASSES))],
    },
    "1.5": {
        "not-run-yet": [fork_with_yield],
        "parent-grown": [fork_into_the_parent],
        "range-for-the-ids": [fork_from_first_to_last],
        "no-such-name": [fork_by_the_counts, fork_by_a_counter],
        "more-than-the-list": [fork_with_its_manager],
    },
    "1.6": {
        "list-of-one-block": [write(("blocks[i] = new", "blocks[:] = [new]")),
                              write(("blocks[i] = new", "blocks.clear(); blocks.append(new); i = 0"))],
        "contents-exchanged": [write(("pool[new] = pool[old]",
                                      "pool[new], pool[old] = pool[old].clone(), pool[new].clone()"))],
        "reads-what-it-writes-to": [write(("pool[new] = pool[old]", "pool.index_copy_(0, torch.tensor([new]), "
                                                                    "pool[old].unsqueeze(0))"))],
        "positions-from-one": [write(("divmod(position, size)", "divmod(position - 1, size)"))],
        "index-and-offset-swapped": [write(("i, o = divmod", "o, i = divmod"))],
        "value-into-both-blocks": [write(("] = value", "] = value; pool[old, o] = value"))],
        "new-block-released": [write(("blocks[i] = new", "blocks[i] = new; manager.free(new)"))],
        "frees-shared-outright": [write(("        manager.free(old)", "        while manager.get_ref_count(old):\n"
                                                                     "            manager.free(old)"))],
        "last-free-block-refused": [write(("        new =", "        if manager.get_num_free_blocks() <= 1:\n"
                                                            "            raise MemoryError('full')\n        new ="))],
    },
}
