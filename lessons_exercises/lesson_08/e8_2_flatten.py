"""Exercise 8.2: all sequences of a step in one row."""

import itertools
import operator
import random
from collections.abc import Iterator, Mapping, Set

from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.engine.request import Request
from paged_attention.engine.runner import flatten_batch

NAMES = ("tokens", "positions", "last")


class Parts(tuple):
    """The three lists, each with its name in a message."""

    def __repr__(self):
        return "; ".join(
            f"{name} {list(part)}" for name, part in zip(NAMES, self, strict=True)
        )


def chunk(request, num_tokens):
    return range(request.num_computed, request.num_computed + num_tokens)


def all_uncomputed(request, num_tokens):
    return range(request.num_computed, len(request.tokens))


def first_ones(request, num_tokens):
    return range(num_tokens)


def last_ones(request, num_tokens):
    return range(len(request.tokens) - num_tokens, len(request.tokens))


def behind_chunk(request, num_tokens):
    return range(request.num_computed + 1, request.num_computed + num_tokens + 1)


def before_chunk(request, num_tokens):
    return range(request.num_computed - 1, request.num_computed + num_tokens - 1)


def before_chunk_from_0(request, num_tokens):
    """As before_chunk, and never before the first token."""
    start = max(request.num_computed - 1, 0)
    return range(start, start + num_tokens)


def one_fewer(request, num_tokens):
    return range(request.num_computed, request.num_computed + num_tokens - 1)


def one_more(request, num_tokens):
    return range(request.num_computed, request.num_computed + num_tokens + 1)


def until_number(request, num_tokens):
    return range(request.num_computed, num_tokens)


def one_short(request, num_tokens):
    """What a slice gives that begins one too late and ends in the right place."""
    return range(request.num_computed + 1, request.num_computed + num_tokens)


def ends(lengths):
    return [sum(lengths[: index + 1]) - 1 for index in range(len(lengths))]


def taken(request, indices):
    """A slice of the tokens: it ends where they end."""
    return request.tokens[indices.start : indices.stop]


def lists(scheduled, tokens_at=chunk, positions_of=chunk, last_of=ends):
    """flatten_batch with a place for each mistake.

    Which tokens, which positions, and the last ones from all lengths.
    """
    parts = [taken(request, tokens_at(request, number)) for request, number in scheduled]
    tokens, lengths = sum(parts, []), list(map(len, parts))
    positions = [
        position for request, number in scheduled for position in positions_of(request, number)
    ]
    return tokens, positions, last_of(lengths)


def left_for_done(request, num_tokens):
    """Begins at the number of tokens that are left, not of those that are done."""
    return range(request.num_uncomputed, request.num_uncomputed + num_tokens)


def wrong(**differences):
    def answer(scheduled):
        return lists(scheduled, **differences)

    return answer


def from_num_uncomputed(scheduled):
    """A slice behind the end is empty; here `last` does not go by it."""
    return *lists(scheduled, left_for_done, left_for_done)[:2], ends(
        [number for _, number in scheduled]
    )


def row_positions(scheduled):
    tokens, _, last = lists(scheduled)
    return tokens, list(range(len(tokens))), last


def positions_from_prompt_end(scheduled):
    """Takes the number of generated tokens for the position of the next one."""
    tokens, _, last = lists(scheduled)
    return (
        tokens,
        [
            index - len(request.prompt)
            for request, number in scheduled
            for index in chunk(request, number)
        ],
        last,
    )


def prompt_only(scheduled):
    tokens = [
        request.prompt[position]
        for request, number in scheduled
        for position in chunk(request, number)
    ]
    return tokens, *lists(scheduled)[1:]


def prompt_slices(scheduled):
    tokens, last = [], []
    for request, number in scheduled:
        tokens += request.prompt[request.num_computed : request.num_computed + number]
        last.append(len(tokens) - 1)
    return tokens, lists(scheduled)[1], last


