"""How an answer is tried, on a stand-in for its sandbox, and which verdicts are remembered."""

import base64
import pickle
from collections import deque

import pytest

from graded import SEED
from lessons_grading import course, try_answer
from lessons_grading.hidden_cases import LARGEST_EFFORT, TOO_MUCH_EFFORT, exam_of
from lessons_grading.notebook import Notebook
from lessons_grading.sandbox import LARGEST_SUM, Limits
from lessons_grading.work import Work
from lessons_lib import checks
from lessons_lib.checks import CheckResult
from lessons_processes import isolation

EXERCISE = checks.find("0.1")
DONE = isolation.Outcome("returned")


def verdict(message: str, passed=False) -> CheckResult:
    return CheckResult("0.1", passed, None if passed else "wrong", message)


def new_work(seed=SEED, **limits) -> Work:
    limits = Limits(sandboxed=False, **limits)
    return Work(Notebook("", "00", (), ""), (EXERCISE,), seed, limits)


@pytest.fixture
def tried(monkeypatch):
    """The answers that were tried. The message of each verdict is the text of its answer.

    Each costs 100 bytes and 2 seconds.
    """
    monkeypatch.setattr(try_answer, "_known", None)
    texts = []

    def attempt(work, exercise, answer):
        texts.append(answer["text"])
        work.reported.bytes += 100
        work.effort.add(2.0)
        return verdict(answer["text"])

    monkeypatch.setattr(try_answer, "_try", attempt)
    return texts


@pytest.fixture
def remembered(tried):
    """The same, in a process that remembers answers."""
    try_answer.remember_answers()
    return tried


def examine(text: str, work: Work | None = None) -> str:
    """The message about this answer."""
    return try_answer.examine(work or new_work(), EXERCISE, {"text": text}).message


def test_a_process_tries_an_answer_again_unless_it_is_to_remember(tried):
    assert [examine("a"), examine("a"), tried] == ["a", "a", ["a", "a"]]


def test_a_process_that_remembers_tries_an_answer_once(remembered):
    work = new_work()
    assert [examine("a", work), examine("a"), remembered] == ["a", "a", ["a"]]
    assert work.repeated == 0


def test_another_answer_exercise_seed_or_limit_is_tried(remembered):
    examine("a")
    assert [examine("b"), remembered] == ["b", ["a", "b"]]
    examine("a", new_work(seed=SEED + 1))
    examine("a", new_work(memory=1 << 30))
    try_answer.examine(new_work(), checks.find("1.1"), {"text": "a"})
    assert remembered == ["a", "b", "a", "a", "a"]


def test_a_known_answer_costs_what_it_has_cost_when_it_was_tried(remembered):
    first = new_work()
    examine("a", first), examine("b", first)
    work = new_work()
    work.reported.bytes, work.repeated = 7, 3
    work.effort.add(1.0)
    examine("b", work), examine("a", work)
    assert (work.reported.bytes, work.effort.seconds, work.repeated) == (207, 5.0, 5)
    assert remembered == ["a", "b"]


UNCERTAIN = {
    "a busy machine": lambda work: setattr(work, "starved", True),
    "too many bytes": lambda work: setattr(work.reported, "bytes", LARGEST_SUM + 1),
    "too much effort": lambda work: work.effort.add(LARGEST_EFFORT + 1),
}


@pytest.mark.parametrize("happens", UNCERTAIN.values(), ids=UNCERTAIN)
def test_a_verdict_that_the_answer_alone_did_not_decide_is_not_remembered(
    remembered, monkeypatch, happens
):
    attempt = try_answer._try

    def uncertain(work, exercise, answer):
        happens(work)
        return attempt(work, exercise, answer)

    monkeypatch.setattr(try_answer, "_try", uncertain)
    examine("a"), examine("a")
    assert remembered == ["a", "a"]


def test_a_verdict_with_a_long_message_is_not_remembered(remembered):
    long, longer = "x" * 10_000, "x" * 10_001
    assert examine(long) == examine(long) == long and remembered == [long]
    assert examine(longer) == examine(longer) == longer
    assert remembered == [long, longer, longer]


def test_the_two_thousand_answers_that_were_needed_last_are_remembered(remembered):
    work = new_work()
    work.effort.add = lambda seconds: None
    texts = [str(number) for number in range(2_000)]
    for text in (*texts, texts[0]):  # so the second has not been needed for longest
        examine(text, work)
    assert remembered == texts
    assert [examine(text, work) for text in ("new", "0", "2")] == ["new", "0", "2"]
    assert remembered == [*texts, "new"]
    examine("1", work)
    assert remembered == [*texts, "new", "1"]


def test_after_too_many_reports_nothing_is_tried(tried):
    work = new_work()
    work.reported.bytes = LARGEST_SUM
    assert examine("a", work) == "a"
    assert try_answer.examine(work, EXERCISE, {"text": "b"}) == verdict(
        "This was not tried: it reported more than 64 MB."
    )
    assert tried == ["a"] and "it reported more than 64 MB" in work.list_events()


