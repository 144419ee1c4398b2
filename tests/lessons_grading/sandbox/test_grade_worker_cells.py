"""What the cells of a submission report, in a shell that is a stand-in for IPython's."""

import base64
import json
import pickle
import signal
import sys
from types import ModuleType, SimpleNamespace

import pytest

import lessons_lib
from lessons_grading import worker
from lessons_lib import checks, verbs
from lessons_lib.inline import build_cpp
from lessons_processes import pickles

MB = 1 << 20
EXERCISES = {
    "1.1": ["SOURCE", "c++", False],
    "2.1": ["count", "python", False],
    "2.2": ["Manager", "python", True],
}
VERBS = ("check", "hint", "solution", "progress_bar")


class Shell:
    """In place of IPython's. As there, what a cell raises is a part of the result."""

    def __init__(self):
        self.user_ns = {"__name__": "__main__"}
        self.before = None  # an error that a cell has before it runs

    def run_cell(self, source: str):
        error = None
        try:
            exec(source, self.user_ns)
        except BaseException as raised:
            error = raised
        return SimpleNamespace(error_before_exec=self.before, error_in_exec=error)


@pytest.fixture
def shell(monkeypatch):
    made = Shell()
    monkeypatch.setattr(worker, "_shell", lambda: made)
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(checks, "find", checks.find)
    for module in (lessons_lib, verbs):
        for name in VERBS:
            monkeypatch.setattr(module, name, getattr(module, name))
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    yield made
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def reports(shell):
    """Runs these cells, and returns what is reported."""

    def reports(*sources: str, wanted=("1.1", "2.1", "2.2"), seconds=1_000.0) -> list:
        found = []
        cells = [*enumerate(sources, 1)]
        worker.run_cells(cells, EXERCISES, [*wanted], seconds, found.append)
        return found

    return reports


def test_each_cell_is_told_before_it_runs_and_each_that_fails_after_it(reports):
    assert reports("x = 1", "raise ValueError('no')", "assert x == 1") == [
        ["cell", 1],
        ["cell", 2],
        ["error", 2, "ValueError: no"],
        ["cell", 3],
    ]


def test_an_error_that_a_cell_has_before_it_runs_is_told_too(reports, shell):
    shell.before = SyntaxError("no Python")
    assert reports("pass") == [["cell", 1], ["error", 1, "SyntaxError: no Python"]]


def test_a_long_error_is_cut(reports):
    assert reports("raise ValueError('x' * 1_000)")[-1] == [
        "error",
        1,
        f"ValueError: {'x' * 1_000}"[:300],
    ]


def test_a_cell_without_memory_ends_the_process(reports):
    with pytest.raises(MemoryError):
        reports("raise MemoryError")


def test_cells_find_their_own_modules_after_pythons_own(reports):
    reports("pass")
    assert sys.path[-1] == ""


def test_a_cell_can_look_up_every_exercise(reports):
    look = (
        "from lessons_lib import checks\nSOURCE = checks.find('2.2').answer_name + ' of 2.2'"
    )
    assert ["answer", "1.1", {"text": "Manager of 2.2"}] in reports(look, wanted=["1.1"])


def test_a_cell_that_takes_too_long_is_stopped_and_the_next_one_runs(
    reports, shell, monkeypatch
):
    shell.user_ns["time"] = time = [7.0]
    monkeypatch.setattr(worker, "own_clock", lambda: time[0])
    alarm = "import signal\nsignal.raise_signal(signal.SIGALRM)\n"
    assert reports(
        f"time[0] += 4.9\n{alarm}SOURCE = 'went on'",
        f"time[0] += 5.0\n{alarm}SOURCE = 'went on too long'",
        "SOURCE = 'as long again'",
        seconds=5.0,
    ) == [
        ["cell", 1],
        ["answer", "1.1", {"text": "went on"}],
        ["cell", 2],
        ["stopped", 2],
        ["cell", 3],
        ["answer", "1.1", {"text": "as long again"}],
    ]


