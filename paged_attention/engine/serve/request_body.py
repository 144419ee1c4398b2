"""What a client asks for: the body of a request, read and checked."""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from paged_attention.engine.request import SamplingParams
from paged_attention.engine.serve.errors import ApiError

MOST_PROMPTS, MOST_STOPS = 64, 4
MOST_TOKENS, USUAL_TOKENS = 10**9, 16
MOST_TOP, MOST_TOP_IN_CHATS = 5, 20  # likeliest tokens at a place; OpenAI's numbers
# What both APIs take.
COMMON = {
    *("model", "max_tokens", "temperature", "top_p", "n", "seed", "stop", "stream"),
    *("stream_options", "user"),
}
# What OpenAI's API has besides, and the value that asks for nothing.
NOT_SUPPORTED = {"frequency_penalty": 0, "logit_bias": {}, "presence_penalty": 0}
NOT_IN_COMPLETIONS = NOT_SUPPORTED | {"best_of": 1, "suffix": None}
NOT_IN_CHATS = NOT_SUPPORTED | {
    "audio": None,
    "function_call": "none",
    "functions": [],
    "metadata": {},
    "modalities": ["text"],
    "parallel_tool_calls": True,
    "prediction": None,
    "reasoning_effort": None,
    "response_format": {"type": "text"},
    "service_tier": "auto",
    "store": False,
    "tool_choice": "none",
    "tools": [],
    "verbosity": None,
    "web_search_options": None,
}
# A role, and what a template calls it.
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

Message = dict[str, str]  # its role and its content


@dataclass(frozen=True)
class Asked:
    """A completion that was asked for.

    prompts: texts or lists of tokens; or one list of messages, for a chat.
    num_answers: for each prompt.
    params: how tokens are chosen. The answers to a prompt take the seeds that follow.
    fills_context: whether an answer may be as long as the model's context lets it be.
    include_usage: whether a stream ends with the numbers of tokens.
    num_top: how many of the likeliest tokens are told with each one, and how likely all of
        these were. None tells of none.
    echo: whether an answer begins with its prompt.
    """

    model: str
    prompts: list[str | list[int] | list[Message]]
    num_answers: int
    params: SamplingParams
    fills_context: bool
    stop: list[str]
    stream: bool
    include_usage: bool
    num_top: int | None
    echo: bool


def read_completion(body: bytes) -> Asked:
    """Reads and checks a completion's body. Raises ApiError naming what is wrong."""
    own = {"prompt", "echo", "logprobs"}
    fields = _fields(body, own, NOT_IN_COMPLETIONS, "a completion")
    num_top: int | None = _integer(fields, "logprobs", 0, 0, MOST_TOP)
    if "logprobs" not in fields:
        num_top = None
    return _asked(fields, lambda: _prompts(fields.get("prompt")), False, num_top)


def read_chat(body: bytes) -> Asked:
    """The same for a chat's."""
    own = {"messages", "max_completion_tokens", "logprobs", "top_logprobs"}
    fields = _fields(body, own, NOT_IN_CHATS, "a chat")
    if "max_completion_tokens" in fields:  # the newer name
        _integer(fields, "max_completion_tokens", 1, 1, MOST_TOKENS)
        fields["max_tokens"] = fields["max_completion_tokens"]
    fills_context = "max_tokens" not in fields
    num_top: int | None = _integer(fields, "top_logprobs", 0, 0, MOST_TOP_IN_CHATS)
    if not _of_type(fields, "logprobs", bool, "true or false", False):
        if num_top:
            raise ApiError(400, "top_logprobs is for logprobs: true only", "top_logprobs")
        num_top = None
    return _asked(fields, lambda: [_messages(fields.get("messages"))], fills_context, num_top)


def _fields(body: bytes, own: set[str], refused: dict[str, Any], what: str) -> dict[str, Any]:
    """The arguments that are given and not null.

    own: those that only this API takes. refused: those that it does not support.
    """
    fields = _parse(body)
    for name, value in fields.items():
        if name in refused:
            if value is not None and value != refused[name]:
                raise ApiError(400, f"{name} is not supported by this server", name)
        elif name not in COMMON | own:
            raise ApiError(400, f"{name[:100]!r} is no argument of {what}", name[:100])
    return {name: value for name, value in fields.items() if value is not None}


def _asked(
    fields: dict[str, Any],
    prompts: Callable[[], list],
    fills_context: bool,
    num_top: int | None,
) -> Asked:
    model = _of_type(fields, "model", str, "a text", "")
    if not model:
        raise ApiError(400, "model is missing: it names the model", "model")
    options = _of_type(fields, "stream_options", dict, "an object", {})
    stream = _of_type(fields, "stream", bool, "true or false", False)
    if options and not stream:
        raise ApiError(400, "stream_options are for stream: true only", "stream_options")
    return Asked(
        model,
        prompts(),
        _integer(fields, "n", 1, 1, MOST_PROMPTS),
        _params(fields),
        fills_context,
        _stop(fields.get("stop", [])),
        stream,
        _of_type(options, "include_usage", bool, "true or false", False),
        num_top,
        _of_type(fields, "echo", bool, "true or false", False),
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


def _messages(messages) -> list[Message]:
    if messages is None:
        raise ApiError(400, "messages is missing: it is a list of messages", "messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages must be a list of one message or more", "messages")
    return [_message(each, f"messages[{index}]") for index, each in enumerate(messages)]


def _message(message, name: str) -> Message:
    """What the model's template takes of it: the role and the text."""

    def refuse(problem: str) -> NoReturn:
        raise ApiError(400, f"{name} {problem}", "messages")

    if not isinstance(message, dict):
        refuse("must be an object with a role and a content")
    role, content = message.get("role"), message.get("content")
    if role in ("tool", "function") or message.get("tool_calls") or message.get("audio"):
        refuse("is about a tool or a sound, which this server does not support")
    if not isinstance(role, str) or role not in ROLES:
        refuse(f"has the role {str(role)[:50]!r}; it must be one of {', '.join(ROLES)}")
    if isinstance(content, list) and content:
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind != "text" or not isinstance(part.get("text"), str):
                refuse(f"has a part of type {str(kind)[:50]!r}; this server takes text only")
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        refuse("has no content; it must be a text")
    return {"role": ROLES[role], "content": content}


def _params(fields: dict[str, Any]) -> SamplingParams:
    """The defaults are OpenAI's, where this engine's own differ."""
    temperature = _number(fields, "temperature", 1.0, 0.0, 2.0)
    if temperature < 1e-5:
        temperature = 0.0  # the same tokens
    top_p = _number(fields, "top_p", 1.0, 0.0, 1.0)
    if top_p == 0:
        raise ApiError(400, "top_p must be above 0 and at most 1", "top_p")
    return SamplingParams(
        max_new_tokens=_integer(fields, "max_tokens", USUAL_TOKENS, 1, MOST_TOKENS),
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
