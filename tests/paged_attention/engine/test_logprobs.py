"""How likely the model found each token: as transformers' logits say, by whichever engine."""

import types

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from examples import few
from fast_requests import ALL_PARTS, DEVICES, all_sizes, assert_as_alone, model, params_of
from fast_requests import prompts as all_prompts
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.fast.graph import StartCounter
from paged_attention.engine.logprobs import PIECE, LogprobsWatch, prompt_logprobs, rank
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.tasks import encode

INF, NAN = float("inf"), float("nan")

pytestmark = pytest.mark.usefixtures("one_thread")


@torch.inference_mode()
def expected(tokens: list[int], device: str = "cpu") -> torch.Tensor:
    """By transformers: of each token but the first, those of the whole vocabulary."""
    own = model(device)
    logits = own(input_ids=torch.tensor([tokens], device=device)).logits[0, :-1]
    return logits.float().log_softmax(-1).cpu()


def assert_right(found, tokens: list[int], rows: torch.Tensor, num_top: int) -> None:
    """found: of these tokens. rows: what transformers has for each of them."""
    assert len(found) == len(tokens) == len(rows)
    for each, token, row in zip(found, tokens, rows):
        assert each.logprob == pytest.approx(float(row[token]), abs=1e-3)
        best = row.topk(num_top).values.tolist()
        assert [logprob for _, logprob in each.likeliest] == pytest.approx(best, abs=1e-3)
        for other, logprob in each.likeliest:
            assert logprob == pytest.approx(float(row[other]), abs=1e-3)


def serve(engine, prompts, num_tops, params):
    """Serves all prompts, and checks what those who ask are told."""
    watch = LogprobsWatch(engine)
    requests = []
    for number, (prompt, num_top) in enumerate(zip(prompts, num_tops)):
        requests.append(engine.add(number, prompt, params(number)))
        if num_top is not None:
            watch.ask(requests[-1], num_top)
    engine.run()
    device = engine.manager.kv_cache.device.type
    for request, num_top in zip(requests, num_tops):
        found = watch.take(request, len(request.output))
        if num_top is None:
            assert found == []
            continue
        rows = expected(request.tokens, device)[len(request.prompt) - 1 :]
        assert_right(found, request.output, rows, num_top)
    return requests


some_tops = st.lists(st.none() | st.integers(0, 20), min_size=6, max_size=6)


@few(4, drawn_anew=8)
@given(sizes=all_sizes, num_tops=some_tops)
def test_an_engine_with_too_little_room_tells_of_the_models_own(sizes, num_tops):
    """Whatever the temperature is. Prompts come in chunks, and requests are preempted."""
    serve(Engine(model(), **sizes), all_prompts(), num_tops, params_of)


@pytest.mark.parametrize("device", DEVICES)
@few(5, drawn_anew=12)
@given(parts=st.sampled_from(ALL_PARTS), sizes=all_sizes, num_tops=some_tops)
def test_a_fast_engine_too_and_its_tokens_are_the_same(device, parts, sizes, num_tops):
    engine = fast_engine(model(device), parts, **sizes)
    assert_as_alone(serve(engine, all_prompts(), num_tops, params_of))


def test_an_engine_of_a_learners_parts_too():
    engine = Engine(model(), num_blocks=64)
    ours, calls = Engine.postprocess, []
    engine.sample = lambda row, params, position: calls.append(position) or 7
    engine.postprocess = types.MethodType(lambda self, *step: ours(self, *step), engine)
    params = SamplingParams(max_new_tokens=3)
    (request,) = serve(engine, [encode("Cq7b>")], [2], lambda number: params)
    assert request.output == [7, 7, 7] and calls == [5, 6, 7]


@pytest.mark.parametrize("make", [Engine, fast_engine])
def test_several_answers_to_a_prompt_have_each_their_own(make):
    engine = make(model(), num_blocks=64)
    watch = LogprobsWatch(engine)
    params = [
        SamplingParams(6, temperature=4.0, seed=seed, ignore_end=True) for seed in (1, 2)
    ]
    requests = engine.add_answers(["a", "b"], encode("Cq7b>"), params)
    for request in requests:
        watch.ask(request, 1)
    engine.run()
    assert requests[0].output != requests[1].output
    for request in requests:
        rows = expected(request.tokens)[len(request.prompt) - 1 :]
        assert_right(watch.take(request, 6), request.output, rows, 1)


@pytest.mark.parametrize("make", [Engine, fast_engine])
def test_where_nobody_asks_nothing_is_computed(make):
    def count(watched: bool) -> int:
        engine = make(model(), num_blocks=64, **parts)
        if watched:
            LogprobsWatch(engine)
        with StartCounter() as counter:
            engine.generate(all_prompts(), SamplingParams(max_new_tokens=4))
        return counter.count

    parts = {"parts": FastParts(graphs=False)} if make is fast_engine else {}
    assert count(watched=True) == count(watched=False) > 0


@pytest.mark.parametrize("length", [1, 2, PIECE, PIECE + 1, PIECE + 2, 2 * PIECE + 5])
def test_a_prompt_is_told_of_by_pieces(length):
    prompt = (encode("a1b2c3d4e5f6?e>") * 20)[:length]
    pieces = list(prompt_logprobs(model(), prompt, 3))
    assert all(len(piece) <= PIECE for piece in pieces)
    found = [each for piece in pieces for each in piece]
    rows = expected(prompt) if length > 1 else torch.empty(0, 1)
    assert_right(found, prompt[1:], rows, 3)


def test_numbers_that_json_does_not_have_are_told_as_openai_does():
    logits = torch.tensor([[0.0, -INF, -INF], [NAN, 0.0, 0.0]])
    tokens, logprobs = rank(logits, torch.tensor([1, -1]), 5)
    assert tokens.shape == (2, 4)  # the vocabulary has only three
    assert (tokens[0, 0], logprobs[0, 0], logprobs[0, 1]) == (1, -9999.0, 0.0)


def test_they_are_computed_in_float32_whatever_the_models_numbers_are():
    logits = torch.tensor([[8.0, 7.0, -3.0]], dtype=torch.bfloat16)
    before = logits.clone()
    _, logprobs = rank(logits, torch.tensor([1]), 3)
    right = logits.double().log_softmax(-1)[0]
    assert logprobs[0].tolist() == pytest.approx(right[[1, 0, 1, 2]].tolist(), abs=1e-6)
    assert torch.equal(logits, before)
