"""The paths of the engine: their names, and who may take them. (test_poison.py is about their
results.)
"""

import inspect

import pytest
import torch

from batch_metadata import metadata_of
from paged_attention.engine import paths
from paged_attention.engine.paths import choose_path, find_path, is_one_long_prompt
from paged_attention.ladder.decode import Shape
from pretended_card import pretend_card


@pytest.mark.parametrize(
    "lens, is_one",
    [
        ([(16384, 16384)], True),
        ([(16383, 16383)], False),
        ([(16384, 16392)], False),
        ([(16384, 16384), (1, 5)], False),
        ([(16384, 16384)] * 2, False),
        ([], False),
    ],
)
def test_what_one_long_prompt_is(lens, is_one):
    assert is_one_long_prompt(metadata_of(lens, [[0]] * len(lens))) == is_one


def test_a_path_that_there_is_not_is_refused():
    assert find_path("gather") is paths.gather
    with pytest.raises(ValueError, match="path must be one of gather, .*, not 'quick'"):
        find_path("quick")


BFLOAT = torch.bfloat16


@pytest.mark.filterwarnings("ignore:The engine takes the path")
@pytest.mark.parametrize(
    ("dtype", "head_size", "group", "device", "capability", "path"),
    [
        (BFLOAT, 128, 2, "cuda", (9, 0), "fast"),
        (torch.float16, 64, 16, "cuda", (8, 0), "fast"),
        (BFLOAT, 128, 2, "cpu", (9, 0), "batched"),
        (torch.float32, 128, 2, "cuda", (9, 0), "batched"),
        (BFLOAT, 96, 2, "cuda", (9, 0), "batched"),
        (BFLOAT, 128, 17, "cuda", (9, 0), "batched"),
        (BFLOAT, 128, 2, "cuda", (7, 5), "batched"),
        (BFLOAT, 128, 2, "cuda", None, "batched"),
    ],
)
def test_the_engine_chooses_its_path_by_device_and_shapes(
    monkeypatch, dtype, head_size, group, device, capability, path
):
    pretend_card(monkeypatch, capability)
    assert choose_path(Shape(dtype, head_size, group, 16), torch.device(device)) == path


def test_the_warning_of_a_card_that_cannot_is_at_the_line_that_makes_the_engine(monkeypatch):
    def engine():
        return choose_path(Shape(torch.float16, 128, 2, 16), torch.device("cuda"))

    pretend_card(monkeypatch, (7, 5))
    with pytest.warns(UserWarning, match="rung 7 .* 8.0 or more") as warned:
        line, chosen = inspect.currentframe().f_lineno, engine()
    assert chosen == "batched"
    assert (warned[0].filename, warned[0].lineno) == (__file__, line)
