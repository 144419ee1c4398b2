"""Exercise 6.8: a kernel with eight faults, to be found one at a time.

Each fault has its own case in `paged_attention.bug_hunt.CASES`. The case shows it, whether or
not the faults of later cases are still there. So the first case that fails names the first
fault that is left.
"""

import math
import random
from dataclasses import dataclass, replace

import torch

from lessons_build.source import given_kernel
from lessons_exercises import tensors
from lessons_exercises.lesson_06.native import (
    FAR,
    STREAM,
    FarCase,
    Found,
    asked,
    check_streams,
    cut_off,
    observe_far,
    reached,
    result_of,
    show,
    with_misplaced_barriers,
)
from lessons_exercises.words import counted, listed
from lessons_lib.checks import Exercise, Mistake, Text
from lessons_lib.cuda_on_cpu.code_text import mask
from paged_attention.bug_hunt import CASES, HuntCase, build_hunted, expected_output
from paged_attention.paged_kernel import attn_paged_cuda

(
    ONE_TOKEN,
    TWO_HEADS,
    SHARED_HEADS,
    TWO_SEQUENCES,
    EMPTY,
    MANY_TOKENS,
    LARGE_HEAD,
    VERY_MANY_TOKENS,
    MIXED,
) = CASES


@dataclass(frozen=True)
class LowScores(HuntCase):
    """All scores near -200, so that exp() of each is 0 in float32."""

    def tensors(self):
        tensors = super().tensors()
        tensors["k_cache"][..., 0] = 1.0
        tensors["q"][..., 0] = -200 * math.sqrt(self.head_size)
        return tensors


@dataclass(frozen=True)
class SpacedQueries(HuntCase):
    """Between the queries of two sequences there are other numbers.

    So it is if q is a part of a larger tensor.
    """

    def tensors(self):
        tensors = super().tensors()
        wide = torch.full((len(self.context_lens), self.num_q_heads + 1, self.head_size), 7.0)
        wide[:, : self.num_q_heads] = tensors["q"]
        return tensors | {"q": wide[:, : self.num_q_heads]}


@dataclass(frozen=True)
class FailingLaunch(HuntCase):
    """The launch is made to fail, and what counts is what the launcher returns."""


# What hunt() does not run: another length instead of its long one, so that an array of just
# that size is too small, and two faults that a repair can bring in.
LONGER = replace(VERY_MANY_TOKENS, title="11,400 tokens", context_lens=(11_400,))
EMPTY_LARGE_HEAD = HuntCase(
    "no token, two heads of size 256", (0,), num_q_heads=2, num_kv_heads=2, head_size=256
)
LOW_SCORES = LowScores("3 tokens, all scores near -200", (3,))
SPACED = SpacedQueries("two sequences, queries with room between them", (2, 3), num_q_heads=3)
FAILING = FailingLaunch("a launch that is made to fail", (2,))
RETURNS_ERROR = Text("an error is returned")
RETURNS_ZERO = Text("0 is returned, as if all were well")
CHECKED = tuple(LONGER if case is VERY_MANY_TOKENS else case for case in CASES) + (
    EMPTY_LARGE_HEAD,
    LOW_SCORES,
    SPACED,
)


def hunted_attention(source: str):
    """The learner's kernel as a function of tensors."""
    library = build_hunted(source)

    def run(**inputs):
        return attn_paged_cuda(**inputs, library=library)

    def attend(**inputs):
        stream = stream_for(inputs["q"])
        with library.launches(stream=stream) as launches:
            out = with_misplaced_barriers(lambda: run(**inputs), source)
        check_streams(launches, stream)
        return out

    def failing(case):
        return (
            RETURNS_ERROR
            if asked(library, lambda: run(**case.tensors())).returned
            else RETURNS_ZERO
        )

    def far(batch):  # attn_paged_cuda() would refuse its table
        return reached(
            lambda: library.paged_attention(**batch.fields(out=torch.empty(batch.q.shape)))
        )

    attend.failing, attend.far = failing, far
    return attend


def stream_for(q) -> int:
    """Batches of several sequences are launched on the default stream."""
    return STREAM if len(q) == 1 else 0


