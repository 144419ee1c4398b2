"""The state of all sequences on the device, and the tensors that a recorded step reads."""

import numpy as np
import torch
from torch import Tensor

from paged_attention.engine.fast.graph import launch
from paged_attention.engine.fast.layers import step_kernels
from paged_attention.pool.block_table import NO_BLOCK, BlockTable
from paged_attention.transfer import send, send_into

PADDING = -1  # no row: a place in the batch without a sequence


class SentTable(BlockTable):
    """A block table of which the device's copy is brought up to date once a step.

    Entries after a row's last block may hold anything there.
    """

    def __init__(self, max_num_seqs: int, max_blocks_per_seq: int, device: torch.device):
        super().__init__(max_num_seqs, max_blocks_per_seq, str(device))
        self.entries = self.cpu.numpy()  # the same memory, for the host's small changes
        self.changed: list[int] = []  # places in the flat table

    def write(self, row: int, start: int, block_ids: list[int]) -> None:
        self.entries[row, start : start + len(block_ids)] = block_ids
        first = row * self.entries.shape[1] + start
        self.changed += range(first, first + len(block_ids))

    def clear(self, row: int) -> None:
        self.entries[row] = NO_BLOCK
        self.free_rows.append(row)

    def send(self) -> None:
        """Brings the device's copy up to date."""
        if not self.changed:
            return
        changed = np.array(self.changed)
        numbers = np.stack([changed, self.entries.ravel()[changed]])
        places, blocks = send(numbers, torch.int64, self.on_device.device)
        self.on_device.view(-1).index_copy_(0, places, blocks.int())
        self.changed = []


class StepState:
    """What decode steps read and write, always in the same tensors.

    By a sequence's row of the block table:
    `last_tokens`: int64 (max_num_seqs + 1,), the token that was chosen last.
    `lengths`: int32 (max_num_seqs,), how many of its tokens are in the cache.

    By a sequence's place in the batch:
    `rows`: int32, PADDING where there is no sequence.
    `tokens`, `positions`, `slots`: int64; a slot of -1 is written nowhere.
    `context_lens`: int32; 0 for padding.
    `block_table`: int32 (max_num_seqs, max_blocks_per_seq).
    """

    def __init__(self, table: Tensor, block_size: int, target: str):
        """table: the block table on the device, (max_num_seqs, max_blocks_per_seq)."""
        self.table, self.block_size = table, block_size
        self.kernels = step_kernels(target)

        def numbers(dtype, value=0):
            return torch.full((len(table),), value, dtype=dtype, device=table.device)

        # One more, where padding's tokens go.
        self.last_tokens = torch.zeros(len(table) + 1, dtype=torch.int64, device=table.device)
        self.lengths = numbers(torch.int32)
        self.rows = numbers(torch.int32, PADDING)
        self.tokens, self.positions = numbers(torch.int64), numbers(torch.int64)
        self.slots = numbers(torch.int64, PADDING)
        self.context_lens, self.block_table = numbers(torch.int32), torch.zeros_like(table)

    def set_rows(self, rows: list[int], size: int) -> None:
        """Says which sequences are in the batch. Padding fills it up to `size`."""
        send_into(self.rows[:size], np.array(rows + [PADDING] * (size - len(rows))))

    def advance(self, size: int) -> None:
        """Moves the first `size` places of the batch one token on."""
        launch(
            self.kernels.advance,
            last_tokens=self.last_tokens,
            lengths=self.lengths,
            block_table=self.table,
            rows=self.rows,
            tokens=self.tokens,
            positions=self.positions,
            slots=self.slots,
            context_lens=self.context_lens,
            batch_table=self.block_table,
            num_seqs=size,
            max_blocks_per_seq=self.table.shape[1],
            block_size=self.block_size,
        )

    def fill(self, rows: list[int], tokens: list[int], lengths: list[int], size: int) -> None:
        """Writes a decode step into the tensors that a recorded step reads.

        The first `size` places get new contents. The batch's sequences come first, in their
        order, with their rows of `table`. Then comes padding: token 0, position 0, context
        length 0, and a slot that writes nowhere. The blocks of padding may be anything.

        The tensors stay the ones that they are, since a recorded step knows no others.

        rows: the sequences' rows of `table`; one or more.
        tokens: the token that each sequence feeds.
        lengths: of the sequences, this token counted. It goes to position length - 1.
        size: of the recorded step, len(rows) or more.
        """
        # BEGIN SOLUTION 10.2
        num_seqs = len(rows)
        send_into(self.tokens[:num_seqs], tokens)
        send_into(self.positions[:num_seqs], [length - 1 for length in lengths])
        send_into(self.context_lens[:num_seqs], lengths)
        blocks = self.table[send(rows, torch.int64, self.table.device)]
        self.block_table[:num_seqs] = blocks
        place = self.positions[:num_seqs]
        block = blocks.gather(1, (place // self.block_size)[:, None])[:, 0].long()
        self.slots[:num_seqs] = block * self.block_size + place % self.block_size
        for tensor in (self.tokens, self.positions, self.context_lens):
            tensor[num_seqs:size] = 0
        self.slots[num_seqs:size] = PADDING
        # END SOLUTION

    def remember(self, rows: list[int], lengths: list[int]) -> None:
        """Sets how many tokens of some sequences are in the cache, after a step of chunks."""
        places, numbers = send(np.array([rows, lengths]), torch.int64, self.rows.device)
        self.lengths.index_copy_(0, places, numbers.int())

    def choose(self, rows: Tensor, tokens: Tensor) -> None:
        """Notes the tokens that come next.

        rows: int32 or int64 (num_tokens,), with PADDING. tokens: int64 (num_tokens,). A
            request with a negative one ends now, and its next token is never used.
        """
        places = rows.long() % len(self.last_tokens)  # the last one for padding
        self.last_tokens.index_copy_(0, places, tokens.clamp(min=0))
