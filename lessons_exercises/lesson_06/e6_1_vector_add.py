"""Exercise 6.1: one thread for each element."""

import contextlib
import itertools
import math
import random

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_06.native import (
    STREAM,
    Found,
    asked,
    build,
    check_streams,
    result_of,
    show,
)
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake
from lessons_lib.cuda_on_cpu.reports import KernelError

OTHER_SIZES = (32, 64, 128, 512, 1024)  # of a block, if the learner has changed it
MOST_THREADS = 1024  # in a block
MANY = 1_000_000  # elements; the launcher is asked for its launch, which is not run
MOST_TO_SPARE = 2**20  # threads without an element, in a launch that the check waits for
TRACED = 3000  # elements; to note the writer of each one would take too long for more
LENGTHS = (1, 2, 64, 128, 255, 256, 257, 512, 513, 1024, 1025, TRACED, 256 * MOST_THREADS + 1)


def add(a, b):
    return (a.double() + b.double()).float()


def fails(kind, when):
    """A kernel that gives a finding of this kind when(n, threads).

    First for blocks of 256 threads, then of other sizes.
    """

    def model(threads):
        def wrong(a, b):
            if when(len(a), threads):
                raise Found(kind(len(a), threads) if callable(kind) else kind)
            return add(a, b)

        return wrong

    return model(256), tuple(map(model, OTHER_SIZES))


def unwritten_by(num_written):
    """The kind of finding when only the first num_written(n, threads) are written."""

    def kind(n, threads):
        written = num_written(n, threads)
        return (
            "unwritten-by-one-block"
            if n <= TRACED and 0 < written <= threads
            else "output-unwritten"
        )

    return kind


