# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 00 · Start here
#
# In this course you build PagedAttention: a way of storing a language model's memory that lets
# one GPU serve many people at once. This is the idea:
#
# PICTURE opening
#
# Two requests share one memory, which is cut into blocks of equal size. A request gets a block
# when it has words to put into it, wherever one is free. Its **block table** says where they
# are.
#
# **At the end you will have built** an engine that serves a real language model to many
# requests at once, and all that it rests on: the block manager, the block tables, attention
# through them, and CUDA kernels, the programs on the GPU that make it fast. Here three people
# ask it at the same time. Each question is preceded by the same instructions to the model.
# Nearly all of these instructions are in memory only once, in the three orange blocks:
#
# PICTURE at_the_end
#
# **You need** some Python, and to know what a tensor of PyTorch and its shape are. From lesson
# 01 on there is a little C++, and from lesson 03 on a rough idea of attention helps. You need
# neither a GPU nor experience with CUDA.
#
# **It takes** about 15 minutes for this lesson, 60 to 90 minutes for each of the lessons 01 to
# 06, two to three hours for each of 07 to 10, and up to an hour for 11: 15 to 22 hours in all.
# These are estimates, from the length of the texts and the number of exercises: we have not
# timed anybody who was new to the course.
# If you have one evening, take [the short way](#The-short-way:-an-evening).
#
# **Here** you see what your machine can do, how an exercise works, and how much memory blocks
# save. Run the cells from top to bottom with <kbd>Shift</kbd>+<kbd>Enter</kbd>.
#
# <details><summary><b>Is this your first notebook?</b> This is all you need to
# know.</summary>
#
# A notebook is a column of **cells**. Some are text, like this one. The grey ones are Python.
#
# - **Run a cell:** click into it and press <kbd>Shift</kbd>+<kbd>Enter</kbd>, or the ▶ above.
#   The result appears below it, and the next cell is selected. Left of a cell, `[ ]` means that
#   it has not run, `[*]` that it is running or waits for its turn, and `[3]` that it was the
#   third to run.
# - **A cell knows what earlier ones have made**, so begin at the top and leave none out.
# - **After you have changed a cell, run it again.** Until then nothing has changed.
# - **Undo:** <kbd>Ctrl</kbd>+<kbd>Z</kbd> inside a cell. *Edit ▸ Undo Cell Operation* brings a
#   deleted cell back.
# - **It takes too long?** The ■ above stops a cell.
# - **Save:** JupyterLab does so every two minutes, and <kbd>Ctrl</kbd>+<kbd>S</kbd> does it at
#   once. Close the window whenever you like; your answers are in the file.
# </details>
#
# Now run your first cell, and see what blocks save. Both halves have the same memory and get the
# same requests, A to J:

# %%
from lessons_lib import check, hint, open_lesson, show_progress, solution

draw = open_lesson("00")
draw.contiguous_and_paged()

# %% [markdown]
# Press *Play*, or move the slider. A hatched place is reserved for a request and empty. On the
# left each request gets a whole piece when it comes, long enough for the longest answer. On
# the right it gets a block when it has something to write, wherever one is free. Point at a
# square to see what is in it.
#
# ## What your machine can do
#
# The next cell looks for everything that the lessons need:

# %% tags=["nbval-ignore-output"]
from lessons_lib.start.doctor import doctor

report = doctor()
display(report)
assert report.ready, "Do what the rows marked ✗ say, then run this cell again."

# %% [markdown]
# If a row is marked ✗, do what it says first. A row marked – names something that you can do
# without. It says what you would gain by it.
#
# ## What has to be remembered
#
# A language model writes one token (a word or a part of one) at a time. To choose the next
# one, it looks back at all the tokens before it. It does so many times: the model is a stack
# of **layers**, and each layer looks back once. For this it has two vectors of each token: a
# **key**, by which the token is found, and a **value**, which is what it contributes. In fact
# a layer has several such pairs of each token, one for each of its **KV heads** (K for key, V
# for value). Keys and values never change again, so the model keeps them. This is the **KV
# cache**.
#
# How much is that? Take a model of about 8 billion parameters. It has 36 layers, and each layer
# has 8 KV heads. A key has 128 numbers of 2 bytes, and so has a value.

# %%
num_layers, num_kv_heads, head_size, bytes_per_number = 36, 8, 128, 2
# times 2: a key and a value
bytes_per_token = 2 * num_layers * num_kv_heads * head_size * bytes_per_number
kib, mib = bytes_per_token // 1024, 1024 * bytes_per_token // 2**20
print(f"one token: {kib} KiB, 1,024 tokens: {mib} MiB")

