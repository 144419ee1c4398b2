"""What a sandbox gets of the course: texts with stubs, and packages of exercises."""

import functools
import operator
import pickle
import sys
import threading
import types

import cloudpickle
import pytest

from lessons_grading import course
from lessons_lib import checks
from lessons_lib.checks import Exercise, Mistake, result_codec
from lessons_lib.source.lesson import SourceError

NOT_HERE = "of the course, which is not there when answers are graded"


def exercise(id: str, reference=None, language: str = "python", **more) -> Exercise:
    about = dict(cases=tuple, observe=None, size=None, mistakes=(), hints=()) | more
    return Exercise(id, "title", "answer", reference, language=language, **about)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Writes the files of a small course, which has no exercises."""
    monkeypatch.setattr(course, "ROOT", tmp_path)
    monkeypatch.setattr(checks, "lessons", lambda: ())

    def files(texts: dict[str, str]):
        for name, text in texts.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")

    return files


TEXTS = {
    "kernels/a.cu": "a",
    "kernels/deeper/b.cuh": "b",
    "kernels/deeper/c.h": "c",
    "kernels/d.cpp": "d",
    "paged_attention/e.py": "é 李",
}
OTHERS = {
    "kernels/notes.md": "-",
    "kernels/built.so": "-",
    "lessons_lib/checks/__init__.py": "-",
    "paged_attention/tiny_qwen3/weights.py": "-",
    "paged_attention/tiny_qwen3/config.json": "-",
    "solutions/01.py": "-",
}
OF_CHECKS = {
    "lessons_content/lesson_01/e1_1_free_list.py": "-",
    "lessons_content/lesson_01/bench.h": "bench",
    "lessons_content/lesson_10/other.h": "other",
}


@pytest.mark.usefixtures("plain_locale")
def test_the_cells_see_all_texts_of_the_course_and_nothing_of_its_exercises(files):
    files(TEXTS | OTHERS | OF_CHECKS)
    assert course.whole() == TEXTS


@pytest.mark.parametrize(
    "id, more", [("1.3", "lesson_01/bench.h"), ("10.3", "lesson_10/other.h")]
)
def test_an_answer_also_sees_what_its_check_compiles(files, id, more):
    files(TEXTS | OTHERS | OF_CHECKS)
    name = f"lessons_content/{more}"
    assert course.without_answers(exercise(id)) == TEXTS | {name: OF_CHECKS[name]}


@pytest.mark.parametrize(
    "name, before, first",
    [
        ("kernels/slow_free_list.h", "1.1", "1.2"),
        ("lessons_content/lesson_01/free_list.h", "1.1", "1.2"),
        ("kernels/bug_hunt.cu", "6.7", "6.8"),
        ("kernels/ladder/rung_1.cu", "6.9", "7.1"),
        ("paged_attention/engine/scheduler.py", "7.6", "8.1"),
    ],
)
def test_a_text_that_answers_an_exercise_is_not_there_before_it(files, name, before, first):
    files({"kernels/a.cu": "a", name: "text"})
    assert course.without_answers(exercise(before)) == {"kernels/a.cu": "a"}
    assert course.without_answers(exercise(first)) == {"kernels/a.cu": "a", name: "text"}


SOLVED = """first
    {comment} BEGIN SOLUTION{of}
    solution
    {comment} END SOLUTION
