"""What pytest needs, for `tests/` and for the notebooks with nbval.

Tests never touch the learner's own progress, and are shared out so that all workers have work.
"""

import gc
import importlib.util
import locale
import os
import re
import shutil
import sys
import tempfile
from collections import Counter, defaultdict

import cloudpickle
import pytest
from hypothesis import HealthCheck, settings

# They build kernels or run models for minutes: only `make test-all` compares their outputs.
LONG_LESSONS = ("06", "07", "08", "09", "10", "11")

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
        default=192,
        help="of the tests that are one of many alike, run one in this many",
    )
    parser.addoption("--tool", help="run only what needs this tool, such as hub")


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
def pytest_collection():
    """Without looking for garbage, which takes two fifths of the time: there is little of it,
    and hundreds of thousands of objects that stay.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # tests need not look at them either
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    """Marks the cells of long lessons as slow, and what cannot run here as skipped. Then
    leaves out what needs a rare tool, and most of the tests that are one of many alike, the
    same on all workers.

    Of a function's tests that are marked `sampled(4)`, one in four runs at least.
    """
    for item in items:
        if item.path.suffix == ".ipynb" and item.path.name[:2] in LONG_LESSONS:
            item.add_marker("slow")
        if reason := missing(item):
            item.add_marker(pytest.mark.skip(reason=reason))
    before = list(items)
    result = yield  # -k and -m leave some
    kept = [item for item in items if tool_of(item) == config.getoption("--tool")]
    alike = defaultdict(list)
    for item in kept:
        if mark := item.get_closest_marker("sampled"):
            alike[item.path, item.function.__name__, mark.args].append(item)
    every = config.getoption("--every")
    for (*_, own), them in alike.items():
        others = set(them) - set(them[:: min((every, *own))])
        kept = [item for item in kept if item not in others]
    run = set(kept)
    config.left_out = Counter(kind_of(item) for item in before if item not in run)
    config.hook.pytest_deselected(items=[item for item in items if item not in run])
    # the site takes a minute to build: whoever begins with it does not end last
    items[:] = sorted(kept, key=lambda item: item.path.name != "test_site_built.py")
    return result


def tool_of(item) -> str | None:
    mark = item.get_closest_marker("tool")
    return mark and mark.args[0]


def kind_of(item) -> str:
    """Why a test was left out."""
    if tool := tool_of(item):
        return f"that need TOOL={tool}"
    if item.get_closest_marker("slow"):
        return "slow"
    return "like others" if item.get_closest_marker("sampled") else "not asked for"


def missing(item) -> str | None:
    """What a test needs and this machine does not have."""
    if mark := item.get_closest_marker("gpu"):
        import torch

        wanted = mark.args[0] if mark.args else 1
        if torch.cuda.device_count() < wanted:
            return "there is no GPU here" if wanted == 1 else "there is one GPU at most"
    # CI installs Chromium, so that there no test can be skipped by accident
    if item.get_closest_marker("browser") and "CI" not in os.environ:
        if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
            return "no Chromium here (Debian, Ubuntu: sudo apt-get install chromium)"
        if not importlib.util.find_spec("playwright"):
            return "playwright is not installed"
    return None


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one of xdist's workers
        session.config.workeroutput["left_out"] = dict(getattr(session.config, "left_out", {}))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    node.config.left_out = getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter, config):
    """Says in one line what did not run."""
    left_out = Counter(getattr(config, "left_out", {}))
    left_out["skipped"] = len(terminalreporter.stats.get("skipped", ()))
    words = ", ".join(f"{count:,} {kind}" for kind, count in sorted(left_out.items()) if count)
    if words:
        terminalreporter.write_line(f"left out: {words}; CONTRIBUTING.md says how each is run")


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


@pytest.fixture(autouse=True, scope="module")
def answers_are_sent_whole(request):
    """A test's own functions are sent to a check's process whole, as a notebook's are.

    Else that process would import the test's file, and all that this imports, in the time that
    an answer has.
    """
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)
