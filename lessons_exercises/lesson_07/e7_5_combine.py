"""Exercise 7.5: the kernel that puts the parts of split contexts together."""

import math
import random
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from lessons_exercises.lesson_06.native import DTYPES, Found, result_of, same, show
from lessons_exercises.words import counted, listed
from lessons_lib.checks import Exercise, Mistake
from lessons_lib.cuda import build_cuda
from lessons_lib.inline import read_kernel
from paged_attention.bug_hunt import STEP_LIMIT
from paged_attention.ladder import Shape, shape_text

# the head size that goes with each type of numbers
SHAPES = {torch.half: 128, torch.bfloat16: 64}


@dataclass(frozen=True)
class Parts:
    o: Tensor  # (num_splits, num_seqs, num_q_heads, head_size)
    m: Tensor  # (num_splits, num_seqs, num_q_heads)
    l: Tensor
    dtype: torch.dtype = torch.half  # of the output


def best_weight(m, l, m_all):
    """exp(m - m_all) * l, and 0 for a part without a token."""
    return torch.where(l == 0, 0.0, torch.exp(m - m_all) * l)


def largest(m):
    return m.amax(0)


def ratio(total, weights, parts):
    """The weighted sum over the sum of the weights; zeros where nothing has a weight."""
    return torch.where(weights == 0, 0.0, total / weights)


def over_right_sum(total, weights, parts):
    return ratio(
        total, best_weight(parts.m, parts.l, largest(parts.m)).sum(0)[..., None], parts
    )


def over_right_sum_unguarded(total, weights, parts):
    return total / best_weight(parts.m, parts.l, largest(parts.m)).sum(0)[..., None]


def unguarded(total, weights, parts):
    return total / weights


def combined(
    weight=best_weight,
    m_all=largest,
    finish=ratio,
    chosen=lambda parts: parts,
    dtype=torch.float32,
):
    """What the kernel gives, with some of its parts replaced.

    finish: of the weighted sum, the sum of weights, the parts.
    """

    def wrong(parts):
        parts = chosen(
            replace(parts, o=parts.o.to(dtype), m=parts.m.to(dtype), l=parts.l.to(dtype))
        )
        weights = weight(parts.m, parts.l, m_all(parts.m))[..., None]
        return finish((weights * parts.o).sum(0), weights.sum(0), parts).to(parts.dtype)

    return wrong


def splits(which):
    return lambda parts: replace(parts, o=parts.o[which], m=parts.m[which], l=parts.l[which])


def splits_last(parts):
    """As if the splits of a row lay side by side."""

    def turned(tensor):
        num_splits, num_seqs, num_q_heads = tensor.shape[:3]
        rows = tensor.reshape(num_seqs, num_q_heads, num_splits, *tensor.shape[3:])
        return rows.movedim(2, 0)

    return replace(parts, o=turned(parts.o), m=turned(parts.m), l=turned(parts.l))


def heads_first(parts):
    """As if all sequences of a head came before those of the next, in the parts alone."""

    def turned(tensor):
        return (
            tensor.flatten(1, 2)
            .unflatten(1, (tensor.shape[2], tensor.shape[1]))
            .transpose(1, 2)
        )

    return replace(parts, o=turned(parts.o), m=turned(parts.m), l=turned(parts.l))


def same_m_and_l(parts):
    """m and l of the first row of each split, for every row of the output."""
    first = torch.zeros_like(parts.m[0], dtype=torch.long).flatten()
    shape = parts.m.shape
    return replace(
        parts,
        m=parts.m.flatten(1)[:, first].reshape(shape),
        l=parts.l.flatten(1)[:, first].reshape(shape),
    )


def m_and_l_by_split(parts):
    """part_m[split]: the first numbers of the tensor, one for each split."""

    def first(tensor):
        return tensor.flatten()[: len(tensor)][:, None, None].expand_as(tensor)

    return replace(parts, m=first(parts.m), l=first(parts.l))


def without_stride(parts):
    """part_o[part + i], as if the rows of o were one number apart."""
    rows = parts.m.numel()
    places = torch.arange(rows)[:, None] + torch.arange(parts.o.shape[-1])
    return replace(parts, o=parts.o.flatten()[places].reshape(parts.o.shape))


def without_last(parts):
    """The last split is treated as if it had no token, but its m counts."""
    there = (torch.arange(len(parts.m)) < len(parts.m) - 1)[:, None, None]
    return replace(parts, o=parts.o * there[..., None], l=parts.l * there)


def without_thread(parts):
    """Each thread reads the first number of o."""
    return replace(parts, o=parts.o[..., :1].expand_as(parts.o))


