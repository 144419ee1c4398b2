"""Recorded for lesson 06: which thread reads which key, from the accesses of a checked run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.colors import to_hex

from lessons_lib.drawing import ink
from lessons_lib.drawing.player import Recording, View
from lessons_lib.drawing.player.kernel import Box, Boxes, Code, Group

READERS = plt.get_cmap("cividis")  # from dark to light, for a thread's number
CACHES = {"k_cache": "key", "v_cache": "value"}


@dataclass(frozen=True)
class Read:
    """A thread's read of one slot, with no other access in between.

    cache: "k_cache" or "v_cache".
    slot: the block of the pool, and the offset in it.
    elements: of the head.
    place: the text and the line of the read.
    entry: the thread's last access to a block-table entry that leads to the block, or None.
    """

    thread: int
    cache: str
    slot: tuple[int, ...]
    elements: list[int]
    place: tuple[str | None, int | None]
    entry: Any


def reads(accesses: Sequence, table: Sequence[Sequence[int]]) -> Iterator[Read]:
    """The reads of the caches by one thread block, in order."""
    entries: dict = {}  # the last access to an entry, by thread and block

    def what(access):
        return access.name, access.thread[0], access.index[:3]

    for (name, thread, index), together in groupby(accesses, what):
        first, *others = together
        if name in CACHES:
            elements = [access.index[3] for access in (first, *others)]
            place = first.source, first.line
            entry = entries.get((thread, index[0]))
            yield Read(thread, name, index[:2], elements, place, entry)
        else:
            row, column = index
            entries[thread, table[row][column]] = first


def record(
    accesses: Sequence,
    table: Sequence[Sequence[int]],
    cache_shape: Sequence[int],
    texts: Mapping[str, str],
) -> Recording:
    """A recording with a step for each read of one thread block of a decode kernel.

    accesses: the thread block's accesses to k_cache, v_cache and block_table.
    table: the block table.
    cache_shape: (num_blocks, block_size, num_kv_heads, head_size).
    texts: the kernel's texts, by name.
    """
    steps, (seq, head, _) = [*reads(accesses, table)], accesses[0].block
    panels = _Panels(steps, table[seq], cache_shape, texts)
    recording = Recording("Which thread reads what", panels.views, pace=700)
    begin = f"Sequence {seq}, head {head}. Nothing has been read yet."
    recording.step(begin, *panels.at(None))
    for read in steps:
        recording.step(_words(read, cache_shape), *panels.at(read))
    recording.step(_summary(steps), *panels.at(None))
    return recording


def _words(read: Read, cache_shape: Sequence[int]) -> str:
    """`Thread 2 reads key 6: block table entry 1 says block 5, offset 2.`"""
    block, offset = read.slot
    what = CACHES[read.cache]
    if len(read.elements) < cache_shape[3]:
        numbers = " and ".join(map(str, read.elements))
        what = f"element{'s' * (len(read.elements) > 1)} {numbers} of {what}"
    if not read.entry:
        return (
            f"Thread {read.thread} reads block {block}, offset {offset}. No entry of the "
            "block table that it has looked up leads there."
        )
    entry = read.entry.index[1]
    return (
        f"Thread {read.thread} reads {what} {entry * cache_shape[1] + offset}: "
        f"block table entry {entry} says block {block}, offset {offset}."
    )


def _summary(steps: Sequence[Read]) -> str:
    often = Counter(
        (read.cache, *read.slot, element) for read in steps for element in read.elements
    )
    numbers = Counter(cache for cache, *_ in often)
    once = "each of them once" if set(often.values()) == {1} else "some of them several times"
    return (
        f"The end: {numbers['k_cache']} numbers of keys and {numbers['v_cache']} of values "
        f"have been read, {once}."
    )


def thread_shades(count: int) -> list[tuple[str, str]]:
    """A background and a text colour for each of `count` threads."""
    colours = [READERS(0.15 + 0.85 * thread / max(count - 1, 1)) for thread in range(count)]
    return [(to_hex(colour), ink(colour)) for colour in colours]


class _Panels:
    """The panels of a thread block's reads, with all that has been shown so far."""

    def __init__(self, steps, row, cache_shape, texts):
        self.num_threads = 1 + max((read.thread for read in steps), default=0)
        self.row = {str(entry): str(block) for entry, block in enumerate(row)}
        self.shades = thread_shades(self.num_threads)
        self.threads = Boxes(
            "threads",
            "each thread: its line, its block and offset",
            [Group("", [(row, self._threads(row)) for row in ("thread", "line", "reads")])],
            "thread",
            self.shades,
            "none yet",
            1.35,
        )
        self.entries = Boxes(
            "entries",
            "the sequence's row of the block table",
            [Group("", [("", [*self.row])], [*self.row])],
            "entry",
            wide=1.35,
        )
        self.caches = {name: self._cache(name, cache_shape) for name in CACHES}
        places = [read.place for read in steps]
        places += [_place(read.entry) for read in steps if read.entry]
        self.code = Code.around("code", "the kernel", texts, filter(all, places), after=0)
        self.views = [
            View("", [self.code], wide=True),
            View("", [self.threads]),
            View("", [self.entries]),
            View("", [*self.caches.values()], wide=True),
        ]
        numbers = {f"{n} thread": Box(str(n), n) for n in range(self.num_threads)}
        self.shown = {"threads": numbers, **{name: {} for name in CACHES}}

    def _threads(self, row: str) -> list[str]:
        return [f"{thread} {row}" for thread in range(self.num_threads)]

    def _cache(self, name: str, cache_shape: Sequence[int]) -> Boxes:
        num_blocks, block_size, _, head_size = cache_shape
        groups = [
            Group(
                f"block {block}",
                [
                    (
                        "" if block else str(offset),
                        [f"{block}.{offset}.{n}" for n in range(head_size)],
                    )
                    for offset in range(block_size)
                ],
            )
            for block in range(num_blocks)
        ]
        title = f"{name}: the thread that reads each number of the {CACHES[name]}s"
        noun = "block, offset, element"
        return Boxes(name, title, groups, noun, self.shades, "not read")

    def at(self, read: Read | None) -> list[dict]:
        """The state after a read. The read's thread and element are lit."""
        for boxes in self.shown.values():
            boxes |= {name: replace(box, lit=False) for name, box in boxes.items()}
        entries = {name: Box(block) for name, block in self.row.items()}
        marks = {}
        if read:
            self._show(read)
            marks = {read.place: f"thread {read.thread}"}
            if read.entry:
                marks[_place(read.entry)] = f"thread {read.thread}"
                entry = str(read.entry.index[1])
                entries[entry] = replace(entries[entry], lit=True)
        return [
            self.code.at(marks),
            self.threads.at(self.shown["threads"]),
            self.entries.at(entries),
            *(cache.at(self.shown[name]) for name, cache in self.caches.items()),
        ]

    def _show(self, read: Read) -> None:
        block, offset = read.slot
        thread, threads = read.thread, self.shown["threads"]
        text, line = read.place
        threads[f"{thread} thread"] = Box(str(thread), thread, True)
        threads[f"{thread} line"] = Box(str(line or ""), -1, True, f"{line} of {text}")
        told = f"block {block}, offset {offset}"
        threads[f"{thread} reads"] = Box(f"{block},{offset}", -1, True, told)
        self.shown[read.cache] |= {
            f"{block}.{offset}.{n}": Box(str(thread), thread, True, f"read by thread {thread}")
            for n in read.elements
        }


def _place(access) -> tuple[str | None, int | None]:
    return access.source, access.line
