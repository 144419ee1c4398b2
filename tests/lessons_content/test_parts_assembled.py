"""What each answer becomes in an engine. The engine, checks and compilers are stand-ins."""

import inspect
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

from lessons_lib import checks
from lessons_lib.compiler_errors import CompileError
from lessons_lib.inline import read_kernel
from lessons_lib.saved_answers import NoSavedAnswer, SavedAnswer
from paged_attention.engine import engine as engines
from paged_attention.engine import parts
from paged_attention.engine.parts import Part, assemble, show_parts
from paged_attention.engine.prefix_cache import PrefixCache
from paged_attention.engine.runner import ModelRunner
from paged_attention.engine.scheduler import Scheduler
from paged_attention.kv_cache import PagedAttentionManager

CPU = SimpleNamespace(device=torch.device("cpu"))
NUM_BLOCKS = 5
# Exercise: the part of an engine, and the name in it, that its answer replaces.
PLACES = {
    "2.5": ("manager", "append_token"),
    "2.7": ("manager", "free_sequence"),
    "5.2": ("manager", "append_tokens"),
    "5.3": ("runner", "build_metadata"),
    "8.2": ("runner", "flatten_batch"),
    "8.3": ("scheduler", "schedule"),
    "8.4": ("scheduler", "preempt"),
    "8.5": ("prefix_cache", "block_hashes"),
    "8.6": ("scheduler", "start"),
    "8.7": (None, "sample"),
    "8.8": (None, "postprocess"),
}
CLASSES = {
    "manager": PagedAttentionManager,
    "runner": ModelRunner,
    "scheduler": Scheduler,
    "prefix_cache": PrefixCache,
    None: engines.Engine,
}
BLOCK_MANAGER_FILES = (
    "block_errors.h",
    "free_list.h",
    "block_manager.h",
    "block_manager_binding.cpp",
)


class Engine:
    """A stand-in for the engine. It keeps what it was made with."""

    def __init__(self, model, **options):
        self.model, self.options = model, options
        self.runner = SimpleNamespace(model=model, plan="the path's", forward="the course's")
        self.manager = SimpleNamespace(
            block_manager="the course's", kv_cache=torch.empty(3, 2, NUM_BLOCKS, 4, 2, 8)
        )
        self.scheduler, self.prefix_cache = SimpleNamespace(), Cache(self.manager)


class Cache:
    """It gives the manager its blocks."""

    __slots__ = ("__dict__", "manager")

    def __init__(self, manager):
        self.manager = manager

    def begin(self, block_manager):
        self.manager.block_manager = block_manager


def given(*arguments, **named):
    """An answer that returns what it was called with."""
    return arguments, named


@pytest.fixture(autouse=True)
def saved(monkeypatch):
    """The learner's answers by exercise. All of them pass."""
    answers = {}

    def load(exercise):
        if exercise not in answers:
            raise NoSavedAnswer("not passed yet")
        return SavedAnswer(answers[exercise], f"digest of {exercise}")

    monkeypatch.setattr(parts, "load", load)
    monkeypatch.setattr(parts, "Engine", Engine)
    parts._passed.clear()
    verdicts(monkeypatch)
    yield answers
    parts._passed.clear()


def verdicts(monkeypatch, passed=True, mistake=None, message=""):
    """Gives every answer this verdict. Returns the list of those that are checked."""
    checked = []

    def run(exercise, answer):
        checked.append((exercise, answer))
        return checks.CheckResult(exercise, passed, mistake, message)

    monkeypatch.setattr(checks, "run", run)
    return checked


@pytest.fixture
def built(monkeypatch):
    """What was compiled: (texts by name, the other options)."""
    calls = []

    def build(*sources, names, **options):
        calls.append((dict(zip(names, sources, strict=True)), options))
        return SimpleNamespace(BlockManager=lambda num_blocks: f"for {num_blocks} blocks")

    monkeypatch.setattr(parts, "build_cpp", build)
    monkeypatch.setattr(parts, "build_cuda", build)
    return calls


def by_exercise(assembled):
    assert len({part.exercise for part in assembled}) == len(assembled)
    return {part.exercise: (part.whose, part.reason) for part in assembled}


@pytest.mark.parametrize("exercise", PLACES)
def test_an_answer_is_called_as_what_it_replaces(saved, exercise):
    saved[exercise] = given
    engine, assembled = assemble(CPU)
    owner, name = PLACES[exercise]
    place = getattr(engine, owner) if owner else engine
    replaced = inspect.getattr_static(CLASSES[owner], name)
    itself = () if isinstance(replaced, staticmethod) else (place,)
    assert getattr(place, name)(1, two=2) == ((*itself, 1), {"two": 2})
    assert [part.exercise for part in assembled if part.whose == "yours"] == [exercise]
    others = [(owner, name) for each, (owner, name) in PLACES.items() if each != exercise]
    assert not any(
        hasattr(getattr(engine, owner or "", engine), name) for owner, name in others
    )


