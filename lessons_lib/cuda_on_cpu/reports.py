"""The faults that the runtime finds: their rules and places. report_messages.py has words."""

import re
from dataclasses import dataclass, replace
from typing import Any

from lessons_lib.cuda_on_cpu.elements import tensor_element, tensor_index
from lessons_lib.cuda_on_cpu.source_lines import SourceLine

_NUMBERS = (
    "linear",
    "byte",
    "size",
    "bytes",
    "element",
    "other_linear",
    "line",
    "other_line",
    "waiting",
    "returned",
    "lane",
    "source",
    "missing",
    "launches",
    "steps",
    "shared_bytes",
    "lanes_missing",
    "made_line",
    "freed_line",
    "both_update",
)
_TRIPLES = ("block", "thread", "other_thread", "other_block", "grid", "threads")


class KernelError(Exception):
    """A kernel or its launch went wrong.

    kind: for example "race" or "out-of-bounds".
    kernel: its name.
    source, line: the learner's text, and its line from 1.
    block, thread: three numbers each.
    name: the variable or tensor.
    other_source, other_line, other_thread: of the other thread in a race.
    Each field is None if it is not known.
    """

    def __init__(
        self,
        message,
        kind="",
        kernel=None,
        source=None,
        line=None,
        block=None,
        thread=None,
        name=None,
        other_source=None,
        other_line=None,
        other_thread=None,
    ):
        super().__init__(message)
        self.kind, self.kernel, self.source, self.line = kind, kernel, source, line
        self.block, self.thread, self.name = block, thread, name
        self.other_source, self.other_line = other_source, other_line
        self.other_thread = other_thread

    def __reduce__(self):
        return type(self), (
            str(self),
            self.kind,
            self.kernel,
            self.source,
            self.line,
            self.block,
            self.thread,
            self.name,
            self.other_source,
            self.other_line,
            self.other_thread,
        )

    def _render_traceback_(self):
        return [f"KernelError: {self}"]


@dataclass(frozen=True)
class Report:
    """A report of the runtime.

    values: each key of the report with its value, numbers as numbers.
    tables: the entries of int32 inputs that the thread read last, the latest first. Each is
        (byte, value, name).
    """

    kind: str
    values: dict
    tables: tuple[tuple[int, int, str], ...]
    here: SourceLine | None = None
    there: SourceLine | None = None

    def __getattr__(self, key):
        """A value of the report, or None if the report does not have it."""
        if key.startswith("__"):
            raise AttributeError(key)
        return self.values.get(key)


def parse(text: str) -> Report:
    """The report that the runtime wrote, as lines of `key value`."""
    values: dict[str, Any] = {}
    tables = []
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == "table":
            byte, entry, name = value.split(" ", 2)
            tables.append((int(byte), int(entry), name))
        elif key in ("pc", "other_pc"):
            offset, _, library = value.partition(" ")
            values[key] = (int(offset, 16), library)
        elif key in _NUMBERS:
            values[key] = int(value)
        elif key in _TRIPLES:
            values[key] = tuple(map(int, value.split()))
        elif key:
            values[key] = value
    return Report(values.pop("kind", "unknown"), values, tuple(tables))


def refine(report: Report, tensors: dict, texts: dict[str, str]) -> Report:
    """The report with the most precise kind.

    The runtime reports only accesses. This finds the broken rule.
    texts: of which the report names lines.
    """
    kind = report.kind
    if kind == "race":
        kind = _kind_of_race(report, texts)
    elif kind == "shared-out-of-bounds" and report.memory == "dynamic" and report.byte >= 0:
        kind = "dynamic-shared-too-small"
    elif kind == "out-of-bounds" and block_entry(report, tensors):
        kind = "block-table"
    return replace(report, kind=kind)


def _kind_of_race(report: Report, texts: dict[str, str]) -> str:
    here, there = report.here, report.there
    name = report.name or ""
    if report.both_update and here and there and _one_update(here, there, texts, name):
        return "non-atomic-update"
    if report.other_block is not None and report.other_block != report.block:
        return "race-between-blocks"
    if (
        report.linear is not None
        and report.other_linear is not None
        and report.linear // 32 == report.other_linear // 32
    ):
        return "missing-syncwarp"
    return "race"


