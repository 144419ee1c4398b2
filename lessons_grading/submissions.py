"""Finds each student's notebooks in a folder, and says what cannot be read."""

import os
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from lessons_grading.grades import SubmissionGrade

DEEPEST = 20  # levels of folders that are searched; nbgrader's have two
MOST_ENTRIES = 100_000  # in a student's folder; a virtual environment alone has about 30,000
MOST_NOTEBOOKS = 100  # of a student, because each one is run
MOST_BYTES = 500 << 20  # of a student's notebooks, because each one is read
NO_FOLLOWING = "links to folders are not followed"


@dataclass(frozen=True)
class Submission:
    """The notebook at `path`, or a student's folder with a `problem`."""

    student: str
    path: Path
    problem: str = ""

    @property
    def name(self) -> str:
        """The name of the notebook's file; "" for a folder."""
        return "" if self.problem else text_of(self.path.name)

    def without_points(self, *events: str) -> SubmissionGrade:
        student, name = self.student, self.name
        return SubmissionGrade(student, name, "", None, (), events, 0.0, is_final=False)


def find_submissions(folder: Path) -> list[Submission]:
    """STUDENT.ipynb, and the notebooks in folders STUDENT/, however deep.

    nbgrader's notebooks are in STUDENT/LESSON/. A student's folder with a problem is one more
    submission, which says so.
    Raises OSError if `folder` itself cannot be read.
    """
    submissions = []
    for entry in _by_name(folder, None):
        path = folder / entry.name
        if _is_hidden(entry):
            continue
        if _leads_to_folder(entry):
            student = text_of(entry.name)
            notebooks, problem = ([], NO_FOLLOWING) if entry.is_symlink() else _look_into(path)
            submissions += [Submission(student, notebook) for notebook in sorted(notebooks)]
            submissions += [Submission(student, path, problem)] if problem else []
        elif _is_notebook(entry):
            submissions.append(Submission(text_of(path.stem), path))
    return submissions


def _look_into(student: Path) -> tuple[list[Path], str]:
    """The notebooks in a student's folder, and what is wrong with it, or "".

    If there are too many notebooks, it gives the nearest ones.
    """
    notebooks, links, problems = list[Path](), list[Path](), list[str]()
    room, bytes_left = MOST_ENTRIES, MOST_BYTES
    level = [student]
    for _ in range(DEEPEST):
        below = []
        for folder in level:
            try:
                entries = _by_name(folder, room + 1)
            except OSError as error:
                problems.append(f"a folder cannot be read: {error.strerror}")
                continue
            room -= len(entries)
            for entry in entries:
                if _is_hidden(entry):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    below.append(folder / entry.name)
                elif _leads_to_folder(entry):
                    links.append(folder / entry.name)
                elif _is_notebook(entry):
                    size = entry.stat(follow_symlinks=False).st_size
                    bytes_left -= size if size <= MOST_BYTES else 0  # else it is not read
                    if bytes_left >= 0:
                        notebooks.append(folder / entry.name)
            if room < 0:
                return (
                    notebooks[:MOST_NOTEBOOKS],
                    f"there are more than {MOST_ENTRIES} files: not all were looked at",
                )
        level = below
    if level:
        problems.append(
            f"there are folders more than {DEEPEST} deep, which were not looked into"
        )
    if len(notebooks) > MOST_NOTEBOOKS:
        problems.append(
            f"there are {len(notebooks)} notebooks, of which {MOST_NOTEBOOKS} are graded"
        )
    if bytes_left < 0:
        problems.append(
            f"its notebooks have more than {MOST_BYTES >> 20} MB: not all are graded"
        )
    elif not notebooks:
        problems.append(
            "there is no notebook in this folder" + (f", and {NO_FOLLOWING}" if links else "")
        )
    return notebooks[:MOST_NOTEBOOKS], "; ".join(dict.fromkeys(problems))


def _by_name(folder: Path, most: int | None) -> list[os.DirEntry]:
    with os.scandir(folder) as entries:
        return sorted(islice(entries, most), key=lambda entry: entry.name)


def _is_notebook(entry: os.DirEntry) -> bool:
    return entry.name.lower().endswith(".ipynb")


def _is_hidden(entry: os.DirEntry) -> bool:
    """Whether it is Jupyter's .ipynb_checkpoints, or what macOS adds to archives."""
    return entry.name.startswith(".") or entry.name == "__MACOSX"


def _leads_to_folder(entry: os.DirEntry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to a place that we may not read
        return False


# Control characters, ends of lines, and what changes the direction of writing.
_HARMFUL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def text_of(name: str) -> str:
    """A file's name as a line of plain text, with escapes for all other characters."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return _HARMFUL.sub(lambda sign: sign[0].encode("unicode_escape").decode(), text)
