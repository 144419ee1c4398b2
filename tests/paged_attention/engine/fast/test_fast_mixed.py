"""`MixedStep`: what the model is given for a step with chunks of prompts."""

from types import SimpleNamespace

import pytest
import torch

from paged_attention.engine.fast import mixed
from paged_attention.engine.fast.ahead import PENDING
from paged_attention.engine.fast.mixed import MixedStep, chunk_kernel
from paged_attention.engine.paths import gather
from paged_attention.ladder import Shape
from paged_attention.metadata import BatchMetadata
from paged_attention.rungs import FP8

BLOCK_SIZE, HEAD_SIZE, KV_HEADS, GROUP = 4, 8, 2, 3
CPU, META = torch.device("cpu"), torch.device("meta")
TABLE = torch.tensor([[9, 2, 5], [1, 8, 6], [3, 7, 4], [0, 10, 11]], dtype=torch.int32)
# Of four requests: tokens, how many are computed, how many are computed in this step, the row.
REQUESTS = [
    ([20, 21, 22, 23, 24], 3, 2, 1),
    ([30, 31, 32, 33, 34, 35], 5, 1, 3),
    ([0, 41, 42, 43], 0, 3, 0),
    ([50, PENDING], 1, 1, 2),
]


class Runner:
    """What a step needs of a FastRunner. `planned`: the lengths of single new tokens."""

    device, dtype = CPU, torch.float32

    def __init__(self, kv_dtype=torch.float32):
        shape = (1, 2, TABLE.numel(), BLOCK_SIZE, KV_HEADS, HEAD_SIZE)
        numbers = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        self.manager = SimpleNamespace(
            kv_cache=numbers.to(kv_dtype),
            table=SimpleNamespace(cpu=TABLE),
            block_table=TABLE.clone(),
            block_size=BLOCK_SIZE,
        )
        config = SimpleNamespace(num_attention_heads=GROUP * KV_HEADS)
        self.model = SimpleNamespace(config=config)
        self.state = SimpleNamespace(last_tokens=torch.tensor([60, 61, 62, 63, 64]))
        self.planned = []

    def plan(self, context_lens):
        assert context_lens.dtype == torch.int32
        self.planned.append(context_lens.tolist())

    def attend_single(self, q, k_cache, v_cache, block_table, out):
        """Each token gets the sum of its row of the table."""
        out.copy_(block_table.sum(1)[:, None, None].expand(q.shape))


def step_of(*places, runner=None) -> MixedStep:
    """A step of some of the requests."""
    chosen = [REQUESTS[place] for place in places]
    scheduled = [
        (SimpleNamespace(tokens=tokens, num_computed=computed), count)
        for tokens, computed, count, _ in chosen
    ]
    lengths = [computed + count for _, computed, count, _ in chosen]
    return MixedStep(scheduled, [row for *_, row in chosen], lengths, runner or Runner())


def test_single_tokens_come_first_and_then_the_chunks_each_in_its_place():
    runner = Runner()
    step = step_of(0, 1, 2, 3, runner=runner)
    assert step.tokens.tolist() == [35, 62, 23, 24, 0, 41, 42]
    assert step.positions.tolist() == [5, 1, 3, 4, 0, 1, 2]
    assert step.slots.tolist() == [10 * 4 + 1, 3 * 4 + 1, 1 * 4 + 3, 8 * 4, 36, 37, 38]
    assert step.last.tolist() == [3, 0, 6, 1]
    for numbers in (step.tokens, step.positions, step.slots, step.last):
        assert numbers.dtype == torch.int64
    assert step.num_single == 2 and runner.planned == [[6, 2]]


def test_a_token_0_beside_one_that_is_still_on_the_device_stays_0():
    step = step_of(2, 3)
    assert step.tokens.tolist() == [62, 0, 41, 42]


def test_without_single_tokens_nothing_is_planned_for_them():
    runner = Runner()
    step = step_of(0, 2, runner=runner)
    assert step.num_single == 0 and runner.planned == []
    runner.attend_single = None
    k_cache, v_cache = runner.manager.kv_cache[0]
    q = torch.randn(5, GROUP * KV_HEADS, HEAD_SIZE)
    assert step.attend(q, k_cache, v_cache).shape == q.shape


def test_without_chunks_there_is_attention_of_single_tokens_only():
    runner = Runner()
    step = step_of(3, 1, runner=runner)
    k_cache, v_cache = runner.manager.kv_cache[0]
    out = step.attend(torch.zeros(2, GROUP * KV_HEADS, HEAD_SIZE), k_cache, v_cache)
    assert (out[0] == 3 + 7 + 4).all() and (out[1] == 0 + 10 + 11).all()


