"""Exercise 6.4: the scores of one query, a thread for each token."""

import math
import random
from dataclasses import replace

import torch

from lessons_exercises import tensors
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
    show,
    size,
    slots_of,
    with_misplaced_barriers,
)
from lessons_lib.checks import Exercise, Mistake, Text

THREADS, WARP = 128, 32
NOT_WRITTEN = -7777.0  # what new_scores() holds


def right_head(head, batch):
    return head // (batch.q.shape[1] // batch.k_cache.shape[2])


def scores(
    kv_head=right_head,
    scale=lambda batch: batch.scale,
    tokens=lambda length, batch: length,
    products=lambda keys, query, dtype: keys @ query,
    places=slots_of,
    rows=rows_at,
    cache="k_cache",
):
    """paged_scores() for every sequence and head, with some of its parts replaced.

    Accumulates in float64.
    """

    def wrong(batch):
        result = batch.new_scores()
        dtype = batch.q.dtype
        batch = batch.double()
        num_seqs, num_q_heads, _ = batch.q.shape
        for seq, length in enumerate(batch.context_lens.tolist()):
            slots = places(
                batch.block_table, seq, tokens(length, batch), batch.k_cache.shape[1]
            )
            for head in range(num_q_heads):
                keys = rows(getattr(batch, cache), slots, kv_head(head, batch), cache)
                result[seq, head, : len(slots)] = (
                    products(keys, batch.q[seq, head], dtype) * scale(batch)
                ).float()
        return result

    return wrong


def each_of_these(length, batch):
    return min(length, THREADS)


def no_barrier(batch):
    """The first thread needs what the others load.

    Not if it loads all of it itself and no other has a token.
    """
    if int(batch.context_lens.max()) > 1 or batch.q.shape[2] > 1:
        raise Found("race")
    return scores()(batch)


def first_elements_loaded(batch):
    if batch.q.shape[2] > THREADS and int(batch.context_lens.max()) > 0:
        raise Found("shared-uninitialised")
    return scores()(batch)


def by_other_threads_than_asked(least):
    """From this many tokens on, some scores are written by a thread that does not own them."""

    def wrong(batch):
        if int(batch.context_lens.max()) >= least:
            raise Found("race", "scores")
        return scores()(batch)

    return wrong


def block_after_block(batch):
    """In each block the slots are shared out again, from thread 0 on."""
    return by_other_threads_than_asked(batch.k_cache.shape[1] + 1)(batch)


def no_barrier_between_warps(batch):
    """A barrier for each warp, although other warps need what one has loaded.

    It matters if both have something to do.
    """
    if crosses_warps(batch):
        raise Found("race")
    return scores()(batch)


def crosses_warps(batch):
    longest = int(batch.context_lens.max())
    return longest > WARP or longest > 0 and batch.q.shape[2] > WARP


def barrier_not_for_all(when):
    def wrong(batch):
        if when(batch.context_lens):
            raise Found("barrier-in-branch")
        return scores()(batch)

    return wrong


def sum_not_reset(batch):
    """From its second token on, a thread's sum holds those of the tokens before."""

    def products(keys, query, dtype):
        result = keys @ query
        for first in range(THREADS, len(result), THREADS):
            before = result[first - THREADS : first]
            result[first : first + THREADS] += before[: len(result) - first]
        return result

    return scores(products=products)(batch)


def at_the_threads_number(batch):
    """Each thread writes all of its scores to one place, and the last stays there."""
    result = scores()(batch)
    for row, length in zip(result, batch.context_lens.tolist(), strict=True):
        for first in range(THREADS, length, THREADS):
            number = min(length - first, THREADS)
            row[:, :number] = row[:, first : first + number]
        row[:, THREADS:] = NOT_WRITTEN
    return result


def row_added_again(name, rows):
    """A row of this tensor is looked for from the block's own row on.

    It is past the tensor's end as soon as there are rows(batch).
    """

    def wrong(batch):
        if rows(batch) > 1:
            raise Found("out-of-bounds", name)
        return scores()(batch)

    return wrong


def one_token_too_many(batch):
    """The token after the last one: in no block, or with a score in the next row."""
    for length in batch.context_lens.tolist():
        if length % batch.k_cache.shape[1] == 0:
            raise Found("block-table", "k_cache")
        if length == batch.max_context_len:
            raise Found(
                (
                    "out-of-bounds"
                    if math.prod(batch.q.shape[:2]) == 1
                    else "race-between-blocks"
                ),
                "scores",
            )
    return scores()(batch)


def query_read_too_far(batch):
    """Each thread loads one element, whether there is one or not."""
    if batch.q.shape[2] < THREADS:
        raise Found("out-of-bounds", "q")
    return first_elements_loaded(batch)