def one_list_or_the_other(own_last, own_positions):
    """Slices the prompt while it is being read, and the output behind it."""

    def answer(scheduled):
        tokens = []
        positions = []
        last = []
        for request, number in scheduled:
            start, num_prompt = request.num_computed, len(request.prompt)
            part = (
                request.prompt[start : start + number]
                if start < num_prompt
                else request.output[start - num_prompt : start - num_prompt + number]
            )
            tokens += part
            positions += range(start, start + (len(part) if own_positions else number))
            last.append(len(tokens) - 1)
        return tokens, positions, last if own_last else lists(scheduled)[2]

    return answer


def single_token_from_the_end(request, num_tokens):
    """Takes one token for a decode."""
    return last_ones(request, 1) if num_tokens == 1 else chunk(request, num_tokens)


def last_by_its_token(whole_row):
    """Looks for a request's last token among the others, and finds the first like it."""

    def answer(scheduled):
        tokens, positions, _ = lists(scheduled)
        last, start = [], 0
        for request, number in scheduled:
            token = request.tokens[request.num_computed + number - 1]
            last.append(tokens.index(token, 0 if whole_row else start))
            start += number
        return tokens, positions, last

    return answer


def changing_the_list(change):
    """The right lists; then the list of pairs is not what it was."""

    def answer(scheduled):
        result = lists(scheduled)
        change(scheduled)
        return result

    return answer


def positions_by_token(scheduled):
    """Takes a token's first place in the request for its position."""
    tokens, _, last = lists(scheduled)
    positions = [
        request.tokens.index(token)
        for request, number in scheduled
        for token in taken(request, chunk(request, number))
    ]
    return tokens, positions, last


def nested_with_few_last(both):
    def answer(scheduled):
        tokens, positions, _ = nested(scheduled)
        return tokens, positions if both else lists(scheduled)[1], list(range(len(scheduled)))

    return answer


def of_one_request(index):
    return lambda scheduled: lists([scheduled[index]])


def only_last_tokens(scheduled):
    """The lists of tokens and positions begin anew with each request."""
    return *of_one_request(-1)(scheduled)[:2], [number - 1 for _, number in scheduled]


def ordered(*places):
    return lambda scheduled: [lists(scheduled)[place] for place in places]


def some_as(form):
    """Wrong answers with some of the three lists in another form, all three first."""

    def answer_with(which):
        return lambda scheduled: tuple(
            form(part) if changed else part
            for part, changed in zip(lists(scheduled), which, strict=True)
        )

    return tuple(map(answer_with, itertools.product((True, False), repeat=3)))[:-1]


def as_floats(part):
    return list(map(float, part))


def last_by_id(scheduled):
    tokens, positions, last = lists(scheduled)
    return (
        tokens,
        positions,
        {request.id: index for (request, _), index in zip(scheduled, last, strict=True)},
    )


def mask_for_last(scheduled):
    tokens, positions, last = lists(scheduled)
    return tokens, positions, [index in last for index in range(len(tokens))]


def in_another_order(order):
    return lambda scheduled: lists(order(scheduled))


def by_number(scheduled):
    return sorted(scheduled, key=lambda pair: pair[1])


def tokens_taken_away(scheduled):
    result = lists(scheduled)
    for request, number in scheduled:
        del request.tokens[request.num_computed : request.num_computed + number]
    return result


def nested(scheduled):
    return (
        [
            [request.tokens[position] for position in chunk(request, number)]
            for request, number in scheduled
        ],
        [list(chunk(request, number)) for request, number in scheduled],
        lists(scheduled)[2],
    )


def nested_positions(scheduled):
    tokens, _, last = lists(scheduled)
    return tokens, [list(chunk(request, number)) for request, number in scheduled], last


def complete_ones_by(is_due):
    """A wrong answer that has an entry in `last` only for some requests."""

    def answer(scheduled):
        tokens, positions, last = lists(scheduled)
        return (
            tokens,
            positions,
            [index for index, pair in zip(last, scheduled, strict=True) if is_due(*pair)],
        )

    return answer


