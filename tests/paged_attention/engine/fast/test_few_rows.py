"""Products of few rows, against float64, and which shapes are left to PyTorch."""

from dataclasses import replace

import pytest
import torch

from lessons_content.lesson_08.bench.servers import random_model
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.fast.few_rows import FewRows, few_rows_library
from paged_attention.engine.request import SamplingParams
from tools.bench.few_rows import MODELS

TARGETS = ["fast", "checked"] + ["gpu"] * torch.cuda.is_available()
DTYPES = [torch.float16, torch.bfloat16]


def factors(num_rows, num_features, size, dtype, device):
    chance = torch.Generator().manual_seed(num_rows)
    x, weight = (torch.randn(n, size, generator=chance) for n in (num_rows, num_features))
    return x.to(device, dtype), (weight / size**0.5).to(device, dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("num_rows", [1, 2, 7, 8, 9, 16])
@pytest.mark.parametrize("num_features, size", [(16, 128), (80, 384), (32, 2304)], ids=str)
def test_each_number_is_rounded_once(target, dtype, num_rows, num_features, size):
    """After the last row and column there is NaN in memory, which nothing reads or changes."""
    device = torch.device("cuda" if target == "gpu" else "cpu")
    x, weight = factors(num_rows, num_features, size, dtype, device)
    around_x, around_weight = (
        torch.cat(
            [torch.full_like(each[:1], torch.nan), each, each.new_full((1, size), torch.nan)]
        )
        for each in (x, weight)
    )
    out = torch.full((num_rows + 1, num_features), torch.nan, dtype=dtype, device=device)
    few_rows = FewRows(target, device, early=target == "gpu")
    few_rows(around_x[1:-1], around_weight[1:-1], out[:-1])
    expected = x.double() @ weight.double().t()
    bound = torch.finfo(dtype).eps * expected.abs() + 1e-4
    assert (out[:-1].double() - expected).abs().le(bound).all()
    assert out[-1].isnan().all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_stays_in_its_row(bad):
    device = torch.device("cpu")
    x, weight = factors(3, 32, 256, torch.bfloat16, device)
    x[1, 200] = bad
    out = FewRows("fast", device, early=False)(x, weight)
    assert not out[1].isfinite().any() and out[[0, 2]].isfinite().all()


@pytest.mark.parametrize(
    "change",
    [
        lambda x, weight: (x.repeat(17, 1), weight),
        lambda x, weight: (x[:0], weight),
        lambda x, weight: (x, weight[:24]),
        lambda x, weight: (x[:, :192].contiguous(), weight[:, :192].contiguous()),
        lambda x, weight: (x.float(), weight.float()),
        lambda x, weight: (x.half(), weight),
        lambda x, weight: (x.repeat(2, 2)[:, ::2], weight),
        lambda x, weight: (x, weight.t().contiguous().t()),
        lambda x, weight: (torch.cat([x[0, :1], x[0]])[1:][None], weight),
    ],
    ids=[
        "17 rows",
        "no row",
        "24 features",
        "192 columns",
        "float32",
        "two dtypes",
        "strided x",
    ]
    + ["weight by columns", "x between two chunks"],
)
def test_other_products_are_left_to_pytorch(change):
    x, weight = factors(1, 32, 256, torch.bfloat16, torch.device("cpu"))
    few_rows = FewRows("fast", x.device, early=False)
    assert few_rows.takes(x, weight) and not few_rows.takes(*change(x, weight))


def small_model(device):
    """A model whose products are all taken, and whose heads rung 9 takes."""
    sizes = dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=2)
    return random_model(2, device, intermediate_size=384, vocab_size=512, **sizes)


def logits_of(model, parts, num_seqs):
    """The logits of steps that all sequences are in, (num_steps, num_seqs, vocab_size)."""
    return torch.stack(
        [step for step in generated(model, parts, num_seqs)[0] if len(step) == num_seqs]
    )


