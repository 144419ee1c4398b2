"""Nothing in a grade depends on the time of day."""

import ast

from lessons_lib.paths import ROOT

# names of what reads or shows the time of day; monotonic and processor time are not of it
OF_DAY = {"time_ns", "localtime", "gmtime", "ctime", "strftime", "datetime", "getmtime"}
OF_DAY |= {"getctime", "st_mtime", "st_ctime", "CLOCK_REALTIME"}


def test_nothing_in_a_grade_reads_the_time_of_day():
    """But a file's time, to see that it was not written while it was read."""
    found = set()
    for folder in ("lessons_grading", "lessons_lib/processes"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                name = getattr(node, "attr", getattr(node, "id", ""))
                of = getattr(getattr(node, "value", None), "id", "")
                if name in OF_DAY or (of, name) == ("time", "time"):
                    found.add((path.name, name))
                if isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"):
                    found.add((path.name, node.module))
    assert found == set()
