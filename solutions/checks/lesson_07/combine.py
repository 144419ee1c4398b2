"""Exercise 7.5: the kernel that puts the parts of split contexts together."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lessons_lib.bug_hunt import STEP_LIMIT
from lessons_lib.checks import Exercise, Mistake
from lessons_lib.cuda import build_cuda
from lessons_lib.inline import read_kernel
from solutions.checks.lesson_06.native import Found, result_of, same, show
from solutions.checks.words import counted, listed

HEAD_SIZE = 128  # of kernels/ladder/shape.cuh


@dataclass(frozen=True)
class Parts:
    o: Tensor  # (num_splits, num_seqs, num_q_heads, head_size)
    m: Tensor  # (num_splits, num_seqs, num_q_heads)
    l: Tensor


def best_weight(m, l, m_all):
    """exp(m - m_all) * l, and 0 for a part without a token."""
    return torch.where(l == 0, 0.0, torch.exp(m - m_all) * l)


def largest(m):
    return m.amax(0)


def ratio(total, weights, parts):
    """The weighted sum over the sum of the weights; zeros where nothing has a weight."""
    return torch.where(weights == 0, 0.0, total / weights)


def over_right_sum(total, weights, parts):
    return ratio(total, best_weight(parts.m, parts.l, largest(parts.m)).sum(0)[..., None], parts)


def unguarded(total, weights, parts):
    return total / weights


def combined(weight=best_weight, m_all=largest, finish=ratio, chosen=lambda parts: parts, dtype=torch.float32):
    """What the kernel gives, with some of its parts replaced. finish: of the weighted sum, the sum of weights, the parts."""
    def wrong(parts):
        parts = chosen(Parts(parts.o.to(dtype), parts.m.to(dtype), parts.l.to(dtype)))
        weights = weight(parts.m, parts.l, m_all(parts.m))[..., None]
        return finish((weights * parts.o).sum(0), weights.sum(0), parts).half()
    return wrong


def splits(which):
    return lambda parts: Parts(parts.o[which], parts.m[which], parts.l[which])


def splits_last(parts):
    """As if the splits of a row lay side by side."""
    def turned(tensor):
        num_splits, num_seqs, num_q_heads = tensor.shape[:3]
        rows = tensor.reshape(num_seqs, num_q_heads, num_splits, *tensor.shape[3:])
        return rows.movedim(2, 0)
    return Parts(turned(parts.o), turned(parts.m), turned(parts.l))


def heads_first(parts):
    """As if all sequences of a head came before those of the next, in the parts alone."""
    def turned(tensor):
        return tensor.flatten(1, 2).unflatten(1, (tensor.shape[2], tensor.shape[1])).transpose(1, 2)
    return Parts(turned(parts.o), turned(parts.m), turned(parts.l))


def same_m_and_l(parts):
    """m and l of the first row of each split, whoever's the output is."""
    first = torch.zeros_like(parts.m[0], dtype=torch.long).flatten()
    shape = parts.m.shape
    return Parts(parts.o, parts.m.flatten(1)[:, first].reshape(shape), parts.l.flatten(1)[:, first].reshape(shape))


def m_and_l_by_split(parts):
    """part_m[split]: the first numbers of the tensor, one for each split."""
    def first(tensor):
        return tensor.flatten()[: len(tensor)][:, None, None].expand_as(tensor)
    return Parts(parts.o, first(parts.m), first(parts.l))


def without_stride(parts):
    """part_o[part + i], as if the rows of o were one number apart."""
    rows = parts.m.numel()
    places = torch.arange(rows)[:, None] + torch.arange(HEAD_SIZE)
    return Parts(parts.o.flatten()[places].reshape(parts.o.shape), parts.m, parts.l)


def running(parts):
    """One pass with a maximum that grows, where what was summed before is not rescaled."""
    m_all, total = torch.full_like(parts.m[0], -math.inf), torch.zeros_like(parts.o[0])
    weights = torch.zeros_like(m_all)
    for o, m, l in zip(parts.o, parts.m, parts.l, strict=True):
        m_all = torch.maximum(m_all, m)
        weight = best_weight(m, l, m_all)
        total, weights = total + weight[..., None] * o, weights + weight
    return ratio(total, weights[..., None], parts).half()


def found(kind, name, shows):
    def wrong(parts):
        if shows(parts):
            raise Found(kind, name)
        return combined()(parts)
    return wrong


