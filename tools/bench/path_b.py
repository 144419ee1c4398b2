"""Runs path B on a GPU: `python -m tools.bench path_b`.

Path B is attention in one call of FlashInfer.

Batches: prompts, single new tokens, mixes of both, and random ones. They are compared with
attn_paged_torch() in the same dtype and in float64. They run again with NaN, infinity and the
largest number in every slot that holds no token of the batch.

Tokens: an engine with each path serves the same prompts. Each token has to be that of
transformers. The model is the course's small one, with heads of 64 numbers instead of 32,
because FlashInfer needs that; see paged_attention/tiny_qwen3/wider.py.
"""

import datetime
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor

from lessons_content.bench_records.command import Command, say
from lessons_content.lesson_07.bench.backends import Gpu
from lessons_content.lesson_07.bench.build_ahead import build_ahead
from lessons_content.lesson_08.bench.path_b_runs import (
    BatchRow,
    PathBRun,
    PathRow,
    table,
)
from paged_attention.attention.fused import attn_paged_fused, fused_needs
from paged_attention.attention.metadata import (
    BatchMetadata,
    attn_paged_torch,
    cumulative_lengths,
)
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.paths import CPU_ONLY, NEEDS, PATHS
from paged_attention.engine.request import SamplingParams
from paged_attention.pool.slots import slot_mapping
from paged_attention.tiny_qwen3.tasks import TASKS, decode, encode
from paged_attention.tiny_qwen3.wider import with_head_size

SCENARIOS = {  # (cached, new) tokens of each sequence
    "one prompt": ((0, 100),),
    "one new token": ((599, 1),),
    "a mix of both": ((599, 1), (200, 100), (0, 40), (511, 1), (256, 256)),
}
# Dtypes and head sizes. FlashInfer compiles kernels for each pair.
SHAPES = (
    (torch.float16, 64),
    (torch.float16, 128),
    (torch.bfloat16, 128),
    (torch.float16, 256),
)
BLOCK_SIZE, RANDOM_BLOCK_SIZES, NUM_RANDOM = 16, (1, 8, 13, 16, 32, 64, 256), 28
SPARE_BLOCKS = 5  # blocks that no sequence uses
POISONS = (math.nan, math.inf, "largest")

HEAD_SIZE, DTYPE, NUM_TOKENS = 64, torch.float16, 24
SET_UPS = {
    "alone": dict(max_num_seqs=1, prefix_sharing=False),
    "together": dict(prefix_sharing=False),
    "one after the other": dict(token_budget=64),
    "shared prefixes": dict(),
    "preempted": dict(num_blocks=22),
}


