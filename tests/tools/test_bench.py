"""What all benchmarks have in common: their records' files, and their commands."""

import dataclasses
import importlib
import json
import re

import matplotlib.pyplot as plt
import pytest
import torch

from lessons_content.lesson_07.bench.workloads import WORKLOADS
from lessons_content.lesson_09.bench.prefill_workloads import WORKLOADS as PROMPTS
from lessons_content.lesson_10.bench.fast_engine import ORDER, engines, traces
from lessons_lib.paths import ROOT
from paged_attention.engine.paths import CPU_ONLY, PATHS
from tools.bench.__main__ import main
from tools.bench.engine_peers_setup import SOURCES
from tools.bench.timeline import ENGINES

NAMES = [
    *("ladder", "prefill", "fast_engine", "timeline", "engine_peers", "serving"),
    *("two_gpus", "load", "path_b", "conversation", "checkpoint", "cpu_engine"),
    *("player", "few_rows"),
]
ON_GPUS = [*NAMES[:5], "few_rows"]
DRAWN = [*ON_GPUS, "load"]
each_benchmark = pytest.mark.parametrize("name", NAMES)


FOLDERS = [ROOT / "tools" / "bench", *ROOT.glob("lessons_content/lesson_*/bench")]


def bench(name):
    """A module of the benchmarks, in whichever folder it is."""
    (file,) = (folder / f"{name}.py" for folder in FOLDERS if (folder / f"{name}.py").exists())
    return importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def runs(name):
    return bench(f"{name}_runs")


def refused(name, words, capsys):
    """What the command says when it refuses these arguments."""
    with pytest.raises(SystemExit) as stop:
        bench(name).main(words)
    assert stop.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def test_every_folder_of_records_is_a_benchmark():
    kept = [path for folder in FOLDERS for path in folder.glob("measured/*")]
    assert sorted(NAMES) == sorted(path.name for path in kept)


@each_benchmark
def test_a_run_comes_back_from_its_file(name, tmp_path):
    (run, *_) = runs(name).recorded()
    path = tmp_path / "new" / run.file_name
    run.save(path)
    assert type(run).load(path) == run and runs(name).recorded(path.parent) == [run]
    kept = run.folder / run.file_name
    assert path.read_text() == kept.read_text()


def without_card(content):
    del content["card"]


def of_another_type(content):
    content["card"] = ["a card"]


@each_benchmark
@pytest.mark.parametrize("spoil", [without_card, of_another_type])
def test_a_file_that_is_no_run_is_named(name, spoil, tmp_path):
    (run, *_) = runs(name).recorded()
    path = tmp_path / "spoilt.json"
    run.save(path)
    content = json.loads(path.read_text())
    spoil(content)
    for text in (json.dumps(content), "{", "[]", "\udcff"):
        path.write_text(text, errors="surrogateescape")
        with pytest.raises(ValueError, match=rf"spoilt\.json is not a run .* {name}: "):
            runs(name).recorded(tmp_path)


@each_benchmark
def test_what_is_recorded_is_printed_as_lessons_show_it(name, capsys, tmp_path):
    assert bench(name).main(["--recorded"]) == 0
    shown = capsys.readouterr().out
    for run in runs(name).recorded():
        assert runs(name).table(run) in shown and run.card in shown
    assert bench(name).main(["--recorded", "--folder", f"{tmp_path}"]) == 1
    assert "--record keeps one" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_a_run_is_drawn_and_copied(name, capsys, tmp_path):
    places = ["--plot", f"{tmp_path}/run.png", "--json", f"{tmp_path}/run.json"]
    assert bench(name).main(["--recorded", *places]) == 0
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert runs(name).recorded(tmp_path)[0].card
    for file, reason in (
        ("run.svg", "writes a PNG"),
        ("nowhere/run.png", "no folder nowhere"),
    ):
        assert reason in refused(name, ["--plot", file], capsys)
    plt.close("all")


def test_processors_come_last_and_share_a_file():
    files = [run.file_name for run in runs("serving").recorded()]
    assert files == ["nvidia-h200.json", "cpu.json"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("name", ON_GPUS)
def test_without_a_gpu_it_says_what_can_be_had(name, capsys):
    said = refused(name, [], capsys)
    assert "PyTorch sees no NVIDIA GPU here" in said and "--recorded" in said


@each_benchmark
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--json", "no/such/folder/run.json"], "there is no folder"),
        (["--record", "--recorded"], "--record keeps a whole new run"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name, words, reason, capsys):
    assert reason in refused(name, words, capsys)


@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        ("ladder", ["--only", "rung 10"], "no backend 'rung 10'; there are rung 0, rung 1,"),
        ("ladder", ["--workloads", "huge"], "no workload 'huge'; there are gqa_b64_c1024,"),
        ("ladder", ["--record", "--quick"], "without any of --only, --workloads, --quick"),
        ("prefill", ["--only", "rung 9"], "the names are rung 0, rung 1,"),
        ("prefill", ["--workloads", "huge"], "the names are 1 prompt of 8,192,"),
        ("prefill", ["--record", "--quick"], "--record keeps a whole new run"),
        ("fast_engine", ["--turns", "0"], "--turns must be 1 or more"),
        ("engine_peers", ["--turns", "0"], "--turns must be 1 or more"),
        ("engine_peers", ["--peers", "sglang"], "invalid choice: 'sglang'"),
        ("engine_peers", ["--peers", "vllm", "serve"], "is the only one of its run"),
        ("engine_peers", ["--peers", "serve", "--traces", "64"], "beside vLLM only"),
        ("serving", ["--requests", "0"], "--requests must be 1 or more, not 0"),
        ("serving", ["--record", "--requests", "8"], "64 requests or more"),
        ("serving", ["--device", "tpu"], "invalid choice"),
        ("checkpoint", [], "--at names the folder, with room for 16 GB"),
        ("checkpoint", ["--record", "--tiny", "--at", "x"], "without any of --tiny, --recor"),
        ("cpu_engine", ["--rounds", "0"], "--new and --rounds must be 1 or more"),
        ("load", ["--rates", "0"], "more than 0"),
        ("load", ["--seconds", "-1"], "more than 0"),
        ("load", ["--at-once", "-1"], "0 or more"),
    ],
)
def test_a_benchmarks_own_arguments_are_refused_by_name(name, words, reason, capsys):
    assert reason in refused(name, words, capsys)


