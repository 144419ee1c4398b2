"""Exercise 8.6: a request comes in, and shares the blocks that the prefix cache has for it."""

import random
from dataclasses import dataclass

import torch

from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.engine.prefix_cache import PrefixCache
from paged_attention.engine.request import Request
from paged_attention.engine.scheduler import Scheduler
from paged_attention.kv_cache import PagedAttentionManager

NUM_BLOCKS = 12


@dataclass(frozen=True)
class Case:
    """A request comes, a token for each letter.

    running, ended: those before it, all of their tokens computed.

    generated: its own output until it was preempted; it comes back.
    """

    prompt: str
    running: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    generated: str = ""
    block_size: int = 4
    sharing: bool = True


def start_with(
    change=lambda blocks, request, scheduler: blocks,
    most=lambda request, size: len(request.tokens) - 1,
    counted_up=True,
    length=lambda request, blocks, size: request.num_computed,
    cut=True,
):
    """start() of ours, with some of its parts replaced."""

    def wrong(self, request):
        size = self.manager.block_size
        blocks = change(self.prefix_cache.match(request), request, self)
        request.num_computed = min(len(blocks) * size, most(request, size))
        if cut:
            blocks = blocks[: self.manager.blocks_for(request.num_computed)]
        for block_id in blocks if counted_up else ():
            self.manager.block_manager.increase_ref_count(block_id)
        self.manager.start(request.id, length(request, blocks, size), blocks)

    return wrong


