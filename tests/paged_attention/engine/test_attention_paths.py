"""The paths of the engine: their results, their names, and who may take them."""

import inspect

import pytest
import torch

from batch_metadata import batch_metadata
from paged_attention.engine import paths
from paged_attention.engine.faults import each_alone
from paged_attention.engine.paths import PATHS, choose_path, find_path, is_one_long_prompt
from paged_attention.fused import fused_needs
from paged_attention.ladder import Shape
from pretended_card import pretend_card

NUM_BLOCKS, BLOCK_SIZE = 12, 8
# A batch's new tokens, keys and table: chunks, prompts and single tokens in any order, and 16
# tokens of a few lengths.
BATCHES = {
    "mixed": (
        [3, 1, 10, 1, 1],
        [13, 8, 10, 17, 1],
        [[1, 2, -1], [3, -1, -1], [7, 8, -1], [4, 5, 6], [0, -1, -1]],
    ),
    "single tokens": ([1] * 16, [1, 2, 3, 4, 5, 8, 9, 16] * 2, [[0, 1], [9, 4]] * 8),
    "one chunk": ([16], [19], [[7, 2, 10]]),
}


def inputs(dtype=torch.float32, head_size=16):
    """Queries and caches; no number where no sequence has a key."""
    generator = torch.Generator().manual_seed(0)
    shape = NUM_BLOCKS, BLOCK_SIZE, 2, head_size
    caches = [torch.randn(shape, generator=generator).to(dtype) for _ in range(2)]
    for cache in caches:
        cache[11] = torch.nan
    return torch.randn(16, 4, head_size, generator=generator).to(dtype), *caches


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("path", sorted(PATHS.keys() - {"fast", "fused"}))
def test_all_paths_give_the_same_and_make_their_tensors_where_the_batch_is(path, batch):
    given, tensors = batch_metadata(*BATCHES[batch]), inputs()
    expected = each_alone(*(tensor.double() for tensor in tensors), given).float()
    found = PATHS[path](given)(*tensors)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    if path in ("gather", "blockwise"):
        with torch.device("meta"):  # what is made without a device cannot be read
            assert torch.equal(PATHS[path](given)(*tensors), found)


@pytest.mark.parametrize(
    "batch, dtype",
    [*((batch, torch.float16) for batch in BATCHES), ("one chunk", torch.float32)],
)
def test_the_path_of_a_gpu_gives_the_same_by_its_kernels_on_the_cpu(batch, dtype):
    """Chunks of 32 bits go another way: the prefill ladder does not take them."""
    given, tensors = batch_metadata(*BATCHES[batch]), inputs(dtype, 64)
    expected = each_alone(*(tensor.double() for tensor in tensors), given)
    found = paths.fast(given, "fast")(*tensors)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize(
    "query_lens, kv_lens, is_one",
    [
        ([8192], [8192], True),
        ([8191], [8191], False),
        ([8192], [8200], False),
        ([8192, 1], [8192, 5], False),
        ([8192, 8192], [8192, 8192], False),
        ([], [], False),
    ],
)
def test_what_one_long_prompt_is(query_lens, kv_lens, is_one):
    given = batch_metadata(query_lens, kv_lens, [[0]] * len(kv_lens))
    assert is_one_long_prompt(given) == is_one


def test_a_path_that_there_is_not_or_not_here_is_refused():
    assert find_path("gather") is paths.gather
    with pytest.raises(ValueError, match="path must be one of gather, .*, not 'quick'"):
        find_path("quick")
    if fused_needs():
        with pytest.raises(RuntimeError, match="path 'fused' needs "):
            find_path("fused")


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
