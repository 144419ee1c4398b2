"""One source, two notebooks: what the regions become, that nothing leaks, and that everything
is in step.
"""

import json
import re
import shutil

import nbformat
import pytest

from lessons_build import build, words
from lessons_build.source import Cell, Lesson, SourceError, _read_cell, read_lesson
from lessons_lib.checks import exercises_of
from lessons_lib.paths import NOTEBOOKS, SOLUTIONS

LESSONS = build.select([])
LESSON_01 = [lesson for lesson in LESSONS if lesson.name == "01_block_manager"]
LONGEST_CELL = 40


def lesson_from(tmp_path, text: str) -> Lesson:
    path = tmp_path / "01_test.py"
    path.write_text(text)
    return read_lesson(path)


def test_a_python_region_becomes_an_error_that_names_its_exercise():
    cell = Cell(
        "exercise",
        "def f(x):\n    # BEGIN SOLUTION\n    y = x\n    return y\n    # END SOLUTION",
        "1.5",
    )
    assert cell.student() == 'def f(x):\n    raise NotImplementedError("Exercise 1.5")'
    assert cell.solution() == cell.source
    with pytest.raises(NotImplementedError, match="Exercise 1.5"):
        exec(cell.student() + "\nf(1)", {})


def test_a_cpp_region_inside_a_string_becomes_a_throw():
    cell = Cell(
        "exercise",
        'text = r"""\nint f() {\n  // BEGIN SOLUTION\n  return 7;\n  // END SOLUTION\n}\n"""',
        "1.1",
    )
    assert (
        cell.student()
        == 'text = r"""\nint f() {\n  throw std::logic_error("Exercise 1.1 is not written'
        ' yet");\n}\n"""'
    )


def test_a_cuda_region_becomes_a_compile_time_error():
    cell = Cell(
        "exercise",
        'text = r"""\n  // BEGIN SOLUTION\n  x = 7;\n  // END SOLUTION\n"""',
        "6.1",
        "cuda",
    )
    assert cell.student() == 'text = r"""\n#error "Exercise 6.1 is not written yet"\n"""'


def test_a_region_may_bring_its_own_stub():
    cell = Cell(
        "exercise",
        "// BEGIN SOLUTION STUB: // your member here\nint member;\n// END SOLUTION",
        "1.1",
    )
    assert cell.student() == "// your member here"
    assert "STUB" not in cell.solution()


def test_neighbouring_regions_are_one():
    source = (
        "  // BEGIN SOLUTION 1.2\n"
        "  a;\n"
        "  // END SOLUTION\n"
        "  // BEGIN SOLUTION 1.3\n"
        "  b;\n"
        "  // END SOLUTION"
    )
    assert Cell("exercise", source, "1.3").student().count("throw") == 1
    assert (
        Cell("exercise", source, "1.3").solution()
        == "  // BEGIN SOLUTION\n  a;\n  b;\n  // END SOLUTION"
    )


def test_what_belongs_to_a_later_exercise_is_left_out():
    source = (
        "  // BEGIN SOLUTION 1.3\n"
        "  lock;\n"
        "  // END SOLUTION\n"
        "  // BEGIN SOLUTION 1.2\n"
        "  act;\n"
        "  // END SOLUTION"
    )
    early = Cell("exercise", source, "1.2")
    late = Cell("exercise", source, "1.10")
    assert (
        "lock" not in early.solution()
        and "act" in early.solution()
        and "lock" not in early.student()
    )
    assert "lock" in late.solution()


def test_a_file_is_included_whole_for_us_and_stubbed_for_the_learner(tmp_path):
    lesson = lesson_from(
        tmp_path, '# %% exercise="1.1"\ntext = r"""\n// INCLUDE free_list.h\n"""\n'
    )
    (cell,) = lesson.cells
    assert (
        "block_ids_.pop_back();" in cell.solution()
        and "block_ids_.pop_back();" not in cell.student()
    )
    assert "#pragma once" not in cell.solution()
    assert cell.student().count("throw std::logic_error") == 4


