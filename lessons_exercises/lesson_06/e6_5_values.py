"""Exercise 6.5: the softmax over a block's threads, and the weighted values."""

import math
import random
import re
from dataclasses import dataclass, replace

import torch

from lessons_exercises.lesson_06.e6_4_scores import crosses_warps, right_head
from lessons_exercises.lesson_06.native import (
    FAR,
    Case,
    FarCase,
    Found,
    batch_of,
    build,
    cut_off,
    describe,
    drawn,
    first_numbers,
    in_one_piece,
    numbers_at,
    observe_far,
    reached,
    result_of,
    rows_at,
    same,
    show,
    size,
    slots_of,
)
from lessons_lib.checks import Exercise, Mistake
from lessons_lib.cuda_on_cpu.reports import KernelError

THREADS = 128
# Kinds of faults, as `refined` has them.
BLOCK_CALL, PASS_2_AND_SOFTMAX = "within a block_ function", "order: pass 2 and softmax"
SCORES_AND_SOFTMAX = "order: paged_scores.cuh and softmax"
SOFTMAX_ALONE = "order: softmax and softmax"


@dataclass(frozen=True)
class SimilarValues(Case):
    """All values near 1, and all scores the same: a long sum of numbers of one size."""


def made(case):
    batch = batch_of(case)
    if not isinstance(case, SimilarValues):
        return batch
    return replace(batch, q=torch.zeros_like(batch.q), v_cache=batch.v_cache / 8 + 1)


def describe_case(case):
    if isinstance(case, FarCase):
        return case.describe()
    more = ", all values near 1 and all scores 0" if isinstance(case, SimilarValues) else ""
    return (
        f"{describe(replace(case, spread=case.spread or 1.0))}{more}; "
        "the output for each (sequence, head, element)"
    )


def softmax(scores):
    return torch.softmax(scores, -1)


def in_float(weights_of):
    """In the kernel's own number format, where a mistake is one of range."""
    return lambda scores: weights_of(scores.float()).double()


def without_maximum(scores):
    weights = torch.exp(scores)
    return weights / weights.sum(-1, keepdim=True)


def maximum_from(start):
    def weights_of(scores):
        weights = torch.exp(scores - scores.amax(-1, keepdim=True).clamp(min=start))
        return weights / weights.sum(-1, keepdim=True)

    return attention(in_float(weights_of))


def own_maximum(scores):
    """Each thread subtracts the largest score of its own tokens."""
    largest = torch.stack(
        [scores[thread % THREADS :: THREADS].amax() for thread in range(len(scores))]
    )
    weights = torch.exp(scores - largest)
    return weights / weights.sum(-1, keepdim=True)


def in_order(weights, rows, dtype):
    return weights @ rows


def rounded_each_time(weights, rows, dtype):
    """The weighted sum in the format of the output."""
    total = torch.zeros(rows.shape[1], dtype=dtype)
    for weight, row in zip(weights.float(), rows.float(), strict=True):
        total = (total.float() + weight * row).to(dtype)
    return total.double()


def not_normalised(scores):
    return torch.exp(scores - scores.amax(-1, keepdim=True))


def attention(
    weights_of=softmax,
    kv_head=right_head,
    values="v_cache",
    weighted_sum=in_order,
    places=slots_of,
):
    """What the kernel gives, with some of its parts replaced. Accumulates in float64."""

    def wrong(batch):
        dtype, batch = batch.q.dtype, batch.double()
        out = torch.zeros(batch.q.shape, dtype=torch.float64)
        for seq, length in enumerate(batch.context_lens.tolist()):
            slots = slots_of(batch.block_table, seq, length, batch.k_cache.shape[1])
            value_slots = places(batch.block_table, seq, length, batch.k_cache.shape[1])
            for head in range(batch.q.shape[1] if length else 0):
                keys = rows_at(batch.k_cache, slots, right_head(head, batch), "k_cache")
                rows = rows_at(
                    getattr(batch, values), value_slots, kv_head(head, batch), values
                )
                weights = weights_of(keys @ batch.q[seq, head] * batch.scale)
                out[seq, head] = weighted_sum(weights, rows, dtype)
        return out.to(dtype)

    return wrong


def found(kind, shows, name=""):
    """The model of a fault that checked mode reports where `shows(batch)`."""

    def wrong(batch):
        if shows(batch):
            raise Found(kind, name)
        return attention()(batch)

    return wrong


def any_token(batch):
    return int(batch.context_lens.max()) > 0


def two_tokens(batch):
    return int(batch.context_lens.max()) > 1


def two_threads(batch):
    """One thread reads what another has written, from two elements or tokens on."""
    return two_tokens(batch) or any_token(batch) and batch.q.shape[2] > 1


def fewer_tokens_than_threads(batch):
    return any(0 < length < THREADS for length in batch.context_lens.tolist())


def threads_differ(batch):
    """Not all threads have the same number of tokens."""
    return any(length % THREADS for length in batch.context_lens.tolist())


