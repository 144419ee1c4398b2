"""The page of results, made from the recorded runs of the benchmarks."""

from collections.abc import Callable, Iterable

from lessons_content.lesson_00.pictures.conversation import recorded as drawn_conversation
from lessons_content.lesson_07 import pictures as lesson_07
from lessons_content.lesson_07.bench import ladder_runs
from lessons_content.lesson_07.bench.workloads import TITLES
from lessons_content.lesson_08.bench import conversation_runs, serving_runs
from lessons_content.lesson_09 import pictures as lesson_09
from lessons_content.lesson_09.bench import prefill_runs
from lessons_content.lesson_10 import pictures as lesson_10
from lessons_content.lesson_10.bench import (
    engine_peers_runs,
    fast_engine_runs,
    few_rows_runs,
    timeline_runs,
)
from lessons_content.lesson_10.pictures import engine_peers
from lessons_content.lesson_11 import pictures as lesson_11
from lessons_content.lesson_11.bench import load_runs, two_gpus_runs
from lessons_lib.drawing import show
from tools.bench import checkpoint_runs, cpu_engine_runs, player_runs
from tools.site.pictures import Pictures
from tools.site.serving_picture import servers

LADDER_OF_PROMPTS = "1 prompt of 8,192"


def results_page(pictures: Pictures) -> str:
    """All results as a page in Markdown."""
    parts = [
        "# Results",
        "What the course's own benchmarks measured. Each figure comes with its card, its"
        " versions and its day, and with the command that measures it again. No figure was"
        " typed: this page is made from the records. Where others were measured too, they had"
        " the same work in the same run.",
        *decode(pictures),
        *prefill(pictures),
        *serving(pictures),
        *engine(pictures),
        *peers(pictures),
        *two_gpus(),
        *checkpoint(),
        *on_a_cpu(),
        *load(pictures),
        *conversation(pictures),
        *player(),
    ]
    return "\n\n".join(parts) + "\n"


def decode(pictures: Pictures) -> list[str]:
    """Lesson 07's kernels."""
    parts = [
        "## One decode step's attention",
        "Each sequence has one new token, whose query reads all its keys and values."
        " [Lesson 07](07_fast_kernel.ipynb) builds the kernels, one idea in each. The time is"
        " compared with the rate at which the card can read.",
    ]
    for run in ladder_runs.recorded():
        rows = []
        for workload in run.workloads:
            ours = run.row(workload, ladder_runs.LAST_RUNG)
            theirs = run.flashinfer_row(workload)
            cells = [TITLES.get(workload, workload), f"{ours.milliseconds:.4f}"]
            cells.append(percent(ours.share_of_limit))
            if theirs:
                way = theirs.backend.removeprefix("FlashInfer ")
                cells += [f"{theirs.milliseconds:.4f}", way]
                cells.append(f"{theirs.milliseconds / ours.milliseconds:.2f}")
            rows.append(cells + ["–"] * (6 - len(cells)))
        parts += [
            heading(run, flashinfer=run.flashinfer, cuDNN=run.cudnn),
            pictures.drawn(lesson_07.whole_ladder(run, lesson_07.WORKLOAD)),
            pictures.drawn(lesson_07.all_workloads(run)),
            table(
                "batch, rung 7 in ms, of the limit, FlashInfer in ms, its fastest way, "
                "its time over ours",
                rows,
            ),
            *everything(run, ladder_runs.table),
        ]
    return parts


def prefill(pictures: Pictures) -> list[str]:
    """Lesson 09's kernels."""
    runs = prefill_runs.recorded()
    ladder, others = prefill_runs.of_the_ladder(runs), prefill_runs.of_the_peers(runs)
    last = max(row.rung for row in ladder.rows if row.rung is not None)
    names = [name for name in others.workloads if name in ladder.workloads]
    backends = list(dict.fromkeys(row.backend for row in others.rows))
    rows = []
    for name in names:
        rates = {row.backend: f"{row.teraflops:.0f}" for row in others.rows_of(name)}
        rows.append([name, *(rates.get(backend, "–") for backend in backends)])
    return [
        "## Prompts",
        "A prompt has many queries, so its kernel waits for arithmetic."
        " [Lesson 09](09_prompt_kernel.ipynb) builds the kernels. The rates are in TFLOP/s, of"
        " those products that the causal edge leaves.",
        heading(ladder),
        pictures.drawn(
            lesson_09.rungs(ladder, LADDER_OF_PROMPTS, last, ladder.multiply_limit_teraflops)
        ),
        *everything(ladder, prefill_runs.table),
        heading(others, flashinfer=others.flashinfer, cuDNN=others.cudnn),
        pictures.drawn(lesson_09.batches(others, names)),
        table(", ".join(["TFLOP/s", *backends]), rows),
        *everything(others, prefill_runs.table),
    ]


