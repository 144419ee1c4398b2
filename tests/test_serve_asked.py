"""What a request's body may say, up to its limits, and what is refused by its name."""

import json

import pytest

from paged_attention.engine.request import SamplingParams
from paged_attention.engine.serve import asked
from paged_attention.engine.serve.errors import ApiError


def read(**fields) -> asked.Asked:
    body = {"model": "small", "prompt": "Cab>"} | fields
    return asked.read(json.dumps(body).encode())


def refused(body: bytes | None = None, **fields) -> tuple[str, str | None]:
    """The message, and the argument that it is about."""
    with pytest.raises(ApiError) as caught:
        asked.read(body) if body is not None else read(**fields)
    assert caught.value.status == 400
    return str(caught.value), caught.value.parameter


def test_a_model_and_a_prompt_are_enough():
    found = read()
    assert (found.model, found.prompts, found.num_answers) == ("small", ["Cab>"], 1)
    assert (found.stop, found.stream, found.include_usage) == ([], False, False)
    assert (found.params.max_new_tokens, found.params.temperature) == (16, 1.0)


def test_what_is_asked_for_is_what_the_engine_gets():
    params = read(max_tokens=7, temperature=2, top_p=0.25, seed=-5).params
    assert params == SamplingParams(max_new_tokens=7, temperature=2.0, top_p=0.25, seed=-5)
    assert isinstance(params.temperature, float)


def test_a_seed_that_nobody_names_is_any_number_that_may_be_named(monkeypatch):
    assert read().params.seed != read().params.seed
    monkeypatch.setattr(asked.secrets, "randbelow", lambda number: number - 1)
    assert read().params.seed == 2**62 - 1


@pytest.mark.parametrize("temperature, used", [(0, 0.0), (9e-6, 0.0), (1e-5, 1e-5), (1, 1.0)])
def test_a_temperature_that_the_engine_does_not_take_is_none(temperature, used):
    assert read(temperature=temperature).params.temperature == used


def test_what_is_null_is_not_asked_for():
    nothing = dict.fromkeys(("stop", "seed", "n", "max_tokens", "stream", "suffix", "user"))
    found = read(**nothing)
    assert (found.stop, found.num_answers, found.stream) == ([], 1, False)
    assert found.params.max_new_tokens == 16


@pytest.mark.parametrize(
    "prompt, prompts",
    [
        ("", [""]),
        ([5], [[5]]),
        ([5, 0], [[5, 0]]),
        (["a", "b"], ["a", "b"]),
        (["a", [1, 2]], ["a", [1, 2]]),
        ([[1]] * 64, [[1]] * 64),
        (["a"] * 64, ["a"] * 64),
    ],
)
def test_prompts_are_texts_or_tokens(prompt, prompts):
    assert read(prompt=prompt).prompts == prompts


MUST = "prompt must be a text, a list of tokens, or a list of texts or of lists of tokens"


@pytest.mark.parametrize(
    "prompt, words",
    [
        (None, f"prompt is missing: it{MUST.removeprefix('prompt')}"),
        ([], MUST),
        (5, MUST),
        ({}, MUST),
        ([1, "a"], MUST),
        ([1, 2.0], MUST),
        ([True], MUST),
        (["a", []], MUST),
        (["a", [1, "b"]], MUST),
        (["a", None], MUST),
        (["a"] * 65, "prompt has 65 prompts; at most 64"),
    ],
)
def test_other_prompts_are_refused(prompt, words):
    assert refused(prompt=prompt) == (words, "prompt")


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1},
        {"n": 64},
        {"max_tokens": 1},
        {"max_tokens": 10**9},
        {"temperature": 0},
        {"temperature": 2},
        {"top_p": 1},
        {"top_p": 1e-9},
        {"stop": ["a", "b", "c", "d"]},
        {"stop": "x" * 1000},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream_options": {}},
        {"seed": -(2**62)},
        {"seed": 2**62},
        {"best_of": 1, "echo": False, "logit_bias": {}, "logprobs": None, "suffix": None},
        {"frequency_penalty": 0, "presence_penalty": 0.0},
    ],
)
def test_what_is_at_a_limit_is_taken(fields):
    read(**fields)