def some_leave_early(batch):
    """The threads without a token return from softmax.

    They meet those of pass 1 in pass 2, if they have an element.
    """
    if any_token(batch):
        raise Found(
            BLOCK_CALL if batch.q.shape[2] == 1 else "order: paged_scores.cuh and pass 2"
        )
    return attention()(batch)


def some_leave_behind_the_maximum(batch):
    """The threads without a token return from softmax after block_max()."""
    if any_token(batch):
        raise Found(BLOCK_CALL if batch.q.shape[2] == 1 else PASS_2_AND_SOFTMAX)
    return attention()(batch)


def starts_from_the_first_score(batch):
    """All threads read score 0, which thread 0 wrote in pass 1, or no thread."""
    raise Found(SCORES_AND_SOFTMAX if int(batch.context_lens[0]) else "order")


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


def one_token_each(scores):
    """The scores after the first 128 stay as they are."""
    return torch.cat([softmax(scores[:THREADS]), scores[THREADS:]])


def maxima_added_up(scores):
    """What a thread without a token brings to the maximum, -inf, ends up in a sum."""
    own = [scores[thread::THREADS].amax() for thread in range(min(len(scores), THREADS))]
    weights = torch.exp(scores - (sum(own) if len(own) == THREADS else -torch.inf))
    return weights / weights.sum(-1, keepdim=True)


def divided_by_the_length(scores):
    return not_normalised(scores) / len(scores)


def divided_as_they_are(scores):
    """The exponentials are added up, and the scores are what is divided."""
    return scores / torch.exp(scores - scores.amax(-1, keepdim=True)).sum(-1, keepdim=True)


def scores_added_up(scores):
    return torch.exp(scores - scores.amax(-1, keepdim=True)) / scores.sum(-1, keepdim=True)


def maximum_in_the_sum_alone(scores):
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return torch.exp(scores) / weights.sum(-1, keepdim=True)


def powers_of_two(scores):
    return softmax(scores * math.log(2))


def added_to_the_sum(extra):
    """What the exponentials are divided by is more than their sum."""

    def weights_of(scores):
        weights = not_normalised(scores)
        return weights / (weights.sum(-1, keepdim=True) + extra)

    return attention(weights_of)


def scaled_again(factor_of):
    """The scores multiplied by factor_of(num_tokens) before the softmax."""
    return attention(lambda scores: softmax(scores * factor_of(len(scores))))


def for_head_size(head_size):
    return lambda num_tokens: head_size**-0.5


def first_element_for_all(weights, rows, dtype):
    return (weights @ rows[:, :1]).expand(rows.shape[1])


def sum_not_reset(weights, rows, dtype):
    """A thread's second element has the first one on top."""
    result = weights @ rows
    result[THREADS:] += (
        result[: -THREADS or None][: len(result) - THREADS] if len(result) > THREADS else 0
    )
    return result


def last_token_only(weights, rows, dtype):
    return weights[-1] * rows[-1]


def own_tokens_only(weights, rows, dtype):
    """Thread t adds up the tokens t, t + 128, … for the elements t, t + 128, …"""
    token = torch.arange(len(rows))[:, None]
    element = torch.arange(rows.shape[1])
    return weights @ (rows * (token % THREADS == element % THREADS))


def new_token_left_out(weights, rows, dtype):
    return weights[:-1] @ rows[:-1]


def first_token_left_out(weights, rows, dtype):
    return weights[1:] @ rows[1:]


def mean_of_the_weighted(guarded):
    """Divided by the number of tokens once more; guarded: where there is one."""

    def wrong(batch):
        out = attention(weighted_sum=lambda weights, rows, dtype: weights @ rows / len(rows))(
            batch
        )
        out[(batch.context_lens == 0) & (not guarded)] = float("nan")
        return out

    return wrong


def with_values(values_of):
    """The model of a kernel that takes other values.

    It takes values_of(batch, seq, kv_head, length), (length, head_size).
    """

    def wrong(batch):
        rows_in_turn = (
            values_of(batch, seq, right_head(head, batch), length)
            for seq, length in enumerate(batch.context_lens.tolist())
            if length
            for head in range(batch.q.shape[1])
        )
        return attention(
            weighted_sum=lambda weights, rows, dtype: weights @ next(rows_in_turn)
        )(batch)

    return wrong


def head_and_token_exchanged(batch, seq, kv_head, length):
    """The token with the number of the KV head, and the head with the number of the token."""
    slot = slots_of(batch.block_table, seq, kv_head + 1, batch.k_cache.shape[1])[kv_head:]
    return torch.cat(
        [rows_at(batch.v_cache.double(), slot, token, "v_cache") for token in range(length)]
    )


def steps_between_elements(step_of):
    """From one element to the next it is step_of(…) numbers.

    Its arguments are (block_size, num_kv_heads, head_size).
    """

    def values_of(batch, seq, kv_head, length):
        cache, element = batch.v_cache.double(), torch.arange(batch.q.shape[2])
        first = first_numbers(
            cache, slots_of(batch.block_table, seq, length, cache.shape[1]), kv_head
        )
        places = first[:, None] + step_of(*cache.shape[1:]) * element
        return numbers_at(cache.flatten(), places.flatten(), 1, "v_cache").view(places.shape)

    return with_values(values_of)


