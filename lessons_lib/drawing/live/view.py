"""A view that follows an object: its steps, and controls that change it."""

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from IPython.display import display

from lessons_lib.checks import raised
from lessons_lib.drawing.live.widget import make_widget
from lessons_lib.drawing.player import Cell, Recording

MOST_STEPS = 2000  # then the recording begins again with the current state
# the largest number of blocks that a view begins with, because each one is drawn
LARGEST = 2000
# When a saved notebook is opened again, JupyterLab reports that the widget is missing. The
# player above the widget is enough.
NO_WIDGET = (
    ".jp-OutputArea-child:has([data-live]) + .jp-OutputArea-child "
    ".jupyter-widgets:not(:has(*)) { display: none }"
)


@dataclass(frozen=True)
class Control:
    """Something that a learner can set or press.

    kind: "number" and "choice" have a value. A "button" calls the view's method of its name,
        and a "run" calls it again and again, as long as it returns True.
    options: the values of a choice.
    begins: whether a new value makes the object anew.
    """

    kind: str
    name: str
    label: str
    value: Any = 0
    options: tuple[str, ...] = ()
    begins: bool = False


class LiveView:
    """A recording that grows, and controls that make it grow.

    A subclass for a kind of object has its controls, and a method for each button, which takes
    the controls' values by name. `begin` makes the object anew.
    """

    lesson: ClassVar[str]
    alt: ClassVar[str]  # alt text of the still
    controls: ClassVar[tuple[Control, ...]]

    def __init__(self, **sizes: Any):
        self.values = {
            each.name: sizes.get(each.name, each.value)
            for each in self.controls
            if each.kind not in ("button", "run")
        }
        self.widget: Any = None
        self.num_begun = 0
        self._begin()

    def begin(self, **values: Any) -> None:
        """Makes the object with these values, and calls `restart`. It may raise."""
        raise NotImplementedError

    def _begin(self) -> None:
        for each in self.controls:
            if each.begins and each.kind == "number" and self.values[each.name] > LARGEST:
                raise ValueError(f"{each.label}: at most {LARGEST:,} can be shown here.")
        self.begin(**self.values)

    def restart(self, recording: Recording, say: str, *states: dict) -> None:
        """Replaces the recording with another one, which begins with this step."""
        recording.step(say, *states)
        self.recording = recording
        self.num_begun += 1
        if self.widget:
            self.widget.recording = self.as_json()

    def step(self, say: str, *states: dict) -> None:
        """Adds a step to the recording, and shows it at once, even while a cell runs.

        If the step has a user that the recording does not know, the recording begins anew.
        states: the states of all panels.
        """
        cells = [each for state in states for each in state.values() if isinstance(each, Cell)]
        known = dict.fromkeys(map(str, self.recording.names))
        users = dict.fromkeys(str(user) for cell in cells for user in cell.users)
        new = [user for user in users if user not in known]
        if new or len(self.recording.steps) == MOST_STEPS:
            anew = replace(self.recording, names=[*self.recording.names, *new], steps=[])
            self.restart(anew, say, *states)
            return
        self.recording.step(say, *states)
        if self.widget:
            self.send_from(len(self.recording.steps) - 1)

    def as_json(self) -> dict:
        # The number tells a new recording from the last one, even if both begin in the same
        # way.
        about = {"still": len(self.recording.steps) - 1, "number": self.num_begun}
        return self.recording.as_json() | about

    def send_from(self, first: int) -> None:
        self.widget.send({"first": first, "steps": self.recording.steps[first:]})

    def take(self, message: dict) -> None:
        """Does what a browser asks for: {"have": number of steps}, or {"do": name, "values"}.

        The reply has the current values of the controls, what went wrong if something did, and
        whether there is nothing left to do.
        """
        if "have" in message:
            self.send_from(message["have"])
            return
        before, self.values = self.values, self.values | message["values"]
        problem, goes_on = "", None
        try:
            if message["do"] == "begin":
                self._begin()
            else:
                goes_on = getattr(self, message["do"])(**self.values)
        except Exception as error:
            problem = in_words(error)
            if message["do"] == "begin":
                self.values = before
        self.widget.send(
            {"values": self.values, "problem": problem, "ended": bool(problem) or not goes_on}
        )

    def _ipython_display_(self) -> None:
        display(LivePlayer(self))
        self.widget = make_widget(self)
        if self.widget:
            data, about = self.widget._repr_mimebundle_()
            data.pop("text/plain")  # where no widget can run, the player is enough
            display(data, metadata=about, raw=True)


@dataclass(frozen=True)
class LivePlayer:
    """The steps so far, which the widget hides."""

    view: LiveView

    def _repr_html_(self) -> str:
        player = self.view.recording.player(self.view.alt)
        html = player._repr_html_()
        return f'<style>{NO_WIDGET}</style><div data-live="{self.view.lesson}">{html}</div>'

    def __repr__(self):
        return f"Live: {self.view.alt}"


def in_words(error: BaseException) -> str:
    """The text for the learner about an answer that raised, with the answer's line."""
    found = re.fullmatch(r"Exercise (\d+\.\d+)( is not written yet)?", str(error))
    if found:
        return f"This calls your answer to exercise {found[1]}, which is not written yet."
    result = raised(error)
    return f"{result}\nraised in {result.where}" if result.where else str(result)
