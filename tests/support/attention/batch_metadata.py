"""A batch's metadata, from its lengths and its table."""

from itertools import accumulate

import torch

from paged_attention.attention.metadata import BatchMetadata


def metadata_of(lens, table, device="cpu") -> BatchMetadata:
    """lens: each sequence's new tokens, and its keys. table: its blocks. All slots are 0."""
    starts = [0, *accumulate(q_len for q_len, _ in lens)]
    return BatchMetadata(
        cu_seqlens_q=torch.tensor(starts, dtype=torch.int32, device=device),
        seq_lens_kv=torch.tensor([n for _, n in lens], dtype=torch.int32, device=device),
        block_table=torch.as_tensor(table, dtype=torch.int32, device=device),
        slot_mapping=torch.zeros(starts[-1], dtype=torch.int64, device=device),
    )
