"""Which worker gets a submission. No Dask is needed for that."""

from pathlib import Path

import pytest

from lessons_grading.crew import MOST_FAILURES, Crew
from lessons_grading.submissions import Submission

ADA, BOB = (Submission(name, Path(f"{name}.ipynb")) for name in ("ada", "bob"))


@pytest.fixture
def crew():
    crew = Crew("course", "", sandboxed=False, say=lambda words: None)
    crew.update({"workers": {name: {"name": name, "nthreads": 2} for name in ("one", "two")}})
    looked_at = {"instance": "1", "about": {"course": "course", "mistakes": ""}}
    for worker in crew.workers.values():
        crew.was_looked_at(worker, looked_at)
    return crew


def test_a_submission_is_not_tried_again_where_it_failed_if_there_is_another(crew):
    one, two = crew.workers.values()
    crew.has_failed(one, ADA, "No space left")
    assert crew.free_worker(False, ADA) is two
    two.running.update("ab")
    assert crew.free_worker(False, ADA) is None  # it waits for the other one
    assert crew.free_worker(False, BOB) is one
    crew.has_failed(two, ADA, "No space left")
    assert crew.free_worker(False, ADA) is one  # it failed on both


def test_a_refused_worker_is_no_other_one(crew):
    one, two = crew.workers.values()
    crew.has_failed(one, ADA, "No space left")
    for number in range(MOST_FAILURES):
        crew.has_failed(two, Submission(f"s{number}", Path("s.ipynb")), "No space left")
    assert two.refused and crew.free_worker(False, ADA) is one


def test_alone_means_a_worker_without_work(crew):
    one, two = crew.workers.values()
    one.running.add("a")
    assert crew.free_worker(True, ADA) is two
    two.running.add("b")
    assert crew.free_worker(True, ADA) is None and crew.free_worker(False, ADA) is not None