def test_a_definition_is_taken_in_by_name(tmp_path):
    """A lesson shows the very code that later lessons import: a function, a method as a
    function, a class in part.
    """
    (function,) = lesson_from(
        tmp_path, '# %% exercise="2.2"\n# INCLUDE paged_attention/slots.py slot_mapping\n'
    ).cells
    assert "block_ids[positions // block_size]" in function.solution()
    assert "block_ids[positions // block_size]" not in function.student()
    (method,) = lesson_from(
        tmp_path,
        '# %% exercise="2.7"\n'
        "# INCLUDE paged_attention/kv_cache.py PagedAttentionManager.free_sequence\n",
    ).cells
    assert method.solution().startswith("def free_sequence(self")
    assert method.student().endswith('    raise NotImplementedError("Exercise 2.7")')
    (part,) = lesson_from(
        tmp_path,
        '# %% exercise="3.2"\n'
        "# INCLUDE paged_attention/softmax_state.py SoftmaxState without merge\n",
    ).cells
    assert "def update" in part.solution() and "def merge" not in part.solution()
    (constant,) = lesson_from(
        tmp_path, "# %%\n# INCLUDE paged_attention/block_table.py NO_BLOCK\n"
    ).cells
    assert constant.student().startswith("NO_BLOCK = -1")


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
        ("# INCLUDE paged_attention/slots.py", "not the form"),
        ("# INCLUDE lessons_lib/no_such.py write_kv", "no lessons_lib/no_such.py"),
        (
            "# INCLUDE paged_attention/slots.py read_kv",
            "paged_attention/slots.py read_kv: there is no read_kv",
        ),
        (
            "# INCLUDE paged_attention/softmax_state.py SoftmaxState without divide",
            "there is no divide",
        ),
        ("# BEGIN SOLUTION\n# END SOLUTION", "empty solution region"),
        ("x = 1", "nothing in the student's version would fail"),
    ],
)
def test_a_faulty_source_is_refused_by_name(tmp_path, source, words):
    with pytest.raises(SourceError, match=words) as caught:
        lesson_from(tmp_path, f'# %% exercise="1.1"\n{source}\n')
    assert str(caught.value).startswith("01_test.py: ")


def test_a_solution_outside_an_exercise_is_refused(tmp_path):
    with pytest.raises(SourceError, match="outside an exercise cell"):
        lesson_from(tmp_path, "# %%\n# BEGIN SOLUTION\nx = 1\n# END SOLUTION\n")


@pytest.mark.parametrize("name", ["1.2", '""', '"one"'])
def test_an_exercise_is_named_by_a_string(tmp_path, name):
    with pytest.raises(SourceError, match='named like "1.2"'):
        lesson_from(tmp_path, f"# %% exercise={name}\nraise NotImplementedError\n")


def test_a_stub_of_its_own_and_a_failing_one_may_stand_side_by_side():
    source = (
        "// BEGIN SOLUTION STUB: // here\n"
        "a;\n"
        "// END SOLUTION\n"
        "// BEGIN SOLUTION\n"
        "b;\n"
        "// END SOLUTION"
    )
    assert Cell("exercise", source, "1.1").student().split("\n")[0] == "// here"
    assert "throw" in Cell("exercise", source, "1.1").student()


def test_cell_ids_are_the_same_each_time_and_an_edit_moves_no_other():
    lesson = LESSONS[1]
    once, twice = build.render_student(lesson), build.render_student(lesson)
    assert [cell.id for cell in once.cells] == [cell.id for cell in twice.cells]
    assert [cell.id for cell in once.cells] == [
        cell.id for cell in build.render_solution(lesson).cells
    ]
    edited = Lesson(lesson.name, (Cell("markdown", "new"), *lesson.cells))
    assert [cell.id for cell in build.render_student(edited).cells][1:] == [
        cell.id for cell in once.cells
    ]
    assert len({cell.id for cell in once.cells}) == len(once.cells)


def test_everything_is_in_step():
    assert build.check(LESSONS) == []


