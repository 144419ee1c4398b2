"""The recorded conversation: what lessons show of it, and the command that records one."""

import json

import pytest

from lessons_content.lesson_08.bench import conversation
from lessons_content.lesson_08.bench.conversation import main
from lessons_content.lesson_08.bench.conversation_runs import recorded, table
from lessons_lib.paths import SOLUTIONS
from tiny_checkpoints import save_model_that_speaks


def test_what_is_recorded_is_whole_and_its_system_prompt_lies_in_memory_once():
    (run,) = recorded()
    assert [answer.name for answer in run.answers] == list(conversation.QUESTIONS)
    assert run.system == conversation.SYSTEM
    assert len(run.shared) == 3
    for answer in run.answers:
        assert answer.question == conversation.QUESTIONS[answer.name]
        assert len(answer.blocks) >= -(-answer.num_prompt // 16)
        assert run.shared < set(answer.blocks)


def test_the_summary_ends_with_the_wish():
    text = (SOLUTIONS / "summary.py").read_text(encoding="utf-8")
    words = " ".join(line.removeprefix("# ").removeprefix("> ") for line in text.splitlines())
    wish = recorded()[0].wish.split()
    assert words.split()[-len(wish) :] == wish


def test_a_conversation_is_recorded_and_printed(tmp_path, capsys):
    folder, kept = tmp_path / "speaks", tmp_path / "kept"
    save_model_that_speaks(folder)
    config = folder / "config.json"  # a byte is a token there, so the system prompt is long
    settings = json.loads(config.read_text()) | {"max_position_embeddings": 512}
    config.write_text(json.dumps(settings))
    assert main(["--model", str(folder), "--record", "--folder", str(kept)]) == 0
    printed = capsys.readouterr().out
    (run,) = recorded(kept)
    assert run.command == f"python -m tools.bench conversation --model {folder}"
    assert run.wish and table(run) in printed


def test_without_the_model_it_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LESSONS_BUILD_DIR", str(tmp_path))
    assert main([]) == 1
    assert "--download" in capsys.readouterr().err


@pytest.mark.parametrize("lesson", ["00_start_here", "08_serve_a_model"])
def test_lessons_show_it(lesson):
    notebook = (SOLUTIONS / f"{lesson}.ipynb").read_text(encoding="utf-8")
    assert all(answer.answer in notebook for answer in recorded()[0].answers)
