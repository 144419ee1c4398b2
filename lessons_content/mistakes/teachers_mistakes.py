"""A teacher's own mistakes, in a folder outside the course.

`make grade ARGS="mistakes FOLDER"` tries each of them: does a student see its message?
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lessons_content.exercises.naming_words import counted
from lessons_lib import checks
from lessons_lib.checks import Exercise, Mistake, MistakesError
from lessons_lib.paths import mistakes_folder

LESSONS = Path(__file__).parents[1]


def further_files(pattern: str = "*.mistakes") -> list[Path]:
    """A teacher's own files.

    Raises MistakesError if LESSONS_MISTAKES does not name a folder.
    """
    folder = mistakes_folder()
    if folder and not folder.is_dir():
        raise MistakesError(f"LESSONS_MISTAKES names {folder}, which is no folder.")
    for file in sorted(folder.iterdir()) if folder else []:
        _look_at_name(file)
    return sorted(folder.glob(pattern)) if folder else []


def _look_at_name(file: Path) -> None:
    """Raises MistakesError for a file that would never be read."""
    name = re.fullmatch(r"(\d+)\.(\d+)([^\d].*)?\.mistakes", file.name)
    is_known = name and [*LESSONS.glob(f"lesson_*/e{name[1]}_{name[2]}_*.mistakes")]
    if file.is_file() and not file.name.startswith(".") and not is_known:
        raise MistakesError(
            f"{file}: its name has to begin with an exercise "
            "and to end in .mistakes, such as 2.5.mistakes or 2.5_monday.mistakes."
        )


def main(words: Sequence[str]) -> int:
    """words: the folder; without it, LESSONS_MISTAKES names it."""
    if words:
        os.environ["LESSONS_MISTAKES"] = words[0]
    folder = mistakes_folder()
    if not folder:
        print('Name the folder of your mistakes: make grade ARGS="mistakes FOLDER"')
        return 2
    problems = []
    try:
        for place, slug, problem in _tried():
            print(f"{place}: {slug}: {problem or 'its message is shown.'}", flush=True)
            problems.append(problem)
    except MistakesError as error:
        print(error)
        return 2
    if not problems:
        print(f"There is no file of mistakes in {folder}.")
        return 2
    num_shown = problems.count("")
    show = "shows its message" if num_shown == 1 else "show their message"
    print(f"Of {counted(len(problems), 'form')}, {num_shown} {show}.")
    return int(num_shown < len(problems))


def _tried() -> Iterator[tuple[str, str, str]]:
    """(place, slug, problem or "") of each form as it is written."""
    further_files()
    for lesson in checks.lessons():
        for exercise in checks.exercises_of(lesson):
            for mistake in getattr(exercise.mistakes, "further", ()):
                for form in (mistake.wrong, *mistake.also):
                    if not form.is_respelt:
                        yield form.place, mistake.slug, _problem(exercise, mistake, form)


def _problem(exercise: Exercise, mistake: Mistake, form) -> str:
    answer = form.load() if exercise.language == "python" else form.text
    result = checks.run(exercise.id, answer)
    if result.passed:
        return "the check passes. No case can tell it from our answer."
    if result.mistake != mistake.slug:
        words = result.message.split("\n")[0]
        return f"the course names it first: `{result.mistake}`, {words}"
    return ""
