"""What orders two accesses: random kernels, against an oracle made from the start of clock.h.

Take two accesses to the same bytes by two threads. One changes them and is not atomic with
the other. They are a race exactly if nothing orders them. On every schedule such a pair is
named. A kernel without such a pair passes."""

import re
from dataclasses import dataclass

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cuda_text import Kernels
from examples import few
from lessons_lib import KernelError

NOTHING, READ, WRITE, ADD, READ_BYTE, WRITE_BYTE, COPY, FENCE, BARRIER, MEET = range(10)
SHARED, TENSOR = 0, 1
TEXT = """
// Each step: what, in which memory, and the byte or the mask.
__global__ void follow_kernel(const int* steps, int count, int filled, int* x) {
  __shared__ int shared[4];
  unsigned thread = threadIdx.x + blockDim.x * threadIdx.y;
  if (filled) {
    if (thread < 4) shared[thread] = 0;
    __syncthreads();
  }
  const int* step = steps + (blockIdx.x * blockDim.x * blockDim.y + thread) * count * 3;
  for (int i = 0; i < count; ++i, step += 3) {
    int* memory = step[1] ? x : shared;
    char* byte = reinterpret_cast<char*>(memory) + step[2];
    int seen = 0;
    if (step[0] == 1) seen = memory[step[2] / 4];  // reads
    if (step[0] == 2) memory[step[2] / 4] = 5;  // writes
    if (step[0] == 3) atomicAdd(memory + step[2] / 4, 1);  // adds
    if (step[0] == 4) seen = *byte;  // reads a byte
    if (step[0] == 5) *byte = 6;  // writes a byte
    if (step[0] == 6) memcpy(byte, &i, 4);  // copies four bytes
    if (step[0] == 7) __threadfence();
    if (step[0] == 8) __syncthreads();
    if (step[0] == 9) __syncwarp(step[2]);
    asm volatile("" :: "r"(seen));
  }
}
extern "C" int follow(const int* steps, int count, int filled, int* x, int blocks, int width,
                      int height, int launches, cudaStream_t stream) {
  int all = blocks * width * height * count * 3;
  for (int launch = 0; launch < launches; ++launch)
    follow_kernel<<<blocks, dim3(width, height), 0, stream>>>(steps + launch * all, count,
                                                              filled, x);
  return cudaGetLastError();
}
"""
WIDTH, HEIGHT = 35, 2
THREADS = WIDTH * HEIGHT
BUSY = (0, 1, 2, 30, 31, 32, 33, 63, 64, 69)
WARPS = (range(0, 32), range(32, 64), range(64, THREADS))
# What an error calls it now, what it calls it afterwards, and the end of its line.
DOES = {
    READ: ("reads", "read", "// reads"),
    WRITE: ("writes", "wrote", "// writes"),
    ADD: ("updates", "updated atomically", "// adds"),
    READ_BYTE: ("reads", "read", "// reads a byte"),
    WRITE_BYTE: ("writes", "wrote", "// writes a byte"),
    COPY: ("writes", "wrote", "// copies four bytes"),
}


checked = Kernels(TEXT, "order")


def line_of(what: int) -> int:
    lines = TEXT.split("\n")
    (found,) = [at for at, line in enumerate(lines, 1) if line.endswith(DOES[what][2])]
    return found


@dataclass(frozen=True)
class Access:
    """By `thread` of `block`. `interval`: how many barriers of the block lie before it;
    `known`: the accesses of the block that are ordered before it.
    """

    block: int
    thread: int
    what: int
    where: int
    byte: int
    interval: int
    number: int
    known: frozenset

    def bytes(self) -> range:
        return range(self.byte, self.byte + (1 if self.what in (READ_BYTE, WRITE_BYTE) else 4))


def accesses_of(block: int, sections: list) -> list[Access]:
    """Each section is the accesses of each thread, as (what, where, byte), then a barrier of
    the block or meetings of lanes: None, or lane of all warps to the mask that it meets
    with.
    """
    known: list[set] = [set() for _ in range(THREADS)]
    found, interval = [], 0
    for accesses, masks in sections:
        for thread, steps in accesses.items():
            for step in steps:
                before = frozenset(known[thread])
                found.append(Access(block, thread, *step, interval, len(found), before))
                known[thread].add(len(found) - 1)
        if masks is None:
            interval += 1
        for group in [range(THREADS)] if masks is None else groups(masks):
            together = set().union(*(known[thread] for thread in group))
            for thread in group:
                known[thread] = set(together)
    return found


