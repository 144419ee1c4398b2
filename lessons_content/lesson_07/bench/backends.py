"""Ways to compute a batch of decodes, and the GPU, for `python -m tools.bench ladder`."""

import gc
import inspect
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from lessons_content.bench_records.where import driver
from lessons_content.lesson_07.bench.flashinfer_backends import (
    decode_wrapper,
    flashinfer_version,
    no_cudnn,
    no_flashinfer,
    no_xqa,
    xqa,
)
from lessons_content.lesson_07.bench.ladder_runs import FLASHINFER
from lessons_content.lesson_07.bench.workloads import Workload
from paged_attention.ladder.decode import FP8, RUNGS, PagedDecode
from paged_attention.ladder.rungs import lack_of_card

LARGEST_FP8 = 448.0  # the largest number of e4m3
LARGEST_NORMAL = 6.0  # random numbers are limited to this, so that one scale fits all
# About a quarter of a millisecond, so that the launch is ready when the GPU wakes.
SLEEP_CYCLES = 500_000
# Bytes read between two uses of a cache, in sizes of the L2, so that the L2 has forgotten it.
TIMES_THE_L2 = 4
READ_LIMIT_NUMBERS = 1 << 30  # float32: 4 GiB
CHUNK = 1 << 16  # tokens that the reference takes at a time


