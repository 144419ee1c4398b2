"""A checkpoint is loaded, or it is said plainly why not."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from paged_attention.engine.checkpoint import SMALL_MODEL, load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.files import check_files
from paged_attention.engine.parallel.weights import SavedWeights
from paged_attention.engine.supported_models import UnsupportedModelError
from ranks import load_by_one_rank

both_ways = pytest.mark.parametrize("load", [load_model, load_by_one_rank])


@pytest.fixture
def folder(tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(SMALL_MODEL / name, tmp_path)
    return tmp_path


def change(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def change_weights(folder, change) -> dict[str, torch.Tensor]:
    saved = load_file(folder / "model.safetensors")
    change(saved)
    save_file(saved, folder / "model.safetensors", {"format": "pt"})
    return saved


@both_ways
def test_a_folder_gives_the_same_model_as_the_course(folder, load):
    ours, theirs = load_model(), load(folder)
    assert theirs.dtype == torch.float32 and not theirs.training
    assert all(
        torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)
    )


@pytest.mark.parametrize(
    "missing, words",
    [("config.json", "holds no config.json"), ("model.safetensors", "holds no weights")],
)
def test_a_missing_file_is_named(folder, missing, words):
    (folder / missing).unlink()
    with pytest.raises(FileNotFoundError, match=words):
        load_model(folder)


@pytest.mark.usefixtures("plain_locale")
def test_a_config_is_read_as_utf_8_wherever_this_runs(folder):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    text = json.dumps(config | {"author": "Müller"}, ensure_ascii=False)
    (folder / "config.json").write_text(text, encoding="utf-8")
    check_files(folder)


@pytest.mark.parametrize(
    "name",
    ["./nowhere", "../nowhere", "/nowhere", "~/nowhere", Path("nowhere"), Path("no/where")],
)
def test_a_folder_that_is_not_there(name):
    """What can only be a folder is not looked for on the hub."""
    with pytest.raises(FileNotFoundError, match=f"there is no folder '{name}'"):
        load_model(name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_has_the_numbers_that_were_asked_for(folder, dtype):
    model = load_model(str(folder), dtype)
    assert model.dtype == dtype == model.get_input_embeddings().weight.dtype
    assert model.device == torch.device("cpu")
    assert load_model(device="meta").device == torch.device("meta")


def test_a_name_that_cannot_be_fetched(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match="neither a folder here nor a checkpoint"):
        load_model("nobody/no-such-model")


def test_a_config_that_is_not_json(folder):
    (folder / "config.json").write_text("{")
    with pytest.raises(UnsupportedModelError, match="is not JSON"):
        load_model(folder)


GPT = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}
REFUSED = [
    (GPT, "the architecture GPT2LMHeadModel; the engine runs"),
    ({"model_type": "no-such-model"}, "transformers knows no model"),
    ({"architectures": None}, "an unnamed one"),
    (
        {"quantization_config": {"quant_method": "fp8"}},
        "quantized weights; .* float32, float16",
    ),
    # those that make no model
    ({"hidden_size": "x"}, "transformers knows no model for .*hidden_size"),
    ({"num_attention_heads": 0}, "could not be loaded: ZeroDivisionError"),
    ({"vocab_size": -1}, "could not be loaded: RuntimeError"),
]


@pytest.mark.parametrize(("values", "words"), REFUSED)
def test_what_a_config_may_not_have_is_a_sentence(folder, values, words):
    change(folder, **values)
    with pytest.raises(UnsupportedModelError, match=words) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
FIRST = "model.layers.0.self_attn.q_proj.weight"
BIAS = FIRST.replace("weight", "bias")
FIVE = {"num_hidden_layers": 5, "layer_types": ["full_attention"] * 5}
THREE = {"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}
DIFFER = {  # how the weights are changed, or the config; and what is said
    "one is missing": (lambda saved: saved.pop(FIRST), "q_proj.weight' is missing; save the"),
    "the embedding is missing": (
        lambda saved: saved.pop(EMBEDDING),
        f"{EMBEDDING}' is missing",
    ),
    "no head": (
        {"tie_word_embeddings": False},
        "'lm_head.weight' is missing; .* or set tie_word_embeddings to true",
    ),
    "after torch.compile": (
        lambda saved: [saved.update({f"_orig_mod.{key}": saved.pop(key)}) for key in [*saved]],
        "43 more are missing; .* 43 more are not the model's; .* save model._orig_mod instead",
    ),
    "a layer more in the config": (FIVE, "8 more are missing"),
    "a layer less in the config": (THREE, "8 more are not the model's"),
    "another size": (
        lambda saved: saved.update({FIRST: saved[FIRST][1:].clone()}),
        r"has the shape \(127, 128\) and not \(128, 128\)",
    ),
    "a bias": (
        lambda saved: saved.update({BIAS: torch.ones(128)}),
        "q_proj.bias' is not the model's",
    ),
    "whole numbers": (
        lambda saved: saved.update({FIRST: saved[FIRST].to(torch.int8)}),
        f"{FIRST!r} .* numbers of the type I8; the engine runs F64, F32, F16, BF16",
    ),
}


# A rank reads sizes with the weights: see test_parallel.py.
BY_RANKS = [(load_by_one_rank, case) for case in DIFFER if case != "another size"]


@pytest.mark.parametrize("load, case", [(load_model, case) for case in DIFFER] + BY_RANKS)
def test_weights_that_are_not_those_of_the_config_are_refused_by_name(folder, load, case):
    changed, words = DIFFER[case]
    if isinstance(changed, dict):
        change(folder, **changed)
    else:
        change_weights(folder, changed)
    with pytest.raises(UnsupportedModelError, match=words) as caught:
        load(folder)
    assert "\n" not in str(caught.value) and repr(str(folder))[1:-1] in str(caught.value)


@both_ways
def test_a_head_that_is_saved_is_the_models_though_the_config_ties_it(folder, load):
    saved = change_weights(folder, lambda saved: saved.update({HEAD: 2 * saved[EMBEDDING]}))
    assert torch.equal(load(folder).lm_head.weight, saved[HEAD].float())


def test_old_tables_of_the_rotation_are_not_missed(folder):
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_weights(folder, lambda saved: saved.update({name: torch.ones(16)}))
    load_model(folder)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 2000\n"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_pointer_of_git_lfs_is_named_with_the_remedy(folder, name):
    (folder / name).write_text(POINTER)
    with pytest.raises(UnsupportedModelError, match=f"{name} in .* pointer .* `git lfs pull`"):
        load_model(folder)


# Weights in several files


@pytest.fixture
def shards(tmp_path):
    """A folder of transformers' own making, with weights in many files."""
    whole = AutoModelForCausalLM.from_pretrained(SMALL_MODEL)
    whole.save_pretrained(tmp_path, max_shard_size="500KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    return tmp_path


def second(folder):
    return sorted(folder.glob("model-*.safetensors"))[1]


@torch.inference_mode()
def test_a_model_in_several_files_gives_transformers_logits(shards):
    tokens = torch.arange(40)[None] % 45
    theirs = AutoModelForCausalLM.from_pretrained(SMALL_MODEL, dtype=torch.float32)
    expected = theirs(input_ids=tokens).logits
    assert torch.equal(load_model(shards)(input_ids=tokens).logits, expected)


@torch.inference_mode()
def test_each_rank_finds_its_part_of_a_weight_in_the_right_file(shards):
    weights = SavedWeights(shards)
    for name, own in load_model().named_parameters():
        kept = (slice(0, len(own) // 2),)
        assert torch.equal(weights.part(name, own.shape, kept).float(), own[kept])


@both_ways
def test_a_file_that_is_missing_is_named(shards, load):
    missing = second(shards)
    missing.unlink()
    with pytest.raises(
        FileNotFoundError, match=f"lacks '{missing.name}', which .* names; cop"
    ):
        load(shards)


@both_ways
@pytest.mark.parametrize("text", ["[]", "{}", "{", "null", '{"weight_map": {}}', "\udcff"])
def test_an_index_that_is_broken_is_named(shards, load, text):
    index = shards / "model.safetensors.index.json"
    index.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UnsupportedModelError, match="index.json in .*; copy it again"):
        load(shards)


@both_ways
@pytest.mark.parametrize("size", [0, 4, 8, 50, -100])
def test_a_file_that_is_cut_short_is_named(shards, load, size):
    """In its header, and after it."""
    cut = second(shards)
    cut.write_bytes(cut.read_bytes()[:size])
    with pytest.raises(UnsupportedModelError, match=f"{cut.name}' .* cut short, so copy it"):
        load(shards)


@both_ways
def test_a_weight_that_no_file_has_is_named(shards, load):
    saved = load_file(second(shards))
    name, _ = saved.popitem()
    save_file(saved, second(shards), {"format": "pt"})
    with pytest.raises(UnsupportedModelError, match=f"'{name}' is missing"):
        load(shards)


@both_ways
def test_the_end_tokens_of_generation_config_are_the_models(folder, load):
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 9]}')
    assert Engine(load(folder), num_blocks=4).end_tokens == {1, 9}