def rows_counted_as(num_rows):
    """Part `split` of a row is taken to be another number.

    That is split * num_rows(num_seqs, num_q_heads) + row.
    """

    def chosen(parts):
        num_splits, *rows = parts.m.shape
        first = torch.arange(num_splits)[:, None] * num_rows(*rows)
        places = first + torch.arange(math.prod(rows))

        def at(tensor):
            return tensor.flatten(0, 2)[places].reshape(tensor.shape)

        return replace(parts, o=at(parts.o), m=at(parts.m), l=at(parts.l))

    return chosen


def until_empty(parts):
    """As if nothing came after the first part without a token."""
    there = (parts.l > 0).cumprod(0)
    return replace(parts, o=parts.o * there[..., None], l=parts.l * there)


def divided_at_each_step(parts, rescaled=False):
    """The sum is divided by the sum of the weights so far, and the next part added to that.

    rescaled: in one pass.
    """
    m_all = torch.full_like(parts.m[0], -math.inf) if rescaled else largest(parts.m)
    total, weights = torch.zeros_like(parts.o[0]), torch.zeros_like(m_all)
    for o, m, l in zip(parts.o, parts.m, parts.l, strict=True):
        before, m_all = m_all, torch.maximum(m_all, m)
        old = (
            torch.where(m_all == -math.inf, 1.0, torch.exp(before - m_all))
            if rescaled
            else torch.ones_like(m_all)
        )
        weight = best_weight(m, l, m_all)
        weights = old * weights + weight
        total = old[..., None] * total + weight[..., None] * o
        total = torch.where(
            ((l == 0) & rescaled | (weights == 0))[..., None],
            total,
            total / weights[..., None],
        )
    return total.to(parts.dtype)


def rounded_each_time(parts, weights_too=False):
    """The weighted sum in the format of the output.

    weights_too: the sum of the weights as well.
    """
    m_all = largest(parts.m)
    total, weights = torch.zeros_like(parts.o[0]), torch.zeros_like(m_all)
    for o, m, l in zip(parts.o, parts.m, parts.l, strict=True):
        weight = best_weight(m, l, m_all)
        total = (total + weight[..., None] * o).to(parts.dtype).float()
        weights = (
            (weights + weight).to(parts.dtype).float() if weights_too else weights + weight
        )
    return ratio(total, weights[..., None], parts).to(parts.dtype)


def two_by_two(parts, guarded=True):
    """Each part is combined with the sum so far by their maxima alone.

    guarded: parts without a token are skipped.
    """
    o, m_all = parts.o[0], parts.m[0]
    for number in range(1, len(parts.m)):
        m = torch.maximum(m_all, parts.m[number])
        mine = torch.exp(m_all - m)[..., None]
        its = torch.exp(parts.m[number] - m)[..., None]
        both = (mine * o + its * parts.o[number]) / (mine + its)
        o, m_all = torch.where((parts.l[number] == 0)[..., None] & guarded, o, both), m
    return o.to(parts.dtype)


def without_brackets(parts):
    """part_o[split * rows + row * head_size + i]."""
    num_splits, *rows, head_size = parts.o.shape
    splits_at = torch.arange(num_splits)[:, None, None] * math.prod(rows)
    places = (
        splits_at
        + torch.arange(math.prod(rows))[:, None] * head_size
        + torch.arange(head_size)
    )
    return replace(parts, o=parts.o.flatten()[places].reshape(parts.o.shape))


def at_other_rows(parts):
    """All sequences of a head come before those of the next, in the output alone."""
    out = combined()(parts)
    return out.transpose(0, 1).reshape(out.shape)


def seqs_for_heads(parts):
    """The row is blockIdx.x * gridDim.x + blockIdx.y."""
    num_seqs, num_q_heads = parts.m.shape[1:]
    if num_seqs > 1 and num_q_heads > num_seqs:
        raise Found(SAME_ROW, "out")
    if num_seqs > num_q_heads:
        raise Found("outside")
    return combined()(parts)


def zero_beside_no_token(m, l, m_all):
    """Where m_all is -inf, nothing is added."""
    return torch.where(m_all == -math.inf, 0.0, best_weight(m, l, m_all))


def nan_from_first(value):
    """`value` where the first split has no token."""

    def wrong(parts):
        empty = parts.l[0, ..., None] == 0
        return torch.where(empty, value, combined()(parts).float()).to(parts.dtype)

    return wrong


def first_m(m, l, m_all):
    """The m of the first split for each of them."""
    return torch.where(l == 0, 0.0, torch.exp(m[:1] - m_all) * l)


def no_product(together, guarded):
    """together(m - m_all, l) as the weight.

    guarded: for parts with a token; else for rows with one.
    """

    def weight(m, l, m_all):
        return torch.where(
            l == 0 if guarded else m_all == -math.inf, 0.0, together(m - m_all, l)
        )

    return combined(weight)


def largest_alone(m, l, m_all):
    return torch.where(m < m_all, 0.0, best_weight(m, l, m_all))


