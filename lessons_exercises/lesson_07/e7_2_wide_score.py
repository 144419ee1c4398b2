"""Exercise 7.2: a dot product by a group of lanes, in loads of 16 bytes."""

import math
import random
import re
from dataclasses import dataclass

import torch
from torch import Tensor

from lessons_exercises import tensors
from lessons_exercises.lesson_06.native import POISON, Finding, Found, result_of, show
from lessons_exercises.lesson_07.native import SHAPES, build, group_lanes, per_load, places
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.ladder import Shape

WARP, THREADS = 32, 64
BEHIND_A_ROW = 64  # numbers, all of them poison: other heads' keys
NO_PART = 1e4  # the numbers before and after a lane's part of q
BEHIND_A_PART = 64  # bytes after a lane's part of a key, all bits set
WIDE, NARROW, MORE = (
    Text(f"the scores, {how}")
    for how in (
        "in loads of 16 bytes",
        "in loads of few bytes",
        "with more bytes read than the keys have",
    )
)


@dataclass(frozen=True)
class Case:
    """shape: a key of SHAPES."""

    shape: str
    num_keys: int
    seed: int = 0


@dataclass(frozen=True)
class Keys:
    shape: Shape
    q: Tensor  # (head_size,)
    keys: Tensor  # (num_keys, head_size); from one row to the next it is further than that
    scale: float


def made(case: Case) -> Keys:
    shape = SHAPES[case.shape]
    generator = torch.Generator().manual_seed(case.seed)
    memory = torch.full((case.num_keys, shape.head_size + BEHIND_A_ROW), POISON)
    memory[:, : shape.head_size] = torch.randn(
        case.num_keys, shape.head_size, generator=generator
    )
    q = torch.randn(shape.head_size, generator=generator).to(shape.dtype)
    return Keys(
        shape, q, memory.to(shape.dtype)[:, : shape.head_size], 1 / math.sqrt(shape.head_size)
    )


def right_load(thread: Tensor, i: int, shape: Shape) -> Tensor:
    return thread % group_lanes(shape) + i * group_lanes(shape)


def loads_of(shape: Shape) -> int:
    """Of a lane."""
    return shape.head_size // per_load(shape) // group_lanes(shape)


def halving(lanes: int) -> list[int]:
    """The distances lanes / 2, …, 2, 1."""
    return [lanes >> step for step in range(1, lanes.bit_length())]


def across(parts: Tensor, distance: int, shape: Shape) -> Tensor:
    """__shfl_xor_sync in warps of 32, for parts (warps, 32).

    A lane that does not exist gives the lane's own number.
    """
    lane = torch.arange(WARP)
    return parts[:, torch.where((lane ^ distance) < WARP, lane ^ distance, lane)]


def down(width=lambda lanes: WARP):
    def shuffle(parts, distance, shape):
        lane = torch.arange(WARP)
        inside = lane % width(group_lanes(shape)) + distance < width(group_lanes(shape))
        return parts[:, torch.where(inside, lane + distance, lane)]

    return shuffle


