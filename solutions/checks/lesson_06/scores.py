"""Exercise 6.4: the scores of one query, a thread for each token."""

import torch

from lessons_lib.checks import Exercise, Mistake
from solutions.checks import tensors
from solutions.checks.lesson_06.native import Case, Found, batch_of, build, describe, result_of, rows_at, slots_of

THREADS = 128
NOT_WRITTEN = -7777.0  # what new_scores() holds


def right_head(head, batch):
    return head // (batch.q.shape[1] // batch.k_cache.shape[2])


def scores(kv_head=right_head, scale=lambda batch: batch.scale, query=lambda row: row, tokens=lambda length, batch: length):
    """paged_scores() for every sequence and head, with some of its parts replaced. Accumulates in float64."""
    def wrong(batch):
        result, batch = batch.new_scores(), batch.double()
        num_seqs, num_q_heads, _ = batch.q.shape
        for seq, length in enumerate(batch.context_lens.tolist()):
            slots = slots_of(batch.block_table, seq, length, batch.k_cache.shape[1])[: tokens(length, batch)]
            for head in range(num_q_heads):
                keys = rows_at(batch.k_cache, slots, kv_head(head, batch), "k_cache")
                result[seq, head, : len(slots)] = (keys @ query(batch.q[seq, head]) * scale(batch)).float()
        return result
    return wrong


def each_of_these(length, batch):
    return min(length, THREADS)


def no_barrier(batch):
    """The first thread needs what the others load, unless it loads all of it itself and no other has a token."""
    if int(batch.context_lens.max()) > 1 or batch.q.shape[2] > 1:
        raise Found("race")
    return scores()(batch)


def first_elements_loaded(batch):
    if batch.q.shape[2] > THREADS and int(batch.context_lens.max()) > 0:
        raise Found("shared-uninitialised")
    return scores()(batch)


def each_thread_scores_all(batch):
    if int(batch.context_lens.max()) > 0:
        raise Found("race")
    return scores()(batch)


def whole_row(batch):
    """As many tokens as the longest context has: shorter ones meet the entries of -1 behind their blocks."""
    block_size = batch.k_cache.shape[1]
    for length in batch.context_lens.tolist():
        if -(-batch.max_context_len // block_size) > -(-length // block_size):
            raise Found("block-table", "k_cache")
    return scores()(batch)


def prepare(answer):
    library = build(answer, "numbers.cuh", "paged_params.cuh", "paged_address.cuh", wrapper="scores_check.cu")

    def native(batch):
        result = batch.new_scores()
        library.scores(**batch.fields(scores=result))
        return result
    return native


def cases():
    yield from (
        Case((1,), 1, 1, 1, 4), Case((1,), 1, 1, 8, 4), Case((3,), 1, 1, 8, 4), Case((4, 5), 2, 2, 8, 4),
        Case((0, 3, 9), 6, 2, 8, 4), Case((8, 2), 7, 1, 12, 4, dtype=1), Case((5, 16, 17), 4, 4, 16, 16, dtype=2),
        Case((7, 4), 6, 3, 8, 3, gap=5, seed=1), Case((128, 127), 2, 1, 8, 16), Case((129, 300), 2, 2, 8, 16, dtype=1),
        Case((20, 6), 3, 1, 200, 8), Case((2,), 2, 2, 256, 4, dtype=1),
        Case((6, 40), 14, 2, 64, 16, dtype=2, spare_context=9))


def observe(subject, case):
    """The scores of the tokens that there are; what stands behind them does not matter."""
    batch = batch_of(case)

    def run():
        result = subject(batch)
        behind = torch.arange(batch.max_context_len) >= batch.context_lens[:, None, None]
        return result.masked_fill(behind, 0.0)
    return result_of(run, names=("k_cache",))


LOAD = "for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) q[i] = to_float(q_row[i]);"
HEAD = "head / (params.num_q_heads / params.num_kv_heads)"
TOKENS = "for (int token = threadIdx.x; token < num_tokens; token += blockDim.x) {"

EXERCISE = Exercise(
    id="6.4",
    title="the scores",
    answer_name="paged_scores",
    language="cuda",
    reference=scores(),
    prepare=prepare,
    cases=cases,
    observe=observe,
    describe=lambda case: f"{describe(case)}; the scores for each (sequence, head, token)",
    same=tensors.same,
    show=tensors.show,
    points=2,
    mistakes=(
        Mistake("wrong-head-mapping",
                "A query head reads the keys of a KV head that is not its own. Neighbouring query heads share one: of 6 "
                "query heads and 2 KV heads, the first three belong to KV head 0. How many query heads share one, and "
                "which one is it then?",
                scores(lambda head, batch: head // batch.k_cache.shape[2]), ((HEAD, "head / params.num_kv_heads"),),
                also=(scores(lambda head, batch: head % batch.k_cache.shape[2]), scores(lambda head, batch: head),
                      scores(lambda head, batch: 0))),
        Mistake("missing-scale",
                "The scores are not scaled. The factor has been worked out before the launch; it is a field of the struct.",
                scores(scale=lambda batch: 1.0), (("params.scale * product", "product"),)),
        Mistake("missing-barrier",
                "A thread reads the query from shared memory before all of it is there: the other threads are still "
                "loading. What makes all threads of a block wait for each other?",
                no_barrier, (("  __syncthreads();\n", ""),)),
        Mistake("query-loaded-in-part",
                "A head may have more elements than the block has threads. With one element for each thread, the rest of "
                "the query is never loaded.",
                first_elements_loaded, ((LOAD, "if (threadIdx.x < params.head_size) q[threadIdx.x] = "
                                               "to_float(q_row[threadIdx.x]);"),)),
        Mistake("one-token-for-each-thread",
                "A context may have more tokens than the block has threads. The tokens behind the first 128 get no score. "
                "When a thread is done with its token, there may be another one for it.",
                scores(tokens=each_of_these),
                ((TOKENS, "if (int token = threadIdx.x; token < num_tokens) {"),)),
        Mistake("each-thread-scores-all",
                "Several threads write the same score. The tokens are to be shared out: each one belongs to one thread.",
                each_thread_scores_all, ((TOKENS, "for (int token = 0; token < num_tokens; ++token) {"),)),
        Mistake("behind-the-context",
                "The loop goes on behind the sequence's last token, where the block table says -1, which is no block. How "
                "many tokens this sequence has, context_lens says; max_context_len is the longest of them all.",
                whole_row, (("num_tokens = params.context_lens[seq]", "num_tokens = params.max_context_len"),)),
    ),
    hints=(
        "First bring the query into q, all threads together: thread 0 takes the elements 0, blockDim.x, 2 * blockDim.x, …, "
        "and to_float() makes a float of each. Then wait until all of it is there.",
        "Tokens are shared out in the same way: thread t takes the tokens t, t + blockDim.x, …",
        "For each token: cache_offset() says where its key begins in k_cache. Multiply it with q element by element, add "
        "up, scale, and write the result to scores[token].",
    ),
)
