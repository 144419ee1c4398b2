"""What attention is: PyTorch's own, in float64, over keys and values that are in one piece."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from batch_metadata import metadata_of


def dense_attention(q, k, v, scale=None):
    """Of one sequence. The queries are its last tokens: q (q_len, num_q_heads, head_size), k
    and v (kv_len, num_kv_heads, head_size). Zeros where there is no key.
    """
    visible = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    heads_first = (x.cpu().double().transpose(0, 1)[None] for x in (q, k, v))
    o = scaled_dot_product_attention(
        *heads_first, attn_mask=visible, scale=scale, enable_gqa=True
    )
    return o[0].transpose(0, 1)


def pool_attention(q, k_cache, v_cache, metadata, scale=None):
    """Of each sequence of a batch, by itself."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    starts, block_size = metadata.cu_seqlens_q.tolist(), k_cache.shape[1]
    for seq, num_keys in enumerate(metadata.seq_lens_kv.tolist()):
        rows = slice(starts[seq], starts[seq + 1])
        blocks = metadata.block_table[seq, : -(-num_keys // block_size)].long()
        k, v = (cache[blocks].flatten(0, 1)[:num_keys] for cache in (k_cache, v_cache))
        out[rows] = dense_attention(q[rows], k, v, scale)
    return out


def decode_attention(q, k_cache, v_cache, block_table, context_lens):
    """Of the last token of each sequence."""
    lens = [(1, length) for length in context_lens.tolist()]
    return pool_attention(q, k_cache, v_cache, metadata_of(lens, block_table))
