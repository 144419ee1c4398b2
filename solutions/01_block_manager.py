# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 01 · The block manager
#
# **You build** the part of PagedAttention that hands out memory: a block manager in C++,
# compiled from this notebook. It knows which blocks are free, counts who uses each one,
# refuses every wrong call, and may be used by several threads. With it, two sequences can
# share their blocks until one of them writes.
#
# PICTURE opening
#
# **You need** lesson [00](00_start_here.ipynb), and a little C++: a class, a `std::vector`, a
# reference. **It takes** 60 to 90 minutes. Words that you meet again are in the
# [glossary](glossary.ipynb).

# %%
from lessons_lib import build_cpp, check, hint, open_lesson, solution

draw = open_lesson("01")

# %% [markdown]
# The picture above shows where you will get to: a pool of eight blocks, drawn after three
# events. The number in a block is its id. The one below it says how many sequences use the
# block. Blocks without a colour are free, and orange ones are shared.
#
# ## The pool
#
# The memory for keys and values is allocated once, as a **pool** of blocks of equal size.
# After that, no more memory is allocated. A sequence asks for a block and is given a number,
# the **block id**. The number says where in the pool the block is. What is in it is not the
# manager's business: it only keeps the books.
#
# ## A free list is a stack
#
# The manager has to find a free block at once, however large the pool is. So it keeps the ids
# of the free blocks in a **stack**: the id that was put on top last is taken first. In Python
# a list does that:

# %%
free = [3, 2, 1, 0]  # the top of the stack is at the end
first, second = free.pop(), free.pop()
free.append(first)
print(f"took {first}, then {second}, gave {first} back; the stack is now {free}")

# %% [markdown]
# Taking an id and giving it back touch only the end of the list, so they cost the same for ten
# blocks as for a million.
#
# ### Exercise 1.1: the free list
#
# Now write the same in C++. The source is a text in a Python string, and you complete the four
# bodies. The check compiles it first, which takes longer than the check itself.

# %% exercise="1.1"
free_list = r"""
// INCLUDE free_list.h
"""

# %% check="1.1"
check("1.1", free_list)

# %% [markdown]
# ## From C++ to Python
#
# Your class is C++. Python can use it once it knows which methods the class has. A short text
# says so, the **binding**. It is C++ too, written with the library pybind11. From top to
# bottom: a module, in it a class, and the class's constructor and methods by their names.

# %%
free_list_binding = r"""
// INCLUDE free_list_binding.cpp
"""

# %% [markdown]
# Now a compiler makes a module out of the two texts. PyTorch has a function for this,
# `load_inline`: it takes C++ as text, compiles it, and imports what comes out.

# %%
from torch.utils.cpp_extension import load_inline

from paged_attention.attention.plain_build import kept_build

texts = [free_list, free_list_binding]
with kept_build(texts) as folder:
    free_list_module = load_inline(
        "free_list", cpp_sources=texts, no_implicit_headers=True, build_directory=folder
    )
free_ids = free_list_module.FreeList(num_blocks=4)
print("taken:", free_ids.pop(), free_ids.pop(), free_ids.pop())
free_ids.push(1)
print("1 comes back; taken next:", free_ids.pop(), "· still free:", free_ids.size())

# %% [markdown]
# The first run takes a few seconds, and the next one none: `kept_build`, a part of the course,
# gives a folder in which the module stays. It also shows how long you have been waiting.
#
# In PyTorch's documentation you find `load_inline` in its default form:
#
# ```python
# module = load_inline("free_list", cpp_sources=texts)
# ```
#
# The difference is one line. The default form puts `#include <torch/extension.h>` before your
# text. With that line C++ knows tensors, and all that PyTorch does with them. But the compiler
# has to read all of it, and a build takes more than four times as long. A free list needs no
# tensors. So `no_implicit_headers=True` leaves the line out, and the binding includes the one
# header that it needs, pybind11's.
#
# From here on the lesson calls `build_cpp(free_list, free_list_binding)`. It builds in the same
# small form and keeps its modules too. And when your C++ has an error, it shows the line of
# your text. (`make bench NAME=cpp_builds` compares it with the default form on your machine.)
#
# Two names in the binding come back in exercise 1.4. `TORCH_EXTENSION_NAME` is the module's
# name, which the builder fills in. `py::module_local()` keeps the class inside its module. So
# you can change your text and build it again, and the new class does not clash with the old.
#
# ## How many users does a block have?
#
# A free list is enough as long as each block has one user. But sequences share blocks. When
# two people continue the same text, both start with the same keys and values, and keeping them
# twice would be a waste.
#
# So the manager counts the users of each block, its **reference count**. `allocate()` sets it
# to 1. `increase_ref_count()` adds a user. `free()` takes one away, and when the last one is
# gone, the block returns to the free list.
#
# ## Wrong calls
#
# A mistake in these books shows up late: two sequences write over each other, and the model
# talks nonsense. So every wrong call is refused at once, and **a call that fails leaves
# everything as it was**. Each kind of mistake has its own error, which names the number that
# was wrong:
#
# | error | when |
# |---|---|
# | `PoolSizeError(num_blocks)` | the pool would have no blocks |
# | `OutOfBlocksError(num_blocks)` | `allocate()` while all of the pool's `num_blocks` blocks are in use |
# | `BlockIndexError(block_id)` | there is no block with that id |
# | `DoubleFreeError(block_id)` | `free()` of a block that is free |
# | `BlockNotAllocatedError(block_id)` | `increase_ref_count()` of a block that is free |
#
# They are written for you:

