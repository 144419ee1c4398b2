"""Makes and updates the learner's own copies of the notebooks, and never overwrites work.

A notebook is untouched if the text of its cells is the text that was handed out; running it
does not change the text. A new version replaces an untouched notebook. If a learner has
changed a notebook, it stays, and the new version is put beside it, with the learner's answers.
A list in the folder, `.lessons.json`, has the version of each file that was copied last.
"""

import fcntl
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from lessons_lib.guide import handed_out
from lessons_lib.start import answers
from lessons_lib.start.earlier_notebooks import Earlier
from lessons_lib.whole_files import write_whole

LIST = ".lessons.json"


class CannotCopy(Exception):
    """Says why the folder cannot take the lessons, and what to do."""


@dataclass(frozen=True)
class Offer:
    """A new version with the learner's answers, in the file `new`.

    old: the learner's files that the answers are from, or that stay as they are.
    opens: whether the first of these files still opens as a notebook; merge marks prevent it.
    """

    new: str
    old: tuple[str, ...]
    taken: answers.Taken
    opens: bool = True


@dataclass
class Copied:
    """The files that were copied, or why not. Files are named by their paths in the folder.

    kept: changed by the learner, and as new as the course.
    beside: changed by the learner; the new version is beside it.
    filled: notebooks that are new, and have answers from other files.
    earlier: (file, place) of the learner's work from before the folder existed.
    problems: sentences about files that the course could not hand out.
    """

    new: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    beside: list[Offer] = field(default_factory=list)
    filled: list[Offer] = field(default_factory=list)
    earlier: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def bring(notebooks: Path, folder: Path, earlier: Sequence[Earlier] = ()) -> Copied:
    """Copies the files in `notebooks` into `folder`, and keeps the learner's work.

    earlier: the learner's earlier notebooks, the newest first. Their answers are copied once.
    Raises CannotCopy if the folder cannot be made, read or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(folder):
            return _Update(folder).run(notebooks, earlier)
    except OSError as error:
        if folder.exists() and not folder.is_dir():
            raise CannotCopy(f"{folder} is a file. Name a folder for the lessons.") from None
        raise CannotCopy(
            f"The lessons cannot be copied into {folder} ({error.strerror}). What is there "
            "stays as it is. Name a folder that you may write to, or make room."
        ) from None


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Lets one update run at a time. The lock ends with its process."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class _Update:
    """One update of a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.known = _read_list(folder / LIST)
        self.copied = Copied()

    def run(self, notebooks: Path, earlier: Sequence[Earlier]) -> Copied:
        before = dict(self.known)
        found = self._keep_earlier(earlier)
        for source in sorted(path for path in notebooks.rglob("*") if path.is_file()):
            name = source.relative_to(notebooks)
            if name.parts[0].startswith("."):
                continue  # such as JupyterLab's checkpoints
            if source.suffix == ".ipynb" and source.name == str(name):
                self._bring_notebook(source, found.get(str(name), []))
            else:
                self._bring_file(source.read_bytes(), name.as_posix())
        if self.known != before:
            write_whole(self.folder / LIST, json.dumps(self.known, indent=1).encode())
        return self.copied

    def _keep_earlier(self, earlier: Sequence[Earlier]) -> dict[str, list[str]]:
        """Writes the learner's earlier notebooks beside the copies, once. Returns the names of
        the written files, by the lesson's file name.
        """
        kept: dict[str, list[str]] = {}
        for one in reversed(earlier):  # so that the newest is written last
            stem, suffix = os.path.splitext(one.name)
            name = f"{stem} (before {_digest(one.content)[:8]}){suffix}"
            if name in self.known:
                continue
            if not (self.folder / name).exists():
                write_whole(self.folder / name, one.content)
            self.known[name] = _digest(one.content)
            kept.setdefault(one.name, []).insert(0, name)
            self.copied.earlier.append((name, one.place))
        return kept

    def _bring_notebook(self, source: Path, earlier: list[str]) -> None:
        name, mine = source.name, self.folder / source.name
        try:
            new = handed_out.read(source)
        except handed_out.Changed as problem:
            self.copied.problems.append(str(problem))
            return
        ours, last = handed_out.digest(new), self.known.get(name)
        self.known[name] = ours
        if not mine.exists():
            self._write_over(mine, new, self.copied.new)
            return
        content = mine.read_bytes()
        book = handed_out.parse(content)
        theirs = handed_out.digest(book) if book else ""
        if theirs in (ours, last) or (book and handed_out.is_untouched(book)):
            if theirs != ours or earlier:
                self._write_over(mine, new, self.copied.updated)
        elif book and not earlier and ours in (last, book["metadata"].get("given")):
            self.copied.kept.append(name)
        else:
            self._offer_beside(mine, new, ours, earlier, opens=book is not None)

    def _write_over(self, mine: Path, new: dict, plain: list[str]) -> None:
        """Writes the new notebook over an untouched one, or where there is none."""
        taken = answers.fill(new, self._books)
        write_whole(mine, handed_out.as_file(new))
        if taken.answers:
            self.copied.filled.append(Offer(mine.name, taken.sources, taken))
        else:
            plain.append(mine.name)

    def _offer_beside(
        self, mine: Path, new: dict, ours: str, earlier: list[str], opens: bool
    ) -> None:
        taken = answers.fill(new, self._books)
        beside = mine.with_name(handed_out.name_of_new(mine.name, ours))
        if earlier and beside.exists():
            filled = handed_out.digest(new)
            beside = mine.with_name(handed_out.name_of_new(mine.name, filled))
        if beside.exists():
            self.copied.kept.append(mine.name)
            return
        write_whole(beside, handed_out.as_file(new))
        self.copied.beside.append(Offer(beside.name, (mine.name, *earlier), taken, opens))

    @functools.cached_property
    def _books(self) -> dict[str, dict]:
        """The learner's notebooks by their names, the one that was saved last first."""
        paths = sorted(
            self.folder.glob("*.ipynb"), key=lambda path: path.stat().st_mtime_ns, reverse=True
        )
        return {path.name: book for path in paths if (book := answers.read(path))}

    def _bring_file(self, content: bytes, name: str) -> None:
        """Copies a file that is not a notebook. A new version of it gets no answers."""
        mine, ours, last = self.folder / name, _digest(content), self.known.get(name)
        self.known[name] = ours
        theirs = _digest(mine.read_bytes()) if mine.exists() else None
        if theirs is None or theirs == last != ours:
            write_whole(mine, content)
            (self.copied.new if theirs is None else self.copied.updated).append(name)
        elif theirs != ours and last != ours:
            beside = mine.with_name(handed_out.name_of_new(mine.name, ours))
            if not beside.exists():
                write_whole(beside, content)
            new = beside.relative_to(self.folder).as_posix()
            self.copied.beside.append(Offer(new, (name,), answers.Taken()))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_list(path: Path) -> dict[str, str]:
    """The list, or an empty one if it is missing or broken. Then a file counts as changed."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(digest) for name, digest in known.items()}
    except (FileNotFoundError, ValueError, AttributeError):
        return {}
