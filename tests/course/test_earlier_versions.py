"""Notebooks, commands and saved answers of versions 1.0.0 and 1.1.0, with the course of today.

tests/banks/versions/ has the code of their solutions' cells, in order, as [text, tags], and
the names of 1.1.0's modules.
"""

import ast
import importlib
import json
import pickle
import re
import shlex
import shutil
import subprocess
import sys
import zipfile

import nbformat
import pytest
from nbclient import NotebookClient

import lessons_lib  # noqa: F401, from now on earlier names are found
from lessons_lib import rooms
from lessons_lib.paths import ROOT
from python_process import python

VERSIONS = ("1.0.0", "1.1.0")
READY = ("ready", "ready-test", "ready-grade")  # what make has installed
BANK = {
    version: zipfile.ZipFile(ROOT / f"tests/banks/versions/{version}.zip")
    for version in VERSIONS
}
LESSONS = {
    f"{version}-{name.removesuffix('.json')}": (version, name)
    for version in VERSIONS
    for name in BANK[version].namelist()
    if name.endswith(".json")
}
QUICK = "1.0.0-02_block_tables"
OTHERS = pytest.mark.slow(nightly=True), pytest.mark.sampled(13)
# They stop where 1.1.0 changed a picture or a part of the engine. `make lab` brings the new
# version of such a notebook, with the learner's answers.
CHANGED_SINCE = (
    *("1.0.0-01_block_manager", "1.0.0-06_cuda_kernel"),
    *("1.0.0-08_serve_a_model", "1.0.0-10_keep_the_gpu_busy"),
)


def cells(version: str, name: str) -> list[tuple[str, list[str]]]:
    return json.loads(BANK[version].read(name))


def imports(text: str) -> list[tuple[str, str]]:
    """(module, name) of each import of our modules; the name is "" for `import module`."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
    ours = (*rooms.GONE, *rooms.PACKAGES)
    return [(module, name) for module, name in found if module.partition(".")[0] in ours]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_import_of_a_cell_finds_what_it_asks_for(version):
    wanted = {
        pair
        for name in BANK[version].namelist()
        if name.endswith(".json")
        for text, _ in cells(version, name)
        for pair in imports(text)
    }
    assert len(wanted) > 100
    lost = []
    for module, name in sorted(wanted):
        found = importlib.import_module(module)
        if name and not hasattr(found, name):
            lost.append(f"{module}.{name}")
    assert lost == []


EACH_MODULE = """
import importlib, sys
import lessons_lib
from lessons_lib import rooms
for name in sys.stdin.read().split():
    module = importlib.import_module(name)
    today = rooms.name_of_today(name) or name
    assert importlib.import_module(today) is module, name
    assert module.__spec__.name == module.__name__ == today, name
"""


@pytest.mark.slow
def test_each_module_is_found_by_its_name_and_is_todays():
    """But those beside the exercises of a lesson, which only these use."""
    beside = re.compile(rb"lessons_exercises\.lesson_\d\d\.(?!e\d)")
    names = BANK["1.1.0"].read("modules.txt").split()
    names = b" ".join(name for name in names if not beside.match(name))
    assert len(names.split()) > 350
    run = subprocess.run(
        [sys.executable, "-c", EACH_MODULE], input=names, cwd=ROOT, capture_output=True
    )
    assert run.returncode == 0, run.stderr.decode()


@pytest.mark.parametrize(
    "before, today",
    [
        ("paged_attention.slots slot_mapping", "paged_attention.pool.slots"),
        ("paged_attention.attention share_heads", "paged_attention.attention.by_request"),
        ("paged_attention.ladder PagedDecode", "paged_attention.ladder.decode"),
        ("lessons_lib.cuda build_cuda", "lessons_lib.cuda.library"),
        ("lessons_lib.checks Raised", "lessons_lib.checks.types"),
    ],
)
def test_a_saved_answer_finds_the_courses_objects(before, today):
    module, name = before.split()
    found = pickle.loads(f"c{module}\n{name}\n.".encode())
    assert found is getattr(importlib.import_module(today), name)


@pytest.mark.parametrize(
    "version, name",
    [
        pytest.param(*lesson, id=id, marks=pytest.mark.slow if id == QUICK else OTHERS)
        for id, lesson in LESSONS.items()
        if id not in CHANGED_SINCE
    ],
)
def test_a_lesson_runs(version, name, tmp_path, monkeypatch):
    """In a kernel, as for a learner who has the whole of that version's answers."""
    monkeypatch.setenv("LESSONS_PROGRESS_DIR", str(tmp_path))
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(text, metadata={"tags": tags})
            for text, tags in cells(version, name)
        ]
    )
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=900, resources=resources).execute()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "words, says",
    [
        ("-P -m lessons_command.doctor", "Ready"),
        ("-m lessons_command grade --help", "usage: "),
        ("-m lessons_bench.ladder --recorded", "Read limit"),
        ("-m lessons_bench.load --recorded", "python -m tools.bench load"),
        ("-c 'from lessons_command.beside import complete; print(complete)'", "function"),
    ],
)
def test_a_command_of_before_goes_on(words, says, tmp_path):
    run = python(*shlex.split(words), cwd=tmp_path)
    assert run.returncode == 0 and says in run.stdout, run.stdout + run.stderr


@pytest.mark.parametrize(
    "old, new",
    [
        ("copies", "make lab OPEN=no"),
        ("lessons ARGS=01", 'make notebooks ARGS="01"'),
        ("mistakes MISTAKES=mine", "make grade MISTAKES= ARGS='mistakes \"mine\"'"),
        ("bench-host-steps", "make bench NAME=host_steps"),
        ("wheel", "-m tools.wheel"),
        ("lab OPEN=no", "-m lessons_lib.start lab  --only-copy"),
        ("bench NAME=ladder", "-m tools.bench ladder"),
        ("grade MISTAKES= ARGS='draft r g m'", "-m lessons_grading  draft r g m"),
    ],
)
def test_make_goes_on_and_each_new_name_calls_its_command(old, new):
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    # -n shows what it would do
    done = [word for name in READY for word in ("-o", f".venv/{name}")]
    words = ["make", "-n", *done, *shlex.split(old)]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0 and new in run.stdout, run.stdout + run.stderr