# %% [markdown]
# A hundred people with a thousand tokens each need 14 GiB, on top of the model itself. So it
# is often memory that decides how many people can be served at once.
#
# ## What contiguous memory wastes
#
# The simplest cache gives each request one piece of memory. Nobody knows how long an answer
# will be, so the piece has to be long enough for the longest answer allowed. Here are five
# requests with a limit of 512 tokens.

# %%
limit = 512
lengths = {"A": 61, "B": 310, "C": 24, "D": 147, "E": 96}
useful = sum(lengths.values()) / (limit * len(lengths))
print(f"{100 * useful:.0f} % of the reserved memory holds a token")
draw.one_piece_each(lengths, limit)

# %% [markdown]
# Kwon et al. (2023, figure 2) measured three systems with contiguous caches. One reserved the
# longest length allowed, one the next power of two, and one was told the true length in
# advance. They used 20.4 %, 26.8 % and 38.2 % of the cache for tokens. The rest was paid for
# and stayed empty. (Knowing the length does not help enough. The places of tokens still to
# come stay empty for a long time, and so do gaps between the pieces that are too short for the
# next one.)
#
# ## The idea: blocks
#
# Operating systems had the same problem with programs, and solved it with pages. We do the
# same: we cut the memory into **blocks** of equal size, 16 tokens each. A request gets a block
# only when it has tokens to put into it. Its blocks may lie anywhere; a table says where.
# (That is why others call a block a *page*, and why this is called PagedAttention.) If you know
# operating systems, you know these ideas already:
#
# | in an operating system | here | lesson |
# |---|---|---|
# | a **process** | a request, or the **sequence** of its tokens | 01 |
# | a **page** of its address space | the next 16 tokens of its text | 00 |
# | a **frame** of the computer's memory | a block | 01 |
# | its **page table** says which page is in which frame | its **block table** | 02 |
# | **copy on write**: two processes share a frame until one writes | two sequences share a block until one writes | 01 |
# | **swap**: memory is short, and a process's pages go to disk for a while | **preemption**: a request loses its blocks for a while | 08 |
#
# How many blocks does a request need? That is your first exercise.
#
# ### Exercise 0.1: blocks needed
#
# Write `blocks_needed`. Replace the line that raises the error, run the cell with
# <kbd>Shift</kbd>+<kbd>Enter</kbd>, then run the check below it.


# %% exercise="0.1"
def blocks_needed(num_tokens, block_size):
    """Computes how many blocks hold `num_tokens` tokens.

    The last block may be partly full. No tokens need no block.

    num_tokens: int, 0 or more.
    block_size: int, 1 or more, the tokens in a block.
    Returns an int.
    """
    # BEGIN SOLUTION
    return (num_tokens + block_size - 1) // block_size
    # END SOLUTION


# %% check="0.1"
check("0.1", blocks_needed)

# %% [markdown]
# ## What a check does
#
# A check runs your answer on many cases, including the empty and the odd ones. It runs in its
# own process, so even an endless loop does no harm. When the answer is wrong, the check looks
# for the mistake that explains what it saw, and tells you which one it is. The next cell fails
# on purpose, with an answer that is nearly right:


# %% tags=["raises-exception"]
def always_one_block_more(num_tokens, block_size):
    return num_tokens // block_size + 1


check("0.1", always_one_block_more)

# %% [markdown]
# The message names the mistake, and shows the smallest case that revealed it. If you are stuck,
# ask for a hint: `hint("0.1")` shows the first one, and the next one each time you call it.
# With a number, it shows that one:

# %%
hint("0.1", 1)

# %% [markdown]
# `solution("0.1")` shows our answer. It is one of several right ones. The best time to read it
# is *after* your own passes.
#
# What you have passed is stored on your machine, and is not sent anywhere. `show_progress()`
# shows it, and what is next, and which mistakes you have met. Other lessons need
# `from lessons_lib import show_progress` first.

# %% tags=["nbval-ignore-output"]
show_progress()

