"""No test's verdict depends on the machine's speed or load."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parents[1]
# without the program that measures how long tests take
FILES = [path for path in TESTS.rglob("*.py") if "mutants" not in path.parts]
CLOCKS = {"time", "monotonic", "perf_counter", "monotonic_ns", "perf_counter_ns", "time_ns"}
# Functions that look at a clock and decide nothing by it, or only that something hangs.
HARMLESS = {
    ("jupyterlab_driver", "_wait_until_up"),  # gives up after a quarter of an hour
    # more has passed than the limit: it is made so
    ("test_time_limits", "test_a_busy_processor_takes_no_time_from_a_run"),
}


def functions_with_a_clock(tree: ast.Module) -> Iterator[str]:
    """The outermost functions in which a clock is read."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
        if any(
            isinstance(call, ast.Attribute)
            and ast.unparse(call.value) == "time"
            and call.attr in CLOCKS
            for call in calls
        ):
            yield function.name


def test_who_reads_a_clock_decides_nothing_by_it():
    found = {
        (path.stem, name)
        for path in FILES
        for name in functions_with_a_clock(ast.parse(path.read_text(encoding="utf-8")))
    }
    nested = {("test_time_limits", "answer")}  # inside of the test of that file
    assert found - nested == HARMLESS


def test_properties_have_no_deadline_and_draw_as_the_run_says():
    """What a test's own settings say counts for more than --hypothesis-seed."""
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
    own = re.compile(r"\b(deadline|derandomize|database)=")
    found = [path.name for path in FILES if own.search(path.read_text(encoding="utf-8"))]
    assert not found