def first_of_the_largest(parts):
    """As if the other parts had no token."""
    is_largest = parts.m == largest(parts.m)
    there = is_largest & (is_largest.cumsum(0) == 1)
    return replace(parts, o=parts.o * there[..., None], l=parts.l * there)


def always_so_many(number):
    """The loops go over `number` splits, however many there are."""

    def wrong(parts):
        if len(parts.m) < number:
            raise Found("outside")
        return combined(chosen=splits(slice(0, number)))(parts)

    return wrong


def room_for(number):
    """A shared array has a place for each split, up to this many."""
    return found("shared-out-of-bounds", "", lambda parts: len(parts.m) > number)


def l_twice(m, l, m_all):
    return best_weight(m, l, m_all) * l


def head_size_of(dtype, name, shows):
    """The head size of `dtype` where head_size should be.

    For the other type it reads or writes outside the tensor `name`.
    """

    def wrong(parts):
        if parts.dtype != dtype and shows(parts):
            raise Found("outside", name)
        return combined()(parts)

    return wrong


def running(parts, l_rescaled=False):
    """One pass with a maximum that grows, and nothing is rescaled.

    Nothing that was summed before is rescaled, or only l is.
    """
    m_all = torch.full_like(parts.m[0], -math.inf)
    total = torch.zeros_like(parts.o[0])
    weights = torch.zeros_like(m_all)
    for o, m, l in zip(parts.o, parts.m, parts.l, strict=True):
        before, m_all = m_all, torch.maximum(m_all, m)
        weight = best_weight(m, l, m_all)
        if l_rescaled:
            weights = torch.where(
                before == -math.inf, 0.0, weights * torch.exp(before - m_all)
            )
        total, weights = total + weight[..., None] * o, weights + weight
    return ratio(total, weights[..., None], parts).to(parts.dtype)


def found(kind, name, shows):
    def wrong(parts):
        if shows(parts):
            raise Found(kind, name)
        return combined()(parts)

    return wrong


def no_token_in_a_row(parts):
    return 0 in parts.l.sum(0)


def prepare(answer):
    given = {name: read_kernel(name) for name in ("numbers.cuh", "paged_params.cuh")}
    check = (Path(__file__).parent / "combine_check.cu").read_text(encoding="utf-8")

    def built(dtype):
        texts = given | {
            "ladder/shape.cuh": shape_text(Shape(dtype, SHAPES[dtype], 4, 16)),
            "your code": answer,
            "the check": check,
        }
        library = build_cuda(
            *texts.values(), names=tuple(texts), target="checked", name="check"
        )
        library.options(step_limit=STEP_LIMIT)
        return library

    libraries = {dtype: built(dtype) for dtype in SHAPES}

    def native(parts):
        num_splits, num_seqs, num_q_heads, head_size = parts.o.shape
        out = torch.empty(num_seqs, num_q_heads, head_size, dtype=parts.dtype)
        pointers = dict.fromkeys(
            ("q", "k_cache", "v_cache", "block_table", "context_lens", "scores")
        )
        libraries[parts.dtype].combine(
            out=out,
            **pointers,
            q_stride=0,
            num_seqs=num_seqs,
            num_q_heads=num_q_heads,
            num_kv_heads=1,
            head_size=head_size,
            block_size=1,
            max_blocks_per_seq=0,
            max_context_len=0,
            dtype=DTYPES.index(parts.dtype),
            scale=1.0,
            part_o=parts.o,
            part_m=parts.m,
            part_l=parts.l,
            num_splits=num_splits,
        )
        return out

    return native


@dataclass(frozen=True)
class Case:
    """level: what the maxima are near.

    empty: the splits that hold no token, of every row; or (split, seq, head).
    """

    num_splits: int
    num_seqs: int
    num_q_heads: int
    level: float = 0.0
    spread: float = 1.0
    empty: tuple = ()
    seed: int = 0
    dtype: torch.dtype = torch.half


@dataclass(frozen=True)
class OneLongPart(Case):
    """The first part weighs 1,100 times as much as each of the others.

    These are many. o is near 1 in the first part, and else near 2.
    """


def cases():
    yield from (
        Case(1, 1, 1),
        Case(2, 1, 1, spread=0.0),
        Case(2, 1, 1, seed=2),
        Case(3, 1, 1, level=-3.0, seed=3),
        Case(3, 1, 2, seed=4),
        Case(2, 2, 3, seed=5),
        Case(2, 1, 1, empty=(1,), seed=6),
        Case(3, 1, 2, empty=(1,), seed=17),
        Case(3, 1, 2, empty=(0,), seed=7),
        Case(2, 1, 1, empty=(0, 1), seed=8),
        Case(2, 1, 1, level=500.0, seed=9),
        Case(2, 1, 2, level=-150.0, seed=10),
        Case(2, 1, 2, level=-500.0, seed=14),
        Case(3, 2, 2, spread=60.0, empty=((2, 1, 0), (0, 0, 1)), seed=11),
        Case(9, 3, 4, spread=3.0, seed=12),
        Case(4, 2, 3, empty=((0, 1, 2), (1, 1, 2), (2, 1, 2), (3, 1, 2)), seed=13),
        Case(1, 2, 1, seed=15, dtype=torch.bfloat16),
        Case(3, 2, 3, seed=16, dtype=torch.bfloat16),
        OneLongPart(61, 1, 1, level=1.0, spread=0.0, seed=18, dtype=torch.bfloat16),
    )


