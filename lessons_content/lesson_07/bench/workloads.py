"""The batches that `python -m tools.bench ladder` measures."""

import math
from dataclasses import dataclass

import torch

from paged_attention.ladder.kv_bytes import kv_bytes


@dataclass(frozen=True)
class Workload:
    """A batch of decodes: one query of each sequence over its context.

    dtype: of q, the caches and the result.
    """

    name: str
    title: str
    num_q_heads: int
    num_kv_heads: int
    head_size: int
    context_lens: tuple[int, ...]
    dtype: torch.dtype = torch.float16
    block_size: int = 16

    def kv_bytes(self, kv_dtype: torch.dtype | None = None) -> int:
        """The fewest bytes of K and V that the step must read.

        kv_dtype: of the caches; None takes the workload's.
        """
        return kv_bytes(
            list(self.context_lens),
            self.num_kv_heads,
            self.head_size,
            (kv_dtype or self.dtype).itemsize,
        )


def _random_lens(count: int, least: int, most: int) -> tuple[int, ...]:
    return tuple(
        torch.randint(
            least, most + 1, (count,), generator=torch.Generator().manual_seed(0)
        ).tolist()
    )


def _random_primes(count: int, least: int, most: int) -> tuple[int, ...]:
    primes = [
        number
        for number in range(least, most)
        if all(number % factor for factor in range(2, math.isqrt(number) + 1))
    ]
    return tuple(primes[choice] for choice in _random_lens(count, 0, len(primes) - 1))


WORKLOADS = (
    Workload("gqa_b64_c1024", "64 sequences of 1,024 tokens", 32, 8, 128, (1024,) * 64),
    Workload(
        "gqa_b256_ragged",
        "256 sequences of 128 to 2,048 tokens",
        32,
        8,
        128,
        _random_lens(256, 128, 2048),
    ),
    Workload("gqa_b1_c32768", "1 sequence of 32,768 tokens", 32, 8, 128, (32768,)),
    Workload("gqa_b8_c8192", "8 sequences of 8,192 tokens", 32, 8, 128, (8192,) * 8),
    Workload(
        "mha_b32_c1024",
        "32 sequences of 1,024 tokens, no shared KV heads",
        32,
        32,
        128,
        (1024,) * 32,
    ),
    Workload("gqa_b8_c512", "8 sequences of 512 tokens", 32, 8, 128, (512,) * 8),
)

# Each differs from the first workload in one way, and has more than 250 MB of keys and values.
VARIANTS = (
    Workload("bf16", "bfloat16", 32, 8, 128, (1024,) * 64, torch.bfloat16),
    Workload("head_64", "head size 64", 32, 8, 64, (2048,) * 64),
    Workload("head_256", "head size 256", 32, 8, 256, (1024,) * 32),
    *(
        Workload(
            f"block_{size}",
            f"blocks of {size} tokens",
            32,
            8,
            128,
            (1024,) * 64,
            block_size=size,
        )
        for size in (8, 32, 64)
    ),
    *(
        Workload(
            f"group_{group}",
            f"{group} query head{'s' * (group > 1)} for a KV head",
            8 * group,
            8,
            128,
            (1024,) * 64,
        )
        for group in (1, 2, 3, 5, 6, 7, 8, 12, 16)
    ),
    Workload(
        "primes",
        "80 sequences, each of a prime number of tokens",
        32,
        8,
        128,
        _random_primes(80, 200, 2000),
    ),
    Workload("batch_1", "1 sequence of 65,536 tokens", 32, 8, 128, (65536,)),
    Workload("batch_3", "3 sequences of 21,900 tokens", 32, 8, 128, (21900,) * 3),
    Workload("batch_1024", "1,024 sequences of 64 tokens", 32, 8, 128, (64,) * 1024),
    Workload("million", "1 sequence of 1,000,000 tokens", 32, 8, 128, (1_000_000,)),
)
TITLES = {workload.name: workload.title for workload in (*WORKLOADS, *VARIANTS)}
