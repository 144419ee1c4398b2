"""Turns each lesson's source into the executed solution notebook and the student notebook.

python -m tools.notebooks              render and execute all lessons
python -m tools.notebooks 01           lesson 01 only
python -m tools.notebooks --words      do not execute where only words have changed
python -m tools.notebooks --check      change nothing; fail if a notebook is stale or leaks
python -m tools.notebooks --handed-out  the same for learners' notebooks, before a release
"""

import argparse
import functools
import hashlib
import sys
import time
from pathlib import Path

import nbclient
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from lessons_lib import checks
from lessons_lib.guide import handed_out
from lessons_lib.paths import NOTEBOOKS, SOLUTIONS
from lessons_lib.source.lesson import Cell, Lesson, SourceError
from lessons_lib.whole_files import write_whole
from tools.notebooks import only_words, our_answers, pictures
from tools.notebooks.lesson_files import read_lesson

CELL_TIME_LIMIT = 900  # seconds; far more than any cell takes, even on a busy machine
# Shorter lines, such as `return block_id;`, do not give a solution away.
SHORTEST_SECRET = 20
WIDGET = "application/vnd.jupyter.widget-view+json"
KERNEL = {
    "kernelspec": {
        "name": "python3",
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
    },
    "language_info": {"name": "python"},
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Build the course's notebooks from solutions/NN_topic.py."
    )
    parser.add_argument(
        "lessons", nargs="*", help="numbers of lessons, such as 01; all without any"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing, and fail when anything is out of step",
    )
    parser.add_argument(
        "--handed-out",
        action="store_true",
        help="change nothing, and fail when notebooks/ is not what the sources give",
    )
    parser.add_argument(
        "--words",
        action="store_true",
        help="keep the outputs of lessons in which only words have changed",
    )
    options = parser.parse_args(arguments)
    try:
        lessons = select(options.lessons)
        if options.handed_out:
            problems = not_as_given(lessons)
        else:
            problems = check(lessons) if options.check else build(lessons, options.words)
    except (SourceError, KeyError) as error:
        problems = [str(error.args[0])]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def select(numbers: list[str]) -> list[Lesson]:
    """The lessons with these numbers, or all of them."""
    paths = sorted(SOLUTIONS.glob("*.py"))
    known = {path.stem.split("_")[0]: path for path in paths}
    if unknown := [number for number in numbers if number not in known]:
        raise SourceError(
            f"There is no lesson {', '.join(unknown)}; the lessons are {', '.join(known)}."
        )
    chosen = [known[number] for number in numbers or known]
    return [_read(path, path.stat().st_mtime_ns) for path in chosen]


@functools.cache
def _read(path: Path, changed: int) -> Lesson:
    """A lesson's source, read again after a change. A check needs each source three times."""
    return read_lesson(path)


def build(lessons: list[Lesson], keep_outputs: bool = False) -> list[str]:
    """Writes both notebooks of each lesson. Returns a line for each failure.

    A lesson that fails to execute keeps its old notebooks.
    keep_outputs: whether a lesson in which only words have changed keeps its outputs.
    """
    problems = leaks(lessons)
    if not problems:
        our_answers.FILE.write_text(our_answers.pack(select([])), encoding="utf-8")
    for lesson in lessons if not problems else []:
        print(f"{lesson.name} … ", end="", flush=True)
        started, path = time.monotonic(), SOLUTIONS / f"{lesson.name}.ipynb"
        kept = (
            keep_outputs
            and path.is_file()
            and only_words.with_outputs_of(
                nbformat.read(path, as_version=4), render_solution(lesson)
            )
        )
        try:
            executed = kept or execute(render_solution(lesson))
        except (
            nbclient.exceptions.CellExecutionError,
            nbclient.exceptions.CellTimeoutError,
            nbclient.exceptions.DeadKernelError,
        ) as error:
            print("failed")
            problems.append(f"{lesson.name}: {error}")
            continue
        _write(path, executed)
        _write(NOTEBOOKS / f"{lesson.name}.ipynb", render_student(lesson))
        print(
            f"{len(lesson.cells)} cells, "
            + ("outputs kept" if kept else f"executed in {time.monotonic() - started:.1f} s")
        )
    return problems