complete_ones = complete_ones_by(
    lambda request, number: request.num_computed + number == len(request.tokens)
)


def last_of_each(number_of):
    """A wrong answer that takes number_of(request, num_tokens) for a request's last index."""

    def answer(scheduled):
        return *lists(scheduled)[:2], [
            number_of(request, number) for request, number in scheduled
        ]

    return answer


def last_positions(scheduled):
    tokens, positions, last = lists(scheduled)
    return tokens, positions, [positions[index] for index in last]


def last_tokens_themselves(scheduled):
    tokens, positions, last = lists(scheduled)
    return tokens, positions, [tokens[index] for index in last]


def counts_as_computed(scheduled):
    result = lists(scheduled)
    for request, number in scheduled:
        request.num_computed += number
    return result


def counts_as_computed_first(scheduled):
    for request, number in scheduled:
        request.num_computed += number
    return lists(
        scheduled,
        lambda request, number: range(request.num_computed - number, request.num_computed),
        behind_chunk,
    )


# (tokens of the prompt, generated, computed, new ones of this step) of each request
CASES = [
    [(1, 0, 0, 1)],
    [(3, 0, 0, 3)],
    [(3, 0, 0, 2)],
    [(4, 0, 2, 2)],
    [(5, 0, 1, 2)],
    [(2, 1, 2, 1)],
    [(3, 4, 6, 1)],
    [(2, 0, 0, 2), (3, 0, 0, 3)],
    [(3, 2, 4, 1), (2, 1, 2, 1), (4, 0, 0, 4)],
    [(6, 0, 3, 2), (2, 2, 3, 1), (5, 0, 0, 1)],
    [(3, 3, 0, 6), (4, 5, 0, 7), (1, 1, 1, 1)],
    [(12, 0, 0, 12)],
    [(17, 0, 16, 1), (40, 3, 32, 8), (16, 1, 16, 1), (9, 0, 0, 4)],
]
NUM_TOKENS = 10  # a request has so many different ones; then they come again, as real ones do


