"""Ctrl-C at any instruction of the engine and of its stand-in for a model."""

import opcode
import sys
from contextlib import contextmanager

NOP = opcode.opmap["NOP"]


class CtrlC:
    """Counts what Python executes in the engine and in its model, and raises KeyboardInterrupt
    before instruction `at`.

    If that is a NOP, before the next one: the NOP of an inner `try` is in no handler's range,
        and no real signal comes there.
    function: the only one whose instructions count.
    """

    def __init__(self, at: int | None = None, function: str = ""):
        self.at, self.count, self.function = at, 0, function

    def __call__(self, frame, event, argument):
        file = frame.f_code.co_filename
        if "paged_attention" not in file and not file.endswith("echo.py"):
            return None
        if self.function and frame.f_code.co_name != self.function:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if (
                self.at is not None
                and self.count >= self.at
                and frame.f_code.co_code[frame.f_lasti] != NOP
            ):
                raise KeyboardInterrupt
            self.count += 1
        return self

    @contextmanager
    def watching(self):
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)
