"""What a teacher and a student read: the table, the JSON, and the pages, whatever a submission
puts into them.
"""

import csv
import json
import re
import subprocess
from urllib.parse import unquote

import msgspec
import pytest

from lessons_grading.grades import ExerciseGrade, SubmissionGrade
from lessons_grading.pages import COLUMNS
from lessons_grading.students import Student
from lessons_lib import checks
from lessons_lib.paths import ROOT
from reported import UNSEEN, Page, entry, submission, written  # noqa: F401

EVIL = '<script>alert("1")</script>&amp;\' {{ 7 * 7 }}'


def test_the_table_has_a_row_for_each_exercise(written):
    results = written(
        submission("grace", entry("2.5"), entry("2.1", "bytes-of-all", "…")),
        submission("ada", lesson=None, events=[UNSEEN]),
    )
    rows = list(csv.DictReader((results / "results.csv").open(encoding="utf-8")))
    assert tuple(rows[0]) == COLUMNS
    columns = ("student", "exercise", "points", "earned", "passed", "mistake")
    assert [tuple(row[column] for column in columns) for row in rows] == [
        ("ada", "", "0", "0", "False", "unreadable"),
        ("grace", "2.5", "2", "2", "True", ""),
        ("grace", "2.1", "1", "0", "False", "bytes-of-all"),
    ]


@pytest.mark.parametrize(
    "name, shown",
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("-1+1", "'-1+1"),
        ("+1", "'+1"),
        ("@SUM(1)", "'@SUM(1)"),
        ("|x", "'|x"),
        *((f"{sign}1", f"'{sign}1") for sign in "＝＋－＠｜"),
        (" =1", " '=1"),
        ("\u3000＝1", "\u3000'＝1"),
        ('a",=1', "a\",'=1"),
        ("a;=1", "a;'=1"),
        ("a|-1", "a|'-1"),
        ('"=1"', '"\'=1"'),
        ("a: @x", "a: '@x"),
        ("a\r=1", r"a\r=1"),
        ("a\n=1", r"a\n=1"),
        ("\t=1", r"\t=1"),
        ("a\u2028=1", r"a\u2028=1"),
        ("Zoë Müller-Lüdenscheidt", "Zoë Müller-Lüdenscheidt"),
        ("O'Hara, a+b=c", "O'Hara, a+b=c"),
    ],
)
def test_a_spreadsheet_runs_no_formula_of_a_student(written, name, shown):
    results = written(
        submission(name, entry("2.1"), notebook=name),
        submission(name, lesson=None, notebook=name),
    )
    text = (results / "results.csv").read_bytes()
    assert b"\r" not in text and text.count(b"\n") == 3
    rows = csv.DictReader(text.decode().splitlines())
    assert [(row["student"], row["notebook"]) for row in rows] == [(shown, shown)] * 2


def test_what_is_not_final_is_no_zero(written):
    open_still = SubmissionGrade(
        "ada", "a.ipynb", "", None, (), ("this file cannot be read",), 0.1, is_final=False
    )
    results = written(open_still, submission("bob", lesson=None, events=[UNSEEN]))
    rows = csv.DictReader((results / "results.csv").open(encoding="utf-8"))
    assert [(row["student"], row["mistake"]) for row in rows] == [
        ("ada", "not-graded"),
        ("bob", "unreadable"),
    ]
    assert "Without a final grade: 1." in Page(results / "class.html").text
    results = written(submission("bob", entry("2.1")))
    assert "final grade" not in (results / "class.html").read_text()


@pytest.mark.parametrize("name", ["a" * 250, "é" * 125])
def test_a_page_has_the_whole_name_where_files_may(name):
    assert Student(name, ()).page == f"{name}.html"
    longer = Student(f"{name}b", ()).page
    assert longer.startswith(name[:100]) and len(longer.encode()) < 255
    assert longer != Student(f"{name}c", ()).page


def test_the_json_holds_every_grade(written):
    grades = [
        submission("ada", entry("2.1", "wrong", "No.")),
        submission("grace", lesson=None, events=[UNSEEN]),
    ]
    data = json.loads((written(*grades) / "results.json").read_text())
    assert msgspec.convert(data["submissions"], list[SubmissionGrade]) == grades
    assert data["seed"] == 3 and data["sandboxed"] is True


def test_a_student_sees_what_is_passed_and_what_to_look_at_next(written):
    wrong = entry("2.2", "position-for-offset", "You add all.\nSmallest:\n  got: 4")
    page = Page(
        written(
            submission(
                "ada",
                entry("2.1"),
                wrong,
                entry("2.3", "not-attempted", "`write_kv` is still the stub."),
                entry("2.4", "missing"),
                events=["cell 7 was stopped after 20 s"],
            )
        )
        / "students/ada.html"
    )
    assert "1 of 4 points" in page.text
    assert "2.1 pieces of memory ✓ passed 1 of 1 point" in page.text
    assert (
        "2.2 slots ✗ not yet (position-for-offset) 0 of 1 point You add all. Smallest: got: 4"
        in page.text
    )
    assert (
        "– not attempted 0 of 1 point write_kv is still the stub." in page.text
        and "– missing" in page.text
    )
    assert "cell 7 was stopped after 20 s" in page.text
    following = page.text[
        page.text.index("What to look at next") : page.text.index(
            "02 block tables: 1 of 4 points"
        )
    ]
    assert re.findall(r"Exercise (\d\.\d)", following) == ["2.2", "2.3"]
    assert checks.find("2.2").hints[0].split("`")[0].strip() in following
    assert "02_block_tables.ipynb#exercise-2-2 , the cell with slot_mapping" in following


