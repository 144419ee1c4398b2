"""A player for recorded steps: a pool, block tables, queues, lanes over time, and figures.

A `Recording` has views side by side, a view has panels, and all follow one list of steps:

    pool = Cells("pool", "The pool", size=16, rows=[Row("", range(8))])
    recording = Recording("Two requests", [View("", [pool])], names="AB")
    recording.step("The pool is empty.", pool.at({}))
    recording.step("Request A takes block 3.", pool.at({3: Cell("A", 16, tells="Once upon")}))
    recording.player(alt="…")        # as the last line of a cell

There are three kinds of panels.

- `Cells`: places in rows, for a pool, a block table, a queue or a batch. A place is free, or
  has users and some tokens.
- `Lanes`: bars over time. A line is at the present moment, and later bars are pale.
- `Numbers`: figures in words. A figure that has a share also has a bar.

kernel.py has two more kinds, for a kernel's run: `Boxes`, and lines of `Code`.

The format for browsers
-----------------------
`Recording.as_json()` gives this, and `createPlayer(root, recording)` in player.js shows it:

    {"title": "…", "names": ["A", "B"], "pace": 900, "still": 0,
     "views": [{"title": "…", "wide": false, "panels": [panel, …]}, …],
     "steps": [{"say": "Request A takes block 3.", "set": {"pool/3": […], …}}, …]}

    {"kind": "cells", "id": "pool", "title": "…", "noun": "block", "size": 16, "columns": 8,
     "points": "", "missing": "free", "blank": "", "ids": true,
     "rows": [{"id": "0", "cells": ["0", …], "head": true}, …]}
    {"kind": "lanes", "id": "time", "title": "…", "lanes": ["A", …], "end": 12, "unit": "step",
     "kinds": [["decodes", "look-0"], …], "bars":
     [[lane, start, end, kind, shows, tells, look], …]}
    {"kind": "numbers", "id": "waste", "items": [["empty", "of the reserved memory …"], …]}

The player opens at the step `still`, and plays from the first step. Each thing that can change
has a key, `panel/thing`, and `set` has the keys whose values differ from the step before. The
first step sets all of them. The values are

- of a cell: null, or [users, filled, shows, tells]: its users as places in `names`, its number
  of tokens, the text that it shows instead of its users (or ""), and more text about it, such
  as its tokens' words. A cell without a user is kept by a cache only.
- of a row's head, `panel/head ROW`: its text;
- of lanes, `panel/now`: the present moment, from 0 to `end`;
- of a number: [text, share], where share is from 0 to 1, or null.

`points` names another panel. A cell's `shows` is the name of a place there, which is lit too
while the cell is under the mouse or has the focus. `missing` says how a null is drawn: as a
"free" place with the text `blank`, or not at all ("gone").
"""

from lessons_lib.drawing.player.panels import Bar, Cell, Cells, Lanes, Numbers, Row, View
from lessons_lib.drawing.player.recording import Player, Recording

__all__ = [
    "Bar",
    "Cell",
    "Cells",
    "Lanes",
    "Numbers",
    "Player",
    "Recording",
    "Row",
    "View",
]
