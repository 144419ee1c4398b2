"""Exercise 4.5: combine the parts of all requests at once."""

import random

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_04.inputs import (
    call,
    drawn_parts,
    in_double,
    named_where,
    names_of_empty,
    parts,
    raises_where,
    with_zeros_of_l,
)
from lessons_lib.checks import Exercise, Mistake
from paged_attention import decode
from paged_attention.softmax_state import NO_KEY, finite


def _owners(request_num_blocks):
    return torch.arange(len(request_num_blocks)).repeat_interleave(request_num_blocks)


def _guarded(l):
    return l.masked_fill(l == 0, 1.0)


def _maxima(m, owners, num_seqs):
    start = m.new_full((num_seqs, *m.shape[1:]), NO_KEY)
    return start.scatter_reduce(0, owners[:, None].expand_as(m), m, "amax")


def _add(values, owners, num_seqs):
    return values.new_zeros(num_seqs, *values.shape[1:]).index_add(0, owners, values)


def owners_by_repeat(o, m, l, request_num_blocks):
    num_seqs = len(request_num_blocks)
    owners = torch.arange(len(m)) % max(1, num_seqs)
    m_all = _maxima(m, owners, num_seqs)
    weight = torch.exp(m - finite(m_all)[owners]) * l
    l_all = _add(weight, owners, num_seqs)
    return (
        _add(weight[..., None] * o, owners, num_seqs) / _guarded(l_all)[..., None],
        m_all,
        l_all,
    )


def maximum_from_zero(o, m, l, request_num_blocks):
    owners, num_seqs = _owners(request_num_blocks), len(request_num_blocks)
    m_all = m.new_zeros(num_seqs, m.shape[1]).scatter_reduce(
        0, owners[:, None].expand_as(m), m, "amax"
    )
    weight = torch.exp(m - m_all[owners]) * l
    l_all = _add(weight, owners, num_seqs)
    return (
        _add(weight[..., None] * o, owners, num_seqs) / _guarded(l_all)[..., None],
        m_all,
        l_all,
    )


def _combined(
    o, m, l, request_num_blocks, *, owners=_owners, maxima=None, spread=None, weigh=None
):
    """combine_segments() with one part replaced.

    `maxima(m, owners, num_seqs)`, `spread(m_all, owners)`: a row for each block,
    `weigh(difference, l)`.
    """
    owners, num_seqs = owners(request_num_blocks), len(request_num_blocks)
    m_all = (maxima or _maxima)(m, owners, num_seqs)
    difference = m - (spread(finite(m_all), owners) if spread else finite(m_all)[owners])
    weight = weigh(difference, l) if weigh else torch.exp(difference) * l
    l_all = _add(weight, owners, num_seqs)
    return (
        _add(weight[..., None] * o, owners, num_seqs) / _guarded(l_all)[..., None],
        m_all,
        l_all,
    )


def searches_to_the_left(o, m, l, request_num_blocks):
    """A row at the boundary is given to the request that ends there."""
    return _combined(
        o,
        m,
        l,
        request_num_blocks,
        owners=lambda counts: torch.searchsorted(
            counts.cumsum(0), torch.arange(int(counts.sum()))
        ),
    )


def _rows_for_owners(row_of):
    """Each row's owner is the number of a row, from a running sum of the counts."""

    def wrong(o, m, l, request_num_blocks):
        return _combined(
            o,
            m,
            l,
            request_num_blocks,
            owners=lambda counts: row_of(counts).repeat_interleave(counts),
        )

    return wrong


ROWS_FOR_OWNERS = tuple(
    map(
        _rows_for_owners,
        (
            lambda counts: counts.cumsum(0) - 1,
            lambda counts: counts.cumsum(0),
            lambda counts: counts.cumsum(0) - counts,
        ),
    )
)


def _maxima_added(start):
    """scatter_reduce adds up the maxima of a request's blocks."""

    def wrong(o, m, l, request_num_blocks):
        def maxima(m, owners, num_seqs):
            return m.new_full((num_seqs, m.shape[1]), start).scatter_reduce(
                0, owners[:, None].expand_as(m), m, "sum"
            )

        return _combined(o, m, l, request_num_blocks, maxima=maxima)

    return wrong


MAXIMA_ADDED = tuple(map(_maxima_added, (NO_KEY, 0.0)))


