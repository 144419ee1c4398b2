"""The panels of a recording, and their values. __init__.py has the whole format."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lessons_lib.drawing.player.kernel import Boxes, Code


def called(name) -> str:
    """A place's name as text: 3, or 1.3 for a pair."""
    return ".".join(map(str, name)) if isinstance(name, tuple) else str(name)


@dataclass(frozen=True)
class Cell:
    """The content of a place.

    users: the names of its requests; several share it. None: only a cache keeps it.
    filled: how many of its slots hold a token.
    shows: a text instead of its users' names. tells: more text, shown under the mouse.
    """

    users: Sequence[str]
    filled: int = 0
    shows: str = ""
    tells: str = ""


@dataclass(frozen=True)
class Row:
    """A row of places with these names. `head`: whether its text can be set, by its id."""

    id: Hashable
    cells: Iterable
    head: bool = False


@dataclass(frozen=True)
class Cells:
    """Places in rows.

    size: tokens in a place; 0 for a panel without slots, such as a queue.
    columns: at which a row is broken; 0 for never.
    points: the panel whose places `shows` names.
    missing: whether a place without a Cell is "free", with the text `blank`, or "gone".
    """

    id: str
    title: str
    rows: Sequence[Row]
    size: int = 0
    columns: int = 0
    noun: str = "block"
    points: str = ""
    missing: str = "free"
    blank: str = ""
    ids: bool = True
    kind: ClassVar[str] = "cells"

    def at(self, cells: Mapping, heads: Mapping | None = None) -> dict:
        """The panel's whole state.

        cells: by name, a Cell for each place that is in use.
        heads: by a row's id, its text.
        Raises KeyError for a place or a row that the panel does not have.
        """
        return self._known(
            {self._key(name): None for row in self.rows for name in row.cells},
            {self._key(name): cell for name, cell in cells.items()},
        ) | self._known(
            {f"{self.id}/head {row.id}": "" for row in self.rows if row.head},
            {f"{self.id}/head {name}": text for name, text in (heads or {}).items()},
        )

    def _key(self, name) -> str:
        return f"{self.id}/{called(name)}"

    def _known(self, places: dict, given: dict) -> dict:
        if unknown := given.keys() - places.keys():
            raise KeyError(f"{sorted(unknown)} is not in the panel {self.id!r}")
        return places | given

    def as_json(self) -> dict:
        rows = [
            {"id": str(row.id), "cells": [*map(called, row.cells)], "head": row.head}
            for row in self.rows
        ]
        return {"kind": self.kind, **vars(self), "rows": rows}


@dataclass(frozen=True)
class Bar:
    """A bar from `start` to `end` in a lane.

    kind: its number among the panel's kinds. look: replaces the look of its kind; "look-3
        plain" has the colour of look-3 and no pattern.
    """

    lane: int
    start: float
    end: float
    kind: int
    shows: str = ""
    tells: str = ""
    look: str = ""


@dataclass(frozen=True)
class Lanes:
    """Bars over time.

    kinds: each kind's meaning and the name of its look; "" if each bar has its own look.
    """

    id: str
    title: str
    lanes: Sequence[str]
    end: float
    kinds: Sequence[tuple[str, str]]
    bars: Sequence[Bar]
    unit: str = "step"
    kind: ClassVar[str] = "lanes"

    def at(self, now: float) -> dict:
        return {f"{self.id}/now": now}

    def as_json(self) -> dict:
        bars = [[*vars(bar).values()] for bar in self.bars]
        return {"kind": self.kind, **vars(self), "lanes": [*self.lanes], "bars": bars}


@dataclass(frozen=True)
class Numbers:
    """Figures. items: by its id, the words after each number."""

    id: str
    items: Mapping[str, str]
    title: str = "In numbers"
    kind: ClassVar[str] = "numbers"

    def at(self, **values) -> dict:
        """values: by id, a text, or a pair of a text and a share from 0 to 1."""
        return {
            f"{self.id}/{name}": [value, None] if isinstance(value, str) else [*value]
            for name, value in values.items()
        }

    def as_json(self) -> dict:
        return {
            "kind": self.kind,
            **vars(self),
            "items": [[*item] for item in self.items.items()],
        }


@dataclass(frozen=True)
class View:
    """Panels below one another. `wide`: whether it takes the whole width."""

    title: str
    panels: Sequence[Cells | Lanes | Numbers | Boxes | Code]
    wide: bool = False

    def as_json(self) -> dict:
        panels = [panel.as_json() for panel in self.panels]
        return {"title": self.title, "wide": self.wide, "panels": panels}
