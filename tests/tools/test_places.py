"""The tables of places in other engines: their rows, the lessons that show them, and the
command that looks whether each place is there.
"""

import subprocess

import nbformat
import pytest

from lessons_lib.paths import NOTEBOOKS, SOLUTIONS
from lessons_lib.source.include import SourceError
from lessons_lib.source.vllm_places import put_into, read_rows, table
from tools.bench import engine_peers_setup, flashinfer_setup
from tools.notebooks.vllm_checkouts import main

ROWS = read_rows()
LESSONS = [f"{number:02}" for number in range(1, 12)]  # in 00 nothing is built

TOML = """
[projects.Peer]
release = "1.2"
url = "https://example.org/peer"
commit = "{commit}"

[projects.Other]
release = "2"
url = "https://example.org/other"
commit = "{commit}"

[[lessons.01]]
wrote = "`allocate`"
places = [{places}]
otherwise = "A queue."
"""


def rows_file(folder, *places: str, commit: str = "a" * 40):
    file = folder / "places.toml"
    quoted = ", ".join(f'"{place}"' for place in places)
    file.write_text(TOML.format(commit=commit, places=quoted))
    return file


@pytest.mark.parametrize("lesson", LESSONS)
def test_each_lesson_has_a_few_rows_and_names_the_engines(lesson):
    rows = [row for row in ROWS if row.lesson == lesson]
    names = {place.project.name for row in rows for place in row.places}
    assert 2 <= len(rows) <= 5
    assert "vLLM" in names and names & {"nano-vllm", "Mini-SGLang"}
    assert "FlashInfer" in names or lesson < "06"


@pytest.mark.parametrize("lesson", LESSONS)
@pytest.mark.parametrize("folder", [SOLUTIONS, NOTEBOOKS], ids=lambda folder: folder.name)
def test_both_notebooks_end_with_the_lessons_table(folder, lesson):
    (path,) = folder.glob(f"{lesson}_*.ipynb")
    closing = nbformat.read(path, as_version=4).cells[-1].source
    expected = table(row for row in ROWS if row.lesson == lesson)
    assert f"\n## Where this is in vLLM\n\n{expected}\n\n## Sources\n" in closing


def test_a_table_has_the_release_each_link_leads_to_the_commit_and_all_underscores_stay(
    tmp_path,
):
    file = rows_file(tmp_path, "Peer a/__init__.py Pool.take", "Peer b.cu take_kernel")
    link = f"https://example.org/peer/blob/{'a' * 40}"
    assert table(read_rows(file)).splitlines() == [
        "| you wrote | in Peer 1.2, and what differs |",
        "|---|---|",
        rf"| `allocate` | Peer: [a/\_\_init\_\_.py]({link}/a/__init__.py) `Pool.take`<br>"
        f"Peer: [b.cu]({link}/b.cu) `take_kernel`<br>A queue. |",
    ]


def test_the_versions_are_those_that_we_measured():
    projects = {place.project.name: place.project for row in ROWS for place in row.places}
    for name, source in engine_peers_setup.SOURCES.items():
        assert (projects[name].url, projects[name].commit) == (source.url, source.commit)
        assert projects[name].commit.startswith(projects[name].release)
    assert projects["FlashInfer"].release == flashinfer_setup.VERSION


ROW = r"places\.toml, lesson 01, row 1: "


@pytest.mark.parametrize(
    "places, commit, words",
    [
        *(
            ([place], "a" * 40, rf"{ROW}.* is not a project")
            for place in ("Peer /etc/a.py Pool", "Peer ../a.py Pool", "Peer a.py", "a.py Pool")
        ),
        (["Nobody a.py Pool"], "a" * 40, rf"{ROW}.* is not a project"),
        ([], "a" * 40, f"{ROW}a row has"),
        (["Peer a.py Pool"], "v1.2", "Peer: a commit has 40 digits"),
    ],
)
def test_a_table_that_is_not_well_formed_is_refused_with_its_row(
    tmp_path, places, commit, words
):
    with pytest.raises(SourceError, match=words):
        read_rows(rows_file(tmp_path, *places, commit=commit))