def hidden(seed):
    """Parts near 0 and far from it. Then some parts of a row have no token.

    Then whole splits, and all of one row.
    """
    chance = random.Random(seed)
    for number in range(14):
        shape = chance.randint(2, 7), chance.randint(1, 3), chance.randint(1, 4)
        level, spread = chance.choice(
            ((0.0, 1.0), (-3.0, 2.0), (500.0, 1.0), (-150.0, 1.0), (-400.0, 1.0), (0.0, 60.0))
        )
        empty = tuple(
            {
                tuple(map(chance.randrange, shape)): None
                for _ in range(chance.choice((0, 0, 1, 2)))
            }
        )
        if number == 12:
            empty = tuple(sorted(chance.sample(range(shape[0]), shape[0] - 1)))
        elif number == 13:
            empty = tuple((split, shape[1] - 1, shape[2] - 1) for split in range(shape[0]))
        yield Case(
            *shape,
            level,
            spread,
            empty,
            chance.randrange(2**31),
            torch.bfloat16 if number % 4 == 3 else torch.half,
        )
    yield OneLongPart(
        chance.randint(60, 64),
        1,
        1,
        spread=0.0,
        seed=chance.randrange(2**31),
        dtype=torch.bfloat16,
    )


def parts_of(case: Case) -> Parts:
    generator = torch.Generator().manual_seed(case.seed)
    shape = case.num_splits, case.num_seqs, case.num_q_heads
    o = torch.randn(*shape, SHAPES[case.dtype], generator=generator)
    m = case.level + case.spread * torch.randn(shape, generator=generator)
    l = 1 + 30 * torch.rand(shape, generator=generator)
    if isinstance(case, OneLongPart):
        o = torch.cat([1 + 0.1 * torch.rand(o[:1].shape, generator=generator), 2 + o[1:] / 32])
        m[0] += 7.0
        l[:] = 1.0
    for part in case.empty:
        o[part], m[part], l[part] = 0.0, -math.inf, 0.0
    return Parts(o, m, l, case.dtype)


def observe(subject, case):
    return result_of(lambda: subject(parts_of(case)), names=("out", "part_o"))


def describe(case):
    words = (
        f"{counted(case.num_splits, 'split')} of {counted(case.num_seqs, 'sequence')} "
        f"with {counted(case.num_q_heads, 'query head')}, head size {SHAPES[case.dtype]}, "
        f"Number = {'__half' if case.dtype == torch.half else '__nv_bfloat16'}"
    )
    if case.level or case.spread > 10:
        words += f", m near {case.level:g}" + (
            f" give or take {case.spread:g}" if case.spread > 10 else ""
        )
    if isinstance(case, OneLongPart):
        words += "; the first one has nearly all of the weight"
    if case.empty:
        whole = all(isinstance(part, int) for part in case.empty)
        where = (
            f"split {listed(case.empty)}"
            if whole
            else f"(split, sequence, head) {listed(case.empty)}"
        )
        words += f"; {where} without a token (o = 0, m = -inf, l = 0)"
    return f"{words}; the output for each (sequence, head, element)"


WEIGHT = "part_l[part] == 0.0f ? 0.0f : __expf(part_m[part] - m_all) * part_l[part]"
ROW = "row = blockIdx.x * gridDim.y + blockIdx.y"
LAST = "l_all == 0.0f ? 0.0f : o_all / l_all"
FIND_MAX = (
    "  for (int split = 0; split < num_splits; ++split) "
    "m_all = fmaxf(m_all, part_m[split * num_rows + row]);\n"
)
SPLITS = "  for (int split = 0; split < num_splits; ++split) {\n"
SAME_ROW = "race-between-blocks"
STORE = "part_o[int64_t(part) * head_size + threadIdx.x]"
ADDED = f"    o_all += weight * {STORE};\n"

