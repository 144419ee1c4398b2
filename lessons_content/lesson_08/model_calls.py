"""Calls of a model's layers for attention, and the pool after them, for 8.1."""

import copy
from types import SimpleNamespace

import torch

from lessons_content.exercises.kit import Text, counted, tensors
from paged_attention.attention.metadata import attn_paged_torch, build_metadata
from paged_attention.engine.attention import PagedStep
from paged_attention.pool.kv_cache import PagedAttentionManager


def is_small(case):
    """Whether a message shows the case's numbers: at most twelve in query, key and value."""
    _, num_kv_heads, num_each, head_size, num_layers, chunks, _ = case
    num_tokens = sum(new for _, new in chunks)
    return num_tokens * num_kv_heads * (num_each + 2) * head_size * num_layers <= 12


def make_step(case):
    """A step, over a pool full of numbers, and each layer's query, key and value."""
    block_size, num_kv_heads, num_each, head_size, num_layers, chunks, seed = case
    generator = torch.Generator().manual_seed(seed)
    num_before = seed % 5  # blocks, so that the first sequence has not the first one
    num_blocks = num_before + sum(-(-sum(chunk) // block_size) for chunk in chunks) + 1
    manager = PagedAttentionManager(
        num_blocks, block_size, num_kv_heads, head_size, len(chunks), 16, num_layers
    )
    left = torch.randn(manager.kv_cache.shape, generator=generator)
    manager.kv_cache.copy_(left.round(decimals=1))  # short numbers make the records small
    for _ in range(num_before):
        manager.block_manager.allocate()
    for seq_id, (past, _) in enumerate(chunks):
        manager.add_sequence(seq_id, past)
    scheduled = [(seq_id, new) for seq_id, (_, new) in enumerate(chunks)][::-1]
    manager.append_tokens(scheduled)
    metadata = build_metadata(manager, scheduled)
    num_tokens = sum(new for _, new in chunks)
    heads = (num_kv_heads * num_each, num_kv_heads, num_kv_heads)
    layers = [
        [torch.randn(1, num, num_tokens, head_size, generator=generator) for num in heads]
        for _ in range(num_layers)
    ]
    if is_small(case):
        # numbers to tell apart: 1, 2, … in queries, 0.1, 0.2, … in keys, 10, 20, … in values
        for number, layer in enumerate(layers):
            for tensor, unit in zip(layer, (1.0, 0.1, 10.0), strict=True):
                counting = torch.arange(1, 1 + tensor.numel()) + number * tensor.numel()
                tensor.copy_(unit * counting.view_as(tensor))

    def attend(q, k_cache, v_cache):
        return attn_paged_torch(q, k_cache, v_cache, metadata)

    # the name that a learner reads where it gets too few arguments
    attend.__qualname__ = "attend"
    return PagedStep(manager.kv_cache, metadata.slot_mapping, attend), layers


def observe(answer, case):
    """The output of every layer, called in the model's order, and what the pool holds then."""
    step, layers = make_step(case)
    outputs = []
    for layer, (query, key, value) in enumerate(layers):
        module = SimpleNamespace(
            layer_idx=layer,
            scaling=query.shape[-1] ** -0.5,
            head_dim=query.shape[-1],
            num_key_value_groups=query.shape[1] // key.shape[1],
            is_causal=True,
            training=False,
        )
        arguments = (query, key, value, step.slot_mapping)
        given = copy.deepcopy(arguments)
        result = answer(
            module, query, key, value, None, paged=step, scaling=module.scaling, dropout=0.0
        )
        if isinstance(result, torch.Tensor):
            return Text(f"a tensor {tuple(result.shape)} alone instead of a tuple of two")
        is_pair = isinstance(result, tuple | list) and len(result) == 2
        if not is_pair or not isinstance(result[0], torch.Tensor):
            return tensors.values(result, "the output", "the weights")
        if result[1] is not None:
            return Text("something else than None for the weights")
        if not all(map(torch.equal, given, arguments)):
            return Text("its arguments are changed")
        output = result[0].detach().clone()
        outputs.append(tensors.Values(output, f"the output of layer {layer}"))
    return *outputs, tensors.Values(step.kv_cache, "kv_cache")


def size(case):
    """Tokens, sequences, and how many numbers a token has in all layers."""
    _, num_kv_heads, num_each, head_size, num_layers, chunks, _ = case
    return sum(map(sum, chunks)), len(chunks), num_kv_heads * num_each * head_size * num_layers


def describe(case):
    block_size, num_kv_heads, num_each, head_size, num_layers, chunks, _ = case
    those = "; ".join(
        counted(new, "new token") + (f" after {past} in the cache" if past else "")
        for past, new in chunks[::-1]
    )
    return (
        f"{counted(num_layers, 'layer')}, {counted(num_kv_heads * num_each, 'query head')} "
        f"on {counted(num_kv_heads, 'KV head')} of size {head_size}, blocks of {block_size}; "
        f"one row of {those}{numbers(case) if is_small(case) else ''}"
    )


def numbers(case):
    """The slots, and each layer's query, key and value."""
    step, layers = make_step(case)
    text = f"; slot_mapping = {step.slot_mapping.tolist()}"
    for number, layer in enumerate(layers):
        query, key, value = (nested(tensor[0].tolist()) for tensor in layer)
        text += f"; layer {number}: " if len(layers) > 1 else "; "
        text += f"query[0] = {query}, key[0] = {key}, value[0] = {value}"
    return text


def nested(part):
    return f"[{', '.join(map(nested, part))}]" if isinstance(part, list) else f"{part:g}"