def serving(pictures: Pictures) -> list[str]:
    """Lesson 08's engine, and transformers."""
    parts = [
        "## Serving, in plain Python",
        "[Lesson 08](08_serve_a_model.ipynb) builds an engine around a model of transformers."
        " It is compared with what transformers itself offers. All serve the same requests.",
    ]
    for run in serving_runs.recorded():
        rows = [
            [row.name, f"{row.tokens_per_second:,.0f}", percent(row.same_tokens)]
            for row in run.rows
            if row.tokens_per_second
        ]
        parts += [
            heading(run, transformers=run.transformers),
            f"The model: {run.model}. The requests: {run.trace}.",
            pictures.drawn(servers(run)),
            table("server, tokens a second, tokens as ours", rows),
            *everything(run, serving_runs.table),
        ]
    return parts


def engine(pictures: Pictures) -> list[str]:
    """Lesson 10's parts, and the timeline of host and GPU."""
    parts = [
        "## The engine, made fast",
        "[Lesson 10](10_keep_the_gpu_busy.ipynb) adds parts to the same engine, one by one.",
    ]
    for run in fast_engine_runs.recorded():
        rows = [
            [row.trace, row.engine, f"{row.tokens_per_second:,.0f}", f"{row.ready:.1f}"]
            for row in run.rows
            if row.tokens_per_second
        ]
        parts += [
            heading(run),
            f"The model: {run.model}.",
            pictures.drawn(lesson_10.ladder(run)),
            table("requests, engine, tokens a second, ready after s", rows),
            *everything(run, fast_engine_runs.table),
        ]
    for run in few_rows_runs.recorded():
        parts += [
            f"### One sequence and eight: {run.card}",
            origin(run),
            pictures.drawn(lesson_10.rates(run)),
            pictures.drawn(lesson_10.reads_over_time(run)),
            *everything(run, few_rows_runs.table),
        ]
    for number, run in enumerate(timeline_runs.recorded()):
        parts += [
            f"### Host and GPU in a decode step: {run.card}",
            origin(run),
            # the lesson's picture shows the first record
            *([pictures.drawn(lesson_10.opening())] * (number == 0)),
            *everything(run, timeline_runs.table),
        ]
    return parts


def peers(pictures: Pictures) -> list[str]:
    """Our engine compared with other engines."""
    parts = [
        "## The engine beside others",
        "Engines that others have written served the same requests, in turns with ours.",
    ]
    for run in engine_peers_runs.Run.recorded():
        rows = [
            [
                row.trace,
                f"{row.peer} {run.versions.get(row.peer, '')}".strip(),
                f"{row.their_rate:,.0f}",
                f"{row.our_rate:,.0f}",
                f"{row.ratio:.2f}",
            ]
            for row in run.rows
            if not row.reason
        ]
        words = "; ".join(f"{row[1]} {row[2]}, ours {row[3]}, on {row[0]}" for row in rows)
        parts += [
            heading(run, **run.versions),
            f"The model: {run.model}.",
            pictures.drawn(
                show(
                    engine_peers.overview(run),
                    alt=f"Pairs of bars, tokens a second of another engine and ours: {words}.",
                )
            ),
            table("requests, beside, theirs in tokens/s, ours in tokens/s, ratio", rows),
            *everything(run, engine_peers_runs.table),
        ]
    return parts


def two_gpus() -> list[str]:
    """Lesson 11's engine on two GPUs."""
    parts = [
        "## Two GPUs",
        "[Lesson 11](11_beyond_one_gpu.ipynb) cuts a model's weights over several GPUs. In a"
        " decode step each sequence gets a token.",
    ]
    for run in two_gpus_runs.recorded():
        rows = [
            [
                f"{row.num_seqs} × {row.context:,}",
                str(row.num_gpus),
                f"{row.step:.2f}",
                f"{row.rate:,.0f}",
                f"{row.collectives:.2f}",
                f"{row.most:.1f}",
            ]
            for row in run.rows
            if row.step
        ]
        parts += [
            heading(run),
            f"The model: {run.model}.",
            table(
                "sequences × tokens, GPUs, step in ms, tokens a second, "
                "of the step in exchanges in ms, memory of a GPU in GiB",
                rows,
            ),
            *everything(run, two_gpus_runs.table),
        ]
    return parts


