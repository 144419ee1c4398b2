"""How the exercises on `PagedAttentionManager` look at a method.

They look at all that it left, part by part.
"""

import random

import torch

from lessons_exercises.words import SLIPS
from lessons_lib.checks import Raised, Text, raised
from lessons_processes.isolation import describe_error
from paged_attention.block_manager import PythonBlockManager
from paged_attention.kv_cache import PagedAttentionManager

# Cases: (sizes of the manager, steps done with our methods, calls of the learner's method).
SMALL = {"num_blocks": 4, "block_size": 2, "max_num_seqs": 3, "max_blocks_per_seq": 3}


LONGEST_ERROR = 180  # characters of an error's text in a message

# Arguments for a step or a call, drawn by `chance`: `one` of the sequences, mostly. Whether it
# goes well is another matter.
DRAWN = {
    "add_sequence": lambda chance, one: (chance.randrange(6), chance.randint(-1, 9)),
    "append_token": lambda chance, one: (one,),
    "fork_sequence": lambda chance, one: (one, chance.randrange(6)),
    "free_sequence": lambda chance, one: (one,),
}


def hidden(name: str, seed: int):
    """For `Exercise.hidden`: managers of any size with any past.

    Then come calls of the learner's method `name`.
    """
    chance = random.Random(seed)
    for number in range(20):
        sizes = {
            "num_blocks": chance.randint(2, 7),
            "block_size": chance.randint(2, 4) if number != 9 else 1,
            "max_num_seqs": chance.randint(3, 5),
            "max_blocks_per_seq": chance.randint(2, 5),
        }
        manager = PagedAttentionManager(num_kv_heads=1, head_size=1, **sizes)
        steps = [
            ("add_sequence", chance.randrange(5), chance.randint(0, 2 * sizes["block_size"]))
        ]
        getattr(manager, steps[0][0])(*steps[0][1:])
        for _ in range(number % 10):
            _try(
                manager,
                chance.choice([*DRAWN, "fork_sequence", "append_token"]),
                chance,
                steps,
            )
        calls = []
        while len(calls) < 2 + number // 3:
            _try(manager, name, chance, calls, raising=True)
        yield sizes, steps, [call[1:] for call in calls]


def _try(manager, step: str, chance, done: list, raising: bool = False) -> None:
    """Takes a drawn step and writes it down, if it goes well.

    Or, `raising`, where it can fail in one way only.
    """
    args = DRAWN[step](
        chance, chance.choice([*manager.sequences, *manager.sequences, chance.randrange(6)])
    )
    if _num_faults(manager, step, *args) > raising:
        return
    done.append((step, *args))
    try:
        getattr(manager, step)(*args)
    except (ValueError, LookupError, MemoryError):
        pass


