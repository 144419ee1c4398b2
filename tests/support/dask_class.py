"""A class for tests on Dask workers, where a stand-in grades: dask_cluster.fake_grade."""

import importlib.util
import time
from pathlib import Path

import psutil
import pytest

import graded
from dask_cluster import GRADER, DaskCluster
from lessons_grading import crew, dask_link, sandbox
from lessons_grading.classroom import twice_if_needed
from lessons_grading.cluster import Cluster
from lessons_grading.sandbox import Limits
from lessons_grading.submissions import find_submissions

on_a_cluster = [
    pytest.mark.tool("cluster"),
    pytest.mark.skipif(
        not importlib.util.find_spec("distributed"),
        reason="Dask is not installed: make test-all TOOL=cluster",
    ),
]
needs_sandbox = pytest.mark.skipif(
    sandbox.missing() is not None, reason="there is no bubblewrap that works"
)
LIMITS = Limits(sandboxed=False)


@pytest.fixture
def dask(tmp_path):
    with DaskCluster(tmp_path) as running:
        yield running


class Class:
    """Submissions in a folder, and how often each was tried."""

    def __init__(self, folder: Path):
        self.folder, self.calls = folder / "class", folder / "calls"
        self.folder.mkdir()
        self.calls.mkdir()
        self.said = []

    def hand_in(self, student: str, order: str = "go"):
        path = graded.hand_in(self.folder, order, str(self.calls), name="00.ipynb")
        path.rename(self.folder / f"{student}.ipynb")

    def tried(self, student: str) -> int:
        path = self.calls / student
        return len(path.read_text().split()) if path.exists() else 0

    def judge_of(self, student: str) -> psutil.Process:
        """The process that is at work on the student's notebook."""
        wait_until(lambda: self.tried(student))
        return psutil.Process(int((self.calls / student).read_text().split()[-1]))

    def grade(
        self, dask: DaskCluster, limits=LIMITS, patience=600.0, during=lambda said: None
    ):
        """The grades by student, and what was said."""

        def say(words):
            self.said.append(words)
            during(words)

        with Cluster(dask.address, 3, limits, patience, say, GRADER) as workers:
            judged = twice_if_needed(find_submissions(self.folder), workers.outcomes)
            return {submission.student: grade for submission, grade in judged}


@pytest.fixture
def students(tmp_path):
    return Class(tmp_path)


def wait_until(happened):
    while not happened():
        time.sleep(0.05)


@pytest.fixture
def impatient(monkeypatch):
    """From when it is called on, nothing that is away is waited for."""

    def impatient():
        monkeypatch.setattr(crew, "COMES_BACK", 1.0)
        monkeypatch.setattr(dask_link, "CONNECT_LIMIT", 1.0)

    return impatient