@pytest.mark.parametrize("kv_dtype", [torch.float32, FP8], ids=str)
def test_each_chunk_attends_to_its_own_sequence(kv_dtype):
    """With a pool of 8 bits too, which PyTorch's attention does not take."""
    runner = Runner(kv_dtype)
    step = step_of(0, 1, 2, 3, runner=runner)
    q = torch.randn(7, GROUP * KV_HEADS, HEAD_SIZE)
    k_cache, v_cache = runner.manager.kv_cache[0]
    out = step.attend(q, k_cache, v_cache)
    chunks = BatchMetadata(
        torch.tensor([0, 2, 5]), torch.tensor([5, 3]), TABLE[[1, 0]], step.slots
    )
    expected = gather(chunks)(q[2:], k_cache.float(), v_cache.float())
    torch.testing.assert_close(out[2:], expected)
    assert (out[0] == 0 + 10 + 11).all() and (out[1] == 3 + 7 + 4).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_the_result_has_the_queries_numbers_and_device(dtype):
    step = step_of(1, 3)
    step.runner.attend_single = lambda q, k_cache, v_cache, block_table, out: None
    q = torch.empty(2, GROUP * KV_HEADS, HEAD_SIZE, dtype=dtype, device=META)
    out = step.attend(q, None, None)
    assert (out.shape, out.dtype, out.device) == (q.shape, dtype, META)


class Prefill:
    """A stand-in for PagedPrefill: notes what it is planned with, and fills `out`."""

    def __init__(self, *arguments, **named):
        Prefill.planned = [
            each.tolist() if torch.is_tensor(each) else each for each in arguments
        ]
        Prefill.dtypes = {each.dtype for each in arguments if torch.is_tensor(each)}
        Prefill.named = named

    def __call__(self, q, k_cache, v_cache, table, out=None):
        assert (k_cache, v_cache) == ("keys", "values")
        Prefill.table = table.tolist()
        out.fill_(7)


SHAPE = Shape(torch.float16, 64, GROUP, 16, shared_bytes=1)


@pytest.fixture
def with_kernel(monkeypatch):
    """The prefill ladder takes the model."""
    monkeypatch.setattr(mixed, "chunk_kernel", lambda runner: (4, SHAPE))
    monkeypatch.setattr(mixed, "PagedPrefill", Prefill)


def test_the_best_rung_is_planned_for_the_chunks_alone(with_kernel):
    step = step_of(0, 1, 2, 3)
    q = torch.zeros(7, GROUP * KV_HEADS, HEAD_SIZE)
    out = step.attend(q, "keys", "values")
    assert Prefill.planned == [4, [0, 2, 5], [5, 3]] and Prefill.dtypes == {torch.int32}
    lengths = [each.tolist() for each in Prefill.named.pop("lengths")]
    assert lengths == [[2, 3], [5, 3]]  # known on the host, so that it need not read them
    assert Prefill.named == dict(
        num_q_heads=6, num_kv_heads=2, head_size=64, block_size=16, dtype=torch.float16
    )
    assert Prefill.table == TABLE[[1, 0]].tolist() and (out[2:] == 7).all()


@pytest.mark.parametrize(
    ("hopper", "long", "by_kernel"),
    [(True, True, False), (True, False, True), (False, True, True), (False, False, True)],
)
def test_pytorch_takes_a_single_long_prompt_on_hopper(
    with_kernel, monkeypatch, hopper, long, by_kernel
):
    monkeypatch.setattr(mixed, "is_hopper", lambda device: hopper)
    monkeypatch.setattr(mixed, "is_one_long_prompt", lambda metadata: long)
    monkeypatch.setattr(mixed, "gather", lambda metadata: lambda q, k, v: q + 1)
    step = step_of(2)
    out = step.attend(torch.zeros(3, GROUP * KV_HEADS, HEAD_SIZE), "keys", "values")
    assert (out == (7 if by_kernel else 1)).all()


def test_what_is_planned_for_pytorch_stays_on_the_host(with_kernel, monkeypatch):
    seen = []
    monkeypatch.setattr(mixed, "is_hopper", lambda device: True)
    monkeypatch.setattr(
        mixed, "is_one_long_prompt", lambda metadata: seen.append(metadata) or False
    )
    step = step_of(1, 2)
    (metadata,) = seen
    assert metadata.seq_lens_kv.tolist() == [3] and metadata.seq_lens_kv.dtype == torch.int32
    assert metadata.cu_seqlens_q.tolist() == [0, 3]
    assert metadata.block_table.tolist() == TABLE[[0]].tolist()
    assert metadata.slot_mapping is step.slots


@pytest.mark.parametrize(("device", "target"), [("cpu", "fast"), ("cuda", "gpu")])
def test_the_rung_is_the_best_for_where_it_runs(monkeypatch, device, target):
    seen = []
    monkeypatch.setattr(mixed, "shared_bytes", lambda device: 12345)
    monkeypatch.setattr(
        mixed, "best_prefill_rung", lambda shape, target: seen.append((shape, target)) or 3
    )
    runner = Runner()
    runner.device, runner.dtype = torch.device(device), torch.bfloat16
    shape = Shape(torch.bfloat16, HEAD_SIZE, GROUP, BLOCK_SIZE, shared_bytes=12345)
    assert repr(chunk_kernel(runner)) == repr((3, shape)) and seen == [(shape, target)]


def test_a_shape_that_no_rung_takes_has_no_kernel():
    assert chunk_kernel(Runner()) is None


def test_the_result_of_an_attention_goes_into_the_given_tensor():
    out = torch.zeros(2)
    mixed._into(lambda q, k_cache, v_cache: q + k_cache * v_cache)(
        torch.ones(2), torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0]), out
    )
    assert out.tolist() == [11.0, 22.0]