# %%
errors = r"""
// INCLUDE block_errors.h
"""

# %% [markdown]
# ### Exercise 1.2: reference counts and errors
#
# Write the manager. The constructor is given. It calls `check_pool_size()`, at the end of the
# cell above, which shows how to throw an error. `check_index()` throws a `BlockIndexError`
# unless `block_id` is one of the pool's ids. Your `FreeList` is available as `free_list_`.
# `get_ref_count()` of a free block is 0.

# %% exercise="1.2"
block_manager = r"""
// INCLUDE block_manager.h
"""

# %% check="1.2"
check("1.2", block_manager)

# %% [markdown]
# The check did something that testing by hand cannot. It tried *every* sequence of up to four
# calls on pools of one and two blocks, wrong calls included, and compared each result with
# what the table above promises.
#
# ## Two threads at once
#
# A server has several threads. Suppose two of them call `allocate()` at the same moment:
#
# | thread 1 | thread 2 | free list |
# |---|---|---|
# | reads the top: block 5 | | 7, 6, 5 |
# | | reads the top: block 5 | 7, 6, 5 |
# | removes the top | | 7, 6 |
# | | removes the top | 7 |
#
# Both got block 5, and block 6 is lost. The program may crash. Or it may go on: then the two
# sequences write over each other, and no log says so. Such a **race** needs two calls within
# the same few instructions, so it may be rare.
#
# To see it at once, we help it along. Here is a `FreeList` that sleeps for a moment in the
# middle of each change, so that another thread can get in between. And here is a test with
# several threads, each of which takes a block, keeps it for a moment and gives it back:

# %%
slow_free_list = r"""
// INCLUDE slow_free_list.h
"""

# %%
stress = r"""
// INCLUDE block_manager_stress.cpp
"""

# %% [markdown]
# (These are C++ threads. Python's own threads would not show the race: with its global lock,
# the interpreter lets only one of them into your code at a time.)
#
# A broken manager may do worse than miscount: it may crash or never return. So the test runs
# in its own process, as the checks do. `run_isolated` says how it ended.

# %%
from lessons_lib import build_library, run_isolated


def stress_test(texts):
    return build_library(*texts).stress(4, 200)


def holds(manager_source):
    texts = errors, slow_free_list, manager_source, stress
    outcome = run_isolated(stress_test, texts, time_limit=60)
    if outcome.error:  # it could not be built, so nothing was tested
        raise outcome.error
    return outcome.ending == "returned" and outcome.value == 0


survives = holds(block_manager)
print("without a mutex the manager", "holds" if survives else "breaks")
assert not survives, (
    "It held. "
    "If your block_manager has a mutex already, you are ahead: go on with exercise 1.3."
)

# %% [markdown]
# ### Exercise 1.3: thread safety
#
# A **mutex** is a door with one key. The thread that holds the key works inside, and the
# others wait. This line takes the key, and gives it back at the closing brace of its C++
# block, even when an error leaves the block early:
#
# ```cpp
# std::lock_guard<std::mutex> guard(mutex_);
# ```
#
# `mutex_` is a member of the class, a `std::mutex`. It is declared `mutable`, because the
# methods marked `const` lock it too.
#
# There is no need to type the methods again. Copy the whole class from exercise 1.2 over the
# one below. Then add the member under this name, and make every public method safe.

# %% exercise="1.3"
safe_block_manager = r"""
// INCLUDE block_manager.h
"""

# %% check="1.3"
check("1.3", safe_block_manager)

