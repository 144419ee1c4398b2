"""A class whose notebooks a stand-in grades: it does what the first cell says."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

import graded
from graded import ALL_RIGHT
from lessons_grading import command
from lessons_grading.grades import SubmissionGrade

GRADER = "fake_grader:fake_grade"


def fake_grade(notebook, name, student, seed, limits):
    """Notes each call in a folder that the second cell names."""
    order, folder = (cell.source for cell in notebook.cells[:2])
    calls = Path(folder) / student
    with calls.open("a") as file:
        file.write(f"{os.getpid()}\n")
    tried = len(calls.read_text().split())
    more = {}
    match order.split():
        case ["raise"]:
            raise OSError(28, "No space left on device")
        case ["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["die", "once"] if tried == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["down"]:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(3600)
        case ["down", "once"] if tried == 1:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(3600)
        case ["until", path]:
            while not Path(path).exists():
                time.sleep(0.05)
        case ["wait", seconds]:
            time.sleep(float(seconds))
        case ["big"]:
            more = {"events": ("x" * (5 << 20),)}
        case ["open"]:
            more = {"is_final": False}
        case ["open", "once"]:
            more = {"is_final": tried > 1}
        case ["over"]:
            more = {"is_final": False, "is_over": True}
        case ["event", *words]:
            more = {"events": (" ".join(words),), "tried": 3, "repeated": 2}
    about = {"events": (f"seed {seed}",), "is_final": True} | more
    digest, lesson = notebook.digest, notebook.lesson or "00"
    return SubmissionGrade(student, name, digest, lesson, (ALL_RIGHT,), seconds=0.1, **about)


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
