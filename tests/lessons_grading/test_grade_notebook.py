"""A submitted file as it is read: its cells, its lesson, or why it cannot be graded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graded import RIGHT, hand_in
from lessons_grading import notebook
from lessons_grading.notebook import Cell, Notebook, Unreadable, read_files, read_notebook

MB = 1 << 20


@pytest.fixture
def written(tmp_path):
    """Writes a notebook of these cells, whatever they are, and reads it."""

    def written(*cells, name: str = "a.ipynb") -> Notebook:
        (tmp_path / name).write_text(json.dumps({"cells": cells}))
        return read_notebook(tmp_path / name)

    return written


def code(source, **more) -> dict:
    return {"cell_type": "code", "source": source} | more


def test_the_cells_of_code_keep_their_places_among_all_cells(written):
    read = written(
        {"cell_type": "markdown", "source": "# Lesson"},
        code("x = 1"),
        code(["y = 2\n", "z = ", "3", 4, [[5]]]),
        code(5),
        {"cell_type": "code"},
    )
    assert read.cells == (Cell(2, "x = 1"), Cell(3, "y = 2\nz = 3"), Cell(4, ""), Cell(5, ""))


def test_what_can_be_graded_has_no_problem_and_the_digest_of_its_bytes(tmp_path):
    path = hand_in(tmp_path, RIGHT)
    assert read_notebook(path) == Notebook(
        notebook.digest_of(path.read_bytes()), "00", (Cell(1, RIGHT),), ""
    )
    assert Notebook("", None, ()).problem == ""


@pytest.mark.parametrize(
    "data, problem",
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"print(1)", "JSON is malformed: invalid character (byte 0)"),
        (b'"\xff"', "Expected `object`, got `str`"),
        (b"[" * 100_000, "Expected `object`, got `array`"),
        (b'{"a": ' + b"[" * 100_000, "maximum recursion depth exceeded"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "Object missing required field `cells`"),
        (b'{"cells": {"a": 1}}', "Expected `array`, got `object` - at `$.cells`"),
        (b'{"cells": [3]}', "Expected `object`, got `int` - at `$.cells[0]`"),
        (b'{"cells": [{}]}', "Object missing required field `cell_type`"),
    ],
)
def test_what_is_no_notebook_keeps_its_digest_and_the_lesson_of_its_name(
    tmp_path, data, problem
):
    path = tmp_path / "02_block_tables.ipynb"
    path.write_bytes(data)
    read = read_notebook(path)
    assert read.problem.startswith(f"this is not a notebook: {problem}")
    assert (read.digest, read.lesson, read.cells) == (notebook.digest_of(data), "02", ())


@pytest.mark.parametrize(
    "make, problem",
    [
        (lambda path: path.symlink_to("/dev/zero"), "a link, and links are not followed"),
        (lambda path: path.symlink_to("nowhere"), "a link, and links are not followed"),
        (os.mkfifo, "not a file"),
        (os.mkdir, "not a file"),
    ],
)
def test_what_is_no_plain_file_is_not_read(tmp_path, make, problem):
    path = tmp_path / "02.ipynb"
    make(path)
    assert read_notebook(path) == Notebook("", "02", (), f"this is {problem}")


def test_a_file_that_is_not_there_cannot_be_read(tmp_path):
    read = read_notebook(tmp_path / "02.ipynb")
    problem = "this file cannot be read: No such file or directory"
    assert read == Notebook("", "02", (), problem)


def test_no_link_below_the_class_is_followed_however_late_it_came(tmp_path):
    """A student may put a link in the place of a folder, after it was listed."""
    folder = tmp_path / "class"
    (folder / "ada" / "1").mkdir(parents=True)
    (tmp_path / "bob" / "1").mkdir(parents=True)
    for place in (folder / "ada" / "1", tmp_path / "bob" / "1"):
        hand_in(place, RIGHT)
        (place / "helpers.py").touch()
    path = folder / "ada/1/00_start_here.ipynb"
    assert [*read_notebook(path, "ada", folder).files] == ["helpers.py"]
    for swapped in (path.parent, path.parent.parent):
        swapped.rename(tmp_path / "away")
        swapped.symlink_to(tmp_path / "bob" / ("1" if swapped == path.parent else ""))
        assert path.exists()
        read = read_notebook(path, "ada", folder)
        assert read.problem.startswith("this file cannot be read: ") and not read.cells
        swapped.unlink()
        (tmp_path / "away").rename(swapped)
    linked = tmp_path / "linked"
    linked.symlink_to(folder)  # the folder of the class may be a link
    assert not read_notebook(linked / "ada/1/00_start_here.ipynb", "ada", linked).problem


@pytest.mark.slow
def test_what_is_nested_or_large_costs_that_student_alone_and_little(tmp_path):
    """In a process that may have few seconds and little memory."""
    deep = "[" * 980 + "]" * 980
    many = "[" + "{}," * (20 << 20) + "{}]"
    cell = '{"cell_type":"raw","source":""},'
    for name, text in {
        "source": f'{{"cells": [{{"cell_type": "code", "source": [{deep}]}}]}}',
        "metadata": f'{{"cells": [{{"cell_type": "code", "metadata": {deep}}}]}}',
        "brackets": '{"cells": [], "a": [' + "[],[" * (24 << 20),
        "outputs": f'{{"a": {many}, "cells": []}}',
        "cells": '{"cells": [' + cell * 3_000_000 + '{"cell_type": "raw"}]}',
    }.items():
        (tmp_path / f"{name}.ipynb").write_text(text)
    code = (
        "import resource, sys, time\nfrom pathlib import Path\n"
        "from lessons_grading.notebook import read_notebook\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n"
        "begun = time.process_time()\n"
        "for path in sorted(Path(sys.argv[1]).iterdir()): read_notebook(path)\n"
        "assert time.process_time() - begun < 20"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_a_file_that_has_other_bytes_than_its_size_says_is_not_read():
    with pytest.raises(Unreadable, match="this file changed while it was read"):
        read_files(Path("/proc/self/status"), "")  # the system says that it is empty


@pytest.mark.parametrize("size, is_read", [(100 * MB, True), (100 * MB + 1, False)])
def test_a_file_may_have_100_megabytes(tmp_path, size, is_read):
    path = tmp_path / "00.ipynb"
    path.touch()
    os.truncate(path, size)  # it takes no room on the disk
    if is_read:
        assert len(read_files(path, "")[0]) == size
    else:
        with pytest.raises(Unreadable, match="100 MB, and a notebook may have 100$"):
            read_files(path, "")


def test_outputs_and_the_like_do_not_count(tmp_path):
    path = hand_in(tmp_path, RIGHT)
    content = json.loads(path.read_text())
    content["cells"][0]["outputs"] = ["x" * (20 * MB)]
    content["metadata"]["widgets"] = {"state": ["x" * (20 * MB)]}
    path.write_text(json.dumps(content))
    assert read_notebook(path).cells == (Cell(1, RIGHT),)


@pytest.mark.parametrize("more, is_read", [(-100, True), (0, False)])
def test_code_and_text_may_have_10_megabytes(tmp_path, more, is_read):
    path = hand_in(tmp_path, RIGHT, "#" * (10 * MB - len(RIGHT) + more))
    problem = "this notebook has 10 MB without its outputs, and may have 10"
    assert read_notebook(path).problem == ("" if is_read else problem)


def test_a_notebook_of_much_code_is_refused_for_good(tmp_path):
    path = hand_in(tmp_path, "#" * (11 << 20))
    read = read_notebook(path)
    assert (
        read.problem == "this notebook has 11 MB without its outputs, and may have 10"
        and read.digest
    )


@pytest.mark.parametrize(
    "name, lesson",
    [("20240112.ipynb", None), ("20240112_07.ipynb", "07"), ("0", None), ("071", None)],
)
def test_a_date_is_no_lesson(tmp_path, name, lesson):
    assert read_notebook(hand_in(tmp_path, "x = 1", name=name)).lesson == lesson


@pytest.mark.parametrize("number", ["9" * 5_000, "100", "002"])
def test_a_number_of_many_digits_is_no_lesson(tmp_path, number):
    path = hand_in(tmp_path, f'check("{number}.1", x)', name="a.ipynb")
    assert read_notebook(path).lesson is None


MARKS = {
    "the check of its exercise": code("check('2.1', x)"),
    "a check with room in it": code('import x\nif x: check( "02.3" , x)'),
    "an answer": code("def slot_mapping(tables):\n    pass"),
    "an answer as a value": code("x = 1\nslot_mapping = x"),
    "an answer among many": code("import x\n\ndef slot_mapping (tables): pass"),
}


@pytest.mark.parametrize("cell", MARKS.values(), ids=MARKS)
def test_a_cell_shows_the_lesson_whatever_the_file_is_called(written, cell):
    for name in ("a.ipynb", "07_later.ipynb"):
        assert written(cell, name=name).lesson == "02"


@pytest.mark.parametrize(
    "cell",
    [
        code("x = 1", metadata=["exercise", "2.1"], id=2),
        {"cell_type": "markdown", "source": "check('2.1', x)"},
        code("recheck('2.1', x)\ncheck(exercise)"),
        code("check('99.1', x)"),
        code("    slot_mapping(tables)\nprint(slot_mapping)"),
    ],
)
def test_other_cells_show_no_lesson(written, cell):
    read = written(cell)
    assert read.lesson is None
    assert read.problem == "nothing in this notebook says which lesson it is"
    assert written(cell, name="07.ipynb").lesson == "07"


def test_what_is_marked_comes_before_what_is_only_called_alike(written):
    answers = [code("slot_mapping = 1"), code("def blocks_needed(n): pass")]
    assert written(*answers, answers[0]).lesson == "02"
    assert written(*answers, answers[0], code("check('3.1', x)")).lesson == "03"


def test_the_lesson_that_most_cells_name_counts_and_the_first_of_equals(written):
    def checks(*lessons):
        return code("".join(f"check('{lesson}.1', x)\n" for lesson in lessons))

    assert written(checks(3), checks(2), checks(2)).lesson == "02"
    assert written(checks(2, 2, 2), checks(3), checks(3)).lesson == "03"
    assert written(checks(3), checks(2)).lesson == "03"
    for first in range(11):
        assert written(checks(first + 1, first)).lesson == f"{first:02d}"