def test_a_marker_in_a_lesson_without_rows_is_refused():
    with pytest.raises(SourceError, match="no rows for this lesson"):
        put_into("## Where\n\nPLACES", "00_start_here")


PYTHON = """
from other import Imported


class Pool:
    def take(self):
        helper()

    async def give(self):
        pass


def helper():
    pass
"""
CUDA = """
// void commented(int) {}
void declared(int n);
struct Params;
template <typename T>
struct Pool final {
  int size(bool (*test)(int)) const { return called(size); }
};
template <typename T>
__global__ void __launch_bounds__(128) kernel(const T* in, T (&out)[4]) {
  if (called(in)) { declared(1); }
}
"""


def git(folder, *words: str) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *author, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path):
    """A clone that has gone on since its commit: the files are not there any more."""
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "pool.py").write_text(PYTHON)
    (folder / "pool.cu").write_text(CUDA)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    git(folder, "rm", "--quiet", "pool.py", "pool.cu")
    git(folder, "commit", "--quiet", "-m", "second")
    return folder


def look(tmp_path, capsys, folder, *places: str, commit: str = "a" * 40):
    """What the command returns and prints: (status, output, errors)."""
    file = rows_file(tmp_path, *places, commit=commit)
    status = main([f"Peer={folder}", "--places", str(file)])
    return status, *capsys.readouterr()


@pytest.mark.parametrize(
    "place, fault",
    [
        ("pool.py Pool", ""),
        ("pool.py Pool.take", ""),
        ("pool.py Pool.give", ""),
        ("pool.py helper", ""),
        ("pool.py take", "defines no take in pool.py"),
        ("pool.py Pool.helper", "defines no Pool.helper in pool.py"),
        ("pool.py Imported", "defines no Imported in pool.py"),
        ("pool.cu Pool", ""),
        ("pool.cu size", ""),
        ("pool.cu kernel", ""),
        ("pool.cu Params", "defines no Params in pool.cu"),
        ("pool.cu declared", "defines no declared in pool.cu"),
        ("pool.cu called", "defines no called in pool.cu"),
        ("pool.cu commented", "defines no commented in pool.cu"),
        ("cool.py Pool", "has no cool.py"),
    ],
)
def test_a_file_or_a_definition_that_is_missing_at_the_commit_is_named_with_its_row(
    tmp_path, capsys, clone, place, fault
):
    commit = git(clone, "rev-parse", "HEAD~")
    status, output, errors = look(tmp_path, capsys, clone, f"Peer {place}", commit=commit)
    assert errors == (f"lesson 01, `allocate`: Peer 1.2 {fault}\n" if fault else "")
    assert status == (1 if fault else 0)
    assert output == f"Peer 1.2: looked at 1\nmissing: {status}\n"


def test_the_source_archive_of_the_release_serves_as_well(tmp_path, capsys):
    (tmp_path / "pool.py").write_text(PYTHON)
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: peer\nVersion: 1.2\n")
    assert look(tmp_path, capsys, tmp_path, "Peer pool.py Pool.take")[0] == 0
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: peer\nVersion: 1.2.1\n")
    status, _, errors = look(tmp_path, capsys, tmp_path, "Peer pool.py Pool.take")
    assert status == 2 and "nor the source archive of Peer 1.2" in errors


def test_a_clone_without_the_commit_and_an_unknown_project_are_told(tmp_path, capsys, clone):
    status, _, errors = look(tmp_path, capsys, clone, "Peer pool.py Pool")
    assert status == 2 and errors == (
        f"{clone} has no commit {'a' * 40}: fetch Peer 1.2 from https://example.org/peer\n"
    )
    assert main(["vllm=."]) == 2
    assert "vllm is not PROJECT=FOLDER, of vLLM, nano-vllm" in capsys.readouterr().err


def test_a_project_without_a_folder_is_not_looked_at_and_the_output_says_so(
    tmp_path, capsys, clone
):
    places, commit = ("Peer pool.py Pool", "Other a.py A"), git(clone, "rev-parse", "HEAD~")
    assert look(tmp_path, capsys, clone, *places, commit=commit) == (
        0,
        "Peer 1.2: looked at 1\nOther 2: not looked at, without a folder: 1\nmissing: 0\n",
        "",
    )
