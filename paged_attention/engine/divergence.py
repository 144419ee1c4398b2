"""Finds where two engines differ that should compute the same.

It names the first token that differs, and its layer, head and block.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from paged_attention.engine.request import SamplingParams

TINY = 1e-3  # a smaller share says nothing


@dataclass(frozen=True)
class Divergence:
    """The place where two engines first differ.

    `token`: its place in the sequence.
    `layer`, `head`: of attention. The head is a KV head for a key or value, else a query head.
    `block`: its place in the sequence's table.
    `what`: what differs first: the "key" or "value" that the token writes, its "query", or
        else the "output" of attention.
    `difference`: the largest one between their numbers.
    """

    token: int
    layer: int
    head: int
    block: int
    what: str
    difference: float

    def __str__(self):
        kind = "KV head" if self.what in ("key", "value") else "query head"
        return (
            f"token {self.token}, layer {self.layer}, {kind} {self.head}, "
            f"block {self.block}: the {self.what} differs by {self.difference:.2g}"
        )


@dataclass(frozen=True)
class LayerCall:
    """One call of a path.

    query, output: (num_tokens, num_q_heads, head_size).
    key, value: (num_tokens, num_kv_heads, head_size), read from the sequence's own blocks.
    attend, k_cache, v_cache: for calling the path again.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    k_cache: Tensor
    v_cache: Tensor


class Recorder:
    """Takes one request through an engine, half a step at a time.

    It keeps what each layer did.
    """

    def __init__(self, engine, prompt: list[int], num_tokens: int):
        self.engine = engine
        self.request = engine.add(
            self, prompt, SamplingParams(max_new_tokens=num_tokens, ignore_end=True)
        )

    def run(self) -> list[LayerCall]:
        """Does the first half: schedules and runs. Returns the calls of all layers."""
        plan, self.calls = self.engine.runner.plan, []
        self.scheduled = self.engine.scheduler.schedule()
        self.engine.runner.plan = lambda metadata: self.recording(plan(metadata))
        try:
            self.logits = self.engine.runner.run(self.scheduled)
        finally:
            self.engine.runner.plan = plan
        return self.calls

    def postprocess(self, logits: Tensor) -> None:
        """Does the other half of the step, with these logits."""
        self.engine.postprocess(self.scheduled, logits)

    def recording(self, attend):
        """Wraps `attend` so that every call is kept as a LayerCall."""

        def attend_and_keep(q, k_cache, v_cache):
            o = attend(q, k_cache, v_cache)
            slots = self.slots(k_cache.shape[1])[-len(q) :]
            key, value = (cache.flatten(0, 1)[slots] for cache in (k_cache, v_cache))
            self.calls.append(
                LayerCall(q.clone(), key, value, o.clone(), attend, k_cache, v_cache)
            )
            return o

        return attend_and_keep

    def slots(self, block_size: int) -> list[int]:
        """Finds the slots of the sequence's keys, by its block table."""
        blocks = self.engine.manager.blocks_of(self)
        length = self.engine.manager.get(self).length
        return [
            blocks[position // block_size] * block_size + position % block_size
            for position in range(length)
        ]

    def share(self, call: LayerCall, index: int) -> Tensor:
        """Computes what block `index` adds to the output.

        It calls the path once more, with zeros as the values of all other blocks.
        """
        block_id = self.engine.manager.blocks_of(self)[index]
        v_cache = torch.zeros_like(call.v_cache)
        v_cache[block_id] = call.v_cache[block_id]
        return call.attend(call.query, call.k_cache, v_cache)


@torch.inference_mode()
def locate_divergence(
    engine_a, engine_b, prompt: list[int], num_tokens: int = 20, tolerance: float = 1e-3
) -> Divergence | None:
    """Runs a prompt through both engines, and finds where they first differ.

    Both generate num_tokens tokens greedily. The second continues with the tokens of the
    first.

    tolerance: differences up to this size are rounding.
    Returns None if they never differ.
    Raises ValueError if an engine has other requests.
    Raises ValueError if the engines cut the prompt into different chunks.
    """
    if engine_a.requests or engine_b.requests:
        raise ValueError(
            "an engine has other requests; locate_divergence() needs both for itself"
        )
    recorders = [Recorder(engine, prompt, num_tokens) for engine in (engine_a, engine_b)]
    a, b = recorders
    try:
        while a.request.reason is None:
            start = a.request.num_computed
            calls_a, calls_b = a.run(), b.run()
            if (
                len(calls_a[0].query) != len(calls_b[0].query)
                or start != b.request.num_computed
            ):
                raise ValueError(
                    "the engines compute different chunks; "
                    "give both the same token_budget and no prefix"
                )
            if parting := first_difference(calls_a, calls_b, tolerance):
                return name_block(a, b, calls_a, calls_b, start, *parting)
            a.postprocess(a.logits)
            b.postprocess(a.logits)
        return None
    finally:
        for recorder in recorders:
            if recorder.request.reason is None:
                recorder.engine.cancel(recorder)


def first_difference(
    calls_a: list[LayerCall], calls_b: list[LayerCall], tolerance: float
) -> tuple | None:
    """Finds the first token of a step that differs, and the first layer where it does.

    What comes after a NaN does not count: 0 times NaN is NaN, so in later layers a NaN reaches
    tokens that do not see it.

    Returns (row, layer, what, head, difference), or None.
    """
    first = None
    for layer, pair in enumerate(zip(calls_a, calls_b, strict=True)):
        for what in ("key", "value", "query", "output"):
            by_head = apart(*(getattr(call, what) for call in pair))  # (num_tokens, heads)
            # sorted by row, then by head
            rows, heads = (by_head > tolerance).nonzero(as_tuple=True)
            if len(rows) and (first is None or rows[0] < first[0]):
                row, head = int(rows[0]), int(heads[0])
                first = row, layer, what, head, float(by_head[row, head])
            if by_head.isinf().any():
                return first
    return first


def name_block(
    a: Recorder, b: Recorder, calls_a, calls_b, start: int, row, layer, what, head, difference
) -> Divergence:
    """Adds the block to what was found.

    If the output differs, it is the block with the share of the output that changed most.
    Otherwise it is the block that the token writes to. A change is measured against the size
    of the share: an extra key in one block takes weight from all other keys, a little from
    each.
    """
    block_size, position = a.engine.manager.block_size, start + row
    block = position // block_size
    if what == "output":
        changes = []
        for index in range(block + 1):
            ours, theirs = (  # (1, 1, head_size)
                recorder.share(calls[layer], index)[None, row, head, None]
                for recorder, calls in ((a, calls_a), (b, calls_b))
            )
            # a NaN is no size
            size = torch.maximum(ours.abs().amax(), theirs.abs().amax()).nan_to_num(0.0, 0.0)
            changes.append(float(apart(ours, theirs) / (size + TINY)))
        block = changes.index(max(changes))
    return Divergence(position, layer, head, block, what, difference)


def apart(a: Tensor, b: Tensor) -> Tensor:
    """Returns the largest difference of each token and head, (num_tokens, heads).

    A NaN counts as an infinite difference.
    """
    return (a.float() - b.float()).abs().amax(-1).nan_to_num(float("inf"), float("inf"))
