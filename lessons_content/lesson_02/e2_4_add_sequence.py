"""Exercise 2.4: add a sequence.

Everything that can fail comes first: the id, the row, the length, the number of free blocks.
Then take.

`check_new` and `blocks_for` raise by themselves. What is left for you to compare is the number
of blocks needed with `self.block_manager.get_num_free_blocks()`.

`start` takes a row, writes the blocks into it and remembers the sequence.
"""

from lessons_content.lesson_02.managers import ADD, FREE, SMALL, exercise, sizes_of

CASES = [
    (SMALL, [], [(0, 0)]),
    (SMALL, [], [(0, 1)]),
    (SMALL, [], [(0, 2)]),
    (SMALL, [], [(0, 3)]),
    (SMALL, [], [(7, 3)]),
    (SMALL, [], [(0, 4), (1, 3)]),
    (SMALL, [(ADD, 0, 1)], [(0, 1)]),
    (SMALL, [(ADD, 0, 5)], [(1, 3)]),
    (SMALL, [(ADD, 0, 5)], [(1, 5), (2, 2)]),
    (SMALL, [(ADD, 0, 3)], [(1, 5), (2, 4)]),
    (SMALL, [], [(0, 7)]),
    (SMALL, [], [(0, 6), (1, 2), (2, 0)]),
    (SMALL, [(ADD, 0, 1), (ADD, 1, 1), (ADD, 2, 1)], [(3, 1)]),
    (SMALL, [(ADD, 0, 3), (ADD, 1, 2), (FREE, 0)], [(2, 4), (0, 1)]),
    (sizes_of(8, 3, 2, 8), [], [(5, 24)]),
    (sizes_of(8, 16, 4, 4), [], [(0, 64), (1, 33), (2, 17), (2, 16)]),
    (SMALL, [], [(0, -1)]),
]

EXERCISE = exercise(globals(), answer_name="add_sequence")
