"""A stand-in for vLLM, for the process that the benchmark of peers runs it in.

Each answer begins with its prompt's first token and goes on with 10, 11, …; AsyncLLM gives
the first token alone and then two at a time. Half of each prompt was in its cache.
"""

import importlib.util
import sys
from types import SimpleNamespace as Named

__version__ = "0.0"
SamplingParams = Named


class LLM:
    def __init__(self, model, num_gpu_blocks_override, **options):
        if importlib.util.find_spec("kernels"):
            raise ImportError("the course's folder kernels/ is on the path")
        cache = Named(num_gpu_blocks=num_gpu_blocks_override, block_size=16)
        cache.enable_prefix_caching = options["enable_prefix_caching"]
        scheduler = Named(max_num_batched_tokens=8192, max_num_seqs=256)
        scheduler.enable_chunked_prefill = scheduler.async_scheduling = True
        self.config = Named(cache_config=cache, scheduler_config=scheduler)
        self.config.compilation_config = Named(cudagraph_mode="FULL", mode=3)
        self.llm_engine = Named(vllm_config=self.config)

    def generate(self, prompts, params, use_tqdm):
        return [answered(*each) for each in zip(prompts, params, strict=True)]


class AsyncLLM(LLM):
    @classmethod
    def from_vllm_config(cls, config, **options):
        return cls(**config.options)

    async def generate(self, prompt, params, name):
        whole = answered(prompt, params)
        (tokens,) = (output.token_ids for output in whole.outputs)
        if params.output_kind == "the last":
            yield whole
            return
        for begin, end in [(0, 1), *((at, at + 2) for at in range(1, len(tokens), 2))]:
            yield Named(outputs=[Named(token_ids=tokens[begin:end])])

    def shutdown(self):
        pass


class AsyncEngineArgs:
    def __init__(self, disable_log_stats, **options):
        self.options = options

    def create_engine_config(self, caller):
        config = LLM(**self.options).config
        config.options = self.options
        return config


def answered(prompt, params):
    tokens = prompt["prompt_token_ids"]
    answer = Named(token_ids=[tokens[0], *range(10, 9 + params.max_tokens)])
    return Named(outputs=[answer], num_cached_tokens=len(tokens) // 2)


sys.modules |= {
    "vllm.v1.engine.async_llm": Named(AsyncLLM=AsyncLLM),
    "vllm.engine.arg_utils": Named(AsyncEngineArgs=AsyncEngineArgs),
    "vllm.usage.usage_lib": Named(UsageContext=Named(OPENAI_API_SERVER="serve")),
    "vllm.sampling_params": Named(
        RequestOutputKind=Named(FINAL_ONLY="the last", DELTA="what is new")
    ),
}
