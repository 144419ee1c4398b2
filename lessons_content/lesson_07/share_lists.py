"""Lists of shares, which are alike in one way or in all, for 7.7."""

from dataclasses import dataclass

from lessons_content.exercises.kit import counted, differences, outcomes


@dataclass(frozen=True)
class Alike:
    """The result of a mistake. It equals every list that is like `shares` in one way.

    way: a key of SEEN.
    """

    shares: list
    way: str


def same(expected, actual):
    if isinstance(expected, Alike) and has_pieces(actual):
        return SEEN[expected.way](expected.shares) == SEEN[expected.way](actual)
    return outcomes.same(expected, actual)


def has_pieces(result):
    shares = isinstance(result, list) and all(isinstance(share, list) for share in result)
    return shares and all(isinstance(piece, tuple) for share in result for piece in share)


def with_tiles(shares):
    return [
        [piece for piece in share if not (len(piece) == 3 and piece[1] >= piece[2])]
        for share in shares
    ]


def in_one_order(shares):
    return [sorted(share, key=repr) for share in shares]


SEEN = {"tiles": with_tiles, "order": in_one_order}


def show(ours, theirs):
    """The first share that differs."""
    if not isinstance(theirs, list) or any(isinstance(share, tuple) for share in theirs):
        return outcomes.show(ours, theirs)
    if len(ours) != len(theirs):
        return tuple(f"{counted(len(shares), 'share')}: {shares}" for shares in (ours, theirs))
    block = differences.first_place(ours, theirs)
    return f"block {block} has {ours[block]}", f"block {block} has {theirs[block]}"
