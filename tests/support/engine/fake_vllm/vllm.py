"""A stand-in for vLLM, for the process that the benchmark of peers runs it in.

Each answer begins with its prompt's first token and goes on with 10, 11, …; AsyncLLM gives
the first token alone and then two at a time. Half of each prompt was in its cache.
"""

import asyncio
import importlib.util
import sys
from types import SimpleNamespace as Named

__version__ = "0.0"


class LLM:
    def __init__(self, num_gpu_blocks_override, enable_prefix_caching, **options):
        if importlib.util.find_spec("kernels"):
            raise ImportError("the course's folder kernels/ is on the path")
        settings = Named(num_gpu_blocks=num_gpu_blocks_override, block_size=16, mode=3)
        settings.enable_prefix_caching = enable_prefix_caching
        settings.max_num_batched_tokens, settings.max_num_seqs = 8192, 256
        settings.enable_chunked_prefill = settings.async_scheduling = True
        settings.cudagraph_mode = "FULL"
        settings.cache_config = settings.scheduler_config = settings
        self.vllm_config = settings.compilation_config = settings
        self.llm_engine = self

    def generate(self, prompts, params, use_tqdm):
        return [answered(*each) for each in zip(prompts, params, strict=True)]


class AsyncLLM(LLM):
    @classmethod
    def from_engine_args(cls, arguments, usage_context):
        return cls(**arguments)

    async def generate(self, prompt, params, name):
        whole = answered(prompt, params)
        tokens = whole.outputs[0].token_ids
        ends = [1, *range(3, len(tokens), 2), len(tokens)]
        for begin, end in [] if params.output_kind == "the last" else zip([0, *ends], ends):
            yield Named(outputs=[Named(token_ids=tokens[begin:end])])
        if params.output_kind == "the last":
            yield whole

    def shutdown(self):
        pass


def answered(prompt, params):
    tokens = prompt["prompt_token_ids"]
    answer = Named(token_ids=[tokens[0], *range(10, 9 + params.max_tokens)])
    return Named(outputs=[answer], num_cached_tokens=len(tokens) // 2)


AsyncEngineArgs, AsyncLLMEngine = dict, AsyncLLM
sampling_params = Named(SamplingParams=Named)
sampling_params.RequestOutputKind = {"FINAL_ONLY": "the last", "DELTA": "what is new"}
usage = Named(UsageContext=Named(OPENAI_API_SERVER="serve"))
sys.modules |= {"uvloop": asyncio, "vllm.usage.usage_lib": usage}
sys.modules["vllm.sampling_params"] = sampling_params