def behind_the_last_score(batch):
    if batch.workspace:
        raise Found("race-between-blocks")
    is_longest = int(batch.context_lens[0]) == batch.max_context_len
    raise Found("dynamic-shared-too-small" if is_longest else "order")


def weight_of_the_element(batch):
    """weights[i], where i is the element."""
    for length in batch.context_lens.tolist():
        if 0 < length < batch.q.shape[2]:
            if batch.workspace:
                raise Found("race-between-blocks")
            is_longest = length == batch.max_context_len
            raise Found("dynamic-shared-too-small" if is_longest else "order")
    return attention(
        weighted_sum=lambda weights, rows, dtype: weights[: rows.shape[1]] * rows.sum(0)
    )(batch)


def elements_up_to(last):
    """Each block goes through the elements below last(head_size).

    Blocks come one after another, sequence by sequence.
    """

    def wrong(batch):
        num_seqs, num_q_heads, head_size = batch.q.shape
        written = torch.zeros(
            batch.q.numel() + max(last(head_size), head_size), dtype=torch.bool
        )
        for head in range(num_q_heads):
            for seq, length in enumerate(batch.context_lens.tolist()):
                first = (seq * num_q_heads + head) * head_size
                slots = slots_of(batch.block_table, seq, length, batch.v_cache.shape[1])
                values_at = (
                    slots * batch.v_cache.shape[2] + right_head(head, batch)
                ) * head_size
                for i in range(last(head_size)):
                    if length and int(values_at.max()) + i >= batch.v_cache.numel():
                        raise Found("out-of-bounds", "v_cache")
                    if first + i >= batch.q.numel():
                        raise Found("out-of-bounds", "out")
                    if written[first + i]:
                        raise Found("race-between-blocks", "out")
                written[first : first + last(head_size)] = True
        return attention()(batch)

    return wrong


def start_from_a_score(even_without_tokens):
    """Each thread begins with score threadIdx.x.

    What the threads past the context find there depends on what was there before.
    """

    def wrong(batch):
        for length in batch.context_lens.tolist():
            if length < THREADS and (length > 0 or even_without_tokens):
                raise Found(
                    "out-of-bounds"
                    if batch.workspace
                    else (
                        "shared-uninitialised"
                        if length < batch.max_context_len
                        else "dynamic-shared-too-small"
                    )
                )
        return attention()(batch)

    return wrong


def whole_row(batch):
    """Weights that no thread has written, and in a workspace values of no token."""
    if int(batch.context_lens.min()) < batch.max_context_len:
        raise (
            Found("out-of-bounds", "v_cache")
            if batch.workspace
            else Found("shared-uninitialised")
        )
    return attention()(batch)


def added_to_out(by_tokens):
    """The sum is kept in out.

    by_tokens: each thread has tokens there, and all of them add to the same elements.
    """

    def wrong(batch):
        longest = int(batch.context_lens.max())
        if not by_tokens or longest == 1:
            raise Found("output-read", "out")
        raise Found("race", "out") if longest else Found("output-unwritten", "out")

    return wrong


def each_thread_all_elements(batch):
    raise Found("several-writers", "out")


def row_added_again(batch):
    if batch.q.shape[0] * batch.q.shape[1] > 1:
        raise Found("out-of-bounds", "out")
    return attention()(batch)


def head_added_again(batch):
    """The place in out_row is head * head_size + i."""
    num_seqs, num_q_heads = batch.q.shape[:2]
    written = set()
    for head in range(num_q_heads):
        for seq in range(num_seqs):
            row = seq * num_q_heads + 2 * head
            if row >= num_seqs * num_q_heads or row in written:
                raise Found(
                    "race-between-blocks" if row in written else "out-of-bounds", "out"
                )
            written.add(row)
    return attention()(batch)


def prepare(answer):
    library = build(
        answer,
        "numbers.cuh",
        "paged_params.cuh",
        "paged_address.cuh",
        "paged_scores.cuh",
        "block_reduce.cuh",
        wrapper="values_check.cu",
    )
    first_of_pass_2 = 1 + answer[: max(answer.find("paged_values"), 0)].count("\n")
    launch = native(library.values)

    def attend(batch):
        try:
            return launch(batch)
        except KernelError as error:
            error.kind = refined(error, first_of_pass_2)
            raise

    def look_far(batch):
        weights = torch.full((*batch.q.shape[:2], batch.max_context_len), 1.0)
        library.values_alone(**batch.fields(out=torch.empty(batch.q.shape), scores=weights))

    attend.far = lambda batch: reached(lambda: look_far(batch))
    return attend


def refined(error, first_of_pass_2):
    """The kind of an error, and for one of order between which parts of the kernel.

    Such as "order: pass 2 and softmax".
    """
    places = re.findall(r"^    ([^,\n]+), line (\d+): ", str(error), re.MULTILINE)
    if any(source == "block_reduce.cuh" for source, _ in places):
        return BLOCK_CALL
    if error.kind not in ("race", "missing-syncwarp") or len(places) != 2:
        return error.kind
    return "order: " + " and ".join(
        sorted(
            (
                source
                if source != "your code"
                else "pass 2"
                if int(line) >= first_of_pass_2
                else "softmax"
            )
            for source, line in places
        )
    )


