"""Exercise 9.6: which item runs where, and when it begins."""

from lessons_content.exercises import outcomes
from lessons_content.exercises.exercise import exercise
from lessons_content.exercises.naming_words import counted
from paged_attention.prefill.tile_counts import run_items

# The times of the items, and the slots: none, more slots than items, one slot, equally long
# items, and several slots that are free at the same time, which did not begin in their order.
SIZES = """
    in 1, in 3, 1 in 1, 2 in 1, 3 in 2, 1 1 in 1, 1 2 in 1, 2 1 in 1, 1 1 in 2, 1 2 in 2,
    2 1 in 3, 2 2 in 4, 1 1 1 in 2, 2 1 1 in 2, 1 2 3 in 1, 3 1 2 in 2, 1 3 2 in 2, 2 2 3 in 2,
    1 1 1 1 in 2, 5 1 1 1 in 2, 1 1 1 9 in 3, 1 3 2 4 5 in 2, 2 3 1 1 2 in 3, 3 5 5 2 5 3 in 3,
    1 2 3 4 5 6 in 2, 6 5 4 3 2 1 in 2, 4 4 4 1 1 1 9 in 3, 2 7 2 7 2 7 2 in 4,
    1 1 1 1 1 1 1 1 in 3, 5 3 8 8 1 2 2 5 9 3 in 4, 16 2 9 2 30 2 9 16 1 1 1 40 in 5,
    10 20 10 in 12, 12 100 7 7 64 64 3 50 12 12 100 8 8 31 1 1 90 in 6
"""
CASES = [
    ([int(time) for time in times.split()], int(num_slots), longest_first)
    for times, num_slots in (case.split("in ") for case in SIZES.split(","))
    for longest_first in (False, True)
]


def hidden(chance):
    """Equal lengths and different ones; one slot, a few, and more than there are items."""
    for number in range(20):
        longest = (3, 6, 20, 100)[number // 5]
        times = [chance.randint(1, longest) for _ in range(chance.randint(3, 6 + 2 * number))]
        num_slots = (1, 2, 3, chance.randint(3, 9), len(times) + 2)[number % 5]
        yield times, num_slots, number % 2 == 0


def observe(answer, case):
    times, num_slots, longest_first = case
    given = {"times": times, "num_slots": num_slots, "longest_first": longest_first}
    return outcomes.called(answer, list, tuple, **given)


def show(ours, theirs):
    """Short lists whole, and of longer ones the first place where they differ."""
    if not isinstance(theirs, list) or len(ours) <= 6:
        return outcomes.show(ours, theirs)
    if len(ours) != len(theirs):
        return f"a list of {len(ours)}", f"a list of {len(theirs)}: {theirs}"
    place = next((place for place in range(len(ours)) if ours[place] != theirs[place]), 0)
    after = f"after {counted(place, 'item')}, "
    return f"{after}{ours[place]!r}", f"{after}{theirs[place]!r}"


EXERCISE = exercise(
    globals(),
    outcomes,
    title="the order of work",
    answer_name="run_items",
    size=lambda case: (len(case[0]), sum(case[0]), case[1], int(case[2])),
    describe=lambda case: (
        f"times = {case[0]}, num_slots = {case[1]}, longest_first = {case[2]}"
    ),
    hints="""
        What do you have to know about a slot, so that the next item can be placed?

        Keep a list with the time from which each slot is free. At first all these times are 0.

        The next item goes to the slot with the smallest time. `times.index(x)` gives the first
        place of x in a list, and so the smallest number. Then the slot is free later: by how
        much?

        For longest_first, sort the numbers of the items, not their times:
        sorted(range(len(times)), key=...). Python's sort keeps the order of equal ones.
    """,
)
