"""Compiles kernels before they are timed or tested, several at once, in separate processes."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress

# nvcc processes in one build. FlashInfer's builds have up to ten files, with some GB for each.
JOBS_OF_EACH = "4"


def build_ahead(build: Callable, jobs: Sequence[tuple]) -> None:
    """Calls build(*job) for each job, the longest first.

    A job that fails here fails again when its kernel is used.
    """
    if not jobs:
        return
    # FlashInfer and ninja read this variable. The processes inherit it.
    os.environ.setdefault("MAX_JOBS", JOBS_OF_EACH)
    workers = min(len(jobs), os.cpu_count() or 1)
    with (
        suppress(BrokenProcessPool),
        ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool,
    ):
        for result in [pool.submit(build, *job) for job in jobs]:
            result.exception()
