"""Dask workers and schedulers that are lost, full or slow: no submission is lost with them."""

import threading

import pytest

import dask_cluster
from dask_class import dask, impatient, on_a_cluster, students, wait_until  # noqa: F401
from lessons_grading import crew

pytestmark = on_a_cluster


def test_each_submission_gets_the_grade_that_a_worker_gives_it(dask, students):
    for number in range(9):
        students.hand_in(f"s{number}")
    (students.folder / "none").mkdir()
    (students.folder / "link.ipynb").symlink_to("s0.ipynb")
    dask.start_worker("one", "--nthreads", "2")
    dask.start_worker("two")
    grades = students.grade(dask)
    assert grades.pop("none").events == ("there is no notebook in this folder",)
    link = grades.pop("link")
    assert not link.is_final and "links are not followed" in link.events[0]
    assert {name: grade.events for name, grade in grades.items()} == {
        f"s{number}": ("seed 3",) for number in range(9)
    }
    assert all(students.tried(name) == 1 and grades[name].is_final for name in grades)
    assert students.said in ([], ["The scheduler has no workers: waiting for one."])


def test_one_that_brings_its_worker_down_twice_is_set_aside_and_the_rest_goes_on(
    dask, students
):
    for name in "abc":
        students.hand_in(name)
    students.hand_in("down", "down")
    students.hand_in("once", "down once")
    for number in range(4):
        dask.start_worker(f"w{number}")
    grades = students.grade(dask)
    assert students.tried("down") == 2 and students.tried("once") == 2
    down = grades.pop("down")
    assert not down.is_final and not down.exercises
    assert [words.split(",")[0] for words in down.events] == [
        "the first attempt to grade this failed: its worker ended",
        "the second attempt failed: its worker ended",
    ]
    assert grades.pop("once").events[0] == "seed 3"
    assert all(grade.is_final and grade.events == ("seed 3",) for grade in grades.values())


def test_a_worker_that_a_nanny_starts_again_is_another_worker(dask, students):
    """Also under the address of the one before, where Dask would try the same once more."""
    students.hand_in("down", "down")
    students.hand_in("ada")
    port = str(dask_cluster.free_port())
    dask.start_worker("phoenix", "--nanny", "--worker-port", port)
    grades = students.grade(dask)
    assert students.tried("down") == 2
    assert not grades["down"].is_final and grades["ada"].is_final


def test_a_fault_of_a_grading_leaves_the_worker_alone(dask, students):
    for order in ("raise", "die", "big"):
        students.hand_in(order, order)
    dask.start_worker("only")
    grades = students.grade(dask)
    told = {name: " ".join(grade.events) for name, grade in grades.items()}
    assert "No space left on device, on only" in told["raise"]
    assert "the process that graded it ended, exit code -9, on only" in told["die"]
    assert "its grade has 5 MB" in told["big"]
    assert not any(grade.is_final for grade in grades.values())
    assert dask.processes["only"].poll() is None


def test_a_grading_that_does_not_come_to_an_end_is_given_up(dask, students):
    students.hand_in("ada", "wait 3600")
    students.hand_in("bob")
    dask.start_worker("only")
    grades = students.grade(dask, patience=2.0)
    assert "it did not come to an end, on only" in grades["ada"].events[0]
    assert grades["bob"].is_final


def test_a_worker_with_a_full_disk_gets_no_more_work(dask, students):
    for number in range(8):
        students.hand_in(f"s{number}", "full broken")
    dask.start_worker("broken")
    (students.calls / "broken").write_text(str(dask.processes["broken"].pid))
    dask.start_worker("sound")
    grades = students.grade(dask)
    assert all(grade.is_final for grade in grades.values())
    failed = [words for words in students.said if "submissions in a row" in words]
    assert len(failed) <= 1 and all(
        words.startswith("Worker broken") and "No space left" in words for words in failed
    )


def test_where_all_disks_are_full_the_command_stops_with_the_reason(dask, students):
    for number in range(5):
        students.hand_in(f"s{number}", "raise")
    dask.start_worker("full")
    with pytest.raises(crew.NoWorkers) as stopped:
        students.grade(dask)
    assert "no worker is left that may grade. full (tcp://" in str(stopped.value)
    assert "3 submissions in a row failed there, the last with OSError: [Errno 28]" in str(
        stopped.value
    )
    assert sum(students.tried(f"s{number}") for number in range(5)) == 3


@pytest.mark.parametrize("is_noticed", [True, False], ids=["slowly", "at once"])
def test_a_scheduler_that_is_started_again_costs_nothing(dask, students, is_noticed):
    students.hand_in("ada", "wait 1")
    students.hand_in("bob", "wait 1")
    students.hand_in("cleo", "wait 1")

    def restart():
        wait_until(lambda: students.tried("ada"))
        dask.kill("scheduler")
        dask.kill("one")
        wait_until(lambda: not is_noticed or "not answer" in " ".join(students.said))
        dask.start_scheduler()
        dask.start_worker("two")

    dask.start_worker("one")
    restarts = threading.Thread(target=restart, daemon=True)
    restarts.start()
    grades = students.grade(dask)
    restarts.join()
    assert {name: grade.events for name, grade in grades.items()} == dict.fromkeys(
        ["ada", "bob", "cleo"], ("seed 3",)
    )
    assert not is_noticed or any("does not answer" in words for words in students.said)


def test_a_scheduler_that_does_not_come_back_is_a_sentence(dask, students, impatient):
    students.hand_in("ada", "wait 3600")
    dask.start_worker("one")

    def end():
        wait_until(lambda: students.tried("ada"))
        impatient()
        dask.kill("scheduler")

    ends = threading.Thread(target=end, daemon=True)
    ends.start()
    with pytest.raises(ConnectionError, match="no Dask scheduler answers at tcp://127"):
        students.grade(dask)
    ends.join()


def test_a_scheduler_without_workers_is_a_sentence(dask, students, monkeypatch):
    monkeypatch.setattr(crew, "COMES_BACK", 0.1)
    students.hand_in("ada")
    with pytest.raises(crew.NoWorkers, match="has had no workers for too long"):
        students.grade(dask)
    assert students.said == ["The scheduler has no workers: waiting for one."]


def test_a_judge_ends_with_its_worker(dask, students, impatient):
    students.hand_in("ada", "wait 3600")
    dask.start_worker("one")

    def end():
        judge = students.judge_of("ada")
        dask.kill("one")
        wait_until(lambda: not judge.is_running())
        impatient()
        dask.kill("scheduler")

    ends = threading.Thread(target=end, daemon=True)
    ends.start()
    with pytest.raises(ConnectionError):
        students.grade(dask)
    ends.join()