@pytest.fixture
def copy_of_the_notebooks(tmp_path, monkeypatch):
    for name, folder in (("NOTEBOOKS", NOTEBOOKS), ("SOLUTIONS", SOLUTIONS)):
        shutil.copytree(
            folder, tmp_path / folder.name, ignore=shutil.ignore_patterns("__pycache__")
        )
        monkeypatch.setattr(build, name, tmp_path / folder.name)
    return tmp_path


def change(path, edit):
    notebook = nbformat.read(path, as_version=4)
    edit(notebook)
    nbformat.write(notebook, path)


@pytest.mark.parametrize(
    "folder, edit, words",
    [
        ("notebooks", lambda nb: nb.cells[0].update(source="other"), "is not what"),
        ("notebooks", lambda nb: nb.cells.pop(), "is not what"),
        ("notebooks", lambda nb: nb.cells[3].update(id="moved"), "is not what"),
        ("solutions", lambda nb: nb.cells[1].update(source="other"), "is not what"),
        ("solutions", lambda nb: nb.cells[1].update(execution_count=None), "without a run"),
        (
            "notebooks",
            lambda nb: nb.cells[1].update(
                outputs=[nbformat.v4.new_output("stream", text="x")]
            ),
            "holds outputs",
        ),
        (
            "notebooks",
            lambda nb: nb.cells[0].update(source="    block_ids_.push_back(block_id);"),
            "shows a solution",
        ),
        (
            "notebooks",
            lambda nb: nb.cells[0].update(source="# BEGIN SOLUTION"),
            "solution marker",
        ),
    ],
)
def test_check_notices_what_is_out_of_step(copy_of_the_notebooks, folder, edit, words):
    change(copy_of_the_notebooks / folder / "01_block_manager.ipynb", edit)
    problems = build.check(LESSON_01)
    assert problems and any(words in problem for problem in problems)


def test_check_notices_a_notebook_without_a_source(copy_of_the_notebooks):
    shutil.copy(
        copy_of_the_notebooks / "notebooks/00_start_here.ipynb",
        copy_of_the_notebooks / "notebooks/02_old.ipynb",
    )
    assert any("02_old.ipynb has no source" in problem for problem in build.check([]))


def test_check_notices_a_missing_notebook(copy_of_the_notebooks):
    (copy_of_the_notebooks / "notebooks" / "01_block_manager.ipynb").unlink()
    assert any("is missing" in problem for problem in build.check(LESSON_01))


def test_a_solution_written_into_the_prose_is_a_leak():
    given = Cell("markdown", "Now write\n\n    block_ids_.push_back(block_id);")
    assert build.leaks([Lesson("01_block_manager", (given,))]) != []


