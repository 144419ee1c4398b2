"""What a teacher reads of the class: what holds people up, whatever the size of the class."""

import gc
import tracemalloc

import pytest
from msgspec.structs import replace

from lessons_grading import pages
from lessons_grading.grades import ExerciseGrade
from lessons_grading.hidden_cases import NEW_CASE
from lessons_grading.pages import write_report
from reported import UNSEEN, Page, entry, submission, written, wrong  # noqa: F401


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


def test_a_class_of_thousands_is_laid_out_where_it_is_looked_at(written, monkeypatch):
    """Each student is on the page, in tables of a few hundred rows."""
    monkeypatch.setattr(pages, "write_whole", only_the_class_page(pages.write_whole))
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
    monkeypatch.setattr(pages, "write_whole", lambda file, text: None)

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