def names(things) -> list[str]:
    return [thing.name for thing in things]


FIRST_AND_LAST = [*engines()][:: len(ORDER)]
# Whether a recorded run has all that it measures, and all of it is right.
WHOLE = {
    "ladder": lambda run: [*run.workloads] == names(WORKLOADS) and not run.wrong_rungs(),
    "prefill": lambda run: (
        [*run.workloads][: len(PROMPTS)] == names(PROMPTS)
        and not any(row.reason for row in run.rows)
    ),
    "fast_engine": lambda run: (
        [row.engine for row in run.rows] == [*engines(), *FIRST_AND_LAST]
        and all(row.seconds and not row.reason for row in run.rows)
    ),
    "timeline": lambda run: (
        [each.engine for each in run.timelines] == [*ENGINES]
        and all(0 < each.busy <= 1 and each.kernels for each in run.timelines)
    ),
    "engine_peers": lambda run: (
        {(row.peer, row.trace) for row in run.rows}
        == {(peer, trace.name) for peer in SOURCES for trace in traces(151_936)}
        # the weights are random and the numbers have 8 bits: near ties go either way
        and all(row.same_first > 0.9 and not row.reason for row in run.rows)
    ),
    "serving": lambda run: run.num_requests >= 64 and not run.ours.reason,
    "two_gpus": lambda run: (
        run.same_tokens and run.gain(4096) > 1.6 and run.capped[1].most < run.cap
    ),
    "load": lambda run: all(
        (row.lost, row.right) == (0, row.requests - row.refused) for row in run.rows
    ),
    "path_b": lambda run: (
        run.problems() == [] and {row.path for row in run.paths} == PATHS.keys() - CPU_ONLY
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_recorded_is_whole_and_right(name):
    for run in runs(name).recorded():
        assert WHOLE[name](run), run.card
        assert run.command_today.startswith(f"python -m tools.bench {name}")


# Of each row of a run: what a table shows of it, as its readers look for it.
FIGURES = {
    "ladder": lambda row: f"{row.milliseconds:.{4 if row.milliseconds < 10 else 2}f}",
    "prefill": lambda row: f"{row.teraflops:.0f}",
    "fast_engine": lambda row: f"{row.tokens_per_second:,.0f}",
    "engine_peers": lambda row: f"{row.our_rate:,.0f}",
    "serving": lambda row: f"{row.tokens_per_second:,.0f}",
    "two_gpus": lambda row: f"{row.rate:,.0f}",
    "load": lambda row: f"{1000 * row.first[0]:,.1f}",
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_table_has_the_figure_of_each_row_or_why_there_is_none(name):
    for run in runs(name).recorded():
        text = runs(name).table(run)
        assert run.card in text and run.date in text
        for row in run.rows:
            reasons = getattr(row, "reasons", None) or [getattr(row, "reason", "")]
            assert any(reasons) or FIGURES[name](row) in text, row
            assert all(reason in text for reason in reasons)


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "load"])
def test_a_table_says_why_a_row_has_no_figure(name):
    (run, *_) = runs(name).recorded()
    failed = dataclasses.replace(run.rows[-1], reason="RuntimeError: it fell over")
    text = runs(name).table(dataclasses.replace(run, rows=(*run.rows[:-1], failed)))
    (line,) = [line for line in text.splitlines() if "it fell over" in line]
    assert line.startswith("! ") and line.endswith(": RuntimeError: it fell over")


@pytest.mark.parametrize("name", ["fast_engine", "timeline", "engine_peers", "path_b"])
def test_a_table_fits_a_cell(name):
    for run in runs(name).recorded():
        assert max(map(len, runs(name).table(run).splitlines())) <= 95


def test_a_benchmark_is_found_by_its_name(capsys):
    """Whichever folder it is in. Without a name all are listed."""
    assert main([]) == 0 and main(["ladders"]) == 2
    listed = capsys.readouterr().out.split("\n")[0]
    assert {*NAMES, "cpp_builds", "host_steps"} <= {*re.split(r"[ ,]+", listed)}
    for name in ("ladder", "load"):
        with pytest.raises(SystemExit) as stop:
            main([name, "--help"])
        usage = capsys.readouterr().out
        assert stop.value.code == 0 and f"python -m tools.bench {name} [-h]" in usage
