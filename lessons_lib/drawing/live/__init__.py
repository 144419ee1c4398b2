"""A player that follows the learner's own objects, with controls that call them.

- `LivePool`: lesson 01's block manager. `LiveTables`: lesson 02's manager of sequences.
  `LiveEngine`: lesson 08's engine.
- view.py has what these share, widget.py and live.js what a browser gets of it.

Each object is made of the learner's class, and watched: a call that changes something is a
step, whether a cell or a button makes it. A call that raises is none, so the view stays.

In a notebook there are two outputs: the steps so far as a player, and the widget, which hides
the player as soon as it runs. So the player's still is there wherever no widget can be.
"""

from lessons_content.lesson_01.pictures.live_pool import LivePool
from lessons_content.lesson_02.pictures.live_tables import LiveTables
from lessons_content.lesson_08.pictures.live_engine import LiveEngine

__all__ = ["LiveEngine", "LivePool", "LiveTables"]
