"""Exercise 5.2: room for the new tokens of a whole batch, or for none of them."""

import copy
import random
from collections import Counter

from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.block_manager import OutOfBlocksError
from paged_attention.kv_cache import PagedAttentionManager
from paged_attention.validate import check_scheduled

UNWRITTEN = -7.0  # what the pool holds before anything is written
OTHER_ERRORS = (ValueError, MemoryError, AssertionError, RuntimeError, Exception)
LIST_CHANGED = Text("the list of the batch has been changed")


def append_all(self, scheduled):
    for seq_id, num_tokens in scheduled:
        for _ in range(num_tokens):
            self.append_token(seq_id)


def refuse_beyond(self, num_needed):
    num_free = self.block_manager.get_num_free_blocks()
    if num_needed > num_free:
        raise OutOfBlocksError(f"the batch needs {num_needed} blocks, and {num_free} are free")


def fresh_blocks(self, scheduled):
    """The blocks that follow full ones, copies not counted."""
    return sum(
        self.blocks_for(self.get(seq_id).length + num_tokens)
        - self.blocks_for(self.get(seq_id).length)
        for seq_id, num_tokens in scheduled
    )


def shared_last_blocks(self, scheduled):
    """For each writer into a shared, partly filled block: that block."""
    written = [
        self.blocks_of(seq_id)[-1]
        for seq_id, _ in scheduled
        if self.get(seq_id).length % self.block_size
    ]
    return [block_id for block_id in written if self.block_manager.get_ref_count(block_id) > 1]


def copies(self, scheduled):
    shared = shared_last_blocks(self, scheduled)
    return sum(
        min(shared.count(block_id), self.block_manager.get_ref_count(block_id) - 1)
        for block_id in set(shared)
    )


def append_tokens(self, scheduled):
    check_scheduled(scheduled)
    check_deleted(self, scheduled)


def check_deleted(self, scheduled):
    refuse_beyond(self, fresh_blocks(self, scheduled) + copies(self, scheduled))
    append_all(self, scheduled)


def leak_on_failed_append(self, scheduled):
    append_all(self, scheduled)


def counts_one_block_each(self, scheduled):
    for seq_id, num_tokens in scheduled:
        self.blocks_for(self.get(seq_id).length + num_tokens)
    refuse_beyond(self, len(scheduled))
    append_all(self, scheduled)


def counts_blocks_it_has(self, scheduled):
    refuse_beyond(
        self,
        sum(
            self.blocks_for(self.get(seq_id).length + num_tokens)
            for seq_id, num_tokens in scheduled
        )
        + copies(self, scheduled),
    )
    append_all(self, scheduled)


def counts_blocks_it_has_without_copies(self, scheduled):
    refuse_beyond(
        self,
        sum(
            self.blocks_for(self.get(seq_id).length + num_tokens)
            for seq_id, num_tokens in scheduled
        ),
    )
    append_all(self, scheduled)


