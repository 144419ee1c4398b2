"""A batch's metadata, from plain lists."""

import torch

from paged_attention.metadata import BatchMetadata


def batch_metadata(query_lens: list[int], kv_lens: list[int], table: list[list[int]]):
    """Metadata of sequences with these new tokens, keys and blocks. All slots are 0."""
    return BatchMetadata(
        torch.tensor([0, *query_lens]).cumsum(0).int(),
        torch.tensor(kv_lens, dtype=torch.int32),
        torch.tensor(table, dtype=torch.int32),
        torch.zeros(sum(query_lens), dtype=torch.int64),
    )
