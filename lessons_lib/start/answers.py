"""Takes a learner's answers out of their notebooks, and puts them into a new version.

An answer is an exercise cell whose text differs from the text that was handed out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lessons_lib.guide import handed_out
from lessons_lib.guide.handed_out import digest_of_cell, text_of

# Git's merge marks in a file that was changed on both sides. The second side was stashed.
_MERGED = re.compile(
    rb"^<{7}[^\n]*\n(.*?)(?:^\|{7}[^\n]*\n.*?)?^={7}\n(.*?)^>{7}[^\n]*(?:\n|\Z)",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Taken:
    """The exercises whose answers are in the new version.

    differ: those whose text has changed since the answer was written, so it may not fit.
    gone: exercises with an answer that the new version does not have.
    sources: the names of the notebooks that the answers are from.
    """

    answers: tuple[str, ...] = ()
    differ: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def read(path: Path) -> dict | None:
    """A learner's notebook. If it has merge marks, the stashed side, or else the other side.
    None if neither side is a notebook.
    """
    try:
        content = path.read_bytes()
    except OSError:
        return None
    sides = (content, _MERGED.sub(rb"\2", content), _MERGED.sub(rb"\1", content))
    return next((book for side in sides if (book := handed_out.parse(side))), None)


def remember_stubs(notebook: dict, given: dict) -> None:
    """Adds the digests of its handed-out exercises to a learner's notebook of an earlier
    version.

    given: the same notebook, as it was handed out.
    """
    stubs = {number: text_of(cells[0]) for number, cells in _exercises(given).items()}
    for number, cells in _exercises(notebook).items():
        for cell in cells:
            if number in stubs:
                cell["metadata"]["given"] = digest_of_cell(stubs[number])


def fill(new: dict, books: Mapping[str, dict]) -> Taken:
    """Puts the answers of `books` into the exercise cells of `new`.

    books: the learner's notebooks by their names. The first notebook that has an answer
        counts. But an answer that an earlier update has copied gives way to the learner's
        newer answer.
    """
    old = {name: _exercises(book) for name, book in books.items()}
    stubs = {number: cells[0] for number, cells in _exercises(new).items()}
    before = {
        cell["metadata"].get("taken")
        for each in old.values()
        for cells in each.values()
        for cell in cells
    }
    answers, differ, sources = [], [], dict[str, None]()
    for number, stub in stubs.items():
        found = [
            (answer, cells[0], name)
            for name, each in old.items()
            if (cells := each.get(number)) and (answer := _answer(cells, stub))
        ]
        if not found:
            continue
        # of equal entries, min() gives the first
        answer, _, name = min(found, key=lambda one: digest_of_cell(one[0]) in before)
        # A merge by git may have put an old answer into a cell with the new version's stamp.
        if any(_differ(cell, text, stub) for text, cell, _ in found if text == answer):
            differ.append(number)
        stub["source"] = answer.splitlines(keepends=True)
        stub["metadata"]["taken"] = digest_of_cell(answer)
        answers.append(number)
        sources[name] = None
    lessons = {number.split(".")[0] for number in stubs}
    gone = {
        number
        for each in old.values()
        for number, cells in each.items()
        if number not in stubs and number.split(".")[0] in lessons and _answer(cells, None)
    }
    return Taken(tuple(answers), tuple(differ), tuple(sorted(gone)), tuple(sources))


def _exercises(notebook: dict) -> dict[str, list[dict]]:
    """The exercise cells by their numbers. A cell that was split or copied is there twice."""
    found: dict[str, list[dict]] = {}
    for cell in notebook["cells"]:
        number = cell["metadata"].get("exercise")
        if isinstance(number, str) and cell.get("cell_type") == "code":
            found.setdefault(number, []).append(cell)
    return found


def _answer(cells: list[dict], stub: dict | None) -> str:
    """The learner's text in the cells of one exercise; "" if there is no answer."""
    texts = [text_of(cell) for cell in cells]
    if all(_is_stub(text, cell, stub) for text, cell in zip(texts, cells)):
        return ""
    return "\n\n".join(dict.fromkeys(text for text in texts if text.strip()))


def _is_stub(text: str, cell: dict, stub: dict | None) -> bool:
    """Whether a cell has no answer. A cell without a stamp, from an earlier version, has no
    answer if each of its lines is in today's stub.
    """
    given = cell["metadata"].get("given")
    own = digest_of_cell(text)
    if not text.strip() or own == given or (stub and own == digest_of_cell(text_of(stub))):
        return True
    return given is None and stub is not None and _lines(text) <= _lines(text_of(stub))


def _differ(cell: dict, answer: str, stub: dict) -> bool:
    """Whether the exercise's text was another one when it was handed out."""
    if given := cell["metadata"].get("given"):
        return given != digest_of_cell(text_of(stub))
    # this line of the stub is not in an answer
    fails = f'"Exercise {stub["metadata"]["exercise"]}'
    asked = {line for line in _lines(text_of(stub)) if fails not in line}
    return not asked <= _lines(answer)


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.split("\n")} - {""}
