"""Finds work of a learner in a clone's `notebooks/`, where one worked in earlier versions.

It is in a stash of git, or still in `notebooks/`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lessons_lib.guide import handed_out
from lessons_lib.guide.handed_out import git
from lessons_lib.start import answers


@dataclass(frozen=True)
class Earlier:
    """A notebook that somebody has worked in.

    name: its file's name.
    place: where it was found, in words.
    content: the file.
    """

    name: str
    place: str
    content: bytes


def find(notebooks: Path) -> list[Earlier]:
    """The notebooks in which a learner has changed some text, the newest first.

    notebooks: the folder of the handed-out notebooks, in a clone.
    """
    return [*_in_folder(notebooks), *_in_stashes(notebooks)]


def _in_folder(notebooks: Path) -> Iterator[Earlier]:
    for path in sorted(notebooks.glob("*.ipynb")):
        content = path.read_bytes()
        book = handed_out.parse(content)
        if content and not (book and handed_out.is_untouched(book)):
            yield Earlier(path.name, f"{notebooks.name}/{path.name}", content)


def _in_stashes(notebooks: Path) -> Iterator[Earlier]:
    listed = git(notebooks, "stash", "list", "--format=%H") or b""
    for stash in listed.decode().split():
        changed = ["diff", "--name-only", "-z", "--relative", f"{stash}^1", stash, "--", "."]
        # files that git did not track
        new = ["ls-tree", "-z", "--name-only", f"{stash}^3", "./"]
        for commit, words in ((stash, changed), (f"{stash}^3", new)):
            names = (git(notebooks, *words) or b"").decode("utf-8", "surrogateescape")
            for name in sorted(names.split("\0")):
                if name.endswith(".ipynb") and "/" not in name:
                    content = git(notebooks, "show", f"{commit}:./{name}")
                    given = git(notebooks, "show", f"{stash}^1:./{name}") or b""
                    if content and _has_changes(content, given):
                        yield Earlier(name, "a stash of git", _with_stubs(content, given))


def _has_changes(content: bytes, given: bytes) -> bool:
    """Whether the text differs from the one handed out. Running a notebook changes no text."""
    book, before = handed_out.parse(content), handed_out.parse(given)
    if book is None or before is None:
        return True
    if handed_out.is_untouched(book):
        return False  # a maintainer has made it anew
    return handed_out.digest(book) != handed_out.digest(before)


def _with_stubs(content: bytes, given: bytes) -> bytes:
    """The notebook, with the digests of its exercises as they were handed out."""
    book, before = handed_out.parse(content), handed_out.parse(given)
    if book is None or before is None or handed_out.is_stamped(book):
        return content
    answers.remember_stubs(book, before)
    return handed_out.as_file(book)
