"""Runs the model over a step on a CPU."""

from torch import Tensor

from paged_attention.engine.cpu.layers import CpuModel
from paged_attention.engine.cpu.parts import CpuParts
from paged_attention.engine.fast.layers import UnfusedModelError
from paged_attention.engine.runner import ModelRunner
from paged_attention.metadata import BatchMetadata


class CpuRunner(ModelRunner):
    """Lesson 08's runner with fused layers for a CPU.

    runner: the engine's own, which this one replaces.
    `reasons`: why the part `layers` could not be had, by its name; else empty.
    """

    def __init__(self, runner: ModelRunner, parts: CpuParts):
        super().__init__(runner.model, runner.manager, runner.plan, runner.forward)
        self.parts = parts
        self.reasons: dict[str, str] = {}
        self.fused: CpuModel | None = None
        cache = self.manager.kv_cache
        longest = self.manager.max_blocks_per_seq * self.manager.block_size
        if parts.layers:
            try:
                self.fused = CpuModel(self.model, cache, longest, parts)
            except UnfusedModelError as error:
                self.reasons["layers"] = str(error)

    def forward_step(
        self, tokens: Tensor, positions: Tensor, last: Tensor, metadata: BatchMetadata
    ) -> Tensor:
        if self.fused is None:
            return super().forward_step(tokens, positions, last, metadata)
        attend, dtype = self.plan(metadata), self.manager.kv_cache.dtype

        def attend_widely(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
            return attend(q.to(dtype), k_cache, v_cache).float()

        own = self.parts.attention
        return self.fused(
            tokens, positions, metadata.slot_mapping, attend if own else attend_widely, last
        )