def test_what_an_answer_could_have_switched_off_is_named_as_not_proved(written):
    passed = [entry(each) for each in ("1.3", "3.4", "6.1")]
    folder = written(
        submission("ada", *passed), submission("bob", entry("1.3", "wrong"), entry("2.1"))
    )
    words = ("each method holds the lock", "the scores of many blocks", "its threads do not")
    for page in ("students/ada.html", "class.html"):
        text = Page(folder / page).text
        assert all(f"Not proved: that {part}" in text for part in words)
    assert "Not proved" not in Page(folder / "students/bob.html").text


def test_the_places_named_exist():
    student = Student(
        "ada",
        (
            submission("ada", entry("2.2", "wrong"), entry("2.7", "wrong")),
            submission("ada", entry("8.1", "wrong"), lesson="08"),
        ),
    )
    for step in student.next_steps:
        path, _, cell = step["place"].partition("#")
        assert cell in {
            cell["id"] for cell in json.loads((ROOT / "notebooks" / path).read_text())["cells"]
        }


def test_an_exercise_handed_in_twice_counts_once_at_its_best():
    twice = Student(
        "ada",
        (
            submission(
                "ada", entry("2.1", "not-attempted"), entry("2.2"), entry("2.3", "missing")
            ),
            submission("ada", entry("2.1"), entry("2.2", "wrong"), entry("2.3", "wrong")),
            submission("ada", entry("0.1"), lesson="00"),
        ),
    )
    assert {
        lesson: [(each.exercise, each.mistake) for each in entries]
        for lesson, entries in twice.lessons.items()
    } == {"00": [("0.1", None)], "02": [("2.1", None), ("2.2", None), ("2.3", "wrong")]}


def test_nothing_left_and_nothing_to_grade_have_words_of_their_own(written):
    results = written(
        submission("ada", entry("2.1")), submission("alan", lesson=None, events=[UNSEEN])
    )
    assert "Every exercise is passed" in Page(results / "students/ada.html").text
    page = Page(results / "students/alan.html")
    assert "nothing that could be graded" in page.text and UNSEEN in page.text


def test_whatever_a_submission_says_is_shown_as_text(written):
    mistake = ExerciseGrade(
        "2.1", EVIL, 1, 0, False, "wrong", f"{EVIL}\n  {EVIL}\n`{EVIL}`", 0.1
    )
    results = written(
        submission(EVIL.replace("/", "|"), mistake, notebook=EVIL, events=[EVIL])
    )
    (student,) = (results / "students").iterdir()
    for path in (student, results / "class.html"):
        page = Page(path)
        assert not page.of("script") and EVIL in page.text.replace("|", "/")
    assert "49" not in page.text


def test_a_link_leads_to_a_page_whatever_its_name(written):
    names = ["Zoë Müller", "50% #1?", "a" * 252, "ü" * 127, r"Jos\xe9"]
    results = written(*(submission(name, entry("2.1")) for name in names))
    links = {unquote(link["href"]) for link in Page(results / "class.html").of("a")}
    assert (
        links == {f"students/{path.name}" for path in (results / "students").iterdir()}
        and len(links) == 5
    )


def test_pages_need_nothing_from_elsewhere_and_have_their_words_beside_each_colour(written):
    results = written(submission("ada", entry("2.1"), entry("2.2", "wrong", "…")))
    for path in (results / "class.html", results / "students/ada.html"):
        page = Page(path)
        assert not [
            tag for tag, _ in page.elements if tag in ("script", "link", "img", "iframe")
        ]
        assert "url(" not in path.read_text() and "http" not in path.read_text().replace(
            "http-equiv", ""
        )
        assert {"name": "color-scheme", "content": "light dark"} in page.of("meta")
        assert page.of("html") == [{"lang": "en"}] and len(page.of("h1")) == 1
        assert all(heading.get("scope") for heading in page.of("th"))
        assert all(
            bar.get("aria-hidden") == "true"
            for bar in page.of("span")
            if bar.get("class") == "bar"
        )


def test_pages_say_when_there_was_no_sandbox(written):
    """Once, though the submission's events say so too."""
    events = ["it ran without a sandbox", "cell 3 printed too much"]
    results = written(submission("ada", entry("2.1"), events=events), sandboxed=False)
    for path in (results / "class.html", results / "students/ada.html"):
        assert (
            path.read_text().count("without a sandbox") == 1 and events[1] in path.read_text()
        )
    assert (
        "sandbox" not in (written(submission("ada", entry("2.1"))) / "class.html").read_text()
    )


def test_make_grade_asks_for_the_folder():
    make = ["make", "--dry-run", "--assume-old", ".venv/ready", "grade"]
    run = subprocess.run(make, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode and "make grade SUBMISSIONS=folder" in run.stderr
    run = subprocess.run(
        [*make, "SUBMISSIONS=my class", "ARGS=--seed 7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert '-m lessons_grading "my class" --seed 7' in run.stdout
