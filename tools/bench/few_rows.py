"""Times small batches with the parts few_rows and early: `python -m tools.bench few_rows`.

The engines serve the same requests in turns, on a GPU. Then a kernel that reads a clock shows
when each tile of weights arrives.
"""

import datetime
import gc
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch

from lessons_content.bench_records.command import Command
from lessons_content.lesson_07.bench.backends import Gpu
from lessons_content.lesson_08.bench.servers import BLOCK_SIZE, random_model
from lessons_content.lesson_10.bench.fast_engine import TOKEN_BUDGET, same_share
from lessons_content.lesson_10.bench.few_rows_runs import Reads, Row, Run, table
from lessons_lib.cuda.inline import read_kernel
from lessons_lib.cuda.library import CudaLibrary, build_cuda
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.fast.few_rows import COLUMNS, FEATURES, KERNEL_FILES, FewRows
from paged_attention.engine.fast.graph import capture
from paged_attention.engine.fast.layers import FusedModel
from paged_attention.engine.request import SamplingParams
from paged_attention.ladder.self_planned import SelfPlannedDecode

MODELS = {  # differences from Qwen3-0.6B
    "0.6B": {},
    "4B": dict(
        num_layers=36, hidden_size=2560, num_attention_heads=32, intermediate_size=9728
    ),
    "8B": dict(
        num_layers=36,
        hidden_size=4096,
        num_attention_heads=32,
        intermediate_size=12288,
        tie_word_embeddings=False,
    ),
}
BATCHES = (1, 8)
PROMPT, NEW = 512, 256
ENGINES = {  # the last parts, added one by one
    "cuBLAS": replace(FastParts(), few_rows=False, early=False),
    "+ few rows": replace(FastParts(), early=False),
    "+ early": FastParts(),
}
READS_MODEL, READS_LAYERS = "8B", 3
PRODUCTS = ("queries, keys, values", "attention's output", "gate and up", "down")
TILE_BYTES = FEATURES * COLUMNS * torch.bfloat16.itemsize
CLOCK = """
struct Arrival { long long nanoseconds; int num_features, size; };
constexpr int most_multiprocessors = 256, most_arrivals = 8192;
__device__ unsigned num_arrivals[most_multiprocessors];
__device__ Arrival arrivals[most_multiprocessors][most_arrivals];
__device__ inline void note_arrival(int num_features, int size) {
  unsigned own;
  asm("mov.u32 %0, %smid;" : "=r"(own));
  if (threadIdx.x % 32 != 0) return;
  Arrival& arrival = arrivals[own][atomicAdd(&num_arrivals[own], 1u) % most_arrivals];
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(arrival.nanoseconds));
  arrival.num_features = num_features, arrival.size = size;
}
"""
TAKE = """
__global__ void take_kernel(int64_t* to, int* counts) {
  unsigned own = blockIdx.x, count = num_arrivals[own];
  for (unsigned i = threadIdx.x; i < count && i < most_arrivals; i += blockDim.x) {
    Arrival arrival = arrivals[own][i];
    int64_t* entry = to + 3 * (int64_t(own) * most_arrivals + i);
    entry[0] = arrival.nanoseconds, entry[1] = arrival.num_features, entry[2] = arrival.size;
  }
  __syncthreads();
  if (threadIdx.x == 0) counts[own] = count, num_arrivals[own] = 0;
}
// to: (256, 8192, 3). counts: (256,).
extern "C" int take_arrivals(int64_t* to, int* counts, cudaStream_t stream) {
  take_kernel<<<most_multiprocessors, 256, 0, stream>>>(to, counts);
  return cudaGetLastError();
}
"""
MOST_MULTIPROCESSORS, MOST_ARRIVALS = 256, 8192
ARRIVED = "pipeline.multiply(sums, tile);"


def rates(name: str, num_seqs: int, turns: int) -> list[Row]:
    """Lets the engines serve a batch in turns. The first turn of each does not count."""
    model = random_model(**MODELS[name])
    weight_bytes = sum(weight.nbytes for weight in model.parameters())
    if not model.config.tie_word_embeddings:  # a step reads only a few rows of the embeddings
        weight_bytes -= model.model.embed_tokens.weight.nbytes
    engines = {
        title: fast_engine(
            model,
            parts,
            sizes=[num_seqs],
            num_blocks=num_seqs * (PROMPT + NEW + BLOCK_SIZE) // BLOCK_SIZE,
            block_size=BLOCK_SIZE,
            max_num_seqs=num_seqs,
            token_budget=TOKEN_BUDGET,
            prefix_sharing=False,
        )
        for title, parts in ENGINES.items()
    }
    chance = torch.Generator().manual_seed(num_seqs)
    prompts = torch.randint(10_000, (num_seqs, PROMPT), generator=chance).tolist()
    params = SamplingParams(max_new_tokens=NEW, ignore_end=True)
    seconds: dict[str, list[float]] = {title: [] for title in engines}
    answers = {}
    for turn in range(turns + 1):
        for title, engine in engines.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            requests = engine.generate(prompts, params)
            torch.cuda.synchronize()
            if turn > 0:
                seconds[title].append(time.perf_counter() - start)
            answers[title] = [request.output for request in requests]
    return [
        Row(
            name,
            num_seqs,
            title,
            num_seqs * NEW,
            tuple(seconds[title]),
            weight_bytes,
            same_share(answers[title], answers[before]),
        )
        for before, title in itertools.pairwise(["cuBLAS", *engines])
    ]


