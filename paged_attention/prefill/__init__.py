"""Lesson 09's ladder of kernels for prompts, and what plans their work."""

from paged_attention.prefill.kernels import PREFILL_RUNGS, PagedPrefill, attn_paged_prefill

__all__ = ["PREFILL_RUNGS", "PagedPrefill", "attn_paged_prefill"]