def check(lessons: list[Lesson]) -> list[str]:
    """A line for each notebook that differs from its source, and for each leak."""
    problems = leaks(lessons)
    packed = our_answers.FILE.read_text(encoding="utf-8") if our_answers.FILE.exists() else ""
    if packed != our_answers.pack(select([])):
        problems.append(
            "lessons_content/mistakes/our_answers.json is stale: run `make notebooks`"
        )
    sources = {path.stem for path in SOLUTIONS.glob("*.py")}
    problems += [
        f"{path.parent.name}/{path.name} has no source"
        for folder in (NOTEBOOKS, SOLUTIONS)
        for path in sorted(folder.glob("*.ipynb"))
        if path.stem not in sources
    ]
    for lesson in lessons:
        solution = SOLUTIONS / f"{lesson.name}.ipynb"
        problems += _out_of_step(NOTEBOOKS / solution.name, render_student(lesson))
        problems += _out_of_step(solution, render_solution(lesson))
        if solution.is_file() and not _is_executed(nbformat.read(solution, as_version=4)):
            problems.append(
                f"solutions/{lesson.name}.ipynb has cells without a run: {_remedy(solution)}"
            )
    return problems + handed_out.changed(NOTEBOOKS)


def not_as_given(lessons: list[Lesson]) -> list[str]:
    """Why `notebooks/` cannot be handed out: a sentence for each notebook that differs from
    its source. Notebooks that somebody has worked in come first.
    """
    names = {lesson.name for lesson in lessons}
    return (
        handed_out.changed(NOTEBOOKS)
        or [
            f"notebooks/{path.name} has no source in solutions/: move it to another folder"
            for path in sorted(NOTEBOOKS.glob("*.ipynb"))
            if path.stem not in names
        ]
        or [
            problem
            for lesson in lessons
            for problem in _out_of_step(
                NOTEBOOKS / f"{lesson.name}.ipynb", render_student(lesson)
            )
        ]
    )


def _out_of_step(path: Path, expected: nbformat.NotebookNode) -> list[str]:
    """A sentence if a notebook differs from the one that its source renders."""
    shown = f"{path.parent.name}/{path.name}"
    if not path.is_file():
        return [f"{shown} is missing: {_remedy(path)}"]
    try:
        found = nbformat.read(path, as_version=4)
    except nbformat.reader.NotJSONError:
        return [f"{shown} cannot be read: {_remedy(path)}"]
    if _without_outputs(found) == _without_outputs(expected):
        return []
    return [f"{shown} is not what solutions/{path.stem}.py renders: {_remedy(path)}"]


def _remedy(path: Path) -> str:
    return f"run `make notebooks ARGS={path.stem.split('_')[0]}`"


def leaks(lessons: list[Lesson]) -> list[str]:
    """Lines of a solution that a student notebook shows, when rendered or in notebooks/."""
    every_lesson = select([])
    secrets = {
        line: cell.exercise
        for lesson in every_lesson
        for cell in lesson.cells
        if cell.kind == "exercise"
        for line in cell.solution_lines()
        if len(line) >= SHORTEST_SECRET
    }
    problems = []
    for lesson in lessons:
        path = NOTEBOOKS / f"{lesson.name}.ipynb"
        shown = [("would show", render_student(lesson))]
        if path.is_file() and handed_out.parse(path.read_bytes()):
            shown.append(("shows", nbformat.read(path, as_version=4)))
        for verb, notebook in shown:
            lines = {
                line.strip() for cell in notebook.cells for line in cell.source.split("\n")
            }
            problems += [
                f"notebooks/{lesson.name}.ipynb {verb} a solution, that of exercise "
                f"{secrets[line]}: {line} (write it in other words, or hide it in a region)"
                for line in sorted(lines & secrets.keys())
            ]
            if any("SOLUTION" in line for line in lines):
                problems.append(f"notebooks/{lesson.name}.ipynb {verb} a solution marker")
    return problems