def hidden(seed):
    """Batches in which several faults would show, each of another shape.

    Then low scores and many tokens.
    """
    chance = random.Random(seed)

    def drawn(made, lengths, **sizes):
        return made(f"contexts of {listed(lengths)} tokens", lengths, **sizes)

    for number in range(8):
        block_size, num_kv_heads = chance.randint(2, 9), chance.randint(1, 3)
        lengths = chance.choices(
            (0, 1, block_size, *range(2, 4 * block_size)), k=1 + number // 3
        )
        if len(lengths) == 3:
            lengths[1] = 0  # zeros that go to other blocks' rows
        yield drawn(
            HuntCase,
            tuple(lengths),
            num_q_heads=num_kv_heads * chance.randint(1, 4),
            num_kv_heads=num_kv_heads,
            head_size=chance.choice((4, 8, 20)),
            block_size=block_size,
            spare_entries=chance.randint(0, 2),
        )
    yield drawn(LowScores, (chance.randint(2, 9), 5))
    yield drawn(HuntCase, (chance.randint(280, 400),), block_size=16)
    yield drawn(HuntCase, (chance.randint(2, 9),), head_size=chance.randint(140, 250))
    yield drawn(HuntCase, (chance.randint(11_000, 11_400),), head_size=1, block_size=16)
    yield drawn(
        SpacedQueries,
        (chance.randint(2, 9), chance.randint(2, 9)),
        num_q_heads=chance.randint(2, 5),
    )
    yield drawn(FailingLaunch, (chance.randint(2, 9),))
    yield FarCase(
        (chance.randint(2, 9),),
        1,
        1,
        chance.choice((4, 8, 12)),
        chance.randint(2, 9),
        seed=chance.randrange(2**31),
    )


def observe(attend, case):
    """The output, or what checked mode reports in its place.

    Of a launch that fails, what the launcher returns.
    """
    if isinstance(case, FarCase):
        return observe_far(attend, case)
    if isinstance(case, FailingLaunch):
        return attend.failing(case) if hasattr(attend, "failing") else RETURNS_ERROR
    return result_of(lambda: attend(**case.tensors()), names=("context_lens",))


def describe(case):
    if isinstance(case, FarCase):
        return case.describe()
    where = (
        f"case {CASES.index(case) + 1} of hunt()"
        if case in CASES
        else "a case that hunt() does not run"
    )
    return (
        f"{where}, {case.title}: {counted(case.num_q_heads, 'query head')} "
        f"and {counted(case.num_kv_heads, 'KV head')} of size {case.head_size}, "
        f"blocks of {case.block_size}"
    )


def reported(kind: str, *where):
    """The model of a fault that checked mode reports in the cases `where`.

    No other case shows it.
    """

    def attend(**inputs):
        if any(torch.equal(case.tensors()["q"], inputs["q"]) for case in where):
            raise Found(kind)
        return expected_output(**inputs)

    return attend


def nan_in(*where):
    """The model of a fault that makes NaN of everything in the cases `where`."""

    def attend(**inputs):
        expected = expected_output(**inputs)
        shown = any(torch.equal(case.tensors()["q"], inputs["q"]) for case in where)
        return torch.full_like(expected, math.nan) if shown else expected

    return attend


def own_kv_head(head, num_q_heads, num_kv_heads):
    return head // (num_q_heads // num_kv_heads)


def declared_row(block_id, offset, kv_head, block_size, num_kv_heads):
    return (block_id * block_size + offset) * num_kv_heads + kv_head


def table_width(q, k_cache, block_table):
    return block_table.shape[1]


def addressed(kv_head_of=own_kv_head, row_of=declared_row, stride_of=table_width):
    """The model of a kernel that reads keys and values at other addresses.

    The address counts their rows of head_size numbers, from 0.
    """

    def attend(q, k_cache, v_cache, block_table, context_lens):
        _, block_size, num_kv_heads, head_size = k_cache.shape
        k_rows, v_rows = (
            cache.reshape(-1, head_size).double() for cache in (k_cache, v_cache)
        )
        table = block_table.flatten().tolist()
        stride = stride_of(q, k_cache, block_table)
        out = torch.zeros(q.shape, dtype=torch.float64)
        for seq, context_len in enumerate(context_lens.tolist()):
            for head in range(q.shape[1] if context_len else 0):
                kv_head, rows = kv_head_of(head, q.shape[1], num_kv_heads), []
                for token in range(context_len):
                    entry = seq * stride + token // block_size
                    if entry >= len(table):
                        raise Found("out-of-bounds")
                    rows.append(
                        row_of(
                            table[entry], token % block_size, kv_head, block_size, num_kv_heads
                        )
                    )
                if not 0 <= min(rows) <= max(rows) < len(k_rows):
                    raise Found("block-table" if min(rows) < 0 else "out-of-bounds")
                weights = torch.softmax(
                    k_rows[rows] @ q[seq, head].double() / math.sqrt(head_size), dim=0
                )
                out[seq, head] = weights @ v_rows[rows]
        return out

    return attend


