"""The kernel that moves a batch one token on, against sequences that are lists of tokens."""

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from examples import few
from lessons_lib import build_cuda
from lessons_lib.cuda.inline import read_kernel

TARGETS = ["fast", "checked"] + ["gpu"] * torch.cuda.is_available()
MAX_NUM_SEQS, PADDING = 5, -1


@functools.cache
def kernel(target):
    return build_cuda(read_kernel("engine/advance.cu"), target=target, name="advance").advance


def state(target, lengths, table, size):
    """The kernel's tensors, with a number in each place that it has to write."""
    device = "cuda" if target == "gpu" else "cpu"

    def batch(dtype, *more):
        return torch.full((size, *more), 77, dtype=dtype, device=device)

    return dict(
        last_tokens=torch.zeros(len(lengths), dtype=torch.int64, device=device),
        lengths=torch.tensor(lengths, dtype=torch.int32, device=device),
        block_table=table.to(device, torch.int32),
        rows=batch(torch.int32),
        tokens=batch(torch.int64),
        positions=batch(torch.int64),
        slots=batch(torch.int64),
        context_lens=batch(torch.int32),
        batch_table=batch(torch.int32, table.shape[1]),
    )


@st.composite
def batches(draw):
    """The rows of some steps, with padding anywhere."""
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(st.permutations(range(MAX_NUM_SEQS)))[: draw(st.integers(0, 4))]
        rows += [PADDING] * draw(st.integers(not rows, 2))
        steps.append(draw(st.permutations(rows)))
    return steps


@pytest.mark.parametrize("target", TARGETS)
@few(15, drawn_anew=30)
@given(
    batches=batches(),
    block_size=st.integers(1, 7),
    lengths=st.lists(st.integers(0, 150), min_size=MAX_NUM_SEQS, max_size=MAX_NUM_SEQS),
    first_block=st.sampled_from([0, 2**30]),  # with blocks of 2, slots pass 2^31
)
def test_each_sequence_of_a_batch_feeds_its_last_token(
    target, batches, block_size, lengths, first_block
):
    width = max(lengths) // block_size + len(batches) + 1
    table = first_block + torch.randperm(MAX_NUM_SEQS * width).view(MAX_NUM_SEQS, width)
    tensors = state(target, lengths, table, max(map(len, batches)))
    for step, rows in enumerate(batches):
        tensors["last_tokens"][:] = 10 * step + torch.arange(MAX_NUM_SEQS)
        tensors["rows"][: len(rows)] = torch.tensor(rows, dtype=torch.int32)
        before = {name: tensor.clone() for name, tensor in tensors.items()}
        kernel(target)(
            **tensors, num_seqs=len(rows), max_blocks_per_seq=width, block_size=block_size
        )
        for place, row in enumerate(rows):
            names = ("tokens", "positions", "context_lens", "slots")
            got = [tensors[name][place].item() for name in names]
            blocks = tensors["batch_table"][place].tolist()
            if row == PADDING:
                assert got == [0, 0, 0, -1]
                assert blocks == before["batch_table"][place].tolist()
                continue
            slots = [
                block * block_size + offset
                for block in table[row].tolist()
                for offset in range(block_size)
            ]
            context_len = lengths[row] + 1
            assert got == [10 * step + row, lengths[row], context_len, slots[lengths[row]]]
            num_blocks = -(-context_len // block_size)
            assert blocks[:num_blocks] == table[row].tolist()[:num_blocks]
            lengths[row] += 1
        assert tensors["lengths"].tolist() == lengths
        for name in ("last_tokens", "rows", "block_table"):
            assert torch.equal(tensors[name], before[name])