def rounded_down_to(n, threads):
    return (
        "bad-launch"
        if n < threads
        else unwritten_by(lambda n, threads: n // threads * threads)(n, threads)
    )


without_guard, without_guard_in_others = fails("out-of-bounds", lambda n, threads: n % threads)
one_block, one_block_of_others = fails(
    unwritten_by(lambda n, threads: threads), lambda n, threads: n > threads
)
rounded_down, rounded_down_in_others = fails(rounded_down_to, lambda n, threads: n % threads)
blocks_overlap, blocks_overlap_in_others = fails(
    "race-between-blocks", lambda n, threads: n > threads
)
last_left_out, last_left_out_in_others = fails(
    unwritten_by(lambda n, threads: n - 1), lambda n, threads: True
)
numbers_swapped, numbers_swapped_in_others = fails(
    "bad-launch", lambda n, threads: n > threads * MOST_THREADS
)


def parts_swapped_in(n, threads):
    return "unwritten-by-one-block" if n <= threads else "output-unwritten"


parts_swapped, parts_swapped_in_others = fails(parts_swapped_in, lambda n, threads: n > 1)
at_least_one, at_least_one_in_others = fails(
    unwritten_by(lambda n, threads: n // threads * threads),
    lambda n, threads: n > threads and n % threads,
)
own_number_guarded, own_number_guarded_in_others = fails(
    "out-of-bounds", lambda n, threads: n > threads and n % threads
)
first_block_twice, first_block_twice_in_others = fails(
    lambda n, threads: "race-between-blocks" if n > threads else "output-unwritten",
    lambda n, threads: True,
)
block_later, block_later_in_others = fails(
    lambda n, threads: (
        "unwritten-by-one-block"
        if threads < n <= min(2 * threads, TRACED)
        else "output-unwritten"
    ),
    lambda n, threads: True,
)


def kind_of_parts(n, threads):
    if n > threads + 1:
        return "race-between-blocks"
    return "unwritten-by-one-block" if n > threads else "output-unwritten"


parts_added, parts_added_in_others = fails(kind_of_parts, lambda n, threads: True)
all_in_one_block, _ = fails("bad-launch", lambda n, threads: n > MOST_THREADS)


def no_thread_behind(length):
    """A fixed number of blocks, two or more.

    length: the longest of the cases for which they are enough.
    """

    def wrong(a, b):
        if len(a) > length:
            raise Found("output-unwritten")
        return add(a, b)

    return wrong


def blocks_of(threads, counted):
    """Blocks of `threads`, where their number, or the index, is made for more.

    It is made for `counted` threads in each.
    """

    def wrong(a, b):
        if len(a) > threads:
            raise Found(
                "unwritten-by-one-block"
                if len(a) <= min(counted, TRACED)
                else "output-unwritten"
            )
        return add(a, b)

    return wrong


def added_to_out(a, b):
    raise Found("output-read")


def several_threads_for_one(a, b):
    raise Found("several-writers")


def nothing_launched(a, b):
    raise Found("nothing-launched")


def always(kind):
    def wrong(a, b):
        raise Found(kind)

    return wrong


def default_stream_only(a, b):
    """Vectors of an even length come on the default stream."""
    if len(a) % 2:
        raise Found("stream-ignored")
    return add(a, b)


def in_the_longest(kind):
    """Right as far as numbers go.

    What was launched is judged in the longest case, when all the others have passed.
    """

    def wrong(a, b):
        if len(a) > TRACED:
            raise Found(kind)
        return add(a, b)

    return wrong


def prepare(answer):
    library = build(answer)
    wasteful = what_is_wasted(library)

    def run(a, b):
        out = torch.empty_like(a)
        stream = STREAM if len(a) % 2 else 0
        with library.launches(stream=stream) as launches:
            library.add(a, b, out, len(a))
        check_streams(launches, stream)
        return out

    def native(a, b):
        if wasteful:
            raise KernelError(*wasteful)
        try:
            out = run(a, b)
        except KernelError as error:
            if error.kind == "output-unwritten" and len(a) <= TRACED:
                error.kind = why_unwritten(error, library, a, b)
            raise
        if launch_for(library, len(a)).returned == 0:
            raise KernelError(
                "The launch was made to fail, and the launcher returned 0.",
                "error-not-returned",
            )
        if len(a) > TRACED:
            look_at_fixed_grid(library, run)
        return out

    return native


def launch_for(library, n):
    """What the launcher asks for, for n elements.

    Nothing runs, so it does not matter that the tensors have only one.
    """
    number = torch.zeros(1)
    return asked(library, lambda: library.add(number, number, torch.empty(1), n))


def threads_of(launches):
    return sum(math.prod((*launch.grid, *launch.block)) for launch in launches)


def what_is_wasted(library):
    """Message and kind of a launch with far too many threads, which would never end.

    It is looked at for one element and for a million.
    """
    one, many = launch_for(library, 1), launch_for(library, MANY)
    spare = max(threads_of(one) - 1, threads_of(many) - MANY)
    if not (one and many) or spare <= MOST_TO_SPARE:
        return None
    fixed = one[0].grid == many[0].grid
    words = (
        f"For a vector of {counted(1 if fixed else MANY, 'element')} the launch asks "
        f"for {threads_of(one if fixed else many):,} threads."
    )
    return words, "number-of-blocks-fixed" if fixed else "a-block-for-each-element"


def look_at_fixed_grid(library, run):
    """A launch that is the same for every length needs a loop in the kernel.

    The loop must do one element more than there are threads. And a loop in one block leaves
    the rest of the GPU empty.
    """
    one, many = launch_for(library, 1), launch_for(library, MANY)
    if not (one and many) or one[0].grid != many[0].grid:
        return
    n = threads_of(many) + 1
    if n > LENGTHS[-1]:
        a, b = torch.ones(2, n)
        run(a, b)
    if math.prod(many[0].grid) == 1:
        raise KernelError(
            f"{many[0].kernel} was launched in one block, for {MANY:,} elements too.",
            "one-block-in-a-loop",
        )


def why_unwritten(error, library, a, b):
    """A more exact kind for elements that were not written.

    There was no thread to do it, or only a single block.
    """
    if "launched no kernel" in str(error):
        return "nothing-launched"
    with library.trace("out") as accesses, contextlib.suppress(KernelError):
        library.add(a, b, torch.empty_like(a), len(a))
    return (
        "unwritten-by-one-block"
        if len({access.block for access in accesses}) == 1
        else error.kind
    )


def cases():
    """The last one is so long that 256 blocks cannot do it, however many threads they have."""
    yield from ((n, seed) for seed, n in enumerate(LENGTHS))


def hidden(seed):
    """A few elements, then lengths around whole blocks of 256.

    At the end, one that 256 blocks cannot do.
    """
    chance = random.Random(seed)
    around = (
        256 * chance.randint(3, 10) + more
        for more in (0, 0, 1, -1, 128, chance.randrange(256))
    )
    for n in (chance.randint(3, 254), *around, 256 * MOST_THREADS + chance.randint(2, 900)):
        yield n, chance.randrange(2**31)


def observe(subject, case):
    n, seed = case
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, n, generator=generator)
    return result_of(lambda: subject(a, b))


KERNEL = "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) out[i] = a[i] + b[i];"

EXERCISE = Exercise(
    id="6.1",
    title="one thread for each element",
    answer_name="vector_add",
    language="cuda",
    reference=add,
    prepare=prepare,
    cases=cases,
    size=lambda case: case[0],
    hidden=hidden,
    observe=observe,
    # the longest is for one mistake; others look different there
    chancy=lambda case: case[0] > TRACED,
    describe=lambda case: f"vectors of {counted(case[0], 'element')}",
    same=tensors.same,
    show=show,
    # a million threads in each case take a few seconds, and more on a busy machine
    time_limit=60.0,
    mistakes=(
        Mistake(
            "no-guard",
            "A thread past the end of the vectors works too. All blocks have the same size, "
            "so the last one has threads without an element, from number n on. "
            "What should these threads do?",
            without_guard,
            (("if (i < n) ", ""),),
            also=without_guard_in_others,
        ),
        Mistake(
            "one-block-only",
            "Only the elements of the first block are written. A block has 256 threads here. "
            "How many blocks does a vector of n elements take?",
            one_block,
            (("int blocks = (n + threads - 1) / threads;", "int blocks = 1;"),),
            also=one_block_of_others,
        ),
        Mistake(
            "rounded-down",
            "The division rounds down. So the elements after the last full block get no "
            "thread, and a short vector gets no block at all. "
            "The last block may be only partly used: round up.",
            rounded_down,
            (("(n + threads - 1) / threads", "n / threads"),),
            also=(*rounded_down_in_others, at_least_one, *at_least_one_in_others),
        ),
        Mistake(
            "blocks-overlap",
            "Threads of different blocks work on the same element. "
            "threadIdx.x begins at 0 in each block. "
            "The number of a thread in the whole grid takes blockIdx.x, "
            "blockDim.x and threadIdx.x.",
            blocks_overlap,
            (("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x"),),
            also=blocks_overlap_in_others,
        ),
        Mistake(
            "same-element-in-many-threads",
            "Several threads of a block write the same element. "
            "Each thread should have its own element. "
            "blockIdx.x, blockDim.x and threadIdx.x together say which one.",
            several_threads_for_one,
            ((KERNEL, "for (int i = 0; i < n; ++i) out[i] = a[i] + b[i];"),),
        ),
        Mistake(
            "last-left-out",
            "The first or the last element is not written. "
            "The indices of n elements go from 0 to n - 1.",
            last_left_out,
            (("i < n)", "i < n - 1)"),),
            also=last_left_out_in_others,
        ),
        Mistake(
            "launch-numbers-swapped",
            "The number of blocks and the number of threads in a block have changed places. "
            "It goes well as long as both are small. "
            "But a block can have at most 1,024 threads, and a long vector asks for more. "
            "Which of the two numbers may grow?",
            numbers_swapped,
            (("<<<blocks, threads,", "<<<threads, blocks,"),),
            also=numbers_swapped_in_others[:3],
        ),
        Mistake(
            "index-parts-swapped",
            "The three parts of the index are there, but two of them have changed places. "
            "Block 1 begins after all threads of block 0. "
            "Where does block number blockIdx.x begin?",
            parts_swapped,
            (
                (
                    "blockIdx.x * blockDim.x + threadIdx.x",
                    "threadIdx.x * blockDim.x + blockIdx.x",
                ),
            ),
            also=parts_swapped_in_others,
        ),
        Mistake(
            "all-in-one-block",
            "All threads are asked for in one block, but a block has at most 1,024. "
            "It is the number of blocks that may grow.",
            all_in_one_block,
            (("<<<blocks, threads,", "<<<1, n,"),),
        ),
        Mistake(
            "a-block-for-each-element",
            "There are as many blocks as elements, and each block has many threads. "
            "So nearly all threads have nothing to do. "
            "How many blocks does it take to have a thread for each element?",
            always("a-block-for-each-element"),
            (("int blocks = (n + threads - 1) / threads;", "int blocks = n;"),),
        ),
        Mistake(
            "added-to-out",
            "The sum is added to what is in out. But out is an output: "
            "before the first write it holds whatever was in that memory.",
            added_to_out,
            (("if (i < n) out[i] =", "if (i < n) out[i] +="),),
        ),
        Mistake(
            "nothing-launched",
            "No kernel is started, so nothing is written. To start one, write its name, "
            "then <<<blocks, threads, 0, stream>>>, and then the arguments.",
            nothing_launched,
            (("  add_kernel<<<blocks, threads, 0, stream>>>(a, b, out, n);\n", ""),),
        ),
        Mistake(
            "guard-within-the-block",
            "The guard looks at threadIdx.x. That number begins at 0 in each block "
            "and is nearly always below n. So threads past the end of the vectors work all "
            "the same. Which number has to be below n?",
            own_number_guarded,
            (("if (i < n)", "if (threadIdx.x < n)"),),
            also=own_number_guarded_in_others,
        ),
        Mistake(
            "number-of-blocks-fixed",
            "The number of blocks does not grow with the vector. With a short vector, "
            "most blocks have nothing to do. A longer vector has more elements "
            "than the blocks have threads. How many blocks does a vector of n elements take?",
            no_thread_behind(TRACED),
            (("int blocks = (n + threads - 1) / threads;", "int blocks = 256;"),),
            also=(
                *map(no_thread_behind, LENGTHS[2:-2]),
                in_the_longest("output-unwritten"),
                always("number-of-blocks-fixed"),
            ),
        ),
        Mistake(
            "one-block-in-a-loop",
            "One block does all the work, in a loop. The result is right, "
            "but the rest of the GPU has nothing to do. Blocks run side by side, "
            "so a long vector takes many of them. "
            "The exercise asks for one thread for each element.",
            in_the_longest("one-block-in-a-loop"),
            (
                ("int blocks = (n + threads - 1) / threads;", "int blocks = 1;"),
                ("if (i < n) out", "for (; i < n; i += blockDim.x) out"),
            ),
        ),
        Mistake(
            "stream-ignored",
            "The launch does not name the stream that the launcher was given. "
            "So the kernel goes to the default stream, while PyTorch may be working "
            "on another. The stream is the fourth thing between <<< and >>>.",
            default_stream_only,
            (("<<<blocks, threads, 0, stream>>>", "<<<blocks, threads>>>"),),
        ),
        Mistake(
            "error-not-returned",
            "When the launch fails, the caller does not learn of it. "
            "A launch itself returns nothing. Return what cudaGetLastError() says after it.",
            always("error-not-returned"),
            (("return cudaGetLastError();", "return 0;"),),
        ),
        Mistake(
            "block-sizes-disagree",
            "The blocks that you launch have fewer threads than you count on elsewhere, "
            "so some elements get no thread. The launch, "
            "the number of blocks and the index have to agree on the size of a block.",
            blocks_of(128, counted=256),
            (("<<<blocks, threads,", "<<<blocks, 128,"),),
            also=tuple(
                itertools.starmap(
                    blocks_of, itertools.combinations(sorted((256, *OTHER_SIZES)), 2)
                )
            ),
        ),
        Mistake(
            "first-block-begins-too-far",
            "The first elements are left out: the threads of block 0 begin at element "
            "blockDim.x. No block comes before block 0. What is blockIdx.x there, "
            "and what should it do in the index?",
            first_block_twice,
            (("blockIdx.x * blockDim.x + threadIdx.x", "blockDim.x + threadIdx.x"),),
            also=(
                *first_block_twice_in_others,
                block_later,
                *block_later_in_others,
                parts_added,
                *parts_added_in_others,
            ),
        ),
    ),
    hints=(
        (
            "Number the threads of the whole grid from 0. "
            "The first block has the numbers 0 to blockDim.x - 1. "
            "Where does the second block begin? Where does block number blockIdx.x begin?"
        ),
        (
            "That number is the thread's element, if such an element exists: "
            "n need not be a multiple of the block size."
        ),
        (
            "Take enough blocks that blocks * threads is at least n, "
            "and not a whole block more. 1 element takes 1 block, 256 take 1, 257 take 2."
        ),
    ),
)
