"""How many examples a property is tested with."""

from hypothesis import settings


def few(number: int, drawn_anew: int) -> settings:
    """`number` examples where they are the same each time, and `drawn_anew` with a seed, which
    CI gives every night: there more examples find more, and in `make test` they would not.
    """
    return settings(max_examples=number if settings().derandomize else drawn_anew)