def _one_update(here: SourceLine, there: SourceLine, texts: dict[str, str], name: str) -> bool:
    """Whether two lines make one update: one line, or a read and then a write.

    If there is a condition between the two, a thread that reads need not write. And a line
    that has the name of the memory has to update that, not what it reads from there.
    """
    if here == there:
        return updates_itself(here.text, name)
    first, second = sorted((here, there), key=lambda line: line.number)
    if first.source != second.source or second.number - first.number > 3:
        return False
    after = texts[first.source].split("\n")[first.number : second.number]
    may_stop = any(re.search(r"\b(if|return)\b", line.partition("//")[0]) for line in after)
    return not may_stop and updates_in_two_lines(first.text, second.text, name)


def updates_in_two_lines(first: str, second: str, name: str) -> bool:
    """True for `old = x;` and then `x = old + 1;`, or for `if (v > x)` and then `x = v;`."""
    written = re.search(
        r"(?P<place>[*\w.\[\]>-]+)=(?!=)(?P<value>[^;]*)",
        re.sub(r"\s+", "", second.partition("//")[0]),
    )
    first = first.partition("//")[0]
    if not written or written["place"] not in re.sub(r"\s+", "", first):
        return False
    if _is_another(written["place"], name, f"{first} {second}"):
        return False
    loaded = re.search(r"(\w+)\s*=(?!=)", first)
    if loaded:
        if re.search(rf"\b{loaded[1]}\b", first[loaded.end() :]):
            return False  # this line gathers values that the other line has read
        return re.search(rf"\b{loaded[1]}\b", written["value"]) is not None
    return re.search(r"\bif\b", first) is not None


def _is_another(place: str, name: str, text: str) -> bool:
    """Whether a place is not in the memory `name`, which the text calls by that name."""
    return name in re.findall(r"\w+", text) and name not in re.findall(r"\w+", place)


def updates_itself(line: str, name: str) -> bool:
    """Whether a line makes a new `x` from the old one: `x += v`, `x = max(x, v)`, `x++`.

    A step of a reduction, `a[i] += a[i + s]`, does not count, because there a barrier has to
    protect the other element.
    """
    plain = re.sub(r"\s+", "", line.partition("//")[0])
    place = r"(?P<place>[A-Za-z_][\w.]*(?:->\w+)*(?:\[[^=]*?\])*)"
    changed = re.search(place + r"(?:\+\+|--|(?P<sign>[-+*/%&|^]|<<|>>)?=(?!=))", plain)
    if not changed:
        return re.search(r"(?:\+\+|--)[*(]*" + place, plain) is not None
    place = changed["place"]
    if _is_another(place, name, line):
        return False
    before, after = plain[: changed.start()], plain[changed.end() :]
    rest = before.rpartition(";")[2] + " " + after.partition(";")[0]
    base = re.split(r"\W", place)[0]
    own = rest.count(place)
    others = len(re.findall(rf"\b{base}\b", rest.replace(place, " ")))
    plain_assignment = changed["sign"] is None and changed[0].endswith("=")
    return others == 0 and (own > 0 or not plain_assignment)


@dataclass(frozen=True)
class BlockEntry:
    """An entry of a block table, such as `block_table[2, 5]`, that led out of a cache.

    byte: the byte that it led to.
    """

    element: str
    value: int
    byte: int


def block_entry(report: Report, tensors: dict) -> BlockEntry | None:
    """The block-table entry that led the thread out of the tensor, if one did."""
    tensor = tensors.get(report.name)
    if tensor is None or report.byte is None:
        return None
    # A negative index may have been in an unsigned variable.
    wrapped = report.byte - tensor.element_size() * 2**32
    for reached in (report.byte, wrapped):
        index = tensor_index(tensor.shape, tensor.stride(), reached // tensor.element_size())
        for byte, value, name in report.tables:
            # a list of lengths has one dimension, a table two
            a_table = name in tensors and tensors[name].ndim == 2
            if index and a_table and value == index[0] and not 0 <= value < tensor.shape[0]:
                return BlockEntry(tensor_element(name, tensors[name], byte), value, reached)
    return None
