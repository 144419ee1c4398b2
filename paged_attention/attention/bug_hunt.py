"""The bug hunt of lesson 06: named cases, and a report of what happens in each.

The cases are in the order in which the faults are easiest to find.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from lessons_lib.cuda.compiler_errors import CannotBuild, CompileError
from lessons_lib.cuda.inline import read_kernel
from lessons_lib.cuda.library import CudaLibrary, build_cuda
from lessons_lib.cuda_on_cpu.reports import KernelError
from paged_attention.attention.metadata import (
    BatchMetadata,
    attn_paged_torch,
    cumulative_lengths,
)
from paged_attention.attention.paged_kernel import attn_paged_cuda

POISON = 100.0  # in every slot without a token; a kernel that reads one gets wrong numbers
TOLERANCE = 1e-4  # relative and absolute
ROWS_SHOWN = 4
# The most steps of a thread. No case needs nearly as many, and an endless loop reaches them
# within a few seconds.
STEP_LIMIT = 2_000_000


class HuntTensors(TypedDict):
    """A case's arguments for attn_paged_cuda()."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    block_table: Tensor
    context_lens: Tensor


@dataclass(frozen=True)
class HuntCase:
    """A batch for one decode step. Its blocks are scattered over the pool."""

    title: str
    context_lens: tuple[int, ...]
    num_q_heads: int = 1
    num_kv_heads: int = 1
    head_size: int = 8
    block_size: int = 4
    spare_entries: int = 0  # in each row of the table, after the longest context's

    def tensors(self) -> HuntTensors:
        """Returns q, k_cache, v_cache, block_table and context_lens, the same at each call."""
        generator = torch.Generator().manual_seed(len(self.context_lens) + self.num_q_heads)
        num_needed = [-(-context_len // self.block_size) for context_len in self.context_lens]
        num_blocks = sum(num_needed) + 3
        k_cache, v_cache = torch.full(
            (2, num_blocks, self.block_size, self.num_kv_heads, self.head_size), POISON
        )
        block_table = torch.full(
            (len(num_needed), max(num_needed) + self.spare_entries), -1, dtype=torch.int32
        )
        # The last block of the pool stays unused.
        free = iter(torch.randperm(num_blocks - 1, generator=generator).tolist())
        for seq, context_len in enumerate(self.context_lens):
            for entry in range(num_needed[seq]):
                block_table[seq, entry] = block_id = next(free)
                num_tokens = min(self.block_size, context_len - entry * self.block_size)
                for cache in (k_cache, v_cache):
                    cache[block_id, :num_tokens] = torch.randn(
                        num_tokens, *cache.shape[2:], generator=generator
                    )
        q = torch.randn(len(num_needed), self.num_q_heads, self.head_size, generator=generator)
        return {
            "q": q,
            "k_cache": k_cache,
            "v_cache": v_cache,
            "block_table": block_table,
            "context_lens": torch.tensor(self.context_lens, dtype=torch.int32),
        }


CASES = (
    HuntCase("one token, one head", (1,)),
    HuntCase("3 tokens, 2 heads of queries and of keys", (3,), num_q_heads=2, num_kv_heads=2),
    HuntCase("5 tokens, 6 query heads on 2 KV heads", (5,), num_q_heads=6, num_kv_heads=2),
    HuntCase("two sequences, 3 and 7 tokens", (3, 7), num_q_heads=2, spare_entries=1),
    HuntCase("two sequences, the first one without a token", (0, 3)),
    HuntCase("300 tokens", (300,), block_size=16),
    HuntCase("one token, one head of size 256", (1,), head_size=256),
    HuntCase("11,000 tokens", (11_000,), head_size=1, block_size=16),
    HuntCase(
        "four sequences, 7 query heads on 1 KV head, blocks of 17",
        (17, 1, 0, 35),
        7,
        1,
        24,
        17,
        spare_entries=2,
    ),
)


def expected_output(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, context_lens: Tensor
) -> Tensor:
    """Computes what the kernel should give, with the reference of lesson 05 in float64.

    An empty context gives zeros.
    """
    used = context_lens > 0
    metadata = BatchMetadata(
        cumulative_lengths([1] * int(used.sum())),
        context_lens[used],
        block_table[used],
        slot_mapping=context_lens.new_empty(0),  # nothing is written
    )
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    if used.any():
        out[used] = attn_paged_torch(
            q[used].double(), k_cache.double(), v_cache.double(), metadata
        )
    return out


def build_hunted(source: str) -> CudaLibrary:
    """Builds the kernel in checked mode, even if there is a GPU."""
    library = build_cuda(
        read_kernel("paged_params.cuh"),
        source,
        names=("paged_params.cuh", "your code"),
        target="checked",
        name="bug_hunt",
    )
    library.options(step_limit=STEP_LIMIT)
    return library


def hunt(source: str) -> None:
    """Builds the kernel in checked mode and runs it on one case after another.

    It stops at the first case that goes wrong.
    """
    try:
        library = build_hunted(source)
    except CannotBuild:
        raise
    except CompileError as error:
        print(f"It does not compile.\n\n{error}")
        return
    print("\n".join(_findings(library)))  # one call, so that it is one output


def _findings(library: CudaLibrary) -> Iterator[str]:
    """Yields a line for each right case, and then what is wrong with the first other one."""
    for number, case in enumerate(CASES, 1):
        tensors = case.tensors()
        try:
            found = attn_paged_cuda(**tensors, library=library)
        except KernelError as error:
            yield f"{number}. {case.title}: {type(error).__name__}\n\n{error}"
            return
        expected = expected_output(**tensors)
        if not _is_close(found, expected).all():
            yield (
                f"{number}. {case.title}: wrong numbers\n\n"
                f"{_differences(found, expected, tensors, library)}"
            )
            return
        yield f"{number}. {case.title}: as the reference"


def _is_close(found: Tensor, expected: Tensor) -> Tensor:
    return torch.isclose(found.double(), expected, rtol=TOLERANCE, atol=TOLERANCE)


def _differences(
    found: Tensor, expected: Tensor, tensors: HuntTensors, library: CudaLibrary
) -> str:
    """Says which rows of out are wrong, and which keys were read for the first of them."""
    wrong = (~_is_close(found, expected)).any(-1).nonzero().tolist()
    seq, head = wrong[0]
    with library.trace("k_cache") as accesses:
        attn_paged_cuda(**tensors, library=library)
    of_block = sorted(
        (access for access in accesses if access.block[:2] == (seq, head)),
        key=lambda access: access.thread,
    )
    rows = list(dict.fromkeys(access.index[:3] for access in of_block))
    shown = ", ".join(f"k_cache[{', '.join(map(str, row))}]" for row in rows[:ROWS_SHOWN])
    more = f" and {len(rows) - ROWS_SHOWN} more" if len(rows) > ROWS_SHOWN else ""
    numbers = [
        ", ".join(f"{number:.3f}" for number in row[seq, head, :3].tolist())
        for row in (found, expected)
    ]
    return (
        f"Wrong rows of out, as [sequence, head]: {', '.join(map(str, wrong))}\n"
        f"out[{seq}, {head}] begins with {numbers[0]}; the reference has {numbers[1]}\n"
        f"For it, these keys were read: {shown}{more}\n"
        f"The block table is {tensors['block_table'].tolist()}, "
        f"with {tensors['k_cache'].shape[1]} tokens in a block"
    )
