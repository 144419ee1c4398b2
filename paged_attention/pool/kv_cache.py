"""The manager of lesson 02: a KV pool, a block table, and the sequences that use them."""

import operator
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from paged_attention.pool.block_manager import OutOfBlocksError, PythonBlockManager
from paged_attention.pool.block_table import BlockTable
from paged_attention.validate import check_positive, check_scheduled


class DuplicateSequenceError(ValueError):
    """A sequence with that id exists already."""


class UnknownSequenceError(LookupError):
    """There is no sequence with that id."""


class SequenceTooLongError(ValueError):
    """The sequence needs more blocks than a row of the block table has entries."""


class OutOfRowsError(MemoryError):
    """Every row of the block table belongs to a sequence."""


@dataclass
class Sequence:
    """A sequence's row in the block table, and its length in tokens."""

    row: int
    length: int


class Bookkeeping:
    """The KV pool of a model, a block table with a row for each sequence, and the sequences.

    `kv_cache`: (num_layers, 2, num_blocks, block_size, num_kv_heads, head_size). The two
        caches of a layer are `k_cache, v_cache = kv_cache[layer]`.
    `table`: the BlockTable.
    `block_table`: its tensor on `device`, int32 (max_num_seqs, max_blocks_per_seq).
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        max_num_seqs: int,
        max_blocks_per_seq: int,
        num_layers: int = 1,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        block_manager=PythonBlockManager,
    ):
        """Makes an empty pool and an empty block table.

        block_manager: lesson 01's class, in C++ or in Python.
        Raises ValueError for a size below 1.
        """
        check_positive(
            num_blocks=num_blocks,
            block_size=block_size,
            num_kv_heads=num_kv_heads,
            head_size=head_size,
            max_num_seqs=max_num_seqs,
            max_blocks_per_seq=max_blocks_per_seq,
            num_layers=num_layers,
        )
        self.block_size, self.max_blocks_per_seq = block_size, max_blocks_per_seq
        self.block_manager = block_manager(num_blocks)
        shape = (num_layers, 2, num_blocks, block_size, num_kv_heads, head_size)
        self.kv_cache = torch.zeros(shape, dtype=dtype, device=device)
        self.table = BlockTable(max_num_seqs, max_blocks_per_seq, device)
        self.block_table = self.table.on_device
        self.sequences: dict[int, Sequence] = {}

    def get_block_table_for_seq(self, seq_id: int) -> Tensor:
        """Returns the sequence's row of the table on the device.

        It is int32 (max_blocks_per_seq,), with -1 after the sequence's last block.
        """
        return self.block_table[self.get(seq_id).row]

    def get(self, seq_id: int) -> Sequence:
        """Returns the sequence with this id. Raises UnknownSequenceError if there is none."""
        if seq_id not in self.sequences:
            raise UnknownSequenceError(
                f"there is no sequence {seq_id}; the sequences are {list(self.sequences)}"
            )
        return self.sequences[seq_id]

    def blocks_of(self, seq_id: int) -> list[int]:
        """Returns the sequence's block ids, in the order of its tokens."""
        num_blocks = self.blocks_for(self.get(seq_id).length)
        return self.table.cpu.numpy()[self.get(seq_id).row, :num_blocks].tolist()

    def blocks_for(self, num_tokens: int) -> int:
        """Says how many blocks num_tokens tokens need.

        Raises ValueError for a negative num_tokens.
        Raises SequenceTooLongError when a row has fewer entries.
        """
        if operator.index(num_tokens) < 0:
            raise ValueError(f"num_tokens must be 0 or more, not {num_tokens}")
        num_needed = -(-num_tokens // self.block_size)
        if num_needed > self.max_blocks_per_seq:
            raise SequenceTooLongError(
                f"{num_tokens} tokens need {num_needed} blocks of {self.block_size}, "
                f"and a row of the block table has {self.max_blocks_per_seq} entries"
            )
        return num_needed

    def check_new(self, seq_id: int) -> None:
        """Checks that a new sequence with this id can start.

        Raises DuplicateSequenceError when the id is taken.
        Raises OutOfRowsError when no row is free.
        """
        if seq_id in self.sequences:
            raise DuplicateSequenceError(f"sequence {seq_id} exists already")
        if not self.table.free_rows:
            raise OutOfRowsError(
                f"all {len(self.block_table)} rows of the block table are in use"
            )

    def start(self, seq_id: int, length: int, blocks: list[int]) -> None:
        """Gives a new sequence a free row and writes its blocks there."""
        self.sequences[seq_id] = Sequence(self.table.free_rows.pop(), length)
        self.table.write(self.sequences[seq_id].row, 0, blocks)


class PagedAttentionManager(Bookkeeping):
    """Starts, grows, forks and ends sequences. A call that raises an error changes nothing."""

    def add_sequence(self, seq_id: int, num_tokens: int) -> None:
        """Starts a sequence with room for the num_tokens tokens of its prompt.

        If it raises an error, nothing has changed.

        num_tokens: 0 or more.
        Raises ValueError for a negative num_tokens.
        Raises DuplicateSequenceError if seq_id is taken.
        Raises OutOfRowsError if no row of the block table is free.
        Raises SequenceTooLongError if the prompt needs more blocks than a row has entries.
        Raises OutOfBlocksError if too few blocks are free.
        """
        # BEGIN SOLUTION 2.4
        self.check_new(seq_id)
        num_needed = self.blocks_for(num_tokens)
        if num_needed > self.block_manager.get_num_free_blocks():
            raise OutOfBlocksError(
                f"sequence {seq_id} needs {num_needed} blocks, "
                f"and {self.block_manager.get_num_free_blocks()} are free"
            )
        self.start(
            seq_id, num_tokens, [self.block_manager.allocate() for _ in range(num_needed)]
        )
        # END SOLUTION

    def append_token(self, seq_id: int) -> int:
        """Makes room for one more token and returns its slot, block_id * block_size + offset.

        The token goes into the sequence's last block. If that is full, or there is none, the
        sequence gets a new block. If it has room but is shared, the sequence gets a copy of it
        first, with the keys and values of every layer. If an error is raised, nothing has
        changed.

        Raises UnknownSequenceError if there is no such sequence.
        Raises SequenceTooLongError if the sequence's row has no entry left.
        Raises OutOfBlocksError if a block is needed and none is free.
        """
        # BEGIN SOLUTION 2.5
        sequence = self.get(seq_id)
        self.blocks_for(sequence.length + 1)  # raises when the row is full
        index, offset = divmod(sequence.length, self.block_size)
        if offset == 0:
            self.table.write(sequence.row, index, [self.block_manager.allocate()])
        elif self.block_manager.get_ref_count(block_id := self.blocks_of(seq_id)[-1]) > 1:
            copy_id = self.block_manager.allocate()
            self.kv_cache[:, :, copy_id] = self.kv_cache[:, :, block_id]
            self.block_manager.free(block_id)
            self.table.write(sequence.row, index, [copy_id])
        sequence.length += 1
        return self.blocks_of(seq_id)[-1] * self.block_size + offset
        # END SOLUTION

    def fork_sequence(self, seq_id: int, child_id: int) -> None:
        """Starts sequence child_id with the tokens that sequence seq_id has so far.

        No key and no value is copied. If it raises an error, nothing has changed.

        Raises UnknownSequenceError if there is no sequence seq_id.
        Raises DuplicateSequenceError if child_id is taken.
        Raises OutOfRowsError if no row of the block table is free.
        """
        # BEGIN SOLUTION 2.6
        blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
        self.check_new(child_id)
        for block_id in blocks:
            self.block_manager.increase_ref_count(block_id)
        self.start(child_id, length, blocks)
        # END SOLUTION

    def free_sequence(self, seq_id: int) -> None:
        """Ends a sequence.

        Each of its blocks has one user less. Its row is all -1, and free for another sequence.

        Raises UnknownSequenceError if there is no such sequence.
        """
        # BEGIN SOLUTION 2.7
        for block_id in self.blocks_of(seq_id):
            self.block_manager.free(block_id)
        self.table.clear(self.sequences.pop(seq_id).row)
        # END SOLUTION

    def append_tokens(self, scheduled: list[tuple[int, int]]) -> None:
        """Makes room for the new tokens of a whole batch, or for none of them.

        If it raises an error, nothing has changed for any of the sequences.

        scheduled: (seq_id, num_tokens) for each sequence, with num_tokens 1 or more.
        Raises ValueError for an empty batch, a sequence named twice or num_tokens below 1.
        Raises the errors of append_token().
        """
        check_scheduled(scheduled)
        # BEGIN SOLUTION 5.2
        num_needed, writers = 0, Counter()
        for seq_id, num_tokens in scheduled:
            length = self.get(seq_id).length
            num_needed += self.blocks_for(length + num_tokens) - self.blocks_for(length)
            if length % self.block_size != 0:
                writers[self.blocks_of(seq_id)[-1]] += 1
        # Each sequence that writes into a shared block takes a copy of it. If all its
        # users write, the last one keeps the block itself.
        num_needed += sum(
            min(count, self.block_manager.get_ref_count(block_id) - 1)
            for block_id, count in writers.items()
        )
        if num_needed > self.block_manager.get_num_free_blocks():
            raise OutOfBlocksError(
                f"the batch needs {num_needed} blocks, "
                f"and {self.block_manager.get_num_free_blocks()} are free"
            )
        for seq_id, num_tokens in scheduled:
            for _ in range(num_tokens):
                self.append_token(seq_id)
        # END SOLUTION
