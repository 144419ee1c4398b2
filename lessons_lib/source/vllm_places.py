"""Where to find the parts that a lesson builds in other engines: the table at a lesson's end.

vllm_places.toml has the engines, each at one commit, and the rows of all lessons. In a text
cell, a line `PLACES` becomes the lesson's table. `python -m tools.notebooks.vllm_checkouts`
looks whether each place is there.
"""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lessons_lib.source.include import SourceError

FILE = Path(__file__).with_suffix(".toml")
_MARKER = re.compile(r"^PLACES$", re.MULTILINE)


@dataclass(frozen=True)
class Project:
    """One version of another engine.

    release: how people name this version, such as "0.26.0", or the commit's first digits.
    url: of the repository. commit: all 40 digits.
    """

    name: str
    release: str
    url: str
    commit: str


@dataclass(frozen=True)
class Place:
    """A class, function or method ("Class.method"). path: of its file in the repository."""

    project: Project
    path: str
    name: str

    @property
    def link(self) -> str:
        return f"{self.project.url}/blob/{self.project.commit}/{self.path}"

    @property
    def shown(self) -> str:
        """The place in Markdown, where `__init__` would be bold."""
        path = self.path.replace("__", r"\_\_")
        return f"{self.project.name}: [{path}]({self.link}) `{self.name}`"


@dataclass(frozen=True)
class Row:
    """wrote: the learner's part. otherwise: what the engine does in another way, and why."""

    lesson: str
    wrote: str
    places: tuple[Place, ...]
    otherwise: str


def read_rows(file: Path = FILE) -> list[Row]:
    """The rows of all lessons. Raises SourceError naming the row that is not well formed."""
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    projects = {name: Project(name, **fields) for name, fields in data["projects"].items()}
    for project in projects.values():
        if not re.fullmatch(r"[0-9a-f]{40}", project.commit):
            raise SourceError(f"{file.name}, {project.name}: a commit has 40 digits")
    return [
        _row(lesson, fields, projects, f"{file.name}, lesson {lesson}, row {number}")
        for lesson, rows in data["lessons"].items()
        for number, fields in enumerate(rows, 1)
    ]


def _row(lesson: str, fields: dict, projects: dict[str, Project], where: str) -> Row:
    if fields.keys() != {"wrote", "places", "otherwise"} or not all(fields.values()):
        raise SourceError(f"{where}: a row has `wrote`, `places` and `otherwise`")
    places = []
    for text in fields["places"]:
        match text.split():
            case [project, path, name] if project in projects and _is_relative(path):
                places.append(Place(projects[project], path, name))
            case _:
                raise SourceError(
                    f"{where}: {text!r} is not a project ({', '.join(projects)}), a path in "
                    "its repository, and a name, with a space between them"
                )
    return Row(lesson, fields["wrote"], tuple(places), fields["otherwise"])


def _is_relative(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/")


def table(rows: Iterable[Row]) -> str:
    """The rows as a table in Markdown. Its head has the release of each project."""
    rows = list(rows)
    projects = dict.fromkeys(place.project for row in rows for place in row.places)
    releases = ", ".join(f"{project.name} {project.release}" for project in projects)
    lines = [f"| you wrote | in {releases}, and what differs |", "|---|---|"]
    for row in rows:
        parts = [*(place.shown for place in row.places), row.otherwise]
        lines.append(f"| {row.wrote} | {'<br>'.join(parts)} |")
    return "\n".join(lines)


def put_into(text: str, lesson: str) -> str:
    """A text with the lesson's table for `PLACES`.

    lesson: its name, such as "01_block_manager". Raises SourceError if it has no rows.
    """
    if not _MARKER.search(text):
        return text
    rows = [row for row in read_rows() if row.lesson == lesson.split("_")[0]]
    if not rows:
        raise SourceError(f"PLACES: {FILE.name} has no rows for this lesson")
    return _MARKER.sub(lambda _: table(rows), text)
