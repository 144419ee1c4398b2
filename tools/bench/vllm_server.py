"""vLLM with its own defaults, as a server of the benchmark of peers.

`vllm_peer` runs this file, with a descriptor and the settings as JSON. In vLLM's process only
its own packages and those that are installed are on the path. The course's folder kernels/,
for example, would be taken for the package of this name.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])
sys.path.append(ROOT)  # for this import only
try:
    from tools.bench.peer_process import Events, Prompts, work
finally:
    sys.path.remove(ROOT)


class Offline:
    """`LLM`, which gets all requests at once."""

    def __init__(self, options: dict):
        import vllm

        config = self.start(options)
        cache, scheduler = config.cache_config, config.scheduler_config
        graphs = config.compilation_config
        self.settings = {
            "vLLM": vllm.__version__,
            "called by": "AsyncLLM" if isinstance(self, Online) else "LLM",
            "vLLM's blocks": f"{cache.num_gpu_blocks} of {cache.block_size} tokens",
            "vLLM's prefix caching": f"{cache.enable_prefix_caching}",
            "vLLM's tokens a step": f"{scheduler.max_num_batched_tokens}",
            "vLLM's sequences a step": f"{scheduler.max_num_seqs}",
            "vLLM's chunked prefill": f"{scheduler.enable_chunked_prefill}",
            "vLLM's asynchronous scheduling": f"{scheduler.async_scheduling}",
            "vLLM's model runner V2": f"{getattr(config, 'use_v2_model_runner', 'unknown')}",
            "vLLM's CUDA graphs": f"{graphs.cudagraph_mode}",
            "vLLM's compilation": f"{graphs.mode}",
        }

    def start(self, options: dict):
        from vllm import LLM

        self.llm = LLM(**options)
        return self.llm.llm_engine.vllm_config

    def generate(self, prompts: Prompts, new_tokens: Sequence[int]) -> list[list[int]]:
        answers = self.llm.generate(*self._requests(prompts, new_tokens), use_tqdm=False)
        return self._tokens(answers)

    def _requests(self, prompts: Prompts, new_tokens: Sequence[int], **options):
        from vllm import SamplingParams

        options |= {"temperature": 0.0, "ignore_eos": True, "detokenize": False}
        params = [SamplingParams(max_tokens=n, **options) for n in new_tokens]
        return [{"prompt_token_ids": prompt} for prompt in prompts], params

    def _tokens(self, answers) -> list[list[int]]:
        self.cached = sum(answer.num_cached_tokens or 0 for answer in answers)
        return [list(answer.outputs[0].token_ids) for answer in answers]


class Online(Offline):
    """AsyncLLM with the defaults of `vllm serve`, without HTTP.

    Statistics are off, as with `LLM`; `vllm serve` has them on.
    """

    numbers = 0  # of requests, for their names

    def start(self, options: dict):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        try:
            import uvloop

            self.loop = uvloop.new_event_loop()  # `vllm serve` has it too
        except ImportError:
            self.loop = asyncio.new_event_loop()
        caller = UsageContext.OPENAI_API_SERVER  # it decides on defaults
        arguments = AsyncEngineArgs(**options, disable_log_stats=True)
        config = arguments.create_engine_config(caller)

        async def make():
            return AsyncLLM.from_vllm_config(
                config, usage_context=caller, disable_log_stats=True
            )

        self.engine = self.loop.run_until_complete(make())
        return config

    def generate(self, prompts: Prompts, new_tokens: Sequence[int]) -> list[list[int]]:
        from vllm.sampling_params import RequestOutputKind

        kind = RequestOutputKind.FINAL_ONLY
        requests = self._requests(prompts, new_tokens, output_kind=kind)

        async def last(prompt, params):
            return [output async for output in self._ask(prompt, params)][-1]

        return self._tokens(self._all_of(last(*each) for each in zip(*requests, strict=True)))

    def arrive(
        self, prompts: Prompts, new_tokens: Sequence[int], times: Sequence[float]
    ) -> Events:
        """A token has come when generate() has yielded it. Each request is a task."""
        from vllm.sampling_params import RequestOutputKind

        requests = self._requests(prompts, new_tokens, output_kind=RequestOutputKind.DELTA)
        start = time.perf_counter() + 0.02

        async def listen(prompt, params, due: float) -> list[tuple[float, int]]:
            await asyncio.sleep(max(0.0, start + due - time.perf_counter()))
            events = []
            async for output in self._ask(prompt, params):
                now = time.perf_counter() - start
                events.append((now, len(output.outputs[0].token_ids)))
            return events

        return self._all_of(listen(*each) for each in zip(*requests, times, strict=True))

    def close(self) -> None:
        self.engine.shutdown()

    def _ask(self, prompt, params):
        self.numbers += 1
        return self.engine.generate(prompt, params, str(self.numbers))

    def _all_of(self, tasks) -> list:
        async def gathered():
            return await asyncio.gather(*tasks)

        return self.loop.run_until_complete(gathered())


if __name__ == "__main__":
    settings = json.loads(sys.argv[2])
    kind = Online if settings.pop("online") else Offline
    work(Connection(int(sys.argv[1])), lambda: kind(settings))