def timer() -> tuple[float, float]:
    """Seconds until the alarm, and from each to the next."""
    return signal.getitimer(signal.ITIMER_REAL)


def test_while_a_cell_runs_an_alarm_is_set_that_comes_again(reports, shell):
    shell.user_ns["note"] = (seen := []).append
    shell.user_ns["timer"] = timer
    reports("note(timer())", seconds=900.0)
    ((left, again),) = seen
    assert 0 < left <= 900 and again == 0.5
    assert timer() == (0.0, 0.0)


def test_an_alarm_between_a_cell_and_us_is_the_cells(reports, shell, monkeypatch):
    def run_cell(source):
        raise worker.CellTooSlow

    monkeypatch.setattr(shell, "run_cell", run_cell)
    assert reports("pass") == [["cell", 1], ["stopped", 1]]
    assert timer() == (0.0, 0.0)


def test_an_alarm_that_comes_while_it_is_turned_off_is_the_cells(reports, monkeypatch):
    set_timer, alarms = signal.setitimer, [signal.SIGALRM]

    def turn_off(which, seconds, again=0.0):
        if seconds == 0 and alarms:
            signal.raise_signal(alarms.pop())
        set_timer(which, seconds, again)

    monkeypatch.setattr(signal, "setitimer", turn_off)
    monkeypatch.setattr(worker, "own_clock", iter([0.0, 5.0]).__next__)
    assert reports("pass", seconds=5.0) == [["cell", 1], ["stopped", 1]]


def test_pictures_of_a_cell_are_closed_after_it(reports, monkeypatch):
    closed = []
    pyplot = SimpleNamespace(close=closed.append)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    reports("pass", "raise ValueError")
    assert closed == ["all", "all"]


def answers(found: list) -> list:
    """(exercise, answer) of these reports."""
    return [(report[1], report[2]) for report in found if report[0] == "answer"]


def loaded(packed: dict):
    return pickle.loads(base64.b64decode(packed["pickle"]))


def test_each_new_value_of_an_answer_is_reported_once_after_its_cell(reports):
    assert reports("SOURCE = 'a b'", "SOURCE = 'c d'", "x = 1", "SOURCE = 'a b'") == [
        ["cell", 1],
        ["answer", "1.1", {"text": "a b"}],
        ["cell", 2],
        ["answer", "1.1", {"text": "c d"}],
        ["cell", 3],
        ["cell", 4],
    ]
    several = reports("SOURCE = 'a b'", "SOURCE = 'c d'", "SOURCE = 'e f'")
    assert [answer["text"] for _, answer in answers(several)] == ["a b", "c d", "e f"]


def test_an_answer_whose_helper_changes_is_reported_again_at_the_end(reports):
    found = reports(
        "def up(a): return a",
        "def count(a): return up(a)",
        "def up(a): return a + 1",
        "def up(a): return a + 2",
    )
    assert [report[0] for report in found] == [
        "cell",
        "cell",
        "answer",
        "cell",
        "cell",
        "answer",
    ]
    assert [loaded(answer)(3) for _, answer in answers(found)] == [3, 5]


class Counted:
    """An answer that knows how often it was packed."""

    __module__ = "elsewhere"

    def __init__(self):
        self.times = 0

    def __call__(self):
        pass

    def __reduce__(self):
        self.times += 1
        return int, ()


def test_an_answer_that_stays_is_packed_after_its_cell_and_at_the_end(reports, shell):
    shell.user_ns["made"] = answer = Counted()
    reports("count = made", "x = 1", "x = 2", "x = 3")
    assert answer.times == 2


def test_only_answers_that_are_wanted_are_reported(reports):
    both = "SOURCE = 'a b'\ndef count(a): return a"
    assert [exercise for exercise, _ in answers(reports(both, wanted=["2.1"]))] == ["2.1"]


