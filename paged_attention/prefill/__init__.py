"""Lesson 09's ladder of kernels for prompts, and what plans their work."""

from paged_attention.prefill.kernels import PagedPrefill, attn_paged_prefill
from paged_attention.prefill.rungs import PREFILL_RUNGS, prefill_texts

__all__ = ["PREFILL_RUNGS", "PagedPrefill", "attn_paged_prefill", "prefill_texts"]
