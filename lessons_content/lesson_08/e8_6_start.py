"""Exercise 8.6: start a request.

`self.prefix_cache.match(request)` gives the blocks. How many tokens do they hold, and how many
of those need no computing?

Where the cache has every token, one is left over to compute. Its block stays shared: the next
append copies it (exercise 2.5). With blocks of one token there is nothing left in that block
to share.

Three things know about a shared block: its reference count, the row of the block table
(`self.manager.start`), and `request.num_computed`.
"""

from dataclasses import dataclass

import torch

from lessons_content.exercises.kit import Text, counted, differences, exercise
from lessons_content.lesson_08.scheduling import Scenario, admit, make_request, make_scheduler
from paged_attention.engine.request import Request
from paged_attention.engine.scheduler import Scheduler
from paged_attention.pool.kv_cache import PagedAttentionManager

NUM_BLOCKS = 12


@dataclass(frozen=True)
class Case:
    """A request comes. Its prompt has a token for each letter.

    running, ended: the prompts of earlier requests, of which all tokens are computed.
    generated: its output until it was preempted. Now it comes back.
    """

    prompt: str
    running: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    generated: str = ""
    block_size: int = 4
    sharing: bool = True


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


def hidden(chance):
    """A request, which may come back, and up to three others, many with the same start."""
    for number in range(16):
        block_size = chance.randint(1, 5)
        letters = "".join(chance.sample("abcdefghijklmno", 15))

        def text():
            start = chance.choice((letters, letters, letters, letters[::-1]))
            lengths = (block_size, 2 * block_size, chance.randint(1, 2 * block_size + 1))
            kept = start[: chance.choice(lengths)]
            return kept + chance.choice("xyz") * chance.choice((0, 0, 0, 1, block_size))

        others = [tuple(text() for _ in range(chance.randint(0, most))) for most in (1, 2)]
        prompt, generated = text(), ""
        if number % 4 == 3:
            generated = letters[9 : 9 + chance.randint(1, 5)]
        yield Case(prompt, *others, generated, block_size, sharing=number % 8 != 7)


def arrange(case) -> tuple[Scheduler, Request]:
    """Our scheduler in the midst of its work, and the request that is to be started."""
    sizes = Scenario((), NUM_BLOCKS, case.block_size, 64, 5, case.sharing)
    scheduler = make_scheduler(sizes, row=10)
    cache = scheduler.manager.kv_cache
    cache.copy_(torch.arange(1.0, cache.numel() + 1).view_as(cache))
    for number, text in enumerate((*case.running, *case.ended), 1):
        admit(scheduler, make_request(f"number {number}", text))
    for request in scheduler.running[len(case.running) :]:
        scheduler.remove(request)
    request = make_request("the new one", case.prompt)
    if case.generated:
        admit(scheduler, request, case.generated)
        scheduler.preempt(request)
    else:
        scheduler.waiting.append(request)
    return scheduler, request


def observe(answer, case):
    """`case`: one of ours, or arranged."""
    scheduler, request = case if isinstance(case, tuple) else arrange(case)
    manager = scheduler.manager
    answer(scheduler, request)
    seen = _parts(scheduler, request)
    seen["the keys of its computed tokens, a number for each"] = _numbers(manager, request)
    try:
        scheduler.make_room(request, request.num_uncomputed)
        scheduler.prefix_cache.insert(request, len(request.tokens))
        for part, value in _parts(scheduler, request).items():
            seen[f"with room for the other tokens, {part}"] = value
        scheduler.stop(request)
        for other in list(scheduler.running):
            scheduler.remove(other)
        scheduler.prefix_cache.clear()
        seen["free blocks when all have ended"] = manager.block_manager.get_num_free_blocks()
    except Exception as error:
        seen[type(error).__name__] = Text(error)
    return seen


def _parts(scheduler: Scheduler, request: Request) -> dict:
    manager = scheduler.manager
    users = map(manager.block_manager.get_ref_count, range(NUM_BLOCKS))
    blocks = length = "no row"
    if request.id in manager.sequences:
        sequence = manager.sequences[request.id]
        row, length = manager.table.cpu[sequence.row], sequence.length
        blocks = [int(entry) for entry in row if entry >= 0]
    return {
        "num_computed": request.num_computed,
        "the sequence's blocks": Text(blocks),
        "the sequence's length": Text(length),
        "the users of each block": {block: num for block, num in enumerate(users) if num},
        "who waits": [other.id for other in scheduler.waiting],
        "who runs": [other.id for other in scheduler.running],
    }


def _numbers(manager: PagedAttentionManager, request: Request):
    """The first number in each computed token's key, or None where the row has no block."""
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
    texts = [f"{text!r} is running" for text in case.running]
    texts += [f"{text!r} has ended" for text in case.ended]
    comes = "comes"
    if case.generated:
        comes = f"comes back, preempted when it had generated {case.generated!r}"
    sharing = "" if case.sharing else ", no prefix sharing"
    return (
        f"blocks of {counted(case.block_size, 'token')}, a token for each letter{sharing}: "
        f"{', '.join([*texts, f'{case.prompt!r} {comes}'])}"
    )


EXERCISE = exercise(
    globals(),
    differences,
    reference=Scheduler.start,
)
