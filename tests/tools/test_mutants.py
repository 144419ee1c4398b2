"""The mutation tool on a small course: its changes, its findings, and that it can continue."""

import json
import os
import subprocess
import sys
import tomllib

import pytest

from lessons_lib.paths import ROOT
from mutants.concerns import Concerns
from mutants.cpp_text import cpp_mutants
from mutants.kept import Explained

RUN = (
    "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); "
    "from mutants.__main__ import main; sys.exit(main(sys.argv[3:], Path(sys.argv[2])))"
)

SHOP = '''\
"""What things cost."""


def total(one: int, other: int) -> int:
    return one + other


def is_much(price: int) -> bool:
    return price >= 10


def same(price: int) -> int:
    return price + 0
'''
TESTS = """\
from shop.prices import is_much, same, total

def test_total():
    assert total(2, 3) == 5

def test_is_much():
    assert is_much(12) and not is_much(3)

def test_same():
    assert same(3) == 3
"""
TABLE = """\
patience = 1
[tests]
shop = ["tests/test_prices.py"]
"""


@pytest.fixture
def course(tmp_path):
    """A repository with one module and its tests."""
    for name, text in {
        "shop/__init__.py": "",
        "shop/prices.py": SHOP,
        "tests/test_prices.py": TESTS,
        ".gitignore": ".build\n",
        "tests/mutants/concerns.toml": TABLE,
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def mutants(course, *words, **options):
    pytest.importorskip("mutmut", reason="make mutants installs it")
    command = [
        sys.executable,
        "-c",
        RUN,
        str(ROOT / "tests"),
        str(course),
        "--jobs",
        "1",
        *words,
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=course, **options)


def python_mutants(text):
    pytest.importorskip("mutmut", reason="make mutants installs it")
    from mutants.python_text import python_mutants

    return [
        (mutant.function, mutant.was, mutant.becomes)
        for mutant in python_mutants("a.py", text)
    ]


def changes(text: str) -> set[str]:
    return {becomes for _, _, becomes in python_mutants(text)}


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x = a <= b", {"x = a < b", "x = None"}),
        ("return a + b", {"return a - b"}),
        ("return 7", {"return 8", "return 6"}),
        ("return not a", {"return a"}),
        ("return a and b", {"return a or b"}),
        ("f(a, key=b)", {"f(a, )", "pass"}),
        ("return True", {"return False"}),
        ("raise ValueError('x' + 1)", {"pass"}),
        ("return f'{a + 1}'", set()),
        ("'''A docstring: 1 + 1.'''", set()),
    ],
)
def test_small_changes_to_python(text, expected):
    lines = changes(f"def f(a, b):\n    {text}\n")
    assert lines == expected


def cpp_changes(body: str) -> set[str]:
    return {mutant.becomes for mutant in cpp_mutants("a.h", f"void f(int a) {{\n{body}\n}}\n")}


@pytest.mark.parametrize(
    "body, expected",
    [
        ("if (a < b) return;", {"if (a <= b) return;", "if (a < b) ;"}),
        ("if (ready()) x();", {"if (!(ready())) x();", "if (ready()) ;"}),
        (
            "if (!ready) return 1;",
            {"if (ready) return 1;", "if (!ready) return 2;", "if (!ready) return 0;"},
        ),
        ("a->count += b && c;", {"a->count -= b && c;", "a->count += b || c;", ";"}),
        ("std::vector<int> x = y<int>(b);  // a < 1", set()),
        ('const char* text = "a + 1";', set()),
        ("#define LIMIT 3 + 4", set()),
        ("return x + 0x10u;", {"return x - 0x10u;", "return x + 17u;", "return x + 15u;"}),
        ("for (Thread& t : threads) t.state = ready;", {"for (Thread& t : threads) ;"}),
        ("failed = true;", {"failed = false;", ";"}),
        ("++n;", {"--n;", ";"}),
        ("Thread& gone = *found;", set()),
    ],
)
def test_small_changes_to_cpp(body, expected):
    assert cpp_changes(body) == expected


def test_a_survivor_is_listed_and_the_killed_are_counted(course):
    run = mutants(course)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "shop/prices.py:5 killed" in run.stdout
    listed = mutants(course, "--list").stdout
    assert (
        "shop/prices.py:9 in is_much\n  - return price >= 10\n  + return price > 10\n"
        in listed
    )
    # 2 of 6 are killed
    assert "return price - 0" in listed and "one - other" not in listed and "33.3%" in listed
    assert (course / "shop/prices.py").read_text() == SHOP


