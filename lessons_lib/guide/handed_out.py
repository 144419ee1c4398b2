"""The notebooks as the course hands them out, even if somebody has changed the files.

Each notebook carries a digest of its text, `given` in its metadata, and so does each of its
exercise cells. So a notebook itself shows whether it has been changed, under any name and in
any folder.
"""

import hashlib
import json
import os
import subprocess
from pathlib import Path


class Changed(Exception):
    """The course's notebook has been changed, and git does not have the original."""


def digest(notebook: dict) -> str:
    """A digest of all cells' texts. Outputs do not count, so running changes nothing."""
    texts = [(cell.get("cell_type"), text_of(cell)) for cell in notebook["cells"]]
    return hashlib.sha256(repr(texts).encode("utf-8", "backslashreplace")).hexdigest()


def digest_of_cell(text: str) -> str:
    """A digest of a cell's text. An editor may add or remove spaces at the ends of lines."""
    plain = "\n".join(line.rstrip() for line in text.split("\n")).strip()
    return hashlib.sha256(plain.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def text_of(cell: dict) -> str:
    return "".join(cell["source"])


def stamp(notebook: dict) -> None:
    """Writes the digests of today's text into a notebook and its exercise cells."""
    for cell in notebook["cells"]:
        if "exercise" in cell["metadata"]:
            cell["metadata"]["given"] = digest_of_cell(text_of(cell))
    notebook["metadata"]["given"] = digest(notebook)


def is_stamped(notebook: dict) -> bool:
    return "given" in notebook["metadata"]


def is_untouched(notebook: dict) -> bool:
    """Whether the text is still the one that was handed out; False without a stamp."""
    return notebook["metadata"].get("given") == digest(notebook)


def parse(content: bytes) -> dict | None:
    """The notebook in a file's content; None if it is none, as with merge marks in it."""
    try:
        notebook = json.loads(content)
        for part in (notebook, *notebook["cells"]):
            part.setdefault("metadata", {}).get("given")
        digest(notebook)
        return notebook
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def as_file(notebook: dict) -> bytes:
    """The notebook's file, written as the course and JupyterLab write it."""
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode(
        "utf-8", "surrogatepass"
    )


def read(path: Path) -> dict:
    """A notebook of the course, without outputs, from git if the file has been changed.

    Raises Changed, with what to do, if git does not have it.
    Raises OSError if the file cannot be read and git does not have it.
    """
    content = path.read_bytes() if path.exists() else b""
    notebook = parse(content)
    if notebook is None or (is_stamped(notebook) and not is_untouched(notebook)):
        notebook = _newest_in_git(path)
    if notebook is None:
        raise Changed(
            f"{path.parent.name}/{path.name} is not what the course hands out. To put it "
            f"back: git restore {path.parent.name}/{path.name}"
        )
    for cell in notebook["cells"]:
        if cell.get("outputs"):
            cell |= {"outputs": [], "execution_count": None}
    return notebook


def name_of_new(name: str, digest_of_new: str) -> str:
    """The file name of a new version that is put beside a changed notebook.

    It has the digest.
    """
    stem, suffix = os.path.splitext(name)
    return f"{stem} (new {digest_of_new[:8]}){suffix}"


def is_here() -> bool:
    """Whether this kernel runs in the course's own folder of notebooks, where nobody works."""
    here = Path.cwd()
    return here.name == "notebooks" and (here.parent / "tools" / "notebooks").is_dir()


def changed(folder: Path) -> list[str]:
    """A sentence for each notebook of a folder that differs from the one that was handed out.

    Needs nothing but Python, so that the build of the wheel can call it.
    """
    problems = []
    for path in sorted(folder.glob("*.ipynb")):
        notebook = parse(path.read_bytes())
        if notebook is None or not is_untouched(notebook):
            problem = "has been changed by hand, and may hold somebody's answers"
        elif any(cell.get("outputs") for cell in notebook["cells"]):
            problem = "holds outputs of cells that somebody has run"
        else:
            continue
        name = f"{folder.name}/{path.name}"
        problems.append(f"{name} {problem}. To put it back: git restore {name}")
    return problems


def _newest_in_git(path: Path) -> dict | None:
    """The newest committed version of a notebook that still fits its stamp."""
    log = git(path.parent, "log", "-30", "--format=%H", "--", path.name)
    for revision in (log or b"").decode().split():
        content = git(path.parent, "show", f"{revision}:./{path.name}")
        notebook = parse(content or b"")
        if notebook is not None and is_untouched(notebook):
            return notebook
    return None


def git(folder: Path, *words: str) -> bytes | None:
    """The text that git prints in a folder; None if git fails or is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
