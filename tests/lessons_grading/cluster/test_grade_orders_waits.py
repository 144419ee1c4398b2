"""How long the command waits for workers and their scheduler. The clock is a stand-in."""

import pytest
from test_grade_orders import submissions  # noqa: F401

from dask_stand_in import NEVER, Dask, Future, graded_by, outcomes, queue_that_waits
from lessons_grading import cluster, crew, dask_link
from lessons_grading.cluster import Cluster
from lessons_grading.crew import NoWorkers
from lessons_grading.sandbox import Limits


class Clock:
    """Moves only while somebody waits for a reply. waits: the seconds of each wait."""

    def __init__(self):
        self.now, self.waits = 1000.0, []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float):
        self.waits.append(seconds)
        assert len(self.waits) < 5_000, "it waits for ever"
        self.now += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(cluster, "queue", queue_that_waits(made.sleep))
    for module in (cluster, crew):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def over(monkeypatch):
    monkeypatch.setattr(cluster, "course_digest", lambda: "the course")

    def made(dask: Dask) -> Cluster:
        def connect(address, seconds: float) -> Dask:
            assert 1 < seconds < 60  # one that is there answers within these
            return dask

        monkeypatch.setattr(dask_link, "connect", connect)
        return Cluster("tcp://here:1", 3, Limits(sandboxed=False), 60.0, lambda words: None)

    return made


def end(dask: Dask, number: int):
    """Gives the future of this number its reply: the grade of the first order."""
    future = dask.futures[number]
    call = future.called
    future.ends_with(graded_by(dask.orders[0][1]))
    call(future)


def test_every_two_seconds_it_looks_for_workers_and_waits_meanwhile(clock, over, submissions):
    dask, looked = Dask("one"), []
    dask.reply = lambda worker, order: NEVER

    def during():
        looked.append(clock.now - 1000)
        if len(looked) == 4:
            end(dask, 1)

    dask.during = during
    with over(dask) as workers:
        assert [*outcomes(workers, submissions[:1])] == ["ada"]
    assert looked == [0, 2, 4, 6] and set(clock.waits) == {0.5}


def test_a_worker_that_comes_later_gets_work(clock, over, submissions):
    dask = Dask()

    def during():
        if clock.now >= 1000 + crew.COMES_BACK:
            dask.workers = ["late"]

    dask.during = during
    with over(dask) as workers:
        assert [*outcomes(workers, submissions[:1])] == ["ada"]
    assert dask.tried() == [("late", "ada")]


def test_for_a_worker_that_does_not_come_it_waits_no_longer(clock, over, submissions):
    with pytest.raises(NoWorkers, match="for too long"), over(Dask()) as workers:
        outcomes(workers, submissions[:1])
    assert clock.now == 1000 + crew.COMES_BACK + 0.5


def test_looks_that_a_scheduler_has_forgotten_are_not_waited_for(clock, over, submissions):
    dask = Dask("one")

    def submit(*_, **asked):
        dask.id, dask.workers = "second", []
        dask.futures.append(Future(NEVER))
        return dask.futures[-1]

    dask.submit = submit
    with pytest.raises(NoWorkers, match="for too long"), over(dask) as workers:
        outcomes(workers, submissions[:1])
    assert (dask.futures, True) in dask.cancelled


def test_a_long_work_is_waited_for_though_its_worker_gets_no_more(clock, over, submissions):
    dask, found = Dask("one"), []
    dask.reply = lambda worker, order: NEVER

    def during():
        if clock.now == 1002:
            workers.crew.refuse(workers.crew.workers["tcp://one"], "too old")
        if clock.now == 1000 + 2 * crew.COMES_BACK:
            end(dask, 1)

    dask.during = during
    with pytest.raises(NoWorkers, match="no worker is left"), over(dask) as workers:
        for submission, _ in workers.outcomes(submissions, False):
            found.append(submission.student)
    assert found == ["ada"] and clock.now == 1000 + 2 * crew.COMES_BACK


def test_a_connection_that_was_lost_is_closed_and_its_workers_are_looked_at_again(
    clock, over, submissions, monkeypatch
):
    dask, again = Dask("one"), Dask("one")
    dask.reply = lambda worker, order: NEVER

    def during():
        if dask.orders:
            dask.status = "closed"
            monkeypatch.setattr(dask_link, "connect", lambda address, seconds: again)
            raise OSError("gone")

    workers = over(dask)
    dask.during = during
    with workers:
        assert [*outcomes(workers, submissions[:1])] == ["ada"]
    assert (dask.closed, again.closed) == (1, 1)
    assert dask.tried() == again.tried() == [("one", "ada")]
    assert dask.looks == again.looks == ["one"]
    assert ([dask.futures[1]], True) in dask.cancelled
