"""The engines that the benchmark of peers compares, each in its own process.

An engine is made once for all traces, and serves a trace when it is told to. Between turns it
waits and does not use the GPU.
"""

import asyncio
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from lessons_content.lesson_08.bench.servers import BLOCK_SIZE
from lessons_content.lesson_10.bench.fast_engine import TOKEN_BUDGET, Trace
from tools.bench.arrivals import step_through
from tools.bench.engine_peers_traces import VOCAB_SIZE
from tools.bench.peer_process import Events, Prompts

PEER_TOKEN_BUDGET = 16_384  # prompt tokens in a step, as nano-vllm chooses itself
MAX_MODEL_LEN = 4096
SPARE_BYTES = 4 << 30  # nano-vllm's memory for a step of prompts, which it takes off its cache


class OurServer:
    """The course's engine with all its fast parts."""

    name = "ours"
    cached = 0  # tokens of the prompts that the prefix cache had, in the last turn

    def __init__(self, folder: Path, traces: Sequence[Trace], caching: bool = False):
        from transformers import AutoModelForCausalLM

        from paged_attention.engine.fast import FastParts, fast_engine

        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        self.engine = fast_engine(
            model.to("cuda").eval(),
            FastParts(),
            num_blocks=len_pool(traces),
            block_size=BLOCK_SIZE,
            token_budget=TOKEN_BUDGET,
            max_num_seqs=most_requests(traces),
            path="fast",
            prefix_sharing=caching,
        )
        self._count_cached()
        self.settings = {
            "our blocks": f"{len_pool(traces)} of {BLOCK_SIZE} tokens",
            "our prefix caching": f"{caching}",
            "our tokens a step": f"{TOKEN_BUDGET}",
            "our sequences a step": f"{most_requests(traces)}",
        }

    def generate(self, prompts: Prompts, new_tokens: Sequence[int]) -> list[list[int]]:
        self.cached = 0
        results = self.engine.generate(list(prompts), self._params(new_tokens))
        return [result.output for result in results]

    def arrive(
        self, prompts: Prompts, new_tokens: Sequence[int], times: Sequence[float]
    ) -> Events:
        requests = list(zip(prompts, self._params(new_tokens), strict=True))
        return step_through(self.engine, requests, times)

    def _params(self, new_tokens: Sequence[int]) -> list:
        from paged_attention.engine.request import SamplingParams

        return [SamplingParams(max_new_tokens=n, ignore_end=True) for n in new_tokens]

    def _count_cached(self) -> None:
        scheduler = self.engine.scheduler
        start = scheduler.start

        def counted(request) -> None:
            start(request)
            self.cached += request.num_computed

        scheduler.start = counted


class HttpServer:
    """Our engine behind `serve`, in yet another process. Here are its clients.

    It shares prefixes, as `serve` does.
    """

    name = "serve"

    def __init__(self, folder: Path, traces: Sequence[Trace]):
        from tools.bench.load import started_server

        save_tokenizer(folder)
        sizes = {
            "--num-blocks": len_pool(traces),
            "--max-num-seqs": most_requests(traces),
            "--requests": most_requests(traces),
            "--connections": most_requests(traces) + 8,
        }
        options = [f"{word}" for pair in sizes.items() for word in pair]
        self._open = ExitStack()
        server = started_server("--model", str(folder), *options)
        self.model, self.url = self._open.enter_context(server)

    def arrive(
        self, prompts: Prompts, new_tokens: Sequence[int], times: Sequence[float]
    ) -> Events:
        """Raises RuntimeError if a request has no whole answer."""
        from tools.bench.load_clients import Question, ask_all

        asked = [
            Question(*each) for each in zip(prompts, [""] * len(times), times, new_tokens)
        ]
        events: Events = []
        for heard in asyncio.run(ask_all(self.url, self.model, asked)):
            if heard.problem:
                raise RuntimeError(heard.problem)
            counts = [1] * len(heard.times)
            counts[-1] += heard.num_tokens - len(counts)  # an event may have several tokens
            since = (heard.question.at + each for each in heard.times)
            events.append(list(zip(since, counts)))
        return events

    def close(self) -> None:
        self._open.close()


def save_tokenizer(folder: Path) -> None:
    """Saves a tokenizer beside a model: each token is a word. The server streams texts."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = models.WordLevel({f"w{n}": n for n in range(VOCAB_SIZE)}, unk_token="w0")
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words)).save_pretrained(folder)


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
            max_num_seqs=most_requests(traces),
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
            max_running_req=most_requests(traces),
            max_seq_len_override=MAX_MODEL_LEN,
            max_extend_tokens=PEER_TOKEN_BUDGET,
            cuda_graph_max_bs=most_requests(traces),
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


SERVERS: dict[str, Callable] = {
    server.name: server for server in (OurServer, HttpServer, NanoVllmServer, MiniSglangServer)
}


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


def len_pool(traces: Sequence[Trace]) -> int:
    """The blocks of a pool in which all requests of any one trace fit at once."""
    return max(trace.num_blocks for trace in traces)


def most_requests(traces: Sequence[Trace]) -> int:
    return max(len(trace.prompts) for trace in traces)


def blocks_of(trace: Trace, block_size: int) -> int:
    """The blocks of a pool in which all requests of a trace fit at once."""
    pairs = zip(trace.prompts, trace.new_tokens, strict=True)
    return sum(-(-(len(prompt) + new) // block_size) for prompt, new in pairs)


def bytes_of_a_token(folder: Path) -> int:
    """Bytes of one token's keys and values in all layers, with 16 bits for each number."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    return 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
