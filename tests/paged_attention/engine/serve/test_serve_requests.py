"""Whatever comes from outside: it is answered, or refused by name in OpenAI's form."""

import itertools
import json
import re
import threading

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_attention.engine.serve.server import Limits
from serving import MODEL, RunningServer, body, head_of

MOST = 8  # answers at once


@pytest.fixture(scope="module")
def server():
    with RunningServer(Limits(requests=MOST, body=200_000)) as running:
        yield running


PROMPT = "must be a text, a list of tokens, or a list of texts or of lists of tokens"
A_SEED = f"seed must be a whole number from {-(2**62):,} to {2**62:,}"
A_STOP = "stop must be a text, or a list of texts, none empty"
STOPS = "stop has at most 4 texts of 1,000 characters"
N = "n must be a whole number from 1 to 64"
MOST_TOKENS = "max_tokens must be a whole number from 1 to 1,000,000,000"
TEMPERATURE = "temperature must be a number from 0 to 2"
NUMBER = "9" * 400
NOT_HERE = [("suffix", "x"), ("best_of", 2)]
NOT_HERE += [("frequency_penalty", 1), ("presence_penalty", 1)]
LOGPROBS = "logprobs must be a whole number from 0 to 5"
FIELDS = [  # what is wrong, and the words for it
    ({"model": ""}, "model is missing: it names the model"),
    ({"model": 5}, "model must be a text"),
    ({"prompt": None}, f"prompt is missing: it {PROMPT}"),
    ({"prompt": []}, f"prompt {PROMPT}"),
    ({"prompt": [1, "a"]}, f"prompt {PROMPT}, and prompt[0] is not one of these"),
    ({"prompt": ["a", 7]}, f"prompt {PROMPT}, and prompt[1] is not one of these"),
    ({"prompt": ["a", [1, 2.0]]}, f"prompt {PROMPT}, and prompt[1] is not one of these"),
    ({"prompt": [True]}, f"prompt {PROMPT}, and prompt[0] is not one of these"),
    ({"prompt": ""}, "the prompt is empty; it needs one token or more"),
    ({"prompt": ["a", ""]}, "prompt[1] is empty; it needs one token or more"),
    ({"prompt": [[1], [2], []]}, "prompt[2] is empty; it needs one token or more"),
    ({"prompt": ["a", "É"]}, r"prompt\[1\]: the model knows the characters .* and not 'É'"),
    ({"prompt": [-1]}, "the prompt has the token -1; the model's are 0 to 44"),
    ({"prompt": [[1], [45]]}, "prompt[1] has the token 45; the model's are 0 to 44"),
    ({"prompt": [1, int(NUMBER)]}, "the prompt has the token 999.*"),
    ({"prompt": ["a"] * 65}, "prompt has 65 prompts; at most 64"),
    ({"prompt": "C" * 600}, r"the prompt may grow to 600 \+ 16 tokens, and .* room for 512"),
    ({"prompt": ["C", "C" * 600]}, r"prompt\[1\] may grow to 600 \+ 16 tokens, .*"),
    ({"max_tokens": 10**9}, "the prompt may grow to .* has room for .*"),
    ({"max_tokens": 0}, MOST_TOKENS),
    ({"max_tokens": 10**9 + 1}, MOST_TOKENS),
    ({"max_tokens": int(NUMBER)}, MOST_TOKENS),
    ({"temperature": -0.1}, TEMPERATURE),
    ({"temperature": 2.1}, TEMPERATURE),
    ({"temperature": True}, TEMPERATURE),
    ({"temperature": int(NUMBER)}, TEMPERATURE),
    ({"top_p": 0}, "top_p must be above 0 and at most 1"),
    ({"top_p": -int(NUMBER)}, "top_p must be a number from 0 to 1"),
    ({"seed": 1.0}, A_SEED),
    ({"seed": 2**62 + 1}, A_SEED),
    ({"seed": -int(NUMBER)}, A_SEED),
    ({"n": 0}, N),
    ({"n": 65}, N),
    ({"stop": ""}, A_STOP),
    ({"stop": ["a", ""]}, A_STOP),
    ({"stop": 1}, A_STOP),
    ({"stop": list("abcde")}, STOPS),
    ({"stop": ["a", "x" * 1001]}, STOPS),
    ({"logprobs": 6}, LOGPROBS),
    ({"logprobs": True}, LOGPROBS),
    ({"echo": 1}, "echo must be true or false"),
    ({"stream": 1}, "stream must be true or false"),
    ({"stream_options": []}, "stream_options must be an object"),
    ({"stream_options": {"include_usage": True}}, "stream_options are for stream: true only"),
    (
        {"stream": True, "stream_options": {"include_usage": 1}},
        "include_usage must be true .*",
    ),
    *(({name: value}, f"{name} is not supported by this server") for name, value in NOT_HERE),
    ({"max_token": 3}, "'max_token' is no argument of a completion"),
    ({"x" * 200: 3}, f"{'x' * 100!r} is no argument of a completion"),
    # never, however long one waits
    ({"n": MOST + 1}, "these are 9 answers at once, and this server takes 8 at most; .*"),
    ({"prompt": ["C"] * 64, "n": 64}, "these are 4,096 answers at once, .*"),
]


