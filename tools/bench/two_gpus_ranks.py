"""The part of tools.bench.two_gpus that runs on each rank. The ranks import it by its name."""

import functools
import json
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import Qwen3Config

from lessons_content.lesson_11.bench.two_gpus_runs import Row
from paged_attention.engine.fast import FastParts
from paged_attention.engine.fast.layers import local_of
from paged_attention.engine.parallel.engine import parallel_engine, serve_parallel
from paged_attention.engine.parallel.model import parallel_model
from paged_attention.engine.parallel.shards import run_sharded
from paged_attention.engine.parallel.weights import RandomWeights
from paged_attention.engine.request import Request, SamplingParams
from paged_attention.tiny_qwen3.tasks import encode

BLOCK_SIZE, TOKEN_BUDGET = 16, 8192
WARM_STEPS, TIMED_STEPS, PROFILED_STEPS = 4, 32, 4
GIB = 2**30
QWEN3_8B = dict(
    hidden_size=4096,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=12_288,
    vocab_size=151_936,
    max_position_embeddings=40_960,
    tie_word_embeddings=False,
)
SMALL_PROMPTS = ("Cq7b>", "Vq7b9>", "Sqxbza>", "Ka17..q42...z93?zq>")


@dataclass(frozen=True)
class Sizes:
    """The model and the batch. config: of the model; cap: GiB of each GPU, or None."""

    config: tuple[tuple[str, object], ...]
    num_seqs: int
    context: int
    cap: float | None = None

    @property
    def new_tokens(self) -> int:
        """Enough that the first request still decodes when the last prompt has been read."""
        reading = -(-self.num_seqs * self.context // TOKEN_BUDGET)
        return reading + WARM_STEPS + TIMED_STEPS + PROFILED_STEPS + 8


def load_random(sizes: Sizes, device: str):
    """This rank's part of the model."""
    if sizes.cap is not None:
        whole = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(sizes.cap * GIB / whole, device)
    dtype = torch.bfloat16 if device != "cpu" else torch.float32
    config = Qwen3Config(**dict(sizes.config), bos_token_id=None, eos_token_id=None)
    return parallel_model(config, RandomWeights(dtype, torch.device(device)), dtype, device)


class TimedEngine:
    """An engine whose decode steps are timed. Rank 0 writes its row into a file."""

    def __init__(self, model, sizes: Sizes, file: str):
        self.model, self.sizes, self.file = model, sizes, file
        tokens = sizes.context + sizes.new_tokens
        self.engine = parallel_engine(
            model,
            FastParts(),
            sizes=[sizes.num_seqs],
            num_blocks=sizes.num_seqs * -(-tokens // BLOCK_SIZE),
            block_size=BLOCK_SIZE,
            max_num_seqs=sizes.num_seqs,
            token_budget=TOKEN_BUDGET,
            prefix_sharing=False,
        )
        self.manager = self.engine.manager
        self.on_gpu = model.device.type == "cuda"

    def generate(self, prompts: list[list[int]], params: SamplingParams) -> list[Request]:
        requests = [self.engine.add(n, prompt, params) for n, prompt in enumerate(prompts)]
        while not all(request.output for request in requests):
            self.engine.step()
        self._steps(WARM_STEPS)
        start = self._now()
        self._steps(TIMED_STEPS)
        step = (self._now() - start) * 1000 / TIMED_STEPS
        collectives = self._collectives()
        self.engine.run()
        if self.model.ranks.rank == 0:
            self._write(step, collectives)
        return requests

    def _steps(self, count: int) -> None:
        for _ in range(count):
            new = self.engine.step()
            assert len(new) == self.sizes.num_seqs, "a step of the whole batch"

    def _now(self) -> float:
        if self.on_gpu:
            torch.cuda.synchronize()
        dist.barrier()
        return time.perf_counter()

    def _collectives(self) -> float:
        """Milliseconds of a step that the ranks spend in collectives."""
        if not self.on_gpu or self.model.ranks.size == 1:
            return 0.0
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CUDA]
        ) as found:
            self._steps(PROFILED_STEPS)
            torch.cuda.synchronize()
        times = [each.device_time_total for each in found.key_averages() if "nccl" in each.key]
        return sum(times) / 1000 / PROFILED_STEPS

    def _write(self, step: float, collectives: float) -> None:
        weights = sum(local_of(each).nbytes for each in self.model.parameters())
        row = dict(
            num_gpus=self.model.ranks.size,
            num_seqs=self.sizes.num_seqs,
            context=self.sizes.context,
            step=step,
            collectives=collectives,
            weights=weights / GIB,
            pool=self.manager.kv_cache.nbytes / GIB,
            most=torch.cuda.max_memory_allocated() / GIB if self.on_gpu else 0.0,
        )
        Path(self.file).write_text(json.dumps(row), encoding="utf-8")


def make_timed(model, sizes: Sizes, file: str) -> TimedEngine:
    return TimedEngine(model, sizes, file)


def measure(num_gpus: int, sizes: Sizes, backend: str = "nccl") -> Row:
    """Times decode steps. If they cannot run, the row says why."""
    chance = random.Random(0)
    prompts = [
        [chance.randrange(100) for _ in range(sizes.context)] for _ in range(sizes.num_seqs)
    ]
    params = SamplingParams(max_new_tokens=sizes.new_tokens, ignore_end=True)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/row.json"
        try:
            run_sharded(
                prompts,
                params,
                num_gpus,
                backend,
                functools.partial(load_random, sizes),
                make_engine=make_timed,
                sizes=sizes,
                file=file,
            )
        except Exception as error:
            words = " ".join(f"{type(error).__name__}: {error}".split())[:160]
            return Row(num_gpus, sizes.num_seqs, sizes.context, reason=words)
        return Row(**json.loads(Path(file).read_text(encoding="utf-8")))


def same_tokens(backend: str = "nccl") -> bool:
    """Whether the small model gives the same tokens on one GPU and on two, in float32."""
    prompts = [encode(text) for text in SMALL_PROMPTS]
    params = SamplingParams(max_new_tokens=32, ignore_end=True)
    runs = [
        serve_parallel(prompts, params, n, backend, parts=FastParts(), num_blocks=64)
        for n in (1, 2)
    ]
    return runs[0].answers == runs[1].answers
