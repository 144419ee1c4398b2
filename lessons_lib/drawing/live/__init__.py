"""A player that follows the learner's own objects, with controls that call them.

The pictures of lessons 01, 02 and 08 each have one: `LivePool`, `LiveTables` and `LiveEngine`.
view.py has what these share, widget.py and live.js what a browser gets of it.

Each object is made of the learner's class, and watched: a call that changes something is a
step, whether a cell or a button makes it. A call that raises is none, so the view stays.

In a notebook there are two outputs: the steps so far as a player, and the widget, which hides
the player as soon as it runs. So the player's still is there wherever no widget can be.
"""
