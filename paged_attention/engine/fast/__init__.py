"""Lesson 08's engine with parts replaced, so that a GPU does not wait for Python."""

from typing import Any

import torch

from paged_attention.engine.engine import Engine
from paged_attention.engine.fast.ahead import AheadEngine
from paged_attention.engine.fast.graph_sizes import graph_sizes, sizes_of_pieces
from paged_attention.engine.fast.parts import FastParts
from paged_attention.engine.fast.runner import FastRunner
from paged_attention.engine.fast.sampler import NOT_FINITE
from paged_attention.engine.supported_models import UnsupportedModelError
from paged_attention.validate import KERNEL_DTYPES

__all__ = ["FastParts", "fast_engine", "graph_sizes"]


def fast_engine(
    model,
    parts: FastParts = FastParts(),
    sizes: list[int] | None = None,
    kv_dtype: torch.dtype | None = None,
    piece_sizes: list[int] | None = None,
    **options,
) -> Engine:
    """Builds an engine with fast parts.

    sizes: the batch sizes of the recorded decode steps, up to max_num_seqs; None chooses. A
        larger batch runs without a recorded step.
    kv_dtype: the numbers of the pool, torch.float8_e4m3fn or None for the model's own. With 8
        bits, the same memory has room for twice the blocks of 16 bits. Each key and value is
        rounded to three bits after its first, and clamped to ±448.
    piece_sizes: the numbers of tokens for which pieces of steps with prompts are recorded;
        None chooses. A step of more tokens runs without them.
    options: as for Engine. `path` has no effect, nor has `forward` where layers are fused.
    Raises ValueError for a size that no batch or no step can have.
    Raises ValueError for another kv_dtype, and for fp8 without the part `plan`.
    Raises UnsupportedModelError for a dtype that the kernels do not take, and for fp8 if rung
        9 does not take the model's heads or this machine's GPU.
    """
    if model.dtype not in KERNEL_DTYPES:
        raise UnsupportedModelError(
            f"the model has numbers of {model.dtype}; "
            f"the fast engine runs {', '.join(map(str, KERNEL_DTYPES))}"
        )
    options.setdefault("path", "batched")  # of no effect; the engine's own choice may warn
    engine: Any = (AheadEngine if parts.ahead else Engine)(model, kv_dtype=kv_dtype, **options)
    max_num_seqs = len(engine.manager.block_table)
    sizes = graph_sizes(max_num_seqs) if sizes is None else sizes
    if not all(1 <= size <= max_num_seqs for size in sizes):
        raise ValueError(f"sizes must be 1 to {max_num_seqs} (max_num_seqs), not {sizes}")
    if piece_sizes is None:
        piece_sizes = sizes_of_pieces(engine.scheduler.token_budget)
    if min(piece_sizes, default=1) < 1:
        raise ValueError(f"piece_sizes must be 1 or more, not {piece_sizes}")
    engine.runner = FastRunner(engine.runner, parts, sizes, piece_sizes)
    if parts.sampling:
        engine.sample = lambda token, params, position: int(token)
        engine.are_finite = lambda tokens: (tokens != NOT_FINITE).tolist()
    return engine
