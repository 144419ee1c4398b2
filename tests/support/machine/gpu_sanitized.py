"""Launches each of the course's kernels in each dtype that it takes, and lets an engine
generate: what compute-sanitizer watches (tests/gpu.sh).
"""

import sys

import torch

from lessons_content.lesson_08.bench.servers import random_model
from lessons_lib.cuda.inline import read_kernel
from lessons_lib.cuda.library import build_cuda
from paged_attention.attention.paged_kernel import attn_paged_cuda, paged_attention_library
from paged_attention.engine.fast import fast_engine
from paged_attention.engine.request import SamplingParams
from paged_attention.ladder.decode import FP8, RUNGS, PagedDecode
from paged_attention.prefill.kernels import PagedPrefill
from paged_attention.prefill.rungs import PREFILL_RUNGS

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
CONTEXTS = ((64, [0, 1, 33]), (128, [16, 200, 5]), (256, [2, 17, 0]))


def batch(head_size, context_lens, dtype, num_q_heads=6):
    """The tensors of a decode of three sequences; NaN in the block that no sequence has."""
    k_cache, v_cache = (
        torch.rand(40, 16, 2, head_size, device="cuda").to(dtype) for _ in range(2)
    )
    blocks = torch.randperm(40, device="cuda")
    k_cache[blocks[39]] = v_cache[blocks[39]] = float("nan")
    lens = torch.tensor(context_lens, dtype=torch.int32, device="cuda")
    q = torch.rand(3, num_q_heads, head_size, device="cuda").to(dtype)
    return q, k_cache, v_cache, blocks[:39].view(3, 13).int(), lens


def rungs():
    """Each rung with each dtype that it takes, and what divides its work so that blocks
    meet.
    """
    for number in range(len(RUNGS)):
        dtypes = DTYPES if number <= 3 else (torch.float16,) if number == 8 else DTYPES[1:]
        for dtype, (head_size, context_lens) in zip(dtypes, CONTEXTS[::-1], strict=False):
            how = (
                {"num_splits": 3} if number == 6 else {"num_blocks": 5} if number >= 7 else {}
            )
            yield number, dtype, head_size, context_lens, how


def launch_rung(number, dtype, head_size, context_lens, how, launch=True):
    q, k_cache, v_cache, block_table, lens = batch(head_size, context_lens, dtype)
    scales = ()
    if number == 8:
        k_cache, v_cache = k_cache.to(FP8), v_cache.to(FP8)
        scales = torch.ones(2, device="cuda"), torch.ones(2, device="cuda")
    decode = PagedDecode(
        number,
        lens,
        num_q_heads=6,
        num_kv_heads=2,
        head_size=head_size,
        block_size=16,
        dtype=dtype,
        kv_dtype=k_cache.dtype,
        **how,
    )
    if launch:
        assert decode(q, k_cache, v_cache, block_table, *scales).isfinite().all()


def launch_prefill(number, dtype, head_size, context_lens, launch=True):
    """A decode, a chunk, a whole prompt, and a sequence without a query."""
    _, k_cache, v_cache, block_table, lens = batch(head_size, context_lens, dtype)
    q_lens = [1, min(40, max(context_lens)), 2, 0]
    lens = torch.tensor([5, max(context_lens), 2, 7], dtype=torch.int32, device="cuda")
    ends = torch.tensor([0, *q_lens], device="cuda").cumsum(0).int()
    prefill = PagedPrefill(
        number,
        ends,
        lens,
        num_q_heads=6,
        num_kv_heads=2,
        head_size=head_size,
        block_size=16,
        dtype=dtype,
        most_tiles=1 if number >= 4 else None,  # so that parts are combined
    )
    if launch:
        q = torch.rand(sum(q_lens), 6, head_size, device="cuda").to(dtype)
        rows = block_table[[0, 1, 2, 0]].contiguous()
        assert prefill(q, k_cache, v_cache, rows).isfinite().all()


def prefills():
    for number in range(len(PREFILL_RUNGS)):
        for dtype, (head_size, context_lens) in zip(DTYPES[1:], CONTEXTS[1:], strict=True):
            yield number, dtype, head_size, context_lens


def generate():
    """The engine's kernels, which begin early, in a prompt's step and in recorded ones."""
    sizes = dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=2)
    model = random_model(2, intermediate_size=384, vocab_size=512, **sizes)
    engine = fast_engine(
        model, sizes=[2], piece_sizes=[16, 64], num_blocks=20, block_size=16, max_num_seqs=2
    )
    assert engine.runner.reasons == {}
    prompts = [list(range(40)), list(range(9))]
    requests = engine.generate(prompts, SamplingParams(max_new_tokens=3, ignore_end=True))
    assert all(len(request.output) == 3 for request in requests)


def main(build_only: bool = False):
    library = paged_attention_library("gpu")
    vector_add = build_cuda(read_kernel("vector_add.cu"), target="gpu")
    torch.manual_seed(0)
    generate()
    for rung in rungs():
        launch_rung(*rung, launch=not build_only)
    for prefill in prefills():
        launch_prefill(*prefill, launch=not build_only)
    if build_only:
        return
    a, b = torch.rand(1000, device="cuda"), torch.rand(1000, device="cuda")
    out = torch.zeros(1000, device="cuda")
    vector_add.add(a, b, out, 1000)
    assert torch.equal(out, a + b)
    for dtype in DTYPES:
        for head_size, context_lens in CONTEXTS:
            result = attn_paged_cuda(*batch(head_size, context_lens, dtype), library=library)
            assert result.isfinite().all()
    torch.cuda.synchronize()
    print(f"{10 + len(list(rungs())) + len(list(prefills()))} launches")


if __name__ == "__main__":
    main("--build" in sys.argv)