def checkpoint() -> list[str]:
    """A checkpoint of 16 GB on one GPU."""
    told = "A model is loaded from safetensors in several files, and served on one GPU."
    return as_text("A large checkpoint", told, checkpoint_runs)


def on_a_cpu() -> list[str]:
    """The engine without a GPU, with one more part in each row."""
    told = (
        "The model that speaks answers one person, and three at once, whose prompts differ in"
        " length: tokens a second. Each row with a + has one part more than the one above."
        " `apart` is the mean distance of its logits from those of transformers in 32 bits."
    )
    return as_text("On a CPU", told, cpu_engine_runs)


def as_text(title: str, told: str, runs) -> list[str]:
    """The runs of a benchmark with its own table; empty if no run is recorded."""
    parts = []
    for run in runs.recorded():
        libraries = {"transformers": run.transformers}
        if hasattr(run, "safetensors"):
            libraries["safetensors"] = run.safetensors
        table_of = f"```text\n{runs.table(run)}\n```"
        parts += [f"## {title}", told, heading(run, **libraries), table_of]
    return parts


def load(pictures: Pictures) -> list[str]:
    """The engine asked over HTTP."""
    parts = [
        "## Asked over HTTP",
        "Clients ask the engine of [lesson 11](11_beyond_one_gpu.ipynb) at random times, and"
        " wait for their first token and for each further one.",
    ]
    for run in load_runs.recorded():
        parts += [
            f"### {run.card}",
            f"Measured on {run.date} with {run.cores} cores, Python {run.python}, PyTorch"
            f" {run.torch} and tornado {run.tornado}, by `{run.command_today}`.",
            f"The model: {run.model}.",
            pictures.drawn(lesson_11.waiting(run)),
            *everything(run, load_runs.table),
        ]
    return parts


def conversation(pictures: Pictures) -> list[str]:
    """A model that speaks, asked by three people at once."""
    parts = [
        "## Three people who ask at once",
        "[Lesson 08](08_serve_a_model.ipynb)'s engine serves a small model that speaks, on a"
        " processor.",
    ]
    for run in conversation_runs.recorded():
        parts += [
            f"### {run.card}, {run.threads} threads",
            f"Measured on {run.date} with PyTorch {run.torch} and transformers"
            f" {run.transformers}, by `{run.command_today}`.",
            pictures.drawn(drawn_conversation(run)),
            *everything(run, conversation_runs.table),
        ]
    return parts


def player() -> list[str]:
    """How fast a browser shows the steps of a player."""
    parts = ["## Recorded steps", "The players of the lessons show a large pool in Chromium."]
    for run in player_runs.recorded():
        measured = f"Measured on {run.date} with {run.browser}, by `{run.command_today}`."
        parts += [f"### {run.card}", measured, f"```text\n{player_runs.table(run)}\n```"]
    return parts


def heading(run, **libraries: str) -> str:
    """A card's heading, and the origin of its run. libraries: name to version."""
    return f"### {run.card}\n\n{origin(run, **libraries)}"


def origin(run, **libraries: str) -> str:
    """Where, when and how a run was measured, in a line."""
    names = {"driver": getattr(run, "driver", ""), "PyTorch": run.torch, **libraries}
    names["FlashInfer"] = names.pop("flashinfer", names.get("FlashInfer", ""))
    versions = [f"{name} {version}" for name, version in names.items() if version]
    return f"Measured on {run.date} with {', '.join(versions)}, by `{run.command_today}`."


def everything(run, as_text: Callable) -> list[str]:
    """All figures of a run, folded."""
    return [
        "<details><summary>All figures of this run</summary>",
        f"```text\n{as_text(run)}\n```",
        "</details>",
    ]


def table(head: str, rows: Iterable[list[str]]) -> str:
    """A table in Markdown. head: names of the columns, with commas between them."""
    names = head.split(", ")
    lines = [names, ["---"] + ["--:"] * (len(names) - 1), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"