EXERCISE = Exercise(
    id="7.5",
    title="combine the parts in a kernel",
    answer_name="combine_parts",
    language="cuda",
    reference=combined(dtype=torch.float64),
    prepare=prepare,
    cases=cases,
    size=lambda case: (case.num_splits * case.num_seqs * case.num_q_heads, len(case.empty)),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=same,
    show=show,
    points=2,
    mistakes=(
        Mistake(
            "combine-missing-exp",
            "The parts are weighted by m - m_all itself. "
            "The part with the largest maximum then weighs 0, and the others less than 0. "
            "What turns a difference of scores into a ratio of weights?",
            combined(lambda m, l, m_all: torch.where(l == 0, 0.0, (m - m_all) * l)),
            (("__expf(part_m[part] - m_all) * part_l", "(part_m[part] - m_all) * part_l"),),
            also=(
                combined(lambda m, l, m_all: (m - m_all) * l, finish=unguarded),
                combined(lambda m, l, m_all: (m - m_all) * l),
                combined(
                    lambda m, l, m_all: torch.where(l == 0, 0.0, (m - m_all) * l),
                    finish=unguarded,
                ),
                combined(lambda m, l, m_all: (m - m_all) * l, finish=over_right_sum),
                combined(
                    lambda m, l, m_all: torch.where(l == 0, 0.0, (m - m_all) * l),
                    finish=over_right_sum,
                ),
            ),
        ),
        Mistake(
            "combine-missing-l",
            "The weight of a part takes only its largest score into account. "
            "The parts are already divided by l, so l has to come back in. "
            "A part with many tokens weighs more than one with few.",
            combined(lambda m, l, m_all: torch.where(l == 0, 0.0, torch.exp(m - m_all))),
            (("__expf(part_m[part] - m_all) * part_l[part]", "__expf(part_m[part] - m_all)"),),
            also=(
                combined(lambda m, l, m_all: torch.exp(m - m_all)),
                combined(lambda m, l, m_all: torch.exp(m - m_all), finish=unguarded),
                two_by_two,
                lambda parts: two_by_two(parts, guarded=False),
            ),
        ),
        Mistake(
            "o-taken-as-undivided",
            "You add the parts as if they were sums that still had to be divided. "
            "But each of them is already divided by its own l.",
            combined(
                lambda m, l, m_all: torch.where(l == 0, 0.0, torch.exp(m - m_all)),
                finish=over_right_sum,
            ),
            (
                (
                    "o_all += weight * part_o",
                    "o_all += (part_l[part] == 0.0f ? 0.0f : weight / part_l[part]) * part_o",
                ),
            ),
            also=(
                combined(
                    lambda m, l, m_all: best_weight(m, l, m_all) / l, finish=over_right_sum
                ),
                combined(
                    lambda m, l, m_all: torch.exp(m - m_all) * l / l,
                    finish=over_right_sum_unguarded,
                ),
            ),
        ),
        Mistake(
            "weights-missing-m",
            "The parts are weighted by l alone. But each l was counted from its own maximum. "
            "They can be compared once they refer to the same maximum.",
            combined(lambda m, l, m_all: l),
            ((WEIGHT, "part_l[part]"),),
            also=(combined(lambda m, l, m_all: l, finish=unguarded),),
        ),
        Mistake(
            "plain-average",
            "The output is the plain average of the parts, "
            "as if all of them had the same share. A part with higher scores, "
            "or with more tokens, has a larger share.",
            combined(lambda m, l, m_all: torch.ones_like(m)),
            ((WEIGHT, "1.0f"),),
        ),
        Mistake(
            "divided-by-the-number-of-splits",
            "The weighted sum is divided by the number of splits. "
            "What makes the shares of the parts add up to 1?",
            combined(finish=lambda total, _, parts: total / len(parts.m)),
            ((LAST, "o_all / num_splits"),),
        ),
        Mistake(
            "sum-not-normalised",
            "The output is the weighted sum of the parts, but it is not divided by the sum "
            "of the weights.",
            combined(finish=lambda total, _, parts: total),
            ((LAST, "o_all"),),
        ),
        Mistake(
            "max-not-subtracted",
            "The weights are exp(m) * l: the largest m is not subtracted. "
            "Large maxima overflow, and for small ones all weights are 0.",
            combined(lambda m, l, m_all: torch.where(l == 0, 0.0, torch.exp(m) * l)),
            (("__expf(part_m[part] - m_all)", "__expf(part_m[part])"),),
            also=(combined(lambda m, l, m_all: torch.exp(m) * l, finish=unguarded),),
        ),
        Mistake(
            "max-starts-at-zero",
            "The maximum never falls below 0. When all scores are far below 0, "
            "every weight underflows to 0, and so does the output.",
            combined(m_all=lambda m: largest(m).clamp(min=0.0)),
            (("m_all = -INFINITY", "m_all = 0.0f"),),
            also=(combined(m_all=lambda m: largest(m).clamp(min=0.0), finish=unguarded),),
        ),
        Mistake(
            "max-starts-at-a-number",
            "The maximum starts from a small number, but scores may lie below it. "
            "What is the maximum over nothing?",
            combined(m_all=lambda m: largest(m).clamp(min=-100.0)),
            (("m_all = -INFINITY", "m_all = -100.0f"),),
        ),
        Mistake(
            "nan-on-empty-row",
            "Where no part has a token, the output is NaN. There the largest m is -inf, "
            "and -inf - (-inf) is NaN. Or the weights add up to 0, and 0 / 0 is NaN. "
            "The output of such a row is zeros.",
            combined(lambda m, l, m_all: torch.exp(m - m_all) * l),
            ((WEIGHT, "__expf(part_m[part] - m_all) * part_l[part]"),),
        ),
        Mistake(
            "weights-upside-down",
            "The sign of the exponent is the wrong way round: "
            "the part with the lowest scores weighs most.",
            combined(lambda m, l, m_all: torch.where(l == 0, 0.0, torch.exp(m_all - m) * l)),
            (("part_m[part] - m_all", "m_all - part_m[part]"),),
            also=(
                combined(lambda m, l, m_all: torch.exp(m_all - m) * l),
                combined(lambda m, l, m_all: torch.exp(m_all - m) * l, finish=unguarded),
            ),
        ),
        Mistake(
            "running-sum-not-rescaled",
            "The maximum grows while you add up, but what was summed before is still counted "
            "from the old one. Find the largest m first, or rescale the sums at each step.",
            running,
            also=(lambda parts: running(parts, l_rescaled=True),),
            edits=(
                (FIND_MAX, ""),
                (
                    "    float weight =",
                    "    m_all = fmaxf(m_all, part_m[part]);\n    float weight =",
                ),
            ),
        ),
        Mistake(
            "divided-at-each-step",
            "The sum is divided by the weights after each part, "
            "and the next part is added to a sum that is already divided. Divide once, "
            "when all parts are in it.",
            divided_at_each_step,
            ((LAST, "o_all"), (ADDED, ADDED + "    if (l_all > 0.0f) o_all /= l_all;\n")),
            also=(lambda parts: divided_at_each_step(parts, rescaled=True),),
        ),
        Mistake(
            "sum-of-l-not-rescaled",
            "You divide by the plain sum of the parts' l. "
            "But each l was counted from its own maximum, "
            "and the weights are counted from the largest.",
            combined(
                finish=lambda total, _, parts: ratio(total, parts.l.sum(0)[..., None], parts)
            ),
            (("    l_all += weight;\n", "l_all += part_l[part];"),),
        ),
        Mistake(
            "first-split-alone",
            "Only the first split is in the output. But each row has num_splits parts.",
            combined(chosen=splits(slice(0, 1))),
            (
                (
                    "m_all = fmaxf(m_all, part_m[split * num_rows + row])",
                    "m_all = part_m[row]",
                ),
                (SPLITS, "  for (int split = 0; split < 1; ++split) {\n"),
            ),
            also=(
                combined(
                    m_all=lambda m: largest(m),
                    chosen=lambda parts: parts,
                    weight=lambda m, l, m_all: torch.cat(
                        [best_weight(m, l, m_all)[:1], torch.zeros_like(m[1:])]
                    ),
                ),
            ),
        ),
        Mistake(
            "first-split-left-out",
            "The first split is not in the output. Splits are counted from 0.",
            combined(
                chosen=lambda parts: (
                    splits(slice(1, None))(parts)
                    if len(parts.m) > 1
                    else replace(parts, o=parts.o * 0, l=parts.l * 0)
                )
            ),
            ((SPLITS, SPLITS.replace("split = 0", "split = 1")),),
        ),
        Mistake(
            "wrong-part",
            "The numbers come from other parts than this row's, or from outside the tensor. "
            "All rows of the first split lie side by side, and then all rows of the second. "
            "How far is it from a row's part to its next one?",
            combined(chosen=splits_last),
            (
                ("part_m[split * num_rows + row]", "part_m[row * num_splits + split]"),
                ("part = split * num_rows + row", "part = row * num_splits + split"),
            ),
            also=(
                combined(chosen=heads_first),
                combined(chosen=same_m_and_l),
                combined(chosen=m_and_l_by_split),
                combined(chosen=rows_counted_as(lambda num_seqs, num_q_heads: num_seqs)),
                combined(chosen=rows_counted_as(lambda num_seqs, num_q_heads: num_q_heads)),
                found("outside", "", lambda parts: len(parts.m) > 1),
            ),
        ),
        Mistake(
            "wrong-place-in-a-part",
            "m and l are the right ones, but o is not. A part has one m and one l, "
            "but head_size numbers of o.",
            combined(chosen=without_stride),
            ((STORE, "part_o[part + threadIdx.x]"),),
            also=(combined(chosen=without_brackets),),
        ),
        Mistake(
            "not-there-for-the-others",
            "A thread reads from shared memory what another thread may not have written yet. "
            "What makes the threads of a block wait for each other?",
            found("order", "", lambda parts: True),
            (
                (
                    "  out[int64_t(row)",
                    (
                        "  __shared__ float l_shared;\n"
                        "  if (threadIdx.x == 0) l_shared = l_all;\n"
                        "  l_all = l_shared;\n"
                        "  out[int64_t(row)"
                    ),
                ),
            ),
        ),
        Mistake(
            "wrong-row-of-the-output",
            "Each result is right, but it is in another row of the output. "
            "The query heads of a sequence lie side by side there, "
            "and then come those of the next sequence.",
            at_other_rows,
            (
                (
                    "  out[int64_t(row) * head_size",
                    "  out[int64_t(blockIdx.y * gridDim.x + blockIdx.x) * head_size",
                ),
            ),
        ),
        Mistake(
            "empty-row-not-written",
            "Where no part has a token, nothing is written. "
            "The output is not cleared before the kernel runs, so such a row keeps what was "
            "in memory. What should be there?",
            found("output-unwritten", "out", no_token_in_a_row),
            (
                (
                    "  for (int split = 0; split < num_splits; ++split) {\n",
                    (
                        "  if (m_all == -INFINITY) return;\n"
                        "  for (int split = 0; split < num_splits; ++split) {\n"
                    ),
                ),
            ),
        ),
        Mistake(
            "stops-at-an-empty-split",
            "The splits after one without a token are not in the output, "
            "or nothing is written. A part without a token has no weight, "
            "but the next one may have some.",
            combined(chosen=until_empty),
            (
                (
                    "    float weight =",
                    "    if (part_l[part] == 0.0f) break;\n    float weight =",
                ),
            ),
            also=(found("output-unwritten", "out", lambda parts: bool((parts.l == 0).any())),),
        ),
        Mistake(
            "nan-when-the-first-split-is-empty",
            "Where the first split has no token, the output is NaN, or zeros. "
            "The largest m is still -inf after this split, and -inf - (-inf) is NaN.",
            nan_from_first(math.nan),
            (
                (FIND_MAX, ""),
                (
                    (
                        "    float weight = part_l[part] == 0.0f ? 0.0f : "
                        "__expf(part_m[part] - m_all)"
                    ),
                    (
                        "    float before = m_all;\n"
                        "    m_all = fmaxf(m_all, part_m[part]);\n"
                        "    o_all *= __expf(before - m_all), l_all *= "
                        "__expf(before - m_all);\n"
                        "    float weight = __expf(part_m[part] - m_all)"
                    ),
                ),
            ),
            also=(nan_from_first(0.0),),
        ),
        Mistake(
            "last-split-left-out",
            "The last split is not in the output. "
            "The splits have the numbers 0 to num_splits - 1.",
            combined(m_all=largest, chosen=without_last),
            ((SPLITS, SPLITS.replace("num_splits", "num_splits - 1")),),
            also=(
                combined(
                    chosen=lambda parts: (
                        splits(slice(None, -1))(parts)
                        if len(parts.m) > 1
                        else without_last(parts)
                    )
                ),
            ),
        ),
        Mistake(
            "one-split-too-many",
            "A part is read that does not exist. Splits are counted from 0. "
            "Which number does the last one have?",
            found("outside", "", lambda parts: True),
            ((FIND_MAX, FIND_MAX.replace("<", "<=")),),
            also=(found("outside", "part_o", lambda parts: True),),
        ),
        Mistake(
            "wrong-row",
            "Blocks write to the same row of the output. "
            "A row is one query head of one sequence. "
            "What tells the blocks of the heads apart?",
            found(SAME_ROW, "out", lambda parts: parts.m.shape[2] > 1),
            ((ROW, "row = blockIdx.x"),),
            also=(found(SAME_ROW, "out", lambda parts: parts.m.shape[1] > 1), seqs_for_heads),
        ),
        Mistake(
            "thread-left-out",
            "All threads of a block work on the same number. "
            "Each thread has its own number of the row, and of each part.",
            combined(chosen=without_thread),
            ((STORE, "part_o[int64_t(part) * head_size]"),),
            also=(found("several-writers", "out", lambda parts: True),),
        ),
        Mistake(
            "first-maximum-alone",
            "The m of the first split is used where another is needed: "
            "the largest m of all splits, or each split's own. The first one may be small, "
            "or -inf.",
            combined(m_all=lambda m: m[0]),
            (("m_all = fmaxf(m_all, part_m[split * num_rows + row])", "m_all = part_m[row]"),),
            also=(
                combined(first_m),
                combined(m_all=lambda m: m[0], finish=unguarded),
                combined(zero_beside_no_token, m_all=lambda m: m[0]),
            ),
        ),
        Mistake(
            "l-multiplied-in-twice",
            "Each l is multiplied in twice: it is already in the weight.",
            combined(l_twice, finish=over_right_sum),
            ((STORE, f"part_l[part] * {STORE}"),),
            also=(combined(l_twice),),
        ),
        Mistake(
            "parts-not-weighted",
            "The parts are added up without their weights.",
            combined(lambda m, l, m_all: torch.ones_like(m), finish=over_right_sum),
            (("o_all += weight * ", "o_all += "),),
        ),
        Mistake(
            "head-size-typed",
            "A fixed number is used where head_size should be. "
            "The kernel is compiled for models with other head sizes, too.",
            head_size_of(torch.half, "out", lambda parts: parts.m[0].numel() > 1),
            (("  out[int64_t(row) * head_size", "  out[int64_t(row) * 128"),),
            also=(
                head_size_of(torch.half, "part_o", lambda parts: parts.m.numel() > 1),
                head_size_of(torch.half, "out", lambda parts: True),
            ),
        ),
        Mistake(
            "sum-in-16-bits",
            "The sum is rounded to 16 bits after each part. "
            "Parts with a small weight are lost in that way, "
            "and many such parts together are not small. Add up in a float, "
            "and convert at the end.",
            rounded_each_time,
            ((ADDED, ADDED + "    o_all = to_float(from_float<Number>(o_all));\n"),),
            also=(lambda parts: rounded_each_time(parts, weights_too=True),),
        ),
        Mistake(
            "output-written-in-part",
            "Some numbers of the output are never written. "
            "A row's output has head_size numbers, and there is a thread for each.",
            found("output-unwritten", "out", lambda parts: True),
            (("  out[int64_t(row)", "  if (threadIdx.x == 0) out[int64_t(row)"),),
            also=(found("output-unwritten", "out", lambda parts: parts.m[0].numel() > 1),),
        ),
        Mistake(
            "splits-counted-by-hand",
            "A fixed number is used where num_splits should be. With fewer splits, "
            "parts are read that do not exist. With more, some are left out.",
            always_so_many(4),
            (
                (FIND_MAX, FIND_MAX.replace("num_splits", "4")),
                (SPLITS, SPLITS.replace("num_splits", "4")),
            ),
            also=tuple(map(always_so_many, (2, 3, 8, 16, 32))),
        ),
        Mistake(
            "weight-not-a-product",
            "The weight combines a part's m and l, but not as a product. "
            "l was counted from the part's own maximum. "
            "Which factor turns it into what it is when counted from the largest one?",
            no_product(lambda below, l: l + below.exp(), True),
            ((WEIGHT, WEIGHT.replace(" * ", " + ")),),
            also=(
                no_product(lambda below, l: (l + below).exp(), True),
                *(
                    no_product(together, guarded)
                    for guarded in (True, False)
                    for together in (
                        lambda below, l: l.log() + below.exp(),
                        lambda below, l: (l * below).exp(),
                    )
                ),
            ),
        ),
        Mistake(
            "shared-array-too-short",
            "An array in shared memory has fewer places than there are splits. "
            "num_splits may be large, and it is not yet known when the kernel is compiled.",
            room_for(8),
            (
                (
                    "    l_all += weight;\n",
                    (
                        "    __shared__ float weights[8];\n"
                        "    if (threadIdx.x == 0) weights[split] = weight;\n"
                        "    l_all += weight;\n"
                    ),
                ),
            ),
            also=tuple(map(room_for, (1, 2, 3, 32))),
        ),
        Mistake(
            "divided-twice",
            "The weighted sum is divided by the sum of the weights twice. "
            "Look for all places where something is divided.",
            combined(
                finish=lambda total, weights, parts: ratio(
                    ratio(total, weights, parts), weights, parts
                )
            ),
            ((LAST, f"{LAST} / l_all"),),
            also=(combined(finish=lambda total, weights, parts: total / weights / weights),),
        ),
        Mistake(
            "largest-split-alone",
            "The output is only that of the split with the largest m. "
            "The other splits have a smaller weight, but not none.",
            combined(largest_alone),
            (("part_l[part] == 0.0f ?", "part_l[part] == 0.0f || part_m[part] < m_all ?"),),
            also=(
                combined(chosen=first_of_the_largest),
                combined(
                    lambda m, l, m_all: torch.where(m < m_all, 0.0, torch.exp(m - m_all) * l)
                ),
            ),
        ),
    ),
    hints=(
        (
            "Each thread does the whole of lesson 04's combine_result for one number "
            "of the output: the largest m over the parts, their weights, the weighted mean. "
            "All threads of a block compute the same weights."
        ),
        (
            "There are gridDim.x * gridDim.y rows. "
            "This block's row has the number blockIdx.x * gridDim.y + blockIdx.y. "
            "Part `split` of that row has the number split * rows + row among all parts."
        ),
        (
            "A part without a token has m = -INFINITY. Its weight is 0. "
            "Make sure that it is, even if the largest m is -INFINITY too. "
            "And make sure that you do not divide by a sum of weights that is 0."
        ),
    ),
)
