"""Exercise 8.3: schedule the next step.

Two halves: those that run, in the order of `running`; then those that wait, in the order of
`waiting`. One budget goes through both.

For one that runs: as long as `make_room` says False and it still runs itself, the last of
`running` is preempted. It may be the one that asked.

`preempt` changes `running` while you go through it. What do you walk over, and how do you
notice that a request is no longer there?

For one that waits: look at `waiting[0]`, start it, make room. Only when that worked does it
leave the queue; otherwise it is stopped, and so is the search.
"""

from lessons_content.exercises.kit import exercise
from lessons_content.lesson_08 import scheduling
from lessons_content.lesson_08.scheduling import scenario
from paged_attention.engine.scheduler import Scheduler

CASES = [
    scenario("A:1+1"),
    scenario("A:3+2"),
    scenario("A:5+2", token_budget=4),
    scenario("A:1+1 B:1+1"),
    scenario("A:3+3 B:3+3", token_budget=4),
    scenario("A:2+4 B:6+2@1", token_budget=4),
    scenario("A:1+2 B:2+2 C:1+1", max_num_seqs=2),
    scenario("A:1+3 B:1+3 C:1+3@1", token_budget=2),
    scenario("A:abcdef+2 B:abcdxyz+2@1", token_budget=16, sharing=True),
    scenario("A:3+6 B:3+6", num_blocks=5),
    scenario("A:4+4 B:4+4", num_blocks=4),
    scenario("A:2+3 B:2+3 C:2+3", num_blocks=3),
    scenario("A:4+4 B:8+2 C:1+2", num_blocks=6, token_budget=16),
    # A needs the blocks of both others
    scenario(
        "A:1+6 B:1+4 C:1+4", num_blocks=3, more_tokens=((1, "A", 3), (1, "B", 1), (1, "C", 1))
    ),
    scenario("A:2+4 B:1+4 C:3+3", num_blocks=4, budgets=((1, 3),)),
    scenario("A:3+5 B:2+5@1 C:3+4@1", num_blocks=5, token_budget=3),
    scenario("A:4+6 B:2+2 C:3+3@2", num_blocks=5, given_way=((1, "A"),)),
    scenario("A:7+6 B:9+4 C:2+7@1 D:5+3@2", num_blocks=9, token_budget=5, max_num_seqs=3),
    scenario("A:1+4 B:1+4 C:6+2", token_budget=5, budgets=((1, 1), (3, 2), (5, 8))),
    scenario("A:abcdef+4 B:abcdxyz+4 C:abcdef+3@2", token_budget=5, sharing=True),
    scenario("A:20+3 B:30+3 C:3+9@3", num_blocks=14, block_size=3, token_budget=11),
]

EXERCISE = exercise(
    globals(),
    scheduling,
    reference=Scheduler.schedule,
    observe=lambda answer, case: scheduling.run(case, schedule=answer),
    points=3,
)
