"""The block table of lesson 02: which blocks hold each sequence's tokens."""

import torch

NO_BLOCK = -1  # an entry without a block


class BlockTable:
    """Says which blocks each sequence has, one row per sequence.

    Entry i of a row is the block of the tokens i * block_size and up. After the row's last
    block, the entries are -1.

    `on_device`: int32 (max_num_seqs, max_blocks_per_seq), the table that a kernel reads.
    `cpu`: the same table in the CPU's memory, always equal. The CPU reads this one, so it
        never has to ask the GPU.
    """

    def __init__(self, max_num_seqs: int, max_blocks_per_seq: int, device: str = "cpu"):
        self.cpu = torch.full((max_num_seqs, max_blocks_per_seq), NO_BLOCK, dtype=torch.int32)
        self.on_device = self.cpu.to(device, copy=True)
        self.free_rows = list(range(max_num_seqs))[::-1]

    def write(self, row: int, start: int, block_ids: list[int]) -> None:
        """Writes block ids into a row, from entry `start` on."""
        entries = torch.tensor(block_ids, dtype=torch.int32)
        self.cpu[row, start : start + len(block_ids)] = entries
        self.on_device[row, start : start + len(block_ids)] = entries

    def clear(self, row: int) -> None:
        """Empties a row and makes it free for another sequence."""
        self.cpu[row] = NO_BLOCK
        self.on_device[row] = NO_BLOCK
        self.free_rows.append(row)
