"""The README is short, has a line for each platform, and its figures are the records' own."""

import re

import pytest

from lessons_content.lesson_07.bench import ladder_runs
from lessons_content.lesson_09.bench import prefill_runs
from lessons_content.lesson_10.bench import engine_peers_runs
from lessons_content.lesson_11.bench import two_gpus_runs
from lessons_lib.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def decodes() -> list[str]:
    run = ladder_runs.recorded()[0]
    titles = {
        "gqa_b64_c1024": "one new token for each of 64 sequences of 1,024",
        "gqa_b256_ragged": "the same for 256 sequences of all lengths",
    }
    rows = []
    for workload, title in titles.items():
        ours, theirs = run.row(workload, ladder_runs.LAST_RUNG), run.flashinfer_row(workload)
        rows.append(
            f"| attention, {title} | {1000 * ours.milliseconds:.0f} µs, "
            f"{100 * ours.share_of_limit:.0f} % of the card's limit "
            f"| FlashInfer: {1000 * theirs.milliseconds:.0f} µs |"
        )
    return rows


def prompts() -> list[str]:
    (run,) = (run for run in prefill_runs.recorded() if run.flashinfer)
    titles = {"64 prompts, 143-1,013": "64 prompts", "1 prompt of 8,192": "a prompt of 8,192"}
    rates = {(row.workload, row.backend): row.teraflops for row in run.rows}
    return [
        f"| attention, {title} | {rates[workload, 'rung 5']:.0f} TFLOP/s | FlashInfer with "
        f"FlashAttention-2: {rates[workload, 'FlashInfer FA2']:.0f}, "
        f"with 3: {rates[workload, 'FlashInfer FA3']:.0f} |"
        for workload, title in titles.items()
    ]


def flashinfers_gains() -> list[float]:
    """How many times our rate FlashInfer's faster kernel reaches, on each batch of prompts."""
    (run,) = (run for run in prefill_runs.recorded() if run.flashinfer)
    rates = {(row.workload, row.backend): row.teraflops for row in run.rows}
    return [
        max(rates[workload, f"FlashInfer FA{n}"] for n in (2, 3)) / rates[workload, "rung 5"]
        for workload in run.workloads
    ]


def two_gpus() -> list[str]:
    (run,) = two_gpus_runs.recorded()
    one, two = (run.row(num_gpus, 4096) for num_gpus in (1, 2))
    return [
        "| two GPUs, Qwen3-8B's shapes, 128 sequences of 4,096 "
        f"| {two.rate:,.0f} tokens/s | one GPU: {one.rate:,.0f} |"
    ]


def serving() -> list[str]:
    titles = {"1 ": "one request", "64 ": "64 requests", "32 ": "32 prompts of 3,000 and more"}
    return [
        f"| serving {title}, {run.size} | {row.our_rate:,.0f} tokens/s "
        f"| vLLM: {row.their_rate:,.0f} |"
        for run in engine_peers_runs.beside("vLLM")
        for row in run.rows
        for begin, title in titles.items()
        if row.trace.startswith(begin)
    ]


def tables(text: str) -> list[str]:
    """The rows of a Markdown text's tables, without their heads."""
    rows = re.findall(r"(?m)^\|.*$", text)
    return [row for at, row in enumerate(rows) if "|---" not in "".join(rows[at : at + 2])]


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_its_few_figures_are_what_was_recorded():
    recorded = [*decodes(), *prompts(), *two_gpus(), *serving()]
    shown = tables(section("How fast it is"))
    assert len(shown) == 5 and {*shown} <= {*recorded}, "\n".join(recorded)
    (run,) = (run for run in engine_peers_runs.beside("vLLM") if run.size == "8B")
    assert 0.99 < min(row.ratio for row in run.rows) < 1.01
    assert "With those 32 long prompts vLLM is level with ours" in " ".join(README.split())
    gains = flashinfers_gains()
    assert len(gains) == 14 and 0.45 < min(gains) < 0.55
    words = f"at best {max(gains):.2f} times as fast as ours, and at worst half as fast"
    assert words in " ".join(README.split()), words


def test_the_readme_has_at_most_1100_words_besides_tables_and_alt_texts():
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|<!--.*?-->|^\|[^\n]*$", "", README, flags=re.S | re.M)
    assert len(text.split()) <= 1100


@pytest.mark.parametrize(
    "platform",
    ["Linux", "macOS", "Windows", "Colab", "Kaggle", "Codespaces", "Binder", "a hub"],
)
def test_each_platform_has_a_line_that_says_how_to_begin_and_whether_it_was_tried(platform):
    (row,) = [row for row in tables(section("Start")) if row.startswith(f"| {platform}")]
    _, how, works, tried = (cell.strip() for cell in row.strip("|").split(" | "))
    assert "`" in how or "](" in how
    assert works and re.search("run|compiled", tried)
