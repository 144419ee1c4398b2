"""A class whose notebooks a stand-in grades."""

import json
from pathlib import Path

import pytest

import graded
from lessons_grading import command

GRADER = "fake_grade:fake_grade"


class Class:
    """Submissions in a folder, and how often each was tried."""

    def __init__(self, folder: Path):
        self.folder, self.calls = folder / "class", folder / "calls"
        self.results = folder / "results"
        self.folder.mkdir()
        self.calls.mkdir()

    def hand_in(self, student: str, order: str = "go", code_of: str = "") -> Path:
        """code_of: whose code it is; else it is the student's own."""
        cells = order, str(self.calls), f"check('0.1', {code_of or student})"
        path = graded.hand_in(self.folder, *cells, name=f"{student}.ipynb")
        content = json.loads(path.read_text()) | {"metadata": {"author": student}}
        path.write_text(json.dumps(content))
        return path

    def tried(self, student: str) -> int:
        path = self.calls / student
        return len(path.read_text().split()) if path.exists() else 0

    def all_tried(self) -> dict[str, int]:
        return {path.name: self.tried(path.name) for path in sorted(self.calls.iterdir())}

    def run(self, *words: str) -> int:
        usual = [str(self.folder), "--workers", "1", "--no-sandbox"]
        return command.main([*usual, *words], grader=GRADER)

    def grades(self) -> dict[str, dict]:
        """What the results say of each student."""
        data = json.loads((self.results / "results.json").read_text())
        return {grade["student"]: grade for grade in data["submissions"]}


@pytest.fixture
def students(tmp_path) -> Class:
    return Class(tmp_path)
