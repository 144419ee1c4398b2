"""The requests that engines serve in the benchmark of peers, and the sizes of the model."""

import itertools
import random
from collections.abc import Sequence

from lessons_content.lesson_10.bench.fast_engine import Trace, traces
from tools.bench.engine_peers_setup import SOURCES

LARGE = dict(num_layers=36, num_attention_heads=32)
SIZES: dict[str, dict] = {  # of Qwen3's models: how their configs differ from that of 0.6B
    "0.6B": {},
    "4B": dict(**LARGE, hidden_size=2560, intermediate_size=9728),
    "8B": dict(**LARGE, hidden_size=4096, intermediate_size=12_288, tie_word_embeddings=False),
}
Shares = tuple[float | None, ...]
Tasks = Sequence[tuple[Trace, Shares]]


def requests(
    name: str, count: int, lengths: tuple[int, int], new_tokens: tuple[int, int], seed: int
) -> Trace:
    """Prompts of random tokens. lengths, new_tokens: from and to, both included."""
    chance = random.Random(seed)
    prompts = [
        [chance.randrange(10_000) for _ in range(chance.randint(*lengths))]
        for _ in range(count)
    ]
    return Trace(name, prompts, [chance.randint(*new_tokens) for _ in prompts])


def shared_prefix(state: str, seed: int) -> Trace:
    """64 prompts that share 2,000 tokens. seed: of the 100 tokens that follow in each."""
    (prefix,) = requests("", 1, (2000, 2000), (1, 1), 28).prompts
    own = requests("", 64, (100, 100), (64, 64), seed)
    name = f"64 requests share 2,000 tokens, 100 own in, 64 out, {state}"
    return Trace(name, [prefix + prompt for prompt in own.prompts], own.new_tokens)


MANY, RAGGED = traces(151_936)
COME = requests("300 requests, 100-1,024 in, 64-256 out", 300, (100, 1024), (64, 256), 26)
TRACES = {
    "64": [MANY],
    "256": [RAGGED],
    "1": [requests("1 request, 512 in, 512 out", 1, (512, 512), (512, 512), 1)],
    "8": [requests("8 requests, 2,000 in, 256 out", 8, (2000, 2000), (256, 256), 2)],
    "512": [requests("512 requests, 128-256 in, 64 out", 512, (128, 256), (64, 64), 3)],
    "32": [requests("32 requests, 3,000-3,900 in, 32 out", 32, (3000, 3900), (32, 32), 4)],
    "arrivals": [COME],
    "streams": [MANY],
    # Each turn has its own prefix: it is cold at first, and then warm.
    "shared": [shared_prefix("cold", 100), shared_prefix("warm", 101)],
    # With all at once first, whose blocks fill the pool when they have ended.
    "full": [Trace(f"{COME.name}, full pool", COME.prompts, COME.new_tokens)],
}
# Requests that come one after another, at these shares of the rate at which the slower engine
# serves them when all are there at once. None lets all come at once, one stream each.
SHARES: dict[str, Shares] = {"arrivals": (0.7, 0.9), "streams": (None, 0.7), "full": (0.7,)}
CACHING = ["shared", "full"]  # they need a prefix cache
GROUPS = {  # by peer: the traces that the same two servers serve
    **dict.fromkeys(SOURCES, [["64", "256"]]),
    "vLLM": [["64", "256", "1", "8", "512", "32"], ["arrivals"], CACHING],
    "serve": [["streams"]],
}


def groups(peers: Sequence[str], chosen: Sequence[str] | None) -> list[tuple[str, list[str]]]:
    """The peers, each with traces that the same two servers serve. chosen: None for all."""
    pairs = [(peer, group) for peer in peers for group in GROUPS[peer]]
    found = [(peer, [n for n in group if n in (chosen or group)]) for peer, group in pairs]
    return [(peer, names) for peer, names in found if names]


def poisson_times(rate: float, count: int) -> list[float]:
    """Seconds at which independent requests come, the same draws at each rate; 0: at once."""
    chance = random.Random(27)
    waits = (chance.expovariate(1.0) / rate if rate else 0.0 for _ in range(count))
    return list(itertools.accumulate(waits))
