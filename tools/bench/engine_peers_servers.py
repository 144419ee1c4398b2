"""The engines that the benchmark of peers compares, each in its own process.

An engine is made once for all traces, and serves a trace when it is told to. Between turns it
waits and does not use the GPU.

vLLM's process imports this too, and there the course's folders must not hide packages. So
nothing of the course is imported here.
"""

from __future__ import annotations  # of a Trace

import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from lessons_content.lesson_10.bench.fast_engine import Trace

PEER_TOKEN_BUDGET = 16_384  # prompt tokens in a step, as nano-vllm chooses itself
MAX_MODEL_LEN = 4096
SPARE_BYTES = 4 << 30  # nano-vllm's memory for a step of prompts, which it takes off its cache
FOREVER = 1e6  # seconds
PATIENCE = 20  # seconds for a server to end by itself

Prompts = Sequence[list[int]]
Left = Callable[[], float]


class NanoVllmServer:
    """nano-vllm with its recorded steps. XQA serves blocks of at most 128 tokens."""

    name = "nano-vllm"
    block_size = 128

    def __init__(self, folder: Path, traces: Sequence[Trace]):
        import transformers

        from tools.bench import flash_attn_stand_in

        sys.modules["flash_attn"] = flash_attn_stand_in
        transformers.AutoTokenizer.from_pretrained = _no_tokenizer
        from nanovllm import LLM, config

        # nano-vllm's own check requires blocks of 256 tokens, because flash-attn does.
        config.Config.__post_init__ = _complete
        self.llm = LLM(
            str(folder),
            max_num_batched_tokens=PEER_TOKEN_BUDGET,
            max_num_seqs=max(len(trace.prompts) for trace in traces),
            max_model_len=MAX_MODEL_LEN,
            kvcache_block_size=self.block_size,
            gpu_memory_utilization=self._share(folder, traces),
        )
        there = self.llm.model_runner.config.num_kvcache_blocks
        needed = max(blocks_of(trace, self.block_size) for trace in traces)
        if there < needed:
            raise MemoryError(f"nano-vllm has {there} blocks, a trace needs {needed}")

    def _share(self, folder: Path, traces: Sequence[Trace]) -> float:
        """The share of the card's memory in use once nano-vllm has a cache for the traces."""
        free, total = torch.cuda.mem_get_info()
        weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        blocks = max(blocks_of(trace, self.block_size) for trace in traces)
        cache = blocks * self.block_size * bytes_of_a_token(folder)
        return min(0.97, (total - free + weights + cache + SPARE_BYTES) / total)

    def generate(self, prompts: Prompts, new_tokens: Sequence[int]) -> list[list[int]]:
        from nanovllm import SamplingParams

        # nano-vllm refuses a temperature of 0. This small temperature gives the same tokens.
        params = [
            SamplingParams(temperature=1e-3, ignore_eos=True, max_tokens=n) for n in new_tokens
        ]
        answers = self.llm.generate(list(prompts), params, use_tqdm=False)
        return [answer["token_ids"] for answer in answers]


class MiniSglangServer:
    """Mini-SGLang: prompts by FlashInfer, decodes by XQA, its fastest here."""

    name = "Mini-SGLang"
    block_size = 64

    def __init__(self, folder: Path, traces: Sequence[Trace]):
        from minisgl.scheduler import scheduler
        from minisgl.utils import hf

        hf._load_hf_config = _settings  # Mini-SGLang reads transformers 4's names
        scheduler.load_tokenizer = _no_tokenizer
        from minisgl.llm import LLM

        self.llm = LLM(
            str(folder),
            max_running_req=max(len(trace.prompts) for trace in traces),
            max_seq_len_override=MAX_MODEL_LEN,
            max_extend_tokens=PEER_TOKEN_BUDGET,
            cuda_graph_max_bs=max(len(trace.prompts) for trace in traces),
            num_page_override=8 + max(blocks_of(trace, self.block_size) for trace in traces),
            page_size=self.block_size,
            attention_backend="fi,trtllm",
            cache_type="naive",
            use_pynccl=False,
        )

    def generate(self, prompts: Prompts, new_tokens: Sequence[int]) -> list[list[int]]:
        from minisgl.core import SamplingParams

        params = [
            SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=n) for n in new_tokens
        ]
        return [answer["token_ids"] for answer in self.llm.generate(list(prompts), params)]


SERVERS: dict[str, Any] = {each.name: each for each in (NanoVllmServer, MiniSglangServer)}


class _NoTokenizer:
    """Replaces a tokenizer: prompts and answers are token ids, and no token ends an answer."""

    eos_token_id = -1

    def decode(self, ids, **options) -> str:
        return ""


def _no_tokenizer(*words, **options) -> _NoTokenizer:
    return _NoTokenizer()