def with_a_clock() -> CudaLibrary:
    """The kernel of few rows, with a clock: it notes when each tile has arrived."""
    texts = {file: read_kernel(file) for file in KERNEL_FILES}
    *_, last = KERNEL_FILES
    noted = f"note_arrival(params.num_features, params.size); {ARRIVED}"
    if texts[last].count(ARRIVED) != 1:
        raise ValueError(f"kernels/{last} must have one line {ARRIVED!r}")
    texts[last] = CLOCK + texts[last].replace(ARRIVED, noted) + TAKE
    return build_cuda(*texts.values(), names=tuple(texts), target="gpu", name="clock")


@torch.inference_mode()
def reads(title: str) -> Reads:
    """The weights that the card reads in a few layers, for a batch of one."""
    model = random_model(**MODELS[READS_MODEL] | {"num_layers": READS_LAYERS})
    early, config, device = ENGINES[title].early, model.config, model.device
    heads = config.num_key_value_heads, config.head_dim
    cache = torch.zeros(
        (READS_LAYERS, 2, PROMPT // BLOCK_SIZE, BLOCK_SIZE, *heads),
        dtype=model.dtype,
        device=device,
    )
    few_rows = FewRows("gpu", device, early)
    few_rows.library = with_a_clock()
    fused = FusedModel(model, cache, PROMPT, "gpu", few_rows, early)
    decode = SelfPlannedDecode(
        1,
        num_q_heads=config.num_attention_heads,
        num_kv_heads=heads[0],
        head_size=heads[1],
        block_size=BLOCK_SIZE,
        dtype=model.dtype,
        device=device,
        early=early,
    )
    length = torch.tensor([PROMPT], dtype=torch.int32, device=device)
    table = torch.arange(PROMPT // BLOCK_SIZE, dtype=torch.int32, device=device)[None]
    place = torch.tensor([PROMPT - 1], device=device)
    decode.plan(length)

    def attend(q, k_cache, v_cache):
        return decode(q, k_cache, v_cache, table, out=torch.empty_like(q.contiguous()))

    graph = capture(partial(fused, place, place, place, attend), device)
    found = torch.zeros(
        MOST_MULTIPROCESSORS, MOST_ARRIVALS, 3, dtype=torch.int64, device=device
    )
    counts = torch.zeros(MOST_MULTIPROCESSORS, dtype=torch.int32, device=device)
    for _ in range(3):  # only the last one counts
        graph.replay()
        few_rows.library.take_arrivals(found, counts)
    if counts.max() > MOST_ARRIVALS:
        raise ValueError(f"there is room for {MOST_ARRIVALS} tiles of a multiprocessor")
    arrivals = torch.cat([rows[:n] for rows, n in zip(found.cpu(), counts.tolist())])
    return _reads(title, fused.layers[0], arrivals)


def _reads(title: str, layer, arrivals: torch.Tensor) -> Reads:
    """arrivals: nanoseconds for each product, in the shape of its weight."""
    microseconds = (arrivals[:, 0] - arrivals[:, 0].min()) / 1000
    kilobytes = []
    for weight in (layer.w_qkv, layer.w_out, layer.w_gate_up, layer.w_down):
        own = (arrivals[:, 1:] == torch.tensor(weight.shape)).all(1)
        tiles = torch.bincount(microseconds[own].int())
        kilobytes.append(tuple((tiles * (TILE_BYTES // 1024)).tolist()))
    return Reads(title, PRODUCTS, tuple(kilobytes))


def measure(turns: int, command: str, say: Callable[[str], None] = lambda line: None) -> Run:
    machine, rows = Gpu(), []
    for name in MODELS:
        for num_seqs in BATCHES:
            rows += rates(name, num_seqs, turns)
            say("\n".join(f"{row.engine}: {row.tokens_per_second:,.0f}" for row in rows[-3:]))
            gc.collect()
            torch.cuda.empty_cache()
    facts = machine.facts()
    return Run(
        **{name: facts[name] for name in ("card", "driver", "torch")},
        date=datetime.date.today().isoformat(),
        command=command,
        prompt=PROMPT,
        new=NEW,
        read_limit=machine.read_limit(),
        rows=tuple(rows),
        reads_model=READS_MODEL,
        reads_layers=READS_LAYERS,
        reads=tuple(reads(title) for title in list(ENGINES)[1:]),
    )


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if nothing is recorded."""
    command = Command("few_rows", __doc__, Run, table, _overview)
    return command.in_turns(words, 5, measure)


def _overview(run: Run):
    from lessons_content.lesson_10.pictures.weights import overview

    return overview(run)


if __name__ == "__main__":
    sys.exit(main())
