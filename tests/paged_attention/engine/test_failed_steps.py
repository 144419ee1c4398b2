"""A failed step has not happened: no token or block is lost, and everything can continue.

That of lesson 08's engine, and that of the one whose host is a step ahead. LIVES says how many
long lives of each are tried among the slow tests.
"""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrl_c import CtrlC
from echo import (
    END,
    EchoModel,
    ahead_engine,
    assert_nothing_is_lost,
    assert_right,
    continuation,
    engine_with,
)
from paged_attention.engine.fast.ahead import PENDING
from paged_attention.engine.history import History
from paged_attention.engine.request import SamplingParams
from paged_attention.pool.block_manager import PythonBlockManager
from traces import actions, play

ENDLESS = SamplingParams(max_new_tokens=5, ignore_end=True)
ENGINES = pytest.mark.parametrize("make", [engine_with, ahead_engine])
LIVES = int(os.environ.get("LIVES", "200"))


@pytest.fixture(scope="module", autouse=True)
def what_happens_once_has_happened():
    """The first step imports many modules, for which each instruction would be looked at."""
    engine_with().generate([[1]], SamplingParams(max_new_tokens=1))


def busy_engine(make, steps: int):
    """An engine with too small a pool, after some steps: greedy and drawing requests, a shared
    prefix, an end by length.
    """
    engine, requests = make(num_blocks=7, token_budget=8, history=History()), []
    prompts = [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7], [3] * 9, [5], [1, 2, 3, 4, 5, 6]
    for number, prompt in enumerate(prompts):
        most, draws = 2 + 2 * number, number % 2
        params = SamplingParams(most, draws, seed=number, ignore_end=number > 2)
        requests.append(engine.add(number, prompt, params))
    for _ in range(steps):
        engine.step()
    return engine, requests


PROMPTS = [[1, 2, 3, 4, 5], [6, 7], [1, 2, 3, 4, 6]]


def outputs_of(requests):
    return [(request.output, request.reason) for request in requests]


@ENGINES
@settings(max_examples=30)
@given(steps=st.integers(0, 12), place=st.floats(0, 1, exclude_max=True))
def test_ctrl_c_anywhere_in_a_step_loses_nothing(make, steps, place):
    assert_a_step_loses_nothing(make, steps, lambda count: [int(place * count)])


@ENGINES
@pytest.mark.parametrize(
    "steps", [3, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (0, 9))]
)
def test_nor_does_it_before_any_instruction_of_step_itself(make, steps):
    """Compilers leave some instructions of a `try` without its handler."""
    assert_a_step_loses_nothing(make, steps, range, "step")


def assert_a_step_loses_nothing(make, steps, places, function=""):
    """places: of the number of instructions, those before which Ctrl-C comes."""
    undisturbed, expected = busy_engine(make, steps)
    clock = CtrlC(function=function)
    before = outputs_of(expected)
    with clock.watching():
        undisturbed.step()
    after = outputs_of(expected)
    undisturbed.run()
    for place in places(clock.count):
        engine, requests = busy_engine(make, steps)
        with pytest.raises(KeyboardInterrupt), CtrlC(place, function).watching():
            engine.step()
        assert outputs_of(requests) in (before, after)
        assert [*engine.scheduler.running, *engine.scheduler.waiting] == [
            each for each in requests if each.reason is None
        ]
        assert not any(PENDING in request.tokens for request in requests)
        engine.run()
        assert outputs_of(requests) == outputs_of(expected)
        assert EchoModel.config._attn_implementation == "eager"
        assert_nothing_is_lost(engine)


@settings(max_examples=30)
@given(place=st.floats(0, 1, exclude_max=True))
def test_ctrl_c_in_generate_leaves_no_request_behind(place):
    clock = CtrlC()
    with clock.watching():
        engine_with().generate(PROMPTS, ENDLESS)
    assert_nothing_is_left(CtrlC(int(place * clock.count)))


def test_nor_does_it_before_any_instruction_of_generate_itself():
    clock = CtrlC(function="generate")
    with clock.watching():
        engine_with().generate(PROMPTS, ENDLESS)
    for at in range(clock.count):
        assert_nothing_is_left(CtrlC(at, "generate"))


def assert_nothing_is_left(ctrl_c):
    engine = engine_with()
    other = engine.add("other", [3, 4], ENDLESS)
    try:
        with ctrl_c.watching():
            engine.generate(PROMPTS, ENDLESS)
    except KeyboardInterrupt:
        pass
    assert set(engine.requests) <= {"other"}
    engine.run()
    assert other.output == continuation([3, 4], ENDLESS)
    assert_nothing_is_lost(engine)


class Impatient(PythonBlockManager):
    """Ctrl-C comes at the next call of each of these names."""

    interrupted: set[str] = set()

    def __init__(self, num_blocks):
        self.may_be_interrupted("__init__")
        super().__init__(num_blocks)

    def free(self, block_id):
        self.may_be_interrupted("free")
        super().free(block_id)

    def may_be_interrupted(self, name):
        if name in self.interrupted:
            self.interrupted.remove(name)
            raise KeyboardInterrupt


