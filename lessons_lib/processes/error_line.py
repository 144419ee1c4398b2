"""Finds the learner's line that an error comes from, and the names that its object has."""

import contextlib
import difflib
import linecache
import os
import traceback

_OF_OTHERS = ("builtins", "torch", "numpy")  # too many names to help


def words_of(error: BaseException) -> str:
    """The learner's line: "line 7: `sequence.lenght += 1`", or "" if none is there.

    If an object lacks a name, a second line lists names that the object has.
    """
    where = ""
    for frame, number in reversed([*traceback.walk_tb(error.__traceback__)]):
        name = frame.f_code.co_filename
        if os.path.exists(name):  # not a cell of a notebook
            continue
        if line := linecache.getline(name, number).strip():
            where = f"line {number}: `{line}`"
            break
        # This may be the line of another cell, which the answer calls. The answer's own line
        # follows.
        where = where or f"line {number}"
    with contextlib.suppress(BaseException):  # a learner's object may do anything
        if where and (names := _names_of(error, where)):
            where += f"\n  {names}"
    return where


def _names_of(error: BaseException, where: str) -> str:
    """The names of a course's object, if the error says that the object lacks a name. Gives
    the names that are like the missing one, or all if there is none.

    where: the learner's line. If the line calls the missing name, only callable names are
        given.
    """
    if not isinstance(error, AttributeError):
        return ""
    owners = [
        owner
        for owner in type(error.obj).__mro__
        if owner.__module__.split(".")[0] not in _OF_OTHERS
    ]
    is_called = f".{error.name}(" in where
    parts = {name: part for owner in owners for name, part in vars(owner).items()}
    parts |= getattr(error.obj, "__dict__", {}) if owners else {}
    names = sorted(
        name
        for name, part in parts.items()
        if not name.startswith("_")
        and not isinstance(part, type)
        and (callable(part) or not is_called)
    )
    listed = ", ".join(difflib.get_close_matches(error.name or "", names) or names)
    return f"{type(error.obj).__name__} has: {listed}" if names else ""
