"""Recorded for lesson 06: a run in checked mode, up to its race."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from lessons_content.lesson_06.pictures.kernel_steps import thread_shades
from lessons_lib.drawing.player import Recording, View
from lessons_lib.drawing.player.kernel import Box, Boxes, Code, Group

WARP = 32  # threads
SHARED = "__shared__ "  # a shared array's traced name begins with this


def record(accesses: Sequence, race: Any, texts: Mapping[str, str]) -> Recording:
    """A recording with a step for each line that a thread runs, and then the race.

    accesses: of one thread block with one dimension. Some of them are to a shared array.
    race: the KernelError about that array.
    texts: the kernel's texts, by name.
    """
    places = (race.source, race.line), (race.other_source, race.other_line)
    *before, last = _lines(accesses)
    panels = _Panels(accesses, SHARED + race.name, texts)
    recording = Recording("A run, up to its race", panels.views, pace=300)
    recording.step("No thread has done anything yet.", *panels.at({}, [], []))
    for together in before:
        recording.step(_words(together), *panels.after(together))
    threads = race.thread[0], race.other_thread[0]
    marks = {place: f"thread {thread}" for place, thread in zip(places, threads, strict=True)}
    recording.step(str(race).split("\n")[0], *panels.at(marks, threads, last[-1].index))
    return recording


def _lines(accesses: Sequence) -> Iterator[list]:
    """The accesses of a thread at a line. A read of a number that the thread itself wrote is
    left out: the number may still be in a register, so not every compiler reads it.
    """
    writer: dict[tuple, tuple] = {}
    seen = []
    for access in accesses:
        element = access.name, access.index
        if access.kind == "write":
            writer[element] = access.thread
        if access.kind == "write" or writer.get(element) != access.thread:
            seen.append(access)
    for _, together in groupby(seen, lambda each: (each.thread, each.source, each.line)):
        yield [*together]


def _words(together: Sequence) -> str:
    """`Thread 5 reads a[5] and writes row[5].`"""
    does = [
        f"{access.kind}s {access.name.removeprefix(SHARED)}[{access.index[0]}]"
        for access in together
    ]
    return f"Thread {together[0].thread[0]} {' and '.join(does)}."


class _Panels:
    """The code, the warps that have begun, and the shared array by the elements' writers."""

    def __init__(self, accesses, array, texts):
        self.array, name = array, array.removeprefix(SHARED)
        last = max(access.thread[0] for access in accesses)
        warps = [[*map(str, range(first, first + WARP))] for first in range(0, last + 1, WARP)]
        threads = [(f"warp {warp}", names) for warp, names in enumerate(warps)]
        elements = [(f"{names[0]} …", names) for names in warps]
        self.threads = Boxes(
            "threads",
            "the threads that have begun",
            [Group("", threads)],
            "thread",
            thread_shades(len(warps)),
            "not begun",
            0.9,
        )
        self.elements = Boxes(
            "array",
            f"{name}, by the thread that wrote each element",
            [Group("", elements)],
            name,
            self.threads.shades,
            "not written",
            0.9,
        )
        places = ((access.source, access.line) for access in accesses)
        self.code = Code.around("code", "the kernel", texts, filter(all, places))
        self.views = [
            View("", [panel], wide=True) for panel in (self.code, self.threads, self.elements)
        ]
        self.begun: set[int] = set()
        self.written: dict[int, int] = {}  # the thread that wrote each element

    def after(self, together: Sequence) -> list[dict]:
        """The state after a thread's accesses at a line."""
        thread, first = together[0].thread[0], together[0]
        of_array = [access for access in together if access.name == self.array]
        self.begun.add(thread)
        self.written |= {
            access.index[0]: thread for access in of_array if access.kind == "write"
        }
        elements = [access.index[0] for access in of_array]
        return self.at({(first.source, first.line): f"thread {thread}"}, [thread], elements)

    def at(
        self, marks: Mapping, threads: Sequence[int], elements: Sequence[int]
    ) -> list[dict]:
        """The state with these lines, threads and elements lit."""
        begun = {
            str(thread): Box(str(thread), thread // WARP, thread in threads, "begun")
            for thread in self.begun
        }
        written = {
            str(element): Box(
                str(thread), thread // WARP, element in elements, f"written by thread {thread}"
            )
            for element, thread in self.written.items()
        }
        return [self.code.at(marks), self.threads.at(begun), self.elements.at(written)]