def maximum_from_ten(o, m, l, request_num_blocks):
    def maxima(m, owners, num_seqs):
        return m.new_full((num_seqs, m.shape[1]), 10.0).scatter_reduce(
            0, owners[:, None].expand_as(m), m, "amax"
        )

    return _combined(o, m, l, request_num_blocks, maxima=maxima)


def start_left_where_there_is_no_block(o, m, l, request_num_blocks):
    def maxima(m, owners, num_seqs):
        start = m.new_zeros(num_seqs, m.shape[1])
        return start.scatter_reduce(
            0, owners[:, None].expand_as(m), m, "amax", include_self=False
        )

    return _combined(o, m, l, request_num_blocks, maxima=maxima)


def _first_head_reduced(m, owners, num_seqs):
    return m.new_full((num_seqs, m.shape[1]), NO_KEY).scatter_reduce(
        0, owners[:, None], m, "amax"
    )


def owners_as_a_column(o, m, l, request_num_blocks):
    return _combined(o, m, l, request_num_blocks, maxima=_first_head_reduced)


def owners_as_a_row(o, m, l, request_num_blocks):
    """scatter_reduce raises: an index of one dimension for a tensor of two."""
    return _combined(
        o,
        m,
        l,
        request_num_blocks,
        maxima=lambda m, owners, num_seqs: m.new_full(
            (num_seqs, m.shape[1]), NO_KEY
        ).scatter_reduce(0, owners, m, "amax"),
    )


def maxima_not_spread(o, m, l, request_num_blocks):
    return _combined(o, m, l, request_num_blocks, spread=lambda m_all, owners: m_all)


def weighted_by_l_alone(o, m, l, request_num_blocks):
    return _combined(o, m, l, request_num_blocks, weigh=lambda difference, l: l)


def weighted_by_l_alone_l_right(o, m, l, request_num_blocks):
    _, m_all, l_all = decode.combine_segments(o, m, l, request_num_blocks)
    return weighted_by_l_alone(o, m, l, request_num_blocks)[0], m_all, l_all


def taken_as_undivided(o, m, l, request_num_blocks):
    _, m_all, l_all = decode.combine_segments(o, m, l, request_num_blocks)
    o_all, _, counted = _combined(
        o, m, l, request_num_blocks, weigh=lambda difference, l: torch.exp(difference)
    )
    return o_all * _guarded(counted)[..., None] / _guarded(l_all)[..., None], m_all, l_all


def _rows_up_to_the_last_owner(o, m, l, request_num_blocks):
    """As many rows as the largest owner says.

    Requests without a block at the end have none.
    """
    owners = _owners(request_num_blocks)
    return decode.combine_segments(
        o, m, l, request_num_blocks[: int(owners.max()) + 1 if len(owners) else 0]
    )


def _overwrites(change):
    def wrong(o, m, l, request_num_blocks):
        result = decode.combine_segments(o, m, l, request_num_blocks)
        change(m, l, finite(result[1])[_owners(request_num_blocks)])
        return result

    return wrong


OVERWRITING = tuple(
    map(
        _overwrites,
        (
            lambda m, l, largest: m.sub_(largest),
            lambda m, l, largest: m.sub_(largest).exp_(),
            lambda m, l, largest: l.mul_(torch.exp(m - largest)),
        ),
    )
)


def last_block_decides(o, m, l, request_num_blocks):
    owners, num_seqs = _owners(request_num_blocks), len(request_num_blocks)
    m_all = m.new_full((num_seqs, m.shape[1]), NO_KEY)
    for row, owner in enumerate(owners.tolist()):
        m_all[owner] = m[row]
    weight = torch.exp(m - finite(m_all)[owners]) * l
    l_all = _add(weight, owners, num_seqs)
    return (
        _add(weight[..., None] * o, owners, num_seqs) / _guarded(l_all)[..., None],
        m_all,
        l_all,
    )


def without_exp(o, m, l, request_num_blocks):
    _, m_all, l_all = decode.combine_segments(o, m, l, request_num_blocks)
    owners, num_seqs = _owners(request_num_blocks), len(request_num_blocks)
    weight = (m - finite(m_all)[owners]) * l / _guarded(l_all)[owners]
    return _add(weight[..., None] * o, owners, num_seqs), m_all, l_all


