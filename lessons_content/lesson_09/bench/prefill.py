"""Times the prefill ladder on a GPU: `python -m tools.bench prefill`.

PyTorch's attention and, if it is installed, FlashInfer's are timed too.

Each backend computes the same batches, and each result is compared with float64. A launch is
the replay of a CUDA graph. The backends take turns, so that a drifting clock slows all of them
alike.
"""

import datetime
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from lessons_content.bench_records.command import Command, say
from lessons_content.lesson_07.bench.backends import Gpu
from lessons_content.lesson_07.bench.build_ahead import build_ahead
from lessons_content.lesson_07.bench.compare import MOST_ERROR, turns
from lessons_content.lesson_07.bench.flashinfer_backends import no_flashinfer
from lessons_content.lesson_09.bench.prefill_runs import Row, Run, table
from lessons_content.lesson_09.bench.prefill_workloads import (
    VARIANTS,
    WORKLOADS,
    PrefillWorkload,
)
from paged_attention.prefill.kernels import PagedPrefill
from paged_attention.prefill.rungs import PREFILL_RUNGS, lack_of_card

ROUNDS, QUICK_ROUNDS = 15, 5
MOST_MILLISECONDS = 400.0  # for all rounds of a backend; there is at least one round
FLASHINFER_BYTES = 512 << 20
LAST_QUERIES = 4  # of each sequence; these are compared with float64


@dataclass
class Batch:
    """The tensors of a workload. rows: each sequence's blocks."""

    workload: PrefillWorkload
    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    block_table: Tensor
    cu_seqlens_q: Tensor
    seq_lens_kv: Tensor
    rows: list[Tensor]

    def gathered(self, seq: int) -> tuple[Tensor, Tensor]:
        """A sequence's keys and values, (num_keys, num_kv_heads, head_size) each."""
        num_keys, blocks = self.workload.lens[seq][1], self.rows[seq].long()
        k, v = (
            cache[blocks].flatten(0, 1)[:num_keys] for cache in (self.k_cache, self.v_cache)
        )
        return k, v


def make_batch(workload: PrefillWorkload, device: str = "cuda") -> Batch:
    """Seeded random numbers, in blocks in random order."""
    counts = [-(-num_keys // workload.block_size) for _, num_keys in workload.lens]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randperm(sum(counts), generator=generator).int().to(device)
    rows = list(ids.split(counts))
    table = torch.full((len(counts), max(counts)), -1, dtype=torch.int32, device=device)
    for row, blocks in enumerate(rows):
        table[row, : len(blocks)] = blocks
    numbers = torch.Generator(device).manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=numbers, device=device, dtype=workload.dtype)

    cache = (sum(counts), workload.block_size, workload.num_kv_heads, workload.head_size)
    return Batch(
        workload,
        random(workload.num_tokens, workload.num_q_heads, workload.head_size),
        random(*cache),
        random(*cache),
        table,
        _starts((q_len for q_len, _ in workload.lens), device),
        torch.tensor([n for _, n in workload.lens], dtype=torch.int32, device=device),
        rows,
    )


def _starts(lengths, device) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)


def reference(batch: Batch) -> tuple[Tensor, Tensor]:
    """The rows of the result that are compared, and their right values in float64."""
    workload, end = batch.workload, 0
    tokens: list[int] = []
    results: list[Tensor] = []
    group = workload.num_q_heads // workload.num_kv_heads
    for seq, (q_len, num_keys) in enumerate(workload.lens):
        end += q_len
        count = min(q_len, LAST_QUERIES)
        tokens += range(end - count, end)
        k, v = (x.double() for x in batch.gathered(seq))
        q = batch.q[end - count : end].double().unflatten(1, (workload.num_kv_heads, group))
        scores = torch.einsum("qhgd,khd->hgqk", q, k) / math.sqrt(workload.head_size)
        last = torch.arange(num_keys - count, num_keys, device=q.device)[:, None]
        scores.masked_fill_(torch.arange(num_keys, device=q.device) > last, -math.inf)
        out = torch.einsum("hgqk,khd->qhgd", scores.softmax(-1), v)
        results.append(out.flatten(1, 2))
    return torch.tensor(tokens, device=batch.q.device), torch.cat(results)


def plan_rung(number: int, batch: Batch) -> PagedPrefill:
    workload = batch.workload
    return PagedPrefill(
        number,
        batch.cu_seqlens_q,
        batch.seq_lens_kv,
        num_q_heads=workload.num_q_heads,
        num_kv_heads=workload.num_kv_heads,
        head_size=workload.head_size,
        block_size=workload.block_size,
        dtype=workload.dtype,
    )


