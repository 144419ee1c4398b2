"""Exercise 7.6: in how many splits a batch's contexts are best cut."""

import math
import random
from itertools import permutations

from lessons_exercises.lesson_07 import outcomes
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention import splits
from paged_attention.splits import SPLIT_COST

TOKENS_OF_A_TILE = 16


def up(a, b):
    return -(-a // b)


def fastest(
    waves=lambda rows, s, sms: up(rows * s, sms),
    tiles=up,
    time=lambda waves, tiles, s: waves * (tiles + SPLIT_COST),
    tried=lambda rows, tiles, sms: range(1, tiles + 1),
    best=min,
):
    """choose_num_splits(), with some of its parts replaced."""

    def wrong(num_rows, num_tiles, num_multiprocessors):
        def key(s):
            return time(waves(num_rows, s, num_multiprocessors), tiles(num_tiles, s), s)

        return best(tried(num_rows, num_tiles, num_multiprocessors), key=key)

    return wrong


def in_order(*order):
    """choose_num_splits() with its arguments in another order."""
    return lambda *sizes: splits.choose_num_splits(*(sizes[place] for place in order))


def last_of_equals(numbers, key):
    return min(reversed(numbers), key=key)


def time_returned(num_rows, num_tiles, num_multiprocessors):
    s = splits.choose_num_splits(num_rows, num_tiles, num_multiprocessors)
    return up(num_rows * s, num_multiprocessors) * (up(num_tiles, s) + SPLIT_COST)


def with_its_time(num_rows, num_tiles, num_multiprocessors):
    sizes = num_rows, num_tiles, num_multiprocessors
    return splits.choose_num_splits(*sizes), time_returned(*sizes)


def stops_at_the_first_worse(numbers, key, goes_on=lambda new, least: new <= least):
    best = numbers[0]
    for number in numbers[1:]:
        if not goes_on(key(number), key(best)):
            break
        best = min(best, number, key=key)
    return best


def stops_at_the_first_not_better(numbers, key):
    return stops_at_the_first_worse(numbers, key, lambda new, least: new < least)


def fills_the_card_once(num_rows, num_tiles, num_multiprocessors):
    return min(num_tiles, max(1, num_multiprocessors // num_rows))


def fills_the_card_at_least_once(num_rows, num_tiles, num_multiprocessors):
    return min(num_tiles, up(num_multiprocessors, num_rows))


def powers_of_two(rows, tiles, sms):
    return [2**i for i in range(tiles.bit_length()) if 2**i <= tiles]


def divisors(rows, tiles, sms):
    return [s for s in range(1, tiles + 1) if tiles % s == 0]


def split_among_all_rows(cost):
    """As if the tiles of all rows were cut into each row's splits."""
    return lambda num_rows, num_tiles, num_multiprocessors: min(
        range(1, num_tiles + 1),
        key=lambda s: (
            up(num_rows * s, num_multiprocessors) * (up(num_rows * num_tiles, s) + cost)
        ),
    )


def cost_for_each_block(num_rows, num_tiles, num_multiprocessors):
    return min(
        range(1, num_tiles + 1),
        key=lambda s: (
            up(num_rows * s, num_multiprocessors) * up(num_tiles, s)
            + SPLIT_COST * num_rows * s
        ),
    )


def timed_with(rows, tiles, sms):
    """The time with other sizes in these places, each by its number among the arguments."""

    def wrong(*sizes):
        def time(s):
            return up(sizes[rows] * s, sizes[sms]) * (up(sizes[tiles], s) + SPLIT_COST)

        return min(range(1, sizes[1] + 1), key=time)

    return wrong


def last_wave_shorter(num_rows, num_tiles, num_multiprocessors):
    def time(s):
        full, rest = divmod(num_rows * s, num_multiprocessors)
        return full * (up(num_tiles, s) + SPLIT_COST) + (
            num_tiles // s + SPLIT_COST if rest else 0
        )

    return min(range(1, num_tiles + 1), key=time)


def fewest_idle(num_rows, num_tiles, num_multiprocessors):
    return min(range(1, num_tiles + 1), key=lambda s: -num_rows * s % num_multiprocessors)


def best_filled(num_rows, num_tiles, num_multiprocessors):
    """The waves together, and not the last one alone."""
    return max(
        range(1, num_tiles + 1),
        key=lambda s: (
            num_rows * s / (up(num_rows * s, num_multiprocessors) * num_multiprocessors)
        ),
    )


def up_to(most):
    return fastest(tried=lambda rows, tiles, sms: range(1, min(tiles, most) + 1))


# (rows, tiles, multiprocessors), up to real sizes, but not so large that an answer which makes
# each block takes seconds. Then contexts of one tile: a loop that ends too soon tries nothing
# there.
CASES = [
    (1, 2, 1),
    (1, 2, 4),
    (2, 9, 4),
    (3, 10, 2),
    (1, 12, 4),
    (4, 16, 4),
    (5, 12, 4),
    (3, 20, 4),
    (1, 30, 10),
    (5, 27, 4),
    (5, 30, 8),
    (9, 40, 8),
    (7, 33, 8),
    (3, 100, 10),
    (6, 100, 16),
    (20, 100, 16),
    (1, 300, 132),
    (8, 64, 132),
    (8, 1024, 132),
    (40, 256, 132),
    (100, 256, 132),
    (133, 128, 132),
    (512, 100, 132),
    (12, 700, 108),
    (1, 1200, 132),
    (65, 300, 144),
    (1, 1, 1),
    (1, 1, 4),
]


def hidden(seed):
    """Few rows and few multiprocessors, then real sizes, then contexts of one tile."""
    chance = random.Random(seed)
    yield from (
        (chance.randint(1, 9), chance.randint(5, 99), chance.randint(3, 16)) for _ in range(10)
    )
    yield from (
        (chance.randint(1, 60), chance.randint(50, 500), chance.choice((78, 108, 132, 144)))
        for _ in range(8)
    )
    yield chance.randint(1, 3), 1, chance.randint(5, 132)


def observe(answer, case):
    result = answer(*case)
    return tuple(map(plain, result)) if isinstance(result, tuple | list) else plain(result)


def plain(result):
    """Numbers of NumPy and of torch as Python's own, and their arrays in words."""
    if not hasattr(result, "shape"):
        return result
    return result.item() if math.prod(result.shape) == 1 else Text(repr(result))


def same(expected, actual):
    if outcomes.is_error(actual):
        return outcomes.same_error(expected, actual)
    return type(expected) is type(actual) and expected == actual


def show(expected, actual):
    if type(actual) is int:
        return repr(expected), repr(actual)
    return (
        repr(expected),
        outcomes.show_no_result(actual) or f"{actual!r}, which is not an int",
    )


def describe(case):
    rows, tiles, multiprocessors = case
    return (
        f"{counted(rows, 'row')} "
        f"of {counted(tiles, 'tile')}, {counted(multiprocessors, 'multiprocessor')}"
    )


EXERCISE = Exercise(
    id="7.6",
    title="how many splits",
    answer_name="choose_num_splits",
    reference=splits.choose_num_splits,
    cases=lambda: CASES,
    size=lambda case: (case[0] * case[1], case[2]),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=same,
    show=show,
    # A single tile says little of what went wrong, and different errors come from it.
    chancy=lambda case: case[1] == 1,
    mistakes=(
        Mistake(
            "last-of-equals",
            "Several numbers of splits take the same time, and yours is not the least "
            "of them. More splits than needed mean more parts to write and to combine.",
            fastest(best=last_of_equals),
        ),
        Mistake(
            "cost-left-out",
            "You split too much: SPLIT_COST does not weigh in your time. "
            "It is left out, or it is added once at the end, "
            "which is the same for every number of splits (are there brackets missing?). "
            "Every wave pays it, since each of its blocks does, however few tiles it has.",
            fastest(time=lambda waves, tiles, s: waves * tiles),
            also=(fastest(time=lambda waves, tiles, s: waves * tiles + SPLIT_COST),),
        ),
        Mistake(
            "cost-for-each-split",
            "Your time has SPLIT_COST once for each split, or for each block. "
            "The blocks of a wave run side by side, and so they pay it side by side.",
            fastest(time=lambda waves, tiles, s: waves * tiles + SPLIT_COST * s),
            also=(
                fastest(time=lambda waves, tiles, s: waves * (tiles + SPLIT_COST * s)),
                cost_for_each_block,
            ),
        ),
        Mistake(
            "cost-cut-too",
            "Your time divides SPLIT_COST by the number of splits, together with the tiles. "
            "Every block takes all of it, however few tiles its split has.",
            fastest(
                tiles=lambda tiles, s: up(tiles + SPLIT_COST, s),
                time=lambda waves, tiles, s: waves * tiles,
            ),
            also=(
                fastest(
                    tiles=lambda tiles, s: (tiles + SPLIT_COST) / s,
                    time=lambda waves, tiles, s: waves * tiles,
                ),
            ),
        ),
        Mistake(
            "one-split-free",
            "You leave SPLIT_COST out where a row is not cut. "
            "Every block takes it, however many splits there are.",
            fastest(time=lambda waves, tiles, s: waves * (tiles + SPLIT_COST * (s > 1))),
        ),
        # These forms are one function: with each of them, 1 split is among the quickest,
        # whatever the sizes.
        Mistake(
            "one-split-always",
            "Your answer is 1, whatever the sizes: with your time, no split ever helps. "
            "If that is from a time: are the waves rounded up (with `//` within ceil(), "
            "`//` has rounded down before ceil sees it), and does the last of them count? "
            "Do you add up what all blocks do, though the blocks of a wave run side by side? "
            "Does a block take the tiles of its split, or those of the whole row?",
            fastest(tried=lambda rows, tiles, sms: [1]),
            also=(
                fastest(waves=lambda rows, s, sms: rows * s / sms),
                fastest(waves=lambda rows, s, sms: rows * s // sms),
                fastest(waves=lambda rows, s, sms: max(0, up(rows * s, sms) - 1)),
                fastest(tiles=lambda tiles, s: tiles),
                lambda rows, tiles, sms: min(
                    range(1, tiles + 1),
                    key=lambda s: up(rows * s * (up(tiles, s) + SPLIT_COST), sms),
                ),
            ),
        ),
        # So are these: one tile in each split is then quickest.
        Mistake(
            "one-tile-in-each-split",
            "Your answer is num_tiles, whatever the sizes. If that is from a time: "
            "with more splits there are more blocks, and these come in more waves. "
            "If it is from a loop: the last number tried is not the best one.",
            lambda rows, tiles, sms: tiles,
            also=(
                fastest(waves=lambda rows, s, sms: 1),
                fastest(waves=lambda rows, s, sms: up(rows, sms)),
            ),
        ),
        Mistake(
            "waves-not-rounded-up",
            "Your waves are not rounded up. "
            "A wave in which few blocks run takes as long as a full one. "
            "(With `//` within ceil(), `//` has rounded down before ceil sees it.)",
            fastest(waves=lambda rows, s, sms: max(1, rows * s // sms)),
            also=(
                fastest(waves=lambda rows, s, sms: max(1, rows * s / sms)),
                fastest(waves=lambda rows, s, sms: round(rows * s / sms)),
                fastest(waves=lambda rows, s, sms: max(1, round(rows * s / sms))),
            ),
        ),
        Mistake(
            "one-wave-too-many",
            "You count one wave more than there "
            "are where the blocks fill the last one exactly.",
            fastest(waves=lambda rows, s, sms: rows * s // sms + 1),
            also=(
                fastest(
                    waves=lambda rows, s, sms: rows * s // sms + 1,
                    tiles=lambda tiles, s: tiles // s + 1,
                ),
            ),
        ),
        Mistake(
            "tiles-not-rounded-up",
            "Where a context does not divide evenly, "
            "the largest split has a tile more than the others, and a wave waits for it.",
            fastest(tiles=lambda tiles, s: tiles / s),
            also=(fastest(tiles=lambda tiles, s: tiles // s),),
        ),
        Mistake(
            "one-tile-too-many",
            "Where a context divides evenly, "
            "you count a tile more than the largest split has.",
            fastest(tiles=lambda tiles, s: tiles // s + 1),
        ),
        Mistake(
            "tiles-of-all-rows",
            "In your time a split is a part of all rows' tiles. "
            "num_tiles is a row's, and each row is cut by itself.",
            split_among_all_rows(SPLIT_COST),
            also=(split_among_all_rows(0),),
        ),
        Mistake(
            "last-wave-shorter",
            "You let the last wave have the shorter splits. "
            "Count each wave as if it had one of the longest blocks.",
            last_wave_shorter,
        ),
        Mistake(
            "fewest-idle",
            "You take the number of splits that leaves the fewest multiprocessors idle. "
            "Full waves are not everything: how long is each of them, and how many are there?",
            fewest_idle,
            also=(best_filled,),
        ),
        Mistake(
            "rows-left-out",
            "You count the blocks of one row. All rows share the multiprocessors.",
            fastest(waves=lambda rows, s, sms: up(s, sms)),
        ),
        Mistake(
            "fills-the-card-once",
            "You take as many splits as fill the multiprocessors once. "
            "When that leaves some of them idle, two or three full waves can be quicker; "
            "and a short context is not worth that many splits.",
            fills_the_card_once,
            also=(fills_the_card_at_least_once,),
        ),
        Mistake(
            "not-all-tried",
            "The best number is not among those that you try. A context of num_tiles tiles "
            "can be cut into any number of splits from 1 to num_tiles.",
            fastest(tried=lambda rows, tiles, sms: range(1, max(2, tiles))),
            also=(
                fastest(tried=lambda rows, tiles, sms: range(1, tiles)),
                fastest(
                    tried=lambda rows, tiles, sms: range(2, tiles + 1) if tiles > 1 else [1]
                ),
                fastest(tried=lambda rows, tiles, sms: range(2, tiles + 1)),
                fastest(tried=powers_of_two),
                fastest(tried=divisors),
                fastest(tried=lambda rows, tiles, sms: range(1, rows + 1)),
                *map(up_to, (8, 10, 16, 32, 64, 100)),
            ),
        ),
        Mistake(
            "stops-at-the-first-worse",
            "You stop at the first number of splits that is no better than the best so far. "
            "A later one can be better again: "
            "just before a further wave begins, the waves are full.",
            fastest(best=stops_at_the_first_worse),
            also=(fastest(best=stops_at_the_first_not_better),),
        ),
        Mistake(
            "no-splits-tried",
            "A division by zero: do you try 0 splits too? Every row needs one at least.",
            fastest(tried=lambda rows, tiles, sms: range(tiles + 1)),
        ),
        Mistake(
            "position-for-number",
            "Your answer is one less than the number of splits asked for. "
            "Position 0 in a list belongs to 1 split.",
            lambda *sizes: splits.choose_num_splits(*sizes) - 1,
        ),
        Mistake(
            "slowest", "You return the number of splits that takes longest.", fastest(best=max)
        ),
        Mistake(
            "time-returned",
            "You return the least time. "
            "The number of splits that takes it is what is asked for.",
            time_returned,
            also=(lambda *sizes: float(time_returned(*sizes)),),
        ),
        Mistake(
            "time-beside-the-number",
            "You return two values, the number of splits and its time. "
            "The number alone is asked for.",
            with_its_time,
            also=(lambda *sizes: with_its_time(*sizes)[::-1],),
        ),
        Mistake(
            "cost-weighs-too-little",
            "Beside the tiles, SPLIT_COST weighs too little in your time. "
            "Both are counted in tiles. Do you turn the tiles into tokens?",
            fastest(tiles=lambda tiles, s: up(TOKENS_OF_A_TILE * tiles, s)),
            also=(fastest(tiles=lambda tiles, s: TOKENS_OF_A_TILE * up(tiles, s)),),
        ),
        Mistake(
            "sizes-exchanged",
            "One of the three sizes stands where another belongs. What is there a block for, "
            "what is it that the splits of a row share, and how many blocks run side by side?",
            timed_with(1, 1, 2),
            also=(
                *(
                    timed_with(*places)
                    for places in ((0, 0, 2), (0, 2, 2), (0, 1, 1), (1, 0, 2))
                ),
                *(in_order(*order) for order in permutations(range(3)) if order != (0, 1, 2)),
            ),
        ),
        outcomes.RETURNS_NOTHING,
        outcomes.RAISES_AN_ERROR,
    ),
    hints=(
        (
            "Write the time as a function of the number of splits first: how many waves, "
            "and how long is each?"
        ),
        "-(-a // b) is a / b rounded up, in whole numbers.",
        (
            "Then try every number from 1 to num_tiles. `min(numbers, key=function)` returns "
            "the first of those for which the function is least."
        ),
    ),
)
