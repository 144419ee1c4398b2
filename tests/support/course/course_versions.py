"""Small courses of several versions, and a learner who works in notebooks, for tests."""

import json
import subprocess
from pathlib import Path

from lessons_lib.guide import handed_out
from lessons_lib.start import earlier_notebooks, learner_copies

LESSON = "01_a.ipynb"


def lesson(stubs: dict[str, str], text: str = "Read this.") -> dict:
    """A lesson as the course hands it out: a text, then for each exercise its cell."""
    cells = [{"cell_type": "markdown", "id": "text", "metadata": {}, "source": text}]
    for number, stub in stubs.items():
        cells.append(
            {
                "cell_type": "code",
                "execution_count": None,
                "id": f"exercise-{number.replace('.', '-')}",
                "metadata": {"exercise": number},
                "outputs": [],
                "source": stub.splitlines(keepends=True),
            }
        )
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    handed_out.stamp(notebook)
    return notebook


def stub(number: str, words: str = "Adds.") -> str:
    return f'def f(x):\n    """{words}"""\n    raise NotImplementedError("Exercise {number}")'


def write(path: Path, notebook: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(handed_out.as_file(notebook))


def answer(path: Path, **texts: str) -> None:
    """Types answers and runs all cells, as JupyterLab saves it. e1_1="x = 1" answers 1.1."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for count, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        cell["execution_count"] = count
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": ["seen\n"]}]
        name = "e" + str(cell["metadata"].get("exercise")).replace(".", "_")
        if name in texts:
            cell["source"] = texts[name].splitlines(keepends=True)
    write(path, notebook)


def answers_in(path: Path) -> dict[str, str]:
    """The text of each exercise cell."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return {
        cell["metadata"]["exercise"]: "".join(cell["source"])
        for cell in cells
        if "exercise" in cell["metadata"]
    }


class Clone:
    """A course of one lesson in git, and a learner's clone of it.

    first: the lesson, as the course was when one worked in notebooks/.
    """

    def __init__(self, folder: Path, first: dict, name: str = LESSON):
        self.name = name
        self.upstream, self.here = folder / "upstream", folder / "clone"
        self.notebooks, self.mine = self.here / "notebooks", self.here / "my-notebooks"
        self.upstream.mkdir()
        self.git("init", "-q", at=self.upstream)
        self.publish(first, stamped=False)
        self.git("clone", "-q", self.upstream, self.here, at=folder)

    def git(self, *words, at=None, check=True):
        name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        at = at or self.here
        return subprocess.run(["git", *name, *words], cwd=at, check=check, capture_output=True)

    def publish(self, notebook, stamped=True):
        if not stamped:  # as the course was when one worked in notebooks/
            for part in (notebook, *notebook["cells"]):
                part["metadata"].pop("given", None)
        write(self.upstream / "notebooks" / self.name, notebook)
        self.git("add", ".", at=self.upstream)
        self.git("commit", "-qm", "a version", at=self.upstream)

    def stash_and_pull(self, notebook):
        """The old way to the next version, which is this lesson."""
        self.publish(notebook)
        self.git("stash")
        self.git("pull", "-q")

    def make_lab(self):
        found = earlier_notebooks.find(self.notebooks)
        return learner_copies.bring(self.notebooks, self.mine, found)