def test_no_student_notebook_shows_a_solution():
    for path in NOTEBOOKS.glob("*.ipynb"):
        assert "SOLUTION" not in path.read_text()
    assert build.leaks(LESSONS) == []


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


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_cells_carry_nbgraders_metadata(lesson):
    """As nbgrader's schema version 3 has it: answers are solutions, checks are locked and have
    points.
    """
    student = build.render_student(lesson)
    solution = build.render_solution(lesson)
    for cell in student.cells:
        cell.metadata.pop("given", None)  # the digest of a stub
    assert [cell.metadata for cell in student.cells] == [
        cell.metadata for cell in solution.cells
    ]
    graded = [cell.metadata.nbgrader for cell in student.cells if "nbgrader" in cell.metadata]
    identifiers = [grader["grade_id"] for grader in graded]
    assert len(set(identifiers)) == len(identifiers)
    for grader in graded:
        assert set(grader) - {"points"} == {
            "schema_version",
            "grade_id",
            "grade",
            "locked",
            "solution",
            "task",
        }
        assert grader["schema_version"] == 3 and re.fullmatch(
            r"(exercise|check)-\d+-\d+", grader["grade_id"]
        )
        if grader["grade_id"].startswith("check"):
            assert (
                grader["grade"]
                and grader["locked"]
                and not grader["solution"]
                and grader["points"] >= 1
            )
            assert grader["grade_id"].replace("check", "exercise") in identifiers
        else:
            assert (
                grader["solution"]
                and not grader["grade"]
                and not grader["locked"]
                and "points" not in grader
            )


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_no_cell_is_long(lesson):
    for cell in lesson.cells:
        if cell.kind != "markdown":
            # the repairs are a list, to be looked up
            text = cell.student() if cell.faulty else cell.solution()
            lines = [
                line
                for line in text.split("\n")
                if line.strip() and not re.search('SOLUTION|"""$', line)
            ]
            assert len(lines) <= LONGEST_CELL, f"{len(lines)} lines: {cell.source[:60]!r}"


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_no_output_is_a_warning_or_names_the_folder_it_was_made_in(lesson):
    """Both differ from machine to machine."""
    notebook = nbformat.read(SOLUTIONS / f"{lesson.name}.ipynb", as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            said = json.dumps(output)
            assert "Warning: " not in said, cell.source
            assert "site-packages" not in said and str(SOLUTIONS.parent) not in said, (
                cell.source
            )


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_cell_says_nothing_to_nbval_in_what_a_learner_reads(lesson):
    known = {"nbval-ignore-output", "raises-exception"}
    for cell in lesson.cells:
        assert (
            "NBVAL" not in cell.source
            and "PYTEST" not in cell.source
            and {*cell.tags} <= known
        )


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_every_exercise_has_a_check_after_it(lesson):
    kinds = [(cell.kind, cell.exercise) for cell in lesson.cells if cell.exercise]
    assert kinds == [
        pair
        for _, exercise in kinds[::2]
        for pair in (("exercise", exercise), ("check", exercise))
    ]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_heading_says_what_its_check_says(lesson):
    text = "\n".join(cell.source for cell in lesson.cells if cell.kind == "markdown")
    headings = dict(re.findall(r"^### Exercise (\d+\.\d): (.*)$", text, re.MULTILINE))
    assert headings == {
        exercise.id: exercise.title for exercise in exercises_of(lesson.name[:2])
    }


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_every_picture_has_a_text(lesson):
    pictures = 0
    for cell in nbformat.read(SOLUTIONS / f"{lesson.name}.ipynb", as_version=4).cells:
        for text in re.findall(r"!\[(.*)\]\(", cell.source if "attachments" in cell else ""):
            assert len(text) > 40
            pictures += 1
        for output in cell.get("outputs", []):
            assert "image/png" not in output.get("data", {}), (
                f"show it with lessons_draw.show: {cell.source[:60]!r}"
            )
            for text in re.findall(
                '<img alt="([^"]*)"', output.get("data", {}).get("text/html", "")
            ):
                assert len(text) > 40
                pictures += 1
    has_code = any(cell.kind != "markdown" for cell in lesson.cells)  # all but the glossary
    assert pictures >= has_code + any(cell.exercise for cell in lesson.cells)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson_begins_with_one_line_of_imports_and_a_picture(lesson):
    """The picture is in the first text, so that it is there before any cell has run."""
    code = [cell.solution() for cell in lesson.cells if cell.kind == "code"]
    if code:  # the glossary has none
        name = lesson.name.split("_")[0]
        assert "\nPICTURE opening\n" in lesson.cells[0].source
        assert re.fullmatch(
            rf'from lessons_lib import [\w, ]+\n\ndraw = open_lesson\("{name}"\)',
            code[0].strip(),
        )
        assert "matplotlib" not in "".join(code), "drawing is for lessons_draw"


def test_read_cell_keeps_tags():
    cell = _read_cell(nbformat.v4.new_code_cell("x", metadata={"tags": ["raises-exception"]}))
    assert build._metadata(cell) == {"tags": ["raises-exception"]}


CPP = 'code = r"""\nint one() {\n  return 1;  // the first\n}\n"""'


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

    old = build.render_solution(lesson(before, "Old text."))
    old.cells[1].update(
        execution_count=1, outputs=[nbformat.v4.new_output("stream", text="kept\n")]
    )
    build._write(copy_of_the_notebooks / "solutions/00_start_here.ipynb", old)
    assert build.build([lesson(after, "New text.")], keep_outputs=True) == []
    new = nbformat.read(copy_of_the_notebooks / "solutions/00_start_here.ipynb", as_version=4)
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
    assert words.with_outputs_of(old, new) is None
    assert words.with_outputs_of(old, old) is old