# %% [markdown]
# ## When you come back
#
# Another day, or after a restart of the kernel, the notebook still has your answers, but
# Python has forgotten them. Click on the cell where you were and choose
# *Run ▸ Run All Above Selected Cell*. If a cell misses a name, the message says which cells
# make it. (This kernel is the Python that runs your cells.)
#
# Keep a lesson open in one tab of the browser. A second tab has its own copy of the text. When
# both have changed, JupyterLab asks which of the two to keep, and what you wrote in the other
# is lost. Choose *Cancel* then, copy your answers over, and close one of the tabs.
#
# When the course has a new version, a notebook that you have changed stays as it is. The new
# one is put beside it and has a name such as `01_block_manager (new 1a2b3c4d)`. Your answers are
# in its exercises, so go on in that one.
#
# **When you are done with a lesson**, choose *File ▸ Close and Shut Down Notebook*. It ends the
# lesson's kernel. If you only close the tab, the kernel goes on and keeps about 300 MB, and so
# does each lesson's. The list at the left, *Running Terminals and Kernels* (a square in a
# circle), shows those that run, and ends one or all.
#
# Would you like to begin an exercise again? This prints its cell as you were given it. Copy
# what it prints into the cell:
#
# ```python
# from lessons_lib.guide.show_cells import stub
#
# stub("0.1")
# ```
#
# ## What paging saves
#
# Here are the same five requests in blocks of 16 tokens, with your function:

# %%
block_size = 16
num_blocks = {name: blocks_needed(length, block_size) for name, length in lengths.items()}
paged = {name: count * block_size for name, count in num_blocks.items()}
total = sum(num_blocks.values())
useful = sum(lengths.values()) / (total * block_size)
print(f"{total} blocks; {100 * useful:.0f} % of the reserved memory holds a token")
assert all(paged[name] - lengths[name] < block_size for name in lengths)
draw.blocks_of_16(lengths, paged, limit)

# %% [markdown]
# Each request now wastes less than one block, however long it grows. The paper measured 96.3 %
# of the cache in use with PagedAttention.
#
# This takes three things, and you will build them all:
#
# - a manager that hands out blocks and takes them back: lesson 01;
# - a table that says where each request's blocks are: lesson 02;
# - attention that reads keys and values through that table: lessons 03 to 07.
#
# Lesson 08 puts them under a real model, lesson 09 makes its prompts fast, and lesson 10 keeps
# the GPU busy. Lesson 11 goes on to several GPUs, and to programs that ask from outside. The
# [glossary](glossary.ipynb) explains the words that you meet again.
#
# ## The short way: an evening
#
# In about three hours (this too is an estimate) you can get from here to a CUDA kernel that you
# wrote, that reads keys and values through a block table, and that has run. Read a lesson's
# text down to the exercise that is named here, and leave out the others.
#
# | lesson | you do | about |
# |---|---|---|
# | [01](01_block_manager.ipynb) | 1.1, the free list | 25 min |
# | [02](02_block_tables.ipynb) | 2.2, where a token is in the pool | 25 min |
# | [04](04_decode.ipynb) | nothing: look at the pictures, and at what 4.2 and 4.3 ask for | 15 min |
# | [06](06_cuda_kernel.ipynb) | 6.1, 6.2, 6.4 and 6.5. For 6.3 and 6.6 copy what `solution("6.3")` and `solution("6.6")` show | 110 min |
#
# You are there at the picture below 6.6, *Which thread reads what*: it was written down while
# your kernel ran. All that you left out is still there another day.
#
# ## Ask yourself
#
# <details><summary>A request has 160 tokens in blocks of 16. How much is wasted? And with
# 161?</summary>
#
# Nothing: 160 tokens fill ten blocks exactly. With 161, an eleventh block holds one token and
# has 15 empty places.
# </details>
#
# <details><summary>Smaller blocks waste less. Why not use blocks of one token?</summary>
#
# The table has an entry for each block, and anything that reads the cache has to follow each
# entry. With one token in a block, the table is 16 times as long. The paper measured several
# sizes (section 7.2): small blocks do not use a GPU well, and with large ones more places stay
# empty. The paper settles on 16.
# </details>
#
# <details><summary>Does paging make the cache of one request smaller?</summary>
#
# No. Each token still needs its keys and values, 144 KiB in our example. Paging removes what
# was reserved but empty, so that more requests fit.
# </details>
#
# ## Sources
#
# - Woosuk Kwon et al., *Efficient Memory Management for Large Language Model Serving with
#   PagedAttention*, SOSP 2023, [arXiv:2309.06180](https://arxiv.org/abs/2309.06180): section 1
#   and figure 2 for the measured waste, section 4 for the idea.
#
# **Next:** [01 · The block manager](01_block_manager.ipynb), in C++.
