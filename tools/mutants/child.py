"""The child process: it runs pytest in a copy of the course and writes down the result."""

import json
import os
import resource
import sys
import time
from pathlib import Path

_PLAIN = (
    "-q",
    "--tb=short",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:unraisableexception",
    "-p",
    "_hypothesis_pytestplugin",
    "--hypothesis-profile=mutants",
    "-m",
    "not (slow or tool or browser)",
)
_MEMORY = 8 << 30


def run_tests(
    tree: Path,
    tests: list[str],
    result: Path,
    order: dict[str, int] | None = None,
    limits: dict[str, float] | None = None,
    first_failure: bool = True,
    trace: list[str] = (),
) -> None:
    """Runs `tests` of `tree`, then writes `result`, a JSON file.

    The file has: `code` of pytest; `failed` tests; processor `seconds` of each test, and of
    all (`cpu`); `lines`: for each file in `trace`, line to the tests that ran it.

    order: the tests to run, each with its rank.
    limits: the processor seconds that each known test may take, and "" for a test that is not
        known, which also runs. After that the system ends the process.
    first_failure: whether to stop at the first failure.
    """
    start = _used()
    if limits:
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY,) * 2)
        _limit_seconds(limits[""])
    _enter(tree)
    coverage = _start_coverage(trace)
    import pytest
    from hypothesis import Phase, settings

    settings.register_profile(
        "mutants",
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
    )
    watch = _Watch(order, limits, coverage)
    words = [
        *_PLAIN,
        f"--basetemp={result.with_suffix('.tmp')}",
        *(["-x"] if first_failure else []),
    ]
    code = pytest.main([*words, *tests], [watch])
    lines = {}
    if coverage:
        coverage.stop()
        lines = {
            path: coverage.get_data().contexts_by_lineno(str(tree / path)) for path in trace
        }
    result.write_text(
        json.dumps(
            {
                "code": int(code),
                "failed": watch.failed,
                "seconds": watch.seconds,
                "lines": lines,
                "cpu": _used() - start,
            }
        )
    )


def _enter(tree: Path):
    """Makes imports find the copy, here and in each process that a test starts. The course's
    own modules that this program has imported are forgotten.
    """
    os.chdir(tree)
    for name in [name for name in sys.modules if (tree / name.partition(".")[0]).is_dir()]:
        del sys.modules[name]
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if "__editable__" not in getattr(finder, "__module__", "")
    ]
    sys.path[:] = [
        str(tree),
        *(path for path in sys.path if path.startswith((sys.prefix, sys.base_prefix))),
    ]
    os.environ |= {
        "PYTHONPATH": str(tree),
        "LESSONS_BUILD_DIR": str(tree.with_name(f"{tree.name}-build")),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def _used() -> float:
    """Processor seconds of this process and of its ended children.

    They are the same on a busy machine.
    """
    return sum(os.times()[:4])


def _limit_seconds(more: float):
    soft = int(time.process_time() + more) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def _start_coverage(trace: list[str]):
    if not trace:
        return None
    import coverage

    os.environ["COVERAGE_CORE"] = "ctrace"  # this core knows which test is running
    measure = coverage.Coverage(
        data_file=None, include=[str(Path.cwd() / path) for path in trace], config_file=False
    )
    measure.start()
    return measure


class _Watch:
    """A pytest plugin: notes which tests run, how long each takes, and which fail."""

    def __init__(self, order, limits, coverage):
        self.order, self.limits, self.coverage = order, limits, coverage
        self.failed, self.seconds = [], {}

    def pytest_configure(self, config):
        # runs all of many similar tests: any of them may notice the fault
        config.option.every = 1

    def pytest_collection_modifyitems(self, items):
        if self.order is not None:
            items[:] = [
                item
                for item in items
                if item.nodeid in self.order or item.nodeid not in self.limits
            ]
            items.sort(key=lambda item: self.order.get(item.nodeid, 0))

    def pytest_runtest_logstart(self, nodeid):
        self.seconds[nodeid] = -_used()
        if self.limits:
            _limit_seconds(self.limits.get(nodeid, self.limits[""]))
        if self.coverage:
            self.coverage.switch_context(nodeid)

    def pytest_runtest_logfinish(self, nodeid):
        self.seconds[nodeid] += _used()
        if self.coverage:
            self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)
