"""Arguments that an answer has changed."""

import torch

from lessons_content.exercises.tensors import same_bits


def changed(before: dict, now: dict) -> list[str]:
    """The names of tensors, lists and other values that are not as they were."""
    return [name for name, value in before.items() if not _is_same(value, now[name])]


def _is_same(before, now) -> bool:
    if isinstance(before, torch.Tensor):
        return isinstance(now, torch.Tensor) and same_bits(before, now)
    if isinstance(before, list | tuple):
        return len(before) == len(now) and all(map(_is_same, before, now))
    return before == now
