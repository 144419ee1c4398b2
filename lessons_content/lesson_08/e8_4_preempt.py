"""Exercise 8.4: preempt a request.

Which two lists change, and which end of `waiting` is served first?

What does the request have in the pool, and which method of the scheduler takes all of that
away?

Four things: its blocks, its place among those that run, its place among those that wait, and a
number.
"""

import copy

from lessons_content.exercises.kit import exercise
from lessons_content.lesson_08 import scheduling
from lessons_content.lesson_08.scheduling import scenario
from paged_attention.engine.scheduler import Scheduler

SHARED = scenario(
    "A:abcdef+4 B:abcdxyz+4@1", token_budget=16, sharing=True, given_way=((2, "B"), (3, "A"))
)
CASES = [
    scenario("A:1+1 B:1+3", given_way=((1, "B"),)),
    scenario("A:3+3 B:3+3", given_way=((1, "B"),)),
    scenario("A:3+4 B:3+6", given_way=((2, "B"), (3, "B"))),
    scenario("A:3+4 B:3+6", given_way=((2, "B"), (3, "B"), (3, "A"))),
    scenario("A:3+3 B:2+3 C:1+3", given_way=((1, "A"),)),
    scenario("A:3+3 B:2+3 C:1+3", given_way=((1, "B"),)),
    scenario("A:2+3 B:2+3 C:2+3 D:2+2", max_num_seqs=2, given_way=((1, "B"),)),
    scenario("A:2+3 B:2+3 C:2+3 D:2+2", max_num_seqs=2, given_way=((1, "B"), (1, "A"))),
    scenario("C:2+3 A:2+3 B:2+2 D:2+2", max_num_seqs=3, given_way=((1, "B"), (1, "C"))),
    scenario("A:11+2 B:3+2", token_budget=5, given_way=((1, "A"),)),
    scenario("A:3+6 B:3+6", num_blocks=5),
    scenario("A:4+4 B:4+4 C:4+3@1", num_blocks=4),
    SHARED,
    scenario("A:abcd+5 B:abcdx+6 C:uvwx+2", num_blocks=6, token_budget=5, sharing=True),
    scenario("A:7+6 B:9+4 C:2+7@1 D:5+3@2", num_blocks=9, token_budget=5, max_num_seqs=3),
]

EXERCISE = exercise(
    globals(),
    scheduling,
    reference=Scheduler.preempt,
    observe=lambda answer, case: scheduling.run(case, preempt=answer),
)
