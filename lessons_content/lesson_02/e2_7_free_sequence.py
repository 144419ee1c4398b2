"""Exercise 2.7: free a sequence.

What did the sequence hold? Blocks, a row of the table, its entry in `self.sequences`. Each
goes back.

Read the blocks before you empty the row.

`table.clear` empties a row on both sides and makes it free.
"""

from lessons_content.lesson_02.managers import ADD, APPEND, FORK, SMALL, exercise

CASES = [
    (SMALL, [(ADD, 0, 0)], [(0,)]),
    (SMALL, [(ADD, 0, 1)], [(0,)]),
    (SMALL, [(ADD, 0, 3)], [(0,)]),
    (SMALL, [(ADD, 0, 6)], [(0,)]),
    (SMALL, [(ADD, 3, 3), (ADD, 1, 2)], [(3,)]),
    (SMALL, [(ADD, 3, 3), (ADD, 1, 2)], [(1,), (3,)]),
    (SMALL, [(ADD, 0, 3), (FORK, 0, 1)], [(0,)]),
    (SMALL, [(ADD, 0, 3), (FORK, 0, 1)], [(1,), (0,)]),
    (SMALL, [], [(0,)]),
    (SMALL, [(ADD, 0, 2)], [(1,), (0,), (0,)]),
    (SMALL, [(ADD, 0, 3), (FORK, 0, 1), (APPEND, 1)], [(0,), (1,)]),
]

EXERCISE = exercise(globals(), answer_name="free_sequence")
