"""The notebooks for Colab and Kaggle, and what Binder and Codespaces read."""

import json
import os
import re
import shutil
import subprocess
import sys
import types
import zipfile
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
import yaml

from lessons_build import online
from lessons_command import beside, doctor
from lessons_lib import whole
from lessons_lib.paths import NOTEBOOKS, ROOT

REPOSITORY = "https://github.com/ada/course"
WHEEL = "paged_attention_course-0.1.0-py3-none-any.whl"
REQUIRES = [*metadata.requires(whole.NAME)]


@pytest.fixture
def folder(tmp_path):
    """A folder with a wheel, as far as it is looked at."""
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as archive:
        text = "Name: paged-attention-course\nRequires-Python: >=3.11\n"
        archive.writestr("paged_attention_course-0.1.0.dist-info/METADATA", text)
    return tmp_path


# ---- The copies


def test_each_lesson_has_a_copy_that_differs_in_its_first_cell_and_links_only(folder):
    written = online.write(folder, REPOSITORY)
    assert [path.name for path in written] == sorted(p.name for p in NOTEBOOKS.glob("*.ipynb"))
    for path in written:
        copy = nbformat.read(path, as_version=4)
        nbformat.validate(copy)
        first, *others = copy.cells
        assert first.cell_type == "code" and WHEEL in first.source
        own = nbformat.read(NOTEBOOKS / path.name, as_version=4).cells
        links = re.compile(r"\]\((https://colab.research.google.com/\S*/)?(\w+\.ipynb)")
        for cell, before in zip(others, own, strict=True):
            assert links.sub(r"](\2", cell.source) == before.source
            assert cell.get("attachments") == before.get("attachments")


def test_links_between_lessons_lead_to_colab(folder):
    online.write(folder, REPOSITORY)
    text = (folder / "08_serve_a_model.ipynb").read_text()
    place = "https://colab.research.google.com/github/ada/course/blob/online/"
    assert f"]({place}glossary.ipynb" in text and "](glossary.ipynb" not in text


def test_every_place_has_an_address_and_a_badge():
    at = online.addresses(REPOSITORY + ".git", "02_block_tables.ipynb")
    assert at == {
        "Colab": "https://colab.research.google.com/github/ada/course/blob/online/"
        "02_block_tables.ipynb",
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
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-c", text]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


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


def test_the_course_has_one_name():
    assert beside.NAME == whole.NAME


def test_the_cell_is_short_and_narrow():
    lines = online.first_cell("X", (3, 11))["source"]
    assert len(lines) <= 20 and max(map(len, lines)) <= 96


# ---- What is installed beside what is there


def here(monkeypatch, **versions):
    """Makes these the versions that are installed; "" for what is not."""
    real = metadata.version

    def version(name):
        found = versions.get(name, real(name))
        if not found:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(beside.metadata, "version", version)


@pytest.fixture
def pip(monkeypatch):
    """What was given to pip, which succeeds: the constraints and the packages."""
    calls = []

    def run(command, **_):
        kept = command.index("--constraint") + 1
        calls.append((open(command[kept]).read().split(), command[kept + 1 :]))
        return types.SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(beside.subprocess, "run", run)
    monkeypatch.setattr(doctor, "doctor", lambda: types.SimpleNamespace(findings=()))
    return calls


def test_what_is_within_the_bounds_is_kept_and_what_is_missing_brought(monkeypatch, pip):
    here(monkeypatch, torch="2.11.0+cu128", transformers="5.17.0", ninja="", tornado="")
    said = []
    assert beside.complete(said.append)
    ((kept, brought),) = pip
    assert brought == ["ninja", "tornado"]
    assert {"torch==2.11.0+cu128", "transformers==5.17.0"} <= set(kept)
    assert said[0].startswith("The course ") and "PyTorch 2.11.0+cu128 of this" in said[0]
    assert "Installed beside it: ninja, tornado." in said[0]


def test_where_everything_is_there_pip_is_not_called(monkeypatch, pip):
    here(monkeypatch, jupyterlab="")  # the page is not JupyterLab's
    assert beside.complete(lambda line: None) and pip == []


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.10.2", "PyTorch 2.10.2 is here, and the course needs one that is >=2.11 and <"),
        ("", "There is no PyTorch here, and the course needs one"),
    ],
)
def test_pytorch_is_never_replaced_without_a_word(monkeypatch, pip, version, words):
    here(monkeypatch, torch=version, ninja="")
    said = []
    assert not beside.complete(said.append) and pip == []
    (bounds,) = (text for text in REQUIRES if re.match("torch[<>=]", text))
    assert said[0].startswith(words) and f'%pip install "{bounds}"' in said[0]
    assert "Kaggle: Run" in said[0] and len(said) == 1


