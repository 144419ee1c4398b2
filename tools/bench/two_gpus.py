"""Times the engine on one GPU and on two: `python -m tools.bench two_gpus`.

A model with the shapes of Qwen3-8B and random weights serves a batch. First its prompts are
computed. Then decode steps of the whole batch are timed and profiled. Then the same is tried
with a limit of memory that is too small for one GPU.
"""

import sys
from collections.abc import Sequence

import torch

from lessons_content.bench_records.command import Command, say
from lessons_content.bench_records.where import facts_for
from lessons_content.lesson_11.bench.two_gpus_runs import Row, Run, table
from tools.bench.two_gpus_ranks import QWEN3_8B, Sizes, measure, same_tokens


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 if there are no two GPUs."""
    command = Command(
        "two_gpus",
        "Times the engine on one GPU and on two, with the shapes of Qwen3-8B.",
        Run,
        table,
    )
    add = command.parser.add_argument
    add("--num-seqs", type=int, default=128)
    add("--contexts", type=int, nargs="+", default=[610, 4096])
    add("--cap", type=float, default=24.0, help="GiB, for the run under a cap")
    arguments = command.parse(words)
    if arguments.recorded:
        return command.show(arguments)
    if torch.cuda.device_count() < 2:
        print("Nothing can be measured: it needs two GPUs.", file=sys.stderr)
        return 2
    config = tuple(QWEN3_8B.items())
    same = same_tokens()
    say(f"the same tokens in float32: {same}")
    rows, capped = [], []

    def add(to: list[Row], num_gpus: int, context: int, cap: float | None = None) -> None:
        to.append(measure(num_gpus, Sizes(config, arguments.num_seqs, context, cap)))
        say(str(to[-1]))

    for context in arguments.contexts:
        for num_gpus in (1, 2):
            add(rows, num_gpus, context)
    for num_gpus in (1, 2):
        add(capped, num_gpus, arguments.contexts[0], arguments.cap)
    run = Run(
        **facts_for(Run),
        command=command.line(arguments, "num_seqs", "contexts", "cap"),
        model="Shapes of Qwen3-8B, random weights, bfloat16",
        same_tokens=same,
        rows=tuple(rows),
        cap=arguments.cap,
        capped=tuple(capped),
    )
    return command.keep(run, arguments)


if __name__ == "__main__":
    sys.exit(main())
