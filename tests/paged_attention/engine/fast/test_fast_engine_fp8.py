"""The fast engine with keys and values of 8 bits: the same tokens, in half the memory."""

import functools
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from echo import assert_nothing_is_lost
from examples import few
from fast_requests import all_sizes, params_of, prompts, some_traces
from lessons_lib import build_cuda
from lessons_lib.cuda.inline import read_kernel
from paged_attention.attention.metadata import build_metadata
from paged_attention.engine.attention import plugged_in
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.fp8 import narrow
from paged_attention.engine.paths import gather
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.runner import flatten_batch
from paged_attention.engine.sampler import sample
from paged_attention.engine.supported_models import UnsupportedModelError
from paged_attention.ladder.rungs import FP8
from paged_attention.tiny_qwen3.tasks import TASKS, decode, encode
from paged_attention.tiny_qwen3.wider import with_head_size
from paged_attention.validate import KERNEL_DTYPES
from pretended_card import pretend_card
from rotation import rotate
from traces import play

HAS_FP8 = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 9)
DEVICES = ["cpu"] + ["cuda"] * HAS_FP8
TARGETS = ["fast", "checked"] + ["gpu"] * HAS_FP8
NAN_BITS = 0x7F
ALL_PARTS = [  # only rung 9 reads fp8, so `plan` is always in
    FastParts(layers, graphs, state, True, sampling, ahead)
    for layers, graphs, state, sampling, ahead in itertools.product((True, False), repeat=5)
    if not ahead or (state and sampling)
]
LOGITS = FastParts(sampling=False, ahead=False)  # the host sees the logits
SMALL = dict(num_blocks=40, block_size=8, max_num_seqs=4, kv_dtype=FP8)


pytestmark = pytest.mark.usefixtures("one_thread")


@functools.cache
def model(device, dtype=torch.float32):
    """The small model with heads that rung 9 takes."""
    return with_head_size(load_model(dtype=dtype, device=device), 128)


@functools.cache
def questions() -> list[tuple[str, str]]:
    """Prompts and right answers."""
    random = np.random.default_rng(3)
    return [task(random, 0.1) for task in TASKS.values() for _ in range(3)]


@functools.cache
def all_prompts() -> list[list[int]]:
    """Some that the model answers without a doubt, and some with many answers."""
    return prompts() + [encode(prompt) for prompt, _ in questions()]


# ---- What is written


