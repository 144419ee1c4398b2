"""Runs of the fast engine's benchmark, in files and as tables."""

from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned


@dataclass(frozen=True)
class TraceRow:
    """An engine on a trace.

    parts: the parts that it has; empty for lesson 08's engine.
    seconds: of each turn.
    ready: seconds until the engine could take its first request.
    graph_bytes: the memory of the recorded steps, or None.
    same_tokens: the share of tokens before an answer's first difference from the first
        engine's answer.
    """

    trace: str
    engine: str
    parts: tuple[str, ...]
    tokens: int
    seconds: tuple[float, ...]
    ready: float
    graph_bytes: int | None
    same_tokens: float
    reason: str = ""

    @property
    def tokens_per_second(self) -> float | None:
        """New tokens a second, of the median turn; of two turns, the slower one."""
        if not self.seconds:
            return None
        return self.tokens / sorted(self.seconds)[len(self.seconds) // 2]


@dataclass(frozen=True)
class StepRow:
    """A decode step of num_seqs sequences of `context` tokens on average, in milliseconds.

    kv_bits: of a number in the cache.
    limit: for reading weights, keys and values at the card's rate.
    step: from the start of one step to the start of the next, in the running engine.
    graph: the recorded step, replayed by itself.
    budget: the time of a step's kernels, by kind.
    """

    num_seqs: int
    context: int
    limit: float
    step: float
    graph: float
    budget: dict[str, float]
    kv_bits: int = 16

    @property
    def name(self) -> str:
        cache = "" if self.kv_bits == 16 else f", {self.kv_bits} bits"
        return f"{self.num_seqs} x {self.context}{cache}"

    @property
    def busy(self) -> float:
        """The kernels' time as a share of the step. A profile adds a little to each kernel."""
        return sum(self.budget.values()) / self.step


@dataclass(frozen=True)
class Run(Record, kept_in="fast_engine"):
    """The results of one call of the benchmark. read_limit: GB/s."""

    card: str
    driver: str
    torch: str
    date: str
    command: str
    model: str
    read_limit: float
    rows: tuple[TraceRow, ...]
    steps: tuple[StepRow, ...]


recorded = Run.recorded


def table(run: Run) -> str:
    """All results, as text."""
    where = f"{run.card}, driver {run.driver}, PyTorch {run.torch}, {run.date}"
    reasons = [f"! {row.engine}, {row.trace}: {row.reason}" for row in run.rows if row.reason]
    parts = [
        f"{where}\n{run.command_today}\n{run.model}; reads {run.read_limit:,.0f} GB/s",
        *(_trace_table(run, trace) for trace in dict.fromkeys(row.trace for row in run.rows)),
        _steps_table(run),
        "\n".join(reasons),
    ]
    return "\n\n".join(filter(None, parts))


def _trace_table(run: Run, trace: str) -> str:
    lines = [["engine", "tokens/s", "slowest", "fastest", "ready in", "graphs", "same tokens"]]
    for row in run.rows:
        if row.trace != trace:
            continue
        if not row.seconds:
            lines.append([row.engine, "– !", "–", "–", "–", "–", "–"])
            continue
        graphs = "–" if row.graph_bytes is None else f"{row.graph_bytes / 2**20:.0f} MiB"
        lines.append(
            [
                row.engine,
                f"{row.tokens_per_second:,.0f}",
                f"{row.tokens / max(row.seconds):,.0f}",
                f"{row.tokens / min(row.seconds):,.0f}",
                f"{row.ready:.1f} s",
                graphs,
                f"{100 * row.same_tokens:.0f} %",
            ]
        )
    return f"{trace}\n{aligned(lines)}"


def _steps_table(run: Run) -> str:
    if not run.steps:
        return ""
    kinds = list(dict.fromkeys(kind for step in run.steps for kind in step.budget))
    lines = [["a decode step, ms", *(step.name for step in run.steps)]]
    for name in ("limit", "step", "graph"):
        lines.append([name, *(f"{getattr(step, name):.3f}" for step in run.steps)])
    for kind in kinds:
        lines.append([f"  {kind}", *(f"{step.budget.get(kind, 0):.3f}" for step in run.steps)])
    lines.append(["kernels of the step", *(f"{100 * step.busy:.0f} %" for step in run.steps)])
    return aligned(lines)
