"""Small faults in our answers: `python -m tools.mutants.answers`."""

import pytest

from lessons_lib import checks
from tools.mutants import answers
from tools.mutants.kept import Explained
from tools.mutants.mutant import replaced

OURS = answers.our_answers()


def outcome(exercise_id: str, old: str, new: str, tmp_path) -> str:
    """What becomes of our answer with `new` for `old`."""
    exercise, text = checks.find(exercise_id), OURS[exercise_id]
    start = text.index(old)
    mutant = replaced(exercise_id, text, "", start, start + len(old), new)
    results = answers.Results(tmp_path / "results.jsonl")
    answers.try_all(exercise, [mutant], Explained(answers.ROOT, "answers.toml"), results)
    assert answers.Results(tmp_path / "results.jsonl").find(exercise, mutant)
    return results.find(exercise, mutant)


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ("// block_size", "// (block_size + 1)", "refused"),
        ("return (", "while True:\n        pass\n    return (", "refused"),
        ("return (", "return (0 * num_tokens + ", "passes"),
        ("return (", "import os\n    os._exit(3)\n    return (", "refused"),
    ],
    ids=["another result", "no end", "another spelling", "the end of its process"],
)
def test_a_mutant_is_refused_or_passes(old, new, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(answers, "LIMIT", 3.0)
    assert outcome("0.1", old, new, tmp_path) == expected


@pytest.mark.slow
def test_a_mutant_that_does_not_compile_does_not_count(tmp_path):
    assert outcome("6.2", "int64_t slot", "int65_t slot", tmp_path) == "not built"
    assert outcome("6.2", "+ token %", "- token %", tmp_path) == "refused"


def test_a_result_counts_for_the_check_that_it_was_made_with(tmp_path, monkeypatch):
    exercise = checks.find("0.1")
    mutant = replaced("0.1", OURS["0.1"], "", 0, 0, " ")
    results = answers.Results(tmp_path / "results.jsonl")
    results.add(exercise, mutant, "refused")
    assert results.find(exercise, mutant) == "refused"
    monkeypatch.setattr(exercise.mistakes, "made_with", "another")
    assert results.find(exercise, mutant) is None


def test_each_explanation_fits_a_mutant_and_gives_a_reason():
    pytest.importorskip("mutmut", reason="python -m tools.mutants installs it")
    explained = Explained(answers.ROOT, "answers.toml")
    named = {place[0] for place in explained.reasons}
    mutants = [mutant for id in named for mutant in answers.mutants_of(checks.find(id))]
    assert explained.unused(mutants) == []
    assert all(len(reason.split()) > 3 for reason in explained.reasons.values())


def test_the_table_is_of_the_mutants_that_there_are():
    pytest.importorskip("mutmut", reason="python -m tools.mutants installs it")
    lines = answers.TABLE.read_text(encoding="utf-8").splitlines()[1:]
    counts = {line.split()[0]: int(line.split()[1]) for line in lines}
    found = {id: len(answers.mutants_of(checks.find(id))) for id in OURS}
    assert counts == found | {"all": sum(found.values())}
