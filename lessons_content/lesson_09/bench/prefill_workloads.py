"""The batches that `python -m tools.bench prefill` measures."""

from dataclasses import dataclass

import torch

HALF, BFLOAT = torch.float16, torch.bfloat16


@dataclass(frozen=True)
class PrefillWorkload:
    """A batch of whole prompts, chunks and single new tokens.

    lens: each sequence's queries and keys.
    dtype: of q, the caches and the result.
    """

    name: str
    lens: tuple[tuple[int, int], ...]
    num_q_heads: int = 32
    num_kv_heads: int = 8
    head_size: int = 128
    block_size: int = 16
    dtype: torch.dtype = BFLOAT

    @property
    def num_tokens(self) -> int:
        return sum(q_len for q_len, _ in self.lens)

    def operations(self) -> float:
        """Multiplications and additions of both products, for the keys that queries see."""
        pairs = sum(q_len * kv_len - q_len * (q_len - 1) / 2 for q_len, kv_len in self.lens)
        return 4 * pairs * self.head_size * self.num_q_heads


def _prompts(*lengths: int) -> tuple[tuple[int, int], ...]:
    return tuple((length, length) for length in lengths)


def _random(count: int, least: int, most: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(least, most + 1, (count,), generator=generator).tolist()


_DECODES = tuple((1, kv_len) for kv_len in _random(60, 200, 4000, seed=2))
_MIXED = ((512, 2048),) * 4 + _DECODES
_RAGGED = _prompts(*_random(64, 143, 1013, seed=1))

WORKLOADS = (
    PrefillWorkload("1 prompt of 8,192", _prompts(8192)),
    PrefillWorkload("16 prompts of 1,024", _prompts(*[1024] * 16)),
    PrefillWorkload("64 prompts, 143-1,013", _RAGGED),
    PrefillWorkload("8 chunks of 512 at 8,192", ((512, 8192),) * 8),
    PrefillWorkload("a chunk of 2,048 at 32,768", ((2048, 32768),)),
    PrefillWorkload("mixed: 4 chunks of 512, 60 decodes", _MIXED),
)
VARIANTS = (
    PrefillWorkload("heads of 64", _prompts(*[1024] * 16), head_size=64),
    PrefillWorkload("heads of 256, 8:1", _prompts(*[2048] * 4), 16, 2, head_size=256),
    PrefillWorkload("fp16, ragged", _RAGGED, dtype=HALF),
    PrefillWorkload("1:1", _prompts(*[2048] * 8), 32, 32),
    PrefillWorkload("2:1, blocks of 32", ((512, 4096),) * 8, 16, 8, block_size=32),
    PrefillWorkload("7:1", _prompts(*[1024] * 16), 28, 4),
    PrefillWorkload("8:1, blocks of 64", ((2048, 16384),), 64, 8, block_size=64),
    PrefillWorkload("8:1, heads of 64, fp16, mixed", _MIXED, 32, 4, 64, 32, HALF),
)
