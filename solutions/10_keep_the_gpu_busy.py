# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10 · Keep the GPU busy

# %%
from lessons_lib import check, hint, open_lesson, solution

draw = open_lesson("10")
draw.opening()

# %% [markdown]
# ### Exercise 10.1: which batch sizes to record

# %% exercise="10.1"
# INCLUDE paged_attention/engine/fast/sizes.py graph_sizes


# %% check="10.1"
check("10.1", graph_sizes)

# %% [markdown]
# ### Exercise 10.2: write into the tensors

# %% exercise="10.2"
# INCLUDE paged_attention/engine/fast/state.py StepState.fill


# %% check="10.2"
check("10.2", fill)

# %% [markdown]
# ### Exercise 10.3: one token on

# %% exercise="10.3" language="cuda"
advance = r"""
// INCLUDE engine/advance.cu
"""

# %% check="10.3"
check("10.3", advance)

# %% [markdown]
# ### Exercise 10.4: a block finds its share

# %% exercise="10.4" language="cuda"
share_of = r"""
// INCLUDE ladder/plan_share.cuh
"""

# %% check="10.4"
check("10.4", share_of)

# %% [markdown]
# ### Exercise 10.5: draw for the whole batch

# %% exercise="10.5"
# INCLUDE paged_attention/engine/fast/sampler.py draw_tokens


# %% check="10.5"
check("10.5", draw_tokens)

# %% [markdown]
# ### Exercise 10.6: what is not there yet

# %% exercise="10.6"
# INCLUDE paged_attention/engine/fast/ahead.py expect_tokens


# %% check="10.6"
check("10.6", expect_tokens)

# %% [markdown]
# ### Exercise 10.7: the late end

# %% exercise="10.7"
# INCLUDE paged_attention/engine/fast/ahead.py AheadEngine.complete_late


# %% check="10.7"
check("10.7", complete_late)
