"""Names slips outside the result: the answer changes its arguments, or returns shared memory.

No known mistake explains such an answer, because its results are otherwise its own. So the
slip is undone, and the answer is tried again: if it is right then, the slip was its fault.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

CHANGED = "arguments-changed"
SHARED = "result-shared"
_SHARED_WORDS = (
    "The numbers are right. But the result is not a new object: it is one that something else "
    "uses too, so a change to one is a change to the other."
)


def slip(
    ours: Any, theirs: Any, passes: Callable[[Callable, Callable], bool]
) -> tuple[str, str] | None:
    """The slip of a wrong answer, as (slug, message); None if undoing a slip does not help.

    ours, theirs: the answers. Only functions are tried.
    passes: whether the first of two functions is right when both are called in turns.
    """
    if not all(map(inspect.isroutine, (ours, theirs))):
        return None
    # for each call of our answer, the arguments that it changes, as it should
    changes: list[list[str]] = []
    found: dict[str, None] = {}

    def noted(*arguments, **named):
        kept = [*_kept(ours, arguments, named)]
        result = ours(*arguments, **named)
        changes.append([name for name, restore in kept if restore(False)])
        return result

    def restored(*arguments, **named):
        kept = [*_kept(ours, arguments, named)]
        result = theirs(*arguments, **named)
        meant = changes.pop(0) if changes else []
        found.update({name: None for name, restore in kept if name not in meant and restore()})
        return result

    def copied(*arguments, **named):
        return _copy(theirs(*arguments, **named))

    if passes(functools.wraps(theirs)(restored), functools.wraps(ours)(noted)) and found:
        return CHANGED, _changed_words([*found])
    if passes(functools.wraps(theirs)(copied), ours):
        return SHARED, _SHARED_WORDS
    return None


def _changed_words(names: list[str]) -> str:
    which = " and ".join(f"`{name}`" for name in names)
    return (
        f"The result is right. But {which} changes in the call. Who else needs it after that?"
    )


def _kept(function, arguments, named) -> Iterator[tuple[str, Callable[..., bool]]]:
    """(name, restore) for each argument that can be changed.

    `restore()` undoes a change of the argument and says whether there was one.
    `restore(False)` only says it.
    """
    try:
        bound = inspect.signature(function).bind(*arguments, **named).arguments
    except TypeError:
        return
    for name, value in bound.items():
        values = value if isinstance(value, tuple) else (value,)  # `*arguments` is a tuple
        for each in values:
            if isinstance(each, list):
                yield name, functools.partial(_restore_list, each, [*each])
            for tensor in each if isinstance(each, list) else (each,):
                if isinstance(tensor, torch.Tensor):
                    yield name, functools.partial(_restore_tensor, tensor, tensor.clone())


def _restore_tensor(tensor: torch.Tensor, before: torch.Tensor, undo: bool = True) -> bool:
    same = (tensor == before) | (tensor != tensor) & (before != before)
    if undo:
        tensor.detach().copy_(before)
    return not bool(same.all())


def _restore_list(values: list, before: list, undo: bool = True) -> bool:
    changed = len(values) != len(before) or any(
        one is not other for one, other in zip(values, before, strict=True)
    )
    if undo:
        values[:] = before
    return changed


def _copy(result):
    """The result with copies of its lists and tensors."""
    if isinstance(result, torch.Tensor):
        return result.clone()
    if type(result) in (list, tuple):
        return type(result)(map(_copy, result))
    return result