def scores(
    load=right_load,
    loads=loads_of,
    distances=halving,
    shuffle=across,
    scale=lambda keys: keys.scale,
    query_of=lambda keys: keys.q.double()[places(keys.shape)],
):
    """What each lane gets, with some parts replaced.

    load(thread, i, shape): which load of a row is a thread's i-th.
    query_of(keys): each lane's part of q.
    """

    def wrong(keys: Keys) -> Tensor:
        shape = keys.shape
        lanes = group_lanes(keys.shape)
        num_keys = len(keys.keys)
        thread = torch.arange(-(-num_keys * lanes // THREADS) * THREADS)
        token = thread // lanes
        total = torch.zeros(len(thread), dtype=torch.float64)
        query = query_of(keys).unflatten(1, (-1, per_load(shape)))[thread % lanes]
        there = token < num_keys
        for i in range(loads(shape)):
            first = token * keys.keys.stride(0) + load(thread % THREADS, i, shape) * per_load(
                shape
            )
            total[there] += (
                query[:, i][there] * numbers_at(keys.keys, first[there], per_load(shape))
            ).sum(-1)
        parts = total.view(-1, WARP)
        for distance in distances(lanes):
            parts = parts + shuffle(parts, distance, shape)
        return (
            (scale(keys) * parts.flatten()[: num_keys * lanes]).float().view(num_keys, lanes)
        )

    return wrong


def numbers_at(keys: Tensor, first: Tensor, count: int) -> Tensor:
    """(len(first), count) in float64: what lies there in memory, poison included."""
    length = (len(keys) - 1) * keys.stride(0) + keys.shape[1]
    if int(first.max()) + count > length:
        raise Found("out-of-bounds", "keys")
    memory = keys.as_strided((length,), (1,))
    return memory.double()[first[:, None] + torch.arange(count)]


def misaligned(keys):
    raise Found("misaligned", "keys")


def half_a_mask(keys):
    """The mask 0xffff.

    In large groups, a lane that is in it asks for one that is not, before any of the others
    calls.
    """
    raise Found("lane-outside-the-mask" if group_lanes(keys.shape) == WARP else "absent-lane")


def first_group_in_the_mask(keys):
    """The mask has as many bits as a group has lanes."""
    if group_lanes(keys.shape) < WARP:
        raise Found("absent-lane")
    return scores()(keys)


def narrow_loads(keys):
    return scores()(keys), NARROW


def narrow_loads_of_small_numbers(keys):
    """With a compiler that splits all loads, those of 4 bytes do not show."""
    return scores()(keys), WIDE if keys.shape.cache_dtype.itemsize == 4 else NARROW


def first_load(thread, i, shape):
    """Whatever the thread."""
    return torch.full_like(thread, i)


def whole_row(keys):
    return scores(first_load)(keys), MORE


def scaled_at_each_step(last):
    """Each of a lane's products is scaled as often as it is in the sum.

    last: how often the last one is.
    """

    def query_of(keys):
        part = keys.q.double()[places(keys.shape)]
        return (
            part * keys.scale ** torch.arange(part.shape[1] - 1 + last, last - 1, -1).double()
        )

    return scores(scale=lambda keys: 1.0, query_of=query_of)


def scaled_at_each_shuffle(further):
    """The sums of both lanes, at each shuffle, and `further` times at the end."""
    return scores(
        scale=lambda keys: keys.scale ** (len(halving(group_lanes(keys.shape))) + further)
    )


def across_and_scaled(parts, distance, shape):
    """The other lane's sum alone is scaled."""
    return across(parts, distance, shape) / math.sqrt(shape.head_size)


def bits_as(dtype):
    """number(key, i) is the i-th number of another type in the lane's bytes.

    The bytes are those of the lane's part, or those after it.
    """

    def wrong(keys):
        place = places(keys.shape)
        part = keys.keys[:, place]
        behind = torch.full((*part.shape[:2], BEHIND_A_PART), 0xFF, dtype=torch.uint8)
        numbers = torch.cat([part.view(torch.uint8), behind], -1).view(dtype)
        numbers = numbers[..., : place.shape[1]]
        total = (keys.q.double()[place] * numbers.double()).sum((1, 2))
        return (keys.scale * total).float()[:, None].repeat(1, len(place))

    return wrong


def query_by_place(keys):
    """query[place(i)], where query is a lane's part already."""
    part, place = keys.q.double()[places(keys.shape)], places(keys.shape)
    inside = part.gather(1, place.clamp(max=part.shape[1] - 1))
    return torch.where(place < part.shape[1], inside, NO_PART)


def not_a_number(keys):
    return torch.full_like(scores()(keys), math.nan)


def eight_numbers(keys):
    """lane_numbers is 8, but for small heads of floats."""
    return scores()(keys) if places(keys.shape).shape[1] == 8 else not_a_number(keys)


def more_than_the_part(keys):
    """group_lanes numbers of each part.

    It goes well if the lane has at least that many.
    """
    return (
        scores()(keys)
        if group_lanes(keys.shape) <= places(keys.shape).shape[1]
        else not_a_number(keys)
    )


def second_load_misaligned(keys):
    """The i-th load begins where the part's i-th number is."""
    return misaligned(keys) if loads_of(keys.shape) > 1 else scores()(keys)


def of_the_first_group(keys):
    """Each lane has the score of its warp's first group."""
    groups = WARP // group_lanes(keys.shape)
    return scores()(keys)[torch.arange(len(keys.keys)) // groups * groups]


def lane_outside_the_mask(keys):
    raise Found("lane-outside-the-mask")


def some_lanes_leave(keys):
    """Groups without a key, in a warp that has one, do not come to the shuffles."""
    if len(keys.keys) * group_lanes(keys.shape) % WARP:
        raise Found("absent-lane")
    return scores()(keys)


def order(keys):
    raise Found("order")


def others_get_zero(keys):
    result = scores()(keys)
    result[:, 1:] = 0
    return result


def stuck_at_a_barrier(keys):
    """In a launch in which a warp has no key."""
    if len(keys.keys) * group_lanes(keys.shape) % THREADS in range(1, WARP + 1):
        raise Found("divergent-barrier")
    return scores()(keys)


def recognise(answer: str) -> str | None:
    """A variable that has no value when it is first added to.

    Or a part with a second load that has none.
    """
    text = re.sub(r"//.*|/\*[\s\S]*?\*/", "", answer)
    if re.search(r"\bfloat\s+(\w+)\s*;(?:(?!\b\1\b)[\s\S])*\b\1\s*\+=", text):
        return "sum-without-a-start"
    return "first-load-only" if first_load_alone_is_set(text) else None


def first_load_alone_is_set(text: str) -> bool:
    """Whether a WideRow without a start is returned.

    Nothing but `loads[0] =` is done with it before.
    """
    part = re.search(r"\bWideRow\s+(\w+)\s*;([\s\S]*?)\breturn\s+\1\s*;", text)
    if part is None:
        return False
    rest, count = re.subn(rf"\b{part[1]}\s*\.\s*loads\s*\[\s*0\s*\]\s*=(?!=)", "", part[2])
    return count > 0 and not re.search(rf"\b{part[1]}\b", rest)


def prepare(answer):
    before = (
        "numbers.cuh",
        "paged_params.cuh",
        "paged_address.cuh",
        "ladder/shape.cuh",
        "ladder/launch.cuh",
        "ladder/wide_row.cuh",
    )
    libraries = {
        shape: build(answer, shape, before, "wide_score_check.cu") for shape in SHAPES.values()
    }

    def native(keys: Keys):
        library = libraries[keys.shape]
        lanes = group_lanes(keys.shape)
        num_keys = len(keys.keys)
        out = torch.empty(num_keys, lanes)
        with library.count("keys") as counts:
            library.wide_scores(
                keys.q, keys.keys, out, num_keys, keys.keys.stride(0), keys.scale
            )
        if counts.bytes_read > num_keys * keys.shape.head_size * keys.keys.element_size():
            return out, MORE
        warps = -(-num_keys * lanes // WARP)
        return out, (
            WIDE
            if counts.load_instructions <= split * warps * loads_of(keys.shape)
            else NARROW
        )

    keys, out = torch.zeros(WARP, 4), torch.zeros(WARP, 4)
    with libraries[SHAPES["float"]].count("keys") as counts:
        libraries[SHAPES["float"]].one_load(keys, out)
    split = counts.load_instructions  # a compiler may split a load of 16 bytes into four
    return native


def cases():
    yield from (
        Case("half", 1),
        Case("half", 2),
        Case("half", 5, 1),
        Case("bfloat16", 1, 2),
        Case("bfloat16", 3, 3),
        Case("bfloat16", 9, 4),
        Case("float", 1, 5),
        Case("float", 3, 6),
        Case("half", 11, 7),
        Case("float, small heads", 1, 8),
        Case("float, small heads", 4, 9),
    )


def hidden(seed):
    """Of each shape some keys that do not fill a block of threads, and some that are more."""
    chance = random.Random(seed)
    for few, most in ((1, 3), (5, 12)):
        yield from (
            Case(shape, chance.randint(few, most), chance.randrange(2**31)) for shape in SHAPES
        )


def observe(subject, case):
    result = result_of(
        lambda: as_pair(subject(made(case))), ("keys",), ("score by (key, lane)", "wide")
    )
    if isinstance(result, Finding) or not isinstance(result, tuple):
        return result
    return result[0], (WIDE, NARROW, MORE)[result[1].tensor.item()]


def as_pair(result):
    """The scores, and by which loads they came.

    Our model and those of most mistakes load widely.
    """
    values, how = result if isinstance(result, tuple) else (result, WIDE)
    return values, torch.tensor((WIDE, NARROW, MORE).index(how))


def show_scores(expected, actual):
    return (
        tensors.show(expected, actual) if isinstance(actual, tuple) else show(expected, actual)
    )


def describe(case):
    shape = SHAPES[case.shape]
    return (
        f"{counted(case.num_keys, 'key')} of {shape.head_size} numbers "
        f"in {case.shape.split(',')[0]}, so groups of {group_lanes(shape)} lanes "
        f"with {counted(loads_of(shape), 'load')} each"
    )


LOAD = "part.loads[i] = loads[i * group_lanes + threadIdx.x % group_lanes];"
LOADS = f"  for (int i = 0; i < lane_loads; ++i) {LOAD}"
DISTANCES = "for (int distance = group_lanes / 2; distance > 0; distance /= 2)"
SHUFFLE = "__shfl_xor_sync(0xffffffff, product, distance)"

EXERCISE = Exercise(
    id="7.2",
    title="wide loads",
    answer_name="wide_score",
    language="cuda",
    reference=scores(),
    prepare=prepare,
    cases=cases,
    size=lambda case: (case.num_keys, SHAPES[case.shape].head_size),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=show_scores,
    recognise=recognise,
    points=2,
    mistakes=(
        Mistake(
            "own-part-only",
            "A lane gives what its own part of the key adds to the sum. "
            "All lanes of the group have to add their parts together, "
            "and each lane needs the whole sum.",
            scores(distances=lambda lanes: []),
            ((DISTANCES, "for (int distance = 0; distance > 0; distance /= 2)"),),
        ),
        Mistake(
            "whole-warp",
            "A score is the sum over several keys: the shuffles reach beyond the group. "
            "A warp may hold several groups, and each group has its own key. "
            "How far may a shuffle reach?",
            scores(distances=lambda lanes: halving(WARP)),
            ((DISTANCES, DISTANCES.replace("group_lanes / 2", "16")),),
            also=(scores(distances=lambda lanes: [lanes, *halving(lanes)]),),
        ),
        Mistake(
            "too-few-steps",
            "A lane gets the sum of only a part of its group. A shuffle is missing, "
            "the first or the last one. Each step doubles the number of lanes that are "
            "in a lane's sum.",
            scores(distances=lambda lanes: halving(lanes // 2)),
            ((DISTANCES, DISTANCES.replace("group_lanes / 2", "group_lanes / 4")),),
            also=(scores(distances=lambda lanes: halving(lanes)[:-1]),),
        ),
        Mistake(
            "lanes-counted-by-hand",
            "It is right where a group has 16 lanes. "
            "With other heads and formats a group has 8, or 32. group_lanes says how many.",
            scores(distances=lambda lanes: halving(16)),
            ((DISTANCES, DISTANCES.replace("group_lanes / 2", "8")),),
            also=(
                scores(lambda thread, i, shape: thread % 16 + i * 16),
                scores(lambda thread, i, shape: thread % 16 + i * group_lanes(shape)),
                scores(
                    lambda thread, i, shape: thread % 16 + i * 16,
                    distances=lambda lanes: halving(16),
                ),
            ),
        ),
        Mistake(
            "first-lane-only",
            "The first lane of a group has the score, but the others have something else. "
            "Every lane of the group needs it. Which shuffle gives both lanes of a pair "
            "the same?",
            scores(shuffle=down()),
            ((SHUFFLE, SHUFFLE.replace("xor", "down")),),
            also=(scores(shuffle=down(lambda lanes: lanes)), others_get_zero),
        ),
        Mistake(
            "first-groups-score",
            "All groups of a warp have the score of the first group. "
            "__shfl_sync() counts the lane that it reads from the warp's first lane, "
            "unless the shuffle has a width.",
            of_the_first_group,
            (
                (
                    "  return scale * product;",
                    "  return scale * __shfl_sync(0xffffffff, product, 0);",
                ),
            ),
        ),
        Mistake(
            "missing-scale",
            "The scores are not scaled. The factor is an argument.",
            scores(scale=lambda keys: 1.0),
            (("return scale * product;", "return product;"),),
        ),
        Mistake(
            "scaled-twice",
            "The scores are scaled twice. When the sum is multiplied at the end, "
            "the factor is already in it, or in each product.",
            scores(scale=lambda keys: keys.scale**2),
            (("query[i] * number", "scale * query[i] * number"),),
        ),
        Mistake(
            "divided-by-scale",
            "The sum is divided by scale. But scale is a factor.",
            scores(scale=lambda keys: 1 / keys.scale),
            (("scale * product", "product / scale"),),
        ),
        Mistake(
            "parts-not-added",
            "A lane takes over what the other lane of its pair has, and loses its own. "
            "Each step has to add the two.",
            scores(
                shuffle=lambda parts, distance, shape: across(parts, distance, shape) - parts
            ),
            ((f"product += {SHUFFLE}", f"product = {SHUFFLE}"),),
        ),
        Mistake(
            "sum-without-a-start",
            "The sum has no value when the first product is added to it. "
            "A variable in CUDA C++ holds anything at all until you give it a value.",
            None,
            (("float product = 0.0f;", "float product;"),),
        ),
        Mistake(
            "same-load-for-all",
            "All lanes of a group take the same load of the row, the first one. "
            "The number of the thread's lane in its group has to come in. "
            "Which number is that?",
            scores(first_load),
            ((LOAD, "part.loads[i] = loads[i];"),),
        ),
        Mistake(
            "group-for-lane",
            "All lanes of a group take the same load of the row: "
            "its number is the group's number. Which lane of its group is this thread?",
            scores(
                lambda thread, i, shape: thread // group_lanes(shape) + i * group_lanes(shape)
            ),
            ((LOAD, LOAD.replace("%", "/")),),
            also=(
                scores(
                    lambda thread, i, shape: (
                        thread % WARP // group_lanes(shape) + i * group_lanes(shape)
                    )
                ),
            ),
        ),
        Mistake(
            "same-load-twice",
            "Where a lane has two loads, it takes the same one twice. "
            "The second one is in the other half of the row.",
            scores(lambda thread, i, shape: thread % group_lanes(shape)),
            ((LOAD, "part.loads[i] = loads[threadIdx.x % group_lanes];"),),
        ),
        Mistake(
            "whole-row-in-a-lane",
            "A lane takes the whole row, but it has room only for its own part: "
            "lane_loads loads. The other lanes of the group take the rest.",
            whole_row,
            (
                ("i < lane_loads;", "i < head_size / per_load;"),
                (LOAD, "part.loads[i] = loads[i];"),
            ),
        ),
        Mistake(
            "place-in-the-part",
            "place(i) says where in the whole row a number is. "
            "But query is already the lane's part. "
            "Its numbers are in the same order as number(key, …).",
            scores(query_of=query_by_place),
            (("query[i]", "query[place(i)]"),),
        ),
        Mistake(
            "reads-behind-the-part",
            "Your code reads more than the lane's part. query and number(key, "
            "…) have lane_numbers numbers, and the first is number 0. "
            "What lies after them is not part of either.",
            not_a_number,
            (("i < lane_numbers;", "i <= lane_numbers;"),),
            also=(lambda keys: (scores()(keys), MORE), more_than_the_part),
        ),
        Mistake(
            "numbers-counted-by-hand",
            "It is right where a lane has 8 numbers. For small heads of floats a lane has 4. "
            "lane_numbers says how many.",
            eight_numbers,
            (("i < lane_numbers;", "i < 8;"),),
        ),
        Mistake(
            "barrier-of-the-block",
            "A __syncthreads() waits for all warps of the block, "
            "but a warp without a key does not come. "
            "The shuffles are all that the lanes of a warp need here.",
            stuck_at_a_barrier,
            (("  return scale * product;", "  __syncthreads();\n  return scale * product;"),),
        ),
        Mistake(
            "index-in-numbers",
            "The lanes are too far apart. An index into 16-byte loads counts loads, "
            "not numbers. Lane 0 takes the first load of the row. Which load is next, "
            "and which lane takes it?",
            scores(lambda thread, i, shape: right_load(thread, i, shape) * per_load(shape)),
            (
                (
                    LOAD,
                    (
                        "part.loads[i] = loads[(i * group_lanes + threadIdx.x % group_lanes) "
                        "* per_load];"
                    ),
                ),
            ),
            also=(
                scores(
                    lambda thread, i, shape: (
                        thread % group_lanes(shape) * per_load(shape) + i * group_lanes(shape)
                    )
                ),
                scores(
                    lambda thread, i, shape: thread % group_lanes(shape) * per_load(shape) + i
                ),
            ),
        ),
        Mistake(
            "misaligned-load",
            "A load of 16 bytes begins at an address that is not a multiple of 16. "
            "A GPU stops there. Neighbouring lanes begin 16 bytes apart, "
            "and that is more than one number. First make 16-byte pieces of the row, "
            "then count the pieces.",
            misaligned,
            (
                (
                    LOAD,
                    (
                        "part.loads[i] = *reinterpret_cast<const uint4*>(\n"
                        "        row + i * group_lanes + threadIdx.x % group_lanes);"
                    ),
                ),
            ),
        ),
        Mistake(
            "place-of-a-number",
            "Where a lane has two loads, the second one begins one number after the first. "
            "place(i) says where number i of the part is, not where load i begins. "
            "Which number of the part is the first one of a load?",
            second_load_misaligned,
            ((LOAD, "part.loads[i] = *reinterpret_cast<const uint4*>(row + place(i));"),),
        ),
        Mistake(
            "lane-of-the-warp",
            "The first group is right, but the others read past the end of their rows. "
            "Each group has its own row, and its lanes count from the group's first lane.",
            scores(lambda thread, i, shape: thread % WARP + i * group_lanes(shape)),
            ((LOAD, "part.loads[i] = loads[i * group_lanes + threadIdx.x % 32];"),),
            also=(scores(lambda thread, i, shape: thread + i * group_lanes(shape)),),
        ),
        Mistake(
            "neighbouring-loads",
            "Where a lane has two loads, it takes two that lie side by side. "
            "So neighbouring lanes are 32 bytes apart, and these are not the numbers "
            "that place() says. The group goes over the row together, load by load.",
            scores(lambda thread, i, shape: thread % group_lanes(shape) * loads_of(shape) + i),
            ((LOAD, "part.loads[i] = loads[threadIdx.x % group_lanes * lane_loads + i];"),),
        ),
        Mistake(
            "first-load-only",
            "It is right where a lane has one load. "
            "For large heads of floats a lane has two. lane_loads says how many, "
            "and lane_numbers says how many numbers they hold.",
            scores(loads=lambda shape: 1),
            (("i < lane_numbers; ++i) product", "i < per_load; ++i) product"),),
        ),
        Mistake(
            "second-load-too-near",
            "Where a lane has two loads, its second one is another lane's first. "
            "First all lanes of the group together take group_lanes loads, "
            "and then they take the next ones.",
            scores(lambda thread, i, shape: thread % group_lanes(shape) + i),
            ((LOAD, "part.loads[i] = loads[i + threadIdx.x % group_lanes];"),),
            also=(
                scores(
                    lambda thread, i, shape: thread % group_lanes(shape) + i * per_load(shape)
                ),
            ),
        ),
        Mistake(
            "narrow-loads",
            "The scores are right, but the rows are read a few bytes at a time. "
            "One load can bring 16 bytes. reinterpret_cast turns a pointer to numbers into "
            "a pointer to uint4.",
            narrow_loads,
            (
                (
                    LOADS,
                    (
                        "  for (int i = 0; i < lane_numbers; ++i) "
                        "reinterpret_cast<KvNumber*>(part.loads)[i] = row[place(i)];"
                    ),
                ),
            ),
            also=(narrow_loads_of_small_numbers,),
        ),
        Mistake(
            "leaves-before-the-shuffles",
            "Some lanes return before the shuffles, and the others wait for them. "
            "All 32 lanes of a warp come to each shuffle, "
            "including those of a group without a token. Their key is zeros.",
            some_lanes_leave,
            (
                (
                    "  for (int distance",
                    "  if (product == 0.0f) return 0.0f;\n  for (int distance",
                ),
            ),
        ),
        Mistake(
            "mask-of-one-group",
            "A shuffle's mask leaves out the lane that makes it. "
            "All 32 lanes come to this shuffle together. So the mask names all of them, "
            "although each lane looks only within its group.",
            half_a_mask,
            ((SHUFFLE, SHUFFLE.replace("0xffffffff", "0xffff")),),
            also=(first_group_in_the_mask,),
        ),
        Mistake(
            "not-there-for-the-others",
            "Lanes pass something on in shared memory, "
            "and nothing makes them wait for each other. "
            "wide_score() is called for one key after another. "
            "So one lane may write the next key's sum before the others have read this "
            "one's. Shuffles need no such place.",
            order,
            (
                (
                    "  return scale * product;",
                    (
                        "  __shared__ float sums[32];\n"
                        "  if (threadIdx.x % group_lanes == 0) "
                        "sums[threadIdx.x / group_lanes] = product;\n"
                        "  return scale * sums[threadIdx.x / group_lanes];"
                    ),
                ),
            ),
        ),
        Mistake(
            "mask-of-whoever-is-there",
            "__activemask() says which lanes happen to be at this place at this moment. "
            "There may be more to come, so it is no mask for a shuffle. "
            "Which lanes call this function together?",
            lane_outside_the_mask,
            ((SHUFFLE, SHUFFLE.replace("0xffffffff", "__activemask()")),),
        ),
        Mistake(
            "scaled-at-each-step",
            "The sum is scaled at each step, so what is in it early is scaled many times "
            "over. Scale each product once, or scale the sum when it is complete.",
            scaled_at_each_step(1),
            (
                (
                    "product += query[i] * number(key, i);",
                    "product = scale * (product + query[i] * number(key, i));",
                ),
                ("return scale * product;", "return product;"),
            ),
            also=(
                scaled_at_each_step(0),
                scaled_at_each_step(2),
                scaled_at_each_shuffle(0),
                scaled_at_each_shuffle(1),
                scores(shuffle=across_and_scaled, scale=lambda keys: 1.0),
                scores(shuffle=across_and_scaled),
            ),
        ),
        Mistake(
            "divided-by-a-count",
            "The score is divided by a number of lanes or of elements, as if it were a mean. "
            "It is a sum, and scale is the whole factor.",
            scores(scale=lambda keys: keys.scale / group_lanes(keys.shape)),
            (("return scale * product;", "return scale * product / group_lanes;"),),
            also=(
                scores(scale=lambda keys: keys.scale / places(keys.shape).shape[1]),
                scores(scale=lambda keys: keys.scale / keys.shape.head_size),
            ),
        ),
        Mistake(
            "bits-taken-as-numbers",
            "The bits of the key are taken as numbers of another type. "
            "A load is 16 bytes of memory. The numbers in it have the type KvNumber.",
            bits_as(torch.uint16),
            (("number(key, i)", "float(reinterpret_cast<const uint16_t*>(key.loads)[i])"),),
            also=(
                bits_as(torch.uint32),
                bits_as(torch.int16),
                bits_as(torch.int32),
                bits_as(torch.uint8),
                bits_as(torch.float32),
            ),
        ),
    ),
    hints=(
        (
            "load_row: look at the row as a row of uint4, 16 bytes each. "
            "Lane 0 of the group takes number 0, and lane 1 takes number 1. "
            "If each lane has two loads, the group begins again where it stopped."
        ),
        "threadIdx.x % group_lanes says which lane of its group a thread is.",
        (
            "wide_score: first comes what the lane can do alone, with number(key, "
            "i) and query[i]. Then come shuffles, as in block_max of lesson 06. "
            "But here they end at the group, not at the warp."
        ),
    ),
)
