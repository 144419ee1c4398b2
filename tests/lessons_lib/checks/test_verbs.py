"""What the verbs of a lesson do with a verdict, and what a lesson needs to open. Exercises,
verdicts and the guide are stand-ins.
"""

import importlib
import importlib.util
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from lessons_lib import checks, progress, saved_answers, solution_cells, verbs, whole
from lessons_lib.display import Card
from lessons_lib.whole import CourseDamaged

PASSED = checks.CheckResult("3.4", True, None, "")
WRONG = checks.CheckResult("3.4", False, "off-by-one", "It is one too many.")
STUB = checks.CheckResult("3.4", False, checks.NOT_ATTEMPTED, "Write it.")
ABSENT = Card("Run the cell that has `helper`.")


def answer():
    """A learner's answer."""


@pytest.fixture
def course(monkeypatch):
    """Exercise 3.4, whose next verdict is `verdict`. It notes what is shown and kept."""
    made = SimpleNamespace(
        verdict=PASSED,
        checked=[],
        shown=[],
        remembered=[],
        saved=[],
        waited=[],
        mended=[],
        at_home=False,
        ours=False,
        learners=True,
        absent=None,
        whole=True,
        to_hand_in="",
    )
    exercise = SimpleNamespace(
        id="3.4", title="a title", answer_name="answer", hints=("one", "two", "three")
    )

    def find(exercise_id):
        if exercise_id not in ("3.4", 3.4):
            raise checks.NoSuchExercise(exercise_id)
        return exercise

    def run(exercise_id, given):
        assert exercise_id == "3.4"
        made.checked.append(given)
        return made.verdict

    def require():
        if not made.whole:
            raise CourseDamaged("The course is not whole.")

    @contextmanager
    def waiting(words, at_once=False):
        made.waited.append(words)
        yield

    def missing_in(given, lesson):
        assert given is answer and lesson == "03"
        return made.absent

    guides = dict(
        advice=SimpleNamespace(
            is_the_learners=lambda given, of: made.learners and of is exercise,
            after_passing=lambda: made.to_hand_in,
            after_failing=lambda result, given: f"{result.message} Try again.",
            standing=lambda result: "not attempted yet",
            before_trying=lambda result: f"{result.message} Run its cell.",
        ),
        restart=SimpleNamespace(missing_in=missing_in),
        given=SimpleNamespace(
            solution=lambda of: made.shown.append(of.id), say_whose_notebook_it_is=lambda: None
        ),
        misspelt=SimpleNamespace(watch=lambda lesson: made.shown.append(f"watch {lesson}")),
        progress_page=SimpleNamespace(
            bar=lambda lesson, titles: f"bar {lesson} {titles}", page=lambda: "page"
        ),
    )
    for owner, name, value in (
        (checks, "find", find),
        (checks, "run", run),
        (whole, "require", require),
        (verbs, "waiting", waiting),
        (verbs, "show", made.shown.append),
        (verbs, "_guide", guides.__getitem__),
        (progress, "remember", lambda *words: made.remembered.append(words)),
        (saved_answers, "save", lambda *words: made.saved.append(words)),
        (solution_cells, "are_at_home", lambda: made.at_home),
        (solution_cells, "define", lambda name: made.ours and name == "answer"),
    ):
        monkeypatch.setattr(owner, name, value)
    return made


TITLE = "Exercise 3.4, a title"
IS_PASSED = Card(f"{TITLE}: passed", tone="passed")
IS_WRONG = Card(f"{TITLE}: not yet (off-by-one)", "It is one too many. Try again.", "failed")


def test_an_answer_that_passes_is_shown_remembered_and_saved(course):
    assert verbs.check("3.4", answer) is None
    assert course.checked == [answer] and course.shown == [IS_PASSED]
    assert course.remembered == [("3.4", True, None)]
    assert course.saved == [("3.4", answer)]
    assert course.waited == ["Checking exercise 3.4"]


