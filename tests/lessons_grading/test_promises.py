"""The page of the room names a test for each of its promises."""

import re

from lessons_lib.paths import ROOT


def test_each_promise_has_a_test():
    page = (ROOT / "lessons_grading/README.md").read_text(encoding="utf-8")
    promised = set(re.findall(r"`(test_\w+)`", page))
    files = (ROOT / "tests/lessons_grading").rglob("test_*.py")
    there = {
        name
        for file in files
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.M)
    }
    assert len(promised) > 12 and promised <= there


def test_each_module_on_the_path_is_there():
    page = (ROOT / "lessons_grading/README.md").read_text(encoding="utf-8")
    path = page[page.index("## The path") : page.index("## What it promises")]
    named = set(re.findall(r"`(\w+)`", path))
    assert named <= {file.stem for file in (ROOT / "lessons_grading").glob("*.py")}