between
last"""
SHOWN = [  # a solution's exercise and file; the answered exercise, its language; is it shown?
    ("4.2", "x.py", "4.2", "python", False),
    ("4.3", "x.py", "4.2", "python", False),
    ("5.1", "x.py", "4.2", "python", False),
    ("10.1", "x.py", "4.2", "python", False),
    ("4.1", "x.py", "4.2", "python", True),
    ("3.9", "x.py", "4.2", "python", True),
    ("3.9", "x.h", "4.2", "python", True),
    ("4.2", "x.cu", "4.2", "cuda", False),
    ("5.1", "x.h", "4.2", "cuda", False),
    ("4.1", "x.cu", "4.2", "cuda", True),
    ("3.9", "x.cuh", "4.2", "cuda", True),
    ("3.9", "x.h", "4.2", "c++", True),
    # for an exercise that is not in Python, no earlier lesson's Python is there
    ("4.1", "x.py", "4.2", "cuda", True),
    ("3.9", "x.py", "4.2", "cuda", False),
    ("3.9", "x.py", "4.1", "c++", False),
    ("3.1", "x.py", "4.2", "c++", False),
    # a solution that names no exercise is never shown
    ("", "x.py", "13.9", "python", False),
]


@pytest.mark.parametrize("of, name, own, language, is_shown", SHOWN)
def test_solutions_of_an_exercise_and_of_later_ones_are_stubs(
    files, of, name, own, language, is_shown
):
    text = SOLVED.format(of=of and f" {of}", comment="#" if name.endswith(".py") else "//")
    files({f"kernels/{name}": text})
    (seen,) = course.without_answers(exercise(own, language=language)).values()
    lines = seen.split("\n")
    assert (lines[0], lines[2:]) == ("first", ["between", "last"])
    assert (lines[1] == "    solution") == is_shown and len(lines) == 4


@pytest.mark.parametrize(
    "name, comment, stub",
    [
        ("x.py", "#", f'    raise NotImplementedError("Exercise 2.5 {NOT_HERE}")'),
        ("x.h", "//", f'    throw std::logic_error("Exercise 2.5 {NOT_HERE}");'),
        ("x.cpp", "//", f'    throw std::logic_error("Exercise 2.5 {NOT_HERE}");'),
        ("x.cu", "//", f'#error "Exercise 2.5 {NOT_HERE}"'),
        ("x.cuh", "//", f'#error "Exercise 2.5 {NOT_HERE}"'),
    ],
)
def test_a_stub_says_why_it_is_there(files, name, comment, stub):
    files({f"kernels/{name}": SOLVED.format(of=" 2.5", comment=comment)})
    (seen,) = course.without_answers(exercise("2.5")).values()
    assert seen == f"first\n{stub}\nbetween\nlast"


def test_each_solution_of_a_text_is_hidden_for_itself(files):
    text = SOLVED.format(of=" 2.4", comment="#") + "\n" + SOLVED.format(of=" 2.5", comment="#")
    files({"paged_attention/x.py": text})
    (seen,) = course.without_answers(exercise("2.5")).values()
    assert seen.count("    solution") == 1 and seen.count("NotImplementedError") == 1
    assert seen.index("    solution") < seen.index("NotImplementedError")


def test_an_error_in_a_text_says_where_it_is(files):
    files({"kernels/x.h": "// BEGIN SOLUTION 1.1\n"})
    with pytest.raises(SourceError, match="kernels/x.h.*without its END SOLUTION"):
        course.without_answers(exercise("1.1"))


def test_the_methods_of_a_class_are_there_for_each_other_and_nothing_else_is():
    called = {
        exercise.id: course.called_by(exercise)
        for lesson in checks.lessons()
        for exercise in checks.exercises_of(lesson)
    }
    assert {id: those for id, those in called.items() if those} == {
        "2.4": {"2.5", "2.6", "2.7", "5.2"},
        "2.5": {"2.4", "2.6", "2.7", "5.2"},
        "2.6": {"2.4", "2.5", "2.7", "5.2"},
        "2.7": {"2.4", "2.5", "2.6", "5.2"},
        "5.2": {"2.4", "2.5", "2.6", "2.7"},
        "8.3": {"8.4", "8.5", "8.6", "8.9"},
        "8.4": {"8.3", "8.5", "8.6", "8.9"},
        "8.6": {"8.3", "8.4", "8.9"},
        "8.9": {"8.3", "8.4", "8.6"},
    }


CODE = """
import functools
from lessons_content import made_helper

def reference(number):
    return "secret of ours"

class Answer:
    pass

def wrong(number):
    return "secret mistake"

def also(number):
    return "another secret"

@functools.cache
def table(size):
    return [size]

def observe(subject, case):
    ours = subject is reference or subject in (wrong, also)
    return ours, subject(case), made_helper.used(case), table(3)

def unused():
    return "secret of nobody"
"""
HELPER = """
from lessons_content import made_deeper

def used(case):
    return made_deeper.deepest() + case

def unused():
    return "secret helper"
"""
DEEPER = """
def deepest():
    return 40

def unused():
    return "secret depth"
