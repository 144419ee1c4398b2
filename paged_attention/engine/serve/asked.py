"""What a client asks for: the body of a request, read and checked."""

import json
import secrets
from dataclasses import dataclass
from typing import Any

from paged_attention.engine.request import SamplingParams
from paged_attention.engine.serve.errors import ApiError

MOST_PROMPTS, MOST_STOPS = 64, 4
# What OpenAI's API has besides, and the value that asks for nothing.
NOT_SUPPORTED = {
    "best_of": 1,
    "echo": False,
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": None,
    "presence_penalty": 0,
    "suffix": None,
}
SUPPORTED = {
    *("model", "prompt", "max_tokens", "temperature", "top_p", "n", "seed", "stop"),
    *("stream", "stream_options", "user"),
}


@dataclass(frozen=True)
class Asked:
    """A completion that was asked for.

    prompts: texts or lists of tokens.
    num_answers: for each prompt.
    params: how tokens are chosen. The answers to a prompt take the seeds that follow.
    include_usage: whether a stream ends with the numbers of tokens.
    """

    model: str
    prompts: list[str | list[int]]
    num_answers: int
    params: SamplingParams
    stop: list[str]
    stream: bool
    include_usage: bool


def read(body: bytes) -> Asked:
    """Reads and checks a request's body. Raises ApiError naming what is wrong."""
    fields = _parse(body)
    for name, value in fields.items():
        if name in NOT_SUPPORTED:
            if value is not None and value != NOT_SUPPORTED[name]:
                raise ApiError(400, f"{name} is not supported by this server", name)
        elif name not in SUPPORTED:
            raise ApiError(400, f"{name[:100]!r} is no argument of a completion", name[:100])
    fields = {name: value for name, value in fields.items() if value is not None}
    model = _of_type(fields, "model", str, "a text", "")
    if not model:
        raise ApiError(400, "model is missing: it names the model", "model")
    options = _of_type(fields, "stream_options", dict, "an object", {})
    stream = _of_type(fields, "stream", bool, "true or false", False)
    if options and not stream:
        raise ApiError(400, "stream_options are for stream: true only", "stream_options")
    return Asked(
        model,
        _prompts(fields.get("prompt")),
        _integer(fields, "n", 1, 1, MOST_PROMPTS),
        _params(fields),
        _stop(fields.get("stop", [])),
        stream,
        _of_type(options, "include_usage", bool, "true or false", False),
    )


def _parse(body: bytes) -> dict[str, Any]:
    def refuse(word: str):
        raise ApiError(400, f"the body has {word}, which is no number of JSON")

    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):  # others may take the first one, or the last
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)[:100]
            raise ApiError(400, f"the body has {twice!r} twice", twice)
        return found

    try:
        text = body.decode()
        fields = json.loads(text, parse_constant=refuse, object_pairs_hook=as_object)
        json.dumps(fields, ensure_ascii=False).encode()
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except UnicodeEncodeError:
        raise ApiError(
            400, "the body has half of a surrogate pair (\\ud800 to \\udfff)"
        ) from None
    except ValueError as error:  # and where it is not UTF-8
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ApiError(400, "the body must be a JSON object")
    return fields


def _prompts(prompt) -> list[str | list[int]]:
    """A text, a list of tokens, or a list of either."""
    problem = "must be a text, a list of tokens, or a list of texts or of lists of tokens"
    if prompt is None:
        raise ApiError(400, f"prompt is missing: it {problem}", "prompt")
    if _is_prompt(prompt):
        return [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise ApiError(400, f"prompt {problem}", "prompt")
    if len(prompt) > MOST_PROMPTS:
        raise ApiError(
            400, f"prompt has {len(prompt)} prompts; at most {MOST_PROMPTS}", "prompt"
        )
    for index, each in enumerate(prompt):
        if not _is_prompt(each):
            which = f"prompt {problem}, and prompt[{index}] is not one of these"
            if each == []:
                which = f"prompt[{index}] is empty; it needs one token or more"
            raise ApiError(400, which, "prompt")
    return prompt


def _is_prompt(prompt) -> bool:
    """Whether it is a text, or a list of tokens."""
    if isinstance(prompt, list):
        return bool(prompt) and all(type(each) is int for each in prompt)
    return isinstance(prompt, str)


def _params(fields: dict[str, Any]) -> SamplingParams:
    """The defaults are OpenAI's, where this engine's own differ."""
    temperature = _number(fields, "temperature", 1.0, 0.0, 2.0)
    if temperature < 1e-5:
        temperature = 0.0  # the same tokens
    top_p = _number(fields, "top_p", 1.0, 0.0, 1.0)
    if top_p == 0:
        raise ApiError(400, "top_p must be above 0 and at most 1", "top_p")
    return SamplingParams(
        max_new_tokens=_integer(fields, "max_tokens", 16, 1, 10**9),
        temperature=temperature,
        top_p=top_p,
        seed=_integer(fields, "seed", secrets.randbelow(2**62), -(2**62), 2**62),
    )


def _stop(stop) -> list[str]:
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(each, str) and each for each in stop):
        raise ApiError(400, "stop must be a text, or a list of texts, none empty", "stop")
    if len(stop) > MOST_STOPS or any(len(each) > 1000 for each in stop):
        raise ApiError(400, f"stop has at most {MOST_STOPS} texts of 1,000 characters", "stop")
    return stop


def _of_type(fields: dict[str, Any], name: str, kind: type, words: str, default):
    value = fields.get(name, default)
    if not isinstance(value, kind):
        raise ApiError(400, f"{name} must be {words}", name)
    return value


def _integer(fields: dict[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = fields.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise ApiError(400, f"{name} must be a whole number from {least:,} to {most:,}", name)
    return value


def _number(
    fields: dict[str, Any], name: str, default: float, least: float, most: float
) -> float:
    value = fields.get(name, default)
    if type(value) not in (int, float) or not least <= value <= most:
        raise ApiError(400, f"{name} must be a number from {least:g} to {most:g}", name)
    return float(value)