class _Settings(types.SimpleNamespace):
    def to_dict(self) -> dict[str, Any]:
        return vars(self)


def _complete(config) -> None:
    """Completes nano-vllm's Config as it does itself, without its check of the block size."""
    from transformers import AutoConfig

    config.hf_config = AutoConfig.from_pretrained(config.model)
    longest = config.hf_config.max_position_embeddings
    config.max_model_len = min(config.max_model_len, longest)


def _settings(folder: str) -> _Settings:
    """A model's config with transformers 4's names.

    In version 5 the rotary ones are nested.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta}
    named = config.to_dict() | {"rope_theta": rope["rope_theta"], "rope_scaling": None}
    return _Settings(**named)


def blocks_of(trace: Trace, block_size: int) -> int:
    """The blocks of a pool in which all requests of a trace fit at once."""
    pairs = zip(trace.prompts, trace.new_tokens, strict=True)
    return sum(-(-(len(prompt) + new) // block_size) for prompt, new in pairs)


def bytes_of_a_token(folder: Path) -> int:
    """Bytes of one token's keys and values in all layers, with 16 bits for each number."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    return 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim


@dataclass(frozen=True)
class Turn:
    """A trace, served once. cached: how many of the prompts' tokens a prefix cache had.

    answers: the new tokens of each request; or when they came, in seconds.
    """

    seconds: float
    answers: list[list]
    cached: int = 0


class ServerFailed(Exception):
    """A server could not be made, or has ended. The text says why."""


def seconds_left(limit: float = FOREVER) -> Left:
    """A function that says how much of a time is left, in seconds. The time begins now."""
    end = time.perf_counter() + limit
    return lambda: end - time.perf_counter()


class RemoteServer:
    """A server in its own process, `ready` for requests after so many seconds.

    make: called in that process.
    left: says how many seconds an answer may take.
    Raises ServerFailed, here and in `serve`.
    """

    def __init__(self, name: str, make: Callable, left: Left = seconds_left()):
        self.name, self._left = name, left
        context = multiprocessing.get_context("spawn")
        self._failed: ServerFailed | None = None
        self._words, theirs = context.Pipe()
        self._process: Any = context.Process(target=_work, args=(theirs, make))
        self._process.start()
        theirs.close()
        self.ready, self.settings = self._answer()

    def serve(self, trace: Trace, turn: int, times: Sequence[float] | None = None) -> Turn:
        """Each turn's prompts begin with another token. times: of the requests, in seconds."""
        if self._failed:
            raise self._failed
        prompts = [[turn, *prompt[1:]] for prompt in trace.prompts]
        with suppress(ConnectionError):  # it has ended, and _answer() says so
            self._words.send((prompts, trace.new_tokens, times))
        return self._answer()

    def close(self, patience: float = PATIENCE) -> None:
        self._words.close()  # by which it ends
        self._process.join(patience)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its own processes too
        self._process.kill()
        self._process.join()

    def _answer(self) -> Any:
        answer: Any = ServerFailed("no time was left for its answer")
        patience = 0
        try:
            if self._words.poll(max(0.0, self._left())):
                answer, patience = self._words.recv(), PATIENCE
        except (EOFError, ConnectionError):
            self._process.join(PATIENCE)
            answer = ServerFailed(f"its process ended with {self._process.exitcode}")
        if isinstance(answer, ServerFailed):
            self.close(patience)
            self._failed = answer
            raise answer
        return answer


def _work(words: Connection, make: Callable) -> None:
    os.setsid()
    server: Any = None
    try:
        start = time.perf_counter()
        server = make()
        words.send((time.perf_counter() - start, getattr(server, "settings", {})))
        while True:
            words.send(measured_turn(server, *words.recv()))
    except EOFError:
        return
    except BaseException as error:
        traceback.print_exc()
        words.send(ServerFailed(f"{type(error).__name__}: {error}"[:300]))
    finally:
        if hasattr(server, "close"):
            server.close()


def measured_turn(server, prompts: Prompts, new_tokens: list[int], times=None) -> Turn:
    gc.collect()
    _wait()
    start = time.perf_counter()
    asked = prompts, new_tokens
    answers = server.arrive(*asked, times) if times else server.generate(*asked)
    _wait()
    # A client's work after its last token does not count.
    seconds = max(map(max, answers)) if times else time.perf_counter() - start
    if (lengths := [len(answer) for answer in answers]) != list(new_tokens):
        raise ValueError(f"{lengths} new tokens, not {list(new_tokens)}")
    return Turn(seconds, answers, getattr(server, "cached", 0))


def _wait() -> None:
    if torch.cuda.is_initialized():  # vLLM has the GPU in another process
        torch.cuda.synchronize()
