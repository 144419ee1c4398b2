"""The small model: its tasks have the right answers, and it gives them."""

import json

import numpy as np
import pytest

from paged_attention.engine.checkpoint import SMALL_MODEL, load_model
from paged_attention.tiny_qwen3.tasks import CHARACTERS, TASKS, decode, encode, recall
from paged_attention.tiny_qwen3.train import batch_of, exact_match, examples_for


def test_a_text_and_its_tokens():
    assert decode(encode("Cq7b>")) == "Cq7b>" and max(encode(CHARACTERS)) == len(CHARACTERS) - 1
    with pytest.raises(ValueError, match="not 'Zä'"):
        encode("Zqä")


@pytest.mark.parametrize("size", [0, 0.3, 1])
def test_each_answer_is_what_the_prompt_asks_for(size):
    random = np.random.default_rng(0)
    prompt, answer = TASKS["copy"](random, size)
    assert prompt == f"C{answer}>"
    prompt, answer = TASKS["reverse"](random, size)
    assert prompt == f"V{answer[::-1]}>"
    prompt, answer = TASKS["sort"](random, size)
    assert answer == "".join(sorted(prompt[1:-1]))
    prompt, answer = TASKS["recall"](random, size)
    pairs, wanted = prompt[1:-1].split("?")
    value_of = {triple[0]: triple[1:] for triple in (pairs.replace(".", "")[i : i + 3] for i in range(0, len(pairs), 3)) if triple}
    assert answer == "".join(key + value_of[key] for key in wanted)


def test_recall_is_over_a_long_context():
    prompt, _ = recall(np.random.default_rng(0), 1.0, 230)
    assert len(prompt) == 1 + 24 * 3 + 230 + 1 + 8 + 1


def test_only_the_answer_and_the_end_are_trained():
    tokens, targets = batch_of([("Cab>", "ab"), ("Sba>", "ab")], "cpu")
    assert tokens.shape == targets.shape == (2, 7)
    assert targets[0].tolist() == [-100] * 3 + encode("ab$") + [-100]


def test_the_model_is_small_and_what_it_learned_is_written_down():
    assert sum(file.stat().st_size for file in SMALL_MODEL.glob("*.safetensors")) <= 2_000_000
    recorded = json.loads((SMALL_MODEL / "training.json").read_text(encoding="utf-8"))
    assert recorded["parameters"] == load_model().num_parameters()
    for kind in ("exact_match_longest", "exact_match_any_length"):
        assert set(recorded[kind]) == set(TASKS) and min(recorded[kind].values()) >= 0.99


@pytest.mark.parametrize("task", TASKS)
def test_it_answers_prompts_that_it_has_not_seen(task):
    assert exact_match(load_model(), examples_for(task, 2_026, 128, 1.0)) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("size", [1.0, None])
def test_it_answers_a_thousand_prompts(task, size):
    assert exact_match(load_model(), examples_for(task, 2_027, 1_024, size)) >= 0.99
