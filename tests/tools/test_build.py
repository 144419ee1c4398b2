"""One source, two notebooks: what the regions become, that nothing leaks, and that everything
is in step.
"""

import json
import re
import shutil

import nbformat
import pytest

from lessons_lib.checks import exercises_of
from lessons_lib.paths import NOTEBOOKS, SOLUTIONS
from lessons_lib.source.lesson import Cell, Lesson, SourceError
from tools.notebooks import build, only_words
from tools.notebooks.lesson_files import read_lesson

LESSONS = build.select([])
LESSON_01 = [lesson for lesson in LESSONS if lesson.name == "01_block_manager"]
LONGEST_CELL = 40


def lesson_from(tmp_path, text: str) -> Lesson:
    path = tmp_path / "01_test.py"
    path.write_text(text)
    return read_lesson(path)


def region(*lines: str, stub: str = "", number: str = "", mark: str = "//") -> str:
    number, stub = number and f" {number}", stub and f" STUB: {stub}"
    begin, end = f"{mark} BEGIN SOLUTION{number}{stub}", f"{mark} END SOLUTION"
    return "\n".join([begin, *lines, end])


def in_string(text: str) -> str:
    return f'text = r"""\n{text}\n"""'


THROW = 'throw std::logic_error("Exercise 1.2 is not written yet");'
STUBS = {
    "Python": (
        f"def f(x):\n    {region('    return x', mark='    #').strip()}",
        "c++",
        'def f(x):\n    raise NotImplementedError("Exercise 1.2")',
    ),
    "C++ in a string": (in_string(region("return 7;")), "c++", in_string(THROW)),
    "CUDA, which does not compile": (
        in_string(region("x = 7;")),
        "cuda",
        in_string('#error "Exercise 1.2 is not written yet"'),
    ),
    "a stub of its own": (region("int a;", stub="// your member"), "c++", "// your member"),
    "a stub of its own beside another": (
        f"{region('a;', stub='// here')}\n{region('b;')}",
        "c++",
        f"// here\n{THROW}",
    ),
    "neighbours are one": (f"{region('a;')}\n{region('b;', number='1.1')}", "c++", THROW),
    "what is of a later exercise is left out": (
        f"{region('lock;', number='1.10')}\n{region('act;', number='1.2')}",
        "c++",
        THROW,
    ),
}


@pytest.mark.parametrize(("source", "language", "student"), STUBS.values(), ids=STUBS)
def test_a_region_becomes_a_stub_that_names_its_exercise(source, language, student):
    cell = Cell("exercise", source, "1.2", language)
    assert cell.student() == student
    assert "STUB" not in cell.solution()


def test_a_solution_is_our_answer_up_to_its_exercise():
    source = "\n".join(region(f"{n};", number=f"1.{n}") for n in (2, 3, 10))
    assert Cell("exercise", source, "1.3").solution() == region("2;", "3;")
    assert Cell("exercise", source, "1.10").solution() == region("2;", "3;", "10;")


def test_a_file_is_included_whole_for_us_and_stubbed_for_the_learner(tmp_path):
    text = '# %% exercise="1.1"\ntext = r"""\n// INCLUDE free_list.h\n"""\n'
    (cell,) = lesson_from(tmp_path, text).cells
    assert "block_ids_.pop_back();" in cell.solution()
    assert "block_ids_.pop_back();" not in cell.student()
    assert "#pragma once" not in cell.solution()
    assert cell.student().count("throw std::logic_error") == 4


def test_a_definition_is_taken_in_by_name(tmp_path):
    """A lesson shows the very code that later lessons import: a function, a method as a
    function, a class in part.
    """

    def cell_with(head: str, name: str) -> Cell:
        (cell,) = lesson_from(
            tmp_path, f"# %%{head}\n# INCLUDE paged_attention/{name}\n"
        ).cells
        return cell

    function = cell_with(' exercise="2.2"', "pool/slots.py slot_mapping")
    assert "block_ids[positions // block_size]" in function.solution()
    assert "block_ids[positions // block_size]" not in function.student()
    method = cell_with(
        ' exercise="2.7"', "pool/kv_cache.py PagedAttentionManager.free_sequence"
    )
    assert method.solution().startswith("def free_sequence(self")
    assert method.student().endswith('    raise NotImplementedError("Exercise 2.7")')
    part = cell_with(
        ' exercise="3.2"', "attention/softmax_state.py SoftmaxState without merge"
    )
    assert "def update" in part.solution() and "def merge" not in part.solution()
    constant = cell_with("", "pool/block_table.py NO_BLOCK")
    assert constant.student().startswith("NO_BLOCK = -1")