A_SEED = f"seed must be a whole number from {-(2**62):,} to {2**62:,}"
STOPS = "stop has at most 4 texts of 1,000 characters"
A_STOP = "stop must be a text, or a list of texts, none empty"


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"n": 0}, "n must be a whole number from 1 to 64"),
        ({"n": 65}, "n must be a whole number from 1 to 64"),
        ({"n": True}, "n must be a whole number from 1 to 64"),
        ({"max_tokens": 0}, "max_tokens must be a whole number from 1 to 1,000,000,000"),
        (
            {"max_tokens": 10**9 + 1},
            "max_tokens must be a whole number from 1 to 1,000,000,000",
        ),
        ({"temperature": -0.1}, "temperature must be a number from 0 to 2"),
        ({"temperature": 2.1}, "temperature must be a number from 0 to 2"),
        ({"temperature": True}, "temperature must be a number from 0 to 2"),
        ({"top_p": 1.1}, "top_p must be a number from 0 to 1"),
        ({"top_p": 0}, "top_p must be above 0 and at most 1"),
        ({"seed": 2**62 + 1}, A_SEED),
        ({"seed": -(2**62) - 1}, A_SEED),
        ({"seed": 1.0}, A_SEED),
        ({"stop": list("abcde")}, STOPS),
        ({"stop": "x" * 1001}, STOPS),
        ({"stop": ["a", "x" * 1001]}, STOPS),
        ({"stop": ""}, A_STOP),
        ({"stop": ["a", ""]}, A_STOP),
        ({"stop": [1]}, A_STOP),
        ({"stop": 1}, A_STOP),
        ({"model": ""}, "model is missing: it names the model"),
        ({"model": 5}, "model must be a text"),
        ({"stream": 1}, "stream must be true or false"),
        ({"stream_options": []}, "stream_options must be an object"),
        (
            {"stream_options": {"include_usage": True}},
            "stream_options are for stream: true only",
        ),
        ({"suffix": "x"}, "suffix is not supported by this server"),
        ({"best_of": 2}, "best_of is not supported by this server"),
        ({"best_of": 0}, "best_of is not supported by this server"),
        ({"frequency_penalty": 1}, "frequency_penalty is not supported by this server"),
        ({"presence_penalty": 1}, "presence_penalty is not supported by this server"),
        ({"echo": True}, "echo is not supported by this server"),
        ({"tools": []}, "'tools' is no argument of a completion"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(fields, words):
    assert refused(**fields) == (words, list(fields)[-1])


def test_a_flag_in_the_options_of_a_stream_is_named():
    options = {"stream": True, "stream_options": {"include_usage": 1}}
    assert refused(**options) == ("include_usage must be true or false", "include_usage")


def test_a_long_name_is_cut():
    words, param = refused(**{"x" * 200: 1})
    assert words == f"{'x' * 100!r} is no argument of a completion" and param == "x" * 100


@pytest.mark.parametrize(
    "body, words",
    [
        (b"{", "the body is not JSON: "),
        (b"\xff", "the body is not JSON: "),
        (b"[]", "the body must be a JSON object"),
        (b'{"n": NaN}', "the body has NaN, which is no number of JSON"),
        (b'{"n": -Infinity}', "the body has -Infinity, which is no number of JSON"),
        (b"[" * 100_000, "the body is nested too deeply"),
    ],
)
def test_what_is_no_json_is_refused(body, words):
    message, param = refused(body)
    assert message.startswith(words) and param is None


def test_without_a_model_none_is_meant():
    assert refused(b'{"prompt": "a"}') == ("model is missing: it names the model", "model")
