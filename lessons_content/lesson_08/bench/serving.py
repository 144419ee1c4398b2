"""Times lesson 08's engine: `python -m tools.bench serving`.

transformers' two ways to serve are timed too. All servers take turns on the same trace in the
same run. So a machine that slows down slows all of them. A turn counts only useful tokens: an
answer's end token is its last one. The first turn of each server is a warm-up and does not
count.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch

from lessons_content.bench_records.command import Command, say
from lessons_content.bench_records.where import facts_for
from lessons_content.lesson_08.bench.attention_share import attention_share
from lessons_content.lesson_08.bench.servers import (
    BLOCK_SIZE,
    EngineServer,
    GenerateBatchServer,
    GenerateServer,
    Trace,
    random_model,
    random_trace,
    task_trace,
)
from lessons_content.lesson_08.bench.serving_runs import (
    ServerRow,
    ServingRun,
    ShareRow,
    recorded,
    recorded_table,
    table,
)
from paged_attention.engine.checkpoint import load_model

__all__ = [
    "ServerRow",
    "ServingRun",
    "ShareRow",
    "measure",
    "measure_large",
    "measure_small",
    "recorded",
    "recorded_table",
    "table",
]

MODELS = {
    "cpu": "the course's small model, float32",
    "cuda": "shapes of Qwen3-0.6B, random weights, bfloat16",
}


def measure(
    servers: Sequence,
    trace: Trace,
    repeats: int = 5,
    limit: float = 60.0,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[ServerRow, ...]:
    """Lets the servers take turns on the trace.

    A server that raises has no time. The others' answers are compared with the first server's.

    repeats: counted turns of each.
    limit: seconds after which a server gets no more turns.
    """
    answers, seconds, reasons = {}, {server.name: [] for server in servers}, {}
    for turn in range(repeats + 1):
        for server in servers:
            taken = seconds[server.name]
            if server.name in reasons or sum(taken) > limit:
                continue
            try:
                server.prepare()
                start = time.perf_counter()
                result = server.serve()
                elapsed = time.perf_counter() - start
            except Exception as error:  # a baseline that fails gets a row with the reason
                reasons[server.name] = (
                    f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                )
                say(f"{server.name}: {reasons[server.name]}")
                continue
            if turn:
                taken.append(elapsed)
            else:
                answers[server.name] = [trace.useful(answer) for answer in result]
            say(f"{server.name}: {elapsed:.2f} s" + " to warm up" * (turn == 0))
    expected = answers.get(servers[0].name)
    return tuple(
        _row(
            server,
            answers.get(server.name),
            expected,
            seconds[server.name],
            reasons.get(server.name, ""),
        )
        for server in servers
    )


def _row(server, answers, expected, seconds: list[float], reason: str) -> ServerRow:
    if not seconds:
        return ServerRow(
            server.name, server.title, None, (), None, None, reason or "no turn was counted"
        )
    tokens = sum(map(len, answers))
    same = [_same(*pair) for pair in zip(answers, expected or answers, strict=True)]
    return ServerRow(
        server.name,
        server.title,
        tokens / statistics.median_high(seconds),
        tuple(seconds),
        sum(a == b for a, b in zip(answers, expected or answers, strict=True)),
        sum(same) / tokens,
        reason,
    )


def _same(answer: list[int], expected: list[int]) -> int:
    """The number of tokens before the first difference."""
    return next(
        (i for i, (a, b) in enumerate(zip(answer, expected)) if a != b),
        min(len(answer), len(expected)),
    )


def measure_small(
    num_requests: int = 64, repeats: int = 5, say: Callable[[str], None] = lambda line: None
):
    """The small model on the CPU. Returns its trace, the rows, and no shares."""
    trace, model = task_trace(num_requests), load_model()
    servers = [
        EngineServer(model, trace, token_budget=1024),
        *(GenerateServer(model, trace, size) for size in (16, 32, 64)),
        GenerateBatchServer(
            model,
            trace,
            page_size=BLOCK_SIZE,
            num_blocks=trace.num_blocks,
            max_batch_tokens=256,
            allow_block_sharing=False,
        ),
    ]
    return trace, _measure(servers, trace, repeats, say), ()


def measure_large(
    num_requests: int = 64,
    repeats: int = 3,
    say: Callable[[str], None] = lambda line: None,
    device: str = "cuda",
    path: str = "fast",
    contexts: Sequence[int] = (1024, 8192),
    **changes,
):
    """Qwen3-0.6B's shapes on a GPU. Returns the trace, the rows, and attention's shares.

    changes: fields of the model's config.
    """
    model = random_model(device=device, **changes)
    trace = random_trace(model.config.vocab_size, num_requests)
    sized = dict(page_size=BLOCK_SIZE, num_blocks=trace.num_blocks, max_batch_tokens=2048)
    servers = [
        EngineServer(model, trace, path, token_budget=2048, prefix_sharing=False),
        *(GenerateServer(model, trace, size) for size in (32, 64)),
        GenerateBatchServer(
            model, trace, "generate_batch, sized", **sized, allow_block_sharing=False
        ),
        # With its default, it would leave no memory for the others.
        GenerateBatchServer(model, trace, max_memory_percent=0.3),
    ]
    rows = _measure(servers, trace, repeats, say)
    shares = []
    for context in contexts:
        shares.append(attention_share(model, num_requests, context, path))
        say(f"attention's share at {context}: {shares[-1]}")
        _clean()
    return trace, rows, tuple(shares)


def _measure(servers: list, trace: Trace, repeats: int, say) -> tuple[ServerRow, ...]:
    try:
        return measure(servers, trace, repeats, say=say)
    finally:
        for server in servers:
            server.close()
        _clean()


def _clean() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if our engine fails, or if nothing is recorded."""
    command = Command(
        "serving",
        "Times lesson 08's engine beside model.generate "
        "and generate_batch of transformers: on the CPU with the small model, "
        "on a GPU with the shapes of Qwen3-0.6B.",
        ServingRun,
        table,
    )
    add = command.parser.add_argument
    add("--device", choices=("cpu", "cuda"), help="cuda where there is a GPU")
    add("--requests", type=int, default=64, metavar="N", help="of the trace; 64 for quoting")
    add("--repeats", type=int, metavar="N", help="counted turns; 5 on the CPU, 3 on a GPU")
    add("--threads", type=int, metavar="N", help="of PyTorch, for all servers")
    arguments = command.parse(words)
    for name in ("requests", "repeats", "threads"):
        if getattr(arguments, name) is not None and getattr(arguments, name) < 1:
            command.parser.error(f"--{name} must be 1 or more, not {getattr(arguments, name)}")
    if arguments.record and arguments.requests < 64:
        command.parser.error("--record keeps a run of 64 requests or more")
    if arguments.recorded:
        return command.show(arguments)
    arguments.device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if arguments.device == "cuda":
        command.needs_gpu()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    on_gpu = arguments.device == "cuda"
    trace, rows, shares = (measure_large if on_gpu else measure_small)(
        arguments.requests, arguments.repeats or (3 if on_gpu else 5), say
    )
    run = ServingRun(
        **facts_for(ServingRun, arguments.device),
        model=MODELS[arguments.device],
        command=command.line(arguments, "device", "requests", "repeats", "threads"),
        trace=trace.title,
        num_requests=len(trace.prompts),
        rows=rows,
        shares=shares,
    )
    failed = run.ours.tokens_per_second is None
    return command.keep(run, arguments, "our engine failed" if failed else "")


if __name__ == "__main__":
    sys.exit(main())