@pytest.mark.parametrize("fields, words", FIELDS, ids=lambda each: str(each)[:40])
def test_what_is_wrong_is_refused_by_its_name(server, fields, words):
    status, answer = server.ask(body() | fields)
    error = answer["error"]
    assert (status, error["type"], error["code"]) == (400, "invalid_request_error", None)
    assert error["message"] == words or re.fullmatch(words, error["message"], re.S)
    if "may grow" not in words:
        named = [*list(fields)[-1:], *(fields.get("stream_options") or {}), "n", "prompt"]
        assert (error["param"] or "")[:100] in [name[:100] for name in named]


BODIES = [  # no JSON, or none that a program should write
    (b"", "the body is not JSON: "),
    (b"{", "the body is not JSON: "),
    (b"\xff\xfe{}", "the body is not JSON: "),
    ('{"model": "small"}'.encode("utf-16"), "the body is not JSON: "),
    (b"[]", "the body must be a JSON object"),
    (b'{"n": NaN}', "the body has NaN, which is no number of JSON"),
    (b'{"n": -Infinity}', "the body has -Infinity, which is no number of JSON"),
    (b"[" * 100_000, "the body is nested too deeply"),
    (b'{"a":' * 30_000, "the body is nested too deeply"),
    (b'{"n": 1, "n": 2}', "the body has 'n' twice"),
    (b'{"stream_options": {"a": 1, "a": 1}}', "the body has 'a' twice"),
    (rb'{"prompt": "a\ud83d"}', "the body has half of a surrogate pair"),
    (rb'{"prompt": ["a", "\ude00\ud83d"]}', "the body has half of a surrogate pair"),
    (rb'{"\ud83d": 1}', "the body has half of a surrogate pair"),
    (b'{"n": %s}' % (b"9" * 5000), "the body is not JSON: "),
    (b'{"model": "small", "prompt": "C", "temperature": 1e999}', TEMPERATURE),
    (b'{"prompt": "a"}', "model is missing: it names the model"),
]


@pytest.mark.parametrize("sent, words", BODIES, ids=lambda each: str(each)[:30])
def test_what_is_no_json_is_refused(server, sent, words):
    status, answer = server.ask(sent)
    assert status == 400 and answer["error"]["message"].startswith(words)


def test_both_halves_of_a_surrogate_pair_are_a_character(server):
    status, answer = server.ask(rb'{"model": "small", "prompt": "\ud83d\ude00"}')
    assert status == 400 and answer["error"]["message"].endswith("and not '😀'")


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": None, "stop": None, "seed": None, "n": None, "stream": None},
        {"echo": False, "logprobs": None, "best_of": 1, "user": "me", "logit_bias": {}},
        {"frequency_penalty": 0, "presence_penalty": 0.0, "suffix": None},
        {"temperature": 9e-6},
        {"temperature": 0, "top_p": 1e-9, "seed": -(2**62)},
        {"seed": 2**62, "stop": ["w", "x" * 1000, "y", "z"]},
        {"n": MOST},
        {"prompt": ["Cq7b>"] * MOST},
        {"stream_options": {}},
    ],
    ids=str,
)
def test_what_is_at_a_limit_is_taken(server, fields):
    status, answer = server.ask(body(temperature=0) | fields)
    assert status == 200 and answer["choices"][0]["text"] == "q7b"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
NAMES = ["prompt", "max_tokens", "temperature", "top_p", "n", "seed", "stop", "stream"]
NAMES += ["stream_options", "model", "logit_bias", "echo", "logprobs"]


@settings(max_examples=60)
@given(
    changes=st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), json_values),
    is_whole=st.booleans(),
)
def test_no_json_is_the_servers_fault(server, changes, is_whole):
    sent = json.dumps(body(max_tokens=3) | changes if is_whole else changes).encode()
    answer = server.answer_to("POST", "/v1/completions", sent)
    assert answer.status in (200, 400, 404), (answer.status, answer.text, sent)
    if answer.status != 200:
        assert json.loads(answer.text)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/v1/completions", "/health", "/v1/models", "/nothing"])
