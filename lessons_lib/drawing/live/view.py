"""What follows an object: its steps, its controls, and what they do."""

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from IPython.display import display

from lessons_lib.checks import raised
from lessons_lib.drawing.live.widget import make_widget
from lessons_lib.drawing.player import Cell, Recording

MOST_STEPS = 2000  # then the recording begins anew, with what is there
LARGEST = 2000  # value of a number with which a view begins: each block is drawn
# JupyterLab says that there is no such widget in a notebook that is opened again; the player
# above is enough.
NO_WIDGET = (
    ".jp-OutputArea-child:has([data-live]) + .jp-OutputArea-child "
    ".jupyter-widgets:not(:has(*)) { display: none }"
)


@dataclass(frozen=True)
class Control:
    """Something that a learner can set or press.

    kind: "number" and "choice" have a value. A "button" calls the view's method of its name,
        and a "run" does so again and again, as long as that returns True.
    options: of a choice.
    begins: whether another value begins anew.
    """

    kind: str
    name: str
    label: str
    value: Any = 0
    options: tuple[str, ...] = ()
    begins: bool = False


class LiveView:
    """A recording that grows, and controls that make it grow.

    A class for a kind of object says what its controls are, and has a method for each button,
    which takes their values by name. `begin` makes the object anew.
    """

    lesson: ClassVar[str]
    alt: ClassVar[str]  # of the still
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
        """Shows another recording, which begins with this step."""
        recording.step(say, *states)
        self.recording = recording
        self.num_begun += 1
        if self.widget:
            self.widget.recording = self.as_json()

    def step(self, say: str, *states: dict) -> None:
        """Adds a step to the recording, and shows it at once, while a cell runs, too.

        A user whom the recording does not know begins it anew.
        states: of all panels.
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
        # With the number, a new recording that begins as the last one did differs from it.
        about = {"still": len(self.recording.steps) - 1, "number": self.num_begun}
        return self.recording.as_json() | about

    def send_from(self, first: int) -> None:
        self.widget.send({"first": first, "steps": self.recording.steps[first:]})

    def take(self, message: dict) -> None:
        """Does what a browser asks for: {"have": number of steps}, or {"do": name, "values"}.

        It hears the values of the controls as they are now, what went wrong, if something did,
        and whether there is nothing left to do.
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
            data.pop("text/plain")  # where no widget can be, the player is enough
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
    """What a learner reads about an answer that raised, with its own line."""
    found = re.fullmatch(r"Exercise (\d+\.\d+)( is not written yet)?", str(error))
    if found:
        return f"This calls your answer to exercise {found[1]}, which is not written yet."
    result = raised(error)
    return f"{result}\nraised in {result.where}" if result.where else str(result)