def rounded(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's rounding to 8 bits. It gives no NaN for a number that is too large."""
    return x.clamp(-448, 448).to(FP8)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same numbers of 8 bits. A NaN has no sign here."""
    one, other = (x.view(torch.uint8) for x in (one, other))
    are_nan = [(x & NAN_BITS) == NAN_BITS for x in (one, other)]
    return torch.equal(*are_nan) and torch.equal(one[~are_nan[0]], other[~are_nan[0]])


@functools.cache
def narrowing(target):
    """A kernel that converts floats with the function of kernels/engine/narrow.cuh."""
    files = ("numbers.cuh", "ladder/shape.cuh", "engine/narrow.cuh")
    kernel = """
    __global__ void narrow_kernel(unsigned char* out, const float* in, int size) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < size) out[i] = from_float<Fp8>(in[i]).bits;
    }
    extern "C" int narrow_all(unsigned char* out, const float* in, int size, cudaStream_t s) {
      narrow_kernel<<<(size + 255) / 256, 256, 0, s>>>(out, in, size);
      return cudaGetLastError();
    }
    """
    texts = *map(read_kernel, files), kernel
    names = *files, "engine/narrow_all.cu"
    return build_cuda(*texts, names=names, target=target, name="narrow")


def edge_floats() -> torch.Tensor:
    """All 8-bit numbers, what is halfway between neighbours, and the floats next to these."""
    numbers = torch.arange(256, dtype=torch.uint8).view(FP8).float()
    numbers = numbers[numbers.isfinite()].sort().values
    exact = torch.cat(
        [numbers, (numbers[1:] + numbers[:-1]) / 2, torch.tensor([464.0, 480.0])]
    )
    inf = torch.tensor(torch.inf)
    return torch.cat([exact, exact.nextafter(inf), exact.nextafter(-inf)])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("numbers", ["half", "bfloat16", "edges", "any float"])
def test_the_kernel_rounds_as_pytorch_does(target, numbers):
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    generator = torch.Generator().manual_seed(5)
    some_bits = torch.randint(-(2**31), 2**31, (2**18,), generator=generator).int()
    floats = {
        "half": bits.view(torch.float16).float(),
        "bfloat16": bits.view(torch.bfloat16).float(),
        "edges": edge_floats(),
        "any float": some_bits.view(torch.float32),
    }[numbers]
    floats = floats.to("cuda" if target == "gpu" else "cpu")
    out = torch.zeros(len(floats), dtype=torch.uint8, device=floats.device)
    narrowing(target).narrow_all(out, floats, len(floats))
    assert same_bits(out, rounded(floats))
    assert same_bits(narrow(floats), rounded(floats))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=str)
@pytest.mark.parametrize("norms", [True, False])
@pytest.mark.parametrize("head_size", [128, 80])
def test_the_fused_kernel_writes_what_it_writes_in_16_bits_rounded_once_more(
    target, dtype, norms, head_size
):
    """Large numbers, infinities and NaN too. A slot of -1 writes nowhere."""
    device = "cuda" if target == "gpu" else "cpu"
    generator = torch.Generator().manual_seed(1)
    qkv = torch.randn(5, 4 + 2 * 2, head_size, generator=generator)
    qkv[1] *= 300
    qkv[2] /= 300
    qkv[3, :, 3::7] = torch.nan
    qkv[4, :, ::5] = -torch.inf
    weights = 1 + torch.rand(2, head_size, generator=generator)
    angles = torch.rand(8, head_size // 2, generator=generator)
    qkv, weights = qkv.to(device, dtype), weights.to(device, dtype)
    positions, slots = torch.tensor([[0, 5, 2, 7, 1], [6, 1, 4, 0, -1]], device=device)
    turns, written = torch.stack([angles.cos(), angles.sin()], -1).to(device), []
    for kernel, cache_dtype in (("rotate", dtype), ("rotate_into_fp8", FP8)):
        caches = torch.full((2, 8, 2, head_size), 7.0, device=device).to(cache_dtype)
        own, own_weights = qkv.clone(), weights if norms else (None, None)
        rotate(target, own, caches, own_weights, turns, positions, slots, kernel)
        written.append((own, caches))
    (q, expected), (q_too, caches) = written
    assert torch.equal(q.nan_to_num(), q_too.nan_to_num())
    assert same_bits(caches, rounded(expected))
    assert (caches[:, [2, 3, 5, 7]].float() == 7).all()


# ---- What comes out


@functools.cache
def alone(prompt: tuple[int, ...], params: SamplingParams) -> tuple[list[int], int]:
    """What lesson 08's engine gives with keys and values of 8 bits, when nothing else runs.

    Also returns how many of these tokens come before the first one that another rounding could
    change. A key that is nearly halfway between two numbers of 8 bits may become the one or
    the other. Then logits differ, usually by less than 0.1; the largest seen is 0.6.
    """
    engine = Engine(model("cpu"), num_blocks=40, block_size=4, path="batched", kv_dtype=FP8)
    noise = torch.rand(20, engine.vocab_size, generator=torch.Generator().manual_seed(2))
    noise = 2 * noise - 1
    clear = []

    def noted(row, params, position):
        token = sample(row, params, position)
        clear.append(all(sample(each, params, position) == token for each in row + noise))
        return token

    engine.sample = noted
    output = engine.generate([list(prompt)], params)[0].output
    return output, [*clear, False].index(False)


@pytest.mark.slow
def test_most_tokens_do_not_depend_on_how_a_step_rounds():
    given = [(tuple(prompt), params_of(n)) for prompt in all_prompts() for n in range(12)]
    num_clear = sum(alone(*each)[1] for each in given)
    assert num_clear > 0.8 * sum(len(alone(*each)[0]) for each in given)


def assert_as_alone(requests) -> None:
    for request in requests:
        expected, num_clear = alone(tuple(request.prompt), request.params)
        if request.reason == "cancelled":
            num_clear = min(num_clear, len(request.output))
        assert request.output[:num_clear] == expected[:num_clear]


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@few(12, drawn_anew=30)
@given(
    trace=some_traces(all_prompts()),
    parts=st.sampled_from(ALL_PARTS),
    sizes=all_sizes,
)
def test_any_parts_on_any_trace(device, trace, parts, sizes):
    engine = fast_engine(model(device), parts, kv_dtype=FP8, **sizes)
    assert not engine.runner.reasons and engine.manager.kv_cache.dtype == FP8
    engine.manager.kv_cache.fill_(torch.nan)  # what lies in the pool reaches no result
    assert_as_alone(play(engine, trace))
    assert_nothing_is_lost(engine)


@pytest.mark.parametrize("path", ["gather", "batched", "paged_torch", "blockwise", "kernel"])
@pytest.mark.parametrize("device", DEVICES)
def test_the_paths_of_lesson_08_know_8_bits_too(device, path):
    engine = Engine(load_model(device=device), path=path, kv_dtype=FP8)
    results = engine.generate([encode(prompt) for prompt, _ in questions()])
    assert [decode(each.output) for each in results] == [
        right + "$" for _, right in questions()
    ]
    assert_nothing_is_lost(engine)


@torch.inference_mode()
def reference_logits(engine, exact, scheduled) -> torch.Tensor:
    """The logits of a step in float64, from the keys and values that are in the pool."""
    metadata = build_metadata(engine.manager, [(r.id, count) for r, count in scheduled])
    attend, pool = gather(metadata), engine.manager.kv_cache.double()

    def forward(module, query, key, value, mask=None, **others):
        return attend(query[0].transpose(0, 1), *pool[module.layer_idx])[None], None

    tokens, positions, last = (
        torch.tensor(numbers, device=pool.device) for numbers in flatten_batch(scheduled)
    )
    with plugged_in(exact, forward):
        return exact(
            input_ids=tokens[None],
            position_ids=positions[None],
            logits_to_keep=last,
            use_cache=False,
        ).logits[0]


@pytest.mark.slow
@pytest.mark.parametrize("kv_dtype", [FP8, None], ids=str)
@pytest.mark.parametrize("dtype, block_size", [*zip(KERNEL_DTYPES, (8, 4, 8))], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_logits_are_within_rounding_of_float64_over_the_same_pool(
    device, dtype, block_size, kv_dtype
):
    """Of chunks and of single tokens. Rung 9 rounds queries to float16."""
    exact = model(device, dtype)
    exact = type(exact)(exact.config).double().to(device).eval()
    exact.load_state_dict(model(device, dtype).state_dict())
    options = dict(num_blocks=40, block_size=block_size, max_num_seqs=4, token_budget=24)
    engine = fast_engine(model(device, dtype), LOGITS, kv_dtype=kv_dtype, **options)
    errors, largest, run = [], [], engine.runner.run

    def compared(scheduled):
        logits = run(scheduled)
        expected = reference_logits(engine, exact, scheduled)
        errors.append((logits - expected).abs().max())
        largest.append(expected.abs().max())
        return logits

    engine.runner.run = compared
    engine.generate(prompts(), SamplingParams(max_new_tokens=4, ignore_end=True))
    rounding = max(torch.finfo(dtype).eps, torch.finfo(torch.float16).eps)
    assert max(errors) <= 4 * rounding * max(largest)


# ---- What cannot be


@pytest.mark.parametrize("parts", [FastParts(), FastParts(layers=False)], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_a_request_with_a_nan_ends_and_the_others_go_on(device, parts):
    own = with_head_size(load_model(dtype=torch.float16, device=device), 128)
    own.lm_head.weight = torch.nn.Parameter(own.lm_head.weight.detach().clone())
    own.model.embed_tokens.weight.data[encode("z")] = torch.nan
    engine = fast_engine(own, parts, **SMALL)
    results = engine.generate([encode(text) for text in ("Cab>", "Cz>", "Vab>")])
    assert [each.reason for each in results] == ["end", "not finite", "end"]
    assert [decode(each.output) for each in results[::2]] == ["ab$", "ba$"]
    assert_nothing_is_lost(engine)


@pytest.mark.parametrize("build", [Engine, fast_engine])
@pytest.mark.parametrize("kv_dtype", [torch.float8_e5m2, torch.float64, torch.int8], ids=str)
def test_other_numbers_are_refused(build, kv_dtype):
    message = f"must be torch.float8_e4m3fn, or None for the model's .* not {kv_dtype}"
    with pytest.raises(ValueError, match=message):
        build(model("cpu"), **SMALL | {"kv_dtype": kv_dtype})


@pytest.mark.parametrize("head_size", [32, 64])
def test_heads_that_rung_9_does_not_take_are_refused(head_size):
    own, words = with_head_size(load_model(), head_size), f"for rung 9, not {head_size}"
    with pytest.raises(UnsupportedModelError, match=words):
        fast_engine(own, **SMALL)


def test_8_bits_need_the_part_that_reads_them():
    with pytest.raises(ValueError, match="needs the part `plan`: only rung 9 reads"):
        fast_engine(model("cpu"), FastParts(plan=False), **SMALL)


def test_a_card_without_8_bits_is_refused(monkeypatch):
    pretend_card(monkeypatch, (8, 0))
    with pytest.raises(UnsupportedModelError, match=r"8\.9 or more, and an old card has 8\.0"):
        fast_engine(model("cpu"), **SMALL | {"block_size": 3})  # a shape that is not built yet