def native(launch):
    """The launcher of a library as a function of a batch that gives the output."""

    def attend(batch):
        out = torch.empty(batch.q.shape, dtype=batch.q.dtype)
        launch(**batch.fields(out=out, scores=batch.new_scores() if batch.workspace else None))
        return out

    return attend


def cases():
    yield from (
        Case((1,), 1, 1, 1, 4),
        Case((1,), 1, 1, 4, 4),
        Case((3,), 1, 1, 4, 4),
        Case((4, 5), 2, 2, 8, 4),
        Case((0,), 1, 1, 8, 4),
        Case((0, 3, 9), 6, 2, 8, 4),
        Case((6,), 1, 1, 8, 4, shift=200.0),
        Case((6,), 1, 1, 8, 4, shift=-200.0),
        Case((6,), 1, 1, 8, 4, shift=-20_000.0, spread=0.0),
        Case((8, 2), 7, 1, 12, 4, workspace=True),
        Case((2, 17, 16), 4, 4, 16, 16, dtype=1),
        Case((7, 4), 6, 3, 8, 3, seed=1, dtype=2),
        Case((128, 127), 2, 1, 8, 16),
        Case((129, 300), 2, 2, 8, 16, spread=3.0, workspace=True),
        Case((20, 6), 3, 1, 200, 8),
        Case((2,), 2, 2, 256, 4, dtype=1),
        Case((11, 140), 6, 2, 8, 16, spare_context=30),
        SimilarValues((600,), 1, 1, 2, 16, dtype=2),
        FAR,
    )


def hidden(seed):
    """As those of the scores, with the scores in a workspace as well.

    Or with all of them far from 0.
    """
    chance = random.Random(seed)
    yield from (drawn(chance, workspace=number % 3 == 0) for number in range(9))
    yield drawn(chance, context_lens=(0, chance.randint(2, 9)))
    yield from (
        drawn(chance, context_lens=(chance.randint(3, 9),), dtype=0, shift=shift)
        for shift in (200.0, -200.0)
    )
    yield Case(
        (chance.randint(3, 9),),
        1,
        1,
        8,
        4,
        shift=-20_000.0 - chance.randint(1, 99),
        spread=0.0,
    )
    yield SimilarValues(
        (chance.randint(560, 640),), 1, 1, 2, 16, dtype=2, seed=chance.randrange(2**31)
    )
    yield drawn(
        chance,
        context_lens=(chance.randint(130, 250),),
        num_q_heads=1,
        num_kv_heads=1,
        head_size=8,
    )
    yield drawn(chance, num_q_heads=1, num_kv_heads=1, head_size=chance.randint(130, 250))
    yield FarCase(
        (chance.randint(2, 9),),
        1,
        1,
        chance.choice((4, 8, 12)),
        chance.randint(2, 9),
        seed=chance.randrange(2**31),
    )


def observe(subject, case):
    if isinstance(case, FarCase):
        return observe_far(subject, case)
    return result_of(lambda: subject(made(case)), names=("out", "v_cache"))


HEAD = "head / (params.num_q_heads / params.num_kv_heads)"
NORMALISE = (
    "  for (int token = threadIdx.x; token < num_tokens; token += blockDim.x) "
    "scores[token] /= sum;\n"
)