def prepare(answer):
    given = ("numbers.cuh", "paged_params.cuh", "ladder/shape.cuh")
    check = (Path(__file__).parent / "combine_check.cu").read_text(encoding="utf-8")
    library = build_cuda(*map(read_kernel, given), answer, check, names=(*given, "your code", "the check"), target="checked",
                         name="check")
    library.options(step_limit=STEP_LIMIT)

    def native(parts):
        num_splits, num_seqs, num_q_heads = parts.m.shape
        out = torch.empty(num_seqs, num_q_heads, HEAD_SIZE, dtype=torch.half)
        pointers = dict.fromkeys(("q", "k_cache", "v_cache", "block_table", "context_lens", "scores"))
        library.combine(out=out, **pointers, q_stride=0, num_seqs=num_seqs, num_q_heads=num_q_heads, num_kv_heads=1,
                        head_size=HEAD_SIZE, block_size=1, max_blocks_per_seq=0, max_context_len=0, dtype=1, scale=1.0,
                        part_o=parts.o, part_m=parts.m, part_l=parts.l, num_splits=num_splits)
        return out
    return native


@dataclass(frozen=True)
class Case:
    """level: what the maxima are near. empty: the splits that hold no token, of every row; or (split, seq, head)."""

    num_splits: int
    num_seqs: int
    num_q_heads: int
    level: float = 0.0
    spread: float = 1.0
    empty: tuple = ()
    seed: int = 0


def cases():
    yield from (
        Case(1, 1, 1), Case(2, 1, 1, spread=0.0), Case(2, 1, 1, seed=2), Case(3, 1, 1, level=-3.0, seed=3),
        Case(3, 1, 2, seed=4), Case(2, 2, 3, seed=5), Case(2, 1, 1, empty=(1,), seed=6), Case(3, 1, 2, empty=(0,), seed=7),
        Case(2, 1, 1, empty=(0, 1), seed=8), Case(2, 1, 1, level=500.0, seed=9), Case(2, 1, 2, level=-150.0, seed=10),
        Case(2, 1, 2, level=-500.0, seed=14),
        Case(3, 2, 2, spread=60.0, empty=((2, 1, 0), (0, 0, 1)), seed=11), Case(9, 3, 4, spread=3.0, seed=12),
        Case(4, 2, 3, empty=((0, 1, 2), (1, 1, 2), (2, 1, 2), (3, 1, 2)), seed=13))


def parts_of(case: Case) -> Parts:
    generator = torch.Generator().manual_seed(case.seed)
    shape = case.num_splits, case.num_seqs, case.num_q_heads
    o = torch.randn(*shape, HEAD_SIZE, generator=generator)
    m = case.level + case.spread * torch.randn(shape, generator=generator)
    l = 1 + 30 * torch.rand(shape, generator=generator)
    for part in case.empty:
        o[part], m[part], l[part] = 0.0, -math.inf, 0.0
    return Parts(o, m, l)


def observe(subject, case):
    return result_of(lambda: subject(parts_of(case)), names=("out", "part_o"))


def describe(case):
    words = f"{counted(case.num_splits, 'split')} of {counted(case.num_seqs, 'sequence')} with " \
            f"{counted(case.num_q_heads, 'query head')}, head size {HEAD_SIZE}"
    if case.level or case.spread > 10:
        words += f", m near {case.level:g}" + (f" give or take {case.spread:g}" if case.spread > 10 else "")
    if case.empty:
        whole = all(isinstance(part, int) for part in case.empty)
        where = f"split {listed(case.empty)}" if whole else f"(split, sequence, head) {listed(case.empty)}"
        words += f"; {where} without a token (o = 0, m = -inf, l = 0)"
    return f"{words}; the output for each (sequence, head, element)"


WEIGHT = "part_l[part] == 0.0f ? 0.0f : __expf(part_m[part] - m_all) * part_l[part]"
ROW = "row = blockIdx.x * gridDim.y + blockIdx.y"
LAST = "l_all == 0.0f ? 0.0f : o_all / l_all"
FIND_MAX = "  for (int split = 0; split < num_splits; ++split) m_all = fmaxf(m_all, part_m[split * num_rows + row]);\n"
SPLITS = "  for (int split = 0; split < num_splits; ++split) {\n"
STORE = "part_o[int64_t(part) * head_size + threadIdx.x]"