def render_student(lesson: Lesson) -> nbformat.NotebookNode:
    notebook = _notebook(lesson, Cell.student)
    handed_out.stamp(notebook)
    return notebook


def render_solution(lesson: Lesson) -> nbformat.NotebookNode:
    return _notebook(lesson, Cell.solution)


def execute(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with outputs, run from top to bottom in solutions/.

    The outputs are the same on any machine.
    """
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_TIME_LIMIT,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
        # On a busy machine, a cell's text arrives in pieces.
        coalesce_streams=True,
        resources={"metadata": {"path": str(SOLUTIONS)}},
    )
    executed = client.execute()
    # without nbclient's notes: the Python version, and widgets
    executed.metadata = dict(KERNEL)
    for cell in executed.cells:  # the widgets are gone
        if cell.cell_type == "code":
            cell.outputs = [
                each for each in cell.outputs if WIDGET not in each.get("data", {})
            ]
    return executed


def _notebook(lesson: Lesson, text) -> nbformat.NotebookNode:
    identifiers = _identifiers(lesson)
    cells = []
    for cell, identifier in zip(lesson.cells, identifiers, strict=True):
        if cell.kind == "markdown":
            shown, attachments = pictures.put_into(cell.source, lesson.name)
            cells.append(new_markdown_cell(shown, id=identifier))
            if attachments:
                cells[-1].attachments = attachments
        else:
            cells.append(new_code_cell(text(cell), id=identifier, metadata=_metadata(cell)))
    return new_notebook(cells=cells, metadata=dict(KERNEL))


def _metadata(cell: Cell) -> dict:
    """The cell's metadata: its exercise, and nbgrader's (schema version 3)."""
    metadata = {"tags": list(cell.tags)} if cell.tags else {}
    if cell.exercise is None:
        return metadata
    is_check = cell.kind == "check"
    grader = {
        "schema_version": 3,
        "grade_id": f"{cell.kind}-{cell.exercise.replace('.', '-')}",
        "grade": is_check,
        "locked": is_check,
        "solution": not is_check,
        "task": False,
    }
    if is_check:
        grader["points"] = checks.find(cell.exercise).points
    return metadata | {cell.kind: cell.exercise, "nbgrader": grader}


def _identifiers(lesson: Lesson) -> list[str]:
    """An id for each cell: by name for exercises and checks, by content for other cells.

    So an edit changes only its own cell's id. Cells with the same text are numbered.
    """
    seen: dict[str, int] = {}
    identifiers = []
    for cell in lesson.cells:
        if cell.exercise:
            base = f"{cell.kind}-{cell.exercise.replace('.', '-')}"
        else:
            base = f"{cell.kind}-{hashlib.sha256(cell.source.encode()).hexdigest()[:8]}"
        seen[base] = seen.get(base, 0) + 1
        identifiers.append(base if seen[base] == 1 else f"{base}-{seen[base]}")
    return identifiers


def _without_outputs(notebook) -> list[tuple]:
    """The parts that have to equal the source.

    Pictures count by name: their pixels may differ.
    """
    return [
        (
            cell.id,
            cell.cell_type,
            cell.source,
            dict(cell.metadata),
            sorted(cell.get("attachments", {})),
        )
        for cell in notebook.cells
    ]


def _is_executed(notebook) -> bool:
    return all(
        cell.execution_count
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.source.strip()
    )


def _write(path: Path, notebook: nbformat.NotebookNode):
    """Writes the whole notebook, or nothing."""
    nbformat.validate(notebook)
    write_whole(path, nbformat.writes(notebook, version=4) + "\n")
