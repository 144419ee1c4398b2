"""A player that follows the learner's own objects, with controls that call them.

- `LivePool`: lesson 01's block manager. `LiveTables`: lesson 02's manager of sequences.
  `LiveEngine`: lesson 08's engine.
- view.py has what these share, widget.py and live.js what a browser gets of it.

Each object is made of the learner's class, and watched: a call that changes something is a
step, whether a cell or a button makes it. A call that raises is none, so the view stays.

In a notebook there are two outputs: the steps so far as a player, and the widget, which hides
the player as soon as it runs. So the player's still is there wherever no widget can be.
"""

from lessons_draw.live.engine import LiveEngine
from lessons_draw.live.pool import LivePool
from lessons_draw.live.tables import LiveTables

__all__ = ["LiveEngine", "LivePool", "LiveTables"]
