"""How likely the model found its tokens, for those who ask.

The numbers are the model's own: log_softmax of its logits, in float32, before temperature,
top_k and top_p change anything. vLLM calls these raw_logprobs.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import DynamicCache

from paged_attention.engine.engine import Engine
from paged_attention.engine.fast.runner import FastRunner
from paged_attention.engine.request import Request
from paged_attention.transfer import Arriving, send

LEAST = -9999.0  # instead of minus infinity, which JSON does not have; OpenAI's number
PIECE = 128  # tokens of a prompt that are computed at once


@dataclass(frozen=True)
class TokenLogprobs:
    """How likely a token was at its place.

    logprob: the natural logarithm of its probability, LEAST or more.
    likeliest: the likeliest tokens at this place, each with its logprob, in falling order.
    """

    logprob: float
    likeliest: list[tuple[int, float]]


def rank(logits: Tensor, tokens: Tensor, num_top: int) -> Tensor:
    """Says how likely tokens are, and which are the likeliest.

    logits: (num_rows, vocab_size), of any float dtype, not changed.
    tokens: int64 (num_rows,), one for each row. What is told of a negative one is of no use.
    num_top: how many of the likeliest; a vocabulary may have fewer.
    Returns float64 (2, num_rows, 1 + num_top): tokens, and their logprobs. The row's own token
        comes first, then the likeliest ones.
    """
    logprobs = logits.float().log_softmax(-1)
    likeliest = logprobs.topk(min(num_top, logits.shape[1])).indices
    found = torch.cat([tokens[:, None].clamp(min=0), likeliest], 1)
    numbers = logprobs.gather(1, found).clamp(min=LEAST)
    return torch.stack([found.double(), numbers.double()])


def _read(ranked: Tensor, row: int, num_top: int) -> TokenLogprobs:
    """Reads a row of what rank() has returned."""
    tokens, logprobs = ranked[:, row, : 1 + num_top].tolist()
    return TokenLogprobs(logprobs[0], list(zip(map(int, tokens[1:]), logprobs[1:])))


@torch.inference_mode()
def prompt_logprobs(model, prompt: list[int], num_top: int) -> Iterator[list[TokenLogprobs]]:
    """Computes how likely each token of a prompt was, but the first: nothing is before it.

    The model runs with its own attention and a cache of its own. The engine has no logits
    inside a prompt, and does not even compute those blocks that it finds in its prefix cache.

    Yields the next tokens' logprobs, at most PIECE at a time.
    """
    named = "cache" in inspect.signature(model.forward).parameters  # in newer transformers
    cache = {"cache" if named else "past_key_values": DynamicCache(config=model.config)}
    for begin in range(0, len(prompt) - 1, PIECE):
        tokens = torch.tensor(prompt[begin : begin + PIECE + 1], device=model.device)
        logits = model(input_ids=tokens[None, :-1], **cache).logits[0]
        ranked = rank(logits, tokens[1:], num_top).cpu()
        yield [_read(ranked, row, num_top) for row in range(len(logits))]


@dataclass
class _Asked:
    """What is known of a request. kept: by a token's position, where its numbers will be."""

    num_top: int
    kept: dict[int, tuple[Arriving, int]] = field(default_factory=dict)


class LogprobsWatch:
    """Keeps the logprobs of an engine's new tokens, for the requests that ask.

    For the others nothing is computed. The engine may have a learner's parts, or a device that
    chooses the tokens.
    """

    def __init__(self, engine: Engine):
        self._asked: WeakKeyDictionary[Request, _Asked] = WeakKeyDictionary()
        if isinstance(engine.runner, FastRunner) and engine.runner.parts.sampling:
            engine.runner.on_tokens = self._on_tokens
        else:
            self._watch(engine)

    def ask(self, request: Request, num_top: int) -> None:
        """To be called before the request's first step."""
        self._asked[request] = _Asked(num_top)

    def take(self, request: Request, num_tokens: int) -> list[TokenLogprobs]:
        """Hands out what is known of the last tokens of a request. Each can be had once.

        Returns [] for a request that has not asked.
        """
        asked = self._asked.get(request)
        if asked is None:
            return []
        found = []
        for position in range(len(request.tokens) - num_tokens, len(request.tokens)):
            arriving, row = asked.kept.pop(position)
            found.append(_read(arriving.wait(), row, asked.num_top))
        return found

    def _watch(self, engine: Engine) -> None:
        """Sees the logits of each step that the engine completes, and the tokens chosen."""
        postprocess = engine.postprocess

        def watched(scheduled, logits):
            new = postprocess(scheduled, logits)
            if self._asked:
                chosen = dict(new)
                places = [
                    (row, request, len(request.tokens) - 1)
                    for row, (request, _) in enumerate(scheduled)
                    if request in chosen
                ]
                tokens = [chosen.get(request, -1) for request, _ in scheduled]
                self._keep(places, logits, send(tokens, torch.int64, logits.device))
            return new

        engine.postprocess = watched  # type: ignore[method-assign]

    def _on_tokens(self, scheduled, logits: Tensor, tokens: Tensor) -> None:
        """Sees a step of a fast runner. A token may still be dropped, and come once more."""
        if self._asked:
            places = [
                (row, request, len(request.tokens))
                for row, (request, num_tokens) in enumerate(scheduled)
                if num_tokens == request.num_uncomputed
            ]
            self._keep(places, logits, tokens)

    def _keep(self, places: list[tuple[int, Request, int]], logits, tokens: Tensor) -> None:
        """Sends the numbers of a step's new tokens to the host, and does not wait for them.

        places: for each new token, its row, its request and its position there.
        logits, tokens: of all rows.
        """
        places = [place for place in places if place[1] in self._asked]
        if not places:
            return
        rows = send([row for row, _, _ in places], torch.int64, logits.device)
        most = max(self._asked[request].num_top for _, request, _ in places)
        arriving = Arriving(rank(logits[rows], tokens[rows], most))
        for place, (_, request, position) in enumerate(places):
            self._asked[request].kept[position] = arriving, place
