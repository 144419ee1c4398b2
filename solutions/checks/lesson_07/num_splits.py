"""Exercise 7.6: in how many splits a batch's contexts are best cut."""

import math

from lessons_lib import splits
from lessons_lib.checks import Exercise, Mistake, Text
from lessons_lib.splits import SPLIT_COST
from solutions.checks.words import counted


def up(a, b):
    return -(-a // b)


def fastest(waves=lambda rows, s, sms: up(rows * s, sms), tiles=up,
            time=lambda waves, tiles, s: waves * (tiles + SPLIT_COST),
            tried=lambda rows, tiles, sms: range(1, tiles + 1), best=min):
    """choose_num_splits(), with some of its parts replaced."""
    def wrong(num_rows, num_tiles, num_multiprocessors):
        def key(s):
            return time(waves(num_rows, s, num_multiprocessors), tiles(num_tiles, s), s)
        return best(tried(num_rows, num_tiles, num_multiprocessors), key=key)
    return wrong


def last_of_equals(numbers, key):
    return min(reversed(numbers), key=key)


def time_returned(num_rows, num_tiles, num_multiprocessors):
    s = splits.choose_num_splits(num_rows, num_tiles, num_multiprocessors)
    return up(num_rows * s, num_multiprocessors) * (up(num_tiles, s) + SPLIT_COST)


def fills_the_card_once(num_rows, num_tiles, num_multiprocessors):
    return min(num_tiles, max(1, num_multiprocessors // num_rows))


def fills_the_card_at_least_once(num_rows, num_tiles, num_multiprocessors):
    return min(num_tiles, up(num_multiprocessors, num_rows))


def powers_of_two(rows, tiles, sms):
    return [2**i for i in range(tiles.bit_length()) if 2**i <= tiles]


# (rows, tiles, multiprocessors), ending with real sizes.
CASES = [
    (1, 1, 1), (1, 1, 4), (1, 2, 4), (2, 9, 4), (1, 12, 4), (4, 16, 4), (5, 12, 4), (3, 20, 4), (1, 30, 10), (5, 30, 8),
    (9, 40, 8), (7, 33, 8), (3, 100, 10), (6, 100, 16), (20, 100, 16), (1, 300, 132), (8, 64, 132), (8, 2048, 132),
    (40, 256, 132), (100, 512, 132), (133, 128, 132), (512, 500, 132), (12, 4096, 108), (1, 5000, 132), (65, 700, 144),
]


def observe(answer, case):
    result = answer(*case)
    return result if type(result) is int else Text(f"{result!r}, which is not an int")


def describe(case):
    rows, tiles, multiprocessors = case
    return f"{counted(rows, 'row')} of {counted(tiles, 'tile')}, {counted(multiprocessors, 'multiprocessor')}"


EXERCISE = Exercise(
    id="7.6",
    title="how many splits",
    answer_name="choose_num_splits",
    reference=splits.choose_num_splits,
    cases=lambda: CASES,
    observe=observe,
    describe=describe,
    mistakes=(
        Mistake("last-of-equals",
                "Several numbers of splits take the same time, and yours is not the least of them. More splits than needed "
                "mean more parts to write and to combine.",
                fastest(best=last_of_equals)),
        Mistake("cost-left-out",
                "You split too much: SPLIT_COST does not weigh in your time, or counts once. Every wave pays it, since each "
                "of its blocks does, however few tiles it has.",
                fastest(time=lambda waves, tiles, s: waves * tiles),
                also=(fastest(time=lambda waves, tiles, s: waves * tiles + SPLIT_COST),)),
        Mistake("cost-for-each-split",
                "Your time has SPLIT_COST once for each split. The blocks of a wave run side by side, and so they pay it "
                "side by side.",
                fastest(time=lambda waves, tiles, s: waves * tiles + SPLIT_COST * s),
                also=(fastest(time=lambda waves, tiles, s: waves * (tiles + SPLIT_COST * s)),)),
        Mistake("waves-not-rounded-up",
                "Your waves are not rounded up. A wave in which few blocks run takes as long as a full one.",
                fastest(waves=lambda rows, s, sms: rows * s / sms),
                also=(fastest(waves=lambda rows, s, sms: max(1, rows * s / sms)),
                      fastest(waves=lambda rows, s, sms: rows * s // sms),
                      fastest(waves=lambda rows, s, sms: max(1, rows * s // sms)))),
        Mistake("one-wave-too-many",
                "You count one wave more than there are where the blocks fill the last one exactly.",
                fastest(waves=lambda rows, s, sms: rows * s // sms + 1)),
        Mistake("tiles-not-rounded-up",
                "Where a context does not divide evenly, the largest split has a tile more than the others, and a wave "
                "waits for it.",
                fastest(tiles=lambda tiles, s: tiles / s),
                also=(fastest(tiles=lambda tiles, s: tiles // s), fastest(tiles=lambda tiles, s: tiles // s + 1))),
        Mistake("rows-left-out",
                "You count the blocks of one row. All rows share the multiprocessors.",
                fastest(waves=lambda rows, s, sms: up(s, sms))),
        Mistake("fills-the-card-once",
                "You take as many splits as fill the multiprocessors once. When that leaves some of them idle, two or three "
                "full waves can be quicker; and a short context is not worth that many splits.",
                fills_the_card_once, also=(fills_the_card_at_least_once,)),
        Mistake("not-all-tried",
                "The best number is not among those that you try. A context of num_tiles tiles can be cut into any number "
                "of splits from 1 to num_tiles.",
                fastest(tried=lambda rows, tiles, sms: range(1, max(2, tiles))),
                also=(fastest(tried=lambda rows, tiles, sms: range(1, tiles)),
                      fastest(tried=lambda rows, tiles, sms: range(2, tiles + 1) if tiles > 1 else [1]),
                      fastest(tried=powers_of_two))),
        Mistake("slowest",
                "You return the number of splits that takes longest.",
                fastest(best=max)),
        Mistake("time-returned",
                "You return the least time. The number of splits that takes it is what is asked for.",
                time_returned),
    ),
    hints=(
        "Write the time as a function of the number of splits first: how many waves, and how long is each?",
        "-(-a // b) is a / b rounded up, in whole numbers.",
        "Then try every number from 1 to num_tiles. `min(numbers, key=function)` returns the first of those for which the "
        "function is least.",
    ),
)
