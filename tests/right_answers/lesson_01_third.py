"""Lesson 01's known mistakes as a third learner wrote them."""

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
    namespace = {}
    exec(changed(WRITE, *edits), namespace)
    return namespace["write"]


RIGHT_ANSWERS = {}
WRONG_ANSWERS = {
    "1.1": {
        "every-id-zero": [free_list((FILL, "ids = std::vector<int>(num_blocks, 0);"))],
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
    },
    "1.6": {
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