def _rung(number: int) -> Callable[[Batch], Callable[[], Tensor]]:
    def build(batch: Batch):
        prefill = plan_rung(number, batch)
        return lambda: prefill(batch.q, batch.k_cache, batch.v_cache, batch.block_table)

    return build


def _lack_of_card(number: int) -> str:
    return lack_of_card(number) if torch.cuda.is_available() else ""


def _torch_flash(batch: Batch):
    """PyTorch's FlashAttention-2.

    Keys are gathered and repeated beforehand, which is not timed.
    """
    workload = batch.workload
    group = workload.num_q_heads // workload.num_kv_heads
    pairs = [batch.gathered(seq) for seq in range(len(workload.lens))]
    k, v = (torch.cat(rows).repeat_interleave(group, 1) for rows in zip(*pairs, strict=True))
    ends = _starts((num_keys for _, num_keys in workload.lens), k.device)
    most = [max(lens) for lens in zip(*workload.lens, strict=True)]
    return lambda: torch.ops.aten._flash_attention_forward(
        batch.q, k, v, batch.cu_seqlens_q, ends, *most, 0.0, True, False, scale=None
    )[0]


def _flashinfer(backend: str) -> Callable[[Batch], Callable[[], Tensor]]:
    def build(batch: Batch):
        import flashinfer

        workload, device = batch.workload, batch.q.device
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
            torch.empty(FLASHINFER_BYTES, dtype=torch.uint8, device=device),
            "NHD",
            backend=backend,
        )
        wrapper.plan(
            batch.cu_seqlens_q,
            _starts((len(row) for row in batch.rows), device),
            torch.cat(batch.rows),
            ((batch.seq_lens_kv - 1) % workload.block_size + 1).int(),
            workload.num_q_heads,
            workload.num_kv_heads,
            workload.head_size,
            workload.block_size,
            causal=True,
            q_data_type=workload.dtype,
            kv_data_type=workload.dtype,
        )
        return lambda: wrapper.run(batch.q, (batch.k_cache, batch.v_cache))

    return build


@dataclass(frozen=True)
class Backend:
    """A way to compute a batch. missing: says why it cannot run here; "" if it can."""

    name: str
    build: Callable[[Batch], Callable[[], Tensor]]
    missing: Callable[[], str] = lambda: ""


BACKENDS = (
    *(
        Backend(f"rung {rung.number}", _rung(rung.number), partial(_lack_of_card, rung.number))
        for rung in PREFILL_RUNGS
    ),
    Backend("PyTorch flash", _torch_flash),
    Backend("FlashInfer FA2", _flashinfer("fa2"), no_flashinfer),
    Backend("FlashInfer FA3", _flashinfer("fa3"), no_flashinfer),
)


def compare(
    machine, workload: PrefillWorkload, backends: Sequence[Backend], quick: bool = False
) -> list[Row]:
    """Times the backends on a workload, in turns."""
    machine.clean()
    batch = make_batch(workload, machine.device)
    tokens, expected = reference(batch)
    errors: list[float | None] = [None] * len(backends)
    reasons = [backend.missing() for backend in backends]
    runs: dict[int, Callable[[], Tensor]] = {}
    rounds = [0] * len(backends)
    for number, backend in enumerate(backends):
        if not reasons[number]:
            try:
                run = runs[number] = machine.prepare(backend.build(batch))
                deviation = (run()[tokens].double() - expected).abs().max()
                errors[number] = float(deviation)
                if not deviation <= MOST_ERROR[workload.dtype]:  # a NaN is not, either
                    reasons[number] = "wrong"
                most = QUICK_ROUNDS if quick else ROUNDS
                enough = int(MOST_MILLISECONDS / machine.milliseconds(run))
                rounds[number] = max(1, min(most, enough))
            except Exception as error:
                reasons[number] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    times: list[list[float]] = [[] for _ in backends]
    for number in turns(rounds):
        times[number].append(machine.milliseconds(runs[number]))
    rows = []
    for number, backend in enumerate(backends):
        milliseconds = statistics.median(times[number]) if times[number] else None
        rate = milliseconds and workload.operations() / milliseconds / 1e9
        figures = milliseconds, rate, errors[number], reasons[number]
        rows.append(Row(workload.name, backend.name, *figures))
    return rows


