"""Random numbers by seed and position: the same two give the same number, on each device.

A generator hands out its numbers in turn, so a request's tokens would depend on how often it
was asked. These numbers have no turn. The number of a token is a hash of the request's seed
and the token's position.

The hash is the mixing function of SplitMix64 (Steele, Lea and Flood, "Fast splittable
pseudorandom number generators", OOPSLA 2014), applied to the seed and then to the sum with the
position.
"""

from torch import Tensor

_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)
_STEP = 0x9E3779B97F4A7C15  # an odd number, so no two positions give the same sum
_MASK = 2**64 - 1


def draw_number(seed: int, position: int) -> float:
    """Returns the random number of a token, in [0, 1).

    seed: the request's.
    position: the token's place in its sequence, from 0.
    """
    mixed = _mix(_mix(seed & _MASK) + _STEP * (position + 1) & _MASK)
    return (mixed >> 11) * 2.0**-53


def draw_all(seeds: Tensor, positions: Tensor) -> Tensor:
    """Returns `draw_number` of many tokens, on the tensors' device.

    seeds: int64 (num_tokens,); see `as_int64`.
    positions: int64 (num_tokens,).
    Returns float64 (num_tokens,).
    """
    mixed = _mix_all(_mix_all(seeds) + as_int64(_STEP) * (positions + 1))
    return _shift_right(mixed, 11).double() * 2.0**-53


def as_int64(number: int) -> int:
    """Returns the signed number that has the same 64 bits."""
    number &= _MASK
    return number - 2**64 if number >= 2**63 else number


def _mix(bits: int) -> int:
    for shift, factor in zip(_SHIFTS, _FACTORS):
        bits = (bits ^ bits >> shift) * factor & _MASK
    return bits ^ bits >> _SHIFTS[2]


def _mix_all(bits: Tensor) -> Tensor:
    for shift, factor in zip(_SHIFTS, _FACTORS):
        bits = (bits ^ _shift_right(bits, shift)) * as_int64(factor)
    return bits ^ _shift_right(bits, _SHIFTS[2])


def _shift_right(bits: Tensor, places: int) -> Tensor:
    """Shifts zeros in. `>>` of a signed number repeats its sign."""
    return bits >> places & (2 ** (64 - places) - 1)
