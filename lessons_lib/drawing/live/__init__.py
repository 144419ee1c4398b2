"""A player that follows the learner's own objects, with controls that call them.

The pictures of lessons 01, 02 and 08 each have one: `LivePool`, `LiveTables` and `LiveEngine`.
view.py has the class that they share. widget.py and live.js are the part in the browser.

Each object is made of the learner's class, and is watched. A call that changes something is a
step, from a cell or from a button. A call that raises is not a step, so the view stays.

In a notebook there are two outputs: a player with the steps so far, and the widget. The widget
hides the player as soon as it runs. So where no widget can run, the player's still is shown.
"""
