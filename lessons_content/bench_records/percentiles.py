"""The two figures that benchmarks tell of many times: the median, and a late one."""

from collections.abc import Sequence

import numpy as np

Percentiles = tuple[float, float]


def percentiles(times: Sequence[float]) -> Percentiles | None:
    """p50 and p99. Each is one of the measured times. None if there are none."""
    if not times:
        return None
    middle, late = np.percentile(times, [50, 99], method="higher").tolist()
    return middle, late
