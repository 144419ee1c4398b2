"""`graph_sizes`: which steps are recorded. `fill`: what is written into their tensors."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lessons_content.lesson_10 import step_tensors
from lessons_content.lesson_10.step_tensors import BareState, RecordedStep
from paged_attention.engine.fast.graph_sizes import graph_sizes
from paged_attention.engine.fast.state import StepState

NUM_ROWS, WIDTH = 6, 5
NUMBERS = ("tokens", "positions", "context_lens", "slots")


@given(most=st.integers(1, 600))
def test_sizes_are_1_2_4_multiples_of_8_and_the_largest(most):
    expected = {1, 2, 4, most, *range(8, most + 1, 8)}
    assert graph_sizes(most) == sorted(size for size in expected if size <= most)


@st.composite
def batches(draw):
    """A block size, and some batches for it: (rows, tokens, lengths, size)."""
    block_size = draw(st.integers(1, 5))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, NUM_ROWS))
        rows = draw(st.permutations(range(NUM_ROWS)))[: draw(st.integers(1, size))]
        lengths = [draw(st.integers(1, WIDTH * block_size)) for _ in rows]
        tokens = [draw(st.integers(0, 99)) for _ in rows]
        found.append((rows, tokens, lengths, size))
    return block_size, found


@settings(max_examples=60)
@given(given=batches(), seed=st.integers(0, 9))
def test_a_recorded_step_sees_the_batch_and_padding_and_no_more_is_written(given, seed):
    block_size, found = given
    shuffled = torch.randperm(NUM_ROWS * WIDTH, generator=torch.Generator().manual_seed(seed))
    state = BareState(shuffled.int().view(NUM_ROWS, WIDTH), block_size)
    step = RecordedStep(state)
    others = step.others()
    for rows, tokens, lengths, size in found:
        before = step.sees()
        state.fill(rows, tokens, lengths, size)
        seen = step.sees()
        for place in range(NUM_ROWS):
            now = tuple(int(seen[name][place]) for name in NUMBERS)
            if place < len(rows):
                length, blocks = lengths[place], state.table[rows[place]].tolist()
                block, offset = divmod(length - 1, block_size)
                slot = blocks[block] * block_size + offset
                assert now == (tokens[place], length - 1, length, slot)
                used = -(-length // block_size)
                assert seen["block_table"][place, :used].tolist() == blocks[:used]
            elif place < size:
                assert now == (0, 0, 0, -1)
            else:
                assert now == tuple(int(before[name][place]) for name in NUMBERS)
                assert seen["block_table"][place].equal(before["block_table"][place])
        assert step.replaced("") is None and step.others() == others


def test_the_state_of_the_exercise_has_the_tensors_of_the_engines():
    table = torch.zeros(3, 2, dtype=torch.int32)
    ours, bare = vars(StepState(table, 4, "fast")), vars(BareState(table, 4))
    assert set(ours) - set(bare) == {"kernels"} and set(bare) < set(ours)
    for name in (*step_tensors.READ, *step_tensors.OTHERS):
        assert (ours[name].shape, ours[name].dtype) == (bare[name].shape, bare[name].dtype)
