"""A checkpoint is loaded, or it is said plainly why not."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from paged_attention.engine import checkpoint
from paged_attention.engine.checkpoint import SMALL_MODEL, check_files, load_model
from paged_attention.engine.served import UnsupportedModelError


@pytest.fixture
def folder(tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(SMALL_MODEL / name, tmp_path)
    return tmp_path


def change(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def test_a_folder_gives_the_same_model_as_the_course(folder):
    ours, theirs = load_model(), load_model(folder)
    assert theirs.dtype == torch.float32 and not theirs.training
    assert all(
        torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)
    )


def test_a_llama_of_the_same_sizes_is_served():
    from transformers import LlamaConfig, LlamaForCausalLM

    from paged_attention.engine.engine import Engine
    from paged_attention.engine.request import SamplingParams
    from paged_attention.engine.served import check_architecture

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        eos_token_id=None,
        bos_token_id=None,
    )
    config.architectures = ["LlamaForCausalLM"]
    check_architecture(config, "llama")
    prompt, model = [1, 2, 3, 4, 5], LlamaForCausalLM(config).eval()
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(8):
            tokens.append(
                int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax())
            )
    [request] = Engine(model, num_blocks=8, block_size=4).generate(
        [prompt], SamplingParams(max_new_tokens=8)
    )
    assert request.tokens == tokens


@pytest.mark.parametrize(
    "missing, words",
    [("config.json", "holds no config.json"), ("model.safetensors", "holds no weights")],
)
def test_a_missing_file_is_named(folder, missing, words):
    (folder / missing).unlink()
    with pytest.raises(FileNotFoundError, match=words):
        load_model(folder)


def test_a_folder_that_has_gone_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder '.*nowhere'"):
        check_files(tmp_path / "nowhere")


@pytest.mark.usefixtures("plain_locale")
def test_a_config_is_read_as_utf_8_wherever_this_runs(folder):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    text = json.dumps(config | {"author": "Müller"}, ensure_ascii=False)
    (folder / "config.json").write_text(text, encoding="utf-8")
    check_files(folder)


def test_the_config_that_was_checked_is_the_models(folder, monkeypatch):
    checked = []

    def check(config, name):
        checked.append(config.num_hidden_layers)
        change(folder, num_hidden_layers=1, layer_types=["full_attention"])

    monkeypatch.setattr(checkpoint, "check_architecture", check)
    model = load_model(folder)
    assert checked == [len(model.model.layers)] != [1]


@pytest.mark.parametrize(
    "name",
    ["./nowhere", "../nowhere", "/nowhere", "~/nowhere", Path("nowhere"), Path("no/where")],
)
def test_a_folder_that_is_not_there(name, monkeypatch):
    """What can only be a folder is not looked for on the hub."""
    monkeypatch.setattr("paged_attention.engine.checkpoint.AutoConfig", None)
    with pytest.raises(FileNotFoundError, match=f"there is no folder '{name}'"):
        load_model(name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_has_the_numbers_that_were_asked_for(folder, dtype):
    model = load_model(str(folder), dtype)
    assert (
        model.dtype == dtype == model.get_input_embeddings().weight.dtype
        and model.device == torch.device("cpu")
    )
    assert load_model(device="meta").device == torch.device("meta")


def test_a_name_that_cannot_be_fetched(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match="neither a folder here nor a checkpoint"):
        load_model("nobody/no-such-model")


def test_a_config_that_is_not_json(folder):
    (folder / "config.json").write_text("{")
    with pytest.raises(UnsupportedModelError, match="is not JSON"):
        load_model(folder)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"},
            "the architecture GPT2LMHeadModel; the engine runs",
        ),
        ({"model_type": "no-such-model"}, "transformers knows no model"),
        ({"architectures": None}, "an unnamed one"),
        (
            {"quantization_config": {"quant_method": "fp8"}},
            "quantized weights; the engine runs float32, float16 and bfloat16",
        ),
        (
            {
                "layer_types": ["sliding_attention"] * 4,
                "sliding_window": 8,
                "use_sliding_window": True,
            },
            "sliding window",
        ),
    ],
)
def test_another_architecture_is_refused(folder, values, words):
    change(folder, **values)
    with pytest.raises(UnsupportedModelError, match=words):
        load_model(folder)


def test_weights_cut_short_are_named(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5_000])
    with pytest.raises(UnsupportedModelError, match="could not be read"):
        load_model(folder)