EXERCISE = Exercise(
    id="7.5",
    title="the parts put together, by a kernel",
    answer_name="combine_parts",
    language="cuda",
    reference=combined(dtype=torch.float64),
    prepare=prepare,
    cases=cases,
    observe=observe,
    describe=describe,
    same=same,
    show=show,
    points=2,
    mistakes=(
        Mistake("combine-missing-exp",
                "The parts are weighted by m - m_all itself. The part with the largest maximum then weighs 0, and the "
                "others less than 0. What turns a difference of scores into a ratio of weights?",
                combined(lambda m, l, m_all: torch.where(l == 0, 0.0, (m - m_all) * l)),
                (("__expf(part_m[part] - m_all) * part_l", "(part_m[part] - m_all) * part_l"),),
                also=(combined(lambda m, l, m_all: (m - m_all) * l, finish=unguarded),
                      combined(lambda m, l, m_all: (m - m_all) * l),
                      combined(lambda m, l, m_all: torch.where(l == 0, 0.0, (m - m_all) * l), finish=unguarded),
                      combined(lambda m, l, m_all: (m - m_all) * l, finish=over_right_sum),
                      combined(lambda m, l, m_all: torch.where(l == 0, 0.0, (m - m_all) * l), finish=over_right_sum))),
        Mistake("combine-missing-l",
                "The weight of a part looks at its largest score only. The parts are divided by l already, so l has to come "
                "back in: a part with many tokens weighs more than one with few.",
                combined(lambda m, l, m_all: torch.where(l == 0, 0.0, torch.exp(m - m_all))),
                (("__expf(part_m[part] - m_all) * part_l[part]", "__expf(part_m[part] - m_all)"),),
                also=(combined(lambda m, l, m_all: torch.exp(m - m_all)),
                      combined(lambda m, l, m_all: torch.exp(m - m_all), finish=unguarded))),
        Mistake("o-taken-as-undivided",
                "You add the parts as if they were sums that still had to be divided. Each of them is divided by its own l "
                "already.",
                combined(lambda m, l, m_all: torch.where(l == 0, 0.0, torch.exp(m - m_all)), finish=over_right_sum),
                (("o_all += weight * part_o", "o_all += (part_l[part] == 0.0f ? 0.0f : weight / part_l[part]) * part_o"),)),
        Mistake("weights-missing-m",
                "The parts are weighted by l alone. Each l was counted from its own maximum; they can be compared once they "
                "refer to the same one.",
                combined(lambda m, l, m_all: l), ((WEIGHT, "part_l[part]"),),
                also=(combined(lambda m, l, m_all: l, finish=unguarded),)),
        Mistake("plain-average",
                "The output is the plain average of the parts, as if all of them mattered alike. A part with higher scores, "
                "or with more tokens, has a larger share.",
                combined(lambda m, l, m_all: torch.ones_like(m)), ((WEIGHT, "1.0f"),)),
        Mistake("divided-by-the-number-of-splits",
                "The weighted sum is divided by the number of splits. What makes the shares of the parts add up to 1?",
                combined(finish=lambda total, _, parts: total / len(parts.m)),
                ((LAST, "o_all / num_splits"),)),
        Mistake("sum-not-normalised",
                "The output is the weighted sum of the parts, and it is not divided by the sum of the weights.",
                combined(finish=lambda total, _, parts: total), ((LAST, "o_all"),)),
        Mistake("max-not-subtracted",
                "The weights are exp(m) * l, without subtracting the largest m. Large maxima overflow, and for small ones "
                "all weights are 0.",
                combined(lambda m, l, m_all: torch.where(l == 0, 0.0, torch.exp(m) * l)),
                (("__expf(part_m[part] - m_all)", "__expf(part_m[part])"),),
                also=(combined(lambda m, l, m_all: torch.exp(m) * l, finish=unguarded),)),
        Mistake("max-starts-at-zero",
                "The maximum never falls below 0. When all scores are far below 0, every weight underflows to 0, and the "
                "output with it.",
                combined(m_all=lambda m: largest(m).clamp(min=0.0)), (("m_all = -INFINITY", "m_all = 0.0f"),),
                also=(combined(m_all=lambda m: largest(m).clamp(min=0.0), finish=unguarded),)),
        Mistake("max-starts-at-a-number",
                "The maximum starts from a number that is small, and not small enough: scores may lie below it. What is the "
                "maximum over nothing?",
                combined(m_all=lambda m: largest(m).clamp(min=-100.0)), (("m_all = -INFINITY", "m_all = -100.0f"),)),
        Mistake("nan-on-empty-row",
                "Where no part has a token, the output is NaN. There the largest m is -inf, and -inf - (-inf) is NaN; or "
                "the weights add up to 0, and 0 / 0 is NaN. Such a row's output is zeros.",
                combined(lambda m, l, m_all: torch.exp(m - m_all) * l),
                ((WEIGHT, "__expf(part_m[part] - m_all) * part_l[part]"),)),
        Mistake("weights-upside-down",
                "The sign of the exponent is turned round: the part with the lowest scores weighs most.",
                combined(lambda m, l, m_all: torch.where(l == 0, 0.0, torch.exp(m_all - m) * l)),
                (("part_m[part] - m_all", "m_all - part_m[part]"),),
                also=(combined(lambda m, l, m_all: torch.exp(m_all - m) * l),
                      combined(lambda m, l, m_all: torch.exp(m_all - m) * l, finish=unguarded))),
        Mistake("running-sum-not-rescaled",
                "The maximum grows while you add up, and what was summed before is still counted from the old one. Find the "
                "largest m first, or rescale the sums at each step.",
                running,
                ((FIND_MAX, ""),
                 ("    float weight =", "    m_all = fmaxf(m_all, part_m[part]);\n    float weight ="))),
        Mistake("sum-of-l-not-rescaled",
                "You divide by the plain sum of the parts' l. Each was counted from its own maximum; the weights are "
                "counted from the largest.",
                combined(finish=lambda total, _, parts: ratio(total, parts.l.sum(0)[..., None], parts)),
                (("l_all += weight;", "l_all += part_l[part];"),)),
        Mistake("first-split-alone",
                "Only the first split is in the output. Each row has num_splits parts.",
                combined(chosen=splits(slice(0, 1))),
                (("m_all = fmaxf(m_all, part_m[split * num_rows + row])", "m_all = part_m[row]"),
                 (SPLITS, "  for (int split = 0; split < 1; ++split) {\n")),
                also=(combined(m_all=lambda m: largest(m), chosen=lambda parts: parts,
                               weight=lambda m, l, m_all: torch.cat([best_weight(m, l, m_all)[:1],
                                                                     torch.zeros_like(m[1:])])),)),
        Mistake("first-split-left-out",
                "The first split is not in the output. Splits are counted from 0.",
                combined(chosen=lambda parts: splits(slice(1, None))(parts) if len(parts.m) > 1 else Parts(
                    parts.o * 0, parts.m, parts.l * 0)),
                ((SPLITS, SPLITS.replace("split = 0", "split = 1")),)),
        Mistake("wrong-part",
                "The numbers come from other parts than this row's. All rows of the first split lie side by side, then all "
                "rows of the second: how far is it from a row's part to its next one?",
                combined(chosen=splits_last),
                (("part_m[split * num_rows + row]", "part_m[row * num_splits + split]"),
                 ("part = split * num_rows + row", "part = row * num_splits + split")),
                also=(combined(chosen=heads_first), combined(chosen=same_m_and_l), combined(chosen=m_and_l_by_split))),
        Mistake("wrong-place-in-a-part",
                "m and l are the right ones, and o is not: a part has one m and one l, and head_size numbers of o.",
                combined(chosen=without_stride), ((STORE, "part_o[part + threadIdx.x]"),)),
        Mistake("output-written-in-part",
                "Some numbers of the output are never written. A row's output has head_size numbers, and there is a thread "
                "for each.",
                found("output-unwritten", "out", lambda parts: True),
                (("  out[int64_t(row)", "  if (threadIdx.x == 0) out[int64_t(row)"),),
                also=(found("output-unwritten", "out", lambda parts: 0 in parts.l.sum(0)),
                      found("output-unwritten", "out", lambda parts: parts.m[0].numel() > 1))),
    ),
    hints=(
        "Each thread does the whole of lesson 04's combine_result for one number of the output: the largest m over the "
        "parts, their weights, the weighted mean. All threads of a block find the same weights.",
        "There are gridDim.x * gridDim.y rows, and this block's has the number blockIdx.x * gridDim.y + blockIdx.y. Part "
        "`split` of that row has the number split * rows + row among all parts.",
        "A part without a token has m = -INFINITY. Its weight is 0; make sure that it is, also where the largest m is "
        "-INFINITY too, and that you do not divide by a sum of weights that is 0.",
    ),
)
