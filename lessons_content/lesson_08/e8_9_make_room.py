"""Exercise 8.9: old blocks make room.

How many blocks does the request need on top of those that it has? How many could it have at
most, if all old blocks were given back?

`append_tokens` changes nothing when it raises a `MemoryError`. So you may try it, evict one
block, and try it again.

`evict` says False when there is no old block left. Then there is no room.
"""

from dataclasses import dataclass

from lessons_content.exercises.kit import Text, counted, differences, exercise
from lessons_content.lesson_08.scheduling import Scenario, admit, make_request, make_scheduler
from paged_attention.engine.prefix_cache import block_hashes
from paged_attention.engine.request import Request
from paged_attention.engine.scheduler import Scheduler


@dataclass(frozen=True)
class Case:
    """A request asks for room. Its prompt has a token for each letter.

    num_tokens: how many it asks for.
    computed: how many it has already. Those that the cache has for it come on top.
    ended, running: the prompts of earlier requests. All of their tokens are computed, and the
        cache knows them.
    """

    prompt: str
    num_tokens: int
    num_blocks: int
    computed: int = 0
    ended: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    block_size: int = 2
    sharing: bool = True


CASES = [
    Case("abc", 3, num_blocks=4),
    Case("abc", 1, num_blocks=1),
    Case("abc", 3, num_blocks=1),
    Case("abcd", 1, num_blocks=2, computed=3),
    Case("abcd", 1, num_blocks=1, computed=2),
    Case("abcdef", 3, num_blocks=3, computed=2),
    Case("abcdef", 2, num_blocks=3, computed=3),
    Case("abcdefgh", 3, num_blocks=2),
    Case("abc", 3, num_blocks=2, ended=("wxyz",)),
    Case("abc", 3, num_blocks=3, ended=("wxyz",)),
    Case("abc", 3, num_blocks=4, ended=("wxyz",)),
    Case("abc", 2, num_blocks=2, ended=("wx", "yz")),
    Case("abcdef", 6, num_blocks=4, ended=("wx", "yz")),
    Case("abcde", 5, num_blocks=3, ended=("wx",), running=("y",)),
    Case("abc", 3, num_blocks=3, running=("wxyz",)),
    Case("abc", 3, num_blocks=4, ended=("klmn",), running=("wxyz",)),
    Case("abcdefgh", 6, num_blocks=4, ended=("klmn",), running=("wxy",)),
    Case("abcdefgh", 4, num_blocks=5, computed=2, ended=("klmn",), running=("wxyz",)),
    Case("abcd", 1, num_blocks=3, ended=("abcd",)),
    Case("abcd", 1, num_blocks=3, ended=("wx", "abcd")),
    Case("abcd", 1, num_blocks=2, ended=("abcd",)),
    Case("abcd", 1, num_blocks=3, ended=("wx",), running=("abcd",)),
    Case("abcdef", 2, num_blocks=3, ended=("wx", "abcd")),
    Case("abc", 3, num_blocks=3, running=("wxyz",), sharing=False),
    Case("abc", 3, num_blocks=3, ended=("wxyz",), sharing=False),
    Case("abc", 3, num_blocks=3, ended=("wx", "yz"), block_size=1),
    Case("abcdefghij", 7, num_blocks=4, computed=3, ended=("klmnopqr",), block_size=4),
    Case(
        "abcdefghij", 10, num_blocks=4, ended=("klmnopqr",), running=("uvwxy",), block_size=4
    ),
]


def hidden(chance):
    """Requests of one chunk or more, in a pool with old blocks and little room."""
    for number in range(24):
        block_size = chance.randint(1, 4)
        texts = ["".join(chance.sample("klmnopqrstuvwxyz", 8)) for _ in range(3)]
        texts = [text[: chance.randint(1, 2 * block_size)] for text in texts]
        ended, running = tuple(texts[: chance.randint(1, 2)]), tuple(texts[2:] * (number % 2))
        length = chance.randint(2, 9)
        computed = chance.choice((0, 0, chance.randint(1, length - 1)))
        num_tokens = chance.randint(1, length - computed)
        prompt = "abcdefghi"[:length]
        if number % 6 == 5:
            prompt = (ended[-1] + prompt)[: -(-len(ended[-1]) // block_size) * block_size]
            ended, computed, num_tokens = (*ended, prompt), 0, 1
        least = sum(-(-len(text) // block_size) for text in (*running, prompt[:computed]))
        least = max(least, *(-(-len(text) // block_size) + least for text in ended))
        most = least + chance.randint(0, 2)
        yield Case(prompt, num_tokens, most, computed, ended, running, block_size)


def made(case: Case) -> tuple[Scheduler, Request]:
    """Our scheduler in the midst of its work, and the request that asks for room."""
    sizes = Scenario((), case.num_blocks, case.block_size, 64, 5, case.sharing)
    scheduler = make_scheduler(sizes, row=10)
    for text in case.ended:
        admit(scheduler, request := make_request(text, text))
        scheduler.remove(request)
    for text in case.running:
        admit(scheduler, make_request(text, text))
    request = make_request("the request", case.prompt)
    Scheduler.start(scheduler, request)
    scheduler.running.append(request)
    if case.computed:
        if not Scheduler.make_room(scheduler, request, case.computed):
            raise AssertionError("the case is too large for its pool")
        request.num_computed += case.computed
    return scheduler, request


def observe(answer, case: Case) -> dict:
    scheduler, request = made(case)
    manager = scheduler.manager
    result = answer(scheduler, request, case.num_tokens)
    known = {
        digest: text[: case.block_size * (index + 1)]
        for text in (*case.ended, *case.running)
        for index, digest in enumerate(block_hashes([*map(ord, text)], case.block_size))
    }
    kept = sorted(known.get(digest, "?") for digest in scheduler.prefix_cache.blocks)
    lengths = {name: sequence.length for name, sequence in manager.sequences.items()}
    blocks = manager.blocks_of(request.id) if request.id in lengths else []
    return {
        "returned": result,
        "the tokens that each sequence has room for": lengths,
        "the request's blocks": Text(f"{len(blocks)}, {len(set(blocks))} of them different"),
        "free blocks": manager.block_manager.get_num_free_blocks(),
        "what the cache still has, up to each block's end": kept,
        "num_computed": request.num_computed,
        "who runs": [other.id for other in scheduler.running],
        "who waits": [other.id for other in scheduler.waiting],
    }


def size(case: Case) -> tuple[int, int]:
    texts = (case.prompt, *case.ended, *case.running)
    return len(texts), len("".join(texts)) + case.num_blocks


def describe(case: Case) -> str:
    texts = [f"{text!r} has ended" for text in case.ended]
    texts += [f"{text!r} is running" for text in case.running]
    computed = f", {case.computed} of its tokens computed," if case.computed else ""
    asks = f"{case.prompt!r}{computed} asks for {counted(case.num_tokens, 'token')}"
    sharing = "" if case.sharing else ", no prefix sharing"
    pool = f"{counted(case.num_blocks, 'block')} of {counted(case.block_size, 'token')}"
    return f"{pool}{sharing}: {', '.join([*texts, asks])}"


EXERCISE = exercise(
    globals(),
    differences,
    reference=Scheduler.make_room,
)
