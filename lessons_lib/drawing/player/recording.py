"""Records steps as differences, and makes the HTML that plays them."""

import base64
import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from lessons_lib.drawing.looks import AGAIN_LOOK, SHARED_LOOK, request_look
from lessons_lib.drawing.player.panels import Cell, View
from lessons_lib.drawing.player.still import draw

HERE = Path(__file__).parent


@dataclass
class Recording:
    """Steps that some views show.

    names: of all requests, in the order of their looks.
    pace: milliseconds for which a step is shown.
    """

    title: str
    views: Sequence[View]
    names: Sequence[str] = ()
    pace: int = 900
    steps: list[dict] = field(default_factory=list)

    def __post_init__(self):
        self._now: dict = {}
        self._place = {str(name): place for place, name in enumerate(self.names)}

    def step(self, say: str, *states: dict) -> None:
        """Adds a step.

        say: a sentence about what happened.
        states: values by key, from panels' `at(…)`. A value that none of them has stays.
        """
        values = {key: self._value(value) for state in states for key, value in state.items()}
        new = object()  # equals no value, so that the first step sets all of them
        changed = {
            key: value for key, value in values.items() if self._now.get(key, new) != value
        }
        self._now |= changed
        self.steps.append({"say": say, "set": changed})

    def _value(self, value):
        if not isinstance(value, Cell):
            return value
        users = [self._place[str(name)] for name in value.users]
        return [users, value.filled, value.shows, value.tells]

    def state(self, step: int) -> dict:
        """All values after a step, by key."""
        values: dict = {}
        for each in self.steps[: step + 1]:
            values |= each["set"]
        return values

    def as_json(self) -> dict:
        return {
            "title": self.title,
            "names": [*self._place],
            "pace": self.pace,
            "views": [view.as_json() for view in self.views],
            "steps": self.steps,
        }

    def player(self, alt: str, still: int = -1) -> "Player":
        """The recording, ready to be shown.

        alt: says in words what the still picture shows.
        still: the step of the picture, for places where no script runs.
        Raises ValueError if `alt` is empty.
        """
        if not alt.strip():
            raise ValueError("alt is empty; say in a sentence what the still shows.")
        return Player(self, alt, still % len(self.steps))


@dataclass(frozen=True)
class Player:
    """Plays a recording in any page that runs scripts, and is a picture anywhere else.

    Give it as the last line of a cell. It loads nothing from elsewhere.
    """

    recording: Recording
    alt: str
    still: int = 0

    @property
    def svg(self) -> str:
        """The still."""
        return draw(self.recording, self.still)

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.svg.encode()).decode()
        words = "".join(
            f"<li>{html.escape(step['say'])}</li>" for step in self.recording.steps
        )
        return (
            '<div class="pool-player" data-lm-suppress-shortcuts="true">'
            f"<style>{style(len(self.recording.names), *self._more_files)}</style>"
            f'<img alt="{html.escape(self.alt)}" src="data:image/svg+xml;base64,{data}"'
            ' style="max-width:100%">'
            f"<details><summary>The steps in words</summary><ol>{words}</ol></details>"
            f'<script type="application/json">{self._data()}</script></div>'
            f"<script>(()=>{{{script(*self._more_files)}\n"
            "startPlayers(document.currentScript)})()</script>"
        )

    @property
    def _more_files(self) -> list[str]:
        """The names of scripts and styles that only some kinds of panels need."""
        panels = [panel for view in self.recording.views for panel in view.panels]
        return sorted({panel.files for panel in panels if hasattr(panel, "files")})

    def _data(self) -> str:
        """The recording without its sentences, because the list of steps has them."""
        about = self.recording.as_json() | {"still": self.still}
        about["steps"] = [step["set"] for step in self.recording.steps]
        text = json.dumps(about, ensure_ascii=False, separators=(",", ":"))
        return text.replace("<", "\\u003c")

    def __repr__(self):
        return f"Player of {len(self.recording.steps)} steps: {self.alt}"


@cache
def script(*more: str) -> str:
    """player.js, which defines `createPlayer(root, recording)` and `startPlayers(script)`.

    more: the names of scripts with further kinds of panels.
    """
    return _texts("js", more)


def _texts(suffix: str, more: Iterable[str]) -> str:
    """Files without indentation and comment lines, because each notebook carries the text."""
    files = [HERE / f"{name}.{suffix}" for name in ("player", *more)]
    lines = "".join(file.read_text(encoding="utf-8") for file in files).splitlines()
    bare = (line.strip() for line in lines)
    return "".join(f"{line}\n" for line in bare if line and not line.startswith("//"))


def style(num_names: int, *more: str) -> str:
    """player.css, the styles of further kinds of panels, and looks for this number of
    requests.

    more: the names of styles with further kinds of panels.
    """
    looks = [AGAIN_LOOK, SHARED_LOOK, *map(request_look, range(min(max(num_names, 5), 20)))]
    return _texts("css", more) + "".join(f".pool-player {look.css}" for look in looks)
