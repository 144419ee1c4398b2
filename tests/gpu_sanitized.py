"""Launches each of the course's kernels once in every dtype: what compute-sanitizer watches (tests/gpu.sh)."""

import sys

import torch

from lessons_lib.cuda import build_cuda
from lessons_lib.inline import read_kernel
from lessons_lib.paged_kernel import attn_paged_cuda, paged_attention_library


def main(build_only: bool = False):
    library, vector_add = paged_attention_library("gpu"), build_cuda(read_kernel("vector_add.cu"), target="gpu")
    if build_only:
        return
    torch.manual_seed(0)
    a, b = torch.rand(1000, device="cuda"), torch.rand(1000, device="cuda")
    out = torch.zeros(1000, device="cuda")
    vector_add.add(a, b, out, 1000)
    assert torch.equal(out, a + b)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for head_size, context_lens in ((64, [0, 1, 33]), (128, [16, 200, 5]), (256, [2, 17, 0])):
            k_cache, v_cache = (torch.rand(40, 16, 2, head_size, device="cuda").to(dtype) for _ in range(2))
            block_table = torch.randperm(40, device="cuda")[:39].view(3, 13).int()
            q = torch.rand(3, 6, head_size, device="cuda").to(dtype)
            lens = torch.tensor(context_lens, dtype=torch.int32, device="cuda")
            result = attn_paged_cuda(q, k_cache, v_cache, block_table, lens, library=library)
            assert result.isfinite().all()
    torch.cuda.synchronize()
    print("10 launches")


if __name__ == "__main__":
    main("--build" in sys.argv)