def summed_without_exp(o, m, l, request_num_blocks):
    owners, num_seqs = _owners(request_num_blocks), len(request_num_blocks)
    m_all = _maxima(m, owners, num_seqs)
    weight = (m - finite(m_all)[owners]) * l
    l_all = _add(weight, owners, num_seqs)
    return (
        _add(weight[..., None] * o, owners, num_seqs) / _guarded(l_all)[..., None],
        m_all,
        l_all,
    )


def summed_without_exp_positive(o, m, l, request_num_blocks):
    """These weights are never above 0, and the guard asks for more than 0."""
    o_all, m_all, l_all = summed_without_exp(o, m, l, request_num_blocks)
    return torch.zeros_like(o_all), m_all, l_all


def output_without_l(o, m, l, request_num_blocks):
    _, m_all, l_all = decode.combine_segments(o, m, l, request_num_blocks)
    return without_l(o, m, l, request_num_blocks)[0], m_all, l_all


def without_l(o, m, l, request_num_blocks):
    return decode.combine_segments(o, m, (l > 0).to(l.dtype), request_num_blocks)


def l_added_as_it_is(o, m, l, request_num_blocks):
    owners = _owners(request_num_blocks)
    o_all, m_all, _ = decode.combine_segments(o, m, l, request_num_blocks)
    return o_all, m_all, _add(l, owners, len(request_num_blocks))


def empty_requests_dropped(o, m, l, request_num_blocks):
    return decode.combine_segments(o, m, l, request_num_blocks[request_num_blocks > 0])


def zero_divided_by_zero(o, m, l, request_num_blocks):
    o_all, m_all, l_all = decode.combine_segments(o, m, l, request_num_blocks)
    return o_all * l_all[..., None] / l_all[..., None], m_all, l_all


def one_softmax_for_all(o, m, l, request_num_blocks):
    owners, num_seqs = _owners(request_num_blocks), len(request_num_blocks)
    _, m_all, l_all = decode.combine_result(o, m, l)
    weight = torch.exp(m - finite(m_all)) * l
    o_all = _add(weight[..., None] * o, owners, num_seqs) / _guarded(l_all)[..., None]
    return o_all, m_all.expand(num_seqs, -1), l_all.expand(num_seqs, -1)


def _one_maximum(
    o,
    m,
    l,
    request_num_blocks,
    *,
    guarded=True,
    per_request=False,
    of_nothing=False,
    of_keys=False,
):
    owners, num_seqs = _owners(request_num_blocks), len(request_num_blocks)
    m_all = (
        torch.cat(
            [
                m,
                (
                    torch.full_like(m[:1], NO_KEY)
                    if len(m)
                    else m.new_full((1, m.shape[1]), NO_KEY)
                ),
            ]
        ).amax(0)
        if of_nothing
        else m.amax(0)
    )
    weight = torch.exp(m - finite(m_all)) * l
    l_all = _add(weight, owners, num_seqs)
    o_all = (
        _add(weight[..., None] * o, owners, num_seqs)
        / (_guarded(l_all) if guarded else l_all)[..., None]
    )
    if of_keys:
        return o_all, torch.where(l_all > 0, m_all, NO_KEY), l_all
    return (
        o_all,
        _maxima(m, owners, num_seqs) if per_request else m_all.expand(num_seqs, -1),
        l_all,
    )


def one_maximum_also_of_nothing(o, m, l, request_num_blocks):
    """Without a block, the maximum is -inf."""
    return _one_maximum(o, m, l, request_num_blocks, of_nothing=True)


def one_maximum_where_there_is_a_key(o, m, l, request_num_blocks):
    return _one_maximum(o, m, l, request_num_blocks, of_nothing=True, of_keys=True)


def _running_sums_subtracted(start, guard):
    """One maximum for all requests.

    Each request's sums are the difference of two running sums, with their rounding.
    """

    def wrong(o, m, l, request_num_blocks):
        m_all = m.amax(0) if len(m) else m.new_full(m.shape[1:], start)
        weight = torch.exp(m - finite(m_all)) * l
        ends = request_num_blocks.cumsum(0)

        def summed(values):
            running = torch.cat([values.new_zeros(1, *values.shape[1:]), values.cumsum(0)])
            return running[ends] - running[ends - request_num_blocks]

        l_all = summed(weight)
        return (
            summed(weight[..., None] * o) / guard(l_all)[..., None],
            m_all.expand(l_all.shape),
            l_all,
        )

    return wrong


