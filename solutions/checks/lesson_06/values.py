"""Exercise 6.5: the softmax over a block's threads, and the weighted values."""

import torch

from lessons_lib.checks import Exercise, Mistake
from solutions.checks import tensors
from solutions.checks.lesson_06.native import Case, Found, batch_of, build, describe, result_of, rows_at, same, slots_of
from solutions.checks.lesson_06.scores import right_head

THREADS = 128


def softmax(scores):
    return torch.softmax(scores, -1)


def in_float(weights_of):
    """In the kernel's own number format, where a mistake is one of range."""
    return lambda scores: weights_of(scores.float()).double()


def without_maximum(scores):
    weights = torch.exp(scores)
    return weights / weights.sum(-1, keepdim=True)


def maximum_from_zero(scores):
    weights = torch.exp(scores - scores.amax(-1, keepdim=True).clamp(min=0.0))
    return weights / weights.sum(-1, keepdim=True)


def not_normalised(scores):
    return torch.exp(scores - scores.amax(-1, keepdim=True))


def attention(weights_of=softmax, kv_head=right_head, values="v_cache"):
    """What the kernel gives, with some of its parts replaced. Accumulates in float64."""
    def wrong(batch):
        dtype, batch = batch.q.dtype, batch.double()
        out = torch.zeros(batch.q.shape, dtype=torch.float64)
        for seq, length in enumerate(batch.context_lens.tolist()):
            slots = slots_of(batch.block_table, seq, length, batch.k_cache.shape[1])
            for head in range(batch.q.shape[1] if length else 0):
                keys = rows_at(batch.k_cache, slots, right_head(head, batch), "k_cache")
                rows = rows_at(getattr(batch, values), slots, kv_head(head, batch), values)
                out[seq, head] = weights_of(keys @ batch.q[seq, head] * batch.scale) @ rows
        return out.to(dtype)
    return wrong


def no_barrier(batch):
    """What one thread has written another reads, as soon as there are two elements or tokens."""
    if int(batch.context_lens.max()) > 1 or (int(batch.context_lens.max()) == 1 and batch.q.shape[2] > 1):
        raise Found("race")
    return attention()(batch)


def no_barrier_at_all(batch):
    """All threads read all weights."""
    if int(batch.context_lens.max()) > 0:
        raise Found("race")
    return attention()(batch)


def empty_unwritten(batch):
    if int(batch.context_lens.min()) == 0:
        raise Found("output-unwritten", "out")
    return attention()(batch)


def empty_divides(batch):
    """0 / 0 where there is no token."""
    out = attention()(batch)
    out[batch.context_lens == 0] = float("nan")
    return out


def first_elements_written(batch):
    if batch.q.shape[2] > THREADS:
        raise Found("output-unwritten", "out")
    return attention()(batch)


def sum_of_own_tokens(scores):
    """Each thread divides by the sum over its own tokens."""
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    own = torch.stack([weights[thread::THREADS].sum() for thread in range(THREADS)])
    return weights / own[torch.arange(len(scores)) % THREADS]


def prepare(answer):
    library = build(answer, "numbers.cuh", "paged_params.cuh", "paged_address.cuh", "paged_scores.cuh", "block_reduce.cuh",
                    wrapper="values_check.cu")
    return native(library.values)


def native(launch):
    """The launcher of a library as a function of a batch that gives the output."""
    def attend(batch):
        out = torch.empty(batch.q.shape, dtype=batch.q.dtype)
        launch(**batch.fields(out=out, scores=batch.new_scores() if batch.workspace else None))
        return out
    return attend


def cases():
    yield from (
        Case((1,), 1, 1, 1, 4), Case((1,), 1, 1, 4, 4), Case((3,), 1, 1, 4, 4), Case((4, 5), 2, 2, 8, 4),
        Case((0,), 1, 1, 8, 4), Case((0, 3, 9), 6, 2, 8, 4), Case((6,), 1, 1, 8, 4, shift=200.0),
        Case((6,), 1, 1, 8, 4, shift=-200.0), Case((8, 2), 7, 1, 12, 4, workspace=True),
        Case((2, 17, 16), 4, 4, 16, 16, dtype=1), Case((7, 4), 6, 3, 8, 3, seed=1, dtype=2), Case((128, 127), 2, 1, 8, 16),
        Case((129, 300), 2, 2, 8, 16, spread=3.0, workspace=True), Case((20, 6), 3, 1, 200, 8),
        Case((2,), 2, 2, 256, 4, dtype=1), Case((11, 140), 6, 2, 8, 16, spare_context=30))


