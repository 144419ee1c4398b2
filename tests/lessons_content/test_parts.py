"""The learner's answers, saved as they pass, and the engine that is put together from them."""

import types

import pytest
import torch

from lessons_lib import checks, notebook_api
from lessons_lib.checks import saved_answers
from lessons_lib.cuda.inline import read_kernel
from paged_attention import own_answers
from paged_attention.attention import decode
from paged_attention.attention.metadata import attn_paged_torch
from paged_attention.engine import learner_engine
from paged_attention.engine.attention import paged_attention_forward
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.prefix_cache import PrefixCache
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.runner import ModelRunner
from paged_attention.engine.scheduler import Scheduler
from paged_attention.pool.kv_cache import PagedAttentionManager
from paged_attention.tiny_qwen3.tasks import encode

pytestmark = pytest.mark.usefixtures("one_thread")
PROMPTS = [
    encode(prompt)
    for prompt in (
        "Ka17..q42...z93?zq>",
        "Ka17..q42...z93...b55.....c08?ac>",
        "Ka17..q42...z93...b55.....c08.d11.....e90?edcb>",
        "Chello>",
        "Sqwertyuiopasdfghjkl>",
    )
]
NUM_TOKENS = 20
FILES = {
    **learner_engine.BLOCK_MANAGER,
    own_answers.WITHOUT_MUTEX: "block_manager.h",
    **learner_engine.KERNEL,
}
OWNERS = {
    "manager": PagedAttentionManager,
    "runner": ModelRunner,
    "scheduler": Scheduler,
    "prefix_cache": PrefixCache,
    None: Engine,
}


def of_notebook(function):
    """The function as a notebook's: it is saved with its code, and not as a name to import."""
    copy = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__, copy.__module__ = function.__kwdefaults__, "__main__"
    return copy


def right_answer(exercise):
    """What a learner could hand in: the course's own."""
    if exercise in FILES:
        return read_kernel(FILES[exercise])
    if exercise in learner_engine.PLACES:
        owner, name, _ = learner_engine.PLACES[exercise]
        return of_notebook(getattr(OWNERS[owner], name))
    return of_notebook(
        {
            "5.5": attn_paged_torch,
            "4.1": decode.dispatch,
            "4.2": decode.block_attention,
            "4.5": decode.combine_segments,
            "8.1": paged_attention_forward,
        }[exercise]
    )


def whose(assembled):
    return {part.exercise: part.whose for part in assembled}


