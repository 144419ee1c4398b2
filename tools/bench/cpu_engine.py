"""Times the engine and transformers on a CPU: `python -m tools.bench cpu_engine`.

The model that speaks answers one person, and three at once. The parts of the engine for a CPU
are added one by one.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lessons_content.bench_records.command import Command, say
from lessons_content.bench_records.where import facts_for
from lessons_content.lesson_08.bench.conversation import QUESTIONS, SYSTEM
from lessons_content.lesson_08.bench.speaker import add_model, model_folder, model_name
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.cpu.engine import cpu_engine
from paged_attention.engine.cpu.parts import CpuParts
from paged_attention.engine.engine import Engine
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.serve.token_text import TokenizerWords
from tools.bench.cpu_engine_runs import Row, Run, table

LAYERS = CpuParts(attention=False, few_rows=False)
ENGINES = {
    "engine, 32 bits": (torch.float32, None),
    "all parts, 32 bits": (torch.float32, CpuParts()),
    "engine, 16 bits": (torch.bfloat16, None),
    "+ layers": (torch.bfloat16, LAYERS),
    "+ attention": (torch.bfloat16, CpuParts(few_rows=False)),
    "+ few rows": (torch.bfloat16, CpuParts()),
    "+ weights of 8 bits": (torch.bfloat16, CpuParts(narrow_weights=True)),
}


def make_engine(model, parts: CpuParts | None) -> Engine:
    sizes = {"num_blocks": 256, "max_num_seqs": 4, "prefix_sharing": False}
    return Engine(model, **sizes) if parts is None else cpu_engine(model, parts, **sizes)


def by_engine(engine: Engine, prompts: list[list[int]], new: int) -> list[list[int]]:
    params = SamplingParams(max_new_tokens=new, ignore_end=True)
    return [request.output for request in engine.generate(prompts, params)]


@torch.inference_mode()
def by_transformers(model, prompts: list[list[int]], new: int) -> list[list[int]]:
    """The answers of `generate` for a batch. Shorter prompts are padded on the left."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor(
        [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    )
    lengths = {"min_new_tokens": new, "max_new_tokens": new}
    out = model.generate(ids, attention_mask=mask, do_sample=False, pad_token_id=0, **lengths)
    return out[:, longest:].tolist()


@torch.inference_mode()
def logits_of(model, prompt: list[int], answer: list[int]) -> Tensor:
    """(len(answer), vocab_size): transformers' logits before each token of an answer."""
    ids = torch.tensor([prompt + answer[:-1]])
    return model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 :].float()


def logits_in(engine: Engine, prompt: list[int], answer: list[int]) -> Tensor:
    """The same logits from an engine that is given the answer, token by token."""
    rows, left = [], iter(answer)

    def take(row: Tensor, params: SamplingParams, position: int) -> int:
        rows.append(row.float())
        return next(left)

    engine.sample = take
    by_engine(engine, [prompt], len(answer))
    return torch.stack(rows)


def rate_of(way: Callable, batch: list[list[int]], new: int) -> float:
    begun = time.perf_counter()
    way(batch)
    return new * len(batch) / (time.perf_counter() - begun)


def measure(models: dict, prompts: list[list[int]], new: int, rounds: int) -> tuple[Row, ...]:
    """models: the same model, by the dtype of its numbers."""
    wide, narrow = models[torch.float32], models[torch.bfloat16]
    truth = by_transformers(wide, prompts[:1], new)[0]
    expected = logits_of(wide, prompts[0], truth)
    ways: dict[str, Callable] = {
        "transformers, 32 bits": lambda batch: by_transformers(wide, batch, new),
        "transformers, 16 bits": lambda batch: by_transformers(narrow, batch, new),
    }
    found = {
        "transformers, 32 bits": expected,
        "transformers, 16 bits": logits_of(narrow, prompts[0], truth),
    }
    for title, (dtype, parts) in ENGINES.items():
        engine = make_engine(models[dtype], parts)
        ways[title] = lambda batch, engine=engine: by_engine(engine, batch, new)
        found[title] = logits_in(make_engine(models[dtype], parts), prompts[0], truth)
    rates: dict[tuple[str, int], list[float]] = {}
    for number in range(rounds + 1):
        say(f"round {number} of {rounds}")
        for title, way in ways.items():
            for batch in (prompts[:1], prompts):
                rate = rate_of(way, batch, new)
                if number:  # the first round warms up
                    rates.setdefault((title, len(batch)), []).append(rate)
    return tuple(
        Row(
            title,
            statistics.median(rates[title, 1]),
            statistics.median(rates[title, len(prompts)]),
            int((found[title].argmax(-1) != expected.argmax(-1)).sum()),
            (found[title] - expected).abs().mean().item(),
        )
        for title in ways
    )


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 if the model is not here."""
    command = Command(
        "cpu_engine",
        "Times the engine on a CPU, with one of its parts more each time.",
        Run,
        table,
    )
    add = command.parser.add_argument
    add_model(command)
    add("--new", type=int, default=64, help="new tokens of each answer (%(default)s)")
    add("--rounds", type=int, default=5, help="of all ways in turns (%(default)s)")
    arguments = command.parse(words)
    if arguments.recorded:
        return command.show(arguments)
    if min(arguments.new, arguments.rounds) < 1:
        command.parser.error("--new and --rounds must be 1 or more")
    if (folder := model_folder(arguments)) is None:
        return 1
    words_of = TokenizerWords(folder)
    prompts = [
        words_of.encode_chat(
            [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        )
        for question in QUESTIONS.values()
    ]
    models = {dtype: load_model(folder, dtype) for dtype in (torch.float32, torch.bfloat16)}
    run = Run(
        **facts_for(Run, "cpu"),
        command=command.line(arguments, "model", "new", "rounds"),
        model=model_name(arguments),
        new=arguments.new,
        rounds=arguments.rounds,
        rows=measure(models, prompts, arguments.new, arguments.rounds),
    )
    return command.keep(run, arguments)


if __name__ == "__main__":
    sys.exit(main())
