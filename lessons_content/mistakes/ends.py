"""Ends functions that would run forever."""

import functools
import sys

from lessons_lib.checks import NoEnd

MOST_LINES = 100_000  # that a function may run on a case; our answers run a few hundred


def with_an_end(function, place: str):
    """`function`, but it raises NoEnd once its own lines have run MOST_LINES times."""

    @functools.wraps(function)
    def guarded(*arguments, **named):
        lines = 0

        def follow(frame, event, argument):
            nonlocal lines
            if frame.f_code.co_filename != place:
                return None
            lines += event == "line"
            if lines > MOST_LINES:
                raise NoEnd
            return follow

        before = sys.gettrace()
        sys.settrace(follow)
        try:
            return function(*arguments, **named)
        finally:
            sys.settrace(before)

    return guarded
