"""Lesson 07's ladder of kernels for decodes, and what plans their work."""

from paged_attention.ladder.decode import PagedDecode, attn_paged_fast
from paged_attention.ladder.rungs import RUNGS, Rung, Shape, rung_texts

__all__ = ["RUNGS", "PagedDecode", "Rung", "Shape", "attn_paged_fast", "rung_texts"]