RAISES = "raise NotImplementedError"


@pytest.mark.parametrize(
    "source, words",
    [
        ("# BEGIN SOLUTION\nx", "without its END"),
        ("x\n# END SOLUTION", "without BEGIN"),
        ("# BEGIN SOLUTION\n# BEGIN SOLUTION\n# END SOLUTION", "inside a solution"),
        ("#BEGIN SOLUTION\n# END SOLUTION", "not the form"),
        ("// INCLUDE no_such.cu", "no kernels/no_such.cu"),
        ("// INCLUDE free_list.h ", "not the form"),
        ("//INCLUDE free_list.h", "not the form"),
        ("# INCLUDE paged_attention/pool/slots.py", "not the form"),
        ("# INCLUDE lessons_lib/no_such.py write_kv", "no lessons_lib/no_such.py"),
        (
            "# INCLUDE paged_attention/pool/slots.py read_kv",
            "paged_attention/pool/slots.py read_kv: there is no read_kv",
        ),
        (
            "# INCLUDE paged_attention/attention/softmax_state.py SoftmaxState without divide",
            "there is no divide",
        ),
        ("# BEGIN SOLUTION\n# END SOLUTION", "empty solution region"),
        ("x = 1", "nothing in the student's version would fail"),
        (f"{RAISES}\n# %%\n# BEGIN SOLUTION\nx\n# END SOLUTION", "outside an exercise cell"),
        *(
            (f"{RAISES}\n# %% exercise={name}\n{RAISES}", 'named like "1.2"')
            for name in ("1.2", '""', '"one"')
        ),
    ],
)
def test_a_faulty_source_is_refused_by_name(tmp_path, source, words):
    with pytest.raises(SourceError, match=words) as caught:
        lesson_from(tmp_path, f'# %% exercise="1.1"\n{source}\n')
    assert str(caught.value).startswith("01_test.py: ")


def test_cell_ids_are_the_same_each_time_and_an_edit_moves_no_other():
    lesson = LESSONS[1]
    edited = Lesson(lesson.name, (Cell("markdown", "new"), *lesson.cells))
    once, twice, moved = (
        [cell.id for cell in build.render_student(each).cells]
        for each in (lesson, lesson, edited)
    )
    assert once == twice == moved[1:] and len(set(once)) == len(once)
    assert once == [cell.id for cell in build.render_solution(lesson).cells]


def test_everything_is_in_step():
    assert build.check(LESSONS) == []


@pytest.fixture
def copy_of_the_notebooks(tmp_path, monkeypatch):
    """With all sources, and the notebooks of lesson 01 alone."""
    for name, folder in (("NOTEBOOKS", NOTEBOOKS), ("SOLUTIONS", SOLUTIONS)):
        copy = tmp_path / folder.name
        copy.mkdir()
        for path in (*folder.glob("*.py"), *folder.glob("01_*.ipynb")):
            shutil.copy(path, copy)
        monkeypatch.setattr(build, name, copy)
    return tmp_path


def change(path, edit):
    notebook = nbformat.read(path, as_version=4)
    edit(notebook)
    nbformat.write(notebook, path)


PUSH_BACK = "    block_ids_.push_back(block_id);"
OUTPUTS = [nbformat.v4.new_output("stream", text="x")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder, edit, words",
    [
        ("notebooks", lambda nb: nb.cells[0].update(source="other"), "is not what"),
        ("notebooks", lambda nb: nb.cells.pop(), "is not what"),
        ("notebooks", lambda nb: nb.cells[0].pop("attachments"), "is not what"),
        ("notebooks", lambda nb: nb.cells[3].update(id="moved"), "is not what"),
        ("solutions", lambda nb: nb.cells[1].update(source="other"), "is not what"),
        ("solutions", lambda nb: nb.cells[1].update(execution_count=None), "without a run"),
        ("notebooks", lambda nb: nb.cells[1].update(outputs=OUTPUTS), "holds outputs"),
        ("notebooks", lambda nb: nb.cells[0].update(source=PUSH_BACK), "shows a solution"),
        ("notebooks", lambda nb: nb.cells[0].update(source="# BEGIN SOLUTION"), "n marker"),
    ],
)
def test_check_notices_what_is_out_of_step(copy_of_the_notebooks, folder, edit, words):
    change(copy_of_the_notebooks / folder / "01_block_manager.ipynb", edit)
    problems = build.check(LESSON_01)
    assert problems and any(words in problem for problem in problems)


