"""Exercise 8.4: a request gives its blocks back."""

import copy
from collections import deque

import torch

from lessons_exercises.lesson_08 import scheduling
from lessons_exercises.lesson_08.scheduling import Scenario
from lessons_exercises.mistakes import Bank
from lessons_lib.checks import Exercise
from paged_attention.engine.request import Request
from paged_attention.engine.scheduler import Scheduler

FOUR = (("A", 2, 3, 0), ("B", 2, 3, 0), ("C", 2, 3, 0), ("D", 2, 2, 0))
CASES = [
    Scenario((("A", 1, 1, 0), ("B", 1, 3, 0)), given_way=((1, "B"),)),
    Scenario((("A", 3, 3, 0), ("B", 3, 3, 0)), given_way=((1, "B"),)),
    Scenario((("A", 3, 4, 0), ("B", 3, 6, 0)), given_way=((2, "B"), (3, "B"))),
    Scenario((("A", 3, 4, 0), ("B", 3, 6, 0)), given_way=((2, "B"), (3, "B"), (3, "A"))),
    Scenario((("A", 3, 3, 0), ("B", 2, 3, 0), ("C", 1, 3, 0)), given_way=((1, "A"),)),
    Scenario((("A", 3, 3, 0), ("B", 2, 3, 0), ("C", 1, 3, 0)), given_way=((1, "B"),)),
    Scenario(FOUR, max_num_seqs=2, given_way=((1, "B"),)),
    Scenario(FOUR, max_num_seqs=2, given_way=((1, "B"), (1, "A"))),
    Scenario(
        (("C", 2, 3, 0), ("A", 2, 3, 0), ("B", 2, 2, 0), ("D", 2, 2, 0)),
        max_num_seqs=3,
        given_way=((1, "B"), (1, "C")),
    ),
    Scenario((("A", 11, 2, 0), ("B", 3, 2, 0)), token_budget=5, given_way=((1, "A"),)),
    Scenario((("A", 3, 6, 0), ("B", 3, 6, 0)), num_blocks=5),
    Scenario((("A", 4, 4, 0), ("B", 4, 4, 0), ("C", 4, 3, 1)), num_blocks=4),
    Scenario(
        (("A", "abcdef", 4, 0), ("B", "abcdxyz", 4, 1)),
        sharing=True,
        token_budget=16,
        given_way=((2, "B"), (3, "A")),
    ),
    Scenario(
        (("A", "abcd", 5, 0), ("B", "abcdx", 6, 0), ("C", "uvwx", 2, 0)),
        num_blocks=6,
        token_budget=5,
        sharing=True,
    ),
    Scenario(
        (("A", 7, 6, 0), ("B", 9, 4, 0), ("C", 2, 7, 1), ("D", 5, 3, 2)),
        num_blocks=9,
        token_budget=5,
        max_num_seqs=3,
    ),
]

EXERCISE = Exercise(
    id="8.4",
    title="preempt a request",
    answer_name="preempt",
    reference=Scheduler.preempt,
    cases=lambda: CASES,
    size=scheduling.size,
    hidden=scheduling.hidden,
    observe=lambda answer, scenario: scheduling.run(scenario, preempt=answer),
    describe=scheduling.describe,
    show=scheduling.show,
    mistakes=Bank("8.4", "preempt", __file__, globals()),
    hints=(
        "Which two lists change, and which end of `waiting` is served first?",
        (
            "What does the request have in the pool, "
            "and which method of the scheduler takes all of that away?"
        ),
        (
            "Four things: its blocks, its place among those that run, "
            "its place among those that wait, and a number."
        ),
    ),
)
