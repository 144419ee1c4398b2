"""The course's engine as a server of the benchmark of peers, without HTTP and with it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from lessons_content.lesson_08.bench.servers import BLOCK_SIZE
from lessons_content.lesson_10.bench.fast_engine import TOKEN_BUDGET, Trace
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.request import SamplingParams
from tools.bench.engine_peers_servers import Prompts


def len_pool(traces: Sequence[Trace]) -> int:
    """The blocks of a pool in which all requests of any one trace fit at once."""
    return max(trace.num_blocks for trace in traces)


class OurServer:
    """The course's engine with all its fast parts. caching: whether it shares prefixes."""

    cached = 0  # tokens of the prompts that the prefix cache had, in the last turn

    def __init__(self, folder: Path, traces: Sequence[Trace], caching: bool):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        most = max(len(trace.prompts) for trace in traces)
        self.engine = fast_engine(
            model.to("cuda").eval(),
            FastParts(),
            num_blocks=len_pool(traces),
            block_size=BLOCK_SIZE,
            token_budget=TOKEN_BUDGET,
            max_num_seqs=most,
            path="fast",
            prefix_sharing=caching,
        )
        settings = {"blocks": len_pool(traces), "tokens of a block": BLOCK_SIZE}
        settings |= {"prefix caching": caching, "tokens a step": TOKEN_BUDGET}
        settings["sequences a step"] = most
        self.settings = {f"our {name}": f"{value}" for name, value in settings.items()}
        begin = self.engine.scheduler.start

        def counted(request) -> None:
            begin(request)
            self.cached += request.num_computed

        self.engine.scheduler.start = counted

    def generate(self, prompts: Prompts, new_tokens: list[int]) -> list[list[int]]:
        self.cached = 0
        results = self.engine.generate(list(prompts), greedy(new_tokens))
        return [result.output for result in results]

    def arrive(self, prompts: Prompts, new_tokens: list[int], times: list[float]) -> list:
        return step_through(self.engine, list(zip(prompts, greedy(new_tokens))), times)


def greedy(new_tokens: list[int]) -> list[SamplingParams]:
    return [SamplingParams(max_new_tokens=n, ignore_end=True) for n in new_tokens]


def step_through(
    engine, requests: list, times: list[float], clock=time.perf_counter, sleep=time.sleep
) -> list[list[float]]:
    """When the tokens of each request came: with the end of the step that returned them.

    It adds each request at its time, and steps as long as there is work.
    """
    came: list[list[float]] = [[] for _ in requests]
    has_work, given, start = engine.scheduler.has_work, 0, clock()
    while given < len(requests) or has_work():
        while given < len(requests) and times[given] <= clock() - start:
            engine.add(given, *requests[given])
            given += 1
        if not has_work():
            sleep(max(0.0, times[given] - (clock() - start)))
            continue
        tokens = engine.step()
        now = clock() - start
        for request, _ in tokens:
            came[request.id].append(now)
    return came


class HttpServer:
    """Our engine in its server `serve`, which shares prefixes. Its clients are here."""

    def __init__(self, folder: Path, traces: Sequence[Trace]):
        from tokenizers import Tokenizer, models
        from transformers import AutoConfig, PreTrainedTokenizerFast

        from tools.bench.load import started_server

        # The server streams texts. Each token is a word.
        ids = range(AutoConfig.from_pretrained(folder).vocab_size)
        words = models.WordLevel({f"w{n}": n for n in ids}, unk_token="w0")
        PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words)).save_pretrained(folder)
        most = max(len(trace.prompts) for trace in traces)
        options = [f"--{name}={most}" for name in ("max-num-seqs", "requests")]
        options += [f"--connections={most + 8}", f"--num-blocks={len_pool(traces)}"]
        stack = ExitStack()
        server = started_server(f"--model={folder}", *options)
        self.model, self.url = stack.enter_context(server)
        self.close = stack.close

    def arrive(self, prompts: Prompts, new_tokens: list[int], times: list[float]) -> list:
        """Raises RuntimeError if a request has no whole answer."""
        from tools.bench.load_clients import Question, ask_all

        asked = map(Question, prompts, [""] * len(times), times, new_tokens)
        came = []
        for heard in asyncio.run(ask_all(self.url, self.model, list(asked))):
            if heard.problem:
                raise RuntimeError(heard.problem)
            events = [heard.question.at + each for each in heard.times]
            # An event may have several tokens.
            came.append(events + events[-1:] * (heard.num_tokens - len(events)))
        return came