@pytest.mark.parametrize("path", ["paged_torch", "blockwise", "batched"])
def test_without_answers_the_engine_is_the_courses(path):
    options = {"path": path, "num_blocks": 9}
    engine, assembled = assemble(CPU, **options)
    assert engine.model is CPU and engine.options == options
    assert engine.manager.block_manager == engine.runner.forward == "the course's"
    assert not vars(engine.scheduler) and not vars(engine.prefix_cache)
    assert not vars(engine).keys() & {"sample", "postprocess"}
    whole = ("the course's", "no exercise is a part of it")
    assert by_exercise(assembled).pop("", whole) == whole
    reasons = {part.reason for part in assembled if part.exercise}
    assert reasons == {"not passed yet"}


def test_a_path_has_the_answers_that_are_its_arguments(saved, monkeypatch):
    monkeypatch.setattr(parts, "PATHS", dict.fromkeys(("paged_torch", "blockwise"), given))
    saved |= {"5.5": len, "4.1": min, "4.5": max}
    engine, assembled = assemble(CPU)
    assert engine.options == {"path": "paged_torch"}
    arguments, named = engine.runner.plan("metadata")
    assert arguments == ("metadata",) and named.keys() == {"attn_paged_torch"}
    assert named["attn_paged_torch"]([1, 2]) == 2
    assert by_exercise(assembled)["5.5"] == ("yours", "")
    assert "4.1" not in by_exercise(assembled) and assembled[-1].exercise == "8.8"
    engine, assembled = assemble(CPU, path="blockwise")
    arguments, named = engine.runner.plan("metadata")
    assert named.keys() == {"dispatch", "combine_segments"}
    assert named["dispatch"](1, 2) == 1 and named["combine_segments"](1, 2) == 2
    assert by_exercise(assembled)["4.2"] == ("the course's", "not passed yet")


@pytest.mark.parametrize("path", ["batched", "kernel", given])
def test_a_path_without_exercises_is_one_more_part(built, path):
    engine, assembled = assemble(CPU, path=path)
    last = Part("", "path batched", "the course's", "no exercise is a part of it")
    assert (assembled[-1] == last) == (path == "batched")
    assert [part.exercise for part in assembled].count("") == (path == "batched")
    assert (engine.runner.plan == "the path's") == (path != "kernel")


def test_the_layers_call_the_learners_forward(saved):
    saved["8.1"] = given
    engine, _ = assemble(CPU)
    assert engine.runner.forward(1) == ((1,), {})
    engine, assembled = assemble(CPU, forward=len)
    assert engine.runner.forward == "the course's" and engine.options["forward"] is len
    assert "8.1" not in by_exercise(assembled)


def test_the_block_manager_is_built_of_the_learners_texts_and_ours(saved, built):
    saved |= {"1.1": "their list", "1.3": "their manager"}
    engine, assembled = assemble(CPU)
    ((texts, options),) = built
    assert texts == {name: read_kernel(name) for name in BLOCK_MANAGER_FILES} | {
        "free_list.h": "their list",
        "block_manager.h": "their manager",
    }
    assert tuple(texts) == BLOCK_MANAGER_FILES  # each needs the one before
    assert options == {"name": "block_manager"}
    assert engine.manager.block_manager == f"for {NUM_BLOCKS} blocks"
    whose = by_exercise(assembled)
    assert whose["1.1"] == whose["1.3"] == ("yours", "")
    assert whose["1.4"] == ("the course's", "not passed yet") and "1.2" not in whose


def test_a_block_manager_that_is_given_is_not_built(saved, built):
    saved["1.1"] = "their list"
    engine, assembled = assemble(CPU, block_manager=given)
    assert not built and engine.options["block_manager"] is given
    assert assembled[0].exercise == "2.5"


@pytest.mark.parametrize("of_threads", [False, True])
def test_a_block_manager_without_a_mutex_will_do(saved, built, of_threads):
    saved |= {"1.2": "of one thread"} | ({"1.3": "of threads"} if of_threads else {})
    _, assembled = assemble(CPU)
    used, other = ("1.3", "1.2") if of_threads else ("1.2", "1.3")
    assert built[0][0]["block_manager.h"] == saved[used]
    assert by_exercise(assembled)[used] == ("yours", "")
    assert other not in by_exercise(assembled)


@pytest.mark.parametrize("kind, target", [("cpu", "fast"), ("cuda", "gpu")])
def test_the_kernel_is_built_for_the_models_device(saved, built, monkeypatch, kind, target):
    monkeypatch.setattr(parts, "PATHS", {"kernel": given})
    saved |= {"6.3": "their reduction"}
    engine, assembled = assemble(
        SimpleNamespace(device=torch.device(kind)), path="kernel", block_manager=None
    )
    ((texts, options),) = built
    assert texts == {name: read_kernel(name) for name in parts.KERNEL_FILES} | {
        "block_reduce.cuh": "their reduction"
    }
    assert options == {"target": target, "name": "paged_attention"}
    arguments, named = engine.runner.plan("metadata")
    assert arguments == ("metadata",) and named["library"].BlockManager
    assert by_exercise(assembled)["6.3"] == ("yours", "")


