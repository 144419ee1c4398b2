"""Exercise 6.8: a bug hunt.

One fault at a time: hunt(bug_hunt) runs small cases first and stops at the first one that goes
wrong. Repair that, run the cell of the kernel again, and hunt again. Do not look for the next
fault before this one is gone.

If there is a report, begin at the line that it names. Ask what that line takes for granted:
that memory is there, that some thread has written it, that an entry belongs to this sequence.

If the numbers are wrong, hunt() says which rows of the output, and which keys were read for
the first of them. Work out by hand which keys that head should read, from the block table that
is shown. If they are the right ones, the fault is in what is done with them.

The parameters' struct gives the sizes of each tensor. Compare each index in the kernel with
them, the largest step first.
"""

from dataclasses import replace

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import exercise, listed
from lessons_content.lesson_06 import batches, hunted_kernel
from lessons_content.lesson_06.hunted_kernel import (
    FailingLaunch,
    HighScore,
    IsGiven,
    LowScores,
    SpacedQueries,
)
from paged_attention.attention.bug_hunt import CASES, HuntCase, expected_output

VERY_MANY_TOKENS = max(CASES, key=lambda case: max(case.context_lens))


# Each fault has its own case in CASES. The case shows it, whether or not the faults of later
# cases are still there. So the first case that fails names the first fault that is left.
#
# What hunt() does not run: another length instead of its long one, so that an array of just
# that size is too small, and faults that a repair can bring in.
LONGER = replace(VERY_MANY_TOKENS, title="11,400 tokens", context_lens=(11_400,))
EMPTY_LARGE_HEAD = HuntCase(
    "no token, two heads of size 256", (0,), num_q_heads=2, num_kv_heads=2, head_size=256
)
LOW_SCORES = LowScores("3 tokens, all scores near -200", (3,))
SPACED = SpacedQueries("two sequences, queries with room between them", (2, 3), num_q_heads=3)
HIGH_SCORE = HighScore("two sequences, in each a score 200 above the others", (3, 3))
FAILING = FailingLaunch("a launch that is made to fail", (2,))
HUNTED = [LONGER if case is VERY_MANY_TOKENS else case for case in CASES]
CHECKED = [*HUNTED, EMPTY_LARGE_HEAD, LOW_SCORES, SPACED, HIGH_SCORE, FAILING, batches.FAR]


def hidden(chance):
    """Batches in which several faults would show; then low scores and many tokens."""

    def drawn(kind, *lengths, **sizes):
        return kind(f"contexts of {listed(lengths)} tokens", lengths, **sizes)

    for number in range(8):
        block_size, num_kv_heads = chance.randint(2, 9), chance.randint(1, 3)
        possible = (0, 1, block_size, *range(2, 4 * block_size))
        lengths = chance.choices(possible, k=1 + number // 3)
        if len(lengths) == 3:
            lengths[1] = 0  # zeros that go to other blocks' rows
        yield drawn(
            HuntCase,
            *lengths,
            num_q_heads=num_kv_heads * chance.randint(1, 4),
            num_kv_heads=num_kv_heads,
            head_size=chance.choice((4, 8, 20)),
            block_size=block_size,
            spare_entries=chance.randint(0, 2),
        )
    yield drawn(LowScores, chance.randint(2, 9), 5)
    yield drawn(HuntCase, chance.randint(280, 400), block_size=16)
    yield drawn(HuntCase, chance.randint(2, 9), head_size=chance.randint(140, 250))
    yield drawn(HuntCase, chance.randint(11_000, 11_400), head_size=1, block_size=16)
    lengths = chance.randint(2, 9), chance.randint(2, 9)
    yield drawn(SpacedQueries, *lengths, num_q_heads=chance.randint(2, 5))
    yield drawn(FailingLaunch, chance.randint(2, 9))
    yield batches.drawn_far(chance)


EXERCISE = exercise(
    globals(),
    hunted_kernel,
    kernels,
    answer_name="bug_hunt",
    reference=expected_output,
    cases=lambda: CHECKED,
    size=lambda case: 1,  # they come as in hunt(), which takes one fault after the other
    # the first case that fails names the fault; later cases show later faults as well
    chancy=lambda case: True,
    is_given=IsGiven(),
    points=3,
    time_limit=30.0,  # the long context takes a second, and more on a busy machine
)