RUNNING_SUMS_SUBTRACTED = tuple(
    _running_sums_subtracted(start, guard)
    for start in (NO_KEY, 0.0)
    for guard in (_guarded, lambda l: l.clamp_min(1e-30))
)


def one_maximum_for_all(o, m, l, request_num_blocks):
    return _one_maximum(o, m, l, request_num_blocks)


def one_maximum_for_all_unguarded(o, m, l, request_num_blocks):
    return _one_maximum(o, m, l, request_num_blocks, guarded=False)


def one_maximum_subtracted(o, m, l, request_num_blocks):
    return _one_maximum(o, m, l, request_num_blocks, per_request=True)


def one_maximum_subtracted_unguarded(o, m, l, request_num_blocks):
    return _one_maximum(o, m, l, request_num_blocks, guarded=False, per_request=True)


def one_maximum_over_all_numbers(o, m, l, request_num_blocks):
    """One number for all requests and heads."""
    owners, num_seqs = _owners(request_num_blocks), len(request_num_blocks)
    m_all = m.max()
    weight = torch.exp(m - finite(m_all)) * l
    l_all = _add(weight, owners, num_seqs)
    return (
        _add(weight[..., None] * o, owners, num_seqs) / _guarded(l_all)[..., None],
        m_all.expand(l_all.shape),
        l_all,
    )


def _maximum_from(start, guarded):
    def wrong(o, m, l, request_num_blocks):
        owners, num_seqs = _owners(request_num_blocks), len(request_num_blocks)
        m_all = m.new_full((num_seqs, m.shape[1]), start).scatter_reduce(
            0, owners[:, None].expand_as(m), m, "amax"
        )
        weight = torch.exp(m - m_all[owners]) * l
        l_all = _add(weight, owners, num_seqs)
        o_all = (
            _add(weight[..., None] * o, owners, num_seqs)
            / (_guarded(l_all) if guarded else l_all)[..., None]
        )
        return o_all, m_all, l_all

    return wrong


FINITE_STARTS = tuple(
    _maximum_from(start, guarded)
    for start in (-1e9, torch.finfo(torch.float32).min, -1e4)
    for guarded in (True, False)
)


def finite_maximum_returned(o, m, l, request_num_blocks):
    o_all, m_all, l_all = decode.combine_segments(o, m, l, request_num_blocks)
    return o_all, finite(m_all), l_all


def l_kept_from_zero(o, m, l, request_num_blocks):
    o_all, m_all, l_all = decode.combine_segments(o, m, l, request_num_blocks)
    return o_all, m_all, l_all.clamp(min=1e-6)


def neither_maximum_nor_division_guarded(o, m, l, request_num_blocks):
    o_all, m_all, l_all = nan_without_a_key(o, m, l, request_num_blocks)
    return o_all * l_all[..., None] / l_all[..., None], m_all, l_all


def nan_in_l_alone(o, m, l, request_num_blocks):
    """o is cleaned by nan_to_num, and exp(-inf - (-inf)) stays in l."""
    o_all, m_all, l_all = nan_without_a_key(o, m, l, request_num_blocks)
    return o_all.nan_to_num(0.0), m_all, l_all


def without_the_maximum(o, m, l, request_num_blocks):
    owners, num_seqs = _owners(request_num_blocks), len(request_num_blocks)
    weight = torch.exp(m) * l
    l_all = _add(weight, owners, num_seqs)
    return (
        _add(weight[..., None] * o, owners, num_seqs) / _guarded(l_all)[..., None],
        _maxima(m, owners, num_seqs),
        l_all,
    )


def not_normalised(o, m, l, request_num_blocks):
    o_all, m_all, l_all = decode.combine_segments(o, m, l, request_num_blocks)
    return o_all * l_all[..., None], m_all, l_all


def nan_without_a_key(o, m, l, request_num_blocks):
    owners, num_seqs = _owners(request_num_blocks), len(request_num_blocks)
    m_all = _maxima(m, owners, num_seqs)
    weight = torch.exp(m - m_all[owners]) * l
    l_all = _add(weight, owners, num_seqs)
    return (
        _add(weight[..., None] * o, owners, num_seqs) / _guarded(l_all)[..., None],
        m_all,
        l_all,
    )