def without_the_last_token_s_block(blocks, request, scheduler):
    return blocks[: (len(request.tokens) - 1) // scheduler.manager.block_size]


def none_where_all_are_there(blocks, request, scheduler):
    return [] if len(blocks) * scheduler.manager.block_size == len(request.tokens) else blocks


def new_blocks(blocks, request, scheduler):
    return [scheduler.manager.block_manager.allocate() for _ in blocks]


def computed_not_set(self, request):
    Scheduler.start(self, request)
    request.num_computed = 0


def one_less_always(self, request):
    blocks = self.prefix_cache.match(request)
    request.num_computed = max(0, len(blocks) * self.manager.block_size - 1)
    blocks = blocks[: self.manager.blocks_for(request.num_computed)]
    for block_id in blocks:
        self.manager.block_manager.increase_ref_count(block_id)
    self.manager.start(request.id, request.num_computed, blocks)


def less_where_its_blocks_are_full(self, request):
    """Looks at the number of the request's tokens, all of them in the cache or not."""
    size, blocks = self.manager.block_size, self.prefix_cache.match(request)
    request.num_computed = len(blocks) * size - (len(request.tokens) % size == 0)
    blocks = blocks[: self.manager.blocks_for(request.num_computed)]
    for block_id in blocks:
        self.manager.block_manager.increase_ref_count(block_id)
    self.manager.start(request.id, request.num_computed, blocks)


def counted_in_blocks(self, request):
    blocks = self.prefix_cache.match(request)
    Scheduler.start(self, request)
    request.num_computed = len(blocks)


def all_counted(of_the_row):
    """The row and its length are right, and all tokens of the blocks count as computed."""

    def wrong(self, request):
        blocks = self.prefix_cache.match(request)
        Scheduler.start(self, request)
        request.num_computed = (
            len(self.manager.blocks_of(request.id) if of_the_row else blocks)
            * self.manager.block_size
        )

    return wrong


def row_counted(self, request):
    Scheduler.start(self, request)
    request.num_computed = len(self.manager.blocks_of(request.id))


def row_without_a_begun_block(self, request):
    """The last block is dropped where the sequence does not fill it."""
    Scheduler.start(self, request)
    blocks, length = self.manager.blocks_of(request.id), request.num_computed
    if length % self.manager.block_size:
        self.manager.free_sequence(request.id)
        for block_id in blocks[:-1]:
            self.manager.block_manager.increase_ref_count(block_id)
        self.manager.start(request.id, length, blocks[:-1])


def whole_row_but_a_begun_block(self, request):
    """As row_without_a_begun_block, with all blocks where the sequence ends between two."""
    size, blocks = self.manager.block_size, self.prefix_cache.match(request)
    request.num_computed = min(len(blocks) * size, len(request.tokens) - 1)
    blocks = blocks[:-1] if request.num_computed % size else blocks
    for block_id in blocks:
        self.manager.block_manager.increase_ref_count(block_id)
    self.manager.start(request.id, request.num_computed, blocks)


def blocks_before_length(self, request):
    blocks = self.prefix_cache.match(request)
    request.num_computed = min(len(blocks) * self.manager.block_size, len(request.tokens) - 1)
    self.manager.start(
        request.id,
        blocks[: self.manager.blocks_for(request.num_computed)],
        request.num_computed,
    )


def of_the_prompt_s_blocks(blocks, request, scheduler):
    return blocks[: len(request.prompt) // scheduler.manager.block_size]


def length_in_blocks(self, request):
    blocks = self.prefix_cache.match(request)
    Scheduler.start(self, request)
    self.manager.get(request.id).length = len(blocks)
    request.num_computed = len(blocks)


def no_row_without_a_match(self, request):
    if self.prefix_cache.match(request):
        Scheduler.start(self, request)
    else:
        request.num_computed = 0


def no_row_where_nothing_is_shared(self, request):
    Scheduler.start(self, request)
    if not request.num_computed:
        self.manager.free_sequence(request.id)


def never_a_row(self, request):
    Scheduler.start(self, request)
    self.manager.table.clear(self.manager.sequences.pop(request.id).row)


def runs_already(self, request):
    Scheduler.start(self, request)
    self.running.append(request)


def taken_off_the_queue(self, request):
    Scheduler.start(self, request)
    self.waiting.remove(request)


def moved_to_running(self, request):
    Scheduler.start(self, request)
    self.waiting.remove(request)
    self.running.append(request)


def all_of_them_counted_up(self, request):
    blocks = self.prefix_cache.match(request)
    for block_id in blocks:
        self.manager.block_manager.increase_ref_count(block_id)
    request.num_computed = min(len(blocks) * self.manager.block_size, len(request.tokens) - 1)
    self.manager.start(
        request.id,
        request.num_computed,
        blocks[: self.manager.blocks_for(request.num_computed)],
    )


def room_for_all_its_tokens(self, request):
    Scheduler.start(self, request)
    self.manager.append_tokens([(request.id, request.num_uncomputed)])


def room_for_one_token(self, request):
    Scheduler.start(self, request)
    self.make_room(request, 1)


def stopped_first(self, request):
    self.stop(request)
    Scheduler.start(self, request)


def as_a_new_sequence(num_tokens):
    """add_sequence() takes blocks of its own."""

    def wrong(self, request):
        blocks = self.prefix_cache.match(request)
        request.num_computed = min(
            len(blocks) * self.manager.block_size, len(request.tokens) - 1
        )
        self.manager.add_sequence(request.id, num_tokens(request))

    return wrong


def with_users(which, times=1):
    """The right start, but for the blocks that have one user more.

    These are which(blocks, number of full ones).
    """

    def wrong(self, request):
        size = self.manager.block_size
        Scheduler.start(self, request)
        blocks = self.manager.blocks_of(request.id)
        for block_id in blocks:
            self.manager.block_manager.free(block_id)
        for block_id in which(blocks, request.num_computed // size) * times:
            self.manager.block_manager.increase_ref_count(block_id)

    return wrong


def counted_for_each_token(self, request):
    Scheduler.start(self, request)
    blocks = self.manager.blocks_of(request.id)
    for place in range(request.num_computed):
        self.manager.block_manager.increase_ref_count(blocks[place // self.manager.block_size])
    for block_id in blocks:
        self.manager.block_manager.free(block_id)


def freed_without_being_counted(self, request):
    """Gives a block back that it does not take, as if match() had counted it up."""
    blocks = self.prefix_cache.match(request)
    Scheduler.start(self, request)
    for block_id in blocks[len(self.manager.blocks_of(request.id)) :]:
        self.manager.block_manager.free(block_id)


def last_token_popped(self, request):
    """Makes the request shorter, so that its last token cannot be in the cache."""
    blocks = self.prefix_cache.match(request)
    request.num_computed = len(blocks) * self.manager.block_size
    if request.num_computed == len(request.tokens):
        request.num_computed -= 1
        request.tokens.pop()
    blocks = blocks[: self.manager.blocks_for(request.num_computed)]
    for block_id in blocks:
        self.manager.block_manager.increase_ref_count(block_id)
    self.manager.start(request.id, request.num_computed, blocks)


def row_of_whole_blocks_only(self, request):
    """The number of blocks rounded down, although a part of the next one is used."""
    size = self.manager.block_size
    blocks = self.prefix_cache.match(request)
    request.num_computed = min(len(blocks) * size, len(request.tokens) - 1)
    blocks = blocks[: request.num_computed // size]
    for block_id in blocks:
        self.manager.block_manager.increase_ref_count(block_id)
    self.manager.start(request.id, request.num_computed, blocks)


def row_longer_than_the_sequence(self, request):
    blocks = self.prefix_cache.match(request)
    Scheduler.start(self, request)
    self.manager.table.write(self.manager.get(request.id).row, 0, blocks)


def compared_with_the_prompt(self, request):
    """One less where the cache has as many tokens as the prompt."""
    size = self.manager.block_size
    blocks = self.prefix_cache.match(request)
    request.num_computed = len(blocks) * size - (len(blocks) * size == len(request.prompt))
    blocks = blocks[: self.manager.blocks_for(request.num_computed)]
    for block_id in blocks:
        self.manager.block_manager.increase_ref_count(block_id)
    self.manager.start(request.id, request.num_computed, blocks)


def matched_by_the_prompt(self, request):
    """While the cache is asked, the request has no tokens but those of its prompt."""
    size, own = self.manager.block_size, request.tokens
    request.tokens = request.prompt
    blocks = self.prefix_cache.match(request)
    request.tokens = own
    request.num_computed = min(len(blocks) * size, len(request.tokens) - 1)
    blocks = blocks[: self.manager.blocks_for(request.num_computed)]
    for block_id in blocks:
        self.manager.block_manager.increase_ref_count(block_id)
    self.manager.start(request.id, request.num_computed, blocks)


def all_blocks(num_computed, length):
    """No thought for the last token.

    num_computed and length are functions of the request, the blocks and their size.
    """

    def wrong(self, request):
        size, blocks = self.manager.block_size, self.prefix_cache.match(request)
        for block_id in blocks:
            self.manager.block_manager.increase_ref_count(block_id)
        computed = num_computed(request, blocks, size)
        told = length(request, blocks, size)
        request.num_computed = computed
        self.manager.start(request.id, told, blocks)

    return wrong


def with_size(size):
    """The right start, but for blocks of another size."""

    def wrong(self, request):
        blocks = self.prefix_cache.match(request)
        request.num_computed = min(len(blocks) * size, len(request.tokens) - 1)
        blocks = blocks[: -(-request.num_computed // size)]
        for block_id in blocks:
            self.manager.block_manager.increase_ref_count(block_id)
        self.manager.start(request.id, request.num_computed, blocks)

    return wrong


def started_as(name):
    """manager.start() with something else than the request's id."""

    def wrong(self, request):
        blocks = self.prefix_cache.match(request)
        request.num_computed = min(
            len(blocks) * self.manager.block_size, len(request.tokens) - 1
        )
        blocks = blocks[: self.manager.blocks_for(request.num_computed)]
        for block_id in blocks:
            self.manager.block_manager.increase_ref_count(block_id)
        self.manager.start(name(request), request.num_computed, blocks)

    return wrong


def matched_by(key):
    def wrong(self, request):
        self.prefix_cache.match(key(request))

    return wrong


def copied_already(copies_numbers):
    """Makes the copy of the last block that append_token() would make."""

    def wrong(self, request):
        manager, blocks = self.manager, list(self.prefix_cache.match(request))
        request.num_computed, new = len(blocks) * manager.block_size, []
        if request.num_computed == len(request.tokens):
            request.num_computed -= 1
            shared, new = blocks.pop(), [manager.block_manager.allocate()]
            if copies_numbers:
                manager.kv_cache[:, :, new[0]] = manager.kv_cache[:, :, shared]
        for block_id in blocks:
            manager.block_manager.increase_ref_count(block_id)
        manager.start(request.id, request.num_computed, blocks + new)

    return wrong


def a_block_less_where_all_are_there(self, request):
    """All of the blocks in the row, and one block's tokens fewer counted."""
    size, blocks = self.manager.block_size, self.prefix_cache.match(request)
    for block_id in blocks:
        self.manager.block_manager.increase_ref_count(block_id)
    request.num_computed = len(blocks) * size - size * (
        len(blocks) * size == len(request.tokens)
    )
    self.manager.start(request.id, request.num_computed, blocks)


def in_blocks_of_16(request, blocks, size):
    return min(16 * len(blocks), len(request.tokens) - 1)


def one_less_than_the_prompt(request, blocks, size):
    return len(blocks) * size - (len(blocks) * size == len(request.prompt))


def shared_and_as_a_new_sequence(self, request):
    blocks = self.prefix_cache.match(request)
    request.num_computed = min(len(blocks) * self.manager.block_size, len(request.tokens) - 1)
    for block_id in blocks[: self.manager.blocks_for(request.num_computed)]:
        self.manager.block_manager.increase_ref_count(block_id)
    self.manager.add_sequence(request.id, request.num_computed)


def number_of_blocks(request, blocks, size):
    return len(blocks)


def number_of_their_tokens(request, blocks, size):
    return len(blocks) * size


def one_token_less(request, blocks, size):
    return len(blocks) * size - 1


def number_of_all_tokens(request, blocks, size):
    return len(request.tokens)


def none(request, blocks, size):
    return 0


CASES = [
    Case("abc"),
    Case("xyz", ended=("abcd",)),
    Case("abcdef", ended=("abcd",)),
    Case("abcdef", running=("abcd",)),
    Case("abcd", ended=("abcd",)),
    Case("abcd", running=("abcdef",)),
    Case("abc", running=("abcd",)),
    Case("abcdefgh", ended=("abcdefgh",)),
    Case("abcdefghi", running=("abcdefghi",)),
    Case("abcdefgh", running=("abcdwxyz",)),
    Case("abcdwxyzk", running=("abcdefgh",), ended=("abcdwxyz",)),
    Case("abc", generated="defghij"),
    Case("abcd", generated="efghi", running=("abcd",)),
    Case("abcd", generated="ef"),
    Case("abcd", generated="efgh", running=("abcdefgh",)),
    Case("abcd", running=("abcd",), sharing=False),
    Case("a", running=("a",), block_size=1),
    Case("abc", ended=("abc",), block_size=1),
    Case("abx", running=("abc",), block_size=1),
    Case("abcdef", running=("abcdef", "abcx"), block_size=3),
    Case("abcdefghijklmnopqr", running=("abcdefghijklmnop",), block_size=16),
]


def hidden(seed):
    """A request and up to three others with the same first letters, or not.

    Some of them come back.
    """
    chance = random.Random(seed)
    for number in range(16):
        block_size = chance.randint(1, 5)
        letters = "".join(chance.sample("abcdefghijklmno", 15))

        def text():
            start = chance.choice((letters, letters, letters, letters[::-1]))
            lengths = (block_size, 2 * block_size, chance.randint(1, 2 * block_size + 1))
            kept = start[: chance.choice(lengths)]
            return kept + chance.choice("xyz") * chance.choice((0, 0, 0, 1, block_size))

        running, ended = ([text() for _ in range(chance.randint(0, most))] for most in (1, 2))
        yield Case(
            text(),
            tuple(running),
            tuple(ended),
            letters[9 : 9 + chance.randint(1, 5)] if number % 4 == 3 else "",
            block_size,
            sharing=number % 8 != 7,
        )


def arrange(case) -> tuple[Scheduler, Request]:
    """What a case begins with: our scheduler in the midst of its work.

    And the request that is to be started.
    """
    manager = PagedAttentionManager(
        NUM_BLOCKS, case.block_size, 1, 2, max_num_seqs=5, max_blocks_per_seq=10
    )
    manager.kv_cache.copy_(
        torch.arange(1.0, manager.kv_cache.numel() + 1).view_as(manager.kv_cache)
    )
    scheduler = Scheduler(
        manager, PrefixCache(manager, case.sharing), token_budget=64, max_num_seqs=5
    )
    for number, text in enumerate((*case.running, *case.ended), 1):
        _compute(scheduler, _request(f"number {number}", text))
    for request in scheduler.running[len(case.running) :]:
        scheduler.remove(request)
    request = _request("the new one", case.prompt)
    if case.generated:
        _compute(scheduler, request, case.generated)
        scheduler.preempt(request)
    else:
        scheduler.waiting.append(request)
    return scheduler, request


def observe(answer, case):
    """`case`: one of ours, or arranged."""
    scheduler, request = case if isinstance(case, tuple) else arrange(case)
    manager = scheduler.manager
    answer(scheduler, request)
    seen = _parts(scheduler, request, "")
    seen["the keys of its computed tokens, a number for each"] = _numbers(manager, request)
    try:
        scheduler.make_room(request, request.num_uncomputed)
        scheduler.prefix_cache.insert(request, len(request.tokens))
        seen |= _parts(scheduler, request, "with room for the other tokens, ")
        scheduler.stop(request)
        for other in list(scheduler.running):
            scheduler.remove(other)
        scheduler.prefix_cache.clear()
        seen["free blocks when all have ended"] = manager.block_manager.get_num_free_blocks()
    except Exception as error:
        seen["what comes after"] = Text(f"{type(error).__name__}: {error}")
    return seen


def _request(name: str, text: str) -> Request:
    return Request(name, [ord(letter) for letter in text])


def _compute(scheduler: Scheduler, request: Request, generated: str = "") -> None:
    """What the engine does with a request that generates these tokens.

    The last of them is not computed.
    """
    Scheduler.start(scheduler, request)
    scheduler.running.append(request)
    for letter in generated or [""]:
        if not scheduler.make_room(request, request.num_uncomputed):
            raise AssertionError("the case is too large for its pool")
        request.num_computed = len(request.tokens)
        scheduler.prefix_cache.insert(request, request.num_computed)
        request.tokens += map(ord, letter)


def _parts(scheduler: Scheduler, request: Request, when: str) -> dict:
    manager = scheduler.manager
    sequence = manager.sequences.get(request.id)
    row = (
        "no row"
        if sequence is None
        else [int(entry) for entry in manager.table.cpu[sequence.row] if entry >= 0]
    )
    return {
        f"{when}num_computed": request.num_computed,
        f"{when}the sequence's blocks": Text(row),
        f"{when}the sequence's length": Text(
            "no row" if sequence is None else sequence.length
        ),
        f"{when}the users of each block": {
            block: users
            for block in range(NUM_BLOCKS)
            if (users := manager.block_manager.get_ref_count(block))
        },
        f"{when}who waits": [other.id for other in scheduler.waiting],
        f"{when}who runs": [other.id for other in scheduler.running],
    }


def _numbers(manager: PagedAttentionManager, request: Request):
    """The first number of the key of each token that counts as computed.

    None where the row has no block for it.
    """
    if request.id not in manager.sequences:
        return Text("no row")
    row = manager.table.cpu[manager.sequences[request.id].row].tolist()
    places = [divmod(position, manager.block_size) for position in range(request.num_computed)]
    return [
        manager.kv_cache[0, 0, row[index], offset, 0, 0].item() if row[index] >= 0 else None
        for index, offset in places
    ]


def size(case):
    """Requests, and letters."""
    texts = (case.prompt, *case.running, *case.ended)
    return len(texts), len("".join(texts)) + len(case.generated)


def describe(case):
    others = [
        *(f"{text!r} is running" for text in case.running),
        *(f"{text!r} has ended" for text in case.ended),
    ]
    sharing = "" if case.sharing else ", no prefix sharing"
    coming = (
        f"{case.prompt!r} comes back, preempted when it had generated {case.generated!r}"
        if case.generated
        else f"{case.prompt!r} comes"
    )
    return (
        f"blocks of {counted(case.block_size, 'token')}, a token for each letter{sharing}: "
        f"{', '.join([*others, coming])}"
    )


def show(expected, actual):
    if isinstance(expected, dict) and isinstance(actual, dict):
        for part, ours in expected.items():
            if part not in actual:
                return f"{part}: {ours}", str(actual["what comes after"])
            if ours != actual[part]:
                return f"{part}: {ours}", f"{part}: {actual[part]}"
    return "no error", repr(actual)


EXERCISE = Exercise(
    id="8.6",
    title="start a request",
    answer_name="start",
    reference=Scheduler.start,
    cases=lambda: CASES,
    size=size,
    hidden=hidden,
    arrange=arrange,
    observe=observe,
    describe=describe,
    show=show,
    mistakes=(
        Mistake(
            "users-not-counted",
            "The request uses a shared block, and its count does not say so. "
            "When the first of its users frees it, the others go on reading it.",
            start_with(counted_up=False),
            also=(
                with_users(lambda blocks, num_full: blocks[:num_full]),
                with_users(lambda blocks, num_full: blocks[:-1]),
                with_users(lambda blocks, num_full: blocks[-1:]),
                with_users(lambda blocks, num_full: blocks[:1]),
                start_with(most=lambda request, size: len(request.tokens), counted_up=False),
            ),
        ),
        Mistake(
            "counted-twice",
            "Each shared block has two more users than before, and only one request came. "
            "It will never be free.",
            with_users(lambda blocks, num_full: blocks, times=2),
        ),
        Mistake(
            "counted-for-each-token",
            "A shared block has a user more for each of its tokens that the request has. "
            "It is one user, whatever number of tokens is in the block.",
            counted_for_each_token,
        ),
        Mistake(
            "freed-without-being-counted",
            "A block that the request does not take was given back. "
            "The request had never become a user of it: `match` only looks for blocks. "
            "Another user's count is gone.",
            freed_without_being_counted,
        ),
        Mistake(
            "last-token-popped",
            "The request has lost its last token. "
            "It keeps all of them; its last one is only computed again.",
            last_token_popped,
        ),
        Mistake(
            "everything-computed",
            "The cache has all of the request's tokens, and nothing is left for the model "
            "to do. From which answer of the model does the next token come then?",
            start_with(most=lambda request, size: len(request.tokens)),
            also=(
                start_with(most=lambda request, size: 10**9, cut=False),
                all_counted(True),
                all_counted(False),
            ),
        ),
        Mistake(
            "last-block-dropped",
            "The cache has the request's last block, and all of it is computed again. "
            "One token is enough: the others in that block are there.",
            start_with(without_the_last_token_s_block),
            also=(start_with(none_where_all_are_there), a_block_less_where_all_are_there),
        ),
        Mistake(
            "begun-block-left-out",
            "The request counts tokens as computed whose block is not in its row: "
            "the number of blocks was rounded down.",
            row_of_whole_blocks_only,
            also=(row_without_a_begun_block, whole_row_but_a_begun_block),
        ),
        Mistake(
            "one-less-always",
            "One of the tokens that the cache has is computed again although others come "
            "behind it. Only the very last token of the request has to be computed.",
            one_less_always,
            also=(all_blocks(one_token_less, one_token_less), less_where_its_blocks_are_full),
        ),
        Mistake(
            "prompt-in-place-of-tokens",
            "The request was preempted and has tokens of its own behind its prompt. "
            "They count like the prompt's.",
            start_with(most=lambda request, size: len(request.prompt) - 1),
            also=(
                start_with(of_the_prompt_s_blocks),
                compared_with_the_prompt,
                matched_by_the_prompt,
                all_blocks(one_less_than_the_prompt, one_less_than_the_prompt),
            ),
        ),
        Mistake(
            "computed-not-set",
            "The blocks are shared, and `request.num_computed` is still 0: "
            "all their tokens would be computed again, behind those that are there.",
            computed_not_set,
            also=(all_blocks(none, number_of_their_tokens),),
        ),
        Mistake(
            "blocks-for-tokens",
            "`num_computed` counts tokens; yours counts blocks.",
            counted_in_blocks,
            also=(
                length_in_blocks,
                row_counted,
                all_blocks(number_of_blocks, number_of_blocks),
                all_blocks(number_of_blocks, number_of_their_tokens),
            ),
        ),
        Mistake(
            "length-of-all-tokens",
            "The manager was told that the sequence has all of its tokens already. "
            "Their room comes later, a chunk at a time, from `make_room`. "
            "So far it has those that are computed.",
            start_with(length=lambda request, blocks, size: len(request.tokens)),
            also=(
                room_for_all_its_tokens,
                start_with(length=lambda request, blocks, size: len(request.prompt)),
                start_with(length=number_of_all_tokens, cut=False),
                all_blocks(number_of_their_tokens, number_of_all_tokens),
                as_a_new_sequence(lambda request: len(request.tokens)),
            ),
        ),
        Mistake(
            "room-for-one-token",
            "There is room for one token more than those that are computed. "
            "`schedule` asks for that room, when it knows how many tokens come in the step.",
            room_for_one_token,
        ),
        Mistake(
            "another-length",
            "The manager was told another length than `request.num_computed`. "
            "Its second argument is the number of tokens that are there already.",
            start_with(length=none),
            also=(
                start_with(length=number_of_blocks),
                start_with(length=lambda request, blocks, size: request.num_uncomputed),
                start_with(length=none, cut=False),
                start_with(length=number_of_blocks, cut=False),
            ),
        ),
        Mistake(
            "length-in-whole-blocks",
            "The sequence's length and `num_computed` differ "
            "where the last token is computed again: its place would be one too far.",
            start_with(length=lambda request, blocks, size: len(blocks) * size),
            also=(
                start_with(length=lambda request, blocks, size: len(blocks) * size, cut=False),
            ),
        ),
        Mistake(
            "no-row-without-a-match",
            "The cache had nothing for this request, and it has no row of the block table. "
            "Every request needs one.",
            no_row_without_a_match,
            also=(no_row_where_nothing_is_shared,),
        ),
        Mistake(
            "never-a-row",
            "The request has no row of the block table. `manager.start` takes one.",
            never_a_row,
        ),
        Mistake(
            "block-without-a-token",
            "The request became a user of a block of which it keeps no token: "
            "the only one in it is computed again, in another block. "
            "Nobody will ever give the first one back.",
            start_with(cut=False),
            also=(all_of_them_counted_up,),
        ),
        Mistake(
            "row-too-long",
            "The request's row names a block behind its tokens: of that block it keeps none, "
            "the only token in it is computed again, in another one.",
            row_longer_than_the_sequence,
        ),
        Mistake(
            "nothing-shared",
            "The cache has blocks for this request, and none of them is shared.",
            start_with(lambda blocks, request, scheduler: []),
        ),
        Mistake(
            "first-block-only",
            "Only the first block is shared, and the cache has more of them.",
            start_with(lambda blocks, request, scheduler: blocks[:1]),
        ),
        Mistake(
            "new-blocks-taken",
            "The request has blocks of its own, with nothing in them, "
            "where it should share those that are filled.",
            start_with(new_blocks, counted_up=False),
            also=(
                start_with(new_blocks),
                as_a_new_sequence(lambda request: request.num_computed),
                shared_and_as_a_new_sequence,
            ),
        ),
        Mistake(
            "copied-already",
            "`start` made a copy of the last block. The block can stay shared: "
            "when its last token gets its place, `append_token` makes the copy.",
            copied_already(True),
            also=(copied_already(False),),
        ),
        Mistake(
            "block-size-16",
            "You count with blocks of 16 tokens. "
            "These have another size, `self.manager.block_size`.",
            with_size(16),
            also=(all_blocks(in_blocks_of_16, in_blocks_of_16),),
        ),
        Mistake(
            "request-for-its-id",
            "The manager knows sequences by their ids, and got a request.",
            started_as(lambda request: request),
        ),
        Mistake(
            "asked-before-its-start",
            "The manager was asked about a sequence, or told to free it, before it knew it. "
            "`self.manager.start` makes it known; until then it has nothing in the pool.",
            stopped_first,
        ),
        Mistake(
            "blocks-before-length",
            "`manager.start` got the blocks where it takes the length, "
            "and the length where it takes the blocks.",
            blocks_before_length,
        ),
        Mistake(
            "tokens-for-the-request",
            "`match` takes the request, not its tokens or its id: "
            "the hashes that it needs are kept in the request.",
            matched_by(lambda request: request.tokens),
            also=(
                matched_by(lambda request: request.id),
                matched_by(lambda request: tuple(request.tokens)),
            ),
        ),
        Mistake(
            "runs-already",
            "`start` moved the request between the queues. "
            "`schedule` does that, when there is room for its tokens.",
            moved_to_running,
            also=(runs_already, taken_off_the_queue),
        ),
    ),
    hints=(
        (
            "`self.prefix_cache.match(request)` gives the blocks. "
            "How many tokens do they hold, and how many of those need no computing?"
        ),
        (
            "Where the cache has every token, one is left over to compute. "
            "Its block stays shared: the next append copies it (exercise 2.5). "
            "With blocks of one token there is nothing left in that block to share."
        ),
        (
            "Three things know about a shared block: its reference count, "
            "the row of the block table (`self.manager.start`), and `request.num_computed`."
        ),
    ),
)
