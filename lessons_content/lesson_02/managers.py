"""How the exercises on `PagedAttentionManager` look at all that a method left."""

import functools
import random

import torch

from lessons_content.exercises import exercise as common
from lessons_content.exercises import tensors
from lessons_content.exercises.naming_words import SLIPS
from lessons_content.exercises.pools import lengths_of, users_of
from lessons_lib.checks import Exercise, Raised, Text, raised
from lessons_lib.processes.isolation import describe_error
from paged_attention.pool.block_manager import PythonBlockManager
from paged_attention.pool.kv_cache import PagedAttentionManager

LONGEST_ERROR = 180  # characters of an error's text in a message
ADD, APPEND, FORK, FREE = "add_sequence", "append_token", "fork_sequence", "free_sequence"


def sizes_of(num_blocks, block_size, max_num_seqs, max_blocks_per_seq) -> dict[str, int]:
    return locals()


# Cases: (sizes of the manager, steps done with our methods, calls of the learner's method).
SMALL, ROOMY = sizes_of(4, 2, 3, 3), sizes_of(12, 3, 4, 6)


def exercise(scope: dict, answer_name: str, **own) -> Exercise:
    """The exercise on a method. Its mistakes may use the names in here, too."""
    of_calls = {"size": size, "hidden": hidden, "observe": drive, "describe": describe}
    fields = {field: functools.partial(its, answer_name) for field, its in of_calls.items()}
    return common.exercise(
        scope,
        answer_name=answer_name,
        reference=getattr(PagedAttentionManager, answer_name),
        arrange=arrange,
        same=same,
        show=show,
        also=globals(),
        **fields | own,
    )


# How `chance` draws the arguments of a step or a call. `one` is mostly the id of a sequence.
# The step may fail.
DRAWN = {
    ADD: lambda chance, one: (chance.randrange(6), chance.randint(-1, 9)),
    APPEND: lambda chance, one: (one,),
    FORK: lambda chance, one: (one, chance.randrange(6)),
    FREE: lambda chance, one: (one,),
}


def hidden(name: str, chance: random.Random):
    """Managers of any size with any past, and calls of the method."""
    for number in range(20):
        num_blocks = chance.randint(2, 7)
        block_size = chance.randint(2, 4) if number != 9 else 1
        sizes = sizes_of(num_blocks, block_size, chance.randint(3, 5), chance.randint(2, 5))
        manager = PagedAttentionManager(num_kv_heads=1, head_size=1, **sizes)
        steps = [(ADD, chance.randrange(5), chance.randint(0, 2 * block_size))]
        manager.add_sequence(*steps[0][1:])
        for _ in range(number % 10):
            _try(manager, chance.choice([*DRAWN, FORK, APPEND]), chance, steps)
        calls = []
        while len(calls) < 2 + number // 3:
            _try(manager, name, chance, calls, raising=True)
        yield sizes, steps, [call[1:] for call in calls]


def _try(manager, step: str, chance, done: list, raising: bool = False) -> None:
    """Takes a drawn step and adds it to `done`, if nothing is wrong with it.

    raising: also if only one thing is wrong with it.
    """
    known = [*manager.sequences]
    args = DRAWN[step](chance, chance.choice([*known, *known, chance.randrange(6)]))
    if _num_faults(manager, step, *args) > raising:
        return
    done.append((step, *args))
    try:
        getattr(manager, step)(*args)
    except (ValueError, LookupError, MemoryError):
        pass