def query_read_to_the_end_of_its_room(batch):
    if batch.q.shape[2] < 256 and int(batch.context_lens.max()) > 0:
        raise Found("shared-uninitialised")
    return scores()(batch)


def query_read_to_its_room(batch):
    """All 256 places of the shared query are loaded."""
    if batch.q.shape[2] < 256:
        raise Found("out-of-bounds", "q")
    return scores()(batch)


def query_loaded_by_several(at_once):
    """The elements from number at_once on are loaded by several threads each."""

    def wrong(batch):
        if batch.q.shape[2] > at_once:
            raise Found("several-writers")
        return scores()(batch)

    return wrong


def barrier_while_loading(batch):
    if batch.q.shape[2] % THREADS:
        raise Found("barrier-in-branch")
    return scores()(batch)


def token_of_the_grid(batch):
    """The first token of a thread is its number in the whole grid.

    Later sequences lose their first tokens.
    """
    result = scores()(batch)
    for seq in range(len(result)):
        result[seq, :, : min(THREADS * seq, int(batch.context_lens[seq]))] = NOT_WRITTEN
    return result


def own_elements_alone(keys, query, dtype):
    """Thread t multiplies the elements t, t + 128, … only."""
    own = torch.arange(len(keys))[:, None] % THREADS == torch.arange(keys.shape[1]) % THREADS
    return (keys * own) @ query


def head_and_token_exchanged(batch):
    """The token with the number of the KV head, and the head with the number of the token."""
    result, batch = batch.new_scores(), batch.double()
    for seq, length in enumerate(batch.context_lens.tolist()):
        for head in range(batch.q.shape[1] if length else 0):
            number = right_head(head, batch)
            slots = slots_of(batch.block_table, seq, number + 1, batch.k_cache.shape[1])
            slot = slots[number:]
            keys = torch.cat(
                [rows_at(batch.k_cache, slot, token, "k_cache") for token in range(length)]
            )
            result[seq, head, :length] = (keys @ batch.q[seq, head] * batch.scale).float()
    return result


def query_of_the_first_row(batch):
    return scores()(replace(batch, q=batch.q[:1, :1].expand_as(batch.q)))


def exponentials(batch):
    result = scores()(batch)
    return torch.where(result == NOT_WRITTEN, NOT_WRITTEN, result.exp())


def added_to_scores(batch):
    return batch.new_scores() + 2 * scores()(batch)  # the check launches two kernels


