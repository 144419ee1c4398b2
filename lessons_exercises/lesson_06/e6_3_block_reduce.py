"""Exercise 6.3: the maximum and the sum over a block of threads."""

import math
import random
import re

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_06.native import (
    Found,
    build,
    result_of,
    show,
    with_misplaced_barriers,
)
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake
from lessons_lib.cuda_on_cpu.reports import KernelError

WARP = 32


def to_all(reduced, values):
    """The result of a block for each of its threads. values: (num_blocks, rounds, threads)."""
    return reduced[..., None].expand_as(values).contiguous()


def reduce(values):
    return to_all(values.amax(-1), values), to_all(values.double().sum(-1).float(), values)


def found_above(threads, kind, otherwise=reduce):
    """A fault of this kind in blocks of more threads than this.

    Smaller blocks give otherwise(values).
    """

    def wrong(values):
        if values.shape[-1] > threads:
            raise Found(kind)
        return otherwise(values)

    return wrong


def per_warp(values):
    """(num_blocks, rounds, warps): the maximum and the sum of each warp."""
    warps = values.unflatten(-1, (-1, WARP))
    return warps.amax(-1), warps.sum(-1)


def used_again_too_soon(values):
    """One call is right. In the next one a thread may write before another has read."""
    if values.shape[1] > 1:
        raise Found("race")
    return reduce(values)


def used_again_too_soon_by_other_warps(values):
    if values.shape[1] > 1 and values.shape[-1] > WARP:
        raise Found("race")
    return reduce(values)


def each_warp_alone(values):
    return tuple(part.repeat_interleave(WARP, -1) for part in per_warp(values))


def known_to(count, result=reduce):
    """Only the first `count` threads get the result, by default the right one.

    The rest keep their warp's.
    """

    def wrong(values):
        return tuple(
            torch.cat([whole[..., :count], own[..., count:]], -1)
            for whole, own in zip(result(values), each_warp_alone(values), strict=True)
        )

    return wrong


def known_to_thread_0(rest):
    """Thread 0 gets the result; the others have rest(values), a maximum and a sum."""

    def wrong(values):
        return tuple(
            torch.cat([whole[..., :1], other[..., 1:]], -1)
            for whole, other in zip(reduce(values), rest(values), strict=True)
        )

    return wrong


def parts_of_a_tree(values):
    """What the threads have when half of them have added the other half's values.

    Then half of these add, and so on.
    """
    largest = values.clone()
    total = values.clone()
    count = values.shape[-1]
    while count > 1:
        half = (count + 1) // 2
        largest[..., : count - half] = torch.maximum(
            largest[..., : count - half], largest[..., half:count]
        )
        total[..., : count - half] += total[..., half:count].clone()
        count = half
    return largest, total


def first_warps(values):
    return tuple(to_all(part[..., 0], values) for part in per_warp(values))


def first_warp_alone_shuffles(values):
    """The other warps bring the value of their first lane."""
    largest, total = (part.clone() for part in per_warp(values))
    largest[..., 1:], total[..., 1:] = (values[..., WARP::WARP],) * 2
    return to_all(largest.amax(-1), values), to_all(total.double().sum(-1).float(), values)


def maximum_from_zero(values):
    largest, total = reduce(values)
    return largest.clamp(min=0.0), total


def zeros_for_missing_warps(values):
    """The first warp collects, with 0 in its lanes for which there is no warp."""
    return reduce(values) if values.shape[-1] == WARP * WARP else maximum_from_zero(values)


def only_the_first_warp_collects(values):
    """The same by threadIdx.x in every warp: the others find no warp for their threads."""
    return tuple(
        torch.cat([whole[..., :WARP], torch.zeros_like(whole[..., WARP:])], -1)
        for whole in zeros_for_missing_warps(values)
    )


def made_for(threads, reads_all):
    """Room for this many threads or their warps.

    reads_all: all of it is read, whether it was written or not.
    """

    def wrong(values):
        if values.shape[-1] > threads:
            raise Found("shared-out-of-bounds")
        if values.shape[-1] < threads and reads_all:
            raise Found("never-written")
        return reduce(values)

    return wrong


def taken_not_combined(values):
    """What a shuffle brings replaces the value.

    After five of them lane 0 has that of lane 31.
    """
    last = values[..., WARP - 1 :: WARP]
    return to_all(last.amax(-1), values), to_all(last.double().sum(-1).float(), values)