def observe(subject, case):
    return result_of(lambda: subject(batch_of(case)), names=("out", "v_cache"))




HEAD = "head / (params.num_q_heads / params.num_kv_heads)"
NORMALISE = "  for (int token = threadIdx.x; token < num_tokens; token += blockDim.x) scores[token] /= sum;\n"

EXERCISE = Exercise(
    id="6.5",
    title="softmax and values",
    answer_name="paged_values",
    language="cuda",
    reference=attention(),
    prepare=prepare,
    cases=cases,
    observe=observe,
    describe=lambda case: f"{describe(case)}; the output for each (sequence, head, element)",
    same=same,
    show=tensors.show,
    points=2,
    mistakes=(
        Mistake("missing-barrier",
                "Pass 2 reads the weights of all tokens, and some thread is still writing its own. Where do all threads "
                "have to wait for each other?",
                no_barrier, (("/= sum;\n  __syncthreads();", "/= sum;"),), also=(no_barrier_at_all,)),
        Mistake("max-not-subtracted",
                "Large scores give inf or NaN: exp() of a score above 88 does not fit into a float. Subtract the largest "
                "score first; the weights stay the same.",
                attention(in_float(without_maximum)), (("expf(scores[token] - largest)", "expf(scores[token])"),)),
        Mistake("max-starts-at-zero",
                "Where all scores are far below 0, exp() of each comes out as 0, and their sum too. The search for the "
                "largest score must not begin at 0.",
                attention(in_float(maximum_from_zero)), (("largest = -INFINITY", "largest = 0.0f"),)),
        Mistake("not-normalised",
                "The weights do not add up to 1. What is exp(score - largest) to be divided by?",
                attention(not_normalised), ((NORMALISE, ""),)),
        Mistake("sum-of-own-tokens",
                "Each thread divides by the sum over its own tokens. The softmax is over all of them: the threads have to "
                "put their sums together.",
                attention(sum_of_own_tokens), (("sum = block_sum(sum);", "block_sum(sum);"),)),
        Mistake("empty-context-unwritten",
                "A sequence without a token leaves its output unwritten, so that there stands whatever was there before. "
                "Its output is zeros, and somebody has to write them.",
                empty_unwritten, (("float result = 0.0f;", "float result = 0.0f;\n    if (num_tokens == 0) return;"),),
                also=(empty_divides,)),
        Mistake("wrong-head-mapping",
                "A query head gets the values of a KV head that is not its own. The mapping is the same as for the keys.",
                attention(kv_head=lambda head, batch: head // batch.k_cache.shape[2]),
                ((HEAD, "head / params.num_kv_heads"),),
                also=(attention(kv_head=lambda head, batch: head % batch.k_cache.shape[2]),
                      attention(kv_head=lambda head, batch: head), attention(kv_head=lambda head, batch: 0))),
        Mistake("head-larger-than-the-block",
                "A head may have more elements than the block has threads. With one element for each thread, the others "
                "are never written.",
                first_elements_written,
                (("for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) {",
                  "if (int i = threadIdx.x; i < params.head_size) {"),)),
    ),
    hints=(
        "The softmax takes three rounds over a thread's own tokens, t, t + blockDim.x, …: find the largest score, make "
        "weights and add them up, divide. After the first and the second round the threads put their results together.",
        "A thread without a token takes part in block_max() and block_sum() as well. What does it bring, so that it changes "
        "nothing?",
        "In pass 2 each thread takes an element of the head and goes through all tokens. Its sum stands in a variable of "
        "its own, so there is nothing to share and nothing to wait for.",
        "With no token the loop over the tokens does nothing. Is the output written all the same?",
    ),
)
