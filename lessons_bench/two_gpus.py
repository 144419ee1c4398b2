"""Times the engine on one GPU and on two: `python -m lessons_bench.two_gpus`.

A model with the shapes of Qwen3-8B and random weights serves a batch. Its prompts are computed
as always, and then decode steps of the whole batch are timed and profiled. Then the same is
tried under a cap of memory that one GPU does not meet.
"""

import argparse
import datetime
import shlex
import sys
from collections.abc import Sequence

import torch

from lessons_bench.backends import Gpu
from lessons_bench.two_gpus_ranks import QWEN3_8B, Sizes, measure, same_tokens
from lessons_bench.two_gpus_runs import Row, Run, file_of, table


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 if there are no two GPUs."""
    parser = argparse.ArgumentParser("python -m lessons_bench.two_gpus")
    parser.add_argument("--record", action="store_true", help="keep the run with the course")
    parser.add_argument("--num-seqs", type=int, default=128)
    parser.add_argument("--contexts", type=int, nargs="+", default=[610, 4096])
    parser.add_argument("--cap", type=float, default=24.0, help="GiB, for the run under a cap")
    arguments = parser.parse_args(words)
    if torch.cuda.device_count() < 2:
        print("Nothing can be measured: it needs two GPUs.", file=sys.stderr)
        return 2
    config = tuple(QWEN3_8B.items())
    same = same_tokens()
    print(f"the same tokens in float32: {same}", file=sys.stderr, flush=True)
    rows, capped = [], []

    def add(to: list[Row], num_gpus: int, context: int, cap: float | None = None) -> None:
        to.append(measure(num_gpus, Sizes(config, arguments.num_seqs, context, cap)))
        print(to[-1], file=sys.stderr, flush=True)

    for context in arguments.contexts:
        for num_gpus in (1, 2):
            add(rows, num_gpus, context)
    for num_gpus in (1, 2):
        add(capped, num_gpus, arguments.contexts[0], arguments.cap)
    facts = Gpu().facts()
    run = Run(
        **{name: facts[name] for name in ("card", "driver", "torch")},
        date=datetime.date.today().isoformat(),
        command=shlex.join(["python", "-m", "lessons_bench.two_gpus", *(words or [])]),
        model="Shapes of Qwen3-8B, random weights, bfloat16",
        same_tokens=same,
        rows=tuple(rows),
        cap=arguments.cap,
        capped=tuple(capped),
    )
    print(table(run))
    if arguments.record:
        run.save(file_of(run))
        print(f"\nRecorded in {file_of(run)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
