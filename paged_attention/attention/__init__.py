"""Attention over blocks: by request, of single tokens, of a whole batch, and in CUDA.

The names of lesson 03 can be imported from here.
"""

from paged_attention.attention.by_request import (
    forward_prefill,
    plain_attention,
    share_heads,
    tiled_attention,
)

__all__ = ["forward_prefill", "plain_attention", "share_heads", "tiled_attention"]