def _num_faults(manager, step: str, seq_id: int, more: int = 0) -> int:
    """For how many reasons a step may fail.

    Where there are two, an answer may raise either error.
    """
    known, full = seq_id in manager.sequences, not manager.table.free_rows
    length = {
        "add_sequence": more,
        "append_token": manager.sequences[seq_id].length + 1 if known else 0,
    }.get(step, 0)
    num_blocks = -(-length // manager.block_size)
    num_free = manager.block_manager.get_num_free_blocks()
    faults = {
        "unknown": step != "add_sequence" and not known,
        "duplicate": (
            step == "add_sequence"
            and known
            or step == "fork_sequence"
            and more in manager.sequences
        ),
        "out of rows": step in ("add_sequence", "fork_sequence") and full,
        "negative": length < 0,
        "too long": num_blocks > manager.max_blocks_per_seq,
        "out of blocks": (
            step == "add_sequence" and num_blocks > num_free or length and not num_free
        ),
    }
    return sum(map(bool, faults.values()))


class OutOfBlocksError(MemoryError):
    """The error as a module built from C++ has it.

    It is another class than `paged_attention.block_manager.OutOfBlocksError`.
    """


class BlockManager(PythonBlockManager):
    """The block manager that the lesson's `small_manager()` uses is the C++ one.

    It has exception classes of its own.
    """

    def allocate(self) -> int:
        if not self.get_num_free_blocks():
            raise OutOfBlocksError("no block is free")
        return super().allocate()


def arrange(case) -> tuple[PagedAttentionManager, list]:
    """What a case begins with: our manager after its steps, and the calls.

    In the pool, every number is another.
    """
    sizes, steps, calls = case
    manager = PagedAttentionManager(
        num_kv_heads=1, head_size=2, num_layers=2, block_manager=BlockManager, **sizes
    )
    manager.kv_cache.copy_(
        torch.arange(1.0, manager.kv_cache.numel() + 1).view_as(manager.kv_cache)
    )
    for step, *args in steps:
        getattr(manager, step)(*args)
    return manager, calls


def drive(name: str, method, case) -> list | Text:
    """What each call of the learner's method gave, and the manager's parts after it.

    In words, if the method has left a manager that cannot be read.

    `case`: one of ours, or arranged.
    """
    manager, calls = case if isinstance(case[0], PagedAttentionManager) else arrange(case)
    manager.__class__ = type("PagedAttentionManager", (PagedAttentionManager,), {name: method})
    # What was there must stay where callers hold it; what a new slot holds is nobody's
    # business yet.
    watched = (
        manager.kv_cache,
        manager.block_table,
        {seq_id: sequence.length for seq_id, sequence in manager.sequences.items()},
    )
    seen = []
    for args in calls:
        try:
            result = getattr(manager, name)(*args)
            ending = (
                {"returned": _slot(result)}
                if name == "append_token"
                else {"ended": Text("without an error")}
            )
        except NotImplementedError:
            raise
        except Exception as error:
            ending = {"raised": raised(error)}
        try:
            seen.append(ending | parts(manager, *watched))
        except Exception as error:
            return Text(
                f"after call {len(seen) + 1} the manager cannot be read: "
                f"{describe_error(error)}"
            )
    return seen


def _slot(result):
    return (
        int(result)
        if hasattr(result, "__index__") and not isinstance(result, torch.Tensor)
        else Text(repr(result))
    )


def parts(
    manager: PagedAttentionManager,
    pool: torch.Tensor,
    block_table: torch.Tensor,
    lengths: dict,
) -> dict:
    """All that a sequence of calls can leave behind, by name.

    `lengths`: how many tokens of each sequence are written.
    """
    sequences = sorted(manager.sequences.items())
    rows = {sequence.row for _, sequence in sequences}
    return {
        "the sequences' lengths": {seq_id: sequence.length for seq_id, sequence in sequences},
        "the sequences' blocks": {
            seq_id: manager.table.cpu[sequence.row].tolist() for seq_id, sequence in sequences
        },
        "the rows that no sequence has": [
            row.tolist() for index, row in enumerate(manager.table.cpu) if index not in rows
        ],
        "the users of each block": [
            manager.block_manager.get_ref_count(block_id) for block_id in range(pool.shape[2])
        ],
        "the number of free rows": len(set(manager.table.free_rows)),
        "all rows, in use or free": sorted(
            [sequence.row for _, sequence in sequences] + manager.table.free_rows
        ),
        "the table on the device": (
            Text("equal to the CPU's")
            if torch.equal(manager.table.cpu, block_table)
            else block_table.tolist()
        ),
    } | {
        f"the {half} in layer {layer}, a number for each token": {
            seq_id: _numbers(pool[layer, index], manager, seq_id, lengths.get(seq_id, 0))
            for seq_id, _ in sequences
        }
        for layer in range(len(pool))
        for index, half in enumerate(("keys", "values"))
    }


def _numbers(
    cache: torch.Tensor, manager: PagedAttentionManager, seq_id: int, length: int
) -> list[float]:
    """The first number of each of a sequence's first tokens, found through its row."""
    row = manager.table.cpu[manager.sequences[seq_id].row].tolist()
    places = [
        (row[position // manager.block_size], position % manager.block_size)
        for position in range(length)
    ]
    return [
        cache[block_id, offset, 0, 0].item() if block_id >= 0 else float("-inf")
        for block_id, offset in places
    ]


def same(expected, actual) -> bool:
    """For `Exercise.same`."""
    return _without_messages(expected) == _without_messages(actual)


def _without_messages(seen):
    """A result in which errors whose text does not count are the name of their type."""
    if not isinstance(seen, list) or not all(isinstance(part, dict) for part in seen):
        return seen
    return [
        part | {"raised": _kind(part["raised"])}
        if isinstance(part.get("raised"), Raised)
        else part
        for part in seen
    ]


def _kind(error: Raised) -> str:
    name = error.partition(":")[0]
    return str(error) if name in SLIPS else name


def show(expected, actual) -> tuple[str, str]:
    """The first thing in which two results differ."""
    if not (
        isinstance(expected, list)
        and isinstance(actual, list)
        and len(expected) == len(actual)
    ):
        return "a manager whose rows and lengths can be read", repr(actual)
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
    return (
        len(made),
        sum(abs(step[2]) for step in made if step[0] == "add_sequence"),
        sizes["num_blocks"] * sizes["block_size"],
    )


def describe(name: str, case) -> str:
    """A case in the learner's words."""
    sizes, steps, calls = case
    done = "".join(f"{step}({', '.join(map(str, args))}), " for step, *args in steps)
    call = ", ".join(f"{name}({', '.join(map(str, args))})" for args in calls)
    return (
        f"a pool of {sizes['num_blocks']} blocks of {sizes['block_size']} tokens, "
        f"{sizes['max_blocks_per_seq']} entries in a row; {done}{'then ' * bool(done)}{call}"
    )
