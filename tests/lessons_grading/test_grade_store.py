"""The grades on disk: found again under the same terms, and never half written."""

import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace

from fake_grade import ALL_RIGHT
from fake_grader import students  # noqa: F401
from graded import open_files
from lessons_grading.grades import SubmissionGrade, in_order
from lessons_grading.notebook import digest_of
from lessons_grading.store import FILE, GradeStore, last_run
from lessons_grading.submissions import Submission


def graded(student="ada", content=b"one", **more) -> SubmissionGrade:
    return SubmissionGrade(
        student,
        f"{student}.ipynb",
        digest_of(content),
        "00",
        (ALL_RIGHT,),
        ("an event",),
        0.5,
        **more,
    )


@pytest.fixture
def hand_in(tmp_path):
    def hand_in(name: str, content: str = ""):
        path = tmp_path / "submissions" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    return hand_in


@pytest.fixture
def opened(tmp_path):
    """Opens the store of the folder, under terms. The one before is closed."""
    stores = []

    def opened(terms: str = "") -> GradeStore:
        if stores:
            stores[-1].close()
        stores.append(GradeStore(tmp_path, tmp_path / "submissions", 1, terms))
        return stores[-1]

    yield opened
    stores[-1].close()


def damage(store: GradeStore, text: str, student: str = "ada"):
    """As somebody who edits the file by hand."""
    with closing(sqlite3.connect(store.file)) as database, database:
        place = f"%{student}%"
        database.execute("UPDATE graded SET grade = ? WHERE place LIKE ?", (text, place))


def test_a_grade_is_found_again_under_the_same_terms_only(opened, hand_in):
    """And under the bytes that were graded: the file may have others by now."""
    submission, grade = Submission("ada", hand_in("ada.ipynb")), graded()
    opened("seed 1").save(submission, grade)
    store = opened("seed 1")
    assert store.find(submission, grade.digest) == grade
    assert store.find(submission, digest_of(b"two")) is None
    assert store.find(Submission("alan", submission.path), grade.digest) is None
    for text in ("", "{", "[]", '{"student": "ada"}', '{"exercises": [], "events": []}'):
        store.save(submission, grade)
        damage(store, text)
        assert store.find(submission, grade.digest) is None
    store.save(submission, grade)
    assert opened("seed 2").find(submission, grade.digest) is None


def test_what_is_not_final_is_not_found_and_yet_a_part_of_its_run(opened, hand_in):
    submission = Submission("ada", hand_in("ada.ipynb"))
    store, grade = opened(), graded(is_final=False)
    store.save(submission, grade)
    assert store.find(submission, grade.digest) is None and [*store.grades()] == [grade]
    assert [*opened().grades()] == []


def test_a_run_has_what_it_found_and_what_it_saved_in_the_order_of_a_report(opened, hand_in):
    names = ["zoë", "Ada", "ada", "Álan", "bob"]
    whose = {name: Submission(name, hand_in(f"{name}.ipynb", name)) for name in names}
    store = opened()
    for name in names:
        store.save(whose[name], graded(name))
    expected = sorted(store.grades(), key=in_order)
    assert [*store.grades()] == expected and len(expected) == 5
    store = opened()
    for name in ("bob", "Ada"):
        assert store.find(whose[name], graded(name).digest)
    store.save(whose["zoë"], graded("zoë"))
    assert [each.student for each in store.grades()] == ["Ada", "bob", "zoë"]


def test_a_file_that_is_no_store_is_a_sentence(students, capsys):
    students.hand_in("ada")
    students.results.mkdir()
    file = students.results / FILE
    file.write_bytes(b"something else" * 1_000)
    with pytest.raises(SystemExit):
        students.run()
    said = " ".join(capsys.readouterr().err.split())
    assert f"{file} cannot be read (file is not a database): move it away, and" in said
    file.rename(students.results / "away")
    assert students.run() == 0
    with sqlite3.connect(file) as database:  # what somebody has changed by hand is no grade
        database.execute("UPDATE graded SET grade = '{\"student\": 3}'")
    assert students.run() == 0 and students.tried("ada") == 2