def _num_faults(manager, step: str, seq_id: int, more: int = 0) -> int:
    """For how many reasons a step may fail. Where there are two, either error is right."""
    known, length = seq_id in manager.sequences, more if step == ADD else 0
    if step == APPEND and known:
        length = manager.sequences[seq_id].length + 1
    new_id = {ADD: seq_id, FORK: more}.get(step)
    num_blocks = -(-length // manager.block_size)
    num_free = manager.block_manager.get_num_free_blocks()
    faults = {
        "unknown": step != ADD and not known,
        "duplicate": new_id in manager.sequences,
        "out of rows": new_id is not None and not manager.table.free_rows,
        "negative": length < 0,
        "too long": num_blocks > manager.max_blocks_per_seq,
        "out of blocks": step == ADD and num_blocks > num_free or length and not num_free,
    }
    return sum(map(bool, faults.values()))


class BlockManager(PythonBlockManager):
    """As the C++ one of the lesson's `small_manager()`: with an exception class of its own."""

    class OutOfBlocksError(MemoryError):
        pass

    def allocate(self) -> int:
        if not self.get_num_free_blocks():
            raise self.OutOfBlocksError("no block is free")
        return super().allocate()


def arrange(case) -> tuple[PagedAttentionManager, list]:
    """Our manager after a case's steps, with other numbers in each slot, and the calls."""
    sizes, steps, calls = case
    manager = PagedAttentionManager(
        num_kv_heads=1, head_size=2, num_layers=2, block_manager=BlockManager, **sizes
    )
    pool = manager.kv_cache
    pool.copy_(torch.arange(1.0, pool.numel() + 1).view_as(pool))
    for step, *args in steps:
        getattr(manager, step)(*args)
    return manager, calls


def drive(name: str, method, case) -> list | Text:
    """What each call of the learner's method gave, and the manager's parts after it.

    `case`: one of ours, or arranged.
    """
    manager, calls = case if isinstance(case[0], PagedAttentionManager) else arrange(case)
    manager.__class__ = type("PagedAttentionManager", (PagedAttentionManager,), {name: method})
    # Callers hold these, so they must stay the same objects. What a new slot holds does not
    # count: only the tokens that are there now are watched.
    watched = manager.kv_cache, manager.block_table, lengths_of(manager)
    tensors_before, seen = held_by(manager), []
    for args in calls:
        try:
            result = getattr(manager, name)(*args)
            ending = {"ended": Text("without an error")}
            if name == APPEND:
                ending = {"returned": tensors.integer(result)}
        except NotImplementedError:
            raise
        except Exception as error:
            ending = {"raised": raised(error)}
        try:
            seen.append(ending | parts(manager, *watched))
        except Exception as error:
            ours = f"after call {len(seen) + 1} the manager cannot be read"
            return Text(f"{ours}: {describe_error(error)}")
        for held, tensor in held_by(manager).items():
            if tensor is not tensors_before[held]:
                return Text(f"after call {len(seen)} {held} is another tensor than before")
    return seen


def held_by(manager) -> dict[str, torch.Tensor]:
    """The tensors that others hold too, by the manager's names for them."""
    return {
        "self.kv_cache": manager.kv_cache,
        "self.block_table": manager.block_table,
        "self.table.on_device": manager.table.on_device,
    }


def parts(manager, pool: torch.Tensor, block_table: torch.Tensor, lengths: dict) -> dict:
    """All that a sequence of calls can leave behind, by name.

    `lengths`: how many tokens of each sequence are written.
    """
    sequences, cpu = dict(sorted(manager.sequences.items())), manager.table.cpu
    rows = {seq_id: sequence.row for seq_id, sequence in sequences.items()}
    blocks = {id: cpu[row].tolist() for id, row in rows.items()}
    found = {
        "the sequences' lengths": dict(sorted(lengths_of(manager).items())),
        "the sequences' blocks": blocks,
        "the rows that no sequence has": [
            row.tolist() for index, row in enumerate(cpu) if index not in rows.values()
        ],
        "the users of each block": users_of(manager, range(pool.shape[2])),
        "the number of free rows": len(set(manager.table.free_rows)),
        "all rows, in use or free": sorted([*rows.values(), *manager.table.free_rows]),
        "the table on the device": block_table.tolist(),
    }
    if torch.equal(cpu, block_table):
        found["the table on the device"] = Text("equal to the CPU's")
    for layer, halves in enumerate(pool):
        for half, cache in zip(("keys", "values"), halves, strict=True):
            found[f"the {half} in layer {layer}, a number for each token"] = {
                seq_id: _numbers(cache, row, lengths.get(seq_id, 0))
                for seq_id, row in blocks.items()
            }
    return found


def _numbers(cache: torch.Tensor, row: list[int], length: int) -> list[float]:
    """The first number of each of a sequence's first tokens, found through its row."""
    places = [divmod(position, cache.shape[1]) for position in range(length)]
    return [
        cache[row[index], offset, 0, 0].item() if row[index] >= 0 else float("-inf")
        for index, offset in places
    ]


def same(expected, actual) -> bool:
    """Of an error the text counts only if it says what the slip is."""
    return _without_texts(expected) == _without_texts(actual)


def _without_texts(seen):
    if isinstance(seen, list):
        return [*map(_without_texts, seen)]
    if not isinstance(seen, dict) or "raised" not in seen:
        return seen
    error = seen["raised"]
    name = error.partition(":")[0]
    return seen | {"raised": str(error) if name in SLIPS else name}


def show(expected, actual) -> tuple[str, str]:
    """The first thing in which two results differ."""
    are_lists = isinstance(expected, list) and isinstance(actual, list)
    if not are_lists or len(expected) != len(actual):
        ours = "a manager whose rows and lengths can be read, in the same tensors"
        return ours, repr(actual)
    for number, (ours, theirs) in enumerate(zip(expected, actual, strict=True), 1):
        after = f"after call {number}, " if len(expected) > 1 else ""
        endings = [[dict([next(iter(seen.items()))])] for seen in (ours, theirs)]
        if not same(*endings):
            return f"{after}{_ending(ours)}", f"{after}{_ending(theirs, in_full=True)}"
        for part in list(ours)[1:]:
            if ours[part] != theirs[part]:
                return f"{after}{part}: {ours[part]}", f"{after}{part}: {theirs[part]}"
    return repr(expected), repr(actual)


def _ending(seen: dict, in_full: bool = False) -> str:
    """in_full: with an error's text, and the line that raised it."""
    verb, result = next(iter(seen.items()))
    if isinstance(result, Raised):
        text, where = result.partition(":")[0], ""
        if in_full:
            text = result if len(result) <= LONGEST_ERROR else f"{result[:LONGEST_ERROR]}…"
            where = f"\n  raised in {result.where}" if result.where else ""
        return f"the call raised {text}{where}"
    return f"the call {verb} {result!r}"


def size(name: str, case) -> tuple[int, ...]:
    """Of a case: how many calls, the new sequences' tokens, the slots of the pool."""
    sizes, steps, calls = case
    made = [*steps, *((name, *args) for args in calls)]
    num_tokens = sum(abs(step[2]) for step in made if step[0] == ADD)
    return len(made), num_tokens, sizes["num_blocks"] * sizes["block_size"]


def describe(name: str, case) -> str:
    """A case in the learner's words."""
    sizes, steps, calls = case
    done = "".join(f"{step}({', '.join(map(str, args))}), " for step, *args in steps)
    call = ", ".join(f"{name}({', '.join(map(str, args))})" for args in calls)
    num_blocks, block_size, _, in_a_row = sizes.values()
    pool = f"a pool of {num_blocks} blocks of {block_size} tokens, {in_a_row} entries in a row"
    return f"{pool}; {done}{'then ' * bool(done)}{call}"