def ignores_room_in_last_block(self, scheduled):
    for seq_id, num_tokens in scheduled:
        self.blocks_for(self.get(seq_id).length + num_tokens)
    refuse_beyond(
        self,
        sum(-(-num_tokens // self.block_size) for _, num_tokens in scheduled)
        + copies(self, scheduled),
    )
    append_all(self, scheduled)


def ignores_room_and_copies(self, scheduled):
    for seq_id, num_tokens in scheduled:
        self.blocks_for(self.get(seq_id).length + num_tokens)
    refuse_beyond(self, sum(-(-num_tokens // self.block_size) for _, num_tokens in scheduled))
    append_all(self, scheduled)


def new_tokens_alone(num_blocks, copies_too):
    """A wrong answer that counts num_blocks(self, scheduled).

    It leaves the length of a row to append_token().
    """

    def wrong(self, scheduled):
        refuse_beyond(
            self, num_blocks(self, scheduled) + (copies(self, scheduled) if copies_too else 0)
        )
        append_all(self, scheduled)

    return wrong


def blocks_of_each(self, scheduled):
    return sum(self.blocks_for(num_tokens) for _, num_tokens in scheduled)


def blocks_of_all_together(self, scheduled):
    return self.blocks_for(sum(num_tokens for _, num_tokens in scheduled))


def no_last_block(count):
    """A wrong answer that looks at the last block of every sequence.

    It counts copies in this way.
    """

    def wrong(self, scheduled):
        for seq_id, _ in scheduled:
            self.blocks_of(seq_id)[-1]
        refuse_beyond(self, fresh_blocks(self, scheduled) + count(self, scheduled))
        append_all(self, scheduled)

    return wrong


def other_error(error):
    """A right answer but for the error that it raises when the batch does not fit."""

    def wrong(self, scheduled):
        try:
            append_tokens(self, scheduled)
        except OutOfBlocksError:
            raise error("the batch does not fit") from None

    return wrong


def without_copies(refuse):
    """A wrong answer that has no copies in its count, and refuses a batch in this way."""

    def wrong(self, scheduled):
        if fresh_blocks(self, scheduled) > self.block_manager.get_num_free_blocks():
            return refuse()
        append_all(self, scheduled)

    return wrong


def raising(error):
    def refuse():
        raise error("the batch does not fit")

    return refuse


def lengths_put_back(self, scheduled):
    lengths = {seq_id: self.get(seq_id).length for seq_id, _ in scheduled}
    try:
        append_all(self, scheduled)
    except Exception:
        for seq_id, length in lengths.items():
            self.get(seq_id).length = length
        raise


def tokens_taken_back(self, scheduled):
    """The tokens that were appended are taken off the lengths again."""
    appended = []
    try:
        for seq_id, num_tokens in scheduled:
            for _ in range(num_tokens):
                self.append_token(seq_id)
                appended.append(seq_id)
    except Exception:
        for seq_id in appended:
            self.get(seq_id).length -= 1
        raise


def a_block_for_each_token(copies_too, rows_too):
    def wrong(self, scheduled):
        if rows_too:
            fresh_blocks(self, scheduled)  # raises where a row is too short
        refuse_beyond(
            self,
            sum(num_tokens for _, num_tokens in scheduled)
            + (copies(self, scheduled) if copies_too else 0),
        )
        append_all(self, scheduled)

    return wrong


def everything_put_back_from_a_copy(self, scheduled):
    saved = copy.deepcopy(vars(self))
    try:
        append_all(self, scheduled)
    except Exception:
        vars(self).update(saved)
        raise


def ignores_copy_on_write(self, scheduled):
    refuse_beyond(self, fresh_blocks(self, scheduled))
    append_all(self, scheduled)


def counts_every_copy(self, scheduled):
    refuse_beyond(
        self, fresh_blocks(self, scheduled) + len(shared_last_blocks(self, scheduled))
    )
    append_all(self, scheduled)


def one_copy_per_shared_block(self, scheduled):
    refuse_beyond(
        self, fresh_blocks(self, scheduled) + len(set(shared_last_blocks(self, scheduled)))
    )
    append_all(self, scheduled)


def block_boundary_off_by_one(self, scheduled):
    needed = 0
    for seq_id, num_tokens in scheduled:
        length = self.get(seq_id).length
        self.blocks_for(length + num_tokens)
        needed += (length + num_tokens) // self.block_size - length // self.block_size
    refuse_beyond(self, needed + copies(self, scheduled))
    append_all(self, scheduled)


def checks_each_alone(self, scheduled):
    for pair in scheduled:
        refuse_beyond(self, fresh_blocks(self, [pair]) + copies(self, [pair]))
    append_all(self, scheduled)


def only_checks_first(self, scheduled):
    refuse_beyond(self, fresh_blocks(self, scheduled[:1]) + copies(self, scheduled[:1]))
    append_all(self, scheduled)


def counting_copies(copies_of):
    """A wrong answer that counts copies_of(writers, users).

    It does so for each partly filled block that is written.
    """

    def wrong(self, scheduled):
        writers = Counter(
            self.blocks_of(seq_id)[-1]
            for seq_id, _ in scheduled
            if self.get(seq_id).length % self.block_size
        )
        num_copies = sum(
            copies_of(number, self.block_manager.get_ref_count(block_id))
            for block_id, number in writers.items()
        )
        refuse_beyond(self, fresh_blocks(self, scheduled) + num_copies)
        append_all(self, scheduled)

    return wrong


def copy_counted_per_token(self, scheduled):
    tokens = [(seq_id, 1) for seq_id, num_tokens in scheduled for _ in range(num_tokens)]
    refuse_beyond(self, fresh_blocks(self, scheduled) + len(shared_last_blocks(self, tokens)))
    append_all(self, scheduled)


def copy_counted_per_token_of_some(self, scheduled):
    tokens = [(seq_id, 1) for seq_id, num_tokens in scheduled for _ in range(num_tokens)]
    refuse_beyond(self, fresh_blocks(self, scheduled) + copies(self, tokens))
    append_all(self, scheduled)


def copy_of_full_block(copies_of):
    def wrong(self, scheduled):
        writers = Counter(
            self.blocks_of(seq_id)[-1] for seq_id, _ in scheduled if self.get(seq_id).length
        )
        num_copies = sum(
            copies_of(number, self.block_manager.get_ref_count(block_id))
            for block_id, number in writers.items()
        )
        refuse_beyond(self, fresh_blocks(self, scheduled) + num_copies)
        append_all(self, scheduled)

    return wrong


def counts_for_one_token(self, scheduled):
    for seq_id, num_tokens in scheduled:
        self.blocks_for(self.get(seq_id).length + num_tokens)
    refuse_beyond(
        self,
        fresh_blocks(self, [(seq_id, 1) for seq_id, _ in scheduled]) + copies(self, scheduled),
    )
    append_all(self, scheduled)


def counts_for_one_token_rows_too(self, scheduled):
    refuse_beyond(
        self,
        fresh_blocks(self, [(seq_id, 1) for seq_id, _ in scheduled]) + copies(self, scheduled),
    )
    append_all(self, scheduled)


def checks_between_appends(self, scheduled):
    for pair in scheduled:
        refuse_beyond(self, fresh_blocks(self, [pair]) + len(shared_last_blocks(self, [pair])))
        append_all(self, [pair])


def checks_between_appends_without_copies(self, scheduled):
    for pair in scheduled:
        refuse_beyond(self, fresh_blocks(self, [pair]))
        append_all(self, [pair])


def row_limit_forgotten(self, scheduled):
    needed = 0
    for seq_id, num_tokens in scheduled:
        length = self.get(seq_id).length
        needed += -(-(length + num_tokens) // self.block_size) - -(-length // self.block_size)
    refuse_beyond(self, needed + copies(self, scheduled))
    append_all(self, scheduled)


def last_block_refused(self, scheduled):
    refuse_beyond(self, fresh_blocks(self, scheduled) + copies(self, scheduled) + 1)
    append_all(self, scheduled)


def one_token_each(self, scheduled):
    refuse_beyond(self, fresh_blocks(self, scheduled) + copies(self, scheduled))
    for seq_id, _ in scheduled:
        self.append_token(seq_id)


def one_token_too_few(self, scheduled):
    refuse_beyond(self, fresh_blocks(self, scheduled) + copies(self, scheduled))
    append_all(self, [(seq_id, num_tokens - 1) for seq_id, num_tokens in scheduled])


def error_not_raised(self, scheduled):
    for seq_id, num_tokens in scheduled:
        self.blocks_for(self.get(seq_id).length + num_tokens)
    if (
        fresh_blocks(self, scheduled) + copies(self, scheduled)
        <= self.block_manager.get_num_free_blocks()
    ):
        append_all(self, scheduled)


def only_counts(self, scheduled):
    refuse_beyond(self, fresh_blocks(self, scheduled) + copies(self, scheduled))


def appends_and_changes(change):
    """A right answer that changes the list in its second pass."""

    def wrong(self, scheduled):
        append_tokens(self, scheduled)
        change(scheduled)

    return wrong


def changes_and_appends(change):
    """A right answer that changes the list before it looks whether the batch fits."""

    def wrong(self, scheduled):
        check_scheduled(scheduled)
        batch = list(scheduled)
        change(scheduled)
        append_tokens(self, batch)

    return wrong


def by_tokens(scheduled):
    scheduled.sort(key=lambda pair: pair[1])


def by_tokens_backwards(scheduled):
    scheduled.sort(key=lambda pair: -pair[1])


# (blocks in the pool, block size, entries of a row, the past, the batch); the past: ("A", 3)
# starts sequence A with 3 tokens, ("A", "B") forks B from A.
CASES = [
    (1, 4, 4, [("A", 0)], [("A", 1)]),
    (1, 4, 4, [("A", 3)], [("A", 1)]),
    (1, 4, 4, [("A", 4)], [("A", 1)]),
    (2, 4, 4, [("A", 3)], [("A", 3)]),
    (1, 4, 4, [("A", 3)], [("A", 2)]),
    (2, 4, 4, [("A", 4)], [("A", 4)]),
    (3, 4, 4, [("A", 4), ("B", 4)], [("A", 1), ("B", 1)]),
    (3, 4, 4, [("A", 2), ("B", 3)], [("A", 2), ("B", 2)]),
    (2, 4, 4, [("A", 2), ("B", 3)], [("A", 2), ("B", 2)]),
    (2, 4, 4, [("A", 1), ("B", 2)], [("A", 1), ("B", 1)]),
    (3, 4, 4, [("A", 4), ("B", 2)], [("B", 2), ("A", 4)]),
    (4, 2, 2, [("A", 1), ("B", 3)], [("A", 1), ("B", 2)]),
    (1, 4, 4, [("A", 3), ("A", "B")], [("A", 1)]),
    (2, 4, 4, [("A", 3), ("A", "B")], [("B", 1)]),
    (2, 4, 4, [("A", 3), ("A", "B")], [("A", 1), ("B", 1)]),
    (2, 4, 4, [("A", 2), ("A", "B"), ("A", "C")], [("A", 1), ("B", 1)]),
    (3, 4, 4, [("A", 2), ("A", "B"), ("A", "C")], [("A", 1), ("B", 1)]),
    (3, 4, 4, [("A", 2), ("A", "B"), ("A", "C")], [("C", 1), ("A", 2), ("B", 1)]),
    (2, 4, 4, [("A", 2), ("A", "B"), ("A", "C")], [("A", 1)]),
    (2, 4, 4, [("A", 2), ("A", "B"), ("A", "C")], [("A", 2)]),
    (2, 4, 4, [("X", 3), ("A", 2), ("A", "B")], [("X", 1), ("A", 1)]),
    (3, 4, 4, [("X", 3), ("A", 2), ("A", "B")], [("X", 1), ("A", 1)]),
    (3, 4, 4, [("A", 4), ("A", "B")], [("A", 1), ("B", 1)]),
    (2, 4, 4, [("A", 4), ("A", "B")], [("A", 1), ("B", 1)]),
    (5, 4, 4, [("A", 3), ("A", "B"), ("C", 5)], [("C", 3), ("A", 5), ("B", 1)]),
    (4, 4, 4, [("A", 3), ("A", "B"), ("C", 5)], [("C", 3), ("A", 5), ("B", 1)]),
    (9, 16, 4, [("A", 16), ("B", 0), ("C", 31)], [("A", 1), ("B", 40), ("C", 2)]),
    (8, 16, 4, [("A", 16), ("B", 0), ("C", 31)], [("A", 1), ("B", 50), ("C", 2)]),
    (6, 1, 4, [("A", 2), ("A", "B"), ("C", 1)], [("B", 2), ("C", 1)]),
    (4, 4, 2, [("A", 2), ("B", 4)], [("A", 3), ("Z", 1)]),
]
BAD_INPUT = [
    (9, 4, 4, [("A", 4)], [("A", 1), ("A", 1)]),
    (9, 4, 4, [("A", 4)], []),
    (9, 4, 4, [("A", 4), ("B", 3)], [("B", 1), ("A", 0)]),
]


def hidden(seed):
    """Any past and any batch, in a pool that is just large enough or one block too small.

    Then bad input.
    """
    chance = random.Random(seed)
    for number in range(18):
        block_size = chance.randint(1, 5)
        names = []
        past = []
        for name in "ABCD"[: 1 + number // 3]:
            forked = names and chance.random() < 0.5
            past.append(
                (chance.choice(names), name)
                if forked
                else (name, chance.randint(0, 2 * block_size))
            )
            names.append(name)
        batch = [
            (name, chance.randint(1, 2 * block_size))
            for name in chance.sample(names, chance.randint(1, len(names)))
        ]
        manager = make_manager(
            PagedAttentionManager.append_tokens, (64, block_size, 8, past, batch)
        )
        num_before = 64 - manager.block_manager.get_num_free_blocks()
        manager.append_tokens(batch)
        num_blocks = (
            64 - manager.block_manager.get_num_free_blocks() - chance.choice((0, 0, 1))
        )
        yield max(num_blocks, num_before, 1), block_size, 8, past, batch
    length = chance.randint(5, 9)
    yield (
        9,
        4,
        chance.randint(3, 4),
        [("A", 4), ("B", length)],
        [("A", chance.randint(1, 4)), ("B", 17 - length)],
    )
    yield (
        9,
        4,
        4,
        [("A", 4), ("B", length)],
        [("A", chance.randint(1, 3)), ("B", -chance.randint(0, 3))],
    )


def is_bad(case):
    names = [name for name, _ in case[4]]
    numbers = [number for _, number in case[4]]
    return not names or len(set(names)) < len(names) or min(numbers) < 1


def make_manager(answer, case):
    """The manager with its past; each token's place holds a number of its own."""
    num_blocks, block_size, row, past, _ = case
    manager = type("Manager", (PagedAttentionManager,), {"append_tokens": answer})(
        num_blocks, block_size, 1, 1, 8, row
    )
    manager.kv_cache.fill_(UNWRITTEN)
    for name, second in past:
        if isinstance(second, str):
            manager.fork_sequence(name, second)
        else:
            manager.add_sequence(name, second)
            write(manager, name, range(second))
    return manager


def slots(manager, name):
    """The pool's numbers at each token of a sequence, as views."""
    blocks = [
        manager.kv_cache[0, 0, block_id, :, 0, 0] for block_id in manager.blocks_of(name)
    ]
    return [
        blocks[position // manager.block_size][position % manager.block_size]
        for position in range(manager.get(name).length)
    ]


def write(manager, name, positions):
    places = slots(manager, name)
    for position in positions:
        places[position].fill_(1_000 * ord(name) + position)


def books(manager):
    """Everything that must not change when the call fails."""
    counts = [
        manager.block_manager.get_ref_count(block_id)
        for block_id in range(manager.kv_cache.shape[2])
    ]
    return {
        name: (
            sequence.length,
            manager.table.cpu[sequence.row].tolist(),
            manager.block_table[sequence.row].tolist(),
        )
        for name, sequence in manager.sequences.items()
    }, counts


def observe(answer, case):
    manager, scheduled = make_manager(answer, case), list(case[4])
    pool = manager.kv_cache
    before = books(manager)
    texts = {
        name: [float(place) for place in slots(manager, name)] for name in manager.sequences
    }
    try:
        manager.append_tokens(scheduled)
    except NotImplementedError:
        raise
    except Exception as error:
        if scheduled != case[4]:
            return LIST_CHANGED
        if manager.kv_cache is not pool:
            return Text(
                f"{type(error).__name__}, and the manager has another pool: kv_cache is a copy"
            )
        if books(manager) == before:
            return Text(f"{type(error).__name__}, and nothing has changed")
        return Text(f"{type(error).__name__}, and this is left behind: {_state(manager)}")
    if scheduled != case[4]:
        return LIST_CHANGED
    lengths = {name: len(text) for name, text in texts.items()}
    for name in manager.sequences:
        write(manager, name, range(lengths[name], manager.get(name).length))
    for name, text in texts.items():
        new = [
            1_000.0 * ord(name) + position
            for position in range(lengths[name], manager.get(name).length)
        ]
        if [float(place) for place in slots(manager, name)] != text + new:
            return Text(
                f"no error, and sequence {name} does not read what it wrote: {_state(manager)}"
            )
    return Text(f"no error; {_state(manager)}")


def _state(manager):
    parts = []
    for name, sequence in sorted(manager.sequences.items()):
        users = [
            manager.block_manager.get_ref_count(block_id)
            for block_id in manager.blocks_of(name)
        ]
        parts.append(
            f"{name} has {counted(sequence.length, 'token')} "
            f"in {counted(len(users), 'block')} with {users} users"
        )
    return (
        f"{'; '.join(parts)}; "
        f"{counted(manager.block_manager.get_num_free_blocks(), 'block')} free"
    )


def size(case):
    """Sequences, tokens, slots of the pool."""
    num_blocks, block_size, _, past, scheduled = case
    tokens = [count for _, count in (*past, *scheduled) if isinstance(count, int)]
    return len(past) + len(scheduled), sum(tokens), num_blocks * block_size


def describe(case):
    num_blocks, block_size, row, past, scheduled = case
    steps = [
        (
            f"{second} forked from {name}"
            if isinstance(second, str)
            else f"{name} with {counted(second, 'token')}"
        )
        for name, second in past
    ]
    return (
        f"{counted(num_blocks, 'block')} of {block_size}, rows of {row} entries; "
        f"{', '.join(steps)}; append_tokens({scheduled})"
    )


EXERCISE = Exercise(
    id="5.2",
    title="room for a whole batch, or for none of it",
    answer_name="append_tokens",
    reference=append_tokens,
    cases=lambda: CASES + BAD_INPUT,
    size=size,
    hidden=hidden,
    observe=observe,
    describe=describe,
    chancy=is_bad,  # other mistakes keep their names, whether the check stands in them or not
    points=3,
    mistakes=(
        Mistake(
            "leak-on-failed-append",
            "The tokens are appended one after the other until there is no room. "
            "The sequences before that point keep tokens that will never be computed. "
            "Find out whether all of them fit before you change anything.",
            leak_on_failed_append,
        ),
        Mistake(
            "row-limit-forgotten",
            "The blocks in the pool are counted, and not the entries in a row of the table. "
            "A sequence that grows too long is noticed in the middle of the batch, "
            "when others have grown already.",
            row_limit_forgotten,
        ),
        Mistake(
            "only-checks-first",
            "You look whether there is room for the first sequence of the batch, "
            "and not for the others.",
            only_checks_first,
        ),
        Mistake(
            "checks-each-alone",
            "Each sequence for itself would fit. Together they want the same free blocks.",
            checks_each_alone,
        ),
        Mistake(
            "counts-one-block-each",
            "You count one block for each sequence. It may be none, "
            "while its last block has room, and more than one for a long chunk.",
            counts_one_block_each,
        ),
        Mistake(
            "ignores-room-in-last-block",
            "You count the blocks for the new tokens as if they began in a block "
            "of their own. A partly filled last block takes the first of them, "
            "so batches that fit are refused.",
            ignores_room_in_last_block,
            also=(
                ignores_room_and_copies,
                *(
                    new_tokens_alone(num_blocks, copies_too)
                    for num_blocks in (blocks_of_each, blocks_of_all_together)
                    for copies_too in (False, True)
                ),
            ),
        ),
        Mistake(
            "a-block-for-each-token",
            "You count a block for each new token, and so refuse batches that fit. "
            "A block holds block_size tokens.",
            a_block_for_each_token(False, False),
            also=tuple(
                a_block_for_each_token(*flags)
                for flags in ((True, False), (False, True), (True, True))
            ),
        ),
        Mistake(
            "counts-blocks-it-has",
            "You count all blocks that a sequence fills afterwards. "
            "Those that it has are not taken a second time.",
            counts_blocks_it_has,
            also=(counts_blocks_it_has_without_copies,),
        ),
        Mistake(
            "block-boundary-off-by-one",
            "Your count is off where a block is exactly full: a full block has no room "
            "for the next token, and a token that fills a block needs no further one. "
            "Try lengths 3, 4 and 5 with blocks of 4.",
            block_boundary_off_by_one,
        ),
        Mistake(
            "ignores-copy-on-write",
            "A sequence that writes into a block which others use too takes a copy first, "
            "and a copy needs a block. Your count has no copies in it.",
            ignores_copy_on_write,
        ),
        Mistake(
            "counts-every-copy",
            "You count a copy for each sequence that writes into a shared block, "
            "and so refuse a batch that fits. When all of a block's users write, "
            "how many of them still share it when the last one comes?",
            counts_every_copy,
        ),
        Mistake(
            "one-copy-per-shared-block",
            "You count one copy for each shared block. Several of its users may write "
            "in the same batch, and each takes a copy while others still use the block.",
            one_copy_per_shared_block,
        ),
        Mistake(
            "counts-users-not-writers",
            "You count a copy for each further user of a shared block, "
            "and so refuse a batch that fits. Users who are not in the batch do not write.",
            counting_copies(lambda writers, users: users - 1),
        ),
        Mistake(
            "all-users-for-each-writer",
            "For each sequence that writes into a shared block you count a copy "
            "for every other user of that block, and so refuse a batch that fits. "
            "How many copies does one writer take?",
            counting_copies(lambda writers, users: writers * (users - 1)),
        ),
        Mistake(
            "copy-counted-per-token",
            "You count a copy for each token that goes into a shared block. After the first "
            "of them the sequence has a copy of its own, and its next tokens go there.",
            copy_counted_per_token,
            also=(copy_counted_per_token_of_some,),
        ),
        Mistake(
            "lone-writer-forgotten",
            "A sequence that is the only one to write into a shared block is not counted. "
            "The others do not write, but they still use the block, so it needs a copy.",
            counting_copies(
                lambda writers, users: min(writers, users - 1) if writers > 1 else 0
            ),
        ),
        Mistake(
            "one-writer-too-few",
            "Of those who write into a shared block, you always let one do without a copy. "
            "That is right when all of the block's users write. "
            "Who still uses it when some of them are not in the batch?",
            counting_copies(lambda writers, users: writers - 1),
        ),
        Mistake(
            "copy-for-full-block",
            "You count a copy where the shared last block is full. "
            "Nobody writes into a full block: the next token goes into a new one.",
            copy_of_full_block(lambda writers, users: min(writers, users - 1)),
            also=(copy_of_full_block(lambda writers, users: users > 1),),
        ),
        Mistake(
            "copy-for-each-sharer",
            "You count a copy for each sequence whose last block is shared. "
            "Two kinds of them need none. What is written into a full block? And when all "
            "of a block's users write, how many still share it when the last one comes?",
            copy_of_full_block(lambda writers, users: writers if users > 1 else 0),
        ),
        Mistake(
            "counts-for-one-token",
            "The blocks are counted as if each sequence got one token. "
            "A long chunk fills several.",
            counts_for_one_token,
            also=(counts_for_one_token_rows_too,),
        ),
        Mistake(
            "checks-between-appends",
            "You look whether a sequence fits when its turn comes. "
            "The sequences before it have grown by then, and stay so when it does not fit.",
            checks_between_appends,
            also=(checks_between_appends_without_copies,),
        ),
        Mistake(
            "check-deleted",
            "A batch that makes no sense is taken: one that names a sequence twice, "
            "an empty one, or one with 0 tokens for a sequence. "
            "The line with check_scheduled, which refuses it, has to stay.",
            check_deleted,
        ),
        Mistake(
            "last-block-refused",
            "A batch that needs exactly the blocks that are free is refused. "
            "The last block may be used too.",
            last_block_refused,
        ),
        Mistake(
            "error-not-raised",
            "When the batch does not fit, nothing happens and no error is raised. "
            "The caller goes on and writes where there is no room.",
            error_not_raised,
            also=(without_copies(lambda: None),),
        ),
        Mistake(
            "one-token-each",
            "Each sequence grows by one token, however many it is scheduled with.",
            one_token_each,
        ),
        Mistake(
            "one-token-too-few",
            "Each sequence grows by one token less than it is scheduled with.",
            one_token_too_few,
        ),
        Mistake(
            "no-last-block",
            "A sequence of 0 tokens has no blocks, and so no last one: "
            "[-1] of an empty list is an IndexError.",
            no_last_block(copies),
            also=(
                no_last_block(
                    lambda self, scheduled: len(shared_last_blocks(self, scheduled))
                ),
                no_last_block(lambda self, scheduled: 0),
            ),
        ),
        Mistake(
            "other-error",
            "A batch that does not fit is refused, with another error than the one "
            "that append_token() raises. Whoever calls this waits for an OutOfBlocksError.",
            other_error(OTHER_ERRORS[0]),
            also=(
                *map(other_error, OTHER_ERRORS[1:]),
                *(without_copies(raising(error)) for error in OTHER_ERRORS),
            ),
        ),
        Mistake(
            "lengths-put-back",
            "When the batch fails, the lengths are put back, and the blocks that were taken "
            "meanwhile are not. Count first: then there is nothing to put back.",
            lengths_put_back,
            also=(tokens_taken_back,),
        ),
        Mistake(
            "pool-replaced",
            "When the batch fails, everything is put back from a copy, the pool too. "
            "So the manager has another pool than before, and whoever holds its kv_cache "
            "goes on with the old one. Count first: then there is nothing to put back.",
            everything_put_back_from_a_copy,
        ),
        Mistake(
            "only-counts", "The room is counted, and then no token is appended.", only_counts
        ),
        Mistake(
            "scheduled-changed",
            "The list `scheduled` is not what it was before the call. "
            "It belongs to the caller, who still needs it.",
            appends_and_changes(list.clear),
            also=(
                changes_and_appends(list.clear),
                *(
                    form(change)
                    for form in (changes_and_appends, appends_and_changes)
                    for change in (list.reverse, by_tokens, by_tokens_backwards)
                ),
            ),
        ),
    ),
    hints=(
        (
            "Two passes over the batch: the first only counts and may raise, "
            "the second changes. What could still fail in the second one?"
        ),
        (
            "A sequence of length n that gets m tokens needs blocks_for(n + m) - "
            "blocks_for(n) fresh blocks. blocks_for() also raises when the row is too short."
        ),
        (
            "Copies come on top: a sequence whose last block is partly filled writes into "
            "it. Count these writers for each block, and compare with the block's users. "
            "The writer who is left alone with a block needs no copy."
        ),
    ),
)