def test_check_notices_a_notebook_without_a_source_and_one_that_is_missing(
    copy_of_the_notebooks,
):
    first = copy_of_the_notebooks / "notebooks/01_block_manager.ipynb"
    first.rename(first.with_name("02_old.ipynb"))
    assert any("is missing" in problem for problem in build.check(LESSON_01))
    assert any("02_old.ipynb has no source" in problem for problem in build.check([]))


def test_a_solution_written_into_the_prose_is_a_leak():
    given = Cell("markdown", f"Now write\n\n{PUSH_BACK}")
    assert build.leaks([Lesson("01_block_manager", (given,))]) != []


def test_a_lesson_that_fails_keeps_its_old_notebooks(copy_of_the_notebooks, capsys):
    broken = Lesson("01_block_manager", (Cell("code", "1 / 0"),))
    before = (copy_of_the_notebooks / "solutions/01_block_manager.ipynb").read_bytes()
    problems = build.build([broken])
    assert len(problems) == 1 and "ZeroDivisionError" in problems[0]
    assert (copy_of_the_notebooks / "solutions/01_block_manager.ipynb").read_bytes() == before
    assert "01_block_manager … failed" in capsys.readouterr().out


def test_an_unknown_lesson_names_those_that_exist(capsys):
    assert build.main(["77"]) == 1
    assert "There is no lesson 77; the lessons are 00, 01" in capsys.readouterr().err


each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)


@each_lesson
def test_cells_carry_nbgraders_metadata(lesson):
    """As nbgrader's schema version 3 has it: answers are solutions, checks are locked and have
    points.
    """
    student, solution = build.render_student(lesson), build.render_solution(lesson)
    ours, theirs = ([cell.metadata for cell in each.cells] for each in (solution, student))
    for metadata in theirs:
        metadata.pop("given", None)  # the digest of a stub
    assert ours == theirs
    of_nbgrader = [dict(metadata.get("nbgrader", ())) for metadata in ours]
    graded = {each["grade_id"]: each for each in of_nbgrader if each}
    exercises = [cell.exercise.replace(".", "-") for cell in lesson.cells if cell.exercise]
    expected = {}
    for exercise in exercises:
        kinds = {"exercise": (False, False, True), "check": (True, True, False)}
        for kind, (grade, locked, is_solution) in kinds.items():
            expected[f"{kind}-{exercise}"] = {
                "schema_version": 3,
                "grade_id": f"{kind}-{exercise}",
                "grade": grade,
                "locked": locked,
                "solution": is_solution,
                "task": False,
            }
    for name, each in graded.items():
        assert (each.pop("points", 0) >= 1) == name.startswith("check")
    assert graded == expected


@each_lesson
def test_no_cell_is_long_or_says_anything_to_nbval(lesson):
    for cell in lesson.cells:
        assert "NBVAL" not in cell.source and "PYTEST" not in cell.source
        assert {*cell.tags} <= {"nbval-ignore-output", "raises-exception"}
        # the repairs are a list, to be looked up
        text = cell.student() if cell.faulty else cell.solution()
        lines = [
            line
            for line in text.split("\n")
            if line.strip() and not re.search('SOLUTION|"""$', line)
        ]
        assert cell.kind == "markdown" or len(lines) <= LONGEST_CELL, cell.source[:60]


