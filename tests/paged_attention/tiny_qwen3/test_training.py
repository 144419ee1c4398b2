"""How the small model is trained, on stand-ins for the model and its optimizers."""

import json
from types import SimpleNamespace

import pytest
import torch
from transformers import Qwen3Config

from paged_attention.engine.checkpoint import SMALL_MODEL
from paged_attention.tiny_qwen3 import train

FOUR = ["recall", "copy", "reverse", "sort"]


class Small(torch.nn.Module):
    """An embedding, a matrix and a vector, with large gradients."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(len(train.CHARACTERS), 4)
        self.matrix = torch.nn.Linear(4, len(train.CHARACTERS), bias=False)
        self.vector = torch.nn.Parameter(torch.full((4,), 50.0))

    def forward(self, tokens):
        return SimpleNamespace(logits=self.matrix(self.embedding(tokens) * self.vector))


class Optimizer:
    """Keeps its settings, and the rate of each step with the length of the gradient."""

    made: list = []

    def __init__(self, kind, weights, settings):
        self.kind, self.weights, self.settings = kind, weights, settings
        self.param_groups, self.steps, self.fresh = [{}], [], False
        Optimizer.made.append(self)

    def zero_grad(self):
        for weight in self.weights:
            weight.grad = None
        self.fresh = True

    def step(self):
        norm = sum(each.grad.norm() ** 2 for one in Optimizer.made for each in one.weights)
        assert self.fresh
        self.steps.append((self.param_groups[0]["lr"], float(norm) ** 0.5))
        self.fresh = False


class Numbers:
    """A generator that draws the same number each time."""

    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number

    def uniform(self, low, high):
        assert (low, high) == (0.4, 1)
        return 0.5


@pytest.fixture
def run(monkeypatch):
    """Trains a stand-in; `run.sizes` has the sizes of the prompts, as (task, size)."""
    asked = SimpleNamespace(sizes=[], seeds=[], models=[], measured=[], clock=iter(()))
    Optimizer.made = []

    def task(name):
        def example(random, size):
            asked.sizes.append((name, size))
            return "C7>", "7"

        return example

    def model(config):
        assert config is train.CONFIG
        asked.models.append(Small())
        return asked.models[-1]

    def examples(*words):
        asked.measured.append(words)
        return words[0]

    def optimizer(kind):
        return lambda weights, **settings: Optimizer(kind, weights, settings)

    def trained(steps, batch_size=4, number=0.5):
        def generator(seed):
            asked.seeds.append(seed)
            return Numbers(number)

        monkeypatch.setattr(train.np.random, "default_rng", generator)
        return train.train(steps, batch_size, 0.1, 7, "cpu")

    monkeypatch.setattr(train, "TASKS", {name: task(name) for name in FOUR})
    monkeypatch.setattr(train, "Qwen3ForCausalLM", model)
    monkeypatch.setattr(train, "examples_for", examples)
    monkeypatch.setattr(train, "exact_match", lambda model, name: f"share of {name}")
    monkeypatch.setattr(torch.optim, "AdamW", optimizer("AdamW"))
    monkeypatch.setattr(torch.optim, "Muon", optimizer("Muon"))
    asked.train = trained
    return asked


def test_the_configuration_is_that_of_the_saved_model():
    saved = Qwen3Config.from_pretrained(SMALL_MODEL).to_dict()
    aside = {"architectures", "dtype", "torch_dtype", "transformers_version"}
    mine = {name: value for name, value in train.CONFIG.to_dict().items() if name not in aside}
    assert mine == {name: value for name, value in saved.items() if name not in aside}


def test_muon_has_the_matrices_and_adamw_the_rest(run):
    model, _ = run.train(1)
    adamw, muon = Optimizer.made
    assert model is run.models[0]
    assert [id(each) for each in muon.weights] == [id(model.matrix.weight)]
    others = {id(model.embedding.weight), id(model.vector)}
    assert {id(each) for each in adamw.weights} == others and len(adamw.weights) == 2
    assert adamw.kind == "AdamW"
    assert adamw.settings == {"betas": (0.9, 0.98), "weight_decay": 0.01}
    assert muon.settings == {
        "momentum": 0.95,
        "weight_decay": 0.01,
        "adjust_lr_fn": "match_rms_adamw",
    }


def test_every_step_has_its_rate_and_a_gradient_of_length_1_at_most(run):
    run.train(10)
    rates = [0.1 * train.warm_up_and_decay(step, step / 10) for step in range(10)]
    for optimizer in Optimizer.made:
        assert [rate for rate, _ in optimizer.steps] == pytest.approx(rates)
        assert [norm for _, norm in optimizer.steps] == pytest.approx([1.0] * 10, rel=1e-3)


def test_the_prompts_grow_until_two_fifths_are_done(run):
    """Each is drawn up to a size that grows, and made 0.4 to 1 times as long."""
    run.train(10, number=0.3)
    sizes = [size for _, size in run.sizes[::4]]
    share = [0.3, 0.55, 0.8, *[1.0] * 7]
    assert sizes == pytest.approx([0.3 * each * 0.5 for each in share])


def test_after_that_three_in_ten_have_the_full_size(run):
    run.train(10, number=0.29)
    sizes = [size for _, size in run.sizes[::4]]
    assert sizes[3:5] == pytest.approx([0.29 * 0.5] * 2)
    assert sizes[5:] == [0.5] * 5


def test_a_batch_has_as_many_of_each_task(run):
    run.train(1, batch_size=11)
    assert [name for name, _ in run.sizes] == FOUR * 2


def test_the_seed_decides_the_weights_and_the_prompts(run):
    first, _ = run.train(1)
    again, _ = run.train(1)
    assert run.seeds == [7, 7]
    assert torch.equal(first.matrix.weight, again.matrix.weight)
    torch.manual_seed(7)
    assert torch.equal(first.matrix.weight, Small().matrix.weight)


class Loss:
    """A loss without a gradient."""

    def backward(self):
        pass

    def item(self):
        return 1.23456


def test_every_500_steps_and_at_the_end_it_is_measured(run, monkeypatch, capsys):
    times = iter([60.0, 150.0, 240.0, 241.0])
    monkeypatch.setattr(train, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(train, "cross_entropy", lambda *_, **__: Loss())
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: None)
    monkeypatch.setattr(train, "batch_of", lambda *_: (tokens, tokens))
    monkeypatch.setattr(Optimizer, "step", lambda self: None)
    tokens = torch.zeros(1, 1, dtype=torch.int64)
    _, log = run.train(1003)
    shares = {name: f"share of {name}" for name in FOUR}
    assert log == [
        {"step": 500, "minutes": 1.5, "loss": 1.2346} | shares,
        {"step": 1000, "minutes": 3.0, "loss": 1.2346} | shares,
        {"step": 1003, "minutes": 3.02, "loss": 1.2346} | shares,
    ]
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == log
    assert run.measured == [(name, 99, 128, 1.0) for name in FOUR] * 3


class Trained:
    """A model that keeps what is done with it, in order."""

    def __init__(self):
        self.done = []

    def to(self, dtype):
        self.done.append(dtype)
        return self

    def save_pretrained(self, folder):
        folder.mkdir()
        self.done.append("saved")

    def float(self):
        self.done.append("float32")

    def num_parameters(self):
        return 600


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Runs the command with a stand-in for the training. Returns what it wrote."""
    seen = SimpleNamespace(model=Trained(), asked=[], measured=[], out=tmp_path / "out")

    def pretend(*words):
        seen.asked.append(words)
        return seen.model, [{"step": 3}]

    def examples(*words):
        seen.measured.append(words)
        return words

    def run(*words):
        times = iter([60.0, 150.0])
        monkeypatch.setattr(train, "time", SimpleNamespace(monotonic=lambda: next(times)))
        monkeypatch.setattr("sys.argv", ["train", str(seen.out), *words])
        train.main()
        seen.text = (seen.out / "training.json").read_text(encoding="utf-8")
        return json.loads(seen.text)

    monkeypatch.setattr(train, "train", pretend)
    monkeypatch.setattr(train, "examples_for", examples)
    monkeypatch.setattr(train, "exact_match", lambda model, words: len(seen.model.done))
    seen.run = run
    return seen


