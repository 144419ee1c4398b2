"""The engine asked over HTTP: OpenAI's own client, curl, and clients that mean no good."""

import contextlib
import itertools
import json
import math
import resource
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import psutil
import pytest

from paged_attention.engine.engine import Engine
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.serve.server import Limits
from paged_attention.tiny_qwen3.tasks import decode, encode
from serving import MODEL, RunningServer, body, head_of, wait_until

LONG = {"prompt": "K..........", "max_tokens": 300, "temperature": 1, "seed": 1}


@pytest.fixture(scope="module")
def server():
    with RunningServer() as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return server.client()


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    yield
    if "server" in request.fixturenames:
        wait_until(request.getfixturevalue("server").is_free)


def test_openais_client_gets_a_completion(client):
    answer = client.completions.create(model=MODEL, prompt="Cq7b>", temperature=0)
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason, choice.index) == ("q7b", "stop", 0)
    assert (answer.object, answer.model) == ("text_completion", MODEL)
    assert answer.id.startswith("cmpl-")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 4)
    assert answer.usage.total_tokens == 9


def test_openais_client_streams(client):
    whole = client.completions.create(model=MODEL, **LONG)
    with client.completions.create(
        model=MODEL, **LONG, stream=True, stream_options={"include_usage": True}
    ) as stream:
        *chunks, last = stream
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons[-1] == whole.choices[0].finish_reason and not any(reasons[:-1])
    assert len({chunk.id for chunk in chunks}) == 1
    assert last.choices == [] and last.usage == whole.usage


def test_a_stream_begins_before_its_answer_ends(client, in_step):
    has_begun, waited = threading.Event(), []
    in_step(lambda engine: waited.append(has_begun.wait(60)), number=5)
    for _ in client.completions.create(model=MODEL, **LONG, stream=True):
        has_begun.set()
    assert waited == [True]


def test_what_came_while_the_loop_was_busy_is_one_event(server, client, in_step):
    """And each token counts."""
    whole = client.completions.create(model=MODEL, **LONG)
    is_busy = threading.Event()

    def busy():
        is_busy.set()
        wait_until(server.is_free)  # the engine has all tokens

    in_step(lambda engine: is_busy.wait(60), number=5)
    with client.completions.create(
        model=MODEL, **LONG, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = [next(stream)]
        server.in_loop(busy)
        *rest, last = stream
    texts = [chunk.choices[0].text for chunk in [*chunks, *rest]]
    assert "".join(texts) == whole.choices[0].text and last.usage == whole.usage
    assert len(texts) <= 6 < whole.usage.completion_tokens


def test_it_is_what_the_engine_gives_by_itself(server, client):
    engine = Engine(server.engine.runner.model, num_blocks=512)
    params = SamplingParams(max_new_tokens=40, temperature=0.8, top_p=0.9, seed=11)
    (alone,) = engine.generate([encode("Sxbqa>")], params)
    answer = client.completions.create(
        model=MODEL, prompt="Sxbqa>", max_tokens=40, temperature=0.8, top_p=0.9, seed=11
    )
    text = decode([token for token in alone.output if token not in engine.end_tokens])
    assert answer.choices[0].text == text


def test_several_prompts_and_answers_each_with_its_seed(client):
    def ask(**fields):
        answer = client.completions.create(model=MODEL, temperature=1, max_tokens=20, **fields)
        assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
        return [choice.text for choice in answer.choices], answer.usage

    four, usage = ask(prompt=["Cab>", encode("Vab>")], n=2, seed=5)
    apart = [
        ask(prompt=prompt, seed=seed)[0][0] for prompt in ("Cab>", "Vab>") for seed in (5, 6)
    ]
    assert four == apart and usage.prompt_tokens == 8  # each prompt counts once


def test_a_stop_text_ends_one_answer_and_the_others_go_on(server, client):
    answer = client.completions.create(
        model=MODEL, prompt=["Cabc>", "Cdef>"], temperature=0, stop=["x", "bc"]
    )
    found = [(choice.text, choice.finish_reason) for choice in answer.choices]
    assert found == [("a", "stop"), ("def", "stop")]


@pytest.mark.parametrize(
    "stop, texts", [("4m", ["q", "7", "b", ""]), ("4x", ["q", "7", "b", "4m", "x", "y", ""])]
)
def test_what_may_become_a_stop_text_is_held_back(server, client, stop, texts):
    """Each token is a character, and each text comes as soon as it may."""
    with server.paced():
        stream = client.completions.create(
            model=MODEL, prompt="Cq7b4mxy>", temperature=0, stop=stop, stream=True
        )
        assert [chunk.choices[0].text for chunk in stream] == texts
    assert stream.response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert stream.response.headers["Cache-Control"] == "no-cache"


def test_a_stream_has_the_numbers_of_tokens_only_where_they_were_asked_for(client):
    stream = client.completions.create(model=MODEL, prompt="Cab>", temperature=0, stream=True)
    assert all(chunk.choices and "usage" not in chunk.model_fields_set for chunk in stream)


def test_models_and_health(server, client):
    assert [model.id for model in client.models.list()] == [MODEL]
    model = client.models.retrieve(MODEL)
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "this server")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")
    assert server.ask(None, "/health") == (200, {"status": "ok", "requests": 0})


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(server):
    words = ["curl", "--silent", "--no-buffer", f"{server.address}/v1/completions", "--data"]
    shown = subprocess.run([*words, json.dumps(body())], capture_output=True, text=True)
    assert json.loads(shown.stdout)["choices"][0]["text"] == "q7b"
    shown = subprocess.run(
        [*words, json.dumps(body(stream=True))], capture_output=True, text=True
    )
    *events, done = shown.stdout.strip().split("\n\n")
    assert done == "data: [DONE]" and all(event.startswith("data: {") for event in events)


