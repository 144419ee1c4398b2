"""Lesson 09's ladder of kernels for prompts, and what plans their work."""

from paged_attention.prefill.kernels import (
    PREFILL_RUNGS,
    PagedPrefill,
    attn_paged_prefill,
    prefill_texts,
)

__all__ = ["PREFILL_RUNGS", "PagedPrefill", "attn_paged_prefill", "prefill_texts"]