def test_after_too_much_effort_nothing_is_tried(tried):
    work = new_work()
    work.effort.add(LARGEST_EFFORT)
    assert examine("a", work) == "a"
    assert try_answer.examine(work, EXERCISE, {"text": "b"}) == verdict(TOO_MUCH_EFFORT)
    assert tried == ["a"]


def test_what_is_no_answer_is_not_tried(tried):
    answer = {"refused": ["not-an-answer", "It is a number."]}
    assert try_answer.is_refused(answer) and not try_answer.is_refused({"text": "refused"})
    assert try_answer.examine(new_work(), EXERCISE, answer) == CheckResult(
        "0.1", False, "not-an-answer", "It is a number."
    )
    assert not tried


class Box:
    """In place of the sandbox: what the build and each run of an answer give."""

    seed, effort, starved = SEED, None, False

    def __init__(self, monkeypatch, build: str, *compared, refused=None):
        self.orders, self.ended, self.compared = [], [], deque(compared)
        self.tried, self.running = 0, 0
        monkeypatch.setattr(try_answer, "refusal", lambda exercise, said: refused)
        monkeypatch.setattr(try_answer, "how_it_ended", lambda run: isolation.Outcome(build))
        monkeypatch.setattr(try_answer, "compare", self.compare)

    def run(self, order: str, packed: str, answer, ended=None, **about):
        self.orders.append((order, packed, answer, ended, about))
        self.running += 1
        return self

    def next(self):
        return None

    def stop(self, run):
        assert run is self
        self.running -= 1

    def compare(self, exam, run, ended, effort):
        self.ended.append(dict(ended))
        result = self.compared.popleft()
        if isinstance(result, Exception):
            raise result
        return result

    def verdict(self, exercise_id="1.1") -> CheckResult:
        return try_answer._try(self, checks.find(exercise_id), {"text": "its text"})

    def names(self) -> list[str]:
        assert self.running == 0  # each run was stopped
        return [order[0] for order in self.orders]


def test_cpp_that_is_refused_is_not_run(monkeypatch):
    work = Box(monkeypatch, "returned", refused=verdict("does not compile"))
    assert work.verdict() == verdict("does not compile") and work.names() == ["build"]


def test_cpp_that_is_built_is_run_once(monkeypatch):
    work = Box(monkeypatch, "returned", (verdict("of its cases"), DONE))
    assert work.verdict() == verdict("of its cases")
    assert work.names() == ["build", "observe"] and work.ended == [{}] and work.tried == 1


def test_each_answer_that_is_tried_counts_once(monkeypatch):
    work = Box(monkeypatch, "", (verdict(""), DONE), (verdict(""), DONE))
    work.verdict("0.1"), work.verdict("0.1")
    assert work.tried == 2


def test_after_a_crash_the_cases_after_it_are_tried(monkeypatch):
    crash = isolation.Outcome("crashed", last_report=(7, None))
    passed = verdict("", passed=True)
    work = Box(monkeypatch, "returned", (passed, crash), (verdict("a later case"), DONE))
    assert "a later case" in work.verdict().message
    assert work.names() == ["build", "observe", "observe"]
    assert work.ended == [{}, {7: checks.CRASH}]
    assert [ended for _, _, _, ended, _ in work.orders] == [None, [], [7]]


def test_a_crash_that_no_mistake_explains_names_the_verdict(monkeypatch):
    crash = isolation.Outcome("crashed", detail="fault", last_report=(7, None))
    again = verdict("The result is not right.\nSmallest case")
    work = Box(monkeypatch, "returned", (verdict("first"), crash), (again, DONE))
    found = work.verdict()
    assert (found.mistake, found.message) == (
        "crashed",
        "Your code crashed its process (fault).\nSmallest case",
    )


def test_a_run_is_stopped_even_if_our_comparison_fails(monkeypatch):
    work = Box(monkeypatch, "returned", OSError("no space"))
    with pytest.raises(OSError):
        work.verdict("0.1")
    assert work.names() == ["observe"]


def test_python_is_tried_in_a_clean_process_with_time_for_all_cases(monkeypatch):
    work = Box(monkeypatch, "", (verdict("of its cases"), DONE))
    assert work.verdict("0.1") == verdict("of its cases")
    assert work.orders == [
        (
            "observe",
            exam_of("0.1", SEED).packed,
            {"text": "its text"},
            [],
            {
                "files": course.without_answers(EXERCISE),
                "seconds": 2 * EXERCISE.time_limit,
                "clean": True,
            },
        )
    ]


def test_cpp_is_built_without_cases_and_tried_where_it_was_built(monkeypatch):
    work = Box(monkeypatch, "returned", (verdict("of its cases"), DONE))
    work.verdict()
    exercise = checks.find("1.1")
    build, observe = work.orders
    files = {"files": course.without_answers(exercise)}
    assert build[4] == files | {"seconds": checks.BUILD_TIME_LIMIT, "clean": True}
    assert observe[4] == files | {"seconds": 2 * exercise.time_limit, "clean": False}
    bare, cases = pickle.loads(base64.b64decode(build[1]))
    assert (bare.id, [*cases]) == ("1.1", [])
    assert observe[1] == exam_of("1.1", SEED).packed
    assert build[2] == observe[2] == {"text": "its text"}
