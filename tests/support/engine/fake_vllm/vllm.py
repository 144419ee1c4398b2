"""A stand-in for vLLM, for the process that the benchmark of peers runs it in.

Each answer begins with its prompt's first token and goes on with 10, 11, …; AsyncLLM gives
the first token alone and then two at a time. Half of each prompt was in its cache.
"""

import asyncio
import importlib.util
import sys
from types import SimpleNamespace as Named

__version__ = "0.0"


class LLM(Named):
    block_size, max_num_batched_tokens, max_num_seqs, mode = 16, 8192, 256, 3
    enable_chunked_prefill, async_scheduling, cudagraph_mode = True, True, "FULL"

    def __init__(self, num_gpu_blocks_override, **options):
        if importlib.util.find_spec("kernels"):
            raise ImportError("the course's folder kernels/ is on the path")
        super().__init__(**options, num_gpu_blocks=num_gpu_blocks_override)
        self.llm_engine = self.vllm_config = self
        self.cache_config = self.scheduler_config = self.compilation_config = self

    def generate(self, prompts, params, use_tqdm):
        return [answered(*each) for each in zip(prompts, params, strict=True)]


class AsyncLLM(LLM):
    from_engine_args = classmethod(lambda cls, arguments, usage_context: cls(**arguments))

    async def generate(self, prompt, params, name):
        whole = answered(prompt, params)
        tokens = whole.outputs[0].token_ids
        ends = [1, *range(3, len(tokens), 2), len(tokens)]
        parts = [tokens[begin:end] for begin, end in zip([0, *ends], ends)]
        new = [Named(outputs=[Named(token_ids=part)]) for part in parts]
        for output in {"DELTA": new, "FINAL_ONLY": [whole]}[params.output_kind]:
            yield output

    def shutdown(self):
        pass


def answered(prompt, params):
    tokens = prompt["prompt_token_ids"]
    answer = Named(token_ids=[tokens[0], *range(10, 9 + params.max_tokens)])
    return Named(outputs=[answer], num_cached_tokens=len(tokens) // 2)


AsyncEngineArgs, AsyncLLMEngine = dict, AsyncLLM
kinds = {"FINAL_ONLY": "FINAL_ONLY", "DELTA": "DELTA"}
sampling_params = Named(SamplingParams=Named, RequestOutputKind=kinds)
usage = Named(UsageContext=Named(OPENAI_API_SERVER="serve"))
sys.modules |= {"uvloop": asyncio, "vllm.usage.usage_lib": usage}
sys.modules["vllm.sampling_params"] = sampling_params
