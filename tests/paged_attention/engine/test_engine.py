"""The engine as a caller sees it: steps, streams, cancels, refusals, ends."""

from copy import copy

import pytest
from transformers import GenerationConfig

from echo import (
    VOCAB_SIZE,
    EchoModel,
    ahead_engine,
    assert_nothing_is_lost,
    assert_right,
    continuation,
    engine_with,
    read_back,
)
from paged_attention.engine.engine import Engine
from paged_attention.engine.request import (
    DuplicateRequestError,
    EmptyPromptError,
    PromptTooLongError,
    SamplingParams,
    UnknownRequestError,
    UnknownTokenError,
)


def test_streams_of_two_requests_can_be_read_in_turns():
    engine = engine_with()
    params = SamplingParams(max_new_tokens=4, ignore_end=True)
    requests = [engine.add(id, prompt, params) for id, prompt in (("a", [1, 2]), ("b", [3]))]
    pairs = list(zip(*map(engine.stream, requests), strict=True))
    assert [list(tokens) for tokens in zip(*pairs, strict=True)] == [
        request.output for request in requests
    ]
    assert requests[1].output == continuation([3], params)


def test_a_cancelled_request_keeps_what_it_has_and_the_others_go_on():
    engine = engine_with()
    params = SamplingParams(max_new_tokens=6, ignore_end=True)
    first, second, third = (engine.add(id, [id], params) for id in (1, 2, 3))
    stream = engine.stream(first)
    next(stream), next(stream)
    assert engine.cancel(1) is first and first.reason == "cancelled" and len(first.output) == 2
    assert list(stream) == []
    engine.cancel(3)
    engine.run()
    assert second.output == continuation([2], params)
    with pytest.raises(UnknownRequestError, match="no request 1"):
        engine.cancel(1)
    assert_nothing_is_lost(engine)


@pytest.mark.parametrize(
    ("prompt", "params", "error", "words"),
    [
        ([], {}, EmptyPromptError, "empty prompt"),
        ([1, VOCAB_SIZE], {}, UnknownTokenError, "token 11; the model's tokens are 0 to 10"),
        ([-1], {}, UnknownTokenError, "token -1"),
        (
            [1] * 38,
            {"max_new_tokens": 3},
            PromptTooLongError,
            r"38 \+ 3 tokens, .* room for 40",
        ),
    ],
)
def test_a_bad_request_is_refused_and_the_others_go_on(prompt, params, error, words):
    engine = engine_with()
    good = SamplingParams(max_new_tokens=3, ignore_end=True)
    with pytest.raises(error, match=words):
        engine.add("bad", prompt, SamplingParams(**params))
    bad = SamplingParams(**params)
    first, refused, last = engine.generate([[1], prompt, [2]], [good, bad, good])
    assert isinstance(refused, error)
    assert_right([first, last])
    assert_nothing_is_lost(engine)


def test_an_id_is_taken_until_its_request_has_ended():
    engine, params = engine_with(), SamplingParams(max_new_tokens=2)
    engine.add("a", [1], params)
    with pytest.raises(DuplicateRequestError, match="'a' is here already"):
        engine.add("a", [2], params)
    engine.run()
    engine.add("a", [2], params)


@pytest.mark.parametrize(
    "name, size",
    [("token_budget", 0), ("max_num_seqs", -1), ("num_blocks", 0), ("block_size", 0)],
)
def test_sizes_below_one_are_refused(name, size):
    with pytest.raises(ValueError, match=f"{name} must be positive, not {size}"):
        engine_with(**{name: size})


def test_what_is_no_token_is_refused():
    with pytest.raises(TypeError, match="a token must be an integer, not str"):
        engine_with().add("a", "Cab>")


def test_what_would_go_on_for_ever_is_an_error():
    engine, other = engine_with(), engine_with()
    request = engine.add("a", [1], SamplingParams(max_new_tokens=2))
    other.step = lambda: pytest.fail("it would go on for ever")
    with pytest.raises(UnknownRequestError, match="request 'a' is not one of this engine's"):
        next(other.stream(request))
    namesake = other.add("a", [1], SamplingParams(max_new_tokens=2))
    with pytest.raises(UnknownRequestError, match="request 'a' is not one of this engine's"):
        next(other.stream(request))
    del other.step
    assert list(other.stream(namesake)) == namesake.output
    assert list(engine.stream(namesake)) == namesake.output  # it has ended
    for stuck in (engine, ahead_engine()):
        stuck.add("b", [1], SamplingParams(max_new_tokens=2))
        stuck.scheduler.schedule = list
        with pytest.raises(RuntimeError, match="chose no request"):
            stuck.run()


def test_params_for_other_prompts_leave_no_request_behind():
    engine = engine_with()
    with pytest.raises(ValueError):
        engine.generate([[1], [2]], [SamplingParams(max_new_tokens=2)])
    assert not engine.requests and not engine.scheduler.has_work()


def test_generate_shows_how_many_are_done_if_it_is_asked_to(capsys):
    given = [SamplingParams(max_new_tokens=most, ignore_end=True) for most in (1, 1, 3, 2)]
    prompts = [[1], [], [2], [3]]  # the second is refused
    engine_with().generate(prompts, given)
    assert not capsys.readouterr().err
    engine = engine_with()
    engine.add("other", [4], SamplingParams(max_new_tokens=1))  # not one of those
    engine.generate(prompts, given, progress=True)
    shown = capsys.readouterr().err
    assert "1/4" in shown and "4/4" in shown and "request" in shown and "5/4" not in shown


@pytest.mark.parametrize(("ends", "tokens"), [(None, set()), (3, {3}), ([3, 5], {3, 5})])
def test_a_model_may_have_several_end_tokens_or_none(ends, tokens):
    model = EchoModel()
    model.config = copy(EchoModel.config)
    model.config.eos_token_id = ends
    assert Engine(model, path=read_back).end_tokens == tokens
    model.generation_config = GenerationConfig(eos_token_id=[7])
    assert Engine(model, path=read_back).end_tokens == tokens | {7}
