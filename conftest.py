"""What pytest needs, for `tests/` and for the notebooks with nbval.

Tests never touch the learner's own progress, and are shared out so that all workers have work.
"""

import locale
import os
import re
import shutil
import sys
import tempfile
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, settings

# They run models and kernels for minutes: only `make test-slow` compares their outputs.
LONG_LESSONS = ("08", "09", "10", "11")

os.environ["LESSONS_PROGRESS_DIR"] = tempfile.mkdtemp(prefix="progress-")
# What the tests ask is on this machine, also where a proxy is set.
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "localhost,127.0.0.1"
# Where FORCE_COLOR is set, Python 3.14 would colour each help text.
os.environ["PYTHON_COLORS"] = "0"
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # each core has a worker already


def pytest_addoption(parser):
    parser.addoption(
        "--every",
        type=int,
        default=48,
        help="of the tests that are one of many alike, run one in this many",
    )


def pytest_configure(config):
    """Everyone draws the same examples, unless a seed says otherwise, and no database keeps
    others. How fast the machine is decides nothing: neither one example's time nor that of
    making them. And whoever runs nbval need not know what it leaves out of a comparison.
    """
    settings.register_profile(
        "any machine",
        deadline=None,
        database=None,
        derandomize=config.getoption("hypothesis_seed") is None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("any machine")
    if not getattr(config.option, "nbval_sanitize_with", "not installed"):
        config.option.nbval_sanitize_with = str(config.rootpath / "tests" / "nbval.cfg")


def pytest_report_header(config):
    seed = config.getoption("hypothesis_seed")
    if seed is None:
        return "examples: the same each time; --hypothesis-seed=… draws others"
    return f"examples: drawn anew; --hypothesis-seed={seed} repeats them"


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    """Marks the cells of long lessons as slow. Then leaves out most of the tests that are one
    of many alike, the same on all workers.

    Of those marked `sampled(4)`, one in four runs at least.
    """
    for item in items:
        if item.path.suffix == ".ipynb" and item.path.name[:2] in LONG_LESSONS:
            item.add_marker("slow")
    result = yield  # -k and -m leave some
    alike = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            alike[mark.args].append(item)
    every = config.getoption("--every")
    left_out = {
        item
        for own, them in alike.items()
        for item in set(them) - set(them[:: min((every, *own))])
    }
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    return result


def pytest_unconfigure(config):
    shutil.rmtree(os.environ["LESSONS_PROGRESS_DIR"], ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    # many a test waits: for a browser, a lock, or the end of a loop that has none
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class ByExercise(LoadScopeScheduling):
        """A file's tests stay on one worker, and a notebook's cells in order; a bank's
        thousands go by exercise.
        """

        def _split_scope(self, nodeid: str) -> str:
            exercise = re.search(r"test_(banks|hidden)\.py::.*\[(\d+\.\d+)", nodeid)
            return f"{exercise[1]} {exercise[2]}" if exercise else super()._split_scope(nodeid)

    return ByExercise(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture
def plain_locale():
    """The locale "C", under which a file that is opened without an encoding is ASCII."""
    if sys.flags.utf8_mode:
        pytest.skip("Python takes UTF-8 for every file here")
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    yield
    locale.setlocale(locale.LC_CTYPE, before)


@pytest.fixture(scope="module")
def one_thread():
    """Of a file whose tensors are small, so that threads would mostly wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