@pytest.mark.parametrize("has_gpu, device", [(True, "cuda"), (False, "cpu")])
def test_the_command_has_defaults(command, monkeypatch, has_gpu, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 12)
    written = command.run()
    assert command.asked == [(8_000, 64, 0.005, 0, device)]
    assert written["run"] == dict(steps=8_000, batch_size=64, learning_rate=0.005, seed=0)
    assert written["machine"] == ("a card" if has_gpu else "CPU, 12 threads")
    assert written["torch"] == torch.__version__


def test_the_model_is_measured_as_it_was_saved(command):
    written = command.run()
    assert command.model.done == [torch.bfloat16, "saved", "float32"]
    assert written["exact_match_longest"] == dict.fromkeys(FOUR, 3)
    assert written["exact_match_any_length"] == dict.fromkeys(FOUR, 3)
    assert command.measured == [
        *((name, 7, 1_024, 1.0) for name in FOUR),
        *((name, 8, 1_024) for name in FOUR),
    ]
    assert (written["parameters"], written["minutes"]) == (600, 1.5)


def test_what_is_written_has_a_line_for_each_part_and_the_log_is_not_shown(command, capsys):
    written = command.run()
    assert command.text.startswith('{\n "parameters": 600,\n') and command.text[-2:] == "}\n"
    shown = json.loads(capsys.readouterr().out)
    assert written.pop("log") == [{"step": 3}] and shown == written


def test_the_command_says_what_it_does(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["train", "--help"])
    with pytest.raises(SystemExit):
        train.main()
    assert "Trains the small model" in capsys.readouterr().out
