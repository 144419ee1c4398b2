"""The benchmark of two GPUs: its measurement on two processes of the CPU."""

import pytest
import torch

from tools.bench import two_gpus
from tools.bench.two_gpus_ranks import QWEN3_8B, Sizes, measure

TINY = dict(
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=96,
    vocab_size=100,
)


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there are two GPUs here")
def test_without_two_gpus_it_says_so(capsys):
    assert two_gpus.main([]) == 2 and "it needs two GPUs" in capsys.readouterr().err


@pytest.mark.slow
def test_it_measures_steps_of_the_whole_batch():
    sizes = Sizes(tuple((QWEN3_8B | TINY).items()), num_seqs=4, context=40)
    one, two = (measure(num_ranks, sizes, "gloo") for num_ranks in (1, 2))
    assert not one.reason and not two.reason
    assert one.step > 0 and two.step > 0 and two.pool == one.pool / 2
    assert two.weights < 0.6 * one.weights
    assert "must divide the model's 2 KV heads" in measure(3, sizes, "gloo").reason