@ENGINES
@pytest.mark.parametrize("names", [{"__init__"}, {"free"}, {"free", "__init__"}])
def test_ctrl_c_in_cancel_and_while_a_step_is_taken_back_loses_nothing(make, names):
    model = EchoModel()
    engine = make(model, block_manager=Impatient)
    requests = [engine.add(id, [1, 2, 3, 4, 5, id], ENDLESS) for id in (1, 2, 3)]
    for _ in range(2):
        engine.step()
    before = outputs_of(requests)
    Impatient.interrupted = set(names)
    if "free" in names:
        with pytest.raises(KeyboardInterrupt):
            engine.cancel(2)
    else:
        model.fails = True
        with pytest.raises(RuntimeError, match="out of memory"):
            engine.step()
        model.fails = False
    assert not Impatient.interrupted
    assert outputs_of(requests) == before and list(engine.scheduler.waiting) == requests
    engine.run()
    assert_right(requests)
    assert_nothing_is_lost(engine)


@ENGINES
def test_the_model_may_fail_and_the_step_is_taken_again(make):
    engine = make(model := EchoModel())
    requests = [engine.add(id, [1, 2, 3, 4, 5, id], ENDLESS) for id in (1, 2, 3)]
    engine.step()
    engine.step()
    model.fails = True
    for num_preempted in (1, 1):  # a waiting request does not give way again
        with pytest.raises(RuntimeError, match="out of memory"):
            engine.step()
        assert list(engine.scheduler.waiting) == requests and not engine.scheduler.running
        assert requests[0].num_preempted == num_preempted
        assert not any(PENDING in request.tokens for request in requests)
    model.fails = False
    engine.run()
    assert_right(requests)
    assert_nothing_is_lost(engine)


def test_a_draw_that_fails_takes_back_those_before_it():
    """Their tokens, and an end that one of them had come to. The next draw gives the same."""

    def drawn(fails_at):
        engine, requests = engine_with(token_budget=30), []
        draw, calls = engine.sample, iter(range(100))

        def sample(row, params, position):
            token = draw(row, params, position)
            if next(calls) == fails_at:
                raise RuntimeError("no memory")
            return token

        engine.sample = sample
        for id in (1, 2, 3):
            params = SamplingParams(id, temperature=3.0, seed=id, ignore_end=True)
            requests.append(engine.add(id, [1, 2, 3, 4, id], params))
        if fails_at is not None:
            with pytest.raises(RuntimeError, match="no memory"):
                engine.step()
            assert outputs_of(requests) == [([], None)] * 3
            assert list(engine.requests.values()) == list(engine.scheduler.waiting) == requests
        reported = []
        while engine.scheduler.has_work():
            reported += [(request.id, token) for request, token in engine.step()]
        assert_nothing_is_lost(engine)
        return [request.output for request in requests], reported

    assert drawn(1) == drawn(None) and drawn(2) == drawn(None)


# Long lives, in which anything may fail at any time


TOO_MUCH = 9  # a token after which this model's logits are NaN, if it is broken


class BreakableModel(EchoModel):
    breaks = False

    def logits_after(self, tokens):
        row = super().logits_after(tokens)
        return row + torch.nan if self.breaks and TOO_MUCH in tokens else row


def full_disk(engine, scheduled):
    raise OSError("the disk is full")


def fail(engine, model, what):
    """A step in which something goes wrong, if it gets so far. what: or where Ctrl-C comes."""
    model.fails, model.breaks = what == "memory", what == "NaN"
    engine.history = full_disk if what == "history" else None
    at = what if isinstance(what, int) else None
    try:
        with CtrlC(at).watching():
            engine.step()
    except (RuntimeError, OSError, KeyboardInterrupt):
        pass
    model.fails = model.breaks = False
    engine.history = None


lives = st.lists(
    actions(
        st.lists(st.integers(0, 10), min_size=1, max_size=9)
        | st.lists(st.integers(0, 10), max_size=9).map(lambda rest: [*range(1, 9), *rest]),
        st.builds(
            SamplingParams,
            st.integers(1, 14),
            st.sampled_from([0.0, 2.0]),
            seed=st.integers(0, 30),
        ),
    )
    | st.tuples(
        st.just("fail"), st.sampled_from(["memory", "history", "NaN"]) | st.integers(0, 4000)
    ),
    min_size=5,
    max_size=40,
)


@ENGINES
@pytest.mark.parametrize(
    "max_examples", [20, pytest.param(LIVES, marks=pytest.mark.slow)], ids=str
)
def test_no_token_is_ever_wrong_and_in_the_end_all_blocks_are_free(make, max_examples):
    @settings(max_examples=max_examples)
    @given(
        life=lives,
        block_size=st.integers(1, 5),
        num_blocks=st.integers(30, 40),
        token_budget=st.integers(1, 24),
        max_num_seqs=st.integers(1, 6),
        prefix_sharing=st.booleans(),
    )
    def live(life, **sizes):
        engine = make(model := BreakableModel(), **sizes)
        asked = play(engine, life, fail=lambda what: fail(engine, model, what))
        for request in asked:
            alone = continuation(request.prompt, request.params)
            if request.reason in ("cancelled", "not finite"):
                assert request.output == alone[: len(request.output)]
            else:
                assert request.output == alone
                assert request.reason == ("end" if alone[-1] == END else "length")
        assert_nothing_is_lost(engine)

    live()
