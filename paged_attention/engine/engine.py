"""The engine: requests in, schedule, run, postprocess, tokens out."""

from collections.abc import Hashable, Iterator

import numpy as np
from torch import Tensor
from tqdm import tqdm

from paged_attention.block_manager import PythonBlockManager
from paged_attention.engine.attention import paged_attention_forward
from paged_attention.engine.paths import NEEDS, PATHS
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
from paged_attention.kv_cache import PagedAttentionManager
from paged_attention.validate import check_positive


class Engine:
    """Serves many requests from one model over one pool of blocks.

    path: a name in PATHS, or a path of one's own. history: called with the engine and the step's requests after each step,
    before any of them ends. forward: what plugs attention into the model. num_kv_heads: of this engine's part of the cache;
    None takes all of the model's. Raises ValueError for sizes below 1 and for an unknown path, RuntimeError for a path that
    this machine cannot take.
    """

    sample = staticmethod(sample)

    def __init__(self, model, num_blocks: int = 256, block_size: int = 16, token_budget: int = 256, max_num_seqs: int = 64,
                 path="batched", prefix_sharing: bool = True, block_manager=PythonBlockManager, history=None,
                 forward=paged_attention_forward, num_kv_heads: int | None = None):
        check_positive(num_blocks=num_blocks, block_size=block_size, token_budget=token_budget, max_num_seqs=max_num_seqs)
        if isinstance(path, str) and path not in PATHS:
            raise ValueError(f"path must be one of {', '.join(PATHS)}, not {path!r}")
        if isinstance(path, str) and path in NEEDS and (needs := NEEDS[path]()):
            raise RuntimeError(f"path {path!r} needs {needs}")
        config = model.config
        max_blocks_per_seq = min(num_blocks, -(-config.max_position_embeddings // block_size))
        self.manager = PagedAttentionManager(
            num_blocks, block_size, num_kv_heads or config.num_key_value_heads, config.head_dim, max_num_seqs,
            max_blocks_per_seq, config.num_hidden_layers, model.dtype, model.device, block_manager)
        self.prefix_cache = PrefixCache(self.manager, prefix_sharing)
        self.scheduler = Scheduler(self.manager, self.prefix_cache, token_budget, max_num_seqs)
        self.runner = ModelRunner(model, self.manager, PATHS[path] if isinstance(path, str) else path, forward)
        self.vocab_size, self.history = config.vocab_size, history
        # Each is None, a token or several.
        ends = [config.eos_token_id, getattr(model, "generation_config", config).eos_token_id]
        self.end_tokens = frozenset(np.hstack(ends).tolist()) - {None}
        self.most_tokens = {"the model's context": config.max_position_embeddings, "the pool": num_blocks * block_size}
        self.requests: dict[Hashable, Request] = {}  # those that wait or run

    def add(self, id: Hashable, prompt: list[int], params: SamplingParams = SamplingParams()) -> Request:
        """Puts a request into the queue. Raises RequestError where it can never be served; nothing has changed then."""
        request = Request(id, prompt, params)
        self._check(request)
        self.requests[id] = request
        self.scheduler.waiting.append(request)
        return request

    def cancel(self, id: Hashable) -> Request:
        """Ends a request now; what it has generated stays in it. Raises UnknownRequestError."""
        if id not in self.requests:
            raise UnknownRequestError(f"no request {id!r} is waiting or running")
        return self._end(self.requests[id], "cancelled")

    def run(self) -> None:
        """Steps until every request has ended."""
        while self.scheduler.has_work():
            self.step()

    def step(self) -> list[tuple[Request, int]]:
        """One step over all requests. Returns those that have a new token, with it.

        Raises what the model or the sampling raises; then the step's requests wait again, and nothing of them is lost.
        """
        scheduled = self.scheduler.schedule()
        if not scheduled:
            if self.scheduler.has_work():
                raise RuntimeError("schedule() chose nobody, though there are requests; this would go on for ever")
            return []
        try:
            logits = self.runner.run(scheduled)
            for request, count in scheduled:
                self.prefix_cache.insert(request, request.num_computed + count)
            if self.history is not None:  # an empty list is false
                self.history(self, scheduled)
            return self.postprocess(scheduled, logits)
        except BaseException:
            self._take_back(scheduled)
            raise

    def postprocess(self, scheduled: list[tuple[Request, int]], logits: Tensor) -> list[tuple[Request, int]]:
        """Counts what was computed, and gives a next token to each request whose tokens are all computed.

        logits: (len(scheduled), vocab_size). A request ends with the model's end token, unless it ignores that, or with
        its last allowed token; that token belongs to its output. Returns (request, token) for those that got one.
        """
        # BEGIN SOLUTION 8.8
        new = []
        for (request, num_tokens), row in zip(scheduled, logits, strict=True):
            request.num_computed += num_tokens
            if request.num_uncomputed:
                continue  # a chunk in the middle of a prompt
            token = self.sample(row, request.params, request.generator)
            request.tokens.append(token)
            new.append((request, token))
            if token in self.end_tokens and not request.params.ignore_end:
                self._end(request, "end")
            elif len(request.output) == request.params.max_new_tokens:
                self._end(request, "length")
        return new
        # END SOLUTION

    def stream(self, request: Request) -> Iterator[int]:
        """The request's tokens as they come. It steps the whole engine: the others go on as well.

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

    def generate(self, prompts: list[list[int]], params: SamplingParams | list[SamplingParams] = SamplingParams(),
                 progress: bool = False) -> list[Request | RequestError]:
        """Serves all prompts, and gives each one's finished request, or the error for which it was refused."""
        each = params if isinstance(params, list) else [params] * len(prompts)
        results = []
        for prompt, own in list(zip(prompts, each, strict=True)):  # before any is added, lest some be left behind
            try:
                results.append(self.add(object(), prompt, own))
            except (RequestError, TypeError) as error:
                results.append(error)
        with tqdm(total=len(prompts), disable=not progress, unit="request") as bar:
            while self.scheduler.has_work():
                self.step()
                bar.update(sum(not isinstance(result, Request) or result.reason is not None for result in results) - bar.n)
        return results

    def _check(self, request: Request) -> None:
        id, prompt, most = request.id, request.prompt, request.params.max_new_tokens
        if id in self.requests:
            raise DuplicateRequestError(f"request {id!r} is here already; an id is free again when its request has ended")
        if not prompt:
            raise EmptyPromptError(f"request {id!r} has an empty prompt; it needs one token or more")
        for token in prompt:
            if not 0 <= token < self.vocab_size:
                raise UnknownTokenError(f"request {id!r} has the token {token}; the model's tokens are 0 to "
                                        f"{self.vocab_size - 1}")
        for place, room in self.most_tokens.items():
            if len(prompt) + most > room:
                raise PromptTooLongError(f"request {id!r} may grow to {len(prompt)} + {most} tokens, and {place} has room "
                                         f"for {room}")

    def _end(self, request: Request, reason: str) -> Request:
        self.scheduler.remove(request)
        del self.requests[request.id]
        request.reason = reason
        return request

    def _take_back(self, scheduled: list[tuple[Request, int]]) -> None:
        """After a step that failed: those of its requests that have not ended start again from what the cache has."""
        for request, _ in reversed(scheduled):
            if request in self.scheduler.running:
                self.scheduler.preempt(request)