def reasons(assembled):
    return {part.exercise: part.reason for part in assembled}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The progress folder of a learner who has not begun."""
    monkeypatch.setenv("LESSONS_PROGRESS_DIR", str(tmp_path))
    return tmp_path / "parts"


@pytest.fixture
def verdict(monkeypatch):
    """What checks say of each answer, instead of trying it: `passed`, or the error that they
    raise. `checked` has the exercises that they were asked about.
    """
    said = types.SimpleNamespace(passed=True, error=None, checked=[])

    def run(exercise, answer):
        said.checked.append(exercise)
        if said.error:
            raise said.error
        return checks.CheckResult(exercise, said.passed, None if said.passed else "wrong", "")

    monkeypatch.setattr(checks, "run", run)
    return said


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(scope="module")
def expected():
    return [request.output for request in serve(Engine(load_model()), len(PROMPTS))]


def serve(engine, num_prompts=2):
    return engine.generate(PROMPTS[:num_prompts], SamplingParams(NUM_TOKENS, ignore_end=True))


def serves(engine, expected):
    return [request.output for request in serve(engine)] == expected[:2]


NOTEBOOK = """
def rounded_up(number, step):
    return -(-number // step)


def blocks_needed(num_tokens, block_size):
    return rounded_up(num_tokens, block_size)


def one_too_many(num_tokens, block_size):
    return num_tokens // block_size + 1
"""


def test_an_answer_is_saved_as_it_passes_and_a_failure_leaves_it(folder):
    notebook = {"__name__": "__main__"}
    exec(NOTEBOOK, notebook)
    with pytest.raises(notebook_api.CheckFailed):
        notebook_api.check("0.1", notebook["one_too_many"])
    assert not folder.exists()
    notebook_api.check("0.1", notebook["blocks_needed"])
    before = (folder / "0.1").read_bytes()
    with pytest.raises(notebook_api.CheckFailed):
        notebook_api.check("0.1", notebook["one_too_many"])
    assert (folder / "0.1").read_bytes() == before
    notebook["rounded_up"] = None
    # it has kept the earlier function that it calls
    assert saved_answers.load("0.1").answer(9, 4) == 3


@pytest.mark.slow
@pytest.mark.parametrize("path", ["paged_torch", "blockwise", "kernel"])
def test_an_engine_of_the_learners_parts_gives_the_same_tokens(model, expected, path):
    of_path = (
        learner_engine.KERNEL if path == "kernel" else learner_engine.PATH_FUNCTIONS[path]
    )
    exercises = [
        *learner_engine.BLOCK_MANAGER,
        *learner_engine.PLACES,
        learner_engine.FORWARD,
        *of_path,
    ]
    for exercise in exercises:
        saved_answers.save(exercise, right_answer(exercise))
    engine, assembled = learner_engine.assemble(
        model, path=path, num_blocks=12, block_size=8, token_budget=32
    )
    assert reasons(assembled) == dict.fromkeys(exercises, "")
    assert set(whose(assembled).values()) == {"yours"}
    assert engine.runner.forward is not paged_attention_forward
    # the C++ one
    assert type(engine.prefix_cache.watched.block_manager).__module__.startswith(
        "block_manager_"
    )
    requests = serve(engine, len(PROMPTS))
    assert [request.output for request in requests] == expected
    assert sum(request.num_preempted for request in requests) > 0
    engine.prefix_cache.clear()
    assert engine.manager.block_manager.get_num_free_blocks() == 12


def test_without_answers_every_part_is_the_courses(model, expected):
    engine, assembled = learner_engine.assemble(model)
    assert set(whose(assembled).values()) == {"the course's"}
    numbers = "1.1 1.3 1.4 2.5 2.7 5.2 5.3 5.5 8.1 8.2 8.3 8.4 8.5 8.6 8.7 8.8 8.9"
    assert list(whose(assembled)) == numbers.split()
    assert set(reasons(assembled).values()) == {"not passed yet"}
    assert serves(engine, expected)


def test_a_wrong_part_does_not_get_in(model, expected):
    def sample(logits, params, position):
        return int(logits.argmin())

    saved_answers.save("8.7", of_notebook(sample))
    saved_answers.save("8.3", 3)
    saved_answers.save("8.2", "def flatten_batch(scheduled): pass")
    saved_answers.save("1.1", read_kernel("free_list.h").replace("pop_back()", "front()"))
    saved_answers.save("8.5", right_answer("8.5"))
    engine, assembled = learner_engine.assemble(model)
    assert whose(assembled) == {
        part.exercise: "yours" if part.exercise == "8.5" else "the course's"
        for part in assembled
    }
    for exercise, mistake in (
        ("8.7", ""),
        ("8.3", "not-an-answer"),
        ("8.2", "not-an-answer"),
        ("1.1", ""),
    ):
        assert reasons(assembled)[exercise].startswith(
            f"it does not pass its check now: {mistake}"
        )
    assert serves(engine, expected)


def test_answers_from_before_their_exercises_changed_say_so(model, expected):
    def sample(logits, params, generator):
        if params.temperature == 0:
            return int(logits.argmax())
        p = torch.softmax(logits.double() / params.temperature, dim=-1)
        return int(torch.multinomial(p, 1, generator=generator))

    def postprocess(self, scheduled, logits):
        new = []
        for (request, num_tokens), row in zip(scheduled, logits, strict=True):
            request.num_computed += num_tokens
            if not request.num_uncomputed:
                token = self.sample(row, request.params, request.generator)
                request.tokens.append(token)
                new.append((request, token))
        return new

    saved_answers.save("8.7", of_notebook(sample))
    saved_answers.save("8.8", of_notebook(postprocess))
    engine, assembled = learner_engine.assemble(model)
    for exercise, words in (
        ("8.7", "the third argument of `sample` is now the token's position"),
        ("8.8", "the third argument of `self.sample` is now the position of the new"),
    ):
        assert whose(assembled)[exercise] == "the course's"
        reason = reasons(assembled)[exercise]
        assert reason.startswith("This exercise has changed: ") and words in reason
        assert "\n" not in reason
    assert serves(engine, expected)
    drawn = SamplingParams(NUM_TOKENS, temperature=2.0, ignore_end=True)
    ours = Engine(model, path="paged_torch").generate(PROMPTS[:1], drawn)
    assert engine.generate(PROMPTS[:1], drawn)[0].output == ours[0].output


def test_a_check_that_cannot_run_is_a_reason(model, verdict):
    verdict.error = RuntimeError("No process could be started")
    saved_answers.save("8.7", len)
    _, assembled = learner_engine.assemble(model)
    said = "its check could not be run: RuntimeError: No process could be started"
    assert reasons(assembled)["8.7"] == said


def answer_number(number):
    """An answer that no test but one has."""
    return of_notebook(eval(f"lambda *arguments: {number}"))


def test_what_has_passed_is_not_checked_again_in_a_process_and_what_has_not_is(model, verdict):
    saved_answers.save("8.5", answer_number(1))
    for verdict.passed in (False, False, True, True):
        _, assembled = learner_engine.assemble(model)
        assert (whose(assembled)["8.5"] == "yours") == verdict.passed
    assert verdict.checked == ["8.5"] * 3
    saved_answers.save("8.5", answer_number(2))
    learner_engine.assemble(model)
    assert verdict.checked == ["8.5"] * 4


def test_without_a_mutex_does_as_well(model, expected):
    saved_answers.save("1.2", read_kernel("block_manager.h"))
    engine, assembled = learner_engine.assemble(model)
    assert [(part.exercise, part.whose) for part in assembled[:3]] == [
        ("1.1", "the course's"),
        ("1.2", "yours"),
        ("1.4", "the course's"),
    ]
    assert type(engine.prefix_cache.watched.block_manager).__module__.startswith(
        "block_manager_"
    )
    assert serves(engine, expected)


@pytest.mark.parametrize("passed", [[], ["1.1"]])
def test_lesson_02_has_the_learners_block_manager(passed):
    for exercise in passed:
        saved_answers.save(exercise, right_answer(exercise))
    block_manager, assembled = own_answers.own_block_manager()
    assert [each for each, owner in whose(assembled).items() if owner == "yours"] == passed
    assert list(whose(assembled)) == ["1.1", "1.3", "1.4"]
    assert block_manager(3).get_num_free_blocks() == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "exercises", "other"),
    [
        ("paged_torch", ("1.1", "1.3"), "1.4"),
        pytest.param("kernel", ("6.2", "6.6"), "6.3", marks=pytest.mark.slow),
    ],
)
def test_texts_that_cannot_be_built_together_all_count_as_ours(
    model, expected, verdict, path, exercises, other
):
    first, second = exercises
    saved_answers.save(first, "no such thing\nand more")
    saved_answers.save(second, right_answer(second))
    engine, assembled = learner_engine.assemble(model, path=path)
    for exercise in exercises:
        assert whose(assembled)[exercise] == "the course's"
        reason = reasons(assembled)[exercise]
        assert reason.startswith("your texts cannot be built together: CompileError: ")
        assert "\n" not in reason
    assert reasons(assembled)[other] == "not passed yet"
    assert serves(engine, expected)


# On which path an engine calls the answer to an exercise.
CALLED = {exercise: "batched" for exercise in (*learner_engine.PLACES, "8.1")} | {
    exercise: path for path, each in learner_engine.PATH_FUNCTIONS.items() for exercise in each
}


@pytest.mark.parametrize(("exercise", "path"), CALLED.items())
def test_an_answer_takes_the_place_of_what_it_replaces_and_its_errors_name_it(
    model, verdict, exercise, path
):
    def answer(*arguments, **named):
        raise ZeroDivisionError("oh")

    saved_answers.save(exercise, of_notebook(answer))
    engine, assembled = learner_engine.assemble(
        model, path=path, num_blocks=12, block_size=8, token_budget=32
    )
    (mine,) = [part for part in assembled if part.whose == "yours"]
    assert mine.exercise == exercise
    with pytest.raises(ZeroDivisionError) as error:
        serve(engine, len(PROMPTS))
    note = f"It came out of your answer to exercise {exercise}, `{mine.name}`."
    assert error.value.__notes__ == [note]


def test_options_are_the_engines(model, capsys):
    def own_path(metadata):
        raise AssertionError

    with pytest.raises(ValueError, match="path must be one of"):
        learner_engine.assemble(model, path="pages")
    engine, assembled = learner_engine.assemble(
        model,
        path=own_path,
        block_manager=lambda num_blocks: num_blocks,
        num_blocks=3,
        forward=paged_attention_forward,
    )
    assert engine.prefix_cache.watched.block_manager == 3 and engine.runner.plan is own_path
    assert list(whose(assembled))[0] == "2.5" and "8.1" not in whose(assembled)
    _, assembled = learner_engine.assemble(model, path="batched")
    assert assembled[-1] == learner_engine.Part(
        "", "path batched", "the course's", "no exercise is a part of it"
    )
