"""The course's attention inside a transformers model, through its public interface."""

import copy
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from weakref import WeakKeyDictionary

from torch import Tensor
from torch.nn import Module


@dataclass(frozen=True)
class PagedStep:
    """What every layer needs to know about a step.

    attend: attend(q, k_cache, v_cache), a path planned for the step's metadata.
    """

    kv_cache: Tensor  # (num_layers, 2, num_blocks, block_size, num_kv_heads, head_size)
    # (num_tokens,): block_id * block_size + offset of each token of the step
    slot_mapping: Tensor
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]


def paged_attention_forward(
    module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask=None,
    *,
    paged: PagedStep,
    **others,
) -> tuple[Tensor, None]:
    """Writes a layer's keys and values into the pool, then attends.

    The model calls this in every layer. All sequences of the step are in one row, so the batch
    size is 1. Query and key contain their positions already.

    module: the layer's attention; `module.layer_idx` is its place in the model.
    query: (1, num_q_heads, num_tokens, head_size).
    key, value: (1, num_kv_heads, num_tokens, head_size).
    paged: the step, with the pool, the tokens' slots and `attend`. `attend` takes q of shape
        (num_tokens, num_q_heads, head_size), contiguous or not.
    Returns (1, num_tokens, num_q_heads, head_size), and None for the weights.
    """
    # BEGIN SOLUTION 8.1
    # (num_tokens, heads, head_size)
    q, k, v = (heads[0].transpose(0, 1) for heads in (query, key, value))
    k_cache, v_cache = paged.kv_cache[module.layer_idx]
    k_cache.view(-1, *k.shape[1:])[paged.slot_mapping] = k
    v_cache.view(-1, *v.shape[1:])[paged.slot_mapping] = v
    return paged.attend(q, k_cache, v_cache)[None], None
    # END SOLUTION


@contextmanager
def plugged_in(model, forward):
    """Makes `forward` the attention of every layer of a transformers model, in a `with` block.

    After the block, the attention is what it was before. Other models keep theirs, even those
    that share the model's config. Only one thread at a time can be inside with the same model.
    The others wait.
    """
    from transformers import AttentionInterface  # slow to import; the checks do not need it

    # the registry keeps `forward`, so no other function gets its id
    name = f"course_paged_{id(forward)}"
    AttentionInterface.register(name, forward)
    with lock_of(model):
        config = own_config(model)
        before = config._attn_implementation
        try:
            config._attn_implementation = name
            yield
        finally:
            config._attn_implementation = before


_own_configs: WeakKeyDictionary[Module, object] = WeakKeyDictionary()  # model: its config
_locks: WeakKeyDictionary[Module, RLock] = WeakKeyDictionary()  # model: its lock


def lock_of(model):
    """Returns the model's own lock, for code that changes what the model does for a while."""
    return _locks.setdefault(model, RLock())  # in one step, so that all threads get the same


def own_config(model):
    """Gives the model a config that no other model shares, and returns it.

    A layer asks its config which function to call.
    """
    shared = model.config
    if _own_configs.get(model) is not shared:
        _own_configs[model] = own = copy.copy(shared)
        for module in model.modules():
            if getattr(module, "config", None) is shared:
                module.config = own
    return model.config
