"""The benchmark of the engine on a CPU, with the small model."""

import pytest
import torch

from paged_attention.engine.checkpoint import load_model
from paged_attention.tiny_qwen3.tasks import encode
from tools.bench import cpu_engine

pytestmark = pytest.mark.usefixtures("one_thread")


def test_each_way_answers_and_is_compared_with_float32():
    models = {dtype: load_model(dtype=dtype) for dtype in (torch.float32, torch.bfloat16)}
    prompts = [encode(text) for text in ("Cq7b>", "Szebra>", "?ab>")]
    rows = {row.title: row for row in cpu_engine.measure(models, prompts, new=3, rounds=1)}
    assert list(rows)[2:] == list(cpu_engine.ENGINES)
    for row in rows.values():
        assert row.one > 0 and row.three > 0
        assert (row.apart < 1e-4) == ("32 bits" in row.title)
    assert not any(row.differ for row in rows.values() if "32 bits" in row.title)
