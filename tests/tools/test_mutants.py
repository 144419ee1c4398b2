"""The mutation tool on a small course: its changes, its findings, and that it can continue."""

import subprocess
import sys
import tomllib

import pytest

from lessons_lib.paths import ROOT
from tools.mutants.concerns import Concerns
from tools.mutants.cpp_text import cpp_mutants

RUN = (
    "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); "
    "from tools.mutants.__main__ import main; sys.exit(main(sys.argv[3:], Path(sys.argv[2])))"
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
        "tools/mutants/concerns.toml": TABLE,
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def mutants(course, *words, **options):
    pytest.importorskip("mutmut", reason="python -m tools.mutants installs it")
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


def changes(name: str, body: str) -> set[str]:
    """What a line within a function becomes."""
    if name.endswith(".py"):
        pytest.importorskip("mutmut", reason="python -m tools.mutants installs it")
        from tools.mutants.python_text import python_mutants

        found = python_mutants(name, f"def f(a, b):\n    {body}\n")
    else:
        found = cpp_mutants(name, f"void f(int a) {{\n{body}\n}}\n")
    return {mutant.becomes for mutant in found}


@pytest.mark.parametrize(
    "name, body, expected",
    [
        ("a.py", "x = a <= b", {"x = a < b", "x = None"}),
        ("a.py", "f(a, key=b)", {"f(a, )", "pass"}),
        ("a.py", "return not a", {"return a"}),
        ("a.py", "return f'{a + 1}'", set()),
        ("a.h", "if (a < b) return;", {"if (a <= b) return;", "if (a < b) ;"}),
        ("a.h", "if (ready()) x();", {"if (!(ready())) x();", "if (ready()) ;"}),
        (
            "a.h",
            "return x + 0x10u;",
            {"return x - 0x10u;", "return x + 17u;", "return x + 15u;"},
        ),
        ("a.h", "std::vector<int> x = y<int>(b);  // a < 1", set()),
        ("a.h", 'const char* text = "a + 1";', set()),
    ],
)
def test_a_line_has_small_changes_and_a_text_has_none(name, body, expected):
    assert changes(name, body) == expected


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


def test_a_fault_counts_in_a_module_that_the_tool_imports_too(course):
    """Tests run the copy's module, in which the fault is."""
    (course / "shop").rename(course / "lessons_lib")
    (course / "lessons_lib/prices.py").rename(course / "lessons_lib/paths.py")
    for name in ("tests/test_prices.py", "tools/mutants/concerns.toml"):
        text = (course / name).read_text().replace("shop.prices", "lessons_lib.paths")
        (course / name).write_text(text.replace("shop =", "lessons_lib ="))
    run = mutants(course)
    assert "lessons_lib/paths.py:5 killed" in run.stdout, run.stdout + run.stderr


EXPLAINED = """\
[[mutant]]
file = "shop/prices.py"
function = "same"
was = "return price + 0"
becomes = "return price - 0"
reason = "nothing is nothing"
"""


def test_an_explained_mutant_counts_and_one_that_is_no_more_is_an_error(course):
    (course / "tools/mutants/explained.toml").write_text(EXPLAINED)
    assert "price - 0" not in mutants(course, "--list").stdout
    (course / "shop/prices.py").write_text("\n\n" + SHOP)
    assert mutants(course, "--list").returncode == 0  # other lines may come and go
    (course / "shop/prices.py").write_text(SHOP.replace("price + 0", "price + 1"))
    run = mutants(course)
    assert run.returncode == 2 and "return price - 0" in run.stdout


def test_the_table_names_every_file_and_only_what_is_there():
    concerns = Concerns(ROOT)
    assert [name for name in concerns.names() if not (ROOT / name).exists()] == []
    files = [
        str(path.relative_to(ROOT))
        for folder in (
            "paged_attention",
            "lessons_lib",
            "lessons_grading",
        )
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".h", ".cpp") and path.name != "__init__.py"
    ]
    for file in files:
        assert all((ROOT / test).exists() for test in concerns.tests(file)), file


def test_each_explanation_is_about_lines_that_are_there():
    def occurs(entry) -> bool:
        lines, was = (
            [line.strip() for line in text.splitlines()]
            for text in ((ROOT / entry["file"]).read_text(), entry["was"])
        )
        return any(lines[start : start + len(was)] == was for start in range(len(lines)))

    entries = tomllib.loads((ROOT / "tools/mutants/explained.toml").read_text())["mutant"]
    assert [entry for entry in entries if not occurs(entry)] == []
