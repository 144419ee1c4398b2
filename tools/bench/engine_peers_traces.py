"""The requests that engines serve in the benchmark of peers, and the weights for them."""

import itertools
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from lessons_content.lesson_08.bench.servers import random_model
from lessons_content.lesson_10.bench.fast_engine import Trace, traces

VOCAB_SIZE = 151_936
SIZES: dict[str, dict] = {  # of Qwen3's models: how their configs differ from that of 0.6B
    "0.6B": {},
    "4B": dict(
        num_layers=36, hidden_size=2560, intermediate_size=9728, num_attention_heads=32
    ),
    "8B": dict(
        num_layers=36,
        hidden_size=4096,
        intermediate_size=12_288,
        num_attention_heads=32,
        tie_word_embeddings=False,
    ),
}
SHARED_MEMORY = Path("/dev/shm")
CACHING = ("shared", "full")  # traces that need a prefix cache


@dataclass(frozen=True)
class Arrivals:
    """Requests that come one after another, at random times.

    shares: of the rate at which the slower engine serves them when all are there at once. None
        lets all come at once, one stream each.
    """

    trace: Trace
    shares: tuple[float | None, ...]


Task = Trace | Arrivals


def random_requests(
    name: str, count: int, lengths: tuple[int, int], new_tokens: tuple[int, int], seed: int
) -> Trace:
    """Prompts of random tokens. lengths, new_tokens: from and to, both included."""
    chance = random.Random(seed)
    prompts = [
        [chance.randrange(10_000) for _ in range(chance.randint(*lengths))]
        for _ in range(count)
    ]
    return Trace(name, prompts, [chance.randint(*new_tokens) for _ in prompts])


def shared_prefix(name: str, seed: int) -> Trace:
    """64 prompts that share 2,000 tokens. seed: of the 100 tokens that follow in each."""
    (prefix,) = random_requests("", 1, (2000, 2000), (1, 1), 28).prompts
    own = random_requests("", 64, (100, 100), (64, 64), seed)
    return Trace(name, [prefix + prompt for prompt in own.prompts], own.new_tokens)


def tasks() -> dict[str, list[Task]]:
    """All tasks by the names that `--traces` takes."""
    many, ragged = traces(VOCAB_SIZE)
    come = random_requests(
        "300 requests, 100-1,024 in, 64-256 out", 300, (100, 1024), (64, 256), 26
    )
    full = Trace(f"{come.name}, full pool", come.prompts, come.new_tokens)
    shared = "64 requests share 2,000 tokens, 100 own in, 64 out"
    return {
        "64": [many],
        "256": [ragged],
        "1": [random_requests("1 request, 512 in, 512 out", 1, (512, 512), (512, 512), 1)],
        "8": [
            random_requests("8 requests, 2,000 in, 256 out", 8, (2000, 2000), (256, 256), 2)
        ],
        "512": [
            random_requests("512 requests, 128-256 in, 64 out", 512, (128, 256), (64, 64), 3)
        ],
        "32": [
            random_requests(
                "32 requests, 3,000-3,900 in, 32 out", 32, (3000, 3900), (32, 32), 4
            )
        ],
        "arrivals": [Arrivals(come, (0.7, 0.9))],
        "streams": [Arrivals(many, (None,))],
        # Each turn has its own prefix: it is cold at first, and then warm.
        "shared": [
            shared_prefix(f"{shared}, cold", 100),
            shared_prefix(f"{shared}, warm", 101),
        ],
        # With all at once first, whose blocks fill the pool when they have ended.
        "full": [Arrivals(full, (0.7,))],
    }


def trace_of(task: Task) -> Trace:
    return task.trace if isinstance(task, Arrivals) else task


def poisson_times(rate: float, count: int) -> list[float]:
    """Times of requests that are independent of each other, the same draws for each rate.

    rate: requests a second. Returns seconds, in order.
    """
    chance = random.Random(27)
    return list(itertools.accumulate(chance.expovariate(1.0) / rate for _ in range(count)))


@contextmanager
def weights(size: str) -> Iterator[Path]:
    """A folder with a model of random weights, in memory if there is room."""
    model = random_model(**SIZES[size])
    needed = sum(weight.numel() * weight.itemsize for weight in model.parameters())
    has_room = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > 1.2 * needed
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if has_room else None) as folder:
        model.save_pretrained(folder, max_shard_size="4GB")
        del model
        torch.cuda.empty_cache()
        yield Path(folder)
