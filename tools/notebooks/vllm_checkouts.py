"""Looks whether each place in `vllm_places.toml` exists in a copy of its project:

    python -m tools.notebooks.vllm_checkouts vLLM=FOLDER nano-vllm=FOLDER …

A folder is a clone of the project that has the commit, bare or not, or the unpacked source
archive of the release. Projects without a folder are left out, and the last lines say so.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from lessons_lib.source.include import SourceError
from lessons_lib.source.vllm_places import FILE, Place, Project, Row, read_rows


class Checkout:
    """A project's files at its commit.

    Raises SourceError if the folder is neither a clone that has the commit nor the release.
    """

    def __init__(self, project: Project, folder: Path):
        self.commit, self.folder = project.commit, folder
        self.is_clone = self._git("rev-parse", "--git-dir") is not None
        if self.is_clone:
            if self._git("cat-file", "-e", f"{self.commit}^{{commit}}") is None:
                raise SourceError(
                    f"{folder} has no commit {self.commit}: fetch {project.name} "
                    f"{project.release} from {project.url}"
                )
        elif f"\nVersion: {project.release}\n" not in (self.text("PKG-INFO") or ""):
            raise SourceError(
                f"{folder} is neither a clone of {project.url} nor the source archive of "
                f"{project.name} {project.release}, with its PKG-INFO"
            )

    def text(self, path: str) -> str | None:
        """A file's text, or None if it does not exist."""
        if self.is_clone:
            return self._git("show", f"{self.commit}:{path}")
        file = self.folder / path
        return file.read_text(encoding="utf-8") if file.is_file() else None

    def _git(self, *words: str) -> str | None:
        """The output of git for this folder itself, not for one above; None if it fails."""
        command = ["git", "-C", str(self.folder), *words]
        ceiling = {"GIT_CEILING_DIRECTORIES": str(self.folder.resolve().parent)}
        run = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **ceiling}
        )
        return run.stdout if run.returncode == 0 else None


def missing(rows: Iterable[Row], checkouts: dict[str, Checkout]) -> list[str]:
    """A sentence for each place that is missing in its checkout.

    checkouts: by the project's name; places in other projects are left out.
    """
    return [
        f"lesson {row.lesson}, {row.wrote}: {place.project.name} {fault}"
        for row in rows
        for place in row.places
        if place.project.name in checkouts
        and (fault := _fault(place, checkouts[place.project.name].text(place.path)))
    ]


def _fault(place: Place, text: str | None) -> str:
    if text is None:
        return f"{place.project.release} has no {place.path}"
    is_defined = _in_python if place.path.endswith(".py") else _in_cpp
    if not is_defined(text, place.name):
        return f"{place.project.release} defines no {place.name} in {place.path}"
    return ""


def _in_python(text: str, name: str) -> bool:
    nodes: list[ast.AST] = [ast.parse(text)]
    for part in name.split("."):
        nodes = [
            child
            for node in nodes
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and child.name == part
        ]
    return bool(nodes)


def _in_cpp(text: str, name: str) -> bool:
    """Whether there is a class, or a function with its body, of that name."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    name = re.escape(name)
    if re.search(rf"\b(?:class|struct)\s+{name}\b[^;{{()]*\{{", code):
        return True
    return any(
        re.match(r"\s*(?:const\s*|noexcept\s*)*\{", code[_end_of_call(code, match.end()) :])
        for match in re.finditer(rf"\b{name}\s*\(", code)
    )


def _end_of_call(code: str, place: int) -> int:
    """The position of the parenthesis that closes the one opened before `place`."""
    depth = 1
    while depth and place < len(code):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        place += 1
    return place


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m tools.notebooks.vllm_checkouts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", nargs="+", metavar="PROJECT=FOLDER")
    parser.add_argument(
        "--places", type=Path, default=FILE, help="another file of rows (default: ours)"
    )
    options = parser.parse_args(words)
    try:
        rows = read_rows(options.places)
        places = [place for row in rows for place in row.places]
        projects = {place.project.name: place.project for place in places}
        checkouts = {}
        for name, _, folder in (text.partition("=") for text in options.folders):
            if name not in projects or not folder:
                raise SourceError(f"{name} is not PROJECT=FOLDER, of {', '.join(projects)}")
            checkouts[name] = Checkout(projects[name], Path(folder))
    except SourceError as error:
        print(error, file=sys.stderr)
        return 2
    problems = missing(rows, checkouts)
    for problem in problems:
        print(problem, file=sys.stderr)
    for name, project in projects.items():
        number = sum(place.project == project for place in places)
        looked = "looked at" if name in checkouts else "not looked at, without a folder:"
        print(f"{name} {project.release}: {looked} {number}")
    print(f"missing: {len(problems)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
