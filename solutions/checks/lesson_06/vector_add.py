"""Exercise 6.1: one thread for each element."""

import torch

from lessons_lib.checks import Exercise, Mistake
from solutions.checks import tensors
from solutions.checks.lesson_06.native import Found, build, result_of
from solutions.checks.words import counted

OTHER_SIZES = (32, 64, 128, 512, 1024)  # of a block, should the learner have changed it


def add(a, b):
    return (a.double() + b.double()).float()


def fails(kind, when):
    """A kernel that gives a finding of this kind when(n, threads), for blocks of 256 threads and then of other sizes."""
    def model(threads):
        def wrong(a, b):
            if when(len(a), threads):
                raise Found(kind(len(a), threads) if callable(kind) else kind)
            return add(a, b)
        return wrong
    return model(256), tuple(map(model, OTHER_SIZES))


without_guard, without_guard_in_others = fails("out-of-bounds", lambda n, threads: n % threads)
one_block, one_block_of_others = fails("output-unwritten", lambda n, threads: n > threads)
rounded_down, rounded_down_in_others = fails(
    lambda n, threads: "bad-launch" if n < threads else "output-unwritten", lambda n, threads: n % threads)
blocks_overlap, blocks_overlap_in_others = fails("race-between-blocks", lambda n, threads: n > threads)


def each_thread_does_all(a, b):
    raise Found("race")


def last_left_out(a, b):
    raise Found("output-unwritten")


def prepare(answer):
    library = build(answer)

    def native(a, b):
        library.add(a, b, out := torch.empty_like(a), len(a))
        return out
    return native


def cases():
    yield from ((n, seed) for seed, n in enumerate((1, 2, 255, 256, 257, 512, 513, 3000)))


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
    observe=observe,
    describe=lambda case: f"vectors of {counted(case[0], 'element')}",
    same=tensors.same,
    show=tensors.show,
    mistakes=(
        Mistake("no-guard",
                "Threads behind the end of the vectors work too. Blocks are all of the same size, so the last one has "
                "threads for which there is no element. What should they do?",
                without_guard, (("if (i < n) ", ""),), also=without_guard_in_others),
        Mistake("one-block-only",
                "Only the elements of the first block are written. A block has 256 threads here; how many blocks does "
                "a vector of n elements take?",
                one_block, (("int blocks = (n + threads - 1) / threads;", "int blocks = 1;"),),
                also=one_block_of_others),
        Mistake("rounded-down",
                "The division rounds down, so the elements behind the last full block get no thread, and a short vector "
                "gets no block at all. The last block may be used in part: round up.",
                rounded_down, (("(n + threads - 1) / threads", "n / threads"),), also=rounded_down_in_others),
        Mistake("blocks-overlap",
                "Threads of different blocks work on the same element. threadIdx.x begins at 0 in each block. The "
                "number of a thread in the whole grid takes blockIdx.x, blockDim.x and threadIdx.x.",
                blocks_overlap, (("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x"),),
                also=blocks_overlap_in_others),
        Mistake("each-thread-does-all",
                "Every thread writes every element: the work is done thousands of times, and all of them write to the "
                "same places. Each thread has one element, and needs no loop.",
                each_thread_does_all, ((KERNEL, "for (int i = 0; i < n; ++i) out[i] = a[i] + b[i];"),)),
        Mistake("last-left-out",
                "The last element is not written. The indices of n elements go from 0 to n - 1.",
                last_left_out, (("i < n)", "i < n - 1)"),)),
    ),
    hints=(
        "Number the threads of the whole grid from 0. The first block has the numbers 0 to blockDim.x - 1. Where does the "
        "second block begin, and block number blockIdx.x?",
        "That number is the thread's element, if there is one: n need not be a multiple of the block size.",
        "How many blocks: so many that blocks * threads is at least n, and not a whole block more. 1 element takes 1 block, "
        "256 take 1, 257 take 2.",
    ),
)
