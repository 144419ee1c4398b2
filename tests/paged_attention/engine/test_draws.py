"""Random numbers by seed and position: fixed for ever, even, and independent."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from paged_attention.engine.draws import as_int64, draw_all, draw_number

seeds = st.integers(-(2**63), 2**64 - 1)
positions = st.integers(0, 2**31 - 1)

# The first outputs of SplitMix64 from seed 0, as its authors' program prints them.
SPLITMIX = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)


def grid(num_seeds: int, num_positions: int) -> torch.Tensor:
    """The numbers of neighbouring seeds, in rows, at neighbouring positions."""
    which = torch.arange(num_seeds * num_positions)
    numbers = draw_all(which // num_positions, which % num_positions)
    return numbers.view(num_seeds, num_positions)


def test_seed_0_gives_what_splitmix64_gives_and_no_number_ever_changes():
    """If they changed, a seed would give other texts than before."""
    for position, bits in enumerate(SPLITMIX):
        assert draw_number(0, position) == (bits >> 11) / 2**53
    assert draw_number(-1, 0) == draw_number(2**64 - 1, 0) == 0.64635420864685
    assert draw_number(-(2**63), 3) == draw_number(2**63, 3) == 0.7260622282417902
    assert draw_number(7, 2**20) == 0.7962961515537788


@given(seeds, positions)
@example(2**64 - 1, 0)
@example(-(2**63), 3)
@example(2**63, 2**17 - 1)
def test_one_number_is_the_same_as_many(seed, position):
    number = draw_number(seed, position)
    assert 0 <= number < 1
    several = draw_all(torch.tensor([as_int64(seed)] * 3), torch.tensor([position] * 3))
    assert several.dtype == torch.float64 and several.tolist() == [number] * 3


def test_the_numbers_are_even():
    """Of 2**18 numbers each 256th has 1,024, give or take 32; and each row is even too."""
    numbers = grid(512, 512)
    counts = torch.histc(numbers, 256, 0, 1)
    assert (counts - 1024).abs().max() < 5 * 32
    deviation = (1 / 12 / 512) ** 0.5  # of the mean of 512
    for of_lines in (numbers.mean(0), numbers.mean(1)):
        assert (of_lines - 0.5).abs().max() < 5 * deviation


@pytest.mark.parametrize("distance", [(0, 1), (1, 0), (1, 1), (1, -1), (0, 2), (2, 0)])
def test_neighbouring_seeds_and_positions_are_independent(distance):
    """Pairs of neighbours fill a square evenly: 16 * 16 fields, about 1,000 pairs in each."""
    down, right = distance
    numbers = grid(513, 513).roll((-down, -right), (0, 1))
    ones, others = grid(513, 513)[2:-2, 2:-2], numbers[2:-2, 2:-2]
    fields = (ones * 16).long() * 16 + (others * 16).long()
    counts = torch.bincount(fields.flatten(), minlength=256).double()
    each = fields.numel() / 256
    assert (counts - each).abs().max() < 5 * each**0.5
    together = torch.stack([ones.flatten(), others.flatten()]).corrcoef()[0, 1]
    assert abs(together) < 5 / fields.numel() ** 0.5
