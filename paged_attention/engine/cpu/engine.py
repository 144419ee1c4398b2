"""Lesson 08's engine with parts replaced, so that a laptop without a GPU speaks fluently."""

from typing import Any

from paged_attention.engine.cpu.library import NUMBERS
from paged_attention.engine.cpu.parts import CpuParts
from paged_attention.engine.cpu.runner import CpuRunner
from paged_attention.engine.engine import Engine
from paged_attention.engine.supported_models import UnsupportedModelError


def cpu_engine(model, parts: CpuParts = CpuParts(), **options) -> Engine:
    """Builds an engine with parts for a CPU.

    model: on the CPU, in float32 or bfloat16. The pool has the same numbers. Those of 16 bits
        have half the bytes, and to read the weights is what takes the time.
    options: as for Engine, without `kv_dtype`. `path` counts only without the part
        `attention`.
    Raises UnsupportedModelError for a model elsewhere or with other numbers.
    Raises CompileError if this machine cannot build the kernels.
    """
    if model.device.type != "cpu" or model.dtype not in NUMBERS:
        raise UnsupportedModelError(
            f"this engine runs models of {' and '.join(map(str, NUMBERS))} on the CPU, "
            f"not of {model.dtype} on {model.device}"
        )
    engine: Any = Engine(model, kv_dtype=None, **options)
    engine.runner = CpuRunner(engine.runner, parts)
    return engine
