"""The load's benchmark: random arrivals, what a client hears, its files, table and picture."""

import asyncio

import numpy as np
import pytest

from lessons_content.lesson_11.bench.load_runs import recorded
from paged_attention.engine.serve.server import Limits
from serving import MODEL, RunningServer
from tools.bench.load import main, measure, summary
from tools.bench.load_clients import Heard, Question, ask_all, questions, random_arrivals


def heard(at, times, text="", problem="", **more):
    return Heard(Question("Cab>", "ab", at), times, text, problem=problem, **more)


@pytest.fixture(scope="module")
def server():
    running = RunningServer()
    yield running
    running.stop()


def test_arrivals_know_nothing_of_each_other():
    """Gaps are as long as their spread, and what arrives in a second varies like its mean."""
    times = np.array(random_arrivals(50, 400, seed=1))
    gaps, counts = np.diff(times), np.histogram(times, 400, (0, 400))[0]
    assert times.max() < 400 and (gaps > 0).all()
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
    assert counts.var() == pytest.approx(50, rel=0.25)


def test_the_same_seed_gives_the_same_load():
    assert random_arrivals(9, 5, seed=3) == random_arrivals(9, 5, seed=3)
    assert random_arrivals(9, 5, seed=3) != random_arrivals(9, 5, seed=4)
    assert questions([0.0, 1.0], 3) == questions([0.0, 1.0], 3)


def test_the_clients_get_whole_and_right_answers(server):
    asked = questions([0.0, 0.0, 0.05, 0.1], seed=2)
    answers = asyncio.run(ask_all(server.address, MODEL, asked))
    assert [each.problem for each in answers] == [""] * 4
    assert [each.text for each in answers] == [each.answer for each in asked]
    for each in answers:
        assert each.reason == "stop" and each.is_done
        assert each.num_tokens == len(each.text) + 1  # and the end token
        assert each.first > 0 and all(gap >= 0 for gap in each.between)
        assert len(each.between) == len(each.times) - 1


def test_what_is_not_whole_has_its_reason(server):
    (unknown,) = asyncio.run(ask_all(server.address, "another", questions([0.0], 1)))
    assert unknown.problem.startswith("404") and not unknown.is_refused
    (nobody,) = asyncio.run(ask_all("http://127.0.0.1:9", MODEL, questions([0.0], 1)))
    assert nobody.problem and not nobody.is_refused


def test_a_full_server_refuses_and_loses_nothing():
    full = RunningServer(Limits(requests=1))
    try:
        rows = measure(full.address, MODEL, rates=[], at_once=6)
    finally:
        full.stop()
    (row,) = rows
    assert row.refused and row.lost == 0
    assert row.right == row.requests - row.refused
    assert row.reasons == ("429 Too Many Requests",)


def test_a_row_counts_what_was_heard():
    row = summary(
        2.0,
        [
            heard(1.0, [0.5, 1.0], "ab", num_tokens=3),  # until 2.0
            heard(1.5, [0.1, 0.4], "ba", num_tokens=3),  # until 1.9
            heard(2.0, [0.2], "ab", num_tokens=1),  # when the first has just ended
            heard(2.5, [], problem="500 Oh"),
            heard(2.5, [], problem="429 Full", is_refused=True),
        ],
    )
    assert (row.requests, row.lost, row.refused, row.right) == (5, 1, 1, 2)
    assert row.tokens == 7 and row.most_open == 2
    assert row.seconds == pytest.approx(1.2)
    assert row.first == pytest.approx((0.2, 0.5)) and row.between == pytest.approx((0.5, 0.5))
    assert row.reasons == ("500 Oh", "429 Full")


def test_a_row_of_nothing_but_losses_has_no_times():
    row = summary(None, [heard(0.0, [], problem="lost")])
    assert (row.lost, row.first, row.between, row.most_open) == (1, None, None, 0)
    assert row.name == "all at once"


@pytest.mark.slow
def test_the_command_starts_a_server_measures_and_writes(tmp_path, capsys):
    words = ["--rates", "20", "--seconds", "0.2", "--at-once", "3"]
    words += ["--record", "--folder", f"{tmp_path}"]
    assert main([*words, "--plot", str(tmp_path / "a.png")]) == 0
    (run,) = recorded(tmp_path)
    assert [row.per_second for row in run.rows] == [20.0, None]
    assert all(row.lost == 0 and row.right == row.requests for row in run.rows)
    assert run.command == "python -m tools.bench load --rates 20 --seconds 0.2 --at-once 3"
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert "Recorded in" in capsys.readouterr().out