def axes_exchanged(**inputs):
    """Right for as many heads as sequences.

    In the first case that differs, there are more heads than sequences.
    """
    num_seqs, num_q_heads, _ = inputs["q"].shape
    if num_seqs != num_q_heads:
        raise Found("out-of-bounds", "context_lens")
    return expected_output(**inputs)


def zeros_by_several(**inputs):
    if (inputs["context_lens"] == 0).any():
        raise Found("several-writers")
    return expected_output(**inputs)


def zeros_in(row_of):
    """An empty context gets its zeros in this row, and row (sequence, head) is its own."""

    def attend(**inputs):
        num_seqs, num_q_heads, _ = inputs["q"].shape
        own = range(num_seqs * num_q_heads)
        rows = [
            (
                row
                if inputs["context_lens"][row // num_q_heads]
                else row_of(*divmod(row, num_q_heads))
            )
            for row in own
        ]
        if len(set(rows)) < len(rows):
            raise Found("race-between-blocks")
        return expected_output(**inputs)

    return attend


def zeros_in_all_rows(**inputs):
    if (inputs["context_lens"] == 0).any() and inputs["q"].shape[:2].numel() > 1:
        raise Found("race-between-blocks")
    return expected_output(**inputs)


def low_scores_lost(**inputs):
    """The model of a search for the maximum that begins at 0."""
    expected = expected_output(**inputs)
    return (
        torch.full_like(expected, math.nan)
        if torch.equal(inputs["q"], LOW_SCORES.tensors()["q"])
        else expected
    )


def stream_ignored(**inputs):
    if stream_for(inputs["q"]):
        raise Found("stream-ignored")
    return expected_output(**inputs)


def error_not_returned(**inputs):
    return expected_output(**inputs)


error_not_returned.failing = lambda case: RETURNS_ZERO


def queries_in_one_piece(q, **inputs):
    """The first sequence's queries are right. Later ones are read from too early."""
    num_seqs, num_q_heads, head_size = q.shape
    return expected_output(
        q=q.as_strided(q.shape, (num_q_heads * head_size, head_size, 1)), **inputs
    )


def is_given(answer: str) -> bool:
    """Whether nothing but comments and spaces has been changed."""
    return _code_of(answer) == _code_of(given_kernel("bug_hunt.cu", "6.8"))


def _code_of(text: str) -> str:
    return "".join(mask(text).split())


LARGEST = "float* largest = query + p.head_size;  // one number for each thread"
SCORES = "float* scores = largest + blockDim.x;  // one number for each token"
TABLE = "p.block_table[int64_t(sequence) * p.max_blocks_per_seq + token / p.block_size]"
ROW = (
    "return ((block_id * p.block_size + token % p.block_size) * p.num_kv_heads + kv_head) "
    "* p.head_size;"
)
KV_HEAD = "head / (p.num_q_heads / p.num_kv_heads);"
EMPTY_OUT = "// Without a key, the loops over tokens have no turn, and out gets zeros."
BARRIER = "__syncthreads();\n  // END SOLUTION\n  float max_score"
MAXIMUM = "largest[threadIdx.x] = fmaxf(largest[threadIdx.x], scores[token]);"
GRID = "dim3(p.num_seqs, p.num_q_heads), 128, numbers"
BYTES = "128, numbers * sizeof(float), stream"

EXERCISE = Exercise(
    id="6.8",
    title="a bug hunt",
    answer_name="bug_hunt",
    language="cuda",
    reference=expected_output,
    prepare=hunted_attention,
    cases=lambda: (*CHECKED, FAILING, FAR),
    size=lambda case: 1,  # they come as in hunt(), which takes one fault after the other
    hidden=hidden,
    observe=observe,
    describe=describe,
    # the first case that fails names the fault; later cases show later faults as well
    chancy=lambda case: True,
    same=tensors.same,
    show=show,
    is_given=is_given,
    points=3,
    time_limit=30.0,  # the long context takes a second, and more on a busy machine
    mistakes=(
        Mistake(
            "no-dynamic-smem",
            "The kernel uses more dynamic shared memory than its launch asks for. "
            "How many numbers do the arrays declared with `extern __shared__` need, "
            "and what does the third entry in <<<…>>> say?",
            reported("dynamic-shared-too-small", *CHECKED),
            ((BYTES, "128, 0, stream"),),
        ),
        Mistake(
            "missing-barrier",
            "A thread reads what another thread writes, and nothing makes it wait until "
            "that is written. The report names both lines. "
            "Where between them have all threads of the block to meet?",
            reported("race", *CHECKED),
            ((BARRIER, BARRIER.replace("__syncthreads();", "")),),
            also=(reported("race", *CHECKED[1:]),),
        ),
        Mistake(
            "barrier-in-branch",
            "Some threads of the block wait at a __syncthreads() that the others never "
            "reach. It must not be in a loop or a branch that the threads leave at different "
            "times.",
            reported("barrier-in-branch", *CHECKED),
            ((MAXIMUM, f"{MAXIMUM} __syncthreads();"),),
        ),
        Mistake(
            "shared-alias",
            "The query is overwritten before it is used. Dynamic shared memory is one piece: "
            "every `extern __shared__` array begins at its first byte, whatever its name. "
            "How does the second array get a place after the first one, for every head_size?",
            nan_in(*CHECKED),
            ((LARGEST, "extern __shared__ float largest[];"),),
            also=(nan_in(LARGE_HEAD), reported("race", MIXED)),
        ),
        Mistake(
            "wrong-layout",
            "Keys and values are read from the wrong places. The caches are (num_blocks, "
            "block_size, num_kv_heads, head_size). "
            "Two tokens lie one after the other in a block. How far apart are their keys?",
            addressed(
                row_of=lambda block_id, offset, kv_head, block_size, num_kv_heads: (
                    (block_id * num_kv_heads + kv_head) * block_size + offset
                )
            ),
            (
                (
                    ROW,
                    ROW.replace(
                        "block_size + token % p.block_size) * p.num_kv_heads + kv_head",
                        "num_kv_heads + kv_head) * p.block_size + token % p.block_size",
                    ),
                ),
            ),
            also=(
                addressed(
                    row_of=lambda block_id, offset, kv_head, block_size, num_kv_heads: (
                        block_id * block_size + offset
                    )
                ),
            ),
        ),
        Mistake(
            "wrong-head-mapping",
            "Query heads read the keys of a KV head that is not theirs. Several query heads, "
            "one after the other, share a KV head. "
            "blockDim is the size of the block of threads. What does it know of heads?",
            addressed(kv_head_of=lambda head, num_q_heads, num_kv_heads: head),
            ((KV_HEAD, "head / max(1, int(blockDim.y) / p.num_kv_heads);"),),
        ),
        Mistake(
            "heads-taken-in-turn",
            "The query heads take the KV heads in turn: 0, 1, 0, 1 and so on. "
            "But neighbouring query heads share one: 0, 0, 0, 1, 1, 1, "
            "as in repeat_interleave.",
            addressed(kv_head_of=lambda head, num_q_heads, num_kv_heads: head % num_kv_heads),
            ((KV_HEAD, "head % p.num_kv_heads;"),),
        ),
        Mistake(
            "divided-by-kv-heads",
            "The number of the query head is divided by something that is right for some "
            "batches only: the number of KV heads, or a constant. "
            "How many query heads share one KV head, in any batch?",
            addressed(kv_head_of=lambda head, num_q_heads, num_kv_heads: head // num_kv_heads),
            ((KV_HEAD, "head / p.num_kv_heads;"),),
        ),
        Mistake(
            "wrong-table-stride",
            "The first sequence is right, but a later one reads table entries that are "
            "not its own. The table is (num_seqs, max_blocks_per_seq). "
            "How many entries lie between the beginnings of two rows?",
            addressed(stride_of=lambda q, k_cache, block_table: q.shape[1]),
            ((TABLE, "p.block_table[sequence * p.num_q_heads + token / p.block_size]"),),
            also=(
                addressed(stride_of=lambda q, k_cache, block_table: k_cache.shape[1]),
                addressed(stride_of=lambda q, k_cache, block_table: len(q)),
                addressed(stride_of=lambda q, k_cache, block_table: 0),
            ),
        ),
        Mistake(
            "empty-context-unwritten",
            "A sequence without a token leaves its output as it was: "
            "whatever was in that memory before. The answer to an empty context is zeros, "
            "and some thread has to write them.",
            reported("output-unwritten", EMPTY, MIXED, EMPTY_LARGE_HEAD),
            ((EMPTY_OUT, "if (context_len == 0) return;"),),
            also=(reported("output-unwritten", EMPTY_LARGE_HEAD),),
        ),
        Mistake(
            "zeros-behind-the-head",
            "An empty context gets its zeros, but other places get zeros too. "
            "Threads without an element write as well, into other rows or past the end "
            "of the output. A head has head_size elements.",
            reported("out-of-bounds", EMPTY),
            ((EMPTY_OUT, "if (context_len == 0) { out[threadIdx.x] = 0.0f; return; }"),),
        ),
        Mistake(
            "zero-by-several-threads",
            "For an empty context, several threads write to the same place. "
            "Each element of a head should get its zero from one thread. "
            "A thread writes some elements, or none.",
            zeros_by_several,
            ((EMPTY_OUT, "if (context_len == 0) { out[0] = 0.0f; return; }"),),
        ),
        Mistake(
            "zeros-in-other-rows",
            "For an empty context, a block writes zeros into a row of out that is "
            "not its own. Another block writes there too. "
            "A row belongs to one sequence and one query head. Which row is this block's?",
            zeros_in(lambda seq, head: head),
            (
                (
                    EMPTY_OUT,
                    (
                        "if (context_len == 0) {\n"
                        "    for (int i = threadIdx.x; i < p.head_size; i += blockDim.x) {\n"
                        "      static_cast<float*>(p.out)[head * p.head_size + i] = 0.0f;\n"
                        "    }\n"
                        "    return;\n"
                        "  }"
                    ),
                ),
            ),
            also=(
                zeros_in(lambda seq, head: seq),
                zeros_in(lambda seq, head: 0),
                zeros_in_all_rows,
            ),
        ),
        Mistake(
            "axes-exchanged",
            "context_lens is read past its end, with a number that counts heads. "
            "The grid has two axes. What does the launch count along each of them, "
            "and what does the kernel take blockIdx.x and blockIdx.y for?",
            axes_exchanged,
            ((GRID, "dim3(p.num_q_heads, p.num_seqs), 128, numbers"),),
        ),
        Mistake(
            "fixed-score-buffer",
            "The kernel has room for a fixed number of scores, but a context may be longer. "
            "The launcher knows the longest context of the batch before it launches. "
            "Where is there room for that many scores?",
            reported("shared-out-of-bounds", MANY_TOKENS, LONGER),
            ((SCORES, "__shared__ float scores[256];"),),
            also=(
                reported("shared-out-of-bounds", LONGER),
                reported("dynamic-shared-too-small", MANY_TOKENS, LONGER),
                reported("dynamic-shared-too-small", LONGER),
                reported("bad-launch", LONGER),
            ),
        ),
        Mistake(
            "max-starts-at-zero",
            "Where all scores are far below 0, exp() of each comes out as 0, "
            "and so does their sum. The search for the largest score must not begin at 0. "
            "This was right in the text that you were given.",
            low_scores_lost,
            (("largest[threadIdx.x] = -INFINITY;", "largest[threadIdx.x] = 0.0f;"),),
        ),
        Mistake(
            "offset-overflows",
            "row() computes in int. In a large pool the offset does not fit into 32 bits, "
            "and comes out negative. In the text that you were given, "
            "block_id was an int64_t: one number of 64 bits gives the whole product 64 bits.",
            cut_off(expected_output),
            (
                (
                    "const int64_t block_id = p.block_table[int64_t(",
                    "const int block_id = p.block_table[int64_t(",
                ),
            ),
        ),
        Mistake(
            "stream-ignored",
            "The launch does not name the stream. So the kernel goes to the default stream, "
            "while PyTorch may be working on another. "
            "The stream is the fourth thing between <<< and >>>.",
            stream_ignored,
            (("sizeof(float), stream>>>", "sizeof(float)>>>"),),
        ),
        Mistake(
            "error-not-returned",
            "When the launch fails, the caller does not learn of it. "
            "A launch itself returns nothing, but cudaGetLastError() knows.",
            error_not_returned,
            (("return cudaGetLastError();", "return 0;"),),
        ),
        Mistake(
            "query-stride-made-up",
            "The queries of the second sequence are looked for in the wrong place. "
            "q may be a part of a larger tensor, with other numbers between two sequences. "
            "The struct says how far apart they are.",
            queries_in_one_piece,
            (("sequence * p.q_stride", "sequence * p.num_q_heads * p.head_size"),),
        ),
    ),
    hints=(
        (
            "One fault at a time: hunt(bug_hunt) runs small cases first and stops at "
            "the first one that goes wrong. Repair that, run the cell of the kernel again, "
            "and hunt again. Do not look for the next fault before this one is gone."
        ),
        (
            "If there is a report, begin at the line that it names. "
            "Ask what that line takes for granted: that memory is there, "
            "that some thread has written it, that an entry belongs to this sequence."
        ),
        (
            "If the numbers are wrong, hunt() says which rows of the output, "
            "and which keys were read for the first of them. "
            "Work out by hand which keys that head should read, "
            "from the block table that is shown. If they are the right ones, "
            "the fault is in what is done with them."
        ),
        (
            "The parameters' struct gives the sizes of each tensor. "
            "Compare each index in the kernel with them, the largest step first."
        ),
    ),
)