def a_token_for_every_thread(batch):
    """128 threads, no matter how many tokens there are.

    The first block of threads meets the end of something.
    """
    length, block_size = int(batch.context_lens[0]), batch.k_cache.shape[1]
    behind = -(-length // block_size) * block_size  # in the table's first entry of -1
    if length < THREADS:
        room = batch.new_scores().numel()
        if min(behind, room) < THREADS:
            raise Found("out-of-bounds", "k_cache" if behind <= room else "scores")
    return scores(tokens=each_of_these)(batch)


def summed_in_16_bits(product=lambda number, dtype: number):
    """Each step of the sum is rounded to the caches' type.

    product: what becomes of a product before.
    """

    def products(keys, query, dtype):
        total = torch.zeros(len(keys), dtype=dtype)
        for key, number in zip(keys.float().T, query.float(), strict=True):
            total = (total.float() + product(key * number, dtype).float()).to(dtype)
        return total.float()

    return scores(products=products)


def context_of_the_head(batch):
    """The number of the head is looked for among the contexts.

    There are as many of these as there are sequences.
    """
    result = batch.new_scores()
    for head in range(batch.q.shape[1]):
        if head >= len(batch.context_lens):
            raise Found("out-of-bounds", "context_lens")
        lens = batch.context_lens[head].expand_as(batch.context_lens)
        result[:, head] = scores()(replace(batch, context_lens=lens))[:, head]
    return result


def blocks_of_the_head(batch):
    """The blocks are looked up in the table's row with the number of the head."""
    result, batch = batch.new_scores(), batch.double()
    for head in range(batch.q.shape[1]):
        for seq, length in enumerate(batch.context_lens.tolist()):
            if length and head >= len(batch.block_table):
                raise Found("out-of-bounds", "block_table")
            row = min(head, len(batch.block_table) - 1)
            slots = slots_of(batch.block_table, row, length, batch.k_cache.shape[1])
            keys = rows_at(batch.k_cache, slots, right_head(head, batch), "k_cache")
            result[seq, head, :length] = (keys @ batch.q[seq, head] * batch.scale).float()
    return result


def whole_blocks(least=lambda batch: batch.max_context_len + 1):
    """All slots of the blocks are scored: in the next row, if this one has no room for them.

    From a context of least(batch) tokens on, some scores are written by a thread that does not
    own them.
    """

    def wrong(batch):
        num_heads = batch.q.shape[1]
        block_size = batch.k_cache.shape[1]
        row_length = batch.max_context_len
        lengths, owner = batch.context_lens.tolist(), {}
        for head in range(num_heads):
            for seq, length in enumerate(lengths):
                row = seq * num_heads + head
                for place in range(
                    row * row_length, row * row_length + -(-length // block_size) * block_size
                ):
                    if place >= len(lengths) * num_heads * row_length:
                        raise Found("out-of-bounds", "scores")
                    if owner.setdefault(place, row) != row:
                        raise Found("race-between-blocks", "scores")
        return by_other_threads_than_asked(least(batch))(batch)

    return wrong


def keys_as_floats(numbers_in_one):
    """Two numbers of 16 bits are read as one float.

    numbers_in_one: how many of them are stepped over as one.
    """

    def wrong(batch):
        if batch.k_cache.dtype == torch.float32:
            return scores()(batch)
        floats = batch.k_cache.flatten().view(torch.float32).double()
        return scores(
            rows=lambda cache, slots, kv_head, name: numbers_at(
                floats,
                first_numbers(cache, slots, kv_head) // numbers_in_one,
                cache.shape[3],
                name,
            )
        )(batch)

    return wrong


def offset_times_head_size(cache, slots, kv_head, name):
    head_size = cache.shape[3]
    return numbers_at(
        cache.flatten(), first_numbers(cache, slots, kv_head) * head_size, head_size, name
    )


def head_added_to_offset(cache, slots, kv_head, name):
    head_size = cache.shape[3]
    return numbers_at(
        cache.flatten(),
        first_numbers(cache, slots, kv_head) + kv_head * head_size,
        head_size,
        name,
    )


def first_key_again(table, row, length, block_size):
    """Each thread goes on with the key of its first token."""
    return slots_of(table, row, length, block_size)[torch.arange(length) % THREADS]


def looked_up_by_all(batch):
    """A thread without a token looks for a key as well, past the end of the table."""
    if (THREADS - 1) // batch.k_cache.shape[1] >= batch.block_table.shape[1]:
        raise Found("out-of-bounds", "block_table")
    return scores(places=first_key_again)(batch)


def in_steps_of(step):
    """Thread `step` begins where thread 0 goes on. With 0, each thread begins there."""

    def wrong(batch):
        if int(batch.context_lens.max()) > step(batch):
            raise Found("several-writers", "scores")
        return scores()(batch)

    return wrong


def room_for(size):
    def wrong(batch):
        if batch.q.shape[2] > size:
            raise Found("shared-out-of-bounds")
        return scores()(batch)

    return wrong


def query_not_loaded(batch):
    if int(batch.context_lens.max()) > 0:
        raise Found("shared-uninitialised")
    return scores()(batch)


def sequence_and_token_exchanged(batch):
    """The row with the number of the token, and the token with the number of the sequence."""
    result, batch = batch.new_scores(), batch.double()
    for head in range(batch.q.shape[1]):
        for seq, length in enumerate(batch.context_lens.tolist()):
            for token in sorted(range(length), key=lambda token: token % THREADS):
                if token >= len(batch.block_table):
                    raise Found("out-of-bounds", "block_table")
                slots = slots_of(batch.block_table, token, seq + 1, batch.k_cache.shape[1])
                slot = slots[seq:]
                key = rows_at(batch.k_cache, slot, right_head(head, batch), "k_cache")
                result[seq, head, token] = (key @ batch.q[seq, head] * batch.scale).float()
    return result


def scaled_at_each_step(last):
    """Each product is scaled as often as it is in the sum; last: how often the last one is."""

    def wrong(batch):
        powers = (
            batch.scale ** torch.arange(batch.q.shape[2] - 1 + last, last - 1, -1).double()
        )
        return scores(
            scale=lambda batch: 1.0,
            products=lambda keys, query, dtype: keys @ (query * powers),
        )(batch)

    return wrong


def token_for_element(in_query, in_key, number=lambda token: token):
    """All products of a score are made with one element.

    number: which one of the key, for a token.
    """

    def rows(cache, slots, kv_head, name):
        if in_query and len(slots) > cache.shape[3]:
            raise Found("shared-uninitialised")
        if not in_key:
            return rows_at(cache, slots, kv_head, name)
        first = first_numbers(cache, slots, kv_head) + number(torch.arange(len(slots)))
        return numbers_at(cache.flatten(), first, 1, name).expand(-1, cache.shape[3])

    def products(keys, query, dtype):
        return keys.sum(1) * query[: len(keys)] if in_query else keys @ query

    return scores(rows=rows, products=products)


def whole_row(batch):
    """As many tokens as the longest context has.

    Shorter ones meet the entries of -1 after their blocks.
    """
    block_size = batch.k_cache.shape[1]
    for length in batch.context_lens.tolist():
        if -(-batch.max_context_len // block_size) > -(-length // block_size):
            raise Found("block-table", "k_cache")
    return scores()(batch)


def prepare(answer):
    given = ("numbers.cuh", "paged_params.cuh", "paged_address.cuh", "block_reduce.cuh")
    library = build(answer, *given, wrapper="scores_check.cu")

    def native(batch):
        result = batch.new_scores()
        fields = batch.fields(scores=batch.new_scores(), out=result)
        with_misplaced_barriers(lambda: library.scores(**fields), answer)
        return result

    native.far = lambda batch: reached(lambda: native(batch))
    return native


def cases():
    yield from (
        Case((1,), 1, 1, 1, 4),
        Case((1,), 1, 1, 8, 4),
        Case((3,), 1, 1, 8, 4),
        Case((4, 5), 2, 2, 8, 4),
        Case((0, 3, 9), 6, 2, 8, 4),
        Case((8, 2), 7, 1, 12, 4, dtype=1),
        Case((5, 16, 17), 4, 4, 16, 16, dtype=2),
        Case((7, 4), 6, 3, 8, 3, gap=5, seed=1),
        Case((128, 127), 2, 1, 8, 16),
        Case((129, 300), 2, 2, 8, 16, dtype=1),
        Case((20, 6), 3, 1, 200, 8),
        Case((2,), 2, 2, 256, 4, dtype=1),
        Case((6, 40), 14, 2, 64, 16, dtype=2, spare_context=9),
        Case((3,), 1, 1, 16, 4, scale=0.5),
        FAR,
    )


def hidden(seed):
    """Batches of any shape.

    Then an empty context, more tokens than threads and a large head.
    """
    chance = random.Random(seed)
    yield from (drawn(chance) for _ in range(10))
    yield drawn(chance, context_lens=(0, chance.randint(2, 9)))
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
    """The scores of the tokens that exist. What lies after them does not matter."""
    if isinstance(case, FarCase):
        return observe_far(subject, case)
    batch = batch_of(case)

    def run():
        result = subject(batch)
        behind = torch.arange(batch.max_context_len) >= batch.context_lens[:, None, None]
        return result.masked_fill(behind, 0.0)

    return result_of(run, names=("k_cache", "scores", "block_table", "context_lens"))


def show_scores(expected, actual):
    return tuple(
        text if isinstance(text, Text) else text.replace(f"{NOT_WRITTEN:g}", "never written")
        for text in show(expected, actual)
    )


LOAD = (
    "for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) "
    "q[i] = to_float(q_row[i]);"
)
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
    size=size,
    hidden=hidden,
    observe=observe,
    chancy=lambda case: isinstance(case, FarCase),  # other mistakes may give anything there
    describe=lambda case: (
        case.describe()
        if isinstance(case, FarCase)
        else f"{describe(case)}; the scores for each (sequence, head, token)"
    ),
    same=tensors.same,
    show=show_scores,
    points=2,
    mistakes=(
        Mistake(
            "wrong-head-mapping",
            "A query head reads the keys of a KV head that is not its own. "
            "Neighbouring query heads share one: of 6 query heads and 2 KV heads, "
            "the first three belong to KV head 0. How many query heads share one KV head, "
            "and which one is it?",
            scores(lambda head, batch: head // batch.k_cache.shape[2]),
            ((HEAD, "head / params.num_kv_heads"),),
            also=(
                scores(lambda head, batch: head % batch.k_cache.shape[2]),
                scores(lambda head, batch: head),
                scores(
                    lambda head, batch: head % (batch.q.shape[1] // batch.k_cache.shape[2])
                ),
                scores(lambda head, batch: right_head(head + 1, batch)),
                scores(lambda head, batch: 0),
            ),
        ),
        Mistake(
            "missing-scale",
            "The scores are not scaled. The factor was computed before the launch. "
            "It is a field of the struct.",
            scores(scale=lambda batch: 1.0),
            (("params.scale * product", "product"),),
        ),
        Mistake(
            "scale-upside-down",
            "The scores are divided by the factor, "
            "or multiplied by the root that they should be divided by. "
            "A score is params.scale times the product.",
            scores(scale=lambda batch: 1 / batch.scale),
            (("params.scale * product", "product / params.scale"),),
            also=(scores(scale=lambda batch: math.sqrt(batch.q.shape[2])),),
        ),
        Mistake(
            "scale-of-its-own",
            "The scores are divided by the square root of head_size, "
            "whatever params.scale says. That is the usual factor, "
            "but some models have another one.",
            scores(scale=lambda batch: batch.q.shape[2] ** -0.5),
            (("params.scale * product", "product / sqrtf(params.head_size)"),),
        ),
        Mistake(
            "missing-barrier",
            "A thread reads the query from shared memory before all of it is there. "
            "The other threads are still loading. "
            "What makes all threads of a block wait for each other?",
            no_barrier,
            (("  __syncthreads();\n", ""),),
        ),
        Mistake(
            "barrier-of-a-warp",
            "__syncwarp() makes the threads of one warp wait for each other. "
            "But all warps of the block load the query, and all of them need it.",
            no_barrier_between_warps,
            (("  __syncthreads();\n", "  __syncwarp();\n"),),
        ),
        Mistake(
            "barrier-in-branch",
            "There is a barrier, but not all threads come to it. "
            "It is in an `if` or a loop that some threads leave earlier, "
            "or some have returned before it. Every thread of the block has to come to it, "
            "including one without a token.",
            barrier_not_for_all(
                lambda lens: any(0 < length < THREADS for length in lens.tolist())
            ),
            (
                (
                    "  __syncthreads();\n",
                    (
                        "  if (threadIdx.x >= params.context_lens[seq]) return;\n"
                        "  __syncthreads();\n"
                    ),
                ),
            ),
            also=(
                barrier_not_for_all(
                    lambda lens: any(length % THREADS for length in lens.tolist())
                ),
                barrier_not_for_all(lambda lens: int(lens.max()) > 0),
                barrier_while_loading,
            ),
        ),
        Mistake(
            "other-owner",
            "A score was written by a different thread than the one that goes on with it. "
            "The next step counts on thread t to have written the scores t, t + blockDim.x, "
            "…, and does not wait for other threads. Share the tokens out in this way, "
            "or make all threads wait at the end.",
            by_other_threads_than_asked(2),
            (
                (
                    TOKENS,
                    (
                        "for (int token = num_tokens - 1 - int(threadIdx.x); token >= 0; "
                        "token -= blockDim.x) {"
                    ),
                ),
            ),
            also=(by_other_threads_than_asked(THREADS + 1), block_after_block),
        ),
        Mistake(
            "query-loaded-in-part",
            "A head may have more elements than the block has threads. "
            "If each thread loads one element, the rest of the query is never loaded.",
            first_elements_loaded,
            (
                (
                    LOAD,
                    (
                        "if (threadIdx.x < params.head_size) "
                        "q[threadIdx.x] = to_float(q_row[threadIdx.x]);"
                    ),
                ),
            ),
        ),
        Mistake(
            "one-token-for-each-thread",
            "A context may have more tokens than the block has threads. "
            "The tokens after the first 128 get no score. "
            "When a thread is done with its token, there may be another one for it.",
            scores(tokens=each_of_these),
            ((TOKENS, "if (int token = threadIdx.x; token < num_tokens) {"),),
        ),
        Mistake(
            "no-guard",
            "Threads without a token work too: a context may be shorter than the block has "
            "threads. They read past the sequence's last block, or write past its scores.",
            a_token_for_every_thread,
            ((TOKENS, "{ int token = threadIdx.x;"),),
        ),
        Mistake(
            "each-thread-scores-all",
            "Several threads write the same score. Each score belongs to one thread. "
            "Which tokens are a thread's own, and how far is it from one to the next? "
            "If several threads have worked on a score together, one of them writes it.",
            in_steps_of(lambda batch: 0),
            ((TOKENS, "for (int token = 0; token < num_tokens; ++token) {"),),
            also=(
                in_steps_of(lambda batch: WARP),
                in_steps_of(lambda batch: len(batch.q)),
                in_steps_of(lambda batch: batch.q.shape[1]),
            ),
        ),
        Mistake(
            "behind-the-context",
            "The loop goes on past the sequence's last token. There the block table says -1, "
            "which is no block. context_lens says how many tokens this sequence has. "
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
            "first-context-for-all",
            "Every sequence is taken to be as long as the first one. "
            "context_lens has a number for each sequence.",
            scores(tokens=lambda length, batch: int(batch.context_lens[0])),
            (
                (
                    "num_tokens = params.context_lens[seq]",
                    "num_tokens = params.context_lens[0]",
                ),
            ),
        ),
        Mistake(
            "sum-not-reset",
            "A thread's second token gets the sum of its first one on top: "
            "the sum goes on where it stopped. Where should the variable begin?",
            sum_not_reset,
            (
                ("    float product = 0.0f;\n", ""),
                (f"  {TOKENS}", f"  float product = 0.0f;\n  {TOKENS}"),
            ),
        ),
        Mistake(
            "last-product-only",
            "A score is the last of the products, and the others are lost. "
            "The products have to be added up.",
            scores(products=lambda keys, query, dtype: keys[:, -1] * query[-1]),
            (("product += q[i]", "product = q[i]"),),
        ),
        Mistake(
            "score-at-the-threads-number",
            "Each thread writes all of its scores to the same place. "
            "Each token has its own score: scores[token].",
            at_the_threads_number,
            (("scores[token] = params.scale", "scores[threadIdx.x] = params.scale"),),
        ),
        Mistake(
            "row-added-again",
            "The scores of other sequences or heads are stepped over. "
            "But `scores` already begins with this block's own row.",
            row_added_again("scores", lambda batch: batch.q.shape[0]),
            (
                (
                    "scores[token] = params.scale",
                    "scores[seq * params.max_context_len + token] = params.scale",
                ),
            ),
            also=(row_added_again("scores", lambda batch: math.prod(batch.q.shape[:2])),),
        ),
        Mistake(
            "one-token-too-many",
            "One token too many is scored. A context of n tokens has the tokens 0 to n - 1.",
            one_token_too_many,
            (("token < num_tokens", "token <= num_tokens"),),
        ),
        Mistake(
            "new-token-left-out",
            "The last token of the context gets no score. It is the new token, "
            "and it sees itself: context_lens counts it.",
            scores(tokens=lambda length, batch: max(length - 1, 0)),
            (
                (
                    "num_tokens = params.context_lens[seq]",
                    "num_tokens = params.context_lens[seq] - 1",
                ),
            ),
        ),
        Mistake(
            "query-read-too-far",
            "A thread without an element of the query loads one all the same, "
            "from past the end of the query. The query has head_size elements.",
            query_read_too_far,
            ((LOAD, "q[threadIdx.x] = to_float(q_row[threadIdx.x]);"),),
            also=(query_read_to_its_room,),
        ),
        Mistake(
            "query-read-to-the-end-of-its-room",
            "The product runs over all 256 places of the shared query. "
            "Only head_size of them hold an element.",
            query_read_to_the_end_of_its_room,
            (("for (int i = 0; i < params.head_size; ++i)", "for (int i = 0; i < 256; ++i)"),),
        ),
        Mistake(
            "added-to-scores",
            "A score is added to what is in its place. "
            "scores begins with whatever was in that memory before. Write the score, "
            "do not add it.",
            added_to_scores,
            (("scores[token] = params.scale", "scores[token] += params.scale"),),
        ),
        Mistake(
            "summed-in-16-bits",
            "The scores are right in float, but a little off in half and bfloat16: "
            "the sum is rounded to 16 bits at each step. Compute in float, "
            "whatever type is stored.",
            summed_in_16_bits(),
            (
                ("float product = 0.0f;", "T product = from_float<T>(0.0f);"),
                (
                    "product += q[i] * to_float(key[i])",
                    "product = from_float<T>(to_float(product) + q[i] * to_float(key[i]))",
                ),
                ("params.scale * product", "params.scale * to_float(product)"),
            ),
            also=(summed_in_16_bits(lambda number, dtype: number.to(dtype)),),
        ),
        Mistake(
            "sequence-in-one-piece",
            "The first key is looked up in the block table, "
            "and the others are taken to follow it. "
            "But only the tokens of one block lie together. "
            "The next block may be anywhere in the pool.",
            scores(places=in_one_piece),
            (
                (
                    "cache_offset(params, seq, token, kv_head);",
                    (
                        "cache_offset(params, seq, 0, kv_head) "
                        "+ token * params.num_kv_heads * params.head_size;"
                    ),
                ),
            ),
        ),
        Mistake(
            "offset-put-in-an-int",
            "cache_offset() returns an int64_t, but you put it into an int. "
            "In a large pool that cuts off what exercise 6.2 was careful to keep. "
            "Give it a type with room for it.",
            cut_off(scores()),
            (
                (
                    "const T* key = k_cache + cache_offset(params, seq, token, kv_head);",
                    (
                        "int first = cache_offset(params, seq, token, kv_head);\n"
                        "    const T* key = k_cache + first;"
                    ),
                ),
            ),
        ),
        Mistake(
            "token-of-the-grid",
            "A thread's first token comes from the thread's number in the whole grid, "
            "as in exercise 6.1. Here each pair of sequence and head has its own thread "
            "block. In each of these blocks the tokens begin at 0.",
            token_of_the_grid,
            (
                (
                    TOKENS,
                    TOKENS.replace("= threadIdx.x", "= blockIdx.x * blockDim.x + threadIdx.x"),
                ),
            ),
        ),
        Mistake(
            "query-loaded-by-all",
            "Several threads load the same elements of the query, "
            "and write to the same places. The elements are shared out: "
            "each thread loads elements that no other thread loads.",
            query_loaded_by_several(0),
            ((LOAD, LOAD.replace("threadIdx.x", "0").replace("i += blockDim.x", "++i")),),
            also=(query_loaded_by_several(1), query_loaded_by_several(WARP)),
        ),
        Mistake(
            "scaled-twice",
            "The scores are scaled twice. Is the query scaled already when it is loaded?",
            scores(scale=lambda batch: batch.scale**2),
            (("= to_float(q_row[i])", "= params.scale * to_float(q_row[i])"),),
        ),
        Mistake(
            "own-elements-alone",
            "The elements are shared out among the threads, "
            "but no thread adds their products together. In pass 1 a thread has a token, "
            "and goes through all elements of its key.",
            scores(products=own_elements_alone),
            (
                (
                    "for (int i = 0; i < params.head_size; ++i)",
                    "for (int i = threadIdx.x; i < params.head_size; i += blockDim.x)",
                ),
            ),
        ),
        Mistake(
            "values-for-keys",
            "The query is multiplied with the values, "
            "but it should be multiplied with the keys.",
            scores(cache="v_cache"),
            (
                (
                    "static_cast<const T*>(params.k_cache)",
                    "static_cast<const T*>(params.v_cache)",
                ),
            ),
        ),
        Mistake(
            "query-of-the-first-row",
            "All sequences and heads have the query of the first one. "
            "q_row is where this block's query begins.",
            query_of_the_first_row,
            (("to_float(q_row[i])", "to_float(static_cast<const T*>(params.q)[i])"),),
        ),
        Mistake(
            "exponential-too-early",
            "These are exponentials of the scores. The largest score is not known yet: "
            "in pass 1 the scores stay as they are.",
            exponentials,
            (("params.scale * product;", "expf(params.scale * product);"),),
        ),
        Mistake(
            "head-and-token-exchanged",
            "cache_offset() gets the KV head where it expects the token, "
            "and the token where it expects the head. In which order does it name them?",
            head_and_token_exchanged,
            (
                (
                    "cache_offset(params, seq, token, kv_head)",
                    "cache_offset(params, seq, kv_head, token)",
                ),
            ),
        ),
        Mistake(
            "sequence-and-token-exchanged",
            "cache_offset() gets the token where it expects the sequence, "
            "and the sequence where it expects the token. In which order does it name them?",
            sequence_and_token_exchanged,
            (
                (
                    "cache_offset(params, seq, token, kv_head)",
                    "cache_offset(params, token, seq, kv_head)",
                ),
            ),
        ),
        Mistake(
            "query-row-added-again",
            "The query is read from the wrong place, past its own. "
            "q_row is where the query of this sequence and head begins. "
            "Its elements lie there one after the other.",
            row_added_again("q", lambda batch: batch.q.shape[1]),
            (("to_float(q_row[i])", "to_float(q_row[head * params.head_size + i])"),),
            also=(row_added_again("q", lambda batch: len(batch.q)),),
        ),
        Mistake(
            "context-of-the-head",
            "The length of the context is looked up by the number of the head. "
            "context_lens has a number for each sequence. "
            "All heads of a sequence have the same tokens.",
            context_of_the_head,
            (
                (
                    "num_tokens = params.context_lens[seq]",
                    "num_tokens = params.context_lens[head]",
                ),
            ),
        ),
        Mistake(
            "blocks-of-the-head",
            "cache_offset() gets the head where it expects the sequence. "
            "The block table has a row for each sequence. "
            "All heads of a sequence have the same blocks.",
            blocks_of_the_head,
            (
                (
                    "cache_offset(params, seq, token, kv_head)",
                    "cache_offset(params, head, token, kv_head)",
                ),
            ),
        ),
        Mistake(
            "whole-blocks",
            "All slots of a sequence's blocks are scored. "
            "The last block may be only partly filled: its other slots hold no token, "
            "and there may be no room for their scores.",
            whole_blocks(),
            (
                (
                    TOKENS,
                    TOKENS.replace(
                        "< num_tokens",
                        "< (num_tokens + params.block_size - 1) / params.block_size * "
                        "params.block_size",
                    ),
                ),
            ),
            also=(
                whole_blocks(lambda batch: 2),
                whole_blocks(lambda batch: batch.k_cache.shape[1] + 1),
            ),
        ),
        Mistake(
            "keys-read-as-floats",
            "With float all is right. With half and bfloat16, "
            "the keys are read as if they were floats, so two of their numbers make one. "
            "The pool holds numbers of type T. What makes a float of one of them?",
            keys_as_floats(1),
            (
                (
                    "const T* key = k_cache + cache",
                    "const float* key = static_cast<const float*>(params.k_cache) + cache",
                ),
            ),
            also=(keys_as_floats(2),),
        ),
        Mistake(
            "offset-counted-again",
            "cache_offset() gives the place of the key's first number. "
            "The KV head and head_size are already in it. "
            "Nothing more is added to it or multiplied with it.",
            scores(rows=offset_times_head_size),
            (("token, kv_head);", "token, kv_head) * params.head_size;"),),
            also=(scores(rows=head_added_to_offset),),
        ),
        Mistake(
            "one-key-for-each-thread",
            "A thread looks up one key, before its loop over the tokens. "
            "But its next token has another key, and a thread without a token has no key "
            "to look up.",
            looked_up_by_all,
            (
                (
                    (
                        "    const T* key = k_cache + "
                        "cache_offset(params, seq, token, kv_head);\n"
                    ),
                    "",
                ),
                (
                    f"  {TOKENS}",
                    (
                        "  const T* key = k_cache + "
                        "cache_offset(params, seq, threadIdx.x, kv_head);\n"
                        f"  {TOKENS}"
                    ),
                ),
            ),
            also=(scores(places=first_key_again),),
        ),
        Mistake(
            "too-little-room",
            "The shared array is too small for the query. "
            "A head may have up to 256 elements, more than the block has threads.",
            room_for(THREADS),
            (("q[256]", "q[128]"),),
            also=(room_for(WARP),),
        ),
        Mistake(
            "query-not-loaded",
            "The query is not in shared memory when the products are made. "
            "That memory begins with whatever was left there. "
            "The threads have to bring each element there before any of them reads it.",
            query_not_loaded,
            ((f"{LOAD}\n", "\n"),),
        ),
        Mistake(
            "scaled-at-each-step",
            "The sum is scaled at each step, so the first products are scaled many times "
            "over. Scale each product once, or scale the sum when it is complete.",
            scaled_at_each_step(1),
            (
                (
                    "product += q[i] * to_float(key[i]);",
                    "product = params.scale * (product + q[i] * to_float(key[i]));",
                ),
                ("params.scale * product", "product"),
            ),
            also=(scaled_at_each_step(0), scaled_at_each_step(2)),
        ),
        Mistake(
            "factor-in-integers",
            "The factor has become 0. It was divided, or kept, in integers, "
            "and there is no integer between 0 and 1. params.scale is a float, "
            "and it is the whole factor.",
            scores(scale=lambda batch: 1 // batch.q.shape[2]),
            (("params.scale * product", "(1 / params.head_size) * product"),),
        ),
        Mistake(
            "divided-by-head-size",
            "The scores are divided by head_size, or a second time by its root. "
            "params.scale is the whole factor: do not divide by anything else.",
            scores(scale=lambda batch: batch.scale / batch.q.shape[2]),
            (("params.scale * product", "params.scale * product / params.head_size"),),
            also=(
                scores(scale=lambda batch: 1 / batch.q.shape[2]),
                scores(scale=lambda batch: batch.scale * batch.q.shape[2] ** -0.5),
            ),
        ),
        Mistake(
            "token-for-element",
            "The number of the token, or of the thread, "
            "is used where the number of the element belongs. "
            "So all products of a score are made with the same element of the query "
            "or of the key.",
            token_for_element(True, False),
            (("product += q[i]", "product += q[token]"),),
            also=(
                token_for_element(False, True),
                token_for_element(True, True),
                token_for_element(False, True, lambda token: token % THREADS),
            ),
        ),
    ),
    hints=(
        (
            "First bring the query into q, all threads together: "
            "thread 0 takes the elements 0, blockDim.x, 2 * blockDim.x and so on. "
            "to_float() makes a float of each. Then wait until all of it is there."
        ),
        (
            "Tokens are shared out in the same way: thread t takes the tokens t, "
            "t + blockDim.x and so on."
        ),
        (
            "For each token, cache_offset() says where its key begins in k_cache. "
            "Multiply the key with q element by element and add up. "
            "Then scale the sum and write it to scores[token]."
        ),
    ),
)