@dataclass
class Batch:
    """The tensors of a workload.

    caches: several (k_cache, v_cache) with different contents and the same block table.
    """

    workload: Workload
    q: Tensor
    caches: list[tuple[Tensor, Tensor]]
    block_table: Tensor
    context_lens: Tensor
    k_scales: Tensor | None = None
    v_scales: Tensor | None = None

    @property
    def num_blocks(self) -> list[int]:
        """The number of blocks of each sequence."""
        return [
            -(-context_len // self.workload.block_size)
            for context_len in self.workload.context_lens
        ]


def make_batch(workload: Workload, num_caches: int, device: str, fp8: bool = False) -> Batch:
    """Seeded random numbers, in blocks in random order.

    In fp8 each KV head has its own scales.
    """
    counts = [-(-context_len // workload.block_size) for context_len in workload.context_lens]
    ids = torch.randperm(
        sum(counts), generator=torch.Generator().manual_seed(1), dtype=torch.int32
    )
    block_table = torch.full((len(counts), max(counts)), -1, dtype=torch.int32)
    for row, (count, end) in enumerate(zip(counts, accumulate(counts), strict=True)):
        block_table[row, :count] = ids[end - count : end]
    shape = (sum(counts), workload.block_size, workload.num_kv_heads, workload.head_size)
    generator = torch.Generator(device)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device, dtype=workload.dtype)

    def cache() -> Tensor:
        if not fp8:
            return random(*shape)
        return (
            random(*shape)
            .mul_(LARGEST_FP8 / LARGEST_NORMAL)
            .clamp_(-LARGEST_FP8, LARGEST_FP8)
            .to(FP8)
        )

    caches = []
    for number in range(num_caches):
        generator.manual_seed(number)
        caches.append((cache(), cache()))
    batch = Batch(
        workload,
        random(len(counts), workload.num_q_heads, workload.head_size),
        caches,
        block_table.to(device),
        torch.tensor(workload.context_lens, dtype=torch.int32, device=device),
    )
    if fp8:
        unit = LARGEST_NORMAL / LARGEST_FP8
        batch.k_scales = unit * torch.linspace(0.5, 1.5, workload.num_kv_heads, device=device)
        batch.v_scales = unit * torch.linspace(1.5, 0.5, workload.num_kv_heads, device=device)
    return batch


def reference(batch: Batch) -> Tensor:
    """Attention over the batch's first caches in float64, on its device.

    The numbers of an fp8 cache are multiplied by their scales.
    """
    workload, (k_cache, v_cache) = batch.workload, batch.caches[0]
    q = batch.q.double().unflatten(1, (workload.num_kv_heads, -1)) / math.sqrt(
        workload.head_size
    )
    out = torch.zeros_like(q)  # (num_seqs, num_kv_heads, queries_per_kv_head, head_size)

    def tokens(cache: Tensor, scales: Tensor | None, seq: int, begin: int, end: int) -> Tensor:
        first, last = begin // workload.block_size, -(-end // workload.block_size)
        blocks = batch.block_table[seq, first:last].long()
        wide = cache[blocks].flatten(0, 1)[: end - begin].double()
        return wide if scales is None else wide * scales.double()[:, None]

    step = CHUNK // workload.block_size * workload.block_size
    for seq, context_len in enumerate(workload.context_lens):
        if context_len == 0:
            continue
        chunks = [
            (begin, min(begin + step, context_len)) for begin in range(0, context_len, step)
        ]
        scores = [
            torch.einsum("hgd,lhd->hgl", q[seq], tokens(k_cache, batch.k_scales, seq, *chunk))
            for chunk in chunks
        ]
        weights = torch.softmax(torch.cat(scores, -1), -1)
        for begin, end in chunks:
            values = tokens(v_cache, batch.v_scales, seq, begin, end)
            out[seq] += torch.einsum("hgl,lhd->hgd", weights[..., begin:end], values)
    return out.flatten(1, 2)


@dataclass(frozen=True)
class Backend:
    """A way to compute a batch.

    build: makes a function without arguments for each of the batch's caches.
    missing: says why the backend cannot run here; "" if it can.
    compiled_for: the part of a workload that it is compiled for; None if nothing is compiled.
    """

    name: str
    title: str
    build: Callable[[Batch], list[Callable[[], Tensor]]]
    missing: Callable[[], str] = lambda: ""
    fp8: bool = False
    compiled_for: Callable[[Workload], tuple] | None = None

    @property
    def rung(self) -> int | None:
        return int(self.name.removeprefix("rung ")) if self.name.startswith("rung ") else None


def _rung(number: int) -> Callable:
    def build(batch: Batch):
        decode = plan_rung(number, batch.workload, batch.context_lens)
        scales = () if batch.k_scales is None else (batch.k_scales, batch.v_scales)
        return [
            lambda k=k, v=v: decode(batch.q, k, v, batch.block_table, *scales)
            for k, v in batch.caches
        ]

    return build


def _lack_of_card(number: int) -> str:
    return lack_of_card(number) if torch.cuda.is_available() else ""


def plan_rung(number: int, workload: Workload, context_lens: Tensor) -> PagedDecode:
    return PagedDecode(
        number,
        context_lens,
        num_q_heads=workload.num_q_heads,
        num_kv_heads=workload.num_kv_heads,
        head_size=workload.head_size,
        block_size=workload.block_size,
        dtype=workload.dtype,
        kv_dtype=FP8 if RUNGS[number].fp8 == "always" else None,
    )


def _varlen_attn(batch: Batch):
    from torch.nn.attention.varlen import varlen_attn

    num_seqs, longest = len(batch.q), max(batch.workload.context_lens)
    # One query of each sequence.
    ends = torch.arange(num_seqs + 1, dtype=torch.int32, device=batch.q.device)
    table = batch.block_table.clamp(min=0)  # so that a read past a context finds a block
    return [
        lambda k=k, v=v: varlen_attn(
            batch.q,
            k,
            v,
            ends,
            None,
            1,
            longest,
            seqused_k=batch.context_lens,
            block_table=table,
            enable_gqa=True,
        )
        for k, v in batch.caches
    ]


def _no_varlen_attn() -> str:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return "this PyTorch has no varlen_attn"
    takes = inspect.signature(varlen_attn).parameters
    return "" if "block_table" in takes else "this PyTorch's varlen_attn takes no block_table"


def _gather(batch: Batch):
    blocks = batch.block_table.clamp(min=0).long()
    tokens = torch.arange(blocks.shape[1] * batch.workload.block_size, device=blocks.device)
    mask = (tokens < batch.context_lens[:, None])[:, None, None]  # (num_seqs, 1, 1, tokens)

    def run(k_cache: Tensor, v_cache: Tensor) -> Tensor:
        k, v = (cache[blocks].flatten(1, 2).transpose(1, 2) for cache in (k_cache, v_cache))
        return scaled_dot_product_attention(
            batch.q[:, :, None], k, v, attn_mask=mask, enable_gqa=True
        )[:, :, 0]

    return [lambda k=k, v=v: run(k, v) for k, v in batch.caches]


def _numbers(workload: Workload) -> tuple:
    return workload.dtype, workload.head_size


def _numbers_and_group(workload: Workload) -> tuple:
    return *_numbers(workload), workload.num_q_heads // workload.num_kv_heads


def _all_but_lengths(workload: Workload) -> tuple:
    return *_numbers_and_group(workload), workload.block_size


BACKENDS = (
    *(
        Backend(
            f"rung {rung.number}",
            rung.title,
            _rung(rung.number),
            partial(_lack_of_card, rung.number),
            fp8=rung.fp8 == "always",
            compiled_for=_all_but_lengths,
        )
        for rung in RUNGS
    ),
    Backend(
        FLASHINFER[0],
        "decode with tensor cores",
        decode_wrapper(use_tensor_cores=True),
        no_flashinfer,
        compiled_for=_numbers,
    ),
    Backend(
        FLASHINFER[1],
        "decode with CUDA cores",
        decode_wrapper(use_tensor_cores=False),
        no_flashinfer,
        compiled_for=_numbers_and_group,
    ),
    Backend(
        FLASHINFER[2],
        "decode by TensorRT-LLM's kernels",
        xqa,
        no_xqa,
        compiled_for=_all_but_lengths,
    ),
    Backend(
        FLASHINFER[3],
        "decode by cuDNN, called through FlashInfer",
        decode_wrapper(backend="cudnn"),
        no_cudnn,
    ),
    Backend("PyTorch varlen_attn", "paged, with a block table", _varlen_attn, _no_varlen_attn),
    Backend("gather + SDPA", "a dense copy, then PyTorch's attention", _gather),
)


def _cudnn_version() -> str:
    """For example 9.19.0; empty if PyTorch has no cuDNN."""
    number = torch.backends.cudnn.version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else ""


class Gpu:
    """The GPU, as the benchmark uses it: it prepares functions and times them."""

    device = "cuda"

    def __init__(self):
        self._stream = torch.cuda.Stream()

    def facts(self) -> dict[str, str]:
        """The fields of a Run that say where it was measured."""
        return {
            "card": torch.cuda.get_device_name(),
            "driver": driver(),
            "cuda": torch.version.cuda,
            "torch": torch.__version__,
            "flashinfer": flashinfer_version(),
            "cudnn": _cudnn_version(),
        }

    def l2_bytes(self) -> int:
        return torch.cuda.get_device_properties(0).L2_cache_size

    def prepare(self, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """`call` as a CUDA graph, so that the CPU does its part now, and only once.

        Returns a function that replays it and returns the tensor that it writes.
        """
        self._stream.wait_stream(torch.cuda.current_stream())
        # Work of a first call must not be in the graph.
        with torch.cuda.stream(self._stream):
            call()
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call()

        # The graph has only addresses of tensors. `call` keeps the tensors alive.
        def replay(_keep=call) -> Tensor:
            graph.replay()
            return result

        replay()
        torch.cuda.synchronize()
        return replay

    def milliseconds(self, run: Callable[[], Tensor]) -> float:
        """How long one run takes on the GPU."""
        before = torch.cuda.Event(enable_timing=True)
        after = torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(SLEEP_CYCLES)
        before.record()
        run()
        after.record()
        torch.cuda.synchronize()
        return before.elapsed_time(after)

    def read_limit(self) -> float:
        """GB/s at which the GPU adds up 4 GiB of numbers, or fewer if they do not fit.

        A sum reads each number and writes nothing.
        """
        count = min(READ_LIMIT_NUMBERS, torch.cuda.mem_get_info()[0] // 16)
        numbers = torch.randn(count, device=self.device)
        numbers.sum()
        milliseconds = statistics.median(self.milliseconds(numbers.sum) for _ in range(15))
        return count * numbers.itemsize / milliseconds / 1e6

    def clean(self) -> None:
        """Gives memory back that no tensor uses any more."""
        gc.collect()
        torch.cuda.empty_cache()