def groups(masks: dict[int, int]) -> list[list[int]]:
    return [
        [warp[lane] for lane in range(len(warp)) if mask >> lane & 1]
        for warp in WARPS
        for mask in {masks[thread] for thread in warp if thread in masks}
    ]


def clash(a: Access, b: Access) -> bool:
    """Whether they touch the same bytes and one of them needs to come first."""
    overlap = a.where == b.where and set(a.bytes()) & set(b.bytes())
    harmless = {a.what, b.what} <= {READ, READ_BYTE} or a.what == b.what == ADD
    return bool(overlap) and not harmless and (a.block, a.thread) != (b.block, b.thread)


def races(accesses: list[Access]) -> list[tuple[Access, Access]]:
    return [
        (a, b)
        for b in accesses
        for a in accesses[: b.number]
        if clash(a, b) and a.number not in b.known and b.number not in a.known
    ]


def unwritten(accesses: list[Access]) -> list[Access]:
    """Reads of shared bytes to which nothing is written that is ordered before. (Updates read
    as well; of several without an order, any may be the first.)
    """
    changes = (WRITE, WRITE_BYTE, COPY, ADD)
    return [
        access
        for access in accesses
        if access.where == SHARED
        and access.what not in (WRITE, WRITE_BYTE, COPY)
        and not set(access.bytes())
        <= {
            byte
            for number in access.known
            for byte in accesses[number].bytes()
            if accesses[number].where == SHARED and accesses[number].what in changes
        }
    ]


def follow(launches: list[list[list]], filled: bool = True, seed: int = 0):
    """Runs the sections of each block of each launch, and returns the error or None."""
    columns = [
        [steps_of(sections, thread) for sections in blocks for thread in range(THREADS)]
        for blocks in launches
    ]
    count = max(len(steps) for blocks in columns for steps in blocks)
    table = torch.zeros(len(launches), len(columns[0]), count, 3, dtype=torch.int32)
    for number, blocks in enumerate(columns):
        for row, steps in enumerate(blocks):
            if steps:
                table[number, row, : len(steps)] = torch.tensor(steps)
    checked().options(seed=seed)
    try:
        x, blocks = torch.zeros(4, dtype=torch.int32), len(launches[0])
        checked().follow(table, count, filled, x, blocks, WIDTH, HEIGHT, len(launches))
    except KernelError as error:
        return error
    finally:
        checked().options()


def steps_of(sections, thread: int) -> list[tuple[int, int, int]]:
    steps = []
    for accesses, masks in sections:
        steps += accesses.get(thread, ())
        if masks is None:
            steps.append((BARRIER, 0, 0))
        elif thread in masks:
            mask = masks[thread]
            steps.append((MEET, 0, mask - (mask >> 31 << 32)))
    return steps


whole = st.sampled_from([(what, byte) for what in (READ, WRITE, ADD) for byte in (0, 4)])
whole_or_parts = whole | st.tuples(
    st.sampled_from([READ_BYTE, WRITE_BYTE, COPY]), st.sampled_from(range(6))
)


