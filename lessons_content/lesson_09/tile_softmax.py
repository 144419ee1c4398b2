"""A learner's softmax of a tile, as a function of tensors, for 9.3."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted
from paged_attention.ladder.decode import Shape

BEFORE = (
    "numbers ladder/shape prefill/params prefill/tile_shape "
    "prefill/matrix_loads prefill/row_state"
)
SHAPES = {size: Shape(torch.float16, size, 4, 16) for size in (64, 128)}
HIDDEN = float("-inf")
SPREAD = 8.0  # of scores
ALL, EDGE, SOME, NONE = (
    "each row sees all keys",
    "row i sees the keys 0 … i",
    "only the rows 2, 5, 8 … see keys",
    "no row sees a key",
)
FEW_KEYS = 16  # of more keys, only each third one is looked at


def parts(case) -> tuple[str, ...]:
    keys = "" if 8 * case.tiles[1] <= FEW_KEYS else " for the keys 0, 3, 6, …"
    return (
        "m by (warp, row, lane of the row)",
        f"weights by (call, warp, row, key){keys}",
        "l, summed over the lanes of a row, by (warp, row)",
        "acc by (warp, row, d), a number of each d",
    )


@dataclass(frozen=True)
class Case:
    """Calls of take_scores(), one after the other.

    tiles: row_tiles and key_tiles of a warp.
    seen: for each call, which keys are seen: ALL, EDGE, SOME or NONE.
    level, rise: what the first call's scores are near, and how much higher each further one.
    """

    seen: tuple[str, ...]
    factor: float = 0.18
    level: float = 0.0
    rise: float = 0.0
    tiles: tuple[int, int] = (1, 2)
    head_size: int = 64
    num_warps: int = 1
    seed: int = 0

    def inputs(self) -> tuple[Tensor, Tensor]:
        """scores (calls, warps, rows, keys), -inf for a key that is hidden; and what is added
        to acc after a call, (calls, warps, rows, head_size).
        """
        generator = torch.Generator().manual_seed(self.seed)
        num_calls, num_rows, num_keys = len(self.seen), 16 * self.tiles[0], 8 * self.tiles[1]
        sizes = num_calls, self.num_warps, num_rows
        scores = SPREAD * torch.randn(*sizes, num_keys, generator=generator) + self.level
        scores += self.rise * torch.arange(num_calls)[:, None, None, None]
        added = torch.randn(*sizes, self.head_size, generator=generator)
        row, key = torch.arange(num_rows)[:, None], torch.arange(num_keys)
        sees = {ALL: row >= 0, EDGE: key <= row, SOME: row % 3 == 2, NONE: row < 0}
        for number, which in enumerate(self.seen):
            scores[number].masked_fill_(~sees[which], HIDDEN)
        has_seen = (scores.amax(-1) > HIDDEN).cummax(0).values
        return scores, added * has_seen[..., None]


def reference(case: Case, scores: Tensor, added: Tensor):
    """m, the weights, l and acc, as parts() says, in float64."""
    factor = float(torch.tensor(case.factor))  # a float's, as the kernel gets it
    rows = scores.double()
    m = torch.full(rows.shape[1:3], HIDDEN, dtype=torch.float64)
    l, acc = torch.zeros_like(m), torch.zeros_like(added[0], dtype=torch.float64)
    weights = []
    for number, scores in enumerate(rows):
        largest = torch.maximum(m, scores.amax(-1))
        is_seen = largest > HIDDEN
        finite = largest.where(is_seen, 0.0)
        rescale, m = torch.exp2(factor * (m - finite)), largest
        weights.append(torch.exp2(factor * (scores - finite[..., None])))
        l = rescale * l + weights[-1].sum(-1)
        acc = rescale[..., None] * acc
        if number + 1 < len(rows):
            acc += added[number]
    found = m[..., None].expand(*m.shape, 4), torch.stack(weights), l, acc
    return tuple(part.float() for part in sampled(*found))


def sampled(m: Tensor, weights: Tensor, l: Tensor, acc: Tensor):
    """m, l, and a part of the weights and of acc, so that records are small.

    Of acc it is one of 8 dims, and of many keys one of 3, from each lane of a row in turn.
    """
    if weights.shape[-1] > FEW_KEYS:
        weights = weights[..., ::3]
    d = torch.arange(acc.shape[-1] // 8)
    return m, weights, l, acc[..., 8 * d + 2 * (d % 4) + d // 4 % 2]


def prepare(answer):
    libraries = kernels.build_all(answer, BEFORE, "take_scores_check.cu", SHAPES.values())

    def native(case: Case, scores: Tensor, added: Tensor):
        num_calls, num_warps, num_rows, _ = scores.shape
        m, l = torch.empty(2, num_warps, num_rows, 4)
        weights, acc = torch.empty_like(scores), torch.empty_like(added[0])
        around = torch.empty(32 * num_warps, 3, 32)
        tensors = scores, added, m, weights, l, acc, around
        sizes = num_calls, num_warps, *case.tiles
        libraries[SHAPES[case.head_size]].take_all(*tensors, *sizes, case.factor)
        rows, keys = case.tiles
        what = (
            "Numbers were written outside of the state, or of scores. acc has "
            f"{rows} × {case.head_size // 8} × 4 numbers, and scores {rows} × {keys} × 4."
        )
        kernels.check_around(around, what, "outside-the-arrays")
        return sampled(m, weights, l.sum(-1), acc)

    return native


def observe(subject, case):
    return kernels.observing(parts=parts(case))(subject, case)


def describe(case):
    row_tiles, key_tiles = case.tiles
    each = " each" if case.num_warps > 1 else ""
    level = f", scores near {case.level:,.0f}" if case.level else ""
    if case.rise and len(case.seen) > 1:
        way = "higher" if case.rise > 0 else "lower"
        level += f", about {abs(case.rise):g} {way} with each call"
    return (
        f"{counted(case.num_warps, 'warp')} with {16 * row_tiles} rows (row_tiles "
        f"{row_tiles}) and {8 * key_tiles} keys (key_tiles {key_tiles}){each}, head size "
        f"{case.head_size}, factor {case.factor:g}{level}; {counted(len(case.seen), 'call')}: "
        f"{', then '.join(case.seen)}"
    )
