"""What a teacher and a student read: the table, the JSON, and the pages, whatever a submission
puts into them.
"""

import csv
import gc
import json
import re
import subprocess
import tracemalloc
from html.parser import HTMLParser
from urllib.parse import unquote

import msgspec
import pytest
from msgspec.structs import replace

from lessons_grading import report
from lessons_grading.grades import ExerciseGrade, SubmissionGrade
from lessons_grading.hidden_cases import NEW_CASE
from lessons_grading.report import COLUMNS, write_report
from lessons_grading.students import Student, in_order
from lessons_lib import checks
from lessons_lib.paths import ROOT

EVIL = '<script>alert("1")</script>&amp;\' {{ 7 * 7 }}'
UNSEEN = "this is not a notebook: Expecting value: line 1 column 1"


def entry(exercise: str, mistake: str | None = None, message: str = "") -> ExerciseGrade:
    known = checks.find(exercise)
    earned = 0 if mistake else known.points
    return ExerciseGrade(
        exercise, known.title, known.points, earned, not mistake, mistake, message, 0.25
    )


def submission(
    student: str,
    *exercises: ExerciseGrade,
    lesson: str | None = "02",
    notebook: str = "02.ipynb",
    events=(),
):
    return SubmissionGrade(student, notebook, "", lesson, exercises, tuple(events), 1.5)


@pytest.fixture
def written(tmp_path):
    """Writes a report and returns the folder of the results."""

    def written(*grades: SubmissionGrade, sandboxed: bool = True):
        in_turn = sorted(grades, key=in_order)
        write_report(tmp_path, in_turn, seed=3, sandboxed=sandboxed)
        return tmp_path

    return written


class Page(HTMLParser):
    """The words of a page and its elements. Fails for an element that is not closed in its
    place.
    """

    def __init__(self, path):
        super().__init__()
        self.words = []
        self.elements = []
        self.open = []
        self.feed(path.read_text(encoding="utf-8"))
        assert not self.open
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    def of(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.elements if name == tag]


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


CASE = "Smallest case that shows it: slot_mapping(…)\n  expected: 3\n  got:      {}"


def wrong(
    got: object, rest: str = "", slug: str = "wrong", words: str = "The result is not right."
) -> ExerciseGrade:
    return entry("2.2", slug, f"{words}\n{CASE.format(got)}{rest}")


def rows_of_class(written, *entries: ExerciseGrade) -> str:
    page = Page(
        written(*(submission(f"s{number}", each) for number, each in enumerate(entries)))
        / "class.html"
    )
    return page.text[
        page.text.index("What holds people up") : page.text.index("Students Student")
    ]


def test_unnamed_answers_that_fail_alike_are_one_group_with_an_example(written):
    """Whatever they printed, and wherever in their text it was."""
    fives = [wrong(5), wrong(5, "\nYour code printed:\nhere"), wrong(5)]
    lines = [wrong("KeyError: 3, line 7 of yours"), wrong("KeyError: 3, line 12 of yours")]
    others = [
        wrong(7),
        wrong(8),
        entry("2.2"),
        entry("2.2", "position-for-offset", "You add all."),
    ]
    held_up = rows_of_class(written, *fives, *lines, *others)
    case = "Smallest case that shows it: slot_mapping(…) expected: 3 got: "
    assert (
        f"3 of 9 2.2 slots wrong : 3 of 9 fail in the same way {case}5 See s0 , s1 , s2 "
        in held_up
    )
    assert (
        f"2 of 9 2.2 slots wrong : 2 of 9 fail in the same way {case}KeyError: "
        "3, a line of yours See s3 , s4 " in held_up
    )
    assert (
        "2 of 9 2.2 slots wrong : 2 of 9 fail, each in a way of its own See s5 , s6" in held_up
    )
    assert "1 of 9 2.2 slots position-for-offset You add all." in held_up
    assert "not right" not in held_up and "here" not in held_up
    assert held_up.index("s2") < held_up.index("s4") < held_up.index("position-for-offset")


@pytest.mark.parametrize("name", ["a" * 250, "é" * 125])
def test_a_page_has_the_whole_name_where_files_may(name):
    assert Student(name, ()).page == f"{name}.html"
    longer = Student(f"{name}b", ()).page
    assert longer.startswith(name[:100]) and len(longer.encode()) < 255
    assert longer != Student(f"{name}c", ()).page


def test_the_class_page_counts_what_was_not_tried_again(written):
    one = replace(submission("ada", entry("2.2")), tried=3, repeated=1)
    other = replace(submission("bob", entry("2.2")), tried=2, repeated=4)
    known = replace(submission("cleo", entry("2.2")), repeated=2)
    text = Page(written(one, other, known) / "class.html").text
    assert "7 of 12 answers in the other notebooks were known already" in text
    assert "tried" not in Page(written(submission("ada", entry("2.2"))) / "class.html").text


