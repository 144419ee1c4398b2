"""What a step gives to the model, which is a stand-in that keeps it."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AttentionInterface

from paged_attention.engine.attention import paged_attention_forward
from paged_attention.engine.request import Request
from paged_attention.engine.runner import ModelRunner, flatten_batch
from paged_attention.kv_cache import PagedAttentionManager
from paged_attention.metadata import build_metadata


def request(id, tokens, num_computed):
    made = Request(id, tokens)
    made.num_computed = num_computed
    return made


SCHEDULED = [
    (request(0, [10, 11, 12, 13], 0), 3),
    (request(1, [20, 21, 22], 2), 1),
    (request(2, [30, 31, 32, 33, 34], 1), 4),
]
TOKENS, POSITIONS = [10, 11, 12, 22, 31, 32, 33, 34], [0, 1, 2, 2, 1, 2, 3, 4]


class Model(torch.nn.Module):
    device = torch.device("cpu")

    def __init__(self, error=None):
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation="eager")
        self.error = error

    def forward(self, **given):
        self.given = given
        self.attention = AttentionInterface()[self.config._attn_implementation]
        self.is_inference = torch.is_inference_mode_enabled()
        if self.error:
            raise self.error
        return SimpleNamespace(logits=torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]))


def runner_of(model, **options):
    manager = PagedAttentionManager(6, 4, 1, 2, 3, 2)
    for each, num_tokens in SCHEDULED:
        manager.add_sequence(each.id, each.num_computed + num_tokens)
    return ModelRunner(model, manager, lambda metadata: ("planned", metadata), **options)


def test_new_tokens_are_in_one_row_with_their_own_positions():
    assert flatten_batch(SCHEDULED) == (TOKENS, POSITIONS, [2, 3, 7])
    assert [each.num_computed for each, _ in SCHEDULED] == [0, 2, 1]


def test_the_model_gets_the_row_and_the_step():
    model = Model()
    runner = runner_of(model)
    assert runner.run(SCHEDULED).tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    given = model.given
    assert given.keys() == {
        "input_ids",
        "position_ids",
        "logits_to_keep",
        "use_cache",
        "paged",
    }
    assert given["input_ids"].tolist() == [TOKENS]
    assert given["position_ids"].tolist() == [POSITIONS]
    assert given["logits_to_keep"].tolist() == [2, 3, 7]
    assert given["use_cache"] is False
    step = given["paged"]
    lengths = [(each.id, num_tokens) for each, num_tokens in SCHEDULED]
    expected = build_metadata(runner.manager, lengths)
    assert step.kv_cache is runner.manager.kv_cache
    assert torch.equal(step.slot_mapping, expected.slot_mapping)
    words, metadata = step.attend
    assert words == "planned" and torch.equal(metadata.block_table, expected.block_table)
    assert model.is_inference


def test_the_tensors_are_made_where_the_model_is():
    runner = runner_of(Model())
    runner.build_metadata = lambda manager, lengths: SimpleNamespace(slot_mapping=None)
    with torch.device("meta"):  # what is made without a device cannot be read
        runner.run(SCHEDULED)
    names = "input_ids", "position_ids", "logits_to_keep"
    assert {runner.model.given[name].device.type for name in names} == {"cpu"}


def own_forward(module, query, key, value, attention_mask=None, **others):
    raise AssertionError("the stand-in has no layers")


@pytest.mark.parametrize("error", [None, ValueError("oh"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize(
    "options, forward",
    [({}, paged_attention_forward), ({"forward": own_forward}, own_forward)],
)
def test_the_attention_is_the_engines_for_the_step_only(options, forward, error):
    model = Model(error)
    runner = runner_of(model, **options)
    if error:
        with pytest.raises(type(error)) as raised:
            runner.run(SCHEDULED)
        assert raised.value is error
    else:
        runner.run(SCHEDULED)
    assert model.attention is forward
    assert model.config._attn_implementation == "eager"