# %% [markdown]
# Waiting for a race is a poor test, because the race may never come. The check does something
# surer, and needs no second thread. It watches which data each method reads and writes, and
# which lock it holds at that moment. If two methods touch the same data, and one of them
# changes it, they must hold the same lock. Otherwise two threads can meet there, whether they
# ever do or not. And if a method gives its lock back halfway, the check lets another call in.
# You can still try the stress test yourself:

# %%
survives = holds(safe_block_manager)
print("with a mutex it", "holds" if survives else "breaks")
assert survives, "Run the cells from slow_free_list on once more, and check 1.3."

# %% [markdown]
# ## Errors that Python understands
#
# A C++ error that leaves the module has to become a Python exception. pybind11 translates the
# standard ones: `std::out_of_range` becomes `IndexError`, `std::runtime_error` becomes
# `RuntimeError`. That is too coarse. A scheduler wants to catch a full pool, and wait. It does
# not want to catch a double free, which is a bug.
#
# ### Exercise 1.4: errors reach Python
#
# Give each error its own Python class. It has the same name as in C++, and is derived from the
# type that a Python programmer would expect:
#
# | error | Python base | its name in C++ |
# |---|---|---|
# | `PoolSizeError` | `ValueError` | `PyExc_ValueError` |
# | `OutOfBlocksError` | `MemoryError` | `PyExc_MemoryError` |
# | `BlockIndexError` | `IndexError` | `PyExc_IndexError` |
# | `DoubleFreeError` | `RuntimeError` | `PyExc_RuntimeError` |
# | `BlockNotAllocatedError` | `RuntimeError` | `PyExc_RuntimeError` |
#
# One line is enough for one error:
#
# ```cpp
# py::register_local_exception<CppType>(module, "PythonName", base);
# ```
#
# “Local” keeps the translation inside this module, for the same reason as `module_local()`.
# The check builds the module, which takes as long as building the binding above.

# %% exercise="1.4"
binding = r"""
// INCLUDE block_manager_binding.cpp
"""

# %% check="1.4"
check("1.4", binding)

# %% [markdown]
# Now the manager is a Python class, and every wrong call gets an answer:

# %%
module = build_cpp(errors, free_list, safe_block_manager, binding)
manager = module.BlockManager(num_blocks=2)
a, b = manager.allocate(), manager.allocate()
manager.free(b)
wrong_calls = {
    "BlockManager(0)": lambda: module.BlockManager(0),
    "free(1) again": lambda: manager.free(1),
    "increase_ref_count(1)": lambda: manager.increase_ref_count(1),
    "get_ref_count(2)": lambda: manager.get_ref_count(2),
    "allocate() twice": lambda: [manager.allocate(), manager.allocate()],
}
for call, make in wrong_calls.items():
    try:
        make()
    except Exception as error:
        kind = type(error)
        print(f"{call:23}{kind.__name__}, from {kind.__base__.__name__}: {error}")

# %% [markdown]
# A wrong *type* needs no code from you. pybind11 knows that `block_id` is an `int`, and
# answers `manager.free("one")` with a `TypeError` that shows the value.
#
# ## Watch it work
#
# Here is a pool of eight blocks as sequences come, fork and go. This is your code at work:
# `live.manager` is an object of your class, and each call of it is a step.

# %%
live = draw.LivePool(module.BlockManager, num_blocks=8)
manager = live.manager
first = [manager.allocate() for _ in range(3)]
second = [manager.allocate() for _ in range(2)]
for block in first:  # the first sequence is forked
    manager.increase_ref_count(block)
for block in second:  # the second one leaves
    manager.free(block)
third = [manager.allocate() for _ in range(4)]
assert third[:2] == second[::-1] and manager.get_num_free_blocks() == 1
live

# %% [markdown]
# The third sequence gets the blocks of the second first: the last block freed is the first one
# used. Now go on with the buttons, which call your methods. The pool also follows what you do
# with `live.manager` in a cell of your own. What happens when you free a block that is free?
#
# ## What a call costs
#
# Was C++ worth it? Let us measure. Here is the same manager in Python, as short as it can be.
# And here are three ways to allocate a block and free it again: Python calling Python, Python
# calling your C++, and C++ calling your C++.


# %%
class SmallestManager:
    def __init__(self, num_blocks):
        self.free_blocks = list(range(num_blocks))[::-1]
        self.ref_counts = [0] * num_blocks

    def allocate(self):
        block_id = self.free_blocks.pop()
        self.ref_counts[block_id] = 1
        return block_id

    def free(self, block_id):
        self.ref_counts[block_id] -= 1
        if self.ref_counts[block_id] == 0:
            self.free_blocks.append(block_id)