@pytest.mark.parametrize(
    "length, status",
    [("9" * 5000, 413), ("0" * 5000, 413), ("200001", 413), ("1e9", 400), ("-1", 400)],
    ids=lambda each: str(each)[:12],
)
def test_a_length_that_cannot_be_is_refused_before_the_body_comes(
    server, path, length, status
):
    found, answer = server.answered(head_of(length, path))
    words = {413: "a request may have 200,000 bytes", 400: "Content-Length must be a whole"}
    assert found == status and words[status] in answer["error"]["message"]


def test_a_name_of_no_text_in_the_path_is_refused(server):
    assert server.answer_to("GET", "/v1/models/%ff").status == 400


# Pages of other sites


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://evil.example:8000",
        "http://localhost.evil.example",
        "http://[",
        "null",
        "",
    ],
)
@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
def test_a_page_of_another_site_may_not_ask(server, origin, kind):
    headers = {"Origin": origin, "Content-Type": kind}
    status, answer = server.ask(body(), **headers)
    assert status == 403 and "(--allowed-origin)" in answer["error"]["message"]


@pytest.mark.parametrize("port", ["", ":8888"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_page_of_the_servers_own_host_may_ask_and_read(server, scheme, port):
    origin = f"{scheme}://127.0.0.1{port}"
    for sent, status in ((body(), 200), (body(n=0), 400)):
        answer = server.answer_to("POST", "/v1/completions", sent, Origin=origin)
        assert answer.status == status
        assert answer.headers["Access-Control-Allow-Origin"] == origin


def test_a_page_that_was_named_may_ask_after_it_has_asked_whether_it_may():
    asked = {"Access-Control-Request-Headers": "x-stainless-os"}
    with RunningServer(origins=frozenset({"https://hub.example"})) as server:
        for origin, status, allowed in (
            ("https://hub.example", 204, "x-stainless-os"),
            ("http://hub.example", 403, None),
        ):
            answer = server.answer_to("OPTIONS", "/v1/completions", Origin=origin, **asked)
            assert answer.status == status
            assert answer.headers["Access-Control-Allow-Headers"] == allowed
        assert server.ask(body(), Origin="https://HUB.example")[0] == 200


def test_a_server_is_asked_by_its_own_names_only(server):
    for host in ("evil.example", "192.168.0.7", "z" * 200):
        status, answer = server.ask(None, "/v1/models", Host=host)
        words = f"this server is not called {host[:100]!r} (--allowed-host)"
        assert (status, answer["error"]["message"]) == (403, words)
    for host in ("LocalHost", "[::1]:1"):
        assert server.ask(None, "/v1/models", Host=host)[0] == 200
    with RunningServer(any_address=True) as anywhere:
        assert anywhere.ask(None, "/v1/models", Host="192.168.0.7:80")[0] == 200
        assert anywhere.ask(None, "/v1/models", Host="[fe80::1]")[0] == 200
        assert anywhere.ask(None, "/v1/models", Host="evil.example")[0] == 403
        status, _ = anywhere.ask(body(), Host="192.168.0.7", Origin="http://6.6.6.6")
        assert status == 403


# What OpenAI's own client makes of it


def test_openais_client_gets_the_kind_of_each_error(server):
    client = server.client()
    with pytest.raises(openai.BadRequestError, match="8 at most; ask for fewer") as caught:
        client.completions.create(model=MODEL, prompt="Ca>", n=9)
    assert caught.value.param == "n"
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="x" * 300, prompt="Ca>")
    assert missing.value.code == "model_not_found" and "x" * 201 not in str(missing.value)


def test_openais_client_asks_again_when_there_is_no_room_and_gets_its_answer(server):
    """The others' answers hold all places at first: their second step waits."""
    patient, hasty = server.client(max_retries=20), server.client()
    gate, steps = threading.Event(), itertools.count()
    server.engine.history = lambda engine, scheduled: next(steps) < 1 or gate.wait(60)
    try:
        with hasty.completions.create(
            model=MODEL, prompt="K...", max_tokens=30, n=MOST, seed=1, stream=True
        ) as stream:
            next(iter(stream))
            with pytest.raises(openai.RateLimitError, match="8 answers are waiting") as caught:
                hasty.completions.create(model=MODEL, prompt="Ca>")
            assert caught.value.code == "queue_full"
            assert caught.value.response.headers["Retry-After"] == "1"
            threading.Timer(0.1, gate.set).start()
            answer = patient.completions.create(model=MODEL, prompt="Ca>", temperature=0)
        assert answer.choices[0].text == "a"
    finally:
        server.engine.history = None
        gate.set()
