"""Runs of the player's benchmark: how fast a browser shows its steps."""

from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record


@dataclass(frozen=True)
class PlayerRun(Record, kept_in="player"):
    """A recording of one pool, shown step by step.

    opens: milliseconds until the first step is shown.
    steps_per_second: of all steps, one after another, each with its layout.
    slowest: milliseconds of the slowest step. leap: from the first step to the last.
    changes: values that differ in a step, on average.
    script_bytes: of player.js and player.css.
    """

    card: str  # the processor
    num_cores: int
    browser: str
    date: str
    command: str
    num_steps: int
    num_blocks: int
    changes: float
    opens: float
    steps_per_second: float
    slowest: float
    leap: float
    script_bytes: int
    device: str = "cpu"


def table(run: PlayerRun) -> str:
    """The run in lines."""
    return "\n".join(
        [
            f"{run.card}, {run.num_cores} cores, {run.browser}. Measured on {run.date}.",
            f"{run.num_steps:,} steps of {run.num_blocks} blocks, {run.changes:.1f} of which"
            " change in a step",
            f"opens in                 {run.opens:7.0f} ms",
            f"steps, each laid out     {run.steps_per_second:7,.0f} a second",
            f"the slowest step         {run.slowest:7.1f} ms",
            f"a leap over all steps    {run.leap:7.1f} ms",
            f"script and styles        {run.script_bytes / 1000:7.1f} KB",
        ]
    )


recorded = PlayerRun.recorded