def generated(model, parts, num_seqs):
    """The logits of each step, (num_seqs, vocab_size), and all tokens of each sequence."""
    on_the_host = replace(parts, sampling=False, ahead=False)
    options = dict(num_blocks=40, block_size=16, max_num_seqs=num_seqs, prefix_sharing=False)
    engine = fast_engine(model, on_the_host, sizes=[num_seqs], **options)
    assert engine.runner.reasons == {}
    steps = []
    choose = engine.postprocess

    def keep(scheduled, logits):
        steps.append(logits.float().clone())
        return choose(scheduled, logits)

    engine.postprocess = keep
    prompts = [[7 + 3 * n + i for i in range(20 + n)] for n in range(num_seqs)]
    requests = engine.generate(prompts, SamplingParams(max_new_tokens=6, ignore_end=True))
    return steps, [list(request.tokens) for request in requests]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", ["cpu"] + ["cuda"] * torch.cuda.is_available())
@pytest.mark.parametrize("num_seqs", [2, 17])
def test_an_engine_has_the_same_logits_as_with_pytorchs_products(device, num_seqs):
    """Its first steps; then tokens that are nearly equally likely may be chosen otherwise."""
    model = small_model(device)
    without = logits_of(model, replace(FastParts(), few_rows=False), num_seqs)
    with_it = logits_of(model, FastParts(), num_seqs)
    difference = (with_it[:2] - without[:2]).abs().max() / without.std()
    assert difference < 0.05 if num_seqs <= 16 else difference == 0


def test_a_batch_of_16_takes_the_kernel():
    options = dict(num_blocks=40, block_size=16, max_num_seqs=16, sizes=[])
    engine = fast_engine(small_model("cpu"), **options)
    for n in range(16):
        engine.add(n, [n, n + 1], SamplingParams(max_new_tokens=3, ignore_end=True))
    engine.step()
    with few_rows_library("fast").launches() as launches:
        engine.step()
    assert launches


@pytest.mark.gpu
@pytest.mark.parametrize("num_seqs", [1, 3, 16])
@pytest.mark.parametrize("parts", [FastParts(), replace(FastParts(), few_rows=False)], ids=str)
def test_kernels_that_begin_early_compute_the_same_bits(parts, num_seqs):
    """One that did not wait for the kernel before would read what is not there yet."""
    model = small_model("cuda")
    in_order = logits_of(model, replace(parts, early=False), num_seqs)
    for _ in range(20):
        assert torch.equal(logits_of(model, parts, num_seqs), in_order)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "size",
    [
        size if size == "0.6B" else pytest.param(size, marks=pytest.mark.slow)
        for size in MODELS
    ],
)
@torch.inference_mode()
def test_logits_are_no_farther_from_float32s_than_those_of_transformers(size):
    """The distances are means over some sequences and steps, of the same tokens."""
    model = random_model(**MODELS[size])
    steps, tokens = generated(model, FastParts(), num_seqs=4)
    ours = torch.stack(steps[-5:], 1)  # (num_seqs, num_steps, vocab_size)

    def expected():
        rows = [torch.tensor([row], device="cuda") for row in tokens]
        return torch.cat([model(row).logits[:, -6:-1].float() for row in rows])

    theirs = expected()
    exact = (model.float(), expected())[1]
    distances = [(logits - exact).abs().mean().item() for logits in (ours, theirs)]
    print(f"{size}: {distances[0]:.5f} from float32's; transformers: {distances[1]:.5f}")
    assert distances[0] <= 1.02 * distances[1]


@pytest.mark.gpu
def test_what_recorded_steps_take_is_not_negative_where_memory_was_free():
    free = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    del free  # PyTorch keeps it, and gives it back when it records
    options = dict(num_blocks=40, block_size=16, max_num_seqs=2, sizes=[2])
    engine = fast_engine(small_model("cuda"), **options)
    assert 0 < engine.runner.graph_bytes < 2**28