def test_an_answer_that_is_wrong_is_shown_remembered_and_raised(course):
    course.verdict = WRONG
    with pytest.raises(verbs.CheckFailed) as caught:
        verbs.check("3.4", answer)
    assert caught.value.result is WRONG and type(caught.value) is verbs.CheckFailed
    assert course.shown == [IS_WRONG] and course.saved == []
    assert course.remembered == [("3.4", False, "off-by-one")]
    assert caught.value._render_traceback_() == ["CheckFailed: exercise 3.4: off-by-one"]


def test_a_stub_is_not_attempted_and_leaves_no_trace(course):
    course.verdict = STUB
    with pytest.raises(verbs.NotAttempted) as caught:
        verbs.check("3.4", answer)
    assert caught.value.result is STUB
    assert course.shown == [Card(f"{TITLE}: not attempted yet", "Write it. Run its cell.")]
    assert course.saved == course.remembered == []


def test_what_this_machine_cannot_judge_leaves_no_trace(course):
    course.verdict = checks.CheckResult("3.4", False, checks.NOT_JUDGED, "The disk is full.")
    with pytest.raises(verbs.NotJudged):
        verbs.check("3.4", answer)
    assert course.shown == [Card(f"{TITLE}: not judged", "The disk is full.")]
    assert course.saved == course.remembered == []


def test_what_has_to_be_handed_in_too_is_said_when_an_answer_passes(course):
    course.to_hand_in = "Hand in helpers.py."
    verbs.check("3.4", answer)
    assert course.shown == [Card(f"{TITLE}: passed", "Hand in helpers.py.", tone="passed")]


def test_a_check_may_have_no_answer_and_a_number_for_its_name(course):
    verbs.check(3.4)
    assert course.checked == [checks.NO_ANSWER]


@pytest.mark.parametrize("verdict", [PASSED, WRONG])
@pytest.mark.parametrize(
    "at_home, ours, learners, remembered, saved",
    [
        (False, False, True, True, True),
        (False, True, True, False, False),  # our own solution, run from elsewhere
        (True, True, True, True, True),  # it has a record of its own
        (True, False, True, True, True),
        (False, False, False, False, True),  # a wrong answer that a lesson shows
        (True, True, False, False, True),
    ],
)
def test_only_the_learners_own_answers_are_kept(
    course, verdict, at_home, ours, learners, remembered, saved
):
    course.verdict, course.learners = verdict, learners
    course.at_home, course.ours = at_home, ours
    if verdict is WRONG:
        with pytest.raises(verbs.CheckFailed):
            verbs.check("3.4", answer)
        assert bool(course.remembered) == remembered and not course.saved
    else:
        verbs.check("3.4", answer)
        # what passes is the learner's under any name
        assert bool(course.remembered) == bool(course.saved) == saved


def test_an_answer_that_needs_a_cell_that_did_not_run_says_so_and_is_not_remembered(course):
    course.verdict, course.absent = WRONG, ABSENT
    with pytest.raises(verbs.CheckFailed):
        verbs.check("3.4", answer)
    assert course.shown == [IS_WRONG, ABSENT] and course.remembered == []


def test_what_passes_lacks_nothing(course):
    course.absent = ABSENT
    verbs.check("3.4", answer)
    assert course.shown == [IS_PASSED] and course.remembered


def test_a_course_that_is_not_whole_judges_nothing_and_opens_nothing(course):
    course.whole = False
    with pytest.raises(CourseDamaged):
        verbs.check("3.4", answer)
    with pytest.raises(CourseDamaged):
        verbs.open_lesson("summary")
    assert course.checked == course.shown == []


def test_an_exercise_that_is_not_there_is_named_before_the_course_is_looked_at(course):
    course.whole = False
    for verb in verbs.check, verbs.hint, verbs.solution:
        with pytest.raises(checks.NoSuchExercise):
            verb("9.9")


# Hints, solutions and progress


@pytest.fixture
def no_hint_shown(monkeypatch):
    monkeypatch.setattr(verbs, "_hints_shown", {})