def hidden(seed):
    """Up to four requests: any part of their prompts, of what they generated, or of both."""
    chance = random.Random(seed)
    for number in range(12):
        requests = []
        for _ in range(1 + number // 3):
            prompt = chance.randint(1, 20)
            generated = chance.choice((0, 0, 1, chance.randint(1, 9)))
            computed = chance.choice(
                (0, prompt + generated - 1, chance.randrange(prompt + generated))
            )
            left = prompt + generated - computed
            requests.append(
                (prompt, generated, computed, chance.choice((left, chance.randint(1, left))))
            )
        yield requests


def make_batch(case):
    """Requests whose tokens say where they come from.

    A's are 100, 101 and so on, B's 200, 201.
    """
    scheduled = []
    for index, (prompt, generated, num_computed, num_tokens) in enumerate(case):
        request = Request(
            "ABCD"[index],
            [100 * (index + 1) + position % NUM_TOKENS for position in range(prompt)],
        )
        request.tokens += [
            100 * (index + 1) + position % NUM_TOKENS
            for position in range(prompt, prompt + generated)
        ]
        request.num_computed = num_computed
        scheduled.append((request, num_tokens))
    return scheduled


def observe(answer, case):
    scheduled = make_batch(case)
    handed = list(scheduled)
    try:
        result = answer(handed)
    except NotImplementedError:
        raise
    except Exception:
        if changed(scheduled, handed, case):
            return changed(scheduled, handed, case)
        raise
    if changed(scheduled, handed, case):
        return changed(scheduled, handed, case)
    if not isinstance(result, tuple | list) or len(result) != 3:
        size = f" of {len(result)}" if isinstance(result, tuple | list) else ""
        return Text(f"{type(result).__name__}{size} in place of three lists")
    return Parts(map(numbers, result))


def changed(scheduled, handed, case):
    """What is not as it was in the requests or in the list of them, in words, or None."""
    before = [request for request, _ in make_batch(case)]
    for name in ("num_computed", "tokens", "prompt"):
        if any(
            getattr(request, name) != getattr(given, name)
            for (request, _), given in zip(scheduled, before, strict=True)
        ):
            return Text(f"the requests' {name} changed")
    return None if handed == scheduled else Text("the list `scheduled` changed")


def numbers(part):
    """A list of integers as a tuple, from any form that torch.tensor() takes.

    Anything else stays in words.
    """
    for kind, words in ((Iterator, "an iterator"), (Mapping, "a dictionary"), (Set, "a set")):
        if isinstance(part, kind):
            return Text(words)
    part = part.tolist() if hasattr(part, "tolist") else part
    if isinstance(part, tuple | list):
        part = [list(entry) if isinstance(entry, range | tuple) else entry for entry in part]
    try:
        return tuple(map(operator.index, part))
    except TypeError:
        return Text(part)


def show(expected, actual):
    if not (isinstance(expected, Parts) and isinstance(actual, Parts)):
        return repr(expected), repr(actual)
    name, ours, theirs = next(
        both for both in zip(NAMES, expected, actual, strict=True) if both[1] != both[2]
    )
    return tuple(
        f"{name} {part if isinstance(part, str) else list(part)}" for part in (ours, theirs)
    )


def describe(case):
    those = [
        f"{number} of {'ABCD'[index]} "
        f"({counted(prompt, 'prompt token')}, {generated} generated, {computed} computed)"
        for index, (prompt, generated, computed, number) in enumerate(case)
    ]
    tokens = [
        f"{'ABCD'[index]}'s tokens are {100 * (index + 1)}, {100 * (index + 1) + 1}, …"
        + (
            f" {100 * (index + 1) + NUM_TOKENS - 1}, then these again"
            if prompt + generated > NUM_TOKENS
            else ""
        )
        for index, (prompt, generated, _, _) in enumerate(case)
    ]
    return f"tokens to compute: {'; '.join(those)}. {', '.join(tokens)}"


EXERCISE = Exercise(
    id="8.2",
    title="all sequences in one row",
    answer_name="flatten_batch",
    reference=flatten_batch,
    cases=lambda: CASES,
    size=lambda case: (
        sum(num_tokens for *_, num_tokens in case),
        len(case),
        sum(map(sum, case)),
    ),
    hidden=hidden,
    observe=observe,
    describe=describe,
    show=show,
    mistakes=(
        Mistake(
            "positions-of-the-step",
            "Each request's positions begin at 0 in this step. A chunk that is "
            "not the first, or a generated token, stands further behind in its sequence.",
            wrong(positions_of=first_ones),
            also=(
                wrong(
                    positions_of=first_ones,
                    last_of=lambda lengths: [length - 1 for length in lengths],
                ),
            ),
        ),
        Mistake(
            "positions-of-the-row",
            "The positions count through the row. "
            "Each sequence counts for itself, the row is only where they meet.",
            row_positions,
        ),
        Mistake(
            "positions-one-further",
            "Every position is one too high. The first token that is not computed stands "
            "behind num_computed others: which position is that, when they count from 0?",
            wrong(positions_of=behind_chunk),
        ),
        Mistake(
            "positions-from-the-end",
            "The positions are those of the sequence's last tokens. "
            "In the middle of a prompt the chunk ends before.",
            wrong(positions_of=last_ones),
        ),
        Mistake(
            "positions-behind-the-prompt",
            "Your positions begin behind the prompt. "
            "They count from the first token of the prompt.",
            positions_from_prompt_end,
        ),
        Mistake(
            "positions-of-all-that-is-left",
            "There are more positions than tokens in the row. "
            "A request has num_tokens of each.",
            wrong(positions_of=all_uncomputed),
        ),
        Mistake(
            "a-position-for-each-request",
            "All tokens of a request have the same position, "
            "or there is one for all of them. Each stands one further than the one before it.",
            wrong(positions_of=lambda request, number: [request.num_computed] * number),
            also=(wrong(positions_of=lambda request, number: [request.num_computed]),),
        ),
        Mistake(
            "positions-found-by-token",
            "A token that comes more than once in a request has the position of the first. "
            "The place is known without a search: from where on are they computed?",
            positions_by_token,
        ),
        Mistake(
            "number-taken-for-the-end",
            "num_tokens says how many, and you take it for the index at which they end. "
            "They begin at num_computed.",
            wrong(tokens_at=until_number, positions_of=until_number),
            also=(wrong(tokens_at=until_number), wrong(positions_of=until_number)),
        ),
        Mistake(
            "one-token-fewer",
            "A request has one token or position fewer than num_tokens. "
            "A range and a slice end before their second number.",
            wrong(tokens_at=one_fewer, positions_of=one_fewer),
            also=(wrong(tokens_at=one_fewer), wrong(positions_of=one_fewer)),
        ),
        Mistake(
            "one-token-more",
            "A request has one token or position more than num_tokens. "
            "A range and a slice end before their second number.",
            wrong(tokens_at=one_more, positions_of=one_more),
            also=(wrong(tokens_at=one_more), wrong(positions_of=one_more)),
        ),
        Mistake(
            "one-token-too-early",
            "It begins with a token that is computed already. "
            "num_computed of them have the indices from 0 on: which is the next?",
            wrong(tokens_at=before_chunk, positions_of=before_chunk),
            also=(
                wrong(tokens_at=before_chunk),
                wrong(positions_of=before_chunk),
                wrong(tokens_at=before_chunk_from_0, positions_of=before_chunk_from_0),
                wrong(tokens_at=before_chunk_from_0),
                wrong(positions_of=before_chunk_from_0),
            ),
        ),
        Mistake(
            "tokens-from-the-start",
            "A request's tokens are taken from its start again. "
            "Those before num_computed are in the cache already.",
            wrong(tokens_at=first_ones),
            also=(wrong(tokens_at=first_ones, positions_of=first_ones),),
        ),
        Mistake(
            "tokens-from-the-end",
            "You take a request's last tokens. "
            "In the middle of a prompt the next ones are not the last.",
            wrong(tokens_at=last_ones),
            also=(wrong(tokens_at=last_ones, positions_of=last_ones),),
        ),
        Mistake(
            "all-that-is-left",
            "All tokens of a request that are not computed are in the row. "
            "The budget allows num_tokens of them.",
            wrong(tokens_at=all_uncomputed, positions_of=all_uncomputed),
            also=(wrong(tokens_at=all_uncomputed),),
        ),
        Mistake(
            "num-uncomputed-for-the-start",
            "It begins at num_uncomputed, which says how many tokens are left. "
            "Where does the first that is not computed stand?",
            wrong(tokens_at=left_for_done, positions_of=left_for_done),
            also=(
                from_num_uncomputed,
                wrong(tokens_at=left_for_done),
                wrong(positions_of=left_for_done),
            ),
        ),
        Mistake(
            "one-token-too-far",
            "The tokens begin one too late. "
            "The first that is not computed has the index num_computed.",
            wrong(tokens_at=behind_chunk),
            also=(
                wrong(tokens_at=behind_chunk, positions_of=behind_chunk),
                wrong(tokens_at=one_short),
                wrong(tokens_at=one_short, positions_of=one_short),
            ),
        ),
        Mistake(
            "prompt-only",
            "The tokens come from the prompt. "
            "What was generated is the model's input as well.",
            prompt_only,
            also=(prompt_slices,),
        ),
        Mistake(
            "prompt-or-output",
            "A request's new tokens come either from its prompt or from its output. "
            "One that was preempted may need the end of the one and the beginning "
            "of the other: which list holds both?",
            one_list_or_the_other(True, False),
            also=(one_list_or_the_other(True, True), one_list_or_the_other(False, False)),
        ),
        Mistake(
            "single-token-for-a-decode",
            "A request with one token in this step gets its very last. A single token can "
            "also be a chunk in the middle of a prompt, when the budget had no more.",
            wrong(tokens_at=single_token_from_the_end, positions_of=single_token_from_the_end),
            also=(
                wrong(tokens_at=single_token_from_the_end),
                wrong(positions_of=single_token_from_the_end),
            ),
        ),
        Mistake(
            "last-within-the-request",
            "`last` counts inside each request's chunk. "
            "The logits come for the whole row, so count from its start.",
            wrong(last_of=lambda lengths: [length - 1 for length in lengths]),
            also=(wrong(last_of=lambda lengths: [-1] * len(lengths)),),
        ),
        Mistake(
            "last-found-by-token",
            "A request's last token is looked up in the row, "
            "and an equal one stands before it. No search is needed: "
            "how long is the row when the request's tokens have been added?",
            last_by_its_token(True),
            also=(last_by_its_token(False),),
        ),
        Mistake(
            "last-off-by-one",
            "`last` names the token behind each request's last one. Indices count from 0.",
            wrong(last_of=lambda lengths: [index + 1 for index in ends(lengths)]),
        ),
        Mistake(
            "borders-for-last",
            "`last` has an entry more than there are requests, as lesson 05's `cu_seqlens_q` "
            "has. It holds an index of the row for each request: that of its last token.",
            wrong(last_of=lambda lengths: [0, *(index + 1 for index in ends(lengths))]),
            also=tuple(
                wrong(last_of=lambda lengths, first=first: [first, *ends(lengths)])
                for first in (0, -1)
            ),
        ),
        Mistake(
            "last-behind-all-that-is-left",
            "`last` counts on by all the tokens that a request has left. "
            "In the row it has num_tokens of them.",
            lambda scheduled: (
                *lists(scheduled)[:2],
                ends([request.num_uncomputed for request, _ in scheduled]),
            ),
        ),
        Mistake(
            "last-falls-behind",
            "The first entry of `last` is right, and each later one falls behind by one "
            "more. For each request one was taken off, though the row has a single index 0.",
            wrong(
                last_of=lambda lengths: [
                    end - number for number, end in enumerate(ends(lengths))
                ]
            ),
        ),
        Mistake(
            "first-for-last",
            "`last` names where each request begins in the row. "
            "The next token is predicted at its last one.",
            wrong(
                last_of=lambda lengths: [sum(lengths[:index]) for index in range(len(lengths))]
            ),
        ),
        Mistake(
            "lengths-for-last",
            "`last` holds how many tokens each request has in the row, "
            "not where its last one stands.",
            wrong(last_of=list),
        ),
        Mistake(
            "last-of-the-row-only",
            "`last` has one index, that of the row's last token. "
            "Every request has a last token of its own.",
            wrong(last_of=lambda lengths: ends(lengths)[-1:]),
            also=(wrong(last_of=lambda lengths: sum(lengths) - 1),),
        ),
        Mistake(
            "last-of-complete-ones",
            "A request in the middle of its prompt is missing in `last`. "
            "Every request has an entry: which of the logits are used is decided later.",
            complete_ones,
            also=(
                complete_ones_by(lambda request, number: number == 1),
                complete_ones_by(
                    lambda request, number: (
                        request.num_computed + number >= len(request.prompt)
                    )
                ),
            ),
        ),
        Mistake(
            "last-position",
            "`last` holds positions in the sequences. "
            "It holds indices of the row, where the logits come from.",
            last_positions,
            also=(
                last_of_each(lambda request, number: request.num_computed + number),
                last_of_each(lambda request, number: len(request.tokens) - 1),
            ),
        ),
        Mistake(
            "last-token-itself",
            "`last` holds tokens. It says where in the row they stand.",
            last_tokens_themselves,
            also=(last_of_each(lambda request, number: request.tokens[-1]),),
        ),
        Mistake(
            "last-of-every-token",
            "`last` has an index for every token. "
            "A request has one, for the last of its tokens in the row.",
            lambda scheduled: (*lists(scheduled)[:2], list(range(len(lists(scheduled)[0])))),
        ),
        Mistake(
            "mask-for-last",
            "`last` says of each token whether it is its request's last one. "
            "It holds numbers: for each request, where in the row its last token stands.",
            mask_for_last,
        ),
        Mistake(
            "floats",
            "There are floating-point numbers among what you return. "
            "Tokens, positions and indices are whole numbers. "
            "Look for what makes a tensor or an array of floats.",
            some_as(as_floats)[0],
            also=some_as(as_floats)[1:],
        ),
        Mistake(
            "not-lists",
            "A part of what you return is not a list. `torch.tensor` makes no tensor "
            "of a dictionary, of a set or of an iterator, which a generator or a `map` is.",
            some_as(iter)[0],
            also=(*some_as(iter)[1:], last_by_id, *some_as(set)),
        ),
        Mistake(
            "lists-in-lists",
            "There is a list for each request. "
            "The model takes one row: all tokens one after the other.",
            nested,
            also=(nested_positions, nested_with_few_last(True), nested_with_few_last(False)),
        ),
        Mistake(
            "one-request-only",
            "There is one request's tokens, and the others are missing. "
            "Look at what stands inside the loop and what outside.",
            of_one_request(0),
            also=(of_one_request(-1), only_last_tokens),
        ),
        Mistake(
            "requests-in-another-order",
            "The requests stand in the row in another order than in `scheduled`. "
            "The metadata has them in that order, "
            "so tokens and block tables would not belong together.",
            in_another_order(lambda scheduled: scheduled[::-1]),
            also=(
                in_another_order(by_number),
                in_another_order(lambda scheduled: by_number(scheduled)[::-1]),
                in_another_order(
                    lambda scheduled: sorted(scheduled, key=lambda pair: -pair[1])
                ),
            ),
        ),
        Mistake(
            "order-of-the-three",
            "The three lists are right, and not in the order of the docstring.",
            ordered(1, 0, 2),
            also=tuple(
                ordered(*order) for order in ((0, 2, 1), (1, 2, 0), (2, 0, 1), (2, 1, 0))
            ),
        ),
        Mistake(
            "lists-stay-empty",
            "There is no token and no position in what you return. Each request adds its own "
            "to the lists: `a + b` is a new list, and `a` stays as it was.",
            lambda scheduled: ([], [], []),
            also=(lambda scheduled: ([], [], [-1] * len(scheduled)),),
        ),
        Mistake(
            "returns-nothing",
            "The function returns nothing. "
            "The model needs three lists: tokens, positions, last ones.",
            lambda scheduled: None,
        ),
        Mistake(
            "counts-as-computed",
            "The requests' num_computed has changed. "
            "Nothing is computed yet; exercise 8.8 counts it, when it is.",
            counts_as_computed,
            also=(counts_as_computed_first,),
        ),
        Mistake(
            "tokens-taken-away",
            "The requests' tokens are not what they were. "
            "They are copied into the row; the request keeps them.",
            tokens_taken_away,
        ),
        Mistake(
            "scheduled-changed",
            "The list `scheduled` is not what it was before the call. "
            "The engine goes through it again when the model has run.",
            changing_the_list(list.clear),
            also=tuple(
                map(
                    changing_the_list,
                    (
                        lambda scheduled: scheduled.pop(),
                        lambda scheduled: scheduled.reverse(),
                        lambda scheduled: scheduled.sort(key=lambda pair: pair[1]),
                        lambda scheduled: scheduled.sort(key=lambda pair: -pair[1]),
                    ),
                )
            ),
        ),
    ),
    hints=(
        (
            "For one request: which positions do its next num_tokens tokens have, "
            "when num_computed of them are in the cache?"
        ),
        (
            "The tokens stand in `request.tokens` at exactly these positions, "
            "prompt and generated ones alike."
        ),
        (
            "Three lists that grow request by request. "
            "When a request's tokens have been added, where does the last one stand?"
        ),
    ),
)