# %% tags=["nbval-ignore-output"]
import time
import timeit

rounds = 100_000
pools = {
    "Python calls Python": SmallestManager(8),
    "Python calls C++": module.BlockManager(8),
}
costs = {}
for name, pool in pools.items():
    times = timeit.repeat(
        lambda: pool.free(pool.allocate()), number=rounds, repeat=3, timer=time.process_time
    )
    costs[name] = min(times) / rounds

loop = r"""
extern "C" void allocate_and_free(int rounds) {
  BlockManager manager(8);
  for (int round = 0; round < rounds; ++round) manager.free(manager.allocate());
}
"""
library = build_library(errors, free_list, safe_block_manager, loop, flags=("-O2",))
started = time.process_time()
library.allocate_and_free(10 * rounds)
costs["C++ calls C++"] = (time.process_time() - started) / (10 * rounds)
for name, seconds in costs.items():
    print(f"{name:20} {seconds * 1e9:6.0f} ns for allocate() and free()")
assert costs["C++ calls C++"] < costs["Python calls C++"]

# %% [markdown]
# Look at the order of the three, not at the digits. On our machine C++ is no faster when
# Python calls it: the time goes into crossing the border between the two languages, twice for
# each pair of calls. Within C++ the pair takes a small part of that time, mutex and all.
#
# So the language matters where the caller is C++ too, or where one call does a lot of work.
# And your mutex matters where Python's global lock is not held: between C++ threads, and in a
# Python without that lock. (There, importing a module switches it on again, unless the module
# declares that it can do without it. In pybind11 it says so with `py::mod_gil_not_used()`; our
# module does not.)
#
# ## Sharing: fork
#
# Now the manager goes to work. A sequence is a list of block ids, in the order of its tokens.
# To **fork** it means to start a second sequence with the same tokens so far: for a second
# answer to the same question, say. No key or value is copied.
#
# ### Exercise 1.5: fork a sequence


# %% exercise="1.5"
def fork(manager, blocks):
    """Starts a second sequence that shares every block of the first.

    Each block has one more user afterwards.

    manager: a BlockManager.
    blocks: list of int, the first sequence's block ids; not changed.
    Returns a list of int: the second sequence's own list, with the same ids.
    """
    # BEGIN SOLUTION
    for block_id in blocks:
        manager.increase_ref_count(block_id)
    return list(blocks)
    # END SOLUTION


# %% check="1.5"
check("1.5", fork)

# %% [markdown]
# ## Shared until the first write: copy on write
#
# Now the two sequences go on differently. Unless the last block is full, the next token goes
# into it. But both share that block, so a write by one changes the other's text as well. So
# the writer first makes its own copy of the block. This is **copy on write**. It copies at
# most one block, and only when it must:
#
# - A block with one user is written in place.
# - A block with more users is copied: take a new block, copy the contents, let go of the old
#   block, and put the new id into the sequence's list. Then write.
#
# If there is no block for the copy, `allocate()` raises `OutOfBlocksError`. In that case
# everything must still be as it was.
#
# ### Exercise 1.6: copy on write
#
# To make this easy to see, the pool here holds one number for each token instead of keys and
# values.


# %% exercise="1.6"
def write(manager, pool, blocks, position, value):
    """Writes one token of a sequence. Copies its block first if another sequence uses it too.

    manager: a BlockManager.
    pool: int64 tensor (num_blocks, block_size), changed in place.
    blocks: list of int, the sequence's block ids. The entry of a copied block is replaced.
    position: int, the token's place in the sequence, from 0.
    value: int.
    Raises the manager's OutOfBlocksError when a copy is needed and no block is free. Then
        nothing has changed.
    """
    # BEGIN SOLUTION
    index, offset = divmod(position, pool.shape[1])
    block_id = blocks[index]
    if manager.get_ref_count(block_id) > 1:
        copy_id = manager.allocate()
        pool[copy_id] = pool[block_id]
        manager.free(block_id)
        blocks[index] = block_id = copy_id
    pool[block_id, offset] = value
    # END SOLUTION


# %% check="1.6"
check("1.6", write)

# %% [markdown]
# ## Everything together
#
# Two people ask a model to continue the same words. Blocks hold four letters each, so that you
# can read them.

# %%
import torch

manager = module.BlockManager(num_blocks=6)
pool = torch.full((6, 4), ord(" "))
steps = []


def note(what):
    contents = ["".join(map(chr, row)).replace(" ", "·") for row in pool.tolist()]
    steps.append((what, [manager.get_ref_count(block_id) for block_id in range(6)], contents))


