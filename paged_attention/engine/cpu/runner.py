"""Runs the model over a step on a CPU."""

from torch import Tensor

from paged_attention.attention.metadata import BatchMetadata
from paged_attention.engine.attention import paged_attention_forward
from paged_attention.engine.cpu.attention import in_place
from paged_attention.engine.cpu.layers import CpuModel
from paged_attention.engine.cpu.parts import CpuParts
from paged_attention.engine.fast.layers import UnfusedModelError
from paged_attention.engine.runner import ModelRunner


class CpuRunner(ModelRunner):
    """Lesson 08's runner with fused layers for a CPU.

    runner: the engine's own, which this one replaces.
    `reasons`: why the part `layers` could not be had, by its name; else empty.
    """

    def __init__(self, runner: ModelRunner, parts: CpuParts):
        plan = in_place if parts.attention else runner.plan
        super().__init__(runner.model, runner.manager, plan, runner.forward)
        # They may be a learner's.
        self.build_metadata, self.flatten_batch = runner.build_metadata, runner.flatten_batch
        forward = None if runner.forward is paged_attention_forward else runner.forward
        self.in_place = parts.attention
        self.reasons: dict[str, str] = {}
        self.fused: CpuModel | None = None
        cache = self.manager.kv_cache
        longest = self.manager.max_blocks_per_seq * self.manager.block_size
        if parts.layers:
            try:
                self.fused = CpuModel(self.model, cache, longest, parts, forward)
            except UnfusedModelError as error:
                self.reasons["layers"] = str(error)

    def forward_step(
        self, tokens: Tensor, positions: Tensor, last: Tensor, metadata: BatchMetadata
    ) -> Tensor:
        if self.fused is None:
            return super().forward_step(tokens, positions, last, metadata)
        attend, dtype = self.plan(metadata), self.manager.kv_cache.dtype

        def attend_narrowly(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
            """Other paths take queries of the pool's numbers."""
            return attend(q.to(dtype), k_cache, v_cache).to(q.dtype)

        path = attend if self.in_place else attend_narrowly
        return self.fused(tokens, positions, metadata.slot_mapping, path, last)
