"""Times the engine on one process and on several that share the KV heads."""

import argparse
import sys

import torch

from lessons_content.lesson_08.bench.servers import random_model, random_trace, task_trace
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.parallel.shards import choose_backend, run_sharded
from paged_attention.engine.request import SamplingParams


def main(words=None) -> int:
    """Returns 0 if the sharded engine gives the whole engine's tokens (in float32), else 1."""
    parser = argparse.ArgumentParser(
        "python -m tools.bench shards",
        description=(
            "Serves the same requests on one process and on several, "
            "each with a share of the KV heads."
        ),
    )
    parser.add_argument("--world-size", type=int, default=2, metavar="N")
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cuda" if torch.cuda.is_available() else "cpu",
    )
    arguments = parser.parse_args(words)
    backend = {"cpu": "gloo", "cuda": "nccl"}[arguments.device]
    try:
        choose_backend(arguments.world_size, backend)
        same = _compare(
            "the small model, float32",
            arguments.world_size,
            backend,
            load_model,
            *_small_requests(),
        )
    except ValueError as error:
        parser.error(str(error))
    if backend == "nccl":
        trace = random_trace(151_936)
        params = SamplingParams(max_new_tokens=trace.max_new_tokens)
        _compare(
            "shapes of Qwen3-0.6B, random weights, bfloat16",
            arguments.world_size,
            backend,
            random_model,
            trace.prompts,
            params,
            num_blocks=trace.num_blocks,
            token_budget=2048,
            path="fast",
            prefix_sharing=False,
            time_limit=240.0,
        )
    return 0 if same else 1


def _small_requests():
    trace = task_trace(32)
    return trace.prompts, SamplingParams(max_new_tokens=trace.max_new_tokens)


def _compare(
    title: str, world_size: int, backend: str, load, prompts, params, **options
) -> bool:
    print(f"{title}, {backend}, {len(prompts)} requests")
    runs = {}
    for ranks in (1, world_size):
        run = runs[ranks] = run_sharded(
            prompts, params, ranks, backend, load, turns=3, **options
        )
        tokens = sum(map(len, run.answers))
        print(
            f"  {ranks} {'rank ' if ranks == 1 else 'ranks'}: "
            f"{tokens:,} tokens, {tokens / run.seconds:,.0f} a second, "
            f"{run.cache_bytes / 1e6:,.1f} MB of cache a rank",
            flush=True,
        )
    same = sum(a == b for a, b in zip(runs[1].answers, runs[world_size].answers, strict=True))
    print(f"  the same tokens for {same} of {len(prompts)} requests")
    return same == len(prompts)


if __name__ == "__main__":
    sys.exit(main())
