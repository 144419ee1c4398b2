"""Times the host's part of a decode kernel's call, ours and FlashInfer's, in the same run.

A call begins when the GPU is idle, and ends when it returns. Our call checks its arguments,
for which it waits for the GPU once, plans and launches. FlashInfer plans on the host, copies
the plan, and launches.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from lessons_content.lesson_07.bench.backends import make_batch
from lessons_content.lesson_07.bench.flashinfer_backends import wrapper_and_plan
from lessons_content.lesson_07.bench.workloads import WORKLOADS, Workload
from paged_attention.ladder.decode import attn_paged_fast

CALLS = 50


@dataclass(frozen=True)
class CallRow:
    """Medians, in microseconds. plan and run: the two parts of FlashInfer's call."""

    workload: str
    ours: float
    plan: float
    run: float


def host_calls(workloads: Sequence[Workload] = WORKLOADS) -> list[CallRow]:
    """The times for each workload. It needs a GPU and FlashInfer."""
    return [_host_call(workload) for workload in workloads]


def _host_call(workload: Workload) -> CallRow:
    batch = make_batch(workload, 1, "cuda")
    (caches,) = batch.caches
    arguments = batch.q, *caches, batch.block_table, batch.context_lens
    wrapper, plan = wrapper_and_plan(batch, use_tensor_cores=True)
    plan()
    return CallRow(
        workload.name,
        ours=microseconds(lambda: attn_paged_fast(*arguments)),
        plan=microseconds(plan),
        run=microseconds(lambda: wrapper.run(batch.q, caches)),
    )


def microseconds(call: Callable[[], object], wait: Callable[[], None] | None = None) -> float:
    """The median time until a call returns. The first call is a warm-up.

    wait: waits until the GPU is idle; None takes PyTorch's function.
    """
    wait = wait or torch.cuda.synchronize
    seconds = []
    for _ in range(CALLS + 1):
        wait()
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    wait()
    return 1e6 * statistics.median(seconds[1:])
