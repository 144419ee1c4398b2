"""An answer on its way: its text and end, and the words for what the engine raises."""

import pytest

from paged_attention.engine.request import RequestError
from paged_attention.engine.serve.answer import Answer, as_api_error, usage
from paged_attention.engine.serve.engine_thread import News, StoppedError
from paged_attention.engine.serve.errors import ApiError
from paged_attention.engine.serve.words import Characters
from paged_attention.tiny_qwen3.tasks import encode


def answer(stop=(), prompt="Cab>") -> Answer:
    return Answer(encode(prompt), list(stop), Characters(), encode("$"))


def take(made: Answer, text: str, reason: str | None = None) -> tuple[str, bool]:
    return made.take(News(encode(text), reason))


def test_its_text_grows_up_to_its_end():
    made = answer()
    assert (made.text, made.reason) == ("", "")
    assert take(made, "a") == ("a", False) and made.choice(2, "a") == {
        "index": 2,
        "text": "a",
        "logprobs": None,
        "finish_reason": None,
    }
    assert take(made, "bc") == ("bc", False) and made.reason == ""
    assert take(made, "d", "length") == ("d", True)
    assert (made.text, made.tokens) == ("abcd", encode("abcd"))
    assert made.choice(0, made.text)["finish_reason"] == "length"


@pytest.mark.parametrize(
    "text, reason, shown, finish",
    [("b$", "end", "b", "stop"), ("b$", "length", "b$", "length"), ("$", "end", "", "stop")],
)
def test_only_the_token_that_ended_it_is_left_out_of_its_text(text, reason, shown, finish):
    made = answer()
    take(made, "a$")
    assert take(made, text, reason) == (shown, True)
    assert (made.text, made.reason) == (f"a${shown}", finish)
    assert made.tokens == encode(f"a${text}")  # it counts all the same


def test_a_stop_text_ends_it_with_nothing_of_it_shown():
    made = answer(["xy"])
    assert take(made, "ax") == ("a", False)
    assert take(made, "yb") == ("", True)
    assert (made.text, made.reason) == ("a", "stop")


def test_another_end_is_an_error_with_its_code():
    with pytest.raises(ApiError, match="the answer ended early: not finite") as caught:
        take(answer(), "a", "not finite")
    assert (caught.value.status, caught.value.code) == (500, "not finite")


def test_a_prompt_counts_once_and_each_answer_for_itself():
    answers = [answer(prompt=prompt) for prompt in ("a", "a", "bcd", "bcd")]
    for made, text in zip(answers, ("x", "xy", "xyz", "wxyz")):
        take(made, text)
    assert usage(answers, 2) == {
        "prompt_tokens": 4,
        "completion_tokens": 10,
        "total_tokens": 14,
    }


@pytest.mark.parametrize(
    "error, status, words, parameter, code",
    [
        (StoppedError("it ends"), 503, "it ends", None, "server_is_ending"),
        (RequestError("request 12 is long"), 400, "the prompt is long", "prompt", None),
        (TypeError("of request 1"), 400, "of request 1", "prompt", None),
        (ValueError("hot"), 500, "the engine failed: ValueError: hot", None, None),
    ],
)
def test_what_the_engine_raises_has_its_status(error, status, words, parameter, code):
    with pytest.raises(ApiError) as caught:
        answer().take(News([], error=error))
    found = caught.value
    assert (found.status, found.message) == (status, words)
    assert (found.parameter, found.code) == (parameter, code)
    assert as_api_error(error).body() == found.body()