EXERCISE = Exercise(
    id="6.5",
    title="softmax and values",
    answer_name="paged_values",
    language="cuda",
    reference=attention(),
    prepare=prepare,
    cases=cases,
    size=size,
    hidden=hidden,
    observe=observe,
    describe=describe_case,
    # With this many tokens or elements all threads may have something to do, and a call in a
    # branch happens to be right. Where the block lies far away, mistakes that other cases
    # find may give anything.
    chancy=lambda case: (
        max(case.context_lens) >= THREADS
        or case.head_size > THREADS
        or isinstance(case, FarCase)
    ),
    same=same,
    show=show,
    points=2,
    mistakes=(
        Mistake(
            "missing-barrier",
            "Pass 2 reads the weights of all tokens, "
            "but some thread is still writing its own. "
            "Where do all threads have to wait for each other?",
            found(PASS_2_AND_SOFTMAX, two_threads),
            (("/= sum;\n  __syncthreads();", "/= sum;"),),
            also=(found(PASS_2_AND_SOFTMAX, any_token),),
        ),
        Mistake(
            "barrier-of-a-warp",
            "__syncwarp() makes the threads of one warp wait for each other. "
            "In pass 2 each thread reads the weights of all tokens, "
            "and other warps wrote most of them.",
            found(PASS_2_AND_SOFTMAX, crosses_warps),
            (("/= sum;\n  __syncthreads();", "/= sum;\n  __syncwarp();"),),
        ),
        Mistake(
            "scores-of-others",
            "softmax touches a score that another thread wrote in pass 1, "
            "and nothing has made it wait for that. Thread t wrote the scores t, "
            "t + blockDim.x and so on. It may use these at once, "
            "and all others only after a barrier.",
            found(SCORES_AND_SOFTMAX, any_token),
            (
                (
                    "token = threadIdx.x; token < num_tokens; token += blockDim.x) largest",
                    "token = 0; token < num_tokens; ++token) largest",
                ),
            ),
            also=(found(SCORES_AND_SOFTMAX, two_tokens), starts_from_the_first_score),
        ),
        Mistake(
            "score-overwritten-too-early",
            "In softmax one thread overwrites a score that another has still to read, "
            "or reads a score that another has still to write. The report names both lines. "
            "What has to come between them?",
            found(SOFTMAX_ALONE, any_token),
            (
                (
                    "float largest = -INFINITY, sum = 0.0f;",
                    "float largest = -INFINITY, sum = 0.0f;\n  __syncthreads();",
                ),
                (
                    "token = threadIdx.x; token < num_tokens; token += blockDim.x) largest",
                    "token = 0; token < num_tokens; ++token) largest",
                ),
                ("  largest = block_max(largest);\n", ""),
            ),
            also=(found(SOFTMAX_ALONE, two_tokens),),
        ),
        Mistake(
            "block-call-in-branch",
            "Some threads call block_max() or block_sum(), "
            "but others do not come to that call, or come to it more often. "
            "In these functions all threads of the block wait for each other. "
            "Is the call in a loop or a branch that depends on the thread?",
            found(BLOCK_CALL, threads_differ),
            (
                (
                    (
                        "largest = fmaxf(largest, scores[token]);\n"
                        "  largest = block_max(largest);"
                    ),
                    "largest = block_max(fmaxf(largest, scores[token]));",
                ),
            ),
            also=(
                found(BLOCK_CALL, any_token),
                found(BLOCK_CALL, fewer_tokens_than_threads),
                found(BLOCK_CALL, lambda batch: batch.q.shape[2] % THREADS),
                found(BLOCK_CALL, lambda batch: True),
                some_leave_early,
                some_leave_behind_the_maximum,
            ),
        ),
        Mistake(
            "max-not-subtracted",
            "Large scores give inf or NaN: exp() of a score above 88 does not fit into "
            "a float. Subtract the largest score first. The weights stay the same.",
            attention(in_float(without_maximum)),
            (("expf(scores[token] - largest)", "expf(scores[token])"),),
        ),
        Mistake(
            "max-starts-at-zero",
            "Where all scores are far below 0, exp() of each comes out as 0, "
            "and so does their sum. The search for the largest score must not begin at 0.",
            maximum_from(0.0),
            (("largest = -INFINITY", "largest = 0.0f"),),
        ),
        Mistake(
            "max-starts-too-high",
            "All scores may be below the number at which the search for the largest "
            "one begins. Then exp() of each comes out as 0, and so does their sum. "
            "Which number is below all others?",
            maximum_from(-1000.0),
            (("largest = -INFINITY", "largest = -1000.0f"),),
            also=(maximum_from(-10_000.0),),
        ),
        Mistake(
            "own-maximum",
            "Each thread subtracts the largest score of its own tokens. "
            "Weights can be compared only if the same number was subtracted from all scores "
            "of the sequence. So the threads have to combine their maxima.",
            attention(own_maximum),
            (("  largest = block_max(largest);\n", ""),),
        ),
        Mistake(
            "sum-in-16-bits",
            "The sum is rounded to the 16 bits of the output after each token. "
            "In a long sum many small numbers are lost in that way. Add up in a float, "
            "and convert at the end.",
            attention(weighted_sum=rounded_each_time),
            (
                ("float result = 0.0f;", "T result = from_float<T>(0.0f);"),
                (
                    (
                        "result += weights[token] * "
                        "to_float(v_cache[cache_offset(params, seq, token, kv_head) + i]);"
                    ),
                    (
                        "result = from_float<T>(to_float(result) + weights[token] *\n"
                        "        to_float(v_cache[cache_offset(params, seq, token, kv_head) "
                        "+ i]));"
                    ),
                ),
                ("from_float<T>(result);", "result;"),
            ),
        ),
        Mistake(
            "not-normalised",
            "The weights do not add up to 1. What should exp(score - largest) be divided by?",
            attention(not_normalised),
            ((NORMALISE, ""),),
            also=(attention(divided_by_the_length),),
        ),
        Mistake(
            "sum-of-own-tokens",
            "Each thread divides by the sum over its own tokens. "
            "The softmax is over all of them, so the threads have to add their sums together.",
            attention(sum_of_own_tokens),
            (("sum = block_sum(sum);", "block_sum(sum);"),),
        ),
        Mistake(
            "divided-as-they-are",
            "The exponentials are added up, and then the scores themselves are divided "
            "by that sum. What has to be divided, so that all of it adds up to 1?",
            attention(divided_as_they_are),
            (
                (
                    (
                        "scores[token] = expf(scores[token] - largest);\n"
                        "    sum += scores[token];"
                    ),
                    "sum += expf(scores[token] - largest);",
                ),
            ),
        ),
        Mistake(
            "scores-added-up",
            "The scores are added up, and the exponentials are divided by that sum. "
            "The weights have to add up to 1. So what should be added up?",
            attention(in_float(scores_added_up)),
            (
                (
                    (
                        "scores[token] = expf(scores[token] - largest);\n"
                        "    sum += scores[token];"
                    ),
                    (
                        "sum += scores[token];\n"
                        "    scores[token] = expf(scores[token] - largest);"
                    ),
                ),
            ),
        ),
        Mistake(
            "maximum-in-the-sum-alone",
            "The largest score is subtracted in the sum, "
            "but not where the exponential is divided by it. "
            "Both must be counted from the same maximum.",
            attention(in_float(maximum_in_the_sum_alone)),
            (
                (
                    (
                        "scores[token] = expf(scores[token] - largest);\n"
                        "    sum += scores[token];"
                    ),
                    "sum += expf(scores[token] - largest);",
                ),
                ("scores[token] /= sum;", "scores[token] = expf(scores[token]) / sum;"),
            ),
        ),
        Mistake(
            "start-from-a-score",
            "A thread begins with the score of its own number, but there may be fewer scores "
            "than threads. A thread without a token has to bring something that changes no "
            "maximum.",
            start_from_a_score(even_without_tokens=False),
            (
                (
                    "float largest = -INFINITY,",
                    "if (num_tokens == 0) return;\n  float largest = scores[threadIdx.x],",
                ),
            ),
            also=(start_from_a_score(even_without_tokens=True),),
        ),
        Mistake(
            "each-thread-all-scores",
            "Every thread goes through all scores, and all of them change the same ones. "
            "Here too, each thread has its own tokens: the ones that it scored.",
            found("non-atomic-update", any_token),
            (
                (
                    (
                        "token = threadIdx.x; token < num_tokens; token += blockDim.x) {\n"
                        "    scores[token] = expf"
                    ),
                    "token = 0; token < num_tokens; ++token) {\n    scores[token] = expf",
                ),
            ),
            also=(found("race", any_token),),
        ),
        Mistake(
            "element-forgotten",
            "All elements of a head come out alike: each thread adds up the first number "
            "of the values. Which number of a value is this thread's?",
            attention(weighted_sum=first_element_for_all),
            (("kv_head) + i]", "kv_head)]"),),
        ),
        Mistake(
            "keys-for-values",
            "The keys are weighted and added up, but it should be the values.",
            attention(values="k_cache"),
            (
                (
                    "static_cast<const T*>(params.v_cache)",
                    "static_cast<const T*>(params.k_cache)",
                ),
            ),
        ),
        Mistake(
            "behind-the-context",
            "Pass 2 goes on past the sequence's last token, "
            "where no thread has written a weight. "
            "context_lens says how many tokens this sequence has. "
            "max_context_len is the longest context of the whole batch.",
            whole_row,
            (
                (
                    "num_tokens = params.context_lens[seq]",
                    "num_tokens = params.max_context_len",
                ),
            ),
        ),
        Mistake(
            "new-token-left-out",
            "The last token's value is not added. It is the new token, and it sees itself: "
            "context_lens counts it.",
            attention(weighted_sum=new_token_left_out),
            (
                (
                    "num_tokens = params.context_lens[seq]",
                    "num_tokens = params.context_lens[seq] - 1",
                ),
            ),
        ),
        Mistake(
            "sum-not-reset",
            "A thread's second element gets the sum of its first one on top: "
            "the sum goes on where it stopped. Where should the variable begin?",
            attention(weighted_sum=sum_not_reset),
            (
                ("float result = 0.0f;", ""),
                (
                    "  for (int i = threadIdx.x;",
                    "  float result = 0.0f;\n  for (int i = threadIdx.x;",
                ),
            ),
        ),
        Mistake(
            "last-token-only",
            "The output is the last token's weighted value, and the others are lost. "
            "They have to be added up.",
            attention(weighted_sum=last_token_only),
            (("result += weights", "result = weights"),),
        ),
        Mistake(
            "own-tokens-only",
            "The tokens are shared out among the threads once more. "
            "So each element gets only the tokens of its own thread. "
            "In pass 2 the elements are shared out, and each thread goes through all tokens.",
            attention(weighted_sum=own_tokens_only),
            (
                (
                    "    for (int token = 0; token < num_tokens; ++token) {\n      result",
                    (
                        "    for (int token = threadIdx.x; "
                        "token < num_tokens; token += blockDim.x) {\n"
                        "      result"
                    ),
                ),
            ),
        ),
        Mistake(
            "added-to-out",
            "The sum is kept in the output, which begins with whatever was in that memory "
            "before. Add up in the thread's own variable, and write once.",
            added_to_out(by_tokens=False),
            (
                (
                    "    out_row[i] = from_float<T>(result);",
                    "out_row[i] = from_float<T>(to_float(out_row[i]) + result);",
                ),
            ),
            also=(added_to_out(by_tokens=True),),
        ),
        Mistake(
            "each-thread-all-elements",
            "Every thread computes all elements, so all of them write the same outputs. "
            "The elements are shared out among the threads, as the tokens are in pass 1.",
            each_thread_all_elements,
            (
                (
                    "  for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) {",
                    "for (int i = 0; i < params.head_size; ++i) {",
                ),
            ),
        ),
        Mistake(
            "row-added-again",
            "The rows of other sequences and heads are stepped over twice. "
            "out_row already begins with this block's own row.",
            row_added_again,
            (
                (
                    "out_row[i] =",
                    "out_row[(seq * params.num_q_heads + head) * params.head_size + i] =",
                ),
            ),
            also=(head_added_again,),
        ),
        Mistake(
            "empty-context-unwritten",
            "A sequence without a token leaves its output unwritten, "
            "so whatever was in that memory before is still there. Its output is zeros, "
            "and some thread has to write them.",
            empty_unwritten,
            (
                (
                    "float result = 0.0f;",
                    "float result = 0.0f;\n    if (num_tokens == 0) return;",
                ),
            ),
            also=(empty_divides,),
        ),
        Mistake(
            "wrong-head-mapping",
            "A query head gets the values of a KV head that is not its own. "
            "The mapping is the same as for the keys.",
            attention(kv_head=lambda head, batch: head // batch.k_cache.shape[2]),
            ((HEAD, "head / params.num_kv_heads"),),
            also=(
                attention(kv_head=lambda head, batch: head % batch.k_cache.shape[2]),
                attention(kv_head=lambda head, batch: head),
                attention(kv_head=lambda head, batch: 0),
                attention(
                    kv_head=lambda head, batch: (
                        head % (batch.q.shape[1] // batch.k_cache.shape[2])
                    )
                ),
            ),
        ),
        Mistake(
            "head-larger-than-the-block",
            "A head may have more elements than the block has threads. "
            "If each thread has one element, the others are never written.",
            first_elements_written,
            (
                (
                    "  for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) {",
                    "if (int i = threadIdx.x; i < params.head_size) {",
                ),
            ),
        ),
        Mistake(
            "sequence-in-one-piece",
            "The first value is looked up in the block table, "
            "and the others are taken to follow it. "
            "But only the tokens of one block lie together. "
            "The next block may be anywhere in the pool.",
            attention(places=in_one_piece),
            (
                (
                    "cache_offset(params, seq, token, kv_head) + i",
                    (
                        "cache_offset(params, seq, 0, "
                        "kv_head) + token * params.num_kv_heads * params.head_size + i"
                    ),
                ),
            ),
        ),
        Mistake(
            "offset-put-in-an-int",
            "cache_offset() returns an int64_t, but you put it into an int. "
            "In a large pool that cuts off what exercise 6.2 was careful to keep. "
            "Give it a type with room for it.",
            cut_off(attention()),
            (
                (
                    (
                        "result += weights[token] * "
                        "to_float(v_cache[cache_offset(params, seq, token, kv_head) + i]);"
                    ),
                    (
                        "int place = cache_offset(params, seq, token, kv_head) + i;\n"
                        "      result += weights[token] * to_float(v_cache[place]);"
                    ),
                ),
            ),
        ),
        Mistake(
            "one-token-for-each-thread",
            "A context may have more tokens than the block has threads. "
            "The scores after the first 128 are not turned into weights.",
            attention(one_token_each),
            (
                (
                    (
                        "for (int token = threadIdx.x; token < num_tokens; "
                        "token += blockDim.x) largest"
                    ),
                    "if (int token = threadIdx.x; token < num_tokens) largest",
                ),
                (
                    "for (int token = threadIdx.x; token < num_tokens; token += blockDim.x) {",
                    "if (int token = threadIdx.x; token < num_tokens) {",
                ),
                (
                    NORMALISE,
                    (
                        "  if (int token = threadIdx.x; token < num_tokens) "
                        "scores[token] /= sum;\n"
                    ),
                ),
            ),
        ),
        Mistake(
            "maxima-added-up",
            "The threads add up their largest scores, but they should look for the largest "
            "of them all. There are two functions in exercise 6.3.",
            attention(in_float(maxima_added_up)),
            (("largest = block_max(largest)", "largest = block_sum(largest)"),),
        ),
        Mistake(
            "powers-of-two",
            "The weights are powers of 2, but a softmax is made of powers of e. "
            "Which function gives those?",
            attention(powers_of_two),
            (("expf(scores[token] - largest)", "exp2f(scores[token] - largest)"),),
        ),
        Mistake(
            "divided-by-the-length",
            "The weighted sum is divided by the number of tokens. "
            "But the weights already add up to 1, so there is nothing left to divide by.",
            mean_of_the_weighted(guarded=False),
            (("from_float<T>(result)", "from_float<T>(result / num_tokens)"),),
            also=(mean_of_the_weighted(guarded=True),),
        ),
        Mistake(
            "first-token-left-out",
            "The first token's value is not added. Tokens are counted from 0.",
            attention(weighted_sum=first_token_left_out),
            (
                (
                    "int token = 0; token < num_tokens; ++token) {\n      result",
                    "int token = 1; token < num_tokens; ++token) {\n      result",
                ),
            ),
        ),
        Mistake(
            "head-and-token-exchanged",
            "cache_offset() gets the KV head where it expects the token, "
            "and the token where it expects the head. In which order does it name them?",
            with_values(head_and_token_exchanged),
            (
                (
                    "cache_offset(params, seq, token, kv_head)",
                    "cache_offset(params, seq, kv_head, token)",
                ),
            ),
        ),
        Mistake(
            "weight-of-the-element",
            "The number of an element is used where the number of a token belongs. "
            "There is one weight for each token. "
            "All elements of its value have the same weight.",
            weight_of_the_element,
            (("result += weights[token]", "result += weights[i]"),),
        ),
        Mistake(
            "behind-the-last-score",
            "A score past the sequence's last one is used. Scores are counted from 0. "
            "Which number does the last one have?",
            behind_the_last_score,
            (
                (
                    "token < num_tokens; token += blockDim.x) largest",
                    "token <= num_tokens; token += blockDim.x) largest",
                ),
            ),
        ),
        Mistake(
            "behind-the-head",
            "A thread computes an element that does not exist, past the head's last one. "
            "It reads and writes what belongs to others. "
            "The block may have more threads than the head has elements.",
            elements_up_to(lambda head_size: THREADS),
            (("i < params.head_size;", "i < blockDim.x;"),),
            also=(elements_up_to(lambda head_size: head_size + 1),),
        ),
        Mistake(
            "tokens-added-to-out",
            "Several threads add to the same element of the output, "
            "and nothing keeps them apart. "
            "In pass 2 the elements are shared out, and each thread goes through all tokens.",
            found("non-atomic-update", two_tokens, "out"),
            (
                (
                    "  for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) {",
                    (
                        "  for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) "
                        "out_row[i] = from_float<T>(0.0f);\n"
                        "  __syncthreads();\n"
                        "  for (int i = 0; i < params.head_size; ++i) {"
                    ),
                ),
                (
                    "    for (int token = 0; token < num_tokens; ++token) {\n      result",
                    (
                        "    for (int token = threadIdx.x; "
                        "token < num_tokens; token += blockDim.x) {\n"
                        "      result"
                    ),
                ),
                (
                    "    out_row[i] = from_float<T>(result);",
                    (
                        "    if (threadIdx.x < num_tokens) "
                        "out_row[i] = from_float<T>(to_float(out_row[i]) + result);"
                    ),
                ),
            ),
        ),
        Mistake(
            "added-to-the-sum",
            "The exponentials are divided by more than their sum, "
            "so the weights add up to less than 1. "
            "Perhaps something is added to keep the sum from being 0. "
            "How large is exp(score - largest) for the largest score?",
            added_to_the_sum(1.0),
            (("scores[token] /= sum", "scores[token] /= sum + 1.0f"),),
            also=tuple(map(added_to_the_sum, (0.1, 0.01, 1e-3, float(THREADS)))),
        ),
        Mistake(
            "scaled-again",
            "softmax multiplies the scores by a factor, or divides them by one, "
            "and that changes the weights. Pass 1 has already applied the scale.",
            scaled_again(for_head_size(64)),
            (("expf(scores[token] - largest)", "expf((scores[token] - largest) * 0.125f)"),),
            also=(
                *(
                    scaled_again(for_head_size(size))
                    for size in (4, 8, 16, 32, 80, 96, 128, 256)
                ),
                scaled_again(lambda num_tokens: num_tokens**-0.5),
                scaled_again(lambda num_tokens: 1 / num_tokens),
            ),
        ),
        Mistake(
            "steps-between-elements",
            "A thread goes too far for its element: "
            "the element's number is multiplied by something. "
            "cache_offset() gives the place of the value's first number. "
            "How far after it is the second one?",
            steps_between_elements(lambda block_size, num_kv_heads, head_size: head_size),
            (("kv_head) + i]", "kv_head) + i * params.head_size]"),),
            also=(
                steps_between_elements(lambda block_size, num_kv_heads, head_size: block_size),
                steps_between_elements(
                    lambda block_size, num_kv_heads, head_size: num_kv_heads
                ),
                steps_between_elements(
                    lambda block_size, num_kv_heads, head_size: num_kv_heads * head_size
                ),
                steps_between_elements(
                    lambda block_size, num_kv_heads, head_size: block_size * head_size
                ),
                steps_between_elements(lambda block_size, num_kv_heads, head_size: THREADS),
            ),
        ),
    ),
    hints=(
        (
            "The softmax takes three rounds over a thread's own tokens: "
            "t, t + blockDim.x and so on. Find the largest score. "
            "Make weights and add them up. Divide. "
            "After the first and the second round the threads combine their results."
        ),
        (
            "A thread without a token takes part in block_max() and block_sum() as well. "
            "What does it bring, so that it changes nothing?"
        ),
        (
            "In pass 2 each thread takes an element of the head and goes through all tokens. "
            "Its sum is in its own variable, so there is nothing to share and nothing "
            "to wait for."
        ),
        (
            "Without a token, the loop over the tokens does nothing. "
            "Is the output written all the same?"
        ),
    ),
)