def test_without_a_text_of_theirs_nothing_is_built(built, monkeypatch):
    monkeypatch.setattr(parts, "PATHS", {"kernel": given})
    engine, _ = assemble(CPU, path="kernel")
    assert not built and engine.runner.plan() == ((), {"library": None})


def test_texts_that_cannot_be_built_together_all_count_as_ours(saved, monkeypatch):
    def build(*sources, **options):
        raise CompileError("line 2: no such thing\nand more")

    monkeypatch.setattr(parts, "build_cpp", build)
    saved |= {"1.1": "their list", "1.4": "their binding", "2.5": given}
    engine, assembled = assemble(CPU)
    reason = "your texts cannot be built together: CompileError: line 2: no such thing"
    whose = by_exercise(assembled)
    assert whose["1.1"] == whose["1.4"] == ("the course's", reason)
    assert whose["1.3"] == ("the course's", "not passed yet")
    assert whose["2.5"] == ("yours", "")
    assert engine.manager.block_manager == "the course's"


@pytest.mark.parametrize(
    "verdict, reason",
    [
        ((False, "wrong", "no\nmatter"), "it does not pass its check now: wrong"),
        ((False, "old-generator", "Changed.\nDo this.\nAnd that."), "Changed."),
        ((True, None, ""), ""),
    ],
    ids=["wrong", "outdated", "right"],
)
def test_an_answer_must_pass_its_check_now(saved, monkeypatch, verdict, reason):
    saved["8.7"] = given
    checked = verdicts(monkeypatch, *verdict)
    engine, assembled = assemble(CPU)
    assert checked == [("8.7", given)]
    assert by_exercise(assembled)["8.7"] == ("the course's" if reason else "yours", reason)
    assert hasattr(engine, "sample") == (not reason)


def test_a_check_that_cannot_run_is_a_reason(saved, monkeypatch):
    def run(exercise, answer):
        raise OSError("no process could be started")

    saved["8.7"] = given
    monkeypatch.setattr(checks, "run", run)
    _, assembled = assemble(CPU)
    reason = "its check could not be run: OSError: no process could be started"
    assert by_exercise(assembled)["8.7"] == ("the course's", reason)


def test_what_has_passed_is_not_checked_again_and_what_has_not_is(saved, monkeypatch):
    saved["8.7"] = given
    checked = verdicts(monkeypatch, False, "wrong")
    assemble(CPU)
    assemble(CPU)
    assert len(checked) == 2
    checked = verdicts(monkeypatch)
    assemble(CPU)
    assemble(CPU)
    assert len(checked) == 1


def test_two_answers_are_checked_at_a_time(saved, monkeypatch):
    both = threading.Barrier(2)

    def run(exercise, answer):
        both.wait(60)
        return checks.CheckResult(exercise, True, None, "")

    monkeypatch.setattr(checks, "run", run)
    saved |= {"8.2": given, "8.7": given}
    _, assembled = assemble(CPU)
    assert [part.exercise for part in assembled if part.whose == "yours"] == ["8.2", "8.7"]


def test_a_long_check_shows_a_bar_that_goes_away(monkeypatch):
    bars = []

    def bar(found, words, total, **options):
        bars.append((words, total, options))
        return found

    monkeypatch.setattr(parts, "tqdm", bar)
    _, assembled = assemble(CPU)
    options = {"leave": False, "delay": 3, "file": sys.stdout}
    assert bars == [("checking your parts", len(assembled), options)]


def test_an_error_in_an_answer_says_whose_it_is(saved):
    def sample(logits):
        raise ZeroDivisionError("oh")

    saved["8.7"] = sample
    engine, _ = assemble(CPU)
    assert engine.sample.__name__ == "sample"
    with pytest.raises(ZeroDivisionError, match="oh") as error:
        engine.sample(1)
    assert error.value.__notes__ == ["It came out of your answer to exercise 8.7, `sample`."]


def test_the_parts_are_in_the_order_of_the_exercises(saved):
    saved |= {"8.8": given, "2.7": given, "8.1": given}
    _, assembled = assemble(CPU)
    numbers = [[int(number) for number in part.exercise.split(".")] for part in assembled]
    assert numbers == sorted(numbers) and len(numbers) == 16
    assert {part.exercise: part.name for part in assembled}["8.8"] == "postprocess"


def test_the_table_has_its_columns_under_each_other(capsys):
    theirs = Part("1.1", "free_list", "yours")
    assert theirs.reason == ""
    show_parts(
        [theirs, Part("8.3", "schedule", "the course's", "not passed yet"), Part("", "p", "")]
    )
    assert capsys.readouterr().out == (
        "exercise  part       whose         why\n"
        "1.1       free_list  yours\n"
        "8.3       schedule   the course's  not passed yet\n"
        "          p\n"
    )