def test_a_group_names_a_few_and_leads_to_what_happened(written):
    results = written(*(submission(f"s{number}", wrong(5)) for number in range(7)))
    page = Page(results / "class.html")
    assert "For example s0 , s1 , s2 , s3 , s4 and 2 more" in page.text
    assert page.of("a")[0] == {"href": "students/s0.html#exercise-2.2"}
    student = Page(results / "students/s0.html")
    assert {"class": "entry", "id": "exercise-2.2"} in student.of("section")


def test_endings_are_groups_of_their_own_and_further_cases_make_no_difference(written):
    crash = "Your code crashed its process (Segmentation fault)."
    held_up = rows_of_class(
        written,
        wrong(5),
        wrong("the process crashed", slug="crashed", words=crash),
        wrong("the process crashed", slug="crashed", words=crash),
        entry("2.2", "position-for-offset", "You add all.\n…"),
        entry("2.2", "position-for-offset", f"{NEW_CASE}\nYou add all.\n…"),
    )
    assert f"crashed : 2 of 5 fail in the same way {crash} Smallest case" in held_up
    assert (
        "1 of 5 2.2 slots wrong : no other answer fails like this one Smallest case" in held_up
        and "See s0" in held_up
    )
    assert (
        "2 of 5 2.2 slots position-for-offset You add all." in held_up
        and "It passes the check" not in held_up
    )


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


def test_the_class_page_shows_what_holds_people_up(written):
    late = "You add the whole position.\nSmallest case: that of one student"
    page = Page(
        written(
            submission("ada", entry("2.1"), entry("2.2", "position-for-offset", late)),
            submission("alan", entry("2.1"), entry("2.2", "position-for-offset", late)),
            submission(
                "grace", entry("2.1", "wrong", "The result is not right."), entry("2.2")
            ),
            submission("zuse", lesson=None, events=["cell 3 raised NameError: x", UNSEEN]),
        )
        / "class.html"
    )
    assert "2.1 pieces of memory 2 of 3" in page.text and "2.2 slots 1 of 3" in page.text
    held_up = page.text[
        page.text.index("What holds people up") : page.text.index("Students Student")
    ]
    assert (
        "2 of 3 2.2 slots position-for-offset You add the whole position. 1 of 3 2.1"
        in held_up
    )
    assert "one student" not in held_up
    assert [link["href"] for link in page.of("a")] == [
        "students/grace.html#exercise-2.1",
        *(f"students/{name}.html" for name in ("ada", "alan", "grace", "zuse")),
    ]
    assert f"zuse, 02.ipynb {UNSEEN}" in page.text and "NameError" not in page.text


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


def test_a_class_of_thousands_is_laid_out_where_it_is_looked_at(written, monkeypatch):
    """Each student is on the page, in tables of a few hundred rows."""
    monkeypatch.setattr(report, "write_whole", only_the_class_page(report.write_whole))
    grades = [submission(f"student{number:04d}", entry("2.1")) for number in range(2_000)]
    page = Page(written(*grades) / "class.html")
    links = [each["href"] for each in page.of("a")]
    assert links == [f"students/student{number:04d}.html" for number in range(2_000)]
    parts = [each for each in page.of("div") if each.get("class") == "scroll part"]
    assert len(parts) == 8 and len(page.elements) < 9 * 2_000
    small = Page(written(*grades[:200]) / "class.html")
    assert not [each for each in small.of("div") if "part" in each.get("class", "")]


def only_the_class_page(write):
    return lambda file, text: write(file, text) if file.name == "class.html" else None


def test_the_smallest_of_very_many_groups_are_a_number(written):
    results = written(
        *(submission(f"s{number}", wrong(number // 2)) for number in range(620)),
        *(submission(f"t{number}", wrong("more")) for number in range(3)),
    )
    page = Page(results / "class.html")
    assert "And 61 more, each with at most 2 students." in page.text
    assert page.text.index("3 of 623") < page.text.index("2 of 623")


@pytest.mark.slow
def test_a_report_needs_little_memory_for_each_student(written, monkeypatch):
    """Hardly more than a row of the class page, so ten thousand fit in far less than 1 GB."""
    monkeypatch.setattr(report, "write_whole", lambda file, text: None)

    def peak(count: int) -> int:
        def about():
            for number in range(count):
                if number % 50 == 0:
                    gc.collect()  # else what is kept would hang on when this happens
                yield submission(f"s{number:05d}", wrong(number % 9, "x" * 3_000))

        tracemalloc.start()
        write_report(written(), about(), seed=3, sandboxed=True)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(50)  # what is loaded once
    assert (peak(1_050) - peak(50)) / 1_000 < 8_000