def test_other_paths_and_methods(server):
    assert server.ask(body(), "/v1/embeddings")[0] == 404
    assert server.ask(None, "/v1/completions")[0] == 405


def test_a_client_that_sends_a_byte_now_and_then_is_dropped_and_the_others_go_on():
    with RunningServer(Limits(body_seconds=0.5)) as server:
        with server.connect() as slow:
            slow.sendall(head_of(1000) + b"{")
            assert server.ask(None, "/health")[0] == 200  # it has no body that could be late
            assert slow.recv(10) == b""  # closed, after body_seconds
        assert server.ask(None, "/health")[0] == 200


@contextlib.contextmanager
def stream_that_began(server):
    with server.connect() as connection:
        data = json.dumps({"model": MODEL, "stream": True} | LONG).encode()
        connection.sendall(head_of(len(data)) + data)
        assert connection.recv(12) == b"HTTP/1.1 200"
        yield connection


def test_a_client_that_leaves_cancels_its_request(server):
    with stream_that_began(server):
        pass
    wait_until(server.is_free)


@pytest.fixture
def in_step(server):
    """Has a function called in a step of the server's engine, given the engine."""

    def call(function, number=0):
        steps = itertools.count()

        def history(engine, scheduled):
            if next(steps) == number:
                function(engine)

        server.engine.history = history

    yield call
    server.engine.history = None


def too_hot(engine):
    raise RuntimeError("the card is hot")


def test_a_step_that_fails_ends_its_requests_and_not_the_server(server, in_step):
    in_step(too_hot)
    status, answer = server.ask(body())
    assert status == 500 and "the card is hot" in answer["error"]["message"]
    assert not server.engine.requests and len(server.serving.engine) == 0
    assert server.ask(body())[1]["choices"][0]["text"] == "q7b"


def test_logits_that_are_not_finite_are_an_error_of_that_request(server, in_step):
    in_step(lambda engine: engine.manager.kv_cache.fill_(math.nan))
    status, answer = server.ask(body())
    assert status == 500 and answer["error"]["code"] == "not finite"
    assert server.ask(body())[1]["choices"][0]["text"] == "q7b"


def test_a_stream_that_fails_in_its_middle_says_so(client, in_step):
    in_step(too_hot, number=5)
    with pytest.raises(openai.APIError, match="the card is hot"):
        list(client.completions.create(model=MODEL, **LONG, stream=True))


def test_the_end_of_the_server_ends_its_streams():
    before = threading.enumerate()
    with RunningServer() as server:
        with stream_that_began(server) as connection:
            (thread,) = [
                each
                for each in threading.enumerate()
                if each not in before and each.name == "engine"
            ]
            server.serving.engine.stop()
            shown = b""
            while b"}}" not in shown and (piece := connection.recv(1 << 16)):
                shown += piece
        assert b"[DONE]" in shown or b"server_is_ending" in shown
        assert not thread.is_alive()
        assert server.ask(body())[0] == 503


@pytest.mark.slow
def test_200_clients_at_once_all_get_their_answers():
    prompts = [f"C{a}{b}>" for a in "abcdefghijklmnopqrst" for b in "0123456789"]
    with RunningServer() as server, ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda prompt: server.ask(body(prompt)), prompts))
        for prompt, (status, answer) in zip(prompts, answers, strict=True):
            assert status == 200 and answer["choices"][0]["text"] == prompt[1:-1]
        wait_until(server.is_free)


@pytest.mark.parametrize(
    "wanted, taken", [(4, 3), pytest.param(10_000, 500, marks=pytest.mark.slow)]
)
def test_more_connections_than_it_takes_are_refused_and_the_others_go_on(wanted, taken):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:  # both ends are in this process
        wanted = min(wanted, (hard - 400) // 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * wanted + 400), hard))
    before = psutil.Process().memory_info().rss
    with RunningServer(Limits(connections=taken)) as server, contextlib.ExitStack() as ends:
        open_now = [ends.enter_context(server.connect()) for _ in range(wanted)]
        wait_until(lambda: len(server.server._connections) == taken)
        refused = [each for each in open_now[taken:] if each.recv(13) == b"HTTP/1.1 503 "]
        assert len(refused) == wanted - taken
        assert psutil.Process().memory_info().rss - before < 100 << 20
        open_now[0].close()
        wait_until(lambda: len(server.server._connections) == taken - 1)
        assert server.ask(body())[0] == 200
