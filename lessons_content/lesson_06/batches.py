"""Batches of decodes, for the paged kernel and its parts."""

import math
import random
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lessons_content.exercises import kernels
from lessons_content.exercises.naming_words import counted, listed
from lessons_lib.checks import Text
from lessons_lib.cuda_on_cpu.reports import KernelError
from paged_attention.pool.block_table import NO_BLOCK

POISON = 1e4  # in every slot that holds no token
NOT_WRITTEN = -7777.0  # what new_scores() holds
# in the order of the numbers of PagedAttentionParams::dtype
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
FAR_BLOCK = Text("the block that the table names is looked for")
CUT_OFF = Text("something else is looked for, at an offset that was cut off to 32 bits")


@dataclass(frozen=True)
class Batch:
    """A batch of decodes: what the paged kernel is given."""

    q: Tensor  # (num_seqs, num_q_heads, head_size)
    k_cache: Tensor
    v_cache: Tensor
    block_table: Tensor
    context_lens: Tensor
    max_context_len: int
    workspace: bool  # scores in a workspace, not in shared memory
    scale: float

    def fields(self, **others) -> dict:
        """The fields of PagedAttentionParams; `out` and `scores` are null unless given."""
        num_seqs, num_q_heads, head_size = self.q.shape
        sizes = dict(
            q_stride=self.q.stride(0),
            num_seqs=num_seqs,
            num_q_heads=num_q_heads,
            num_kv_heads=self.k_cache.shape[2],
            head_size=head_size,
            block_size=self.k_cache.shape[1],
            max_blocks_per_seq=self.block_table.shape[1],
            dtype=DTYPES.index(self.q.dtype),
        )
        own = {name: value for name, value in vars(self).items() if name != "workspace"}
        return {"out": None, "scores": None} | own | sizes | others

    def new_scores(self) -> Tensor:
        return torch.full((*self.q.shape[:2], self.max_context_len), NOT_WRITTEN)

    def sequences(self):
        """For each sequence in float64: its queries, keys and values, each head with its own.

        q: (num_q_heads, head_size); keys, values: (context_len, num_q_heads, head_size).
        """
        group = self.q.shape[1] // self.k_cache.shape[2]
        for row, length in enumerate(self.context_lens.tolist()):
            slots = slots_of(self.block_table, row, length, self.k_cache.shape[1])
            keys, values = (
                cache.double().flatten(0, 1)[slots].repeat_interleave(group, dim=1)
                for cache in (self.k_cache, self.v_cache)
            )
            yield self.q[row].double(), keys, values