def _build(number: int, workload: PrefillWorkload) -> None:
    plan_rung(number, make_batch(workload))


def _build_ahead(workloads: Sequence[PrefillWorkload], backends: Sequence[Backend]) -> None:
    """Compiles the rungs' kernels, several at once."""
    names = {backend.name for backend in backends}
    jobs = {
        (rung.number, workload.dtype, workload.head_size, workload.block_size, group): (
            rung.number,
            PrefillWorkload(
                "",
                ((5, 5),),
                group,
                1,
                workload.head_size,
                workload.block_size,
                workload.dtype,
            ),
        )
        for workload in workloads
        for rung in PREFILL_RUNGS
        for group in [workload.num_q_heads // workload.num_kv_heads]
        if f"rung {rung.number}" in names
    }
    if len(jobs) > 2:
        build_ahead(_build, list(jobs.values()))


def multiply_limit(machine=None, size: int = 8192) -> float:
    """TFLOP/s at which this GPU multiplies two matrices of size × size in bfloat16.

    machine: as for `measure`.
    """
    machine = machine or Gpu()
    options = dict(device=machine.device, dtype=torch.bfloat16)
    a, b = (torch.randn(size, size, **options) for _ in range(2))
    run = machine.prepare(lambda: a @ b)
    return 2 * size**3 / statistics.median(machine.milliseconds(run) for _ in range(15)) / 1e9


def measure(
    workloads: Sequence[PrefillWorkload],
    backends: Sequence[Backend],
    quick: bool = False,
    command: str = "lessons_content.lesson_09.bench.prefill.measure",
    say: Callable[[str], None] = lambda line: None,
    machine=None,
) -> Run:
    """Times the backends on the workloads, on this GPU.

    quick: whether to repeat less often.
    say: called with a line of text for each result.
    machine: prepares and times functions; None takes the GPU.
    """
    if machine is None:
        _build_ahead(workloads, backends)
        machine = Gpu()
    rows: list[Row] = []
    limit = multiply_limit(machine) if machine.device == "cuda" else None
    for workload in workloads:
        for row in compare(machine, workload, backends, quick):
            say(f"{row}")
            rows.append(row)
    today = datetime.date.today().isoformat()
    return Run(
        **machine.facts(),
        date=today,
        command=command,
        multiply_limit_teraflops=limit,
        rows=tuple(rows),
    )


def chosen(things: Sequence, beginnings: Sequence[str] | None) -> list:
    """The things whose names begin with one of these; None takes all."""
    words = tuple(word.lower() for word in beginnings or ("",))
    return [thing for thing in things if thing.name.lower().startswith(words)]


def main(words: Sequence[str] | None = None, machine=None) -> int:
    """Returns 0; 1 if a rung fails or is wrong, or nothing is recorded."""
    command = Command(
        "prefill",
        "Times the prefill ladder on this GPU, beside what else is installed.",
        Run,
        table,
        _overview,
    )
    add = command.parser.add_argument
    add("--only", nargs="+", metavar="NAME", help="backends that begin so")
    add("--workloads", nargs="+", metavar="NAME", help="those that begin so")
    add("--variants", action="store_true", help="eight further shapes too")
    add("--quick", action="store_true", help="fewer repetitions")
    arguments = command.parse(words, partial=("workloads", "quick"))
    backends = chosen(BACKENDS, arguments.only)
    if not backends:
        command.parser.error(f"--only: the names are {', '.join(b.name for b in BACKENDS)}")
    if not chosen((*WORKLOADS, *VARIANTS), arguments.workloads):
        names = ", ".join(workload.name for workload in (*WORKLOADS, *VARIANTS))
        command.parser.error(f"--workloads: the names are {names}")
    if arguments.recorded:
        return command.show(arguments)
    if machine is None:
        command.needs_gpu()
    if arguments.record:  # a record needs all backends
        without = no_flashinfer()
        backends = [each for each in backends if not without or each.missing() != without]
    run = measure(
        chosen((*WORKLOADS, *VARIANTS * arguments.variants), arguments.workloads),
        backends,
        arguments.quick,
        command.line(arguments, "variants", "quick", "only", "workloads"),
        say,
        machine,
    )
    wrong = any(row.reason for row in run.rows if row.rung is not None)
    return command.keep(run, arguments, "a rung failed or is wrong" if wrong else "")


def _overview(run: Run):
    from lessons_content.lesson_09.pictures.prefill import overview

    return overview(run)


if __name__ == "__main__":
    sys.exit(main())