class Batch:
    """Seeded numbers for sequences of (cached, new) tokens, in blocks in random order."""

    def __init__(
        self,
        sequences: Sequence[tuple[int, int]],
        dtype: torch.dtype,
        head_size: int,
        block_size: int,
        num_q_heads: int = 6,
        num_kv_heads: int = 2,
        seed: int = 0,
        device: str = "cuda",
    ):
        generator = torch.Generator().manual_seed(seed)
        kv_lens = [cached + new for cached, new in sequences]
        counts = [-(-kv_len // block_size) for kv_len in kv_lens]
        ids = torch.randperm(
            sum(counts) + SPARE_BLOCKS, generator=generator, dtype=torch.int32
        )
        table = torch.full((len(counts), max(counts) + 1), -1, dtype=torch.int32)
        slots = []  # of all tokens, the cached ones included
        for row, (kv_len, count, end) in enumerate(
            zip(kv_lens, counts, itertools.accumulate(counts), strict=True)
        ):
            table[row, :count] = ids[end - count : end]
            slots.append(slot_mapping(table[row], torch.arange(kv_len), block_size))
        new_slots = torch.cat(
            [row[cached:] for row, (cached, _) in zip(slots, sequences, strict=True)]
        )
        starts = cumulative_lengths([new for _, new in sequences])
        lens = torch.tensor(kv_lens, dtype=torch.int32)
        tensors = (starts, lens, table, new_slots)
        self.metadata = BatchMetadata(*(tensor.to(device) for tensor in tensors))
        used = torch.zeros(len(ids) * block_size, dtype=torch.bool)
        used[torch.cat(slots)] = True
        self.unused = ~used.view(len(ids), block_size).to(device)
        shape = (2, len(ids), block_size, num_kv_heads, head_size)
        self.kv_cache = torch.randn(shape, generator=generator).to(device, dtype)
        shape = (len(new_slots), num_q_heads, head_size)
        self.q = torch.randn(shape, generator=generator).to(device, dtype)

    def attend(
        self, path: Callable, poison: float | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """The result of a path's function.

        poison: a value for all slots that hold no token of the batch.
        dtype: to compute in.
        """
        caches = self.kv_cache.clone()
        if poison is not None:
            caches[:, self.unused] = poison
        tensors = [
            tensor if dtype is None else tensor.to(dtype) for tensor in (self.q, *caches)
        ]
        return path(*tensors, self.metadata)


def compare_batches(
    name: str, batches: Sequence[Batch], sequences=(), fused: Callable = attn_paged_fused
) -> BatchRow:
    """A row for batches with the same dtype and head size."""
    differences = []
    errors = []
    of_torch = []
    same = True
    for batch in batches:
        exact = batch.attend(attn_paged_torch, dtype=torch.float64)
        loop = batch.attend(attn_paged_torch).double()
        result = batch.attend(fused)
        for one, other, found in (
            (result, loop, differences),
            (result, exact, errors),
            (loop, exact, of_torch),
        ):
            found.append(float((one.double() - other).abs().max()))
        for poison in POISONS:
            poisoned = batch.attend(
                fused, torch.finfo(batch.q.dtype).max if poison == "largest" else poison
            )
            same = same and torch.equal(poisoned, result)
    block_sizes = tuple(sorted({batch.kv_cache.shape[2] for batch in batches}))
    return BatchRow(
        name,
        str(batches[0].q.dtype).removeprefix("torch."),
        batches[0].q.shape[-1],
        block_sizes,
        len(batches),
        tuple(sequences),
        max(differences),
        max(errors),
        max(of_torch),
        bool(same),
    )


def random_batches(
    dtype: torch.dtype, head_size: int, count: int = NUM_RANDOM, device: str = "cuda"
) -> Iterator[Batch]:
    """Mixes of 1 to 9 sequences, with every block size and several ratios of heads."""
    for seed in range(count):
        random = np.random.default_rng(seed)
        sequences = [
            (
                int(random.choice([0, random.integers(1, 700)])),
                int(random.choice([1, random.integers(1, 200)])),
            )
            for _ in range(random.integers(1, 10))
        ]
        num_kv_heads = int(random.choice([1, 2, 8]))
        yield Batch(
            sequences,
            dtype,
            head_size,
            RANDOM_BLOCK_SIZES[seed % len(RANDOM_BLOCK_SIZES)],
            num_kv_heads * int(random.integers(1, 9)),
            num_kv_heads,
            seed,
            device,
        )


def measure_batches(
    device: str = "cuda",
    fused: Callable = attn_paged_fused,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[BatchRow, ...]:
    rows = []
    for dtype, head_size in SHAPES:
        for name, sequences in SCENARIOS.items():
            batch = Batch(sequences, dtype, head_size, BLOCK_SIZE, device=device)
            rows.append(compare_batches(name, [batch], sequences, fused))
            say(str(rows[-1]))
        batches = [*random_batches(dtype, head_size, device=device)]
        rows.append(compare_batches(f"{len(batches)} random mixes", batches, fused=fused))
        say(str(rows[-1]))
    return tuple(rows)


def prompts() -> list[list[int]]:
    """Eight prompts of 1 to 185 tokens. Two ask about the same pairs."""
    random = np.random.default_rng(1)
    pairs = TASKS["recall"](random, 0.6, fillers=20)[0].split("?")[0]
    letters = [character for character in pairs[1:] if character.isalpha()]
    texts = [f"{pairs}?{''.join(random.permutation(letters)[:4])}>" for _ in range(2)]
    texts += [
        TASKS[name](random, size)[0]
        for name, size in (("copy", 0.3), ("reverse", 0.9), ("sort", 0.5))
    ]
    texts += ["K", *(TASKS["recall"](random, 1.0, fillers=fillers)[0] for fillers in (40, 80))]
    return [encode(text) for text in texts]


@torch.inference_mode()
def dense_tokens(model, prompt: list[int]) -> list[int]:
    """The likeliest NUM_TOKENS tokens, by transformers itself, even past the end token."""
    row = torch.tensor([prompt], device=model.device)
    never = model.config.vocab_size  # not a token's id, so no token ends the answer
    tokens = model.generate(
        row,
        attention_mask=torch.ones_like(row),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        eos_token_id=never,
        pad_token_id=0,
    )
    return tokens[0, len(prompt) :].tolist()


@torch.inference_mode()
def logits_of(model, prompt: list[int], answer: list[int]) -> Tensor:
    """The logits that chose each token of an answer, on the CPU.

    Returns float32 (len(answer), vocab_size).
    """
    return (
        model(torch.tensor([prompt + answer], device=model.device))
        .logits[0, len(prompt) - 1 : -1]
        .float()
        .cpu()
    )


def leads(logits: Tensor) -> Tensor:
    """How far the likeliest token is ahead of the next one, at each choice."""
    first, second = logits.topk(2).values.T
    return first - second


def serve(
    model, path: str, given: list[list[int]], num_steps: int, sizes: dict
) -> list[list[int]]:
    """The engine's tokens.

    num_steps: steps between the arrivals of two requests.
    """
    engine, requests = Engine(model, path=path, **sizes), []
    for number, prompt in enumerate(given):
        requests.append(
            engine.add(
                number, prompt, SamplingParams(max_new_tokens=NUM_TOKENS, ignore_end=True)
            )
        )
        for _ in range(num_steps):
            engine.step()
    engine.run()
    if ("num_blocks" in sizes) != any(request.num_preempted for request in requests):
        raise ValueError(
            f"with {sizes} requests must give way if the pool is small, and else none"
        )
    return [request.output for request in requests]


def measure_paths(
    device: str = "cuda",
    paths: Sequence[str] = tuple(name for name in PATHS if name not in CPU_ONLY),
    say: Callable[[str], None] = lambda line: None,
) -> dict:
    """Fields of a PathBRun for this machine's paths: lead, margin, expected, paths."""
    small = load_model()
    model, given = with_head_size(small, HEAD_SIZE).to(device, DTYPE), prompts()
    expected = [dense_tokens(small, prompt) for prompt in given]
    exact, rounded = (
        torch.cat(
            [
                logits_of(each, prompt, answer)
                for prompt, answer in zip(given, expected, strict=True)
            ]
        )
        for each in (small, model)
    )
    rows = []
    for path in paths:
        if path in NEEDS and NEEDS[path]():
            continue
        answers = {
            name: serve(model, path, given, 3 if name == "one after the other" else 0, sizes)
            for name, sizes in SET_UPS.items()
        }
        rows.append(
            PathRow(
                path,
                tuple(map(decode, answers["together"])),
                {name: answer == expected for name, answer in answers.items()},
            )
        )
        say(str(rows[-1]))
    margin = leads(exact) / (rounded - exact).abs().max(dim=1).values
    return {
        "lead": float(leads(exact).min()),
        "margin": float(margin.min()),
        "expected": tuple(map(decode, expected)),
        "paths": tuple(rows),
    }


def _build(dtype: torch.dtype, head_size: int) -> None:
    Batch(((0, 20),), dtype, head_size, BLOCK_SIZE).attend(attn_paged_fused)
    torch.cuda.synchronize()


def measure(say: Callable[[str], None] = lambda line: None) -> PathBRun:
    """Runs everything on this GPU. Raises RuntimeError, with what is missing."""
    if needs := fused_needs():
        raise RuntimeError(f"path B needs {needs}")
    build_ahead(_build, [*SHAPES])
    batches = measure_batches(say=say)
    tokens = measure_paths(say=say)
    facts = Gpu().facts()
    facts.pop("cudnn")
    return PathBRun(
        **facts,
        transformers=version("transformers"),
        date=datetime.date.today().isoformat(),
        command="python -m tools.bench path_b",
        model=f"the small Qwen3 with heads of {HEAD_SIZE} numbers",
        dtype=str(DTYPE).removeprefix("torch."),
        num_tokens=NUM_TOKENS,
        batches=batches,
        **tokens,
    )


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if something is wrong; 2 if it cannot run."""
    command = Command("path_b", "Runs attention in one call of FlashInfer.", PathBRun, table)
    arguments = command.parse(words)
    if arguments.recorded:
        return command.show(arguments)
    try:
        run = measure(say)
    except RuntimeError as error:
        print(f"Nothing was run: {error}.", file=sys.stderr)
        return 2
    return command.keep(run, arguments, "; ".join(run.problems()))


if __name__ == "__main__":
    sys.exit(main())