def _finite_on_all(guard):
    """A block without a key gets a factor as if its largest score had been 0."""

    def wrong(o, m, l, request_num_blocks):
        owners, num_seqs = _owners(request_num_blocks), len(request_num_blocks)
        m_all = _maxima(m, owners, num_seqs)
        weight = torch.exp(finite(m) - finite(m_all)[owners]) * l
        l_all = _add(weight, owners, num_seqs)
        return (
            _add(weight[..., None] * o, owners, num_seqs) / guard(l_all)[..., None],
            m_all,
            l_all,
        )

    return wrong


FINITE_ON_ALL = tuple(
    map(
        _finite_on_all,
        (_guarded, lambda l: torch.where(l > 0, l, 1.0), lambda l: l.clamp_min(1e-9)),
    )
)


def divided_by_plain_l(o, m, l, request_num_blocks):
    o_all, m_all, l_all = decode.combine_segments(o, m, l, request_num_blocks)
    plain = _add(l, _owners(request_num_blocks), len(request_num_blocks))
    return o_all * (l_all / _guarded(plain))[..., None], m_all, l_all


def divided_by_plain_l_which_is_returned(o, m, l, request_num_blocks):
    o_all, m_all, _ = divided_by_plain_l(o, m, l, request_num_blocks)
    return o_all, m_all, _add(l, _owners(request_num_blocks), len(request_num_blocks))


def outputs_without_weights(o, m, l, request_num_blocks):
    _, m_all, l_all = decode.combine_segments(o, m, l, request_num_blocks)
    return (
        _add(o, _owners(request_num_blocks), len(request_num_blocks))
        / _guarded(l_all)[..., None],
        m_all,
        l_all,
    )


# (blocks of each request, heads, head size, level of the maxima, their spread, the blocks that
# saw no key, seed)
CASES = [
    ((1,), 1, 2, 0.0, 1.0, (), 0),
    ((2,), 1, 2, 0.0, 1.0, (), 1),
    ((1, 1), 1, 2, 0.0, 1.0, (), 2),
    ((2, 1), 1, 2, 0.0, 1.0, (), 3),
    ((2, 2), 2, 2, -2.0, 0.5, (), 4),
    ((3, 1, 2), 2, 4, 0.0, 2.0, (), 5),
    ((0,), 1, 2, 0.0, 1.0, (), 6),
    ((2, 0), 1, 2, 0.0, 1.0, (), 7),
    ((0, 3, 0, 1), 3, 4, 0.0, 1.0, (), 8),
    ((2, 1), 1, 2, 0.0, 1.0, (1,), 9),
    ((1, 2), 1, 2, 0.0, 1.0, (0,), 10),
    ((2, 3), 2, 4, -500.0, 1.0, (), 11),
    ((2, 3), 2, 4, 500.0, 1.0, (), 12),
    ((3, 2), 2, 4, 0.0, 300.0, (), 13),
    ((4, 0, 9, 1, 5), 7, 16, -1.0, 3.0, (2, 13), 14),
    ((0, 0), 2, 4, 0.0, 1.0, (), 15),
    ((2, 1), 2, 4, -500.0, 1.0, (0,), 16),
]


def hidden(seed):
    chance = random.Random(seed)
    for num_requests in (1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 7, 9):
        counts = chance.choices((0, 1, 2, 3, 7), k=num_requests)
        yield tuple(counts), chance.randint(1, 6), *drawn_parts(chance, sum(counts))


def observe(answer, case):
    counts, num_heads, head_size, level, spread, empty, seed = case
    o, m, l = parts((sum(counts), num_heads), head_size, level, spread, empty, seed)
    return named_where(
        0 in counts,
        lambda: with_zeros_of_l(
            call(
                answer, ("o", "m", "l"), o=o, m=m, l=l, request_num_blocks=torch.tensor(counts)
            )
        ),
    )


def describe(case):
    counts, num_heads, head_size, level, spread, empty, _ = case
    words = (
        f"request_num_blocks = {list(counts)}: o of shape "
        f"{(sum(counts), num_heads, head_size)}, m and l of shape {(sum(counts), num_heads)}"
    )
    if level or spread > 10:
        words += f", m near {level:,.0f}" + (
            f" give or take {spread:,.0f}" if spread > 10 else ""
        )
    return words + names_of_empty(empty, "block")


