"""The notebooks for Colab and Kaggle, and what Binder and Codespaces read."""

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import nbformat
import pytest
import yaml

from lessons_lib.paths import NOTEBOOKS, ROOT
from python_process import python
from tools.notebooks import online

REPOSITORY = "https://github.com/ada/course"
WHEEL = "paged_attention_course-0.1.0-py3-none-any.whl"
COLAB = "https://colab.research.google.com/github/ada/course/blob/online/"


@pytest.fixture
def folder(tmp_path):
    """A folder with a wheel, as far as it is looked at."""
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as archive:
        text = "Name: paged-attention-course\nRequires-Python: >=3.11\n"
        archive.writestr("paged_attention_course-0.1.0.dist-info/METADATA", text)
    return tmp_path


# ---- The copies


def test_each_lesson_has_a_copy_that_begins_with_a_cell_and_whose_links_lead_to_colab(folder):
    written = online.write(folder, REPOSITORY)
    assert [path.name for path in written] == sorted(p.name for p in NOTEBOOKS.glob("*.ipynb"))
    for path in written:
        copy = nbformat.read(path, as_version=4)
        nbformat.validate(copy)
        first, *others = copy.cells
        assert first.cell_type == "code" and WHEEL in first.source
        own = nbformat.read(NOTEBOOKS / path.name, as_version=4).cells
        for cell, before in zip(others, own, strict=True):
            links_to_colab = re.sub(r"\]\((\w+\.ipynb)", rf"]({COLAB}\1", before.source)
            assert cell.source == links_to_colab
            assert cell.get("attachments") == before.get("attachments")


def test_every_place_has_an_address_and_a_badge():
    at = online.addresses(REPOSITORY + ".git", "02_block_tables.ipynb")
    assert at == {
        "Colab": f"{COLAB}02_block_tables.ipynb",
        "Kaggle": "https://kaggle.com/kernels/welcome?src="
        "https://github.com/ada/course/blob/online/02_block_tables.ipynb",
        "Binder": "https://mybinder.org/v2/gh/ada/course/main"
        "?urlpath=lab/tree/my-notebooks/02_block_tables.ipynb",
        "Codespaces": "https://codespaces.new/ada/course",
    }
    assert set(online.IMAGES) == set(at)
    assert online.badges(REPOSITORY).count("[![Open in ") == len(at)


@pytest.mark.parametrize(
    ("repository", "words"),
    [("", "is not known"), ("https://gitlab.com/ada/course", "gitlab.com")],
)
def test_a_repository_that_is_not_on_github_is_refused(repository, words, folder, capsys):
    environment = {"COURSE_REPOSITORY": repository}
    assert online.main([str(folder)], environment) == 1
    error = capsys.readouterr().err
    assert words in error and "COURSE_REPOSITORY=https://github.com/OWNER/NAME" in error
    assert [*folder.glob("*.ipynb")] == []


def test_a_folder_without_a_wheel_says_how_to_make_one(tmp_path, capsys):
    environment = {"COURSE_REPOSITORY": REPOSITORY}
    assert online.main([str(tmp_path)], environment) == 1
    assert "has no wheels" in (error := capsys.readouterr().err)
    assert f"pip wheel --no-deps --wheel-dir {tmp_path} ." in error


# ---- The first cell


def run_cell(tmp_path, pip: str, least=(3, 11)):
    """Runs the first cell, with a pip that is only this text."""
    (tmp_path / "pip").mkdir(exist_ok=True)
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(pip)
    text = "".join(online.first_cell("https://x.org/course.whl", least)["source"])
    return python("-c", text, PYTHONPATH=f"{tmp_path}:{ROOT}")


def test_the_cell_gives_the_wheel_alone_to_pip_and_completes_the_course(tmp_path):
    pip = f"import sys; open({str(tmp_path / 'said')!r}, 'w').write(repr(sys.argv[1:]))"
    run = run_cell(tmp_path, pip)
    assert run.returncode == 0 and run.stderr == ""
    words = ["install", "-q", "--no-deps", "https://x.org/course.whl"]
    assert (tmp_path / "said").read_text() == repr(words)
    assert re.fullmatch(r"The course \S+ is here, with the PyTorch \S+ of .*\n", run.stdout)


def test_the_cell_speaks_plainly_where_pip_fails(tmp_path):
    run = run_cell(
        tmp_path, "import sys; print('no name servers', file=sys.stderr); sys.exit(1)"
    )
    assert run.returncode == 0 and run.stderr == ""
    assert run.stdout.startswith("The course could not be installed: no name servers\n")
    assert "Kaggle: Settings, Turn on internet" in run.stdout


def test_the_cell_speaks_plainly_on_an_old_python(tmp_path):
    run = run_cell(tmp_path, "raise SystemExit('must not be called')", least=(3, 99))
    assert run.returncode == 0 and run.stderr == ""
    assert re.fullmatch(
        r"The course needs Python 3\.99 or newer\. This is 3\.\S+\.\n", run.stdout
    )


def test_the_cell_is_short_and_narrow():
    lines = online.first_cell("X", (3, 11))["source"]
    assert len(lines) <= 20 and max(map(len, lines)) <= 96


# ---- Binder, Codespaces and the workflow


def test_binder_gets_what_the_root_describes_but_for_the_gpu():
    ours, its = (
        yaml.safe_load((ROOT / folder / "environment.yml").read_text())
        for folder in (".", ".binder")
    )
    assert {**its, "dependencies": None} == {**ours, "dependencies": None}
    assert set(its["dependencies"]) < {d for d in ours["dependencies"] if isinstance(d, str)}
    script = ROOT / ".binder" / "postBuild"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    assert "--constraint constraints.txt" in script.read_text()


def test_the_container_opens_the_first_lesson_and_is_set_up_by_make():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    (file,) = container["customizations"]["codespaces"]["openFiles"]
    assert file.startswith("my-notebooks/") and (NOTEBOOKS / Path(file).name).is_file()
    assert container["updateContentCommand"].startswith("make doctor lab OPEN=no")
    python = container["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert python == "${containerWorkspaceFolder}/.venv/bin/python"


def test_the_workflow_pushes_the_branch_that_the_addresses_name():
    text = (ROOT / ".github" / "workflows" / "online.yml").read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    commands = "\n".join(step.get("run", "") for step in job["steps"])
    assert f"--initial-branch {online.BRANCH}\n" in commands
    assert "COURSE_REPOSITORY" in text
    assert "python -m tools.notebooks.online .build/online" in text
    for step in job["steps"]:
        if shutil.which("bash") and "run" in step:
            subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)
