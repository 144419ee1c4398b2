"""The engine: requests in, schedule, run, postprocess, tokens out."""

from collections import deque
from collections.abc import Hashable, Iterator

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from paged_attention.engine.attention import paged_attention_forward
from paged_attention.engine.forks import lead_again, lead_answers
from paged_attention.engine.fp8 import with_kv_dtype
from paged_attention.engine.paths import choose_path, find_path
from paged_attention.engine.prefix_cache import PrefixCache
from paged_attention.engine.request import (
    DuplicateRequestError,
    EmptyPromptError,
    PromptTooLongError,
    Request,
    RequestError,
    SamplingParams,
    UnknownRequestError,
    UnknownTokenError,
)
from paged_attention.engine.runner import ModelRunner
from paged_attention.engine.sampler import sample
from paged_attention.engine.scheduler import Scheduler
from paged_attention.engine.supported_models import check_config, head_size_of
from paged_attention.ladder.decode import Shape
from paged_attention.pool.block_manager import PythonBlockManager
from paged_attention.pool.kv_cache import PagedAttentionManager
from paged_attention.validate import check_positive


class Engine:
    """Serves many requests from one model over one pool of blocks.

    path: a name in PATHS, or your own path. None chooses by the device and the model's shapes.
    history: called with the engine and a step's requests, before any of them ends.
    forward: the function that a layer of the model calls for attention.
    num_kv_heads: the KV heads in this engine's part of the cache; None: all of the model's.
    kv_dtype: the numbers of the cache, torch.float8_e4m3fn or None for the model's own. With 8
        bits instead of 16, the same memory has room for twice the blocks.
    Raises ValueError for sizes below 1, for an unknown path and for another kv_dtype.
    Raises RuntimeError for a path that this machine cannot take.
    Raises UnsupportedModelError for a model that is not served.
    """

    scheduler_class = Scheduler
    sample = staticmethod(sample)

    def __init__(
        self,
        model,
        num_blocks: int = 256,
        block_size: int = 16,
        token_budget: int = 256,
        max_num_seqs: int = 64,
        path=None,
        prefix_sharing: bool = True,
        block_manager=PythonBlockManager,
        history=None,
        forward=paged_attention_forward,
        num_kv_heads: int | None = None,
        kv_dtype: torch.dtype | None = None,
    ):
        check_positive(block_size=block_size, token_budget=token_budget)
        config = model.config
        check_config(config)
        head_size = head_size_of(config)
        if path is None:
            group = config.num_attention_heads // config.num_key_value_heads
            path = choose_path(Shape(model.dtype, head_size, group, block_size), model.device)
        plan = find_path(path) if isinstance(path, str) else path
        numbers, plan, forward = with_kv_dtype(kv_dtype, model, block_size, plan, forward)
        pool = num_blocks, block_size, num_kv_heads or config.num_key_value_heads, head_size
        rows = max_num_seqs, min(num_blocks, -(-config.max_position_embeddings // block_size))
        layers = config.num_hidden_layers, numbers, model.device
        self.manager = PagedAttentionManager(*pool, *rows, *layers, block_manager)
        self.prefix_cache = PrefixCache(self.manager, prefix_sharing)
        self.scheduler = self.scheduler_class(
            self.manager, self.prefix_cache, token_budget, max_num_seqs
        )
        self.runner = ModelRunner(model, self.manager, plan, forward)
        self.vocab_size, self.history = config.vocab_size, history
        # Each is None, a token or several.
        ends = [config.eos_token_id, getattr(model, "generation_config", config).eos_token_id]
        self.end_tokens = frozenset(np.hstack(ends).tolist()) - {None}
        self.most_tokens = {"the model's context": config.max_position_embeddings}
        self.most_tokens["the pool"] = num_blocks * block_size
        self.requests: dict[Hashable, Request] = {}  # waiting or running

    def add(
        self, id: Hashable, prompt: list[int], params: SamplingParams = SamplingParams()
    ) -> Request:
        """Puts a request into the queue.

        Raises RequestError if it can never be served. Then nothing has changed.
        """
        request = Request(id, prompt, params)
        self._check(request)
        self.requests[id] = request
        self.scheduler.waiting.append(request)
        return request

    def add_answers(
        self, ids: list[Hashable], prompt: list[int], params: list[SamplingParams]
    ) -> list[Request]:
        """Puts several answers to one prompt into the queue.

        The prompt is computed once, and its blocks are shared. An answer gets its own copy of
        a block when it writes into it.

        ids, params: each answer's own.
        Raises RequestError if one of them can never be served. Then nothing has changed.
        """
        requests = [Request(id, prompt, own) for id, own in zip(ids, params, strict=True)]
        for request in requests:
            self._check(request)
        if len(new := {request.id: request for request in requests}) < len(requests):
            raise DuplicateRequestError(f"each answer needs its own id, and they have {ids}")
        self.requests |= new
        self.scheduler.waiting += lead_answers(requests)
        return requests

    def cancel(self, id: Hashable) -> Request:
        """Ends a request now. It keeps the tokens that it has generated.

        If Ctrl-C stops this, it is as in `step`, and the request may still be waiting.

        Raises UnknownRequestError if no request with this id is waiting or running.
        """
        if id not in self.requests:
            raise UnknownRequestError(f"no request {id!r} is waiting or running")
        try:
            self.scheduler.withdraw(self.requests[id])
            return self._end(self.requests[id], "cancelled")
        except BaseException:
            self._take_back([])
            raise

    def run(self) -> None:
        """Steps until every request has ended."""
        while self.scheduler.has_work():
            self.step()

    def step(self) -> list[tuple[Request, int]]:
        """Runs one step over all requests.

        A request with logits that are not finite ends without a token, and the others go on. A
        step happens completely or not at all: if an error is raised in it, or Ctrl-C stops it,
        all requests wait again, with the tokens that they had before.

        Returns (request, token) for each request that has a new token.
        """
        before = []
        try:
            scheduled = self.scheduler.schedule()
            if not scheduled:
                if self.scheduler.has_work():
                    raise self._nothing_scheduled()
                return []
            scheduled = [*scheduled, *self.scheduler.fork(scheduled)]
            before = [(request, len(request.tokens)) for request, _ in scheduled]
            logits = self.runner.run(scheduled)
            if self.history is not None:  # an empty list is false
                self.history(self, scheduled)
            return self._complete(scheduled, logits)
        except BaseException:
            self._take_back(before)
            raise

    def _complete(
        self, scheduled: list[tuple[Request, int]], logits: Tensor
    ) -> list[tuple[Request, int]]:
        """Completes a step, after the model has run.

        A request ends without a token if its next one would come from a row that is not
        finite. In the middle of a prompt a row does not count: a token may overflow only in
        the last layer, and then nothing comes of it.

        logits: (len(scheduled), vocab_size).
        Returns (request, token) for each request that got a token.
        """
        finite, left = self.are_finite(logits), []
        for index, (request, num_tokens) in enumerate(scheduled):
            if finite[index]:  # then the keys and values that it has seen are sound too
                self.prefix_cache.insert(request, request.num_computed + num_tokens)
            elif num_tokens == request.num_uncomputed:  # its next token would come from here
                # the fault may lie in what it has found there
                self.prefix_cache.forget(request)
                self._end(request, "not finite")
                continue
            left.append(index)
        rows = logits if len(left) == len(logits) else logits[left]
        return self.postprocess([scheduled[index] for index in left], rows)

    @staticmethod
    def are_finite(logits: Tensor) -> list[bool]:
        """False for a row with a NaN or inf, or with nothing but -inf."""
        return logits.amax(-1).isfinite().tolist()

    @staticmethod
    def _nothing_scheduled() -> RuntimeError:
        return RuntimeError(
            "schedule() chose no request, though there are some; this would go on for ever"
        )

    def postprocess(
        self, scheduled: list[tuple[Request, int]], logits: Tensor
    ) -> list[tuple[Request, int]]:
        """Completes a step, after the model has run.

        Each request has computed num_tokens more tokens, and counts them in its num_computed.
        If all of its tokens are computed then, it gets a next token. A request ends with the
        model's end token, unless it ignores that one. It also ends with the last token that it
        may have. The token that ends it belongs to its output.

        scheduled: (request, num_tokens) for each request of the step.
        logits: (len(scheduled), vocab_size).
        Returns (request, token) for each request that got a token.
        """
        # BEGIN SOLUTION 8.8
        new = []
        for (request, num_tokens), row in zip(scheduled, logits, strict=True):
            request.num_computed += num_tokens
            if request.num_uncomputed:
                continue  # a chunk in the middle of a prompt
            token = self.sample(row, request.params, len(request.tokens))
            request.tokens.append(token)
            new.append((request, token))
            if token in self.end_tokens and not request.params.ignore_end:
                self._end(request, "end")
            elif len(request.output) == request.params.max_new_tokens:
                self._end(request, "length")
        return new
        # END SOLUTION

    def stream(self, request: Request) -> Iterator[int]:
        """Yields the request's tokens as they come.

        It steps the whole engine, so the other requests go on as well.

        Raises UnknownRequestError for a request of another engine.
        """
        if request.reason is None and self.requests.get(request.id) is not request:
            raise UnknownRequestError(f"request {request.id!r} is not one of this engine's")
        num_seen = 0
        while True:
            while num_seen < len(request.output):
                yield request.output[num_seen]
                num_seen += 1
            if request.reason is not None:
                return
            self.step()

    def generate(
        self,
        prompts: list[list[int]],
        params: SamplingParams | list[SamplingParams] = SamplingParams(),
        progress: bool = False,
    ) -> list[Request | RequestError | TypeError]:
        """Serves all prompts.

        If a step raises an error, or Ctrl-C stops it, the requests that have not ended are
        cancelled. The caller has no other way to reach them.

        Returns each prompt's finished request, or the error for which it was refused.
        """
        each = params if isinstance(params, list) else [params] * len(prompts)
        those = [(object(), prompt, own) for prompt, own in zip(prompts, each, strict=True)]
        results: list[Request | RequestError | TypeError] = []
        try:
            self._generate(those, results, progress)
        except BaseException:
            for id, _, _ in those:
                if id in self.requests:
                    self.cancel(id)
            raise
        return results

    def _generate(self, those: list[tuple], results: list, progress: bool) -> None:
        """What `generate` does until it is stopped. In CPython 3.12 and later, Ctrl-C in a
        comprehension's condition would miss an `except` of the same function.
        """
        for id, prompt, own in those:
            try:
                results.append(self.add(id, prompt, own))
            except (RequestError, TypeError) as error:
                results.append(error)
        num_refused = sum(isinstance(result, Exception) for result in results)
        ids = {id for id, _, _ in those}
        with tqdm(
            total=len(those), initial=num_refused, disable=not progress, unit="request"
        ) as bar:
            while self.scheduler.has_work():
                ended = [request for request, _ in self.step() if request.reason]
                bar.update(sum(request.id in ids for request in ended))
            bar.update(len(those) - bar.n)  # those that ended without a token

    def _check(self, request: Request) -> None:
        id = request.id
        prompt = request.prompt
        most = request.params.max_new_tokens
        if id in self.requests:
            raise DuplicateRequestError(
                f"request {id!r} is here already; "
                "an id is free again when its request has ended"
            )
        if not prompt:
            raise EmptyPromptError(
                f"request {id!r} has an empty prompt; it needs one token or more"
            )
        for token in prompt:
            if not 0 <= token < self.vocab_size:
                raise UnknownTokenError(
                    f"request {id!r} has the token {token}; "
                    f"the model's tokens are 0 to {self.vocab_size - 1}"
                )
        for place, room in self.most_tokens.items():
            if len(prompt) + most > room:
                raise PromptTooLongError(
                    f"request {id!r} may grow to {len(prompt)} + {most} tokens, "
                    f"and {place} has room for {room}"
                )

    def _end(self, request: Request, reason: str) -> Request:
        self.scheduler.remove(request)
        request.reason = reason
        del self.requests[request.id]
        return request

    def _take_back(self, before: list[tuple[Request, int]]) -> None:
        """Takes back a step that failed, as if it had never begun.

        Ctrl-C once more does not leave it half done.

        before: the step's requests, each with its number of tokens.
        """
        try:
            self._start_over(before)
        except KeyboardInterrupt:
            self._take_back(before)

    def _start_over(self, before: list[tuple[Request, int]]) -> None:
        """Lets all requests wait, those of `before` with as many tokens as it says.

        The pool starts empty. The step may have ended in the middle of taking a block, so the
        pool's counts mean nothing.
        """
        for request, num_tokens in before:
            del request.tokens[num_tokens:]
        # The earliest first, as always.
        self.requests = {request.id: request for request, _ in before} | self.requests
        for request in self.requests.values():
            request.reason = None
            request.num_preempted += request.num_computed > 0
            request.num_computed = request.num_inserted = 0
        self.scheduler.running = []
        self.scheduler.waiting = deque(lead_again(self.requests.values()))
        manager = self.manager
        manager.sequences.clear()
        manager.table.free_rows.clear()
        for row in reversed(range(len(manager.block_table))):
            manager.table.clear(row)
        block_manager = self.prefix_cache.watched.block_manager
        self.prefix_cache.begin(type(block_manager)(manager.kv_cache.shape[2]))
