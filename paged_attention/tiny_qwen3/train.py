"""Trains the small model: `python -m paged_attention.tiny_qwen3.train OUT`.

What it learned is measured and written down.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import Qwen3Config, Qwen3ForCausalLM

from paged_attention.tiny_qwen3.tasks import (
    CHARACTERS,
    END,
    MOST_FILLERS,
    PAD,
    TASKS,
    TOKEN_OF,
    encode,
    recall,
)

NOT_ASKED = -100  # cross_entropy ignores such targets
CONFIG = Qwen3Config(
    vocab_size=len(CHARACTERS),
    hidden_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=256,
    max_position_embeddings=512,
    tie_word_embeddings=True,
    initializer_range=0.08,
    pad_token_id=TOKEN_OF[PAD],
    eos_token_id=TOKEN_OF[END],
    bos_token_id=None,
    rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
)


def batch_of(
    examples: list[tuple[str, str]], device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes rows of tokens, and the tokens that should follow them. Prompts have no targets.

    Both are int64 (len(examples), longest).
    """
    rows = [encode(prompt + answer + END) for prompt, answer in examples]
    tokens = np.full((len(rows), max(map(len, rows))), TOKEN_OF[PAD])
    targets = np.full(tokens.shape, NOT_ASKED)
    for index, (row, (prompt, _)) in enumerate(zip(rows, examples, strict=True)):
        tokens[index, : len(row)] = row
        targets[index, len(prompt) - 1 : len(row) - 1] = row[len(prompt) :]
    return torch.from_numpy(tokens).to(device), torch.from_numpy(targets).to(device)


@torch.no_grad()
def exact_match(model, examples: list[tuple[str, str]]) -> float:
    """Returns the share of prompts that greedy decoding would answer without a mistake.

    That means that each next token is the right one.
    """
    right = 0
    for start in range(0, len(examples), 64):
        tokens, targets = batch_of(examples[start : start + 64], model.device)
        follows = model(tokens).logits.argmax(-1) == targets
        right += int((follows | (targets == NOT_ASKED)).all(1).sum())
    return right / len(examples)


def examples_for(
    task: str, seed: int, count: int, size: float | None = None
) -> list[tuple[str, str]]:
    """Makes `count` examples of a task.

    size: 0 to 1, the same for all; recall then has all its dots. None draws each size evenly.
    """
    random = np.random.default_rng(seed)
    if size is None:
        return [TASKS[task](random, random.random()) for _ in range(count)]
    if task == "recall":
        return [recall(random, size, round(MOST_FILLERS * size)) for _ in range(count)]
    return [TASKS[task](random, size) for _ in range(count)]


def train(
    steps: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    device: str,
    num_examples: int = 128,
) -> tuple[Qwen3ForCausalLM, list[dict]]:
    """Trains from scratch. Muon updates the matrices, AdamW the rest.

    The prompts grow longer until 0.4 of the steps are done.
    num_examples: of each task, which the log measures.
    """
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    model = Qwen3ForCausalLM(CONFIG).to(device)  # type: ignore[arg-type]  # misses self
    matrices = [
        weight
        for name, weight in model.named_parameters()
        if weight.ndim == 2 and "embed" not in name
    ]
    others = [
        weight
        for weight in model.parameters()
        if all(weight is not matrix for matrix in matrices)
    ]
    optimizers = [
        torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.01),
        torch.optim.Muon(
            matrices, momentum=0.95, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"
        ),
    ]
    log, start = [], time.monotonic()
    for step in range(steps):
        done = step / steps
        size = (
            1.0
            if done > 0.4 and random.random() < 0.3
            else random.random() * min(1.0, 0.3 + done / 0.4)
        )
        tasks = [TASKS[name] for name in TASKS] * (batch_size // len(TASKS))
        tokens, targets = batch_of(
            [task(random, size * random.uniform(0.4, 1)) for task in tasks], device
        )
        loss = cross_entropy(
            model(tokens).logits.flatten(0, 1), targets.flatten(), ignore_index=NOT_ASKED
        )
        for optimizer in optimizers:
            optimizer.zero_grad()
            optimizer.param_groups[0]["lr"] = learning_rate * warm_up_and_decay(step, done)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        if (step + 1) % 500 == 0 or step + 1 == steps:
            log.append(
                {
                    "step": step + 1,
                    "minutes": round((time.monotonic() - start) / 60, 2),
                    "loss": round(loss.item(), 4),
                }
                | {
                    name: exact_match(model, examples_for(name, 99, num_examples, 1.0))
                    for name in TASKS
                }
            )
            print(json.dumps(log[-1]), flush=True)
    return model, log


def warm_up_and_decay(step: int, done: float) -> float:
    """Returns the factor for the learning rate.

    It rises for 100 steps, stays level until 0.4 of the run, and then falls along a cosine.
    """
    level = 1 if done < 0.4 else 0.5 * (1 + math.cos(math.pi * (done - 0.4) / 0.6)) + 1e-3
    return min(1, (step + 1) / 100) * level


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--examples", type=int, default=1_024, help="of each task, at the end")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    model, log = train(
        options.steps,
        options.batch_size,
        options.learning_rate,
        options.seed,
        options.device,
        min(128, options.examples),
    )
    model.to(torch.bfloat16).save_pretrained(options.out)  # type: ignore[arg-type]  # as above
    # Measure the rounded weights, in the arithmetic that the lesson uses.
    model.float()
    summary = {
        "parameters": model.num_parameters(),
        "run": {
            name: getattr(options, name)
            for name in ("steps", "batch_size", "learning_rate", "seed")
        },
        "minutes": round((time.monotonic() - start) / 60, 1),
        "machine": (
            torch.cuda.get_device_name()
            if options.device == "cuda"
            else f"CPU, {torch.get_num_threads()} threads"
        ),
        "torch": torch.__version__,
        "exact_match_longest": {
            name: exact_match(model, examples_for(name, 7, options.examples, 1.0))
            for name in TASKS
        },
        "exact_match_any_length": {
            name: exact_match(model, examples_for(name, 8, options.examples)) for name in TASKS
        },
        "log": log,
    }
    (options.out / "training.json").write_text(
        json.dumps(summary, indent=1) + "\n", encoding="utf-8"
    )
    print(json.dumps({name: summary[name] for name in summary if name != "log"}))


if __name__ == "__main__":
    main()
