"""The small model: its tasks have the right answers, and it gives them."""

import json

import numpy as np
import pytest
import torch
from transformers import Qwen3Config

from paged_attention.engine.checkpoint import SMALL_MODEL, load_model
from paged_attention.tiny_qwen3 import train
from paged_attention.tiny_qwen3.tasks import (
    CHARACTERS,
    TASKS,
    decode,
    encode,
)
from paged_attention.tiny_qwen3.train import (
    batch_of,
    exact_match,
    examples_for,
)
from paged_attention.tiny_qwen3.wider import with_head_size

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_text_and_its_tokens():
    assert (
        decode(encode("Cq7b>")) == "Cq7b>" and max(encode(CHARACTERS)) == len(CHARACTERS) - 1
    )
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
    value_of = {
        triple[0]: triple[1:]
        for triple in (pairs.replace(".", "")[i : i + 3] for i in range(0, len(pairs), 3))
        if triple
    }
    assert answer == "".join(key + value_of[key] for key in wanted)


@pytest.mark.parametrize("size, num_pairs, num_symbols", [(0, 2, 2), (1, 24, 36)])
def test_a_size_says_how_much_is_in_a_prompt(size, num_pairs, num_symbols):
    random = np.random.default_rng(1)
    prompts = [TASKS["recall"](random, size)[0] for _ in range(50)]
    assert {sum(map(str.isdigit, prompt)) for prompt in prompts} == {2 * num_pairs}
    assert any(prompt[1] == "." for prompt in prompts) == (size > 0)  # dots before any pair
    assert len(TASKS["copy"](random, size)[1]) == num_symbols


def test_only_the_answer_and_the_end_are_trained():
    tokens, targets = batch_of([("Cab>", "ab"), ("Sba>", "ab")], "cpu")
    assert tokens.shape == targets.shape == (2, 7)
    assert targets[0].tolist() == [-100] * 3 + encode("ab$") + [-100]


@pytest.mark.parametrize("task", TASKS)
def test_examples_are_drawn_by_their_seed(task):
    assert examples_for(task, 1, 5) == examples_for(task, 1, 5) != examples_for(task, 2, 5)
    assert len({len(prompt) for prompt, _ in examples_for(task, 1, 20)}) > 5  # of any size
    lengths = {len(prompt) for prompt, _ in examples_for(task, 1, 20, 0.5)}
    assert len(lengths) == 1 and len(examples_for(task, 1, 20, 0.5)) == 20
    if task == "recall":
        assert examples_for(task, 1, 1, 0.5)[0][0].count(".") == 115


def test_a_match_is_every_token_of_an_answer_and_its_end():
    right = examples_for("copy", 1, 150, 0.1)  # more than a batch
    (first, words), *others = right
    wrong = [(first, "x" + words[1:]), (first, words[:-1] + "x"), (first, words[:-1])]
    assert exact_match(load_model(), others) == 1
    assert exact_match(load_model(), wrong + others[2:]) == 147 / 150


def test_the_configuration_is_that_of_the_saved_model():
    saved = Qwen3Config.from_pretrained(SMALL_MODEL).to_dict()
    aside = {"architectures", "dtype", "torch_dtype", "transformers_version"}
    differs = {name for name, value in train.CONFIG.to_dict().items() if saved[name] != value}
    assert differs <= aside


def test_training_moves_every_weight_that_the_seed_gives(capsys):
    model, log = train.train(2, 4, 1e-2, 1, "cpu", num_examples=2)
    torch.manual_seed(1)
    untrained = train.Qwen3ForCausalLM(train.CONFIG)
    for (name, new), old in zip(model.named_parameters(), untrained.parameters(), strict=True):
        assert not torch.equal(new, old), name
        assert (new - old).abs().max() < 0.1, name
    (entry,) = log  # at the end
    assert json.loads(capsys.readouterr().out.splitlines()[0]) == entry
    assert entry["step"] == 2 and 0 < entry["loss"] < 20
    assert all(0 <= entry[task] <= 1 for task in TASKS)


def test_training_is_written_down(tmp_path, capsys):
    sizes = "--steps 1 --batch-size 8 --learning-rate 0.01 --examples 2".split()  # noqa: SIM905
    train.main([str(tmp_path / "out"), *sizes, "--seed", "4", "--device", "cpu"])
    summary = json.loads((tmp_path / "out/training.json").read_text(encoding="utf-8"))
    saved = load_model(tmp_path / "out")
    assert summary["run"] == dict(steps=1, batch_size=8, learning_rate=0.01, seed=4)
    assert summary["parameters"] == saved.num_parameters() and "CPU" in summary["machine"]
    assert Qwen3Config.from_pretrained(tmp_path / "out").dtype == torch.bfloat16
    for kind in ("exact_match_longest", "exact_match_any_length"):
        assert set(summary[kind]) == set(TASKS)
    assert [entry["step"] for entry in summary.pop("log")] == [1]
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == summary


@pytest.mark.parametrize("times", [1, 2, 3])
def test_wider_heads_say_the_same(times):
    model = load_model()
    wide = with_head_size(model, 32 * times)
    tokens = torch.tensor([encode("Ka17..q42...z93?zq>z93")])
    assert (
        wide.config.head_dim == 32 * times
        and model.config.head_dim == 32
        and not wide.training
    )
    assert wide.model.layers[0].self_attn.q_proj.weight.shape == (4 * 32 * times, 128)
    with torch.no_grad():
        torch.testing.assert_close(
            wide(tokens).logits, model(tokens).logits, rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("head_size", [0, 16, 33, 48, -32])
def test_heads_that_are_no_multiple_are_refused(head_size):
    with pytest.raises(ValueError, match=f"a multiple of the model's 32, not {head_size}"):
        with_head_size(load_model(), head_size)


def test_the_model_is_small_and_what_it_learned_is_written_down():
    assert sum(file.stat().st_size for file in SMALL_MODEL.glob("*.safetensors")) <= 2_000_000
    recorded = json.loads((SMALL_MODEL / "training.json").read_text(encoding="utf-8"))
    assert recorded["parameters"] == load_model().num_parameters()
    for kind in ("exact_match_longest", "exact_match_any_length"):
        assert set(recorded[kind]) == set(TASKS) and min(recorded[kind].values()) >= 0.99


@pytest.mark.parametrize("task", TASKS)
def test_it_answers_prompts_that_it_has_not_seen(task):
    assert exact_match(load_model(), examples_for(task, 2_026, 128, 1.0)) >= 0.99


@pytest.mark.slow(nightly=True)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("size", [1.0, None])
def test_it_answers_a_thousand_prompts(task, size):
    assert exact_match(load_model(), examples_for(task, 2_027, 1_024, size)) >= 0.99