def write_text(blocks, start, text):
    for position, letter in enumerate(text, start):
        if position // 4 == len(blocks):
            blocks.append(manager.allocate())
        write(manager, pool, blocks, position, ord(letter))


ours = []
write_text(ours, 0, "the cat sa")
note(f"“the cat sa” in blocks {ours}")
theirs = fork(manager, ours)
note("forked: three blocks, two sequences, nothing copied")
write_text(ours, 10, "t")
note(f"ours goes on with “t”: the shared last block is copied, ours is {ours}")
write_text(theirs, 10, "ng")
note(f"theirs goes on with “ng”: its block has one user now, theirs is {theirs}")


# %%
def read_text(blocks, length):
    return "".join(chr(code) for code in pool[blocks].flatten()[:length].tolist())


print(f"ours:   {read_text(ours, 11)!r}, theirs: {read_text(theirs, 12)!r}")
assert (read_text(ours, 11), read_text(theirs, 12)) == ("the cat sat", "the cat sang")
draw.copy_on_write(steps)

# %% [markdown]
# Two sequences of eleven and twelve letters, six blocks' worth, fit into four. When both
# leave, every block comes back:

# %%
while blocks := ours or theirs:
    manager.free(blocks.pop())
assert [manager.get_ref_count(block_id) for block_id in range(6)] == [0] * 6
print("free blocks:", manager.get_num_free_blocks(), "of 6")

# %% [markdown]
# ## A test of your own
#
# Now you write a test yourself. It gets a new manager, and raises an error if that manager breaks
# one of three promises:
#
# - `free()` takes one user of a block away, and leaves the others.
# - `free()` of a free block raises a `RuntimeError`.
# - `increase_ref_count()` of a free block raises a `RuntimeError`, and changes nothing.
#
# The check hands it right managers, and three wrong ones that break a promise each. A right one
# may hand out its blocks in any order. Raise with `assert` or `raise`, as you like.
#
# ### Exercise 1.7: a test of your own


# %% exercise="1.7"
# INCLUDE lessons_content/lesson_01/e1_7_own_test.py test_manager


# %% check="1.7"
check("1.7", test_manager)

# %% [markdown]
# And your own manager?

# %%
test_manager(module.BlockManager(num_blocks=8))
print("your manager passes your test")

# %% [markdown]
# ## What you built
#
# A block manager that never loses a block: a stack of free ids, a count for each block, an
# error for each wrong call, and one lock. On top of it are sequences that share their past and
# copy only what they change. And you have a test for the next manager.
#
# ## Ask yourself
#
# <details><summary>Why does the manager keep a free list, instead of looking for a block whose
# count is 0?</summary>
#
# The larger and fuller the pool, the longer it takes to look. The stack has the answer on top,
# always at the same cost.
# </details>
#
# <details><summary>Your test frees a block twice, and no error is raised. What happens to the
# next two sequences?</summary>
#
# The id is in the free list twice, so both are given the same block. Each overwrites the
# other's keys and values, and both texts go wrong, long after the mistake.
# </details>
#
# <details><summary>Each public method takes the lock. Is
# <code>if manager.get_num_free_blocks() > 0: manager.allocate()</code> safe with two
# threads?</summary>
#
# No. Between the two calls another thread may take the last block. Looking and taking have to
# happen under one lock, as they do inside <code>allocate()</code>. A caller just tries, and
# handles the error.
# </details>
#
# <details><summary>A sequence is forked ten times, and then all eleven write one token. How
# many blocks are copied at most?
# </summary>
#
# Ten. Each writer copies the shared last block, until only one user is left, and that one
# writes in place. If the last block happens to be full, each takes a fresh block instead, and
# nothing is copied.
# </details>
#
# ## Where this is in vLLM
#
# PLACES
#
# ## Sources
#
# - Woosuk Kwon et al., *Efficient Memory Management for Large Language Model Serving with
#   PagedAttention*, SOSP 2023, [arXiv:2309.06180](https://arxiv.org/abs/2309.06180): section
#   4.2 for the block manager, section 4.4 for sharing and copy on write.
# - pybind11's documentation: “Exceptions”, for how C++ errors become Python exceptions;
#   “Free-threading support”.
# - PyTorch's documentation, `torch.utils.cpp_extension.load_inline`.
#
# **Done?** *File ▸ Close and Shut Down Notebook* ends this lesson's kernel and frees its memory.
#
# **Next:** [02 · Block tables](02_block_tables.ipynb), which turn these ids into the memory of
# a model.