@each_lesson
def test_what_a_lesson_shows_is_the_same_everywhere_and_its_pictures_have_texts(lesson):
    """Warnings, and the folder that it was made in, differ from machine to machine."""
    pictures = []
    for cell in nbformat.read(SOLUTIONS / f"{lesson.name}.ipynb", as_version=4).cells:
        if "attachments" in cell:
            pictures += re.findall(r"!\[(.*)\]\(", cell.source)
        for output in cell.get("outputs", []):
            said = json.dumps(output)
            assert "Warning: " not in said, cell.source
            assert "site-packages" not in said, cell.source
            assert str(SOLUTIONS.parent) not in said, cell.source
            assert "image/png" not in output.get("data", {}), (
                "show it with lessons_lib.drawing.show"
            )
            html = output.get("data", {}).get("text/html", "")
            pictures += re.findall('<img alt="([^"]*)"', html)
    assert all(len(text) > 40 for text in pictures)
    has_code = any(cell.kind != "markdown" for cell in lesson.cells)  # all but the glossary
    assert len(pictures) >= has_code + any(cell.exercise for cell in lesson.cells)


@each_lesson
def test_every_exercise_has_its_heading_and_a_check_after_it(lesson):
    """tests/lessons_lib/guide/test_moments.py knows their order."""
    kinds = [(cell.kind, cell.exercise) for cell in lesson.cells if cell.exercise]
    exercises = exercises_of(lesson.name[:2])
    ids = [id for kind, id in kinds if kind == "exercise"]
    assert kinds == [(kind, id) for id in ids for kind in ("exercise", "check")]
    assert sorted(ids) == sorted(exercise.id for exercise in exercises)
    text = "\n".join(cell.source for cell in lesson.cells if cell.kind == "markdown")
    headings = dict(re.findall(r"^### Exercise (\d+\.\d): (.*)$", text, re.MULTILINE))
    assert headings == {exercise.id: exercise.title for exercise in exercises}


@each_lesson
def test_the_first_code_of_a_lesson_is_one_line_of_imports_and_one_that_opens_it(lesson):
    """Lesson 00 also shows at once what it is all about."""
    code = [cell.solution() for cell in lesson.cells if cell.kind == "code"]
    if code:  # the glossary has none
        name = lesson.name.split("_")[0]
        begins = rf'from lessons_lib import [\w, ]+\n\ndraw = open_lesson\("{name}"\)'
        shows = r"\ndraw\.contiguous_and_paged\(\)" if name == "00" else ""
        assert re.fullmatch(begins + shows, code[0].strip())
        assert "matplotlib" not in "".join(code), "drawing is for lessons_lib.drawing"


CPP = 'code = r"""\nint one() {\n  return 1;  // the first\n}\n"""'


@pytest.mark.slow
@pytest.mark.parametrize(
    "before, after",
    [
        ("a = 1  # one", "# the number\na = 1"),
        (
            'def f():\n    """Old."""\n    return 2',
            'def f():\n    """New,\n    and longer."""\n    return 2',
        ),
        (CPP, CPP.replace("the first", "the only")),
        (CPP, CPP.replace("// the first", "/* none */")),
        ("%matplotlib inline\na = 1", "%matplotlib inline\na = 1  # one"),
    ],
)
def test_where_only_words_have_changed_the_outputs_are_kept(
    copy_of_the_notebooks, before, after
):
    def lesson(code, text):
        return Lesson("00_start_here", (Cell("markdown", text), Cell("code", code)))

    path = copy_of_the_notebooks / "solutions/00_start_here.ipynb"
    old = build.render_solution(lesson(before, "Old text."))
    old.cells[1].update(execution_count=1, outputs=OUTPUTS)
    nbformat.write(old, path)
    assert build.build([lesson(after, "New text.")], keep_outputs=True) == []
    new = nbformat.read(path, as_version=4)
    assert (new.cells[0].source, new.cells[1].source) == ("New text.", after)
    assert new.cells[1].outputs == old.cells[1].outputs and new.cells[1].execution_count == 1


@pytest.mark.parametrize(
    "before, after",
    [
        ("print(1)", "print(2)"),
        ("print('# 1')", "print('# 2')"),
        ("%precision 2\nprint(1)", "%precision 3\nprint(1)"),
        (CPP, CPP.replace("return 1", "return 2")),
        (CPP, CPP.replace("// the first", "// the\n  // first")),  # messages name lines
        (CPP, CPP.replace("1;", 'sizeof "// a";')),
    ],
)
def test_where_code_has_changed_it_is_executed(before, after):
    old, new = (
        build.render_solution(Lesson("00_start_here", (Cell("code", code),)))
        for code in (before, after)
    )
    assert only_words.with_outputs_of(old, new) is None
    assert only_words.with_outputs_of(old, old) is old
