"""The course's attention inside a model of transformers, through the public attention interface."""

import copy
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from weakref import WeakKeyDictionary

from torch import Tensor


@dataclass(frozen=True)
class PagedStep:
    """What every layer needs to know of a step. `attend(q, k_cache, v_cache)` is a path, planned for the step's metadata."""

    kv_cache: Tensor  # (num_layers, 2, num_blocks, block_size, num_kv_heads, head_size)
    slot_mapping: Tensor  # (num_tokens,): block_id * block_size + offset of each token of the step
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]


def paged_attention_forward(module, query: Tensor, key: Tensor, value: Tensor, attention_mask=None, *, paged: PagedStep,
                            **others) -> tuple[Tensor, None]:
    """What a layer of the model calls. All sequences of the step stand in one row, so the batch size is 1.

    module: the layer's attention; `module.layer_idx` is its place. query: (1, num_q_heads, num_tokens, head_size), key and
    value: (1, num_kv_heads, num_tokens, head_size), with their positions in them. Writes keys and values into their slots,
    then attends. Returns (1, num_tokens, num_q_heads, head_size), and None for the weights.
    """
    # BEGIN SOLUTION 8.1
    q, k, v = (heads[0].transpose(0, 1) for heads in (query, key, value))  # (num_tokens, heads, head_size)
    k_cache, v_cache = paged.kv_cache[module.layer_idx]
    k_cache.view(-1, *k.shape[1:])[paged.slot_mapping] = k
    v_cache.view(-1, *v.shape[1:])[paged.slot_mapping] = v
    return paged.attend(q, k_cache, v_cache)[None], None
    # END SOLUTION


@contextmanager
def plugged_in(model, forward):
    """Inside of it, `forward` is the attention of every layer of a model of transformers; afterwards it is what it was.

    Other models keep theirs, also where they share the model's config. Of several threads one at a time can be inside with
    the same model; the others wait.
    """
    from transformers import AttentionInterface  # it takes seconds to import, and the checks do without

    name = f"course_paged_{id(forward)}"  # the registry keeps `forward`, so no other function gets its id
    AttentionInterface.register(name, forward)
    with lock_of(model):
        config = own_config(model)
        before = config._attn_implementation
        try:
            config._attn_implementation = name
            yield
        finally:
            config._attn_implementation = before


_own_configs = WeakKeyDictionary()  # model: its config
_locks = WeakKeyDictionary()  # model: its lock


def lock_of(model):
    """The model's own lock, for those who change what it does for a while."""
    return _locks.setdefault(model, RLock())  # in one go, so that no two threads get different ones


def own_config(model):
    """The model's config, which from now on no other model shares: a layer asks its config which function to call."""
    shared = model.config
    if _own_configs.get(model) is not shared:
        _own_configs[model] = own = copy.copy(shared)
        for module in model.modules():
            if getattr(module, "config", None) is shared:
                module.config = own
    return model.config