def test_a_pytorch_that_is_newer_than_those_tried_stays(monkeypatch, pip):
    here(monkeypatch, torch="3.1.0+cu140", ninja="")
    said = []
    assert beside.complete(said.append)
    assert "PyTorch 3.1.0+cu140 of this machine, which is newer than any" in said[0]
    ((kept, brought),) = pip
    assert "torch==3.1.0+cu140" in kept and brought == ["ninja"]


def test_an_old_transformers_is_replaced_and_a_session_that_uses_it_restarted(
    monkeypatch, pip
):
    here(monkeypatch, transformers="4.57.6")
    monkeypatch.setitem(sys.modules, "transformers", types.ModuleType("transformers"))
    said = []
    assert not beside.complete(said.append)
    assert [brought for _, brought in pip] == [["transformers<6,>=5.17"]]
    assert said == ["Restart the session: it still uses the old transformers."]


def test_a_pip_that_fails_is_quoted_in_a_sentence(monkeypatch, pip):
    here(monkeypatch, ninja="")
    failed = types.SimpleNamespace(returncode=1, stderr="what\nERROR: No matching ninja\n")
    monkeypatch.setattr(beside.subprocess, "run", lambda *_, **__: failed)
    said = []
    assert not beside.complete(said.append)
    assert said[0].startswith("pip could not install ninja: ERROR: No matching ninja.")


def test_what_completes_the_course_runs_without_what_is_missing():
    """At first not even those packages are there that importing the course's rooms needs: only
    packaging, which the kernel of every notebook has.
    """
    assert any(text.startswith("packaging") for text in metadata.requires("ipykernel"))
    text = "import sys; from lessons_command import beside; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, cwd=ROOT
    )
    rooms = {name.partition(".")[0] for name in run.stdout.split()}
    own = {re.split(r"[<>= ]", text)[0] for text in REQUIRES} - {"packaging"}
    assert "lessons_command" in rooms and not rooms & (own | {"lessons_lib"})


def test_a_missing_compiler_is_named(monkeypatch, pip):
    finding = types.SimpleNamespace(
        name="C++ compiler", needed=True, found="", without_it="no C++", remedy="get g++"
    )
    report = types.SimpleNamespace(findings=(finding,))
    monkeypatch.setattr(doctor, "doctor", lambda: report)
    said = []
    assert not beside.complete(said.append)
    assert said == ["C++ compiler is missing here: no C++. To get it: get g++."]


def test_each_requirement_of_the_course_is_looked_at():
    needs = beside.look(REQUIRES)
    assert not needs.missing and not needs.refused
    own = {re.split(r"[<>= ]", text)[0] for text in REQUIRES if "extra" not in text}
    assert {text.split("==")[0] for text in needs.met} == own - {"jupyterlab"}


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
    assert container["updateContentCommand"].startswith("make doctor copies")
    python = container["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert python == "${containerWorkspaceFolder}/.venv/bin/python"


def test_the_workflow_pushes_the_branch_that_the_addresses_name():
    text = (ROOT / ".github" / "workflows" / "online.yml").read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    commands = "\n".join(step.get("run", "") for step in job["steps"])
    assert f"--initial-branch {online.BRANCH}\n" in commands
    assert (
        "COURSE_REPOSITORY" in text and "python -m lessons_build.online .build/online" in text
    )
    for step in job["steps"]:
        if shutil.which("bash") and "run" in step:
            subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)