def test_a_grade_is_found_by_its_code_for_any_student(opened, hand_in):
    store = opened("seed 1")
    store.save(Submission("ada", hand_in("ada.ipynb", "one")), graded(), "the code")
    assert store.find_code("the code") == graded()
    assert store.find_code("other code") is None and store.find_code("") is None
    store.save(
        Submission("alan", hand_in("alan.ipynb", "two")), graded(is_final=False), "open"
    )
    assert store.find_code("open") is None
    assert opened("seed 2").find_code("the code") is None


def test_the_folder_of_a_store_is_made(tmp_path):
    results = tmp_path / "autumn" / "results"
    before = open_files()
    with GradeStore(results, tmp_path):
        assert (results / FILE).exists()
    assert open_files() == before


def test_runs_are_numbered_and_one_without_grades_does_not_count(opened, hand_in):
    submission = Submission("ada", hand_in("ada.ipynb", "one"))
    assert [opened().run, opened().run] == [1, 1]
    for number in (1, 2, 3):
        store = opened()
        assert store.run == number
        store.save(submission, graded())


def test_grades_of_a_student_come_by_lesson_and_then_by_notebook(opened, tmp_path):
    """One whose lesson nothing shows comes first."""
    store, expected = opened(), []
    for lesson, notebook in ((None, "z"), ("00", "y"), ("02", "a"), ("02", "b"), ("10", "x")):
        expected.append(replace(graded(), lesson=lesson, notebook=notebook))
    for grade in reversed(expected):
        store.save(Submission("ada", tmp_path / grade.notebook), grade)
    assert [*store.grades()] == expected


def test_the_last_run_is_read_with_its_notebooks_and_those_who_changed_it_stop_nothing(
    opened, tmp_path
):
    folder = tmp_path / "submissions"
    opened().save(Submission("eve", folder / "eve.ipynb"), graded("eve"))
    store = opened()
    for student, place in (("bob", "bob/b\n.ipynb"), ("Ada", "Ada/1/a.ipynb")):
        store.save(Submission(student, folder / place), graded(student))
    assert [*last_run(tmp_path)] == [
        (folder / "Ada/1/a.ipynb", graded("Ada")),
        (folder / r"bob/b\n.ipynb", graded("bob")),
    ]
    damage(store, "{}", "bob")
    assert [each.student for _, each in last_run(tmp_path)] == ["Ada"]
    assert [*opened().grades()] == []


def test_a_grade_is_found_again_when_class_and_results_have_moved(hand_in, tmp_path):
    path = hand_in("ada/ada.ipynb")
    folder, moved = tmp_path / "submissions", tmp_path / "moved"
    with GradeStore(tmp_path / "results", folder) as store:
        store.save(Submission("ada", path), graded())
    moved.mkdir()
    folder, results = folder.rename(moved / "submissions"), moved / "results"
    (tmp_path / "results").rename(results)
    with GradeStore(results, folder) as store:
        found = Submission("ada", folder / "ada/ada.ipynb")
        assert store.find(found, graded().digest) == graded()
        other = Submission("ada", folder / "ada/other.ipynb")
        assert store.find(other, graded().digest) is None


def no_store(file):
    file.write_bytes(b"something else" * 1_000)
    return rf"{FILE} cannot be read \(file is not a database\): move it away, and everything"


def no_file(file):
    file.mkdir()
    return rf"{FILE} cannot be read or written \(unable to open database file\)$"


@pytest.mark.parametrize("make", [no_store, no_file])
def test_what_cannot_be_used_is_an_error_with_a_sentence_and_is_closed(tmp_path, make):
    words, before = make(tmp_path / FILE), open_files()
    with pytest.raises(OSError, match=words) as refused:
        GradeStore(tmp_path, tmp_path)
    assert refused.value and open_files() <= before
    with pytest.raises(OSError, match=words):
        next(last_run(tmp_path))
    assert open_files() <= before


def test_an_error_of_the_file_is_a_sentence_wherever_it_comes(opened, hand_in):
    submission = Submission("ada", hand_in("ada.ipynb", "one"))
    store = opened()
    store.save(submission, graded())
    with closing(sqlite3.connect(store.file)) as database:
        database.execute("DROP TABLE graded")
    for use in (
        lambda: store.find(submission, ""),
        lambda: store.find_code("x"),
        lambda: store.save(submission, graded()),
        lambda: next(store.grades()),
    ):
        with pytest.raises(OSError, match=r"cannot be read or written \(no such table"):
            use()