CHECKED = {
    "of another name": ("check('1.1', 'a b')", ["a b"]),
    "by a number": ("check(1.1, 'a b')", ["a b"]),
    "by the other name of check": ("verbs.check('1.1', 'a b')", ["a b"]),
    "beside one of the right name": ("SOURCE = 'c d'\ncheck('1.1', 'a b')", ["c d"]),
    "of the right name": (
        "SOURCE = 'c d'\ncheck('1.1', SOURCE)\nSOURCE = 'e f'",
        ["c d", "e f"],
    ),
    "of another lesson": ("check('9.9', 'a b')", []),
}


@pytest.mark.parametrize("source, texts", CHECKED.values(), ids=CHECKED)
def test_an_answer_that_is_checked_counts_if_none_has_the_right_name(reports, source, texts):
    found = reports(f"from lessons_lib import check, verbs\n{source}")
    assert [answer["text"] for _, answer in answers(found)] == texts
    assert "error" not in {report[0] for report in found}


@pytest.mark.parametrize("module", ["lessons_lib", "lessons_lib.verbs"])
@pytest.mark.parametrize("verb", ["hint", "solution", "progress_bar"])
def test_the_other_verbs_do_nothing(reports, module, verb):
    call = f"{module}.{verb}('?', anything=1)"
    found = reports(f"import lessons_lib.verbs\nSOURCE = 'it gave ' + str({call})")
    assert answers(found) == [("1.1", {"text": "it gave None"})]


@pytest.fixture
def packed(reports, shell):
    """This value as the answer to an exercise, as it is reported."""

    def packed(exercise: str, value) -> dict:
        shell.user_ns["value"] = value
        found = answers(reports(f"{EXERCISES[exercise][0]} = value", wanted=[exercise]))
        ((_, answer),) = found
        return answer

    return packed


@pytest.mark.parametrize(
    "exercise, kind",
    [("1.1", "C++ source text"), ("2.1", "the function"), ("2.2", "the class")],
)
def test_what_is_no_answer_is_refused(packed, exercise, kind):
    mistake, message = packed(exercise, 3)["refused"]
    assert mistake == "not-an-answer"
    assert f"expects {kind}" in message and f"`{EXERCISES[exercise][0]}`" in message


def test_an_answer_that_is_not_written_yet_is_sent(packed):
    assert packed("1.1", " ") == {"text": " "}
    assert loaded(packed("2.1", ...)) is ...


def test_a_text_of_ten_megabytes_is_sent_and_a_longer_one_is_not(packed):
    text = "//" + " " * (10 * MB - 2)
    assert packed("1.1", text) == {"text": text}
    mistake, message = packed("1.1", text + " ")["refused"]
    assert mistake == "not-an-answer" and "it and what it uses have 10 MB" in message


def test_an_answer_in_python_is_as_large_as_all_that_it_uses(packed, monkeypatch):
    answer = eval("lambda: 0", {"__name__": "elsewhere"})
    size = len(pickles.dumps(answer))
    monkeypatch.setattr(worker, "LARGEST_ANSWER", size)
    assert loaded(packed("2.1", answer))() == 0
    monkeypatch.setattr(worker, "LARGEST_ANSWER", size - 1)
    assert packed("2.1", answer)["refused"][0] == "not-an-answer"


def test_what_cannot_be_sent_is_refused_in_few_words(packed):
    class Kept(Counted):
        __module__ = "elsewhere"

        def __reduce__(self):
            raise ValueError("x" * 1_000)

    mistake, message = packed("2.1", Kept())["refused"]
    words = f"This cannot be sent to another process: {'x' * 1_000}"[:300]
    assert mistake == "not-an-answer" and message.split("\n")[0] == words


def test_a_function_of_the_course_is_no_answer_and_one_of_a_library_is(packed):
    assert packed("2.1", build_cpp)["refused"] == (
        "missing",
        "`count` is the course's own, from lessons_lib.inline.",
    )
    for of_a_library in (json.dumps, sys.getsizeof):
        assert loaded(packed("2.1", of_a_library)) is of_a_library
