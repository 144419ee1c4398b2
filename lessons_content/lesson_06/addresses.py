"""A learner's address of a token, as a function of tensors, for 6.2."""

from dataclasses import dataclass

import torch

from lessons_content.exercises import kernels


@dataclass(frozen=True)
class Sizes:
    num_seqs: int
    max_blocks_per_seq: int
    block_size: int
    num_q_heads: int
    num_kv_heads: int
    head_size: int
    num_blocks: int


def reference(table, sizes):
    """cache_offset() for every sequence, token and head: (num_seqs, tokens, num_kv_heads)."""
    token = torch.arange(sizes.max_blocks_per_seq * sizes.block_size)
    blocks = table.long()[:, token // sizes.block_size]
    slots = blocks * sizes.block_size + token % sizes.block_size
    head = torch.arange(sizes.num_kv_heads)
    return (slots[..., None] * sizes.num_kv_heads + head) * sizes.head_size


def prepare(answer):
    library = kernels.build(answer, "paged_params", "address_check.cu")

    def addresses(table, sizes):
        num_tokens = sizes.max_blocks_per_seq * sizes.block_size
        out = torch.empty(sizes.num_seqs, num_tokens, sizes.num_kv_heads, dtype=torch.int64)
        fields = vars(sizes) | {"out": out, "block_table": table}
        fields["max_context_len"] = (num_tokens + 1) // 2  # the table may be wider than that
        del fields["num_blocks"]
        try:
            library.offsets(**kernels.paged_params(**fields))
        except kernels.KernelError as error:
            text = kernels.without_comments(answer)
            if "null pointer" in str(error) and "context_lens" in text:
                error.kind = "context-lens"
            raise
        return out

    return addresses


def observe(subject, case):
    sizes, seed = case
    generator = torch.Generator().manual_seed(seed)
    count = sizes.num_seqs * sizes.max_blocks_per_seq
    if sizes.num_blocks < 1000:
        ids = torch.randperm(sizes.num_blocks, generator=generator)[:count]
    else:
        ids = sizes.num_blocks - 1 - torch.randperm(1000, generator=generator)[:count]
    table = ids.to(torch.int32).view(sizes.num_seqs, sizes.max_blocks_per_seq)
    return kernels.result_of(lambda: subject(table, sizes), names=("block_table",))