@dataclass(frozen=True)
class Case:
    """The sizes of a batch.

    spread: what the queries are multiplied by.
    shift: a number that all scores are near.
    more: what there is to say of all cases of a class.
    """

    more = ""

    context_lens: tuple[int, ...]
    num_q_heads: int
    num_kv_heads: int
    head_size: int
    block_size: int
    dtype: int = 0
    spare_context: int = 0  # how much max_context_len is beyond the longest context
    gap: int = 0  # elements between the query rows of two sequences
    workspace: bool = False
    spread: float = 1.0
    shift: float = 0.0
    seed: int = 0
    scale: float = 0.0  # 0: the usual one, 1 / sqrt(head_size)

    def batch(self) -> Batch:
        """The batch, in a pool with shuffled blocks and poison in slots without a token."""
        generator = torch.Generator().manual_seed(self.seed)
        num_seqs, dtype = len(self.context_lens), DTYPES[self.dtype]
        longest = max(self.context_lens) + self.spare_context
        needed = [-(-length // self.block_size) for length in self.context_lens]
        num_blocks = sum(needed) + 2
        ids = torch.randperm(num_blocks, generator=generator, dtype=torch.int32)
        width = max(-(-longest // self.block_size), 1) + 1
        table = torch.full((num_seqs, width), NO_BLOCK, dtype=torch.int32)
        block = self.block_size, self.num_kv_heads, self.head_size
        caches = torch.full((2, num_blocks, *block), POISON)
        chosen = ids[: sum(needed)].split(needed)
        for row, (length, count) in enumerate(zip(self.context_lens, needed, strict=True)):
            table[row, :count] = chosen[row]
            numbers = torch.randn(2, length, *block[1:], generator=generator)
            if self.shift:
                numbers[0, :, :, 0] = 1.0
            caches.flatten(1, 2)[:, slots_of(table, row, length, self.block_size)] = numbers
        row_length = self.num_q_heads * self.head_size
        q = self.spread * torch.randn(num_seqs, row_length + self.gap, generator=generator)
        q = q.to(dtype)[:, :row_length].unflatten(1, (self.num_q_heads, self.head_size))
        if self.shift:
            q[:, :, 0] = self.shift * math.sqrt(self.head_size)
        return Batch(
            q,
            *caches.to(dtype),
            table,
            torch.tensor(self.context_lens, dtype=torch.int32),
            max(longest, 1),
            self.workspace,
            self.scale or 1 / math.sqrt(self.head_size),
        )

    def describe(self, result: str = "") -> str:
        """result: what is computed of it."""
        contexts = f"contexts of {listed(self.context_lens)} tokens"
        if len(self.context_lens) == 1:
            contexts = f"a context of {counted(self.context_lens[0], 'token')}"
        q_heads = counted(self.num_q_heads, "query head")
        kv_heads = counted(self.num_kv_heads, "KV head")
        words = [
            contexts,
            f"{q_heads} and {kv_heads} of size {self.head_size}",
            f"blocks of {self.block_size}",
            ("float", "half", "bfloat16")[self.dtype],
        ]
        unusual = {
            f"{self.gap} elements between two query rows": self.gap,
            "scores in a workspace": self.workspace,
            f"queries {self.spread:g} times as large as usual": self.spread not in (0, 1),
            f"all scores near {self.shift:g}": self.shift,
            f"scale {self.scale:g}": self.scale,
            self.more: self.more,
        }
        words += [more for more, is_so in unusual.items() if is_so]
        return ", ".join(words) + (f"; {result}" if result else "")


@dataclass(frozen=True)
class FarCase(Case):
    """The table names a block that would begin at number 2³² + 12288 of the cache."""

    more = "in a pool in which a block begins at number 4,294,979,584 of the cache"

    def batch(self) -> Batch:
        batch = super().batch()
        block = (2**32 + 12288) // batch.k_cache[0].numel()
        return replace(batch, block_table=torch.full_like(batch.block_table, block))

    def describe(self, result: str = "") -> str:
        return super().describe()


FAR = FarCase((3,), 1, 1, 8, 4)


def drawn(chance: random.Random, **sizes) -> Case:
    """For hidden cases: a small batch of any shape, with `sizes` as they are given."""
    block_size = chance.randint(2, 9)
    num_kv_heads = chance.randint(1, 3)
    group = chance.randint(1, 4)
    lengths = [
        chance.choice((1, block_size, block_size + 1, chance.randint(2, 4 * block_size)))
        # never more sequences than heads
        for _ in range(chance.randint(1, min(3, group * num_kv_heads)))
    ]
    usual = dict(
        context_lens=tuple(lengths),
        num_q_heads=group * num_kv_heads,
        num_kv_heads=num_kv_heads,
        head_size=chance.choice((4, 8, 12, 20)),
        block_size=block_size,
        dtype=chance.choice((0, 0, 1, 2)),
        spare_context=chance.choice((0, 9)),
        gap=chance.choice((0, 0, 5)),
        seed=chance.randrange(2**31),
    )
    return Case(**usual | sizes)


def drawn_far(chance: random.Random) -> FarCase:
    lengths, head_size = (chance.randint(2, 9),), chance.choice((4, 8, 12))
    block_size, seed = chance.randint(2, 9), chance.randrange(2**31)
    return FarCase(lengths, 1, 1, head_size, block_size, seed=seed)


def drawn_extremes(chance: random.Random):
    """More tokens than threads, a large head, a block that lies far away."""
    one_head = {"num_q_heads": 1, "num_kv_heads": 1}
    yield drawn(chance, **one_head, head_size=8, context_lens=(chance.randint(130, 250),))
    yield drawn(chance, **one_head, head_size=chance.randint(130, 250))
    yield drawn_far(chance)


def observing(*names: str):
    """The `observe` of exercises whose subjects take a batch. names: as in `result_of`."""

    def observe(subject, case: Case):
        if isinstance(case, FarCase):
            return observe_far(subject, case)
        return kernels.result_of(lambda: subject(case.batch()), names)

    return observe


def observe_far(subject, case: FarCase) -> Text:
    """Where a kernel looks for a block with an offset that does not fit into an int.

    There is no memory for so large a pool, and none is needed: checked mode stops the first
    read, and says whether it went to the block that the table names. Only what is built can
    tell: it has `look_far`.
    """
    try:
        if hasattr(subject, "look_far"):
            subject.look_far(case.batch())
    except KernelError as error:
        if error.kind == "out-of-bounds":
            return CUT_OFF
    return FAR_BLOCK


def attention(batch: Batch) -> Tensor:
    """What the kernel gives. Computed in float64."""
    out = []
    for q, keys, values in batch.sequences():
        scores = batch.scale * torch.einsum("hi,thi->ht", q, keys)
        out.append(torch.einsum("ht,thi->hi", torch.softmax(scores, -1), values))
    return torch.stack(out).to(batch.q.dtype)


def slots_of(table: Tensor, row: int, length: int, block_size: int) -> Tensor:
    """int64 (length,): the slots of a sequence's tokens."""
    token = torch.arange(length)
    return table[row].long()[token // block_size] * block_size + token % block_size


def size(case: Case) -> tuple[int, int]:
    """The tokens, with those that max_context_len adds; the numbers in q and in their keys."""
    tokens = sum(case.context_lens)
    numbers = len(case.context_lens) * case.num_q_heads + tokens * case.num_kv_heads
    return tokens + case.spare_context, numbers * case.head_size
