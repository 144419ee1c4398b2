"""Keeps the results of earlier runs, and the mutants that no test can notice."""

import ast
import hashlib
import json
import tomllib
from functools import cache
from pathlib import Path

from .mutant import Mutant
from .runner import Verdict


class Results:
    """Verdicts, a line of JSON for each in a file.

    A killed mutant stays killed while the test that killed it is the same. A survivor stays
    one while all its tests are the same.
    """

    def __init__(self, root: Path, file: Path, fresh: bool = False):
        self.root, self.file, self._known = root, file, {}
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and not fresh:
            for line in file.read_text().splitlines():
                record = json.loads(line)
                self._known[record["mutant"]] = record

    def find(self, mutant: Mutant, tests: list[str]) -> Verdict | None:
        record = self._known.get(mutant.key)
        if record is None or record["tests"] != self._mark(tests, record["by"]):
            return None
        return Verdict(record["outcome"], record["by"], record["seconds"])

    def add(self, mutant: Mutant, tests: list[str], verdict: Verdict):
        record = {
            "mutant": mutant.key,
            "path": mutant.path,
            "line": mutant.line,
            "outcome": verdict.outcome,
            "by": verdict.by,
            "seconds": round(verdict.seconds, 2),
            "tests": self._mark(tests, verdict.by),
        }
        self._known[mutant.key] = record
        with open(self.file, "a") as file:
            file.write(json.dumps(record) + "\n")

    def _mark(self, tests: list[str], by: str) -> str:
        """A mark that changes when the tests that the verdict depends on change."""
        file, _, name = by.partition("::")
        text = (
            _function_text(self.root / file, name.partition("[")[0].split("::")[-1])
            if name
            else ""
        )
        return _hashed(text or "".join(_text(self.root / test) for test in tests))


@cache
def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@cache
def _function_text(path: Path, name: str) -> str:
    """The text of the test `name`, or "" if there is no such test."""
    text = _text(path)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_source_segment(text, node)
    return ""


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Explained:
    """Mutants that mean the same as the original, with the reason. They are in explained.toml,
    and in answers.toml for our answers to exercises.
    """

    def __init__(self, root: Path, name: str = "explained.toml"):
        file = root / "tools/mutants" / name
        entries = tomllib.loads(file.read_text())["mutant"] if file.exists() else []
        self.reasons = {
            (
                entry["file"],
                entry["function"],
                entry["was"].strip(),
                entry["becomes"].strip(),
            ): entry["reason"]
            for entry in entries
        }
        if len(self.reasons) < len(entries):
            raise ValueError(f"an entry of {file.name} is there twice")

    def reason(self, mutant: Mutant) -> str:
        return self.reasons.get(mutant.place, "")

    def unused(self, mutants: list[Mutant]) -> list[tuple[str, str, str, str]]:
        """The entries about these mutants' files that fit none of the mutants."""
        files = {mutant.path for mutant in mutants}
        places = {mutant.place for mutant in mutants}
        return [place for place in self.reasons if place[0] in files and place not in places]