EXERCISE = Exercise(
    id="4.5",
    title="combine the parts of all requests at once",
    answer_name="combine_segments",
    reference=in_double(decode.combine_segments),
    cases=lambda: CASES,
    size=lambda case: (sum(case[0]) * case[1] * case[2], len(case[0]), len(case[5])),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    points=2,
    mistakes=(
        Mistake(
            "repeat-not-interleave",
            "Your rows belong to request 0, 1, 2, 0, 1, 2. They come request by request: "
            "all of the first one's, then all of the second one's.",
            owners_by_repeat,
        ),
        Mistake(
            "boundary-off-by-one",
            "The first block of each request but the first is given to the request "
            "before it. At which row does a request begin, "
            "and which of two equal numbers does your search find?",
            searches_to_the_left,
        ),
        Mistake(
            "rows-for-owners",
            "Your index holds numbers of rows: where a row's request begins or ends, "
            "as a running sum of request_num_blocks gives it. "
            "Requests are numbered 0, 1, 2 and so on, however many rows each has.",
            ROWS_FOR_OWNERS[0],
            also=ROWS_FOR_OWNERS[1:],
        ),
        Mistake(
            "owner-not-expanded",
            "Only the first head has maxima, or scatter_reduce raises. "
            "It wants an index for each number of m: "
            "a column, or one index for a row, does not stand for all heads.",
            owners_as_a_column,
            also=(owners_as_a_row,),
        ),
        Mistake(
            "maxima-not-spread",
            "There is a maximum for each request, and m has a row for each block. "
            "Which request's maximum belongs to a row? You have a tensor that says so.",
            maxima_not_spread,
        ),
        Mistake(
            "maxima-added",
            "The maxima of a request's blocks are added up. m is the largest of them: "
            "scatter_reduce is told by its last argument what to do with numbers that meet.",
            MAXIMA_ADDED[0],
            also=MAXIMA_ADDED[1:],
        ),
        Mistake(
            "max-starts-at-ten",
            "The maxima start from 10, as in the example above, so that none is below 10. "
            "Where does a maximum over nothing start?",
            maximum_from_ten,
        ),
        Mistake(
            "start-left-in-m",
            "For a request without blocks you return what the tensor of maxima held before. "
            "With include_self=False it stays there. What is the maximum over nothing?",
            start_left_where_there_is_no_block,
        ),
        Mistake(
            "weights-missing-m",
            "The outputs are weighted by l alone. Each l was counted from its own maximum; "
            "they can be compared once they refer to the same one.",
            weighted_by_l_alone,
            also=(weighted_by_l_alone_l_right,),
        ),
        Mistake(
            "o-taken-as-undivided",
            "You add the blocks' outputs as if they were sums that still had to be divided. "
            "Each of them is divided by its own l already.",
            taken_as_undivided,
        ),
        Mistake(
            "inputs-changed",
            "Your function changes o, m or l, which belong to its caller. "
            "Operators like `*=` work in place, and so does a name that ends in `_`.",
            OVERWRITING[0],
            also=OVERWRITING[1:],
        ),
        Mistake(
            "max-starts-at-zero",
            "The maxima start from 0, so that none is below 0. When all scores of a request "
            "are far below 0, its weights underflow. Where does a maximum over nothing start?",
            maximum_from_zero,
        ),
        Mistake(
            "max-starts-at-a-number",
            "The maxima start from a large negative number, and for a request without blocks "
            "that is what you return as m. What is the maximum over nothing?",
            FINITE_STARTS[0],
            also=FINITE_STARTS[1:],
        ),
        Mistake(
            "finite-m-returned",
            "For a request that saw no key you return m = 0. "
            "`finite` is for the subtraction alone; the m that you return stays -inf.",
            finite_maximum_returned,
        ),
        Mistake(
            "l-kept-from-zero",
            "For a request that saw no key, l is 0, and you return a small number "
            "in its place. Guard the division, and return l as it is.",
            l_kept_from_zero,
        ),
        Mistake(
            "last-block-wins",
            "A request's m is that of its last block: "
            "writing several rows to one place keeps one of them. It should be the largest.",
            last_block_decides,
        ),
        Mistake(
            "combine-missing-exp",
            "The outputs are weighted by m - m_all itself. "
            "The block with the largest maximum then weighs 0. "
            "What turns a difference of scores into a ratio of weights?",
            without_exp,
            also=(summed_without_exp, summed_without_exp_positive),
        ),
        Mistake(
            "combine-missing-l",
            "The weight of a block looks at its largest score only. "
            "The blocks' outputs are divided by l already, so l has to come back in.",
            without_l,
            also=(output_without_l,),
        ),
        Mistake(
            "l-not-rescaled",
            "o is right, and l is the plain sum of the blocks' l. Each was counted "
            "from its own maximum, and the result's l is counted from the request's largest.",
            l_added_as_it_is,
        ),
        Mistake(
            "divided-by-plain-l",
            "The blocks are brought to their request's maximum, and what you divide "
            "by is the plain sum of their l. Each l was counted from its own maximum.",
            divided_by_plain_l,
            also=(divided_by_plain_l_which_is_returned,),
        ),
        Mistake(
            "outputs-without-weights",
            "m and l are right, and the blocks' outputs are added up as they are. "
            "Each counts by its weight.",
            outputs_without_weights,
        ),
        Mistake(
            "finite-on-all",
            "A block that saw no key should get the factor exp(-inf), which is 0. "
            "With `finite()` on its own m too, the factor is infinite "
            "where the request's other scores lie far below 0, and infinity times 0 is NaN.",
            FINITE_ON_ALL[0],
            also=FINITE_ON_ALL[1:],
        ),
        Mistake(
            "empty-request-dropped",
            "A request without blocks has no row in your result, and those after it move up. "
            "It has a row: o = 0, m = -inf, l = 0.",
            empty_requests_dropped,
        ),
        Mistake(
            "last-requests-dropped",
            "Your result has as many rows as the last block's request says. "
            "Requests without blocks may come after it, and have a row too.",
            _rows_up_to_the_last_owner,
        ),
        Mistake(
            "empty-request-raises",
            "Your function raises where a request has no block: "
            "there is no maximum over nothing. Its result is o = 0, m = -inf, l = 0.",
            raises_where(
                lambda o, m, l, request_num_blocks: bool((request_num_blocks == 0).any()),
                decode.combine_segments,
            ),
        ),
        Mistake(
            "nan-on-empty-request",
            "A request without blocks has l = 0, and you divide by it: 0 / 0 is NaN. "
            "Its o is 0.",
            zero_divided_by_zero,
            also=(neither_maximum_nor_division_guarded,),
        ),
        Mistake(
            "nan-on-empty-block",
            "A request whose blocks saw no key has m = -inf, and -inf - (-inf) is NaN. "
            "`finite` of lesson 03 helps where a maximum is subtracted.",
            nan_without_a_key,
            also=(nan_in_l_alone,),
        ),
        Mistake(
            "one-softmax-for-all",
            "The weights add up to 1 over all requests together. "
            "Each request has a softmax of its own.",
            one_softmax_for_all,
        ),
        Mistake(
            "one-max-for-all",
            "You take one maximum for all requests. Where another request's scores "
            "are much larger, all weights of this one underflow.",
            one_maximum_for_all,
            also=(
                one_maximum_for_all_unguarded,
                one_maximum_subtracted,
                one_maximum_subtracted_unguarded,
                one_maximum_over_all_numbers,
                one_maximum_also_of_nothing,
                one_maximum_where_there_is_a_key,
                *RUNNING_SUMS_SUBTRACTED,
            ),
        ),
        Mistake(
            "max-not-subtracted",
            "The weights are exp(m) * l, without subtracting the request's largest m. "
            "l is then not what was asked for, and large maxima overflow.",
            without_the_maximum,
        ),
        Mistake(
            "sum-not-normalised",
            "o is the weighted sum of the blocks' outputs, "
            "and it is not divided by the sum of the weights.",
            not_normalised,
        ),
    ),
    hints=(
        (
            "The steps are those of `combine_result`. What changes is the maximum "
            "and the two sums: each runs over the rows of one request."
        ),
        (
            "First make a tensor that says for each row which request it belongs to. "
            "Exercise 4.1 had something like it."
        ),
        (
            "`index_add` adds rows into the row that an index names, and `scatter_reduce` "
            'with "amax" takes maxima. What does each of them start from?'
        ),
        (
            "To subtract a request's maximum from each of its rows, "
            "index the maxima with the same tensor."
        ),
    ),
)
