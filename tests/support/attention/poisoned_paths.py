"""A test for each of the engine's paths and each poison."""

import pytest

from paged_attention.engine import paths
from paged_attention.engine.paths import PATHS
from poison import POISONS

FOR_16_BITS = ("fast", "fused")  # paths whose kernels take no float32
NEEDS = getattr(paths, "NEEDS", {})

on_each_path = pytest.mark.parametrize("path", PATHS)
by_poison = pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)


def skip_where_missing(path, device):
    if path in paths.CPU_ONLY and device != "cpu":
        pytest.skip(f"path {path} is for a CPU")
    if path in NEEDS and (device == "cpu" or NEEDS[path]()):
        pytest.skip(f"path {path} cannot be taken here")
