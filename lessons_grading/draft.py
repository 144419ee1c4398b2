"""Drafts a `.mistakes` entry from answers that fail alike.

    make grade ARGS="draft RESULTS GROUP FOLDER"

The class page shows the names of the groups. The draft has the edits that make our answer into
the shortest one of the group. The teacher writes the mistake's name and message into it, and
the next run that is given this folder names it for all. Nothing of a notebook is run here.
"""

import argparse
import ast
import builtins
import difflib
import re
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from lessons_content.mistakes import edits
from lessons_grading.grades import ExerciseGrade, SubmissionGrade
from lessons_grading.notebook import Notebook, read_notebook
from lessons_grading.store import FILE, last_run
from lessons_grading.students import UNNAMED, group_of, way_of
from lessons_grading.submissions import text_of
from lessons_lib import checks
from lessons_lib.checks import Exercise, MistakesError
from lessons_lib.whole_files import write_whole

MOST_LOOKED_AT = 50  # answers of a group; the shortest draft of them is taken
LARGEST = 20_000  # characters of a cell; ours have a tenth
MOST_EDITS = 3  # more of them, and an answer is another one
NAME = "name-this-mistake"
_IMPORTS = (ast.Import, ast.ImportFrom)
_BODIES = (ast.FunctionDef, ast.ClassDef)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


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
    members = [
        (path, entry, grade)
        for path, grade in last_run(results)
        for entry in grade.exercises
        if entry.mistake in UNNAMED and group_of(entry).name == group
    ]
    if not members:
        raise ValueError(
            f"there is no group {group} in the last run. The class page names the groups, "
            "below answers that fail in the same way"
        )
    entry = _entry(group, members)
    file = folder / f"{group}.mistakes"
    if file.exists():
        raise ValueError(f"{file} is there already: delete it to draft it again")
    write_whole(file, entry)
    return file


def _entry(group: str, members: list[tuple[Path, ExerciseGrade, SubmissionGrade]]) -> str:
    _, failed, _ = members[0]
    lines, example = _shortest(members, checks.find(failed.exercise))
    count = len(members)
    about = [
        f"Group {group}: {count} answer{'s fail' if count != 1 else ' fails'} like this. "
        f"The text is {example.student}'s, in {example.notebook}.",
        *way_of(failed).split("\n"),
        "A student's code runs outside of the sandbox when it is in this file: read it first.",
        f"Then write a name instead of {NAME}, and below it what the learner reads.",
    ]
    comments = [f"# {text_of(line)}" for line in about]
    return "\n".join([*comments, f"## {NAME}", "", lines.rstrip("\n"), ""])


def _shortest(members: list, exercise: Exercise) -> tuple[str, SubmissionGrade]:
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


def answer_text(notebook: Notebook, exercise: Exercise) -> str | None:
    """The last definition of the answer, with what it uses of the notebook's own; or None.

    It has no comments and no docstrings, which are the student's alone.
    """
    defined = _definitions(notebook)
    answer = defined.get(exercise.answer_name)
    if exercise.language != "python":
        match answer:
            case ast.Assign(value=ast.Constant(value=str(text))):
                return _plain(text, exercise) + "\n"
        return None
    if not isinstance(answer, _BODIES):
        return None
    known = {*vars(builtins), *getattr(exercise.mistakes, "scope", {}), "torch"}
    needed: dict[str, ast.stmt] = {}
    waiting = [exercise.answer_name]
    while waiting:
        name = waiting.pop()
        if name in needed or name not in defined:
            continue
        needed[name] = defined[name]
        used = [each.id for each in ast.walk(defined[name]) if isinstance(each, ast.Name)]
        waiting += [each for each in used if each not in known]
    # a text begins with a definition or an import; what a body uses may come after it
    found = [*reversed(needed.values())]
    found.sort(
        key=lambda each: (not isinstance(each, _IMPORTS), not isinstance(each, _BODIES))
    )
    parts = dict.fromkeys(map(_without_docstrings, found))
    return "\n".join(parts) + "\n"


def _definitions(notebook: Notebook) -> dict[str, ast.stmt]:
    """What the code cells define at their top level, by name: the last one counts."""
    defined: dict[str, ast.stmt] = {}
    for source in (*notebook.files.values(), *(cell.source for cell in notebook.cells)):
        if len(source) > LARGEST:
            continue
        source = re.sub(r"(?m)^[ \t]*[%!].*$", "", source)
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            defined |= {name: node for node in ast.parse(source).body for name in _named(node)}
    return defined


def _named(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, _BODIES):
        yield node.name
    elif isinstance(node, _IMPORTS):
        for each in node.names:
            yield (each.asname or each.name).partition(".")[0]
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id


def as_edits(text: str, exercise: Exercise) -> str | None:
    """The entry's lines that make our answer, or another spelling of it, into this text.

    None if the two are far from each other.
    """
    ours = edits.our_answers()[exercise.id]
    lines = [*_changes(_plain(ours, exercise).split("\n"), _plain(text, exercise).split("\n"))]
    if len(lines) > MOST_EDITS:
        return None
    entry = "\n".join(textwrap.indent(each, "    ") for each in lines)
    return entry if _makes(entry, ours, text, exercise) else None


def _plain(text: str, exercise: Exercise) -> str:
    """The lines of code, which an edit can quote: without comments and docstrings."""
    if exercise.language == "python":
        return _without_docstrings(ast.parse(text))
    lines = [line.rstrip() for line in _COMMENT.sub("", text).split("\n")]
    return "\n".join(line for line in lines if line)


def _without_docstrings(node: ast.AST) -> str:
    """The text of a definition, without comments and docstrings."""
    for each in ast.walk(node):
        if isinstance(each, _BODIES) and ast.get_docstring(each):
            each.body = each.body[1:] or [ast.Pass()]
    return ast.unparse(node)


def _changes(ours: list[str], theirs: list[str]) -> Iterator[str]:
    """`old => new` for each place where lines differ."""
    matcher = difflib.SequenceMatcher(
        None,
        [line.strip() for line in ours],
        [line.strip() for line in theirs],
        autojunk=False,
    )
    for kind, start, end, begin, stop in matcher.get_opcodes():
        if kind == "equal":
            continue
        if kind == "insert":  # quote the line before, or the one after
            start, begin = (start - 1, begin - 1) if start else (start, begin)
            end, stop = (end, stop) if start < end else (end + 1, stop + 1)
        old = " ".join(line.strip() for line in ours[start:end])
        new = textwrap.dedent("\n".join(theirs[begin:stop]))
        if "\n" in new:
            yield f"{old} =>\n" + textwrap.indent(new, "    ")
        else:
            yield f"{old} => {new}".rstrip()


def _makes(entry: str, ours: str, text: str, exercise: Exercise) -> bool:
    """Whether the edits make this text of our answer."""
    is_python = exercise.language == "python"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "draft.mistakes"
        words = f"## draft\nA message.\n{entry}\n"
        # a text in C++ may hold half a character
        file.write_bytes(words.encode("utf-8", "backslashreplace"))
        try:
            (section,) = edits.sections(file, is_python)
            made = [made for form in section.forms for made in form.texts(ours, [ours])]
        except MistakesError:
            return False
    wanted = _plain(text, exercise)
    found = [_plain(each, exercise) for each in made]
    # white space makes no difference in C++
    return wanted in found or not is_python and wanted.split() in map(str.split, found)