def test_a_loop_without_end_is_killed_by_its_processor_time(course):
    (course / "shop/prices.py").write_text(
        "def count(n):\n    k = 0\n    while k < n:\n        k += 1\n    return k\n"
    )
    test = (
        "from shop.prices import count\n\n"
        "def test_count():\n"
        "    assert count(3) == 3 and count(0) == 0\n"
    )
    (course / "tests/test_prices.py").write_text(test)
    run = mutants(course)
    assert run.returncode == 0 and "SIGXCPU" in run.stdout, run.stdout + run.stderr


def test_what_is_known_is_not_run_again_unless_its_test_changed(course):
    mutants(course)
    results = course / ".build/mutants/results.jsonl"
    known = len(results.read_text().splitlines())
    mutants(course)
    assert len(results.read_text().splitlines()) == known
    survived = sum(
        json.loads(line)["outcome"] == "survived" for line in results.read_text().splitlines()
    )
    tests = course / "tests/test_prices.py"
    tests.write_text(TESTS + "\ndef test_just_as_much():\n    assert is_much(10)\n")
    run = mutants(course)
    assert "prices.py:9 killed" in run.stdout
    # those that were killed still are
    assert len(results.read_text().splitlines()) == known + survived
    tests.write_text(tests.read_text().replace("assert same(3) == 3", "assert same(3)"))
    # what killed it is not what it was
    assert "prices.py:13 survived" in mutants(course).stdout


EXPLAINED = """\
[[mutant]]
file = "shop/prices.py"
function = "same"
was = "return price + 0"
becomes = "return price - 0"
reason = "nothing is nothing"
"""


def test_an_explained_mutant_counts_and_one_that_is_no_more_is_an_error(course):
    (course / "tests/mutants/explained.toml").write_text(EXPLAINED)
    assert "price - 0" not in mutants(course, "--list").stdout
    (course / "shop/prices.py").write_text("\n\n" + SHOP)
    assert mutants(course, "--list").returncode == 0  # other lines may come and go
    (course / "shop/prices.py").write_text(SHOP.replace("price + 0", "price + 1"))
    run = mutants(course)
    assert run.returncode == 2 and "return price - 0" in run.stdout


def test_a_sample_is_the_same_for_the_same_seed(course):
    def sampled(seed):
        mutants(course, "--sample", "3", "--seed", seed, "--fresh")
        lines = (course / ".build/mutants/results.jsonl").read_text().splitlines()[-3:]
        return [json.loads(line)["mutant"] for line in lines]

    assert sampled("1") == sampled("1") != sampled("2")


def test_tests_that_fail_without_a_fault_are_an_error(course):
    (course / "tests/test_prices.py").write_text("def test_wrong():\n    assert False\n")
    run = mutants(course)
    assert (
        run.returncode == 2 and "must pass first" in run.stdout and "test_wrong" in run.stdout
    )


def test_the_table_names_every_file_and_only_what_is_there():
    concerns = Concerns(ROOT)
    assert [name for name in concerns.names() if not (ROOT / name).exists()] == []
    files = [
        str(path.relative_to(ROOT))
        for folder in (
            "paged_attention",
            "lessons_lib",
            "lessons_processes",
            "lessons_grading",
            "lessons_guide",
            "lessons_command",
        )
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".h", ".cpp") and path.name != "__init__.py"
    ]
    assert [file for file in files if not _has_tests(concerns, file)] == []


def _has_tests(concerns, file) -> bool:
    try:
        return all(os.path.exists(ROOT / test) for test in concerns.tests(file))
    except KeyError:
        return False


def test_each_explanation_fits_a_mutant_and_gives_a_reason():
    from mutants.texts import mutants_of

    explained = Explained(ROOT)
    files = {place[0] for place in explained.reasons}
    if any(file.endswith(".py") for file in files):
        pytest.importorskip("mutmut", reason="make mutants installs it")
    assert (
        explained.unused([mutant for file in files for mutant in mutants_of(ROOT, file)]) == []
    )
    assert all(len(reason.split()) > 3 for reason in explained.reasons.values())


def test_each_explanation_is_about_lines_that_are_there():
    def occurs(entry) -> bool:
        lines, was = (
            [line.strip() for line in text.splitlines()]
            for text in ((ROOT / entry["file"]).read_text(), entry["was"])
        )
        return any(lines[start : start + len(was)] == was for start in range(len(lines)))

    entries = tomllib.loads((ROOT / "tests/mutants/explained.toml").read_text())["mutant"]
    assert [entry for entry in entries if not occurs(entry)] == []
