"""FlashInfer's ways to compute a batch of decodes: tensor cores, CUDA cores, XQA, and cuDNN.

Each takes a Batch (backends.py) and makes a function without arguments for each of its caches.
tools/bench/flashinfer_setup.py brings FlashInfer to a machine that cannot download.
"""

import importlib.metadata
import importlib.util
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

WORKSPACE_BYTES, SEMAPHORE_BYTES = 256 << 20, 8 << 20
TABLE_STEP = 4  # XQA reads the entries of a block table four at a time


def no_flashinfer() -> str:
    return "" if importlib.util.find_spec("flashinfer") else "FlashInfer is not installed"


def no_xqa() -> str:
    return no_flashinfer() or (
        "" if importlib.util.find_spec("flashinfer.xqa") else "this FlashInfer has no XQA"
    )


def no_cudnn() -> str:
    return no_flashinfer() or (
        ""
        if importlib.util.find_spec("cudnn")
        else "the package nvidia-cudnn-frontend is not installed"
    )


def flashinfer_version() -> str:
    try:
        return importlib.metadata.version("flashinfer-python")
    except importlib.metadata.PackageNotFoundError:
        return ""


def wrapper_and_plan(batch, **options) -> tuple[Any, Callable[[], None]]:
    """FlashInfer's wrapper for decodes, with these options, and its plan for a batch.

    The plan gets the numbers of blocks in the host's memory, because it reads them there.
    """
    import flashinfer

    workload = batch.workload
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        _workspace(batch), "NHD", **options
    )
    ends = torch.tensor([0, *accumulate(batch.num_blocks)], dtype=torch.int32)
    ids = torch.cat(
        [row[:count] for row, count in zip(batch.block_table, batch.num_blocks, strict=True)]
    )
    in_last_block = ((batch.context_lens - 1) % workload.block_size + 1).int().cpu()

    def plan() -> None:
        wrapper.plan(
            ends,
            ids,
            in_last_block,
            workload.num_q_heads,
            workload.num_kv_heads,
            workload.head_size,
            workload.block_size,
            q_data_type=workload.dtype,
            kv_data_type=workload.dtype,
        )

    return wrapper, plan


def decode_wrapper(**options) -> Callable:
    """A backend of the ladder: FlashInfer's wrapper for decodes, planned ahead."""

    def build(batch):
        wrapper, plan = wrapper_and_plan(batch, **options)
        plan()
        return [lambda caches=caches: wrapper.run(batch.q, caches) for caches in batch.caches]

    return build


def xqa(batch) -> list[Callable[[], Tensor]]:
    from flashinfer.xqa import xqa as launch

    workload = batch.workload
    table = batch.block_table.clamp(min=0)
    table = pad(table, (0, -table.shape[1] % TABLE_STEP))
    workspace = _workspace(batch)
    semaphores = torch.zeros(SEMAPHORE_BYTES, dtype=torch.uint8, device=batch.q.device)
    semaphores = semaphores.view(torch.uint32)
    q = batch.q[:, None].contiguous()  # (num_seqs, 1, num_q_heads, head_size)
    lens = batch.context_lens.to(torch.uint32)[:, None].contiguous()
    out = torch.empty_like(q)

    def run(k_cache: Tensor, v_cache: Tensor) -> Tensor:
        launch(
            q,
            k_cache,
            v_cache,
            table,
            lens,
            out,
            workspace,
            semaphores,
            workload.num_kv_heads,
            workload.block_size,
        )
        return out[:, 0]

    return [lambda k=k, v=v: run(k, v) for k, v in batch.caches]


def _workspace(batch) -> Tensor:
    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=batch.q.device)
