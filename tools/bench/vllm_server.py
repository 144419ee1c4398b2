"""vLLM with its own defaults, as a server of the benchmark of peers."""

import asyncio
import importlib
import os
import sys
import time
from pathlib import Path

from tools.bench.engine_peers_servers import MAX_MODEL_LEN, Prompts

ENVIRONMENT = {
    **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "DO_NOT_TRACK"), "1"),
    **dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "lo"),
    **{"VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1"},
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # it is not installed; greedy requests never use it
}
OPTIONS = {"skip_tokenizer_init": True, "generation_config": "vllm", "dtype": "bfloat16"}
SETTINGS = {  # what is told of vLLM's config
    "cache_config": "num_gpu_blocks block_size enable_prefix_caching",
    "scheduler_config": "max_num_batched_tokens max_num_seqs enable_chunked_prefill"
    " async_scheduling",
    "compilation_config": "cudagraph_mode mode",
}
GREEDY = {"temperature": 0.0, "ignore_eos": True, "detokenize": False}


class VllmServer:
    """`LLM`, which gets all requests at once, or AsyncLLM with the defaults of `vllm serve`.

    Statistics are off; `vllm serve` has them on.
    site: the folder of vLLM's packages. folder: of the model. options: the engine's.
    """

    def __init__(self, site: Path, folder: Path, is_async: bool, **options):
        leave_the_course(site, folder)
        import vllm
        from vllm.usage.usage_lib import UsageContext

        options |= OPTIONS | {"model": f"{folder}", "max_model_len": MAX_MODEL_LEN}
        if is_async:
            import uvloop  # `vllm serve` has it too

            self.loop = uvloop.new_event_loop()
            self.engine = vllm.AsyncLLMEngine.from_engine_args(
                vllm.AsyncEngineArgs(**options, disable_log_stats=True),
                usage_context=UsageContext.OPENAI_API_SERVER,  # it decides on defaults
            )
            self.close = self.engine.shutdown
        else:
            self.engine = vllm.LLM(**options)
        config = getattr(self.engine, "llm_engine", self.engine).vllm_config
        self.settings = {"vLLM": vllm.__version__, "called by": type(self.engine).__name__}
        self.settings["model runner V2"] = f"{getattr(config, 'use_v2_model_runner', '?')}"
        for part, names in SETTINGS.items():
            for name in names.split():
                self.settings[f"vLLM's {name}"] = f"{getattr(getattr(config, part), name)}"

    def generate(self, prompts: Prompts, new_tokens: list[int]) -> list[list[int]]:
        if hasattr(self, "loop"):
            times = [0.0] * len(prompts)
            heard = self._hear("FINAL_ONLY", prompts, new_tokens, times)
            answers = [outputs[-1][1] for outputs in heard]
        else:
            requests = self._requests("FINAL_ONLY", prompts, new_tokens)
            answers = self.engine.generate(*requests, use_tqdm=False)
        self.cached = sum(answer.num_cached_tokens or 0 for answer in answers)
        return [list(answer.outputs[0].token_ids) for answer in answers]

    def arrive(self, *requests) -> list[list[float]]:
        """A token has come when the engine has yielded it."""
        return [
            [when for when, output in outputs for _ in output.outputs[0].token_ids]
            for outputs in self._hear("DELTA", *requests)
        ]

    def _requests(self, kind: str, prompts: Prompts, new_tokens: list[int]):
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        options = GREEDY | {"output_kind": RequestOutputKind[kind]}
        params = [SamplingParams(max_tokens=n, **options) for n in new_tokens]
        return [{"prompt_token_ids": prompt} for prompt in prompts], params

    def _hear(self, kind: str, prompts: Prompts, new_tokens: list[int], times) -> list[list]:
        """Of each request, which is a task: the engine's outputs, each with its time."""
        requests, start = self._requests(kind, prompts, new_tokens), time.perf_counter()

        async def listen(prompt, params, due: float, number: int) -> list[tuple]:
            await asyncio.sleep(max(0.0, start + due - time.perf_counter()))
            outputs = self.engine.generate(prompt, params, f"{start}, {number}")
            return [(time.perf_counter() - start, output) async for output in outputs]

        async def all_of_them() -> list:
            return await asyncio.gather(*map(listen, *requests, times, range(len(times))))

        return self.loop.run_until_complete(all_of_them())


def leave_the_course(site: Path, folder: Path) -> None:
    """Lets this process, and those that it starts, import from `site` and not from the course.

    The course's folder kernels/, for example, would be taken for the package of this name.
    """
    importlib.import_module("tools.bench.vllm_stand_ins")
    others = (path for path in sys.path if not Path(path, "tools", "bench").is_dir())
    sys.path[:] = [f"{site}", *others]
    os.environ |= ENVIRONMENT | {"PYTHONPATH": f"{site}"}
    os.chdir(folder)
    os.dup2(2, 1)  # it talks; the benchmark's table is alone on stdout
