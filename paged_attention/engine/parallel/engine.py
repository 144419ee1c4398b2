"""An engine on this rank's part of a model."""

from typing import Any

from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.parallel.model import load_parallel_model
from paged_attention.engine.parallel.shards import ShardedRun, run_sharded
from paged_attention.engine.supported_models import UnsupportedModelError


def parallel_engine(model, parts: FastParts | None = None, **options) -> Engine:
    """Builds this rank's engine.

    Every rank has the same scheduler and the same requests, and gets the same logits. So the
    ranks agree on each step without talking about it.

    model: of load_parallel_model() or parallel_model().
    parts: of the fast engine; None builds lesson 08's.
    options: as for Engine or fast_engine.
    Raises UnsupportedModelError if the layers of a fast engine cannot be fused: PyTorch's own
        layers for several ranks cannot be recorded.
    """
    if parts is None:
        return Engine(model, **options)
    if not parts.layers and model.ranks.size > 1:
        raise UnsupportedModelError("on several ranks the fast engine needs the part `layers`")
    engine: Any = fast_engine(model, parts, **options)
    if engine.runner.fused is None and model.ranks.size > 1:
        raise UnsupportedModelError(engine.runner.reasons["layers"])
    return engine


def serve_parallel(
    prompts: list[list[int]],
    params,
    world_size: int = 2,
    backend: str | None = None,
    load=load_parallel_model,
    parts: FastParts | None = None,
    **options,
) -> ShardedRun:
    """Serves all prompts on world_size processes, each with a part of the weights.

    The arguments, the result and the errors are those of run_sharded().

    load: called as load(device=…) on each rank; gives its part of the model. It must be a
        function of a module.
    parts: as for parallel_engine().
    """
    return run_sharded(
        prompts,
        params,
        world_size,
        backend,
        load,
        make_engine=parallel_engine,
        parts=parts,
        **options,
    )