def last_warp_left_out(values):
    largest, total = (part[..., : max(part.shape[-1] - 1, 1)] for part in per_warp(values))
    return to_all(largest.amax(-1), values), to_all(total.double().sum(-1).float(), values)


def twice(part):
    """The sum with part(values) added once more."""

    def wrong(values):
        largest, total = reduce(values)
        return largest, total + part(values)

    return wrong


def half_of_the_warps(values):
    """As if each warp had twice as many threads."""
    count = max(values.shape[-1] // WARP // 2, 1)
    largest, total = (part[..., :count] for part in per_warp(values))
    return to_all(largest.amax(-1), values), to_all(total.double().sum(-1).float(), values)


def first_warp_for_all(values):
    """Warp 0's result is combined as often as there are warps."""
    largest, total = per_warp(values)
    return to_all(largest[..., 0], values), to_all(total[..., 0] * total.shape[-1], values)


def first_left_out(parts):
    """The combining begins with a 0 instead of the first of the parts."""

    def wrong(values):
        largest, total = (part.clone() for part in parts(values))
        largest[..., 0], total[..., 0] = 0.0, 0.0
        return to_all(largest.amax(-1), values), to_all(total.double().sum(-1).float(), values)

    return wrong


def lane_of_32(lane):
    """This lane is taken to hold all of its warp, but it has met no other lane.

    Each shuffle brought its own value.
    """

    def wrong(values):
        of_lane = values[..., lane::WARP]
        return to_all(of_lane.amax(-1), values), to_all(
            (WARP * of_lane.double()).sum(-1).float(), values
        )

    return wrong


def four_warps(values):
    """The results of four warps are read, whatever the block's size."""
    if values.shape[-1] < 4 * WARP:
        raise Found("never-written")
    largest, total = per_warp(values)
    return to_all(largest[..., :4].amax(-1), values), to_all(total[..., :4].sum(-1), values)


def halves(parts):
    """A tree that halves the number of parts, threads or warps.

    It loses one whenever the number is odd.
    """

    def wrong(values):
        largest, total = (part.clone() for part in parts(values))
        count = largest.shape[-1] // 2
        while count:
            largest[..., :count] = torch.maximum(
                largest[..., :count], largest[..., count : 2 * count]
            )
            total[..., :count] += total[..., count : 2 * count].clone()
            count //= 2
        return to_all(largest[..., 0], values), to_all(total[..., 0], values)

    return wrong


def halves_by_shuffles(values):
    """Each warp shuffles the warps' results, from half of their number on.

    The remaining lanes take them again.
    """
    warps = values.shape[-1] // WARP
    lanes = torch.arange(WARP)
    largest, total = (part[..., lanes % warps] for part in per_warp(values))
    distance = warps // 2
    while distance:
        largest = torch.maximum(largest, largest[..., lanes ^ distance])
        total = total + total[..., lanes ^ distance]
        distance //= 2
    return tuple(part.repeat(1, 1, warps) for part in (largest, total))


def sum_from(first):
    """The sum begins with the start that is right for a maximum."""

    def wrong(values):
        largest, total = reduce(values)
        return largest, total + first

    return wrong


def across(lanes, distance):
    return (lanes ^ distance) % WARP


def down(lanes, distance):
    return torch.where(lanes + distance < WARP, lanes + distance, lanes)


def shuffled_with(*distances, partner_of=across):
    """Only these distances; then lane 0 brings its warp's result."""

    def wrong(values):
        warps, lanes = values.unflatten(-1, (-1, WARP)), torch.arange(WARP)
        largest, total = warps, warps.double()
        for distance in distances:
            partner = partner_of(lanes, distance)
            largest = torch.maximum(largest, largest[..., partner])
            total = total + total[..., partner]
        return to_all(largest[..., 0].amax(-1), values), to_all(
            total[..., 0].sum(-1).float(), values
        )

    return wrong


def name_from_text(answer):
    """Each thread has its own array, and they share none."""
    text = re.sub(r"//.*", "", answer)
    return (
        "array-not-shared"
        if "__shared__" not in text and re.search(r"^\s*float\s+\w+\[", text, re.M)
        else None
    )


def absent_in_the_second_step(values):
    if values.shape[-1] < 1024:
        raise Found("absent-lane")
    return reduce(values)


def prepare(answer):
    library = build(answer, wrapper="reduce_check.cu")

    def native(values):
        out_max, out_sum = torch.empty_like(values), torch.empty_like(values)
        try:
            with_misplaced_barriers(
                lambda: library.reduce(values, out_max, out_sum, *values.shape), answer
            )
        except KernelError as error:
            if never_written(str(error), answer, values.shape[-1]):
                error.kind = "never-written"
            mask = re.search(r"with the mask 0x([0-9a-f]+)", str(error))
            if error.kind == "absent-lane" and mask and int(mask[1], 16) != 0xFFFFFFFF:
                error.kind = "mask-too-small"
            if warp_of_another_size(answer):
                error.kind = "warp-size"
            raise
        return out_max, out_sum

    return native


def warp_of_another_size(answer):
    """Whether threads are counted in warps of 16 or 64.

    (blockDim.x / 64 may be half the number of warps.)
    """
    text = re.sub(r"//.*|/\*[\s\S]*?\*/", "", answer)
    own = "|".join((r"threadIdx\.x", *re.findall(r"\b(\w+)\s*=\s*threadIdx\.x\s*[;,]", text)))
    return bool(
        re.search(
            rf"\b(?:{own})\s*(?:[/%]\s*(?:16|64)|>>\s*[46]|&\s*(?:15|63|0xf|0x3f))\b", text
        )
        or re.search(r"\bblockDim\.x\s*(?:/\s*16|>>\s*4)\b", text)
    )


def never_written(report, answer, threads):
    """Whether what is read is a place that no thread has: no barrier would help.

    Arrays up to 32 are for the warps.
    """
    read = re.search(r" reads (\w+)\[(\d+)\] before any thread", report)
    size = read and re.search(rf"\b{read[1]}\s*\[\s*(\d+)\s*\]", answer)
    return bool(size) and int(read[2]) >= (
        threads // WARP if int(size[1]) <= WARP else threads
    )


def cases():
    """(blocks, rounds, threads, shift): shift moves all values below or above 0."""
    yield from (
        (1, 1, 32, 5.0),
        (1, 1, 64, 5.0),
        (1, 1, 128, 0.0),
        (1, 1, 32, -5.0),
        (1, 1, 96, 0.0),
        (1, 1, 128, -5.0),
        (1, 2, 32, 0.0),
        (1, 2, 64, 0.0),
        (1, 3, 128, 5.0),
        (2, 2, 96, -5.0),
        (1, 1, 256, 0.0),
        (1, 2, 416, 0.0),
        (1, 2, 1024, -5.0),
    )


def hidden(seed):
    """The numbers of threads with which the course calls it, and others.

    Some values are below 0, or all, or none.
    """
    chance = random.Random(seed)
    for threads in (128, 256, *chance.sample(range(32, 800, 32), 8)):
        yield (
            chance.randint(1, 2),
            chance.randint(1, 3),
            threads,
            chance.choice((-6.0, -4.5, 0.0, 0.5, 4.5, 6.0)),
        )


def observe(subject, case):
    blocks, rounds, threads, shift = case
    generator = torch.Generator().manual_seed(threads + rounds)
    values = torch.randn(blocks, rounds, threads, generator=generator).clamp(-4, 4) + shift
    return result_of(lambda: subject(values), parts=("block_max()", "block_sum()"))


def describe(case):
    blocks, rounds, threads, shift = case
    kind = "" if not shift else ", all values below 0" if shift < 0 else ", all values above 0"
    calls = "" if rounds == 1 else f", each called {rounds} times in a row"
    grid = "" if blocks == 1 else f"{counted(blocks, 'block')} of "
    return (
        f"{grid}{counted(threads, 'thread')}{kind}{calls}; "
        "the result for each (block, call, thread)"
    )


DISTANCES = (
    (16, 8, 4, 2),
    (32, 16, 8, 4, 2, 1),
    (1, 1, 1, 1, 1),
    (1, 2, 3, 4, 5),
    (16, 5, 1),
    (16, 4, 1),
    (1, 3, 9, 27),
    (16, 8),
    *(range(16, 0, -step) for step in (1, 2, 3, 4)),
    range(31, 0, -1),
    range(1, 32, 2),
    range(15, 0, -1),
)
SHUFFLE = "value = Operation::of(value, __shfl_xor_sync(0xffffffff, value, distance));"
WRITE = "if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;\n  __syncthreads();"
READ = "value = of_warp[0];\n  for (int warp = 1; warp < blockDim.x / 32; ++warp) value"
AGAIN = (
    "  __syncthreads();  "
    "// the next call writes of_warp again: not before everybody has read it\n"
)

EXERCISE = Exercise(
    id="6.3",
    title="maximum and sum over a block",
    answer_name="block_reduce",
    language="cuda",
    reference=reduce,
    prepare=prepare,
    cases=cases,
    size=lambda case: math.prod(case[:3]),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=show,
    name_from_text=name_from_text,
    points=2,
    mistakes=(
        Mistake(
            "missing-barrier",
            "A thread reads shared memory that another thread writes, "
            "and nothing makes it wait until that is done. "
            "At __syncthreads() all threads of the block wait for each other.",
            found_above(0, "race"),
            ((WRITE, WRITE.split("\n")[0]),),
            also=(found_above(WARP, "race"),),
        ),
        Mistake(
            "barrier-in-branch",
            "There is a barrier, but not all threads come to it. "
            "It is inside an `if` or a loop that some of them do not enter, "
            "or some have returned before it. Those go on while the others wait.",
            found_above(0, "barrier-in-branch"),
            ((WRITE, WRITE.replace("0) of_warp", "0) { of_warp") + " }"),),
            also=(found_above(WARP, "barrier-in-branch"),),
        ),
        Mistake(
            "several-writers",
            "Several threads write to the same place, and nothing keeps them apart. "
            "That is a race, even if all of them bring the same value. Let one thread write, "
            "or give each thread its own place.",
            found_above(0, "several-writers"),
            (("if (threadIdx.x % 32 == 0) of_warp", "of_warp"),),
            also=(found_above(WARP, "several-writers"),),
        ),
        Mistake(
            "array-not-shared",
            "The array has no `__shared__` before it. So each thread has its own array, "
            "and finds in it only what that thread has written there.",
            None,
            (("__shared__ float of_warp[32];", "float of_warp[32];"),),
        ),
        Mistake(
            "shared-memory-reused",
            "One call is right, but the second goes wrong. "
            "A quick thread is already in the next call. "
            "It writes into shared memory that a slow one has still to read. "
            "What has to happen between the reading and the next writing?",
            used_again_too_soon,
            ((AGAIN, ""),),
            also=(used_again_too_soon_by_other_warps,),
        ),
        Mistake(
            "each-warp-alone",
            "Each warp gets the result of its own 32 threads. "
            "A shuffle does not reach beyond the warp. "
            "Results have to go from warp to warp through shared memory.",
            each_warp_alone,
            (
                (WRITE, WRITE.split("\n")[0]),
                (READ, "for (int warp = 0; warp < 0; ++warp) value"),
                (AGAIN, ""),
            ),
        ),
        Mistake(
            "result-in-some-threads",
            "Some threads have the result, but others are left with only a part of it. "
            "Every thread of the block needs the whole result.",
            known_to(WARP),
            (
                (
                    READ,
                    (
                        "if (threadIdx.x < 32) value = of_warp[0];\n"
                        "  for (int warp = 1; threadIdx.x < 32 && warp < blockDim.x / 32; "
                        "++warp) value"
                    ),
                ),
            ),
            also=(
                known_to(1),
                known_to(WARP, halves_by_shuffles),
                known_to_thread_0(lambda values: (values, values)),
                known_to_thread_0(parts_of_a_tree),
                known_to_thread_0(first_warps),
            ),
        ),
        Mistake(
            "max-starts-at-zero",
            "Where all values are negative, the maximum comes out as 0. "
            "A search for the largest value must not begin with a value that no thread "
            "brought. What can it begin with?",
            maximum_from_zero,
            (
                (
                    "value = of_warp[0];\n  for (int warp = 1;",
                    "value = 0.0f;\n  for (int warp = 0;",
                ),
            ),
            also=(zeros_for_missing_warps,),
        ),
        Mistake(
            "sum-starts-at-minus-infinity",
            "The sum begins with the smallest number that there is, "
            "and never gets away from it. That is a good start for a maximum. "
            "Which start is good for both?",
            sum_from(-torch.inf),
            (
                (
                    "value = of_warp[0];\n  for (int warp = 1;",
                    "value = -INFINITY;\n  for (int warp = 0;",
                ),
            ),
            also=(sum_from(-1e30), sum_from(torch.finfo(torch.float32).min)),
        ),
        Mistake(
            "distances-wrong",
            "Within a warp, some values do not come in, or come in more than once. "
            "32 lanes take five shuffles. With which distances?",
            shuffled_with(8, 4, 2, 1),
            (("int distance = 16", "int distance = 8"),),
            also=tuple(
                shuffled_with(*distances, partner_of=partner_of)
                for partner_of in (across, down)
                for distances in DISTANCES
            ),
        ),
        Mistake(
            "own-warp-twice",
            "The sum holds a part twice: the sum of some warp, or the value of a thread. "
            "If you start from a part, you must not add it again.",
            twice(lambda values: each_warp_alone(values)[1]),
            (("value = of_warp[0];\n  for (int warp = 1;", "for (int warp = 0;"),),
            also=(
                twice(lambda values: each_warp_alone(values)[1][..., :1]),
                twice(lambda values: values),
                twice(lambda values: values[..., :1]),
            ),
        ),
        Mistake(
            "number-of-warps-fixed",
            "The number of warps or threads is written into the code, "
            "but blocks have other sizes too. blockDim.x threads are blockDim.x / 32 warps, "
            "and there are at most 32 of them.",
            four_warps,
            (("warp < blockDim.x / 32", "warp < 4"),),
            also=(
                made_for(1024, True),
                made_for(128, True),
                made_for(128, False),
                made_for(256, True),
                made_for(256, False),
                made_for(512, True),
                made_for(512, False),
            ),
        ),
        Mistake(
            "only-the-first-warp-collects",
            "The first warp collects the warps' results, "
            "but the others come out with nothing: "
            "there threadIdx.x is larger than any warp's number. "
            "Which threads need the result? And which number does a thread have within "
            "its warp?",
            only_the_first_warp_collects,
            (
                (
                    READ,
                    (
                        "value = "
                        "threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0f;\n"
                        "  for (int distance = 16; distance > 0; distance /= 2)\n"
                        "    value"
                    ),
                ),
                (
                    "Operation::of(value, of_warp[warp])",
                    "Operation::of(value, __shfl_xor_sync(0xffffffff, value, distance))",
                ),
            ),
        ),
        Mistake(
            "operation-not-used",
            "block_max() and block_sum() give the same. Operation::of(a, "
            "b) says how two values become one. It is not the same operation for the two.",
            lambda values: (reduce(values)[1],) * 2,
            (("fmaxf(a, b)", "a + b"),),
            also=(lambda values: (reduce(values)[0],) * 2,),
        ),
        Mistake(
            "taken-not-combined",
            "What a shuffle brings replaces the thread's own value. "
            "The two have to be combined, or the thread's own value is lost.",
            taken_not_combined,
            ((SHUFFLE, SHUFFLE.replace("Operation::of(value, ", "").replace("));", ");")),),
        ),
        Mistake(
            "last-warp-left-out",
            "No thread's result includes the last warp's. "
            "The warps have the numbers 0 to blockDim.x / 32 - 1.",
            last_warp_left_out,
            (("warp < blockDim.x / 32", "warp < int(blockDim.x) / 32 - 1"),),
        ),
        Mistake(
            "not-a-power-of-two",
            "Values get lost where the number of threads is not a power of two. "
            "When an odd number of partners is halved, "
            "one of them has no partner to give its value to.",
            halves(lambda values: (values, values)),
            (
                (
                    "__shared__ float of_warp[32];",
                    (
                        "__shared__ float all[1024];\n"
                        "  int i = threadIdx.x;\n"
                        "  all[i] = value;\n"
                        "  __syncthreads();"
                    ),
                ),
                (
                    "for (int distance = 16; distance > 0; distance /= 2)",
                    "for (int n = blockDim.x / 2; n > 0; n /= 2)",
                ),
                (
                    SHUFFLE,
                    (
                        "if (i < n) all[i] = Operation::of(all[i], all[i + n]);\n"
                        "    __syncthreads();"
                    ),
                ),
                (WRITE, ""),
                (READ, "value = all[0];\n  for (int warp = 0; warp < 0; ++warp) value"),
                ("Operation::of(value, of_warp[warp])", "0.0f"),
            ),
            also=(halves(per_warp), halves_by_shuffles),
        ),
        Mistake(
            "absent-lane",
            "A shuffle waits for lanes that do not come. Its mask names all 32, "
            "but some of them did not enter the branch that it is in. "
            "All lanes of the mask have to reach the same shuffle.",
            found_above(0, "absent-lane"),
            ((SHUFFLE, f"if (threadIdx.x % 32 < distance) {SHUFFLE}"),),
            also=(absent_in_the_second_step,),
        ),
        Mistake(
            "mask-too-small",
            "The mask of a shuffle has a bit for each lane that takes part. "
            "Yours leaves out lanes that make the shuffle, "
            "or lanes that the shuffle reads from. Which mask names all 32?",
            found_above(0, "mask-too-small"),
            (("0xffffffff", "0xffff"),),
        ),
        Mistake(
            "first-warp-alone-shuffles",
            "Only the first warp puts its values together. "
            "From each other warp comes the value of one lane, and the rest is lost. "
            "Every warp has to shuffle.",
            first_warp_alone_shuffles,
            ((SHUFFLE, f"if (threadIdx.x < 32) {SHUFFLE}"),),
        ),
        Mistake(
            "updates-get-lost",
            "Several threads update one shared variable, and nothing keeps them apart. "
            "Two of them may read the same old value, "
            "and then one of the two updates is lost. "
            "Where could each warp leave its result without touching another's?",
            found_above(0, "non-atomic-update"),
            (
                (
                    "__shared__ float of_warp[32];",
                    (
                        "__shared__ float all;\n"
                        "  if (threadIdx.x == 0) all = value;\n"
                        "  __syncthreads();\n"
                        "  if (threadIdx.x > 0) all = Operation::of(all, value);\n"
                        "  __syncthreads();\n"
                        "  return all;\n"
                        "  __shared__ float of_warp[32];"
                    ),
                ),
            ),
            also=(
                found_above(WARP, "non-atomic-update"),
                found_above(2 * WARP, "non-atomic-update"),
                found_above(WARP, "non-atomic-update", otherwise=maximum_from_zero),
                found_above(WARP, "non-atomic-update", otherwise=found_above(0, "race")),
            ),
        ),
        Mistake(
            "warp-of-another-size",
            "A warp has 32 threads. You count warps of another size, "
            "so the places for the warps' results do not fit the warps.",
            found_above(WARP, "warp-size"),
            (("threadIdx.x / 32]", "threadIdx.x / 64]"),),
            also=(found_above(0, "warp-size"), half_of_the_warps),
        ),
        Mistake(
            "first-warp-for-all",
            "At the end the result of warp 0 is combined with itself, once for each warp. "
            "Which threads write the places that are read? Is there one for each warp? "
            "threadIdx.x / 32 is a thread's warp, and threadIdx.x % 32 is its lane.",
            first_warp_for_all,
            (
                (
                    WRITE,
                    WRITE.replace("% 32 == 0", "/ 32 == 0").replace(
                        "[threadIdx.x / 32]", "[threadIdx.x % 32]"
                    ),
                ),
            ),
        ),
        Mistake(
            "first-left-out",
            "The first of the parts that you combine is left out. "
            "If a loop begins with number 1, it needs number 0 as its start.",
            first_left_out(per_warp),
            (("value = of_warp[0];", "value = 0.0f;"),),
            also=(first_left_out(lambda values: (values, values)),),
        ),
        Mistake(
            "lane-without-the-result",
            "After the shuffles not every lane knows its warp's result, "
            "and you take it from a lane that does not. "
            "A shuffle in one direction leaves lanes at the end of the warp without "
            "a partner. Those get their own value.",
            lane_of_32(WARP - 1),
            (
                (SHUFFLE, SHUFFLE.replace("xor", "down")),
                ("threadIdx.x % 32 == 0", "threadIdx.x % 32 == 31"),
            ),
            also=(lane_of_32(0),),
        ),
    ),
    hints=(
        (
            "There are two steps. First the 32 threads of each warp combine their values "
            "with shuffles. After five shuffles every lane knows the result of its warp. "
            "Then combine the results of the warps."
        ),
        (
            "`__shfl_xor_sync(0xffffffff, value, distance)` gives the value of another lane: "
            "its number differs in one bit. With the distances 16, 8, 4, 2 and 1, "
            "every lane has met all others."
        ),
        (
            "One lane of each warp writes the warp's result to shared memory. "
            "When all have written, every thread can read all the results, at most 32, "
            "and combine them itself."
        ),
        "Think of the next call: which threads might still be reading what it writes?",
    ),
)
