"""Drafts a `.mistakes` entry from answers that fail alike.

    make grade ARGS="draft RESULTS GROUP FOLDER"

The class page shows the names of the groups. The teacher then writes the mistake's name and
message into the draft, and the next run that is given this folder names it for all.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lessons_grading.answer_text import answer_text, as_edits
from lessons_grading.class_page import UNNAMED, Group, way_of
from lessons_grading.digests import write_whole
from lessons_grading.grades import ExerciseGrade, SubmissionGrade
from lessons_grading.notebook import read_notebook
from lessons_grading.store import FILE, last_run
from lessons_grading.submissions import text_of
from lessons_lib import checks
from lessons_lib.checks import Exercise

MOST_LOOKED_AT = 50  # answers of a group; the shortest draft of them is taken
NAME = "name-this-mistake"


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0 if there is a draft. Exits with 2, and a sentence, if there can be none."""
    parser = argparse.ArgumentParser(
        "python -m lessons_grading draft", description=__doc__.split("\n")[0]
    )
    parser.add_argument("results", type=Path, metavar="RESULTS", help="the folder of results")
    parser.add_argument("group", metavar="GROUP", help="as the class page names it")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of your own mistakes")
    arguments = parser.parse_args(words)
    try:
        file = draft(arguments.results.resolve(), arguments.group, arguments.folder)
    except (OSError, ValueError) as error:
        parser.error(text_of(str(error)))
    print(
        f"Drafted: {text_of(str(file))}\n"
        f"Read it: it runs outside of the sandbox. Write a name instead of {NAME}, and a\n"
        "message below it. Then try it, and grade again:\n"
        f'  make grade ARGS="mistakes {text_of(str(arguments.folder))}"\n'
        f"  make grade SUBMISSIONS=… MISTAKES={text_of(str(arguments.folder))}"
    )
    return 0


def draft(results: Path, group: str, folder: Path) -> Path:
    """Writes the draft into `folder` and returns its file.

    Raises ValueError or OSError, with a sentence, if there can be none.
    """
    if not (results / FILE).exists():
        raise ValueError(f"{results} holds no {FILE}: name the folder that a class page is in")
    members = [*_members(results, group)]
    if not members:
        raise ValueError(
            f"there is no group {group} in the last run. The class page names the groups, "
            "below answers that fail in the same way"
        )
    exercise = checks.find(members[0][1].exercise)
    best, example = _shortest(results, members, exercise)
    file = folder / f"{group}.mistakes"
    if file.exists():
        raise ValueError(f"{file} is there already: delete it to draft it again")
    write_whole(file, _entry(group, members, example, best))
    return file


def _members(
    results: Path, group: str
) -> Iterator[tuple[Path, ExerciseGrade, SubmissionGrade]]:
    """The notebook, the grade of its exercise and all its grades, for each of the group."""
    for path, grade in last_run(results):
        for entry in grade.exercises:
            if entry.mistake in UNNAMED:
                named = Group(entry.exercise, str(entry.mistake), way_of(entry)).name
                if named == group:
                    yield path, entry, grade


def _shortest(results: Path, members: list, exercise: Exercise) -> tuple[str, SubmissionGrade]:
    """The shortest lines of an entry that an answer of the group gives, edits before texts."""
    found = []
    for number, (path, _, grade) in enumerate(members[:MOST_LOOKED_AT]):
        try:
            text = answer_text(read_notebook(path), exercise)
            if not text:
                continue
            edited = as_edits(text, exercise)
        except RecursionError:  # such as a sum of hundreds
            continue
        lines = edited or "\n".join(f"    {line}".rstrip() for line in text.split("\n"))
        found.append((edited is None, len(lines), number, lines, grade))
    if not found:
        raise ValueError(
            f"no notebook of this group defines `{exercise.answer_name}` in a way that can be "
            "read without running it"
        )
    *_, lines, grade = min(found)
    return lines, grade


def _entry(group: str, members: list, example: SubmissionGrade, lines: str) -> str:
    way = way_of(members[0][1]).split("\n")
    count = len(members)
    about = [
        f"Group {group}: {count} answer{'s fail' if count != 1 else ' fails'} like this. "
        f"The text is {example.student}'s, in {example.notebook}.",
        *way,
        "A student's code runs outside of the sandbox when it is in this file: read it first.",
        f"Then write a name instead of {NAME}, and below it what the learner reads.",
    ]
    comments = [f"# {text_of(line)}" for line in about]
    return "\n".join([*comments, f"## {NAME}", "", lines.rstrip("\n"), ""])


if __name__ == "__main__":
    sys.exit(main())
