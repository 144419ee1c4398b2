"""Several commands at once on the workers of one scheduler, and commands that are killed."""

import json
from pathlib import Path

import dask_command
from dask_class import dask, needs_sandbox, on_a_cluster, students, wait_until  # noqa: F401
from lessons_grading.store import FILE, last_run

pytestmark = [*on_a_cluster, needs_sandbox]


def outcomes(results: Path) -> dict[str, tuple]:
    """What the results hold of each student."""
    data = json.loads((results / "results.json").read_text())
    return {
        each["student"]: (each["is_final"], each["events"]) for each in data["submissions"]
    }


def test_a_second_command_on_one_folder_is_refused_and_the_first_loses_nothing(dask, students):
    """As without a scheduler, even if the second one asks another scheduler."""
    students.hand_in("ada", f"until {students.calls / 'go'}")
    students.hand_in("bob")
    dask.start_worker("one", "--nthreads", "2")
    words = students.folder, dask.address
    first = dask_command.begin(*words, "--seed", "3")
    wait_until(lambda: students.tried("ada"))
    results = students.folder.parent / "results"
    for address in (dask.address, "tcp://127.0.0.1:1"):
        second = dask_command.begin(students.folder, address, "--seed", "4", "--again")
        said, _ = second.communicate()
        assert second.returncode == 2, said
        assert (
            f"another grader is at work on {results}, process {first.pid}: "
            "wait until it is done, or choose another --results"
        ) in said
    (students.calls / "go").touch()
    said, _ = first.communicate()
    assert first.returncode == 0 and "Graded: 2, 0 of them in an earlier run." in said
    assert outcomes(results) == dict.fromkeys(["ada", "bob"], (True, ["seed 3"]))
    assert students.tried("ada") == students.tried("bob") == 1
    third = dask_command.begin(*words)
    said, _ = third.communicate()
    assert third.returncode == 0 and "Graded: 2, 2 of them in an earlier run." in said


def test_commands_with_results_of_their_own_share_the_workers_and_mix_nothing(dask, students):
    """One of them is stopped in the middle, which the other does not notice."""
    names = [f"s{number}" for number in range(4)]
    for name in names:
        students.hand_in(name, f"until {students.calls / 'go'}")
    dask.start_worker("one", "--nthreads", "2")
    dask.start_worker("two", "--nthreads", "2")
    commands = {}
    for seed in (3, 4, 5):
        results = students.folder.parent / f"results{seed}"
        words = "--seed", str(seed), "--results", str(results)
        commands[seed] = dask_command.begin(students.folder, dask.address, *words)
    stores = [students.folder.parent / f"results{seed}" / FILE for seed in commands]
    wait_until(lambda: all(store.exists() for store in stores))
    # the workers grade four at a time: perhaps the first two submissions of two commands
    wait_until(lambda: any(map(students.tried, names)))
    commands[5].send_signal(2)
    said, _ = commands[5].communicate()
    assert commands[5].returncode == 130 and "the same command goes on from here" in said
    (students.calls / "go").touch()
    for seed in (3, 4):
        said, _ = commands[seed].communicate()
        assert commands[seed].returncode == 0 and "Graded: 4, 0 of them" in said
        found = outcomes(students.folder.parent / f"results{seed}")
        assert found == dict.fromkeys(names, (True, [f"seed {seed}"]))


def test_a_command_that_was_killed_goes_on_with_what_is_left(dask, students):
    """Its workers finish what they have, and grade for the next one."""
    students.hand_in("ada")
    students.hand_in("bob", f"until {students.calls / 'go'}")
    dask.start_worker("one", "--nthreads", "2")
    words = students.folder, dask.address, "--seed", "3"
    first = dask_command.begin(*words)
    wait_until(lambda: students.tried("bob") and is_kept(students.folder.parent / "results"))
    first.kill()
    first.communicate()
    (students.calls / "go").touch()
    second = dask_command.begin(*words)
    said, _ = second.communicate()
    assert second.returncode == 0 and "Graded: 2, 1 of them in an earlier run." in said
    assert outcomes(students.folder.parent / "results") == dict.fromkeys(
        ["ada", "bob"], (True, ["seed 3"])
    )
    assert students.tried("ada") == 1


def is_kept(results: Path) -> bool:
    """Whether the store has a grade."""
    return (results / FILE).exists() and any(last_run(results / FILE))
