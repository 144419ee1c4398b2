"""Exercise 2.6: fork a sequence and its row.

What does exercise 1.5 do with the block manager? And what is new here: the table's row, and
the length.

Two lookups can fail: the parent's id and the child's, in either order. Both come before the
first count is increased.

`start` writes a list of blocks into a free row.
"""

from lessons_content.lesson_02.managers import ADD, FREE, ROOMY, SMALL, exercise

CASES = [
    (SMALL, [(ADD, 0, 0)], [(0, 1)]),
    (SMALL, [(ADD, 0, 1)], [(0, 1)]),
    (SMALL, [(ADD, 0, 2)], [(0, 1)]),
    (SMALL, [(ADD, 0, 3)], [(0, 1)]),
    (SMALL, [(ADD, 4, 5)], [(4, 9), (9, 1)]),
    (SMALL, [], [(0, 1)]),
    (SMALL, [(ADD, 0, 3), (ADD, 1, 3)], [(1, 2)]),
    (SMALL, [(ADD, 0, 3)], [(0, 0)]),
    (SMALL, [(ADD, 0, 1), (ADD, 1, 2), (FREE, 0)], [(1, 2)]),
    (SMALL, [(ADD, 0, 3), (ADD, 1, 1)], [(0, 1), (1, 0)]),
    (SMALL, [(ADD, 0, 3), (ADD, 1, 1), (ADD, 2, 1)], [(0, 3)]),
    (SMALL, [(ADD, 0, 6), (ADD, 1, 2)], [(0, 2), (0, 3)]),
    (ROOMY, [(ADD, 0, 5)], [(0, 1), (1, 2)]),
    (SMALL, [(ADD, 0, 6), (FREE, 0), (ADD, 1, 5)], [(1, 0), (0, 2)]),
]

EXERCISE = exercise(globals(), answer_name="fork_sequence")