NO_MORE = Card(
    "Exercise 3.4 has hints 1 to 3, and no other.", 'Our own answer: solution("3.4")'
)
HINTS = [
    Card(f"Hint {number} of 3 for exercise 3.4", text)
    for number, text in ((1, "one"), (2, "two"), (3, "three"))
]


def test_hints_come_one_after_the_other(course, no_hint_shown):
    for _ in range(4):
        verbs.hint("3.4")
    assert course.shown == [*HINTS, NO_MORE]


@pytest.mark.parametrize(
    "number, shown",
    [(-1, NO_MORE), (0, NO_MORE), *enumerate(HINTS, 1), (4, NO_MORE), (5, NO_MORE)],
)
def test_a_hint_may_be_asked_for_by_its_number(course, no_hint_shown, number, shown):
    verbs.hint("3.4", number)
    assert course.shown == [shown]
    verbs.hint("3.4")  # the one before did not count
    assert course.shown == [shown, HINTS[0]]


def test_a_solution_is_shown_by_the_guide(course):
    verbs.solution("3.4")
    assert course.shown == ["3.4"]


def test_progress_is_shown_of_a_lesson_and_of_all(course):
    verbs.progress_bar("03")
    verbs.progress_bar("03", False)
    verbs.show_progress()
    assert course.shown == ["bar 03 True", "bar 03 False", "page"]


def test_the_guide_is_a_package_of_its_own():
    assert verbs._guide("advice").__name__ == "lessons_guide.advice"


# Opening


@pytest.fixture
def lesson(course, monkeypatch):
    """A lesson that can be opened. `absent_modules` are not installed."""
    course.pictures, course.absent_modules, course.read = object(), set(), []

    def import_module(name):
        if name != "lessons_draw.lesson_03":
            raise ModuleNotFoundError(f"No module named {name!r}")
        return course.pictures

    monkeypatch.setattr(importlib, "import_module", import_module)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in course.absent_modules else 1
    )
    monkeypatch.setattr(checks, "exercises_of", lambda lesson: course.exercises)
    monkeypatch.setattr(checks, "read_mistakes", course.read.append)
    course.exercises = ("3.4",)
    return course


def test_a_lesson_opens_with_its_pictures_and_its_progress(lesson):
    assert verbs.open_lesson("03") is lesson.pictures
    assert lesson.shown == ["watch 03", "bar 03 False"] and lesson.read == [["03"]]
    assert lesson.waited == ["Loading what the lesson needs"]


def test_a_lesson_without_exercises_has_no_progress(lesson):
    lesson.exercises = ()
    assert verbs.open_lesson("03") is lesson.pictures
    assert lesson.shown == ["watch 03"] and lesson.read == []


@pytest.mark.parametrize(
    "is_checkout, start", [(True, "make lab"), (False, "paged-attention-course lab")]
)
@pytest.mark.parametrize(
    "name", ["torch", "transformers", "lessons_exercises", "lessons_draw.lesson_77"]
)
def test_a_lesson_says_what_is_missing_and_what_to_do(
    lesson, monkeypatch, name, is_checkout, start
):
    monkeypatch.setattr(verbs, "IS_CHECKOUT", is_checkout)
    lesson.absent_modules = {name}
    with pytest.raises(ModuleNotFoundError) as caught:
        verbs.open_lesson("77" if "77" in name else "03")
    assert str(caught.value) == (
        f"No module named '{name}'. Close this, and open the course with: {start}"
    )
    assert caught.value.__suppress_context__ and lesson.shown == []


def test_mistakes_that_cannot_be_read_are_an_error_without_its_cause(lesson, monkeypatch):
    def fails(lessons):
        try:
            raise KeyError("something within")
        except KeyError as error:
            raise checks.MistakesError("0.1.mistakes:4: an error") from error

    monkeypatch.setattr(checks, "read_mistakes", fails)
    with pytest.raises(checks.MistakesError, match="0.1.mistakes:4: an error") as caught:
        verbs.open_lesson("03")
    assert caught.value.__cause__ is None and lesson.shown == ["watch 03"]