@st.composite
def section_lists(draw, accesses=whole_or_parts):
    """Up to five sections, in which a few threads do a thing or two in one memory."""
    threads = draw(st.lists(st.sampled_from(BUSY), min_size=2, max_size=5, unique=True))
    where = draw(st.sampled_from([SHARED, TENSOR]))
    steps = st.lists(
        accesses.map(lambda access: (access[0], where, access[1])), min_size=1, max_size=2
    )
    sections = []
    for _ in range(draw(st.integers(1, 5))):
        done = draw(st.dictionaries(st.sampled_from(threads), steps, max_size=3))
        group = {thread: draw(st.integers(0, 2)) for thread in threads}
        masks = {
            thread: sum(
                1 << lane
                for lane in range(32)
                if group.get(thread // 32 * 32 + lane) == group[thread]
            )
            for thread in threads
            if group[thread]
        }
        sections.append((done, masks if any(group.values()) else None))
    return sections


def number_of(index: tuple[int, int, int]) -> int:
    return index[0] + WIDTH * index[1]


def judge(error: KernelError | None, accesses: list[Access], filled: bool):
    """`error` is what has to be said of these accesses of one block."""
    pairs, missing = races(accesses), [] if filled else unwritten(accesses)
    if not pairs and not missing:
        assert error is None, error
        return
    assert error is not None, (pairs, missing)
    interval = min(access.interval for access in [*missing, *(a for a, _ in pairs)])
    pairs = [(a, b) for a, b in pairs if a.interval == interval]
    thread = number_of(error.thread)
    if not pairs:
        assert error.kind == "shared-uninitialised" and error.name == "shared", error
        assert any(
            (access.thread, line_of(access.what)) == (thread, error.line) for access in missing
        ), error
        return
    apart = [pair for pair in pairs if pair[0].thread // 32 != pair[1].thread // 32]
    certain = [
        pair
        for pair in apart
        if {pair[0].what, pair[1].what} not in ({READ, ADD}, {READ_BYTE, ADD})
    ]
    assert error.kind in ({"race"} if certain else {"race", "missing-syncwarp"}), error
    words = re.match(
        r"Thread (.+) (reads|writes|updates) (.+?)( atomically)?, which thread (.+?)(?: of the"
        r" same warp)? "
        r"(read|wrote|updated atomically), and n",
        str(error),
    )
    assert words, error
    other = number_of((*map(int, re.findall(r"\d+", words[5])), 0)[:2])
    assert (thread // 32 == other // 32) == (error.kind == "missing-syncwarp")
    assert any(
        (mine.thread, others.thread) == (thread, other)
        and (words[2], words[6]) == (DOES[mine.what][0], DOES[others.what][1])
        and line_of(mine.what) == error.line
        and error.name == ("shared", "x")[mine.where]
        and f"line {line_of(others.what)}:" in str(error)
        and element(words[3]) in {*mine.bytes()} & {*others.bytes()}
        for pair in pairs
        for mine, others in (pair, pair[::-1])
    ), (error, pairs)


def element(words: str) -> int:
    """The byte of `x[1]`, or of `byte 5 of x (in x[1])`."""
    found = re.search(r"byte (\d+) of", words)
    return int(found[1]) if found else 4 * int(re.search(r"\[(\d+)\]", words)[1])


def doing(what: int, *threads: int, where: int = SHARED, byte: int = 0) -> dict:
    return {thread: [(what, where, byte)] for thread in threads}


def masks_of(*groups: tuple[int, ...]) -> dict[int, int]:
    """The lanes of each group meet."""
    return {
        thread: sum(1 << other % 32 for other in group) for group in groups for thread in group
    }


# thread 63 read too, but before it met thread 32
READ_THEN_MET = [
    (doing(READ, 33, 63, where=TENSOR, byte=4), masks_of((32, 63))),
    (doing(WRITE, 32, where=TENSOR, byte=4), None),
]
# everything is ordered, though 34 read at a later time of its own than 33
ORDERED_BY_MEETINGS = [
    ({}, masks_of((32, 34))),
    (doing(READ, 33, 34), masks_of((33, 63))),
    ({}, masks_of((34, 63))),
    (doing(WRITE, 63), None),
]
LOWER, MIDDLE = masks_of(tuple(range(16))), masks_of(tuple(range(8, 24)))


@given(section_lists(whole) | section_lists(), st.booleans(), st.integers(0, 3))
@example([(doing(WRITE, 0) | doing(READ, 33), None)], True, 0)
@example([(doing(WRITE, 0), None), (doing(READ, 33), None)], True, 0)
@example([(doing(READ, 0, 32) | doing(WRITE, 33), None)], True, 0)
@example([(doing(READ, 0, 32) | doing(WRITE, 1), None)], True, 0)
@example([(doing(READ, 0, 32, 33) | doing(WRITE, 63), None)], True, 0)
@example([(doing(READ, 0, 1, 2), masks_of((0, 1))), (doing(WRITE, 1), None)], True, 0)
@example([(doing(WRITE, 3), LOWER), (doing(READ, 9, 20), None)], True, 0)
@example([(doing(WRITE, 0), LOWER), ({}, MIDDLE), (doing(READ, 20), None)], False, 1)
@example([(doing(WRITE, 0), MIDDLE), ({}, LOWER), (doing(READ, 20), None)], False, 1)
@example(READ_THEN_MET, False, 0)
@example(ORDERED_BY_MEETINGS, True, 0)
@example([({0: [(COPY, TENSOR, 2)], 33: [(WRITE_BYTE, TENSOR, 0)]}, None)], True, 0)
@few(80, drawn_anew=200)
def test_a_race_is_named_exactly_where_nothing_orders_two_accesses(sections, filled, seed):
    judge(follow([[sections]], filled, seed), accesses_of(0, sections), filled)


@given(st.lists(section_lists(), min_size=2, max_size=3), st.integers(0, 3))
@settings(max_examples=50)
def test_the_end_of_a_launch_orders_all(launches, seed):
    """So the first launch with a race is the one that is told of, and what came before it is
    never a part of it.
    """
    error = follow([[sections] for sections in launches], True, seed)
    for sections in launches:
        accesses = accesses_of(0, sections)
        if races(accesses):
            return judge(error, accesses, True)
    assert error is None, error


FLAG = 12  # the byte that only atomic operations touch
data = st.tuples(st.sampled_from([READ, WRITE]), st.just(TENSOR), st.sampled_from([0, 4]))
hand_over = [(FENCE, 0, 0), (ADD, TENSOR, FLAG)]
read, write = (READ, TENSOR, 0), (WRITE, TENSOR, 0)
turns = st.lists(
    st.tuples(
        st.sampled_from(BUSY),
        st.lists(data, min_size=1, max_size=2)
        | st.sampled_from([hand_over[:1], hand_over[1:], hand_over])
        | data.map(lambda access: [access, *hand_over]),
    ),
    min_size=1,
    max_size=4,
)


def handed_over(steps: list, place: int) -> bool:
    """Whether a thread of the block makes an atomic operation after `place` and after a fence.

    When the fence was is not watched (README.md).
    """
    fences = [number for number, (_, what) in enumerate(steps) if what == FENCE]
    return any(
        what == ADD and number > place and fences and fences[0] < number
        for number, (_, what) in enumerate(steps)
    )


@given(turns, turns, st.integers(0, 3))
@example([(0, [write, *hand_over])], [(5, hand_over[1:]), (64, [read])], 0)
@example([(0, [write, *hand_over])], [(64, [read])], 0)
@example([(0, [write]), (2, hand_over)], [(5, hand_over[1:]), (64, [write])], 0)
@example([(0, [write]), (2, hand_over[1:])], [(5, hand_over[1:]), (64, [write])], 0)
@few(60, drawn_anew=150)
def test_a_block_knows_of_another_only_what_was_handed_over(first, second, seed):
    """By the one's __threadfence, then its atomic operation, then an atomic operation of the
    other. One thread at a time.
    """
    sections = [
        [({thread: steps}, None) for thread, steps in turns] for turns in (first, second)
    ]
    error = follow([sections], True, seed)
    before = [(thread, step) for thread, steps in first for step in steps]
    plain = [(thread, step[0]) for thread, step in before]
    acquired = False
    for thread, step in ((thread, step) for thread, steps in second for step in steps):
        what, _, byte = step
        acquired |= what == ADD
        others = {
            other
            for place, (_, (other, _, at)) in enumerate(before)
            if at == byte
            and WRITE in (other, what)
            and {other, what} <= {READ, WRITE}
            and not (acquired and handed_over(plain, place))
        }
        if not others:
            continue
        assert error is not None and error.kind == "race-between-blocks", error
        assert error.block == (1, 0, 0) and number_of(error.thread) == thread, error
        now = f"of block 1 {DOES[what][0]} x[{byte // 4}]"
        said = {
            other
            for other in others
            if f"{now}, which block 0 {DOES[other][1]} in the same" in str(error)
            and f"line {line_of(other)}:" in str(error)
        }
        assert error.line == line_of(what) and len(said) == 1, error
        return
    assert error is None, error


def test_warps_of_a_block_hand_over_for_themselves():
    """What another warp did since the last barrier, no barrier orders before the hand-over."""

    writer, publisher = {33: [write]}, {0: [(WRITE, TENSOR, 4), *hand_over]}
    apart, together = [(writer, None), (publisher, None)], [(writer | publisher, None)]
    reader = [({1: hand_over[1:]}, None), ({2: [(READ, TENSOR, 4)], 3: [read]}, None)]
    for seed in range(4):
        assert follow([[apart, reader]], True, seed) is None
        error = follow([[together, reader]], True, seed)
        assert error.kind == "race-between-blocks" and error.thread == (3, 0, 0)
        assert "x[0]" in str(error)
    assert follow([[together], [reader]]) is None  # in another launch


def test_what_a_block_did_counts_until_the_launch_ends():
    """Also beyond blocks that had nothing to do with it."""
    does = ({0: [write]}, {0: [(WRITE, TENSOR, 4)]}, {7: [read]})
    error = follow([[[(accesses, None)] for accesses in does]])
    assert error.kind == "race-between-blocks" and error.block == (2, 0, 0)
    assert "which block 0 wrote" in str(error)