"""


@pytest.fixture
def made(monkeypatch):
    """The module of an exercise in `lessons_content`, and what it uses."""
    texts = {"made_deeper": DEEPER, "made_helper": HELPER, "made": CODE}
    for name, text in texts.items():
        module = types.ModuleType(f"lessons_content.{name}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr("lessons_content." + name, module, raising=False)
        exec(text, vars(module))
    return module


@pytest.fixture
def packed(made):
    """An exercise of that module, with the changes that a test asks for."""

    def packed(given=(), **changes):
        mistakes = (Mistake("first", "says so", made.wrong, (made.also,)),)
        about = dict(observe=made.observe, mistakes=mistakes, hints=("hint",)) | changes
        return course.pack(exercise("9.1", **{"reference": made.reference} | about), given)

    return packed


def opened(data: bytes, monkeypatch):
    """The package as a sandbox opens it, where there is no `lessons_content`."""
    with monkeypatch.context() as sandbox:
        for name in [name for name in sys.modules if name.startswith("lessons_content")]:
            sandbox.setitem(sys.modules, name, None)
        return pickle.loads(data)


def test_a_package_works_without_the_exercises_and_holds_only_what_it_needs(
    made, packed, monkeypatch
):
    made.table(5)
    data = packed((1, 2))
    assert b"secret" not in data
    bare, cases = opened(data, monkeypatch)
    assert cases == (1, 2)
    assert bare.observe(operator.neg, 2) == (False, -2, 42, [3])
    space = bare.observe.__globals__
    assert {"used", "unused"} & set(vars(space["made_helper"])) == {"used"}
    assert space["table"].cache_info().misses == 1  # and what it was asked before is gone
    assert space["reference"] is space["wrong"] is space["also"] is result_codec.gone
    with pytest.raises(LookupError, match="The course's own answer is not here"):
        bare.observe(space["reference"], 2)


JUDGES = ["size", "hidden", "describe", "same", "show", "chancy", "name_from_text", "arrange"]
KEPT = {
    "recognise": operator.not_,
    "is_given": operator.is_,
    "prepare": operator.neg,
    "language": "cuda",
    "points": 3,
    "time_limit": 2.5,
}


def test_an_exercise_keeps_what_prepares_an_answer_and_loses_what_judges_it(
    packed, monkeypatch
):
    data = packed((1, 2), **KEPT, **dict.fromkeys(["cases", *JUDGES], operator.neg))
    bare, given = opened(data, monkeypatch)
    assert given == (-1, -2)  # arranged
    assert (bare.id, bare.answer_name, bare.reference) == ("9.1", "answer", None)
    assert {name: getattr(bare, name) for name in KEPT} == KEPT
    assert {name: getattr(bare, name) for name in JUDGES} == dict.fromkeys(
        JUDGES, result_codec.gone
    )
    assert (bare.cases, bare.hints) == (tuple, ())
    assert bare.mistakes == (Mistake("first", "says so", None),)


def test_an_answer_that_is_a_class_is_one_in_the_package(made, packed, monkeypatch):
    bare, _ = opened(packed(reference=made.Answer), monkeypatch)
    assert bare.reference is type


def test_nothing_else_is_pickled_by_value_afterwards(made, packed):
    before = set(cloudpickle.list_registry_pickle_by_value())  # by other tests
    packed()
    assert cloudpickle.list_registry_pickle_by_value() == before
    cycle = functools.partial(made.observe)
    cycle.itself = threading.Lock()  # cannot be pickled
    with pytest.raises(TypeError, match="cannot pickle"):
        packed(observe=cycle)
    assert cloudpickle.list_registry_pickle_by_value() == before


@functools.cache
def cached():
    pass


def test_caches_of_other_modules_are_not_taken_apart(packed, monkeypatch):
    bare, _ = opened(packed(observe=cached), monkeypatch)
    assert bare.observe is cached


def test_a_package_of_the_course_opens_where_its_exercises_are_not(monkeypatch):
    """One of them here; test_grade_reference.py looks at all."""
    own = checks.find("2.5")
    bare, cases = opened(course.pack(own, tuple(own.cases())[:2]), monkeypatch)
    assert (bare.id, len(cases)) == ("2.5", 2)
