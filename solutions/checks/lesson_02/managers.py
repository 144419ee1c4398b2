"""How the exercises on `PagedAttentionManager` look at a method: everything that it left behind, part by part."""

import torch

from lessons_lib.checks import Text
from lessons_lib.kv_cache import PagedAttentionManager

# Cases: (sizes of the manager, steps done with our methods, calls of the learner's method).
SMALL = {"num_blocks": 4, "block_size": 2, "max_num_seqs": 3, "max_blocks_per_seq": 3}


def learners_manager(name: str, method, sizes: dict) -> PagedAttentionManager:
    """Our manager with the learner's method `name`, and a pool in which every number is another."""
    manager = type("PagedAttentionManager", (PagedAttentionManager,), {name: method})(
        num_kv_heads=1, head_size=2, num_layers=2, **sizes)
    manager.kv_cache.copy_(torch.arange(1.0, manager.kv_cache.numel() + 1).view_as(manager.kv_cache))
    return manager


def drive(name: str, method, case) -> list:
    """What each call of the method gave, and the manager's parts after it."""
    sizes, steps, calls = case
    manager = learners_manager(name, method, sizes)
    for step, *args in steps:
        getattr(PagedAttentionManager, step)(manager, *args)
    seen = []
    for args in calls:
        try:
            result = getattr(manager, name)(*args)
            ending = {"returned": result} if name == "append_token" else {"ended": Text("without an error")}
        except NotImplementedError:
            raise
        except Exception as error:
            ending = {"raised": Text(type(error).__name__)}
        seen.append(ending | parts(manager))
    return seen


def parts(manager: PagedAttentionManager) -> dict:
    """All that a sequence of calls can leave behind, by name."""
    num_blocks = manager.kv_cache.shape[2]
    return {
        "the sequences' lengths": {seq_id: sequence.length for seq_id, sequence in sorted(manager.sequences.items())},
        "the sequences' blocks": {seq_id: table_row(manager.table.cpu[sequence.row])
                                  for seq_id, sequence in sorted(manager.sequences.items())},
        "the rows of no sequence": [table_row(row) for index, row in enumerate(manager.table.cpu)
                                    if index not in {sequence.row for sequence in manager.sequences.values()}],
        "the users of each block": [manager.block_manager.get_ref_count(block_id) for block_id in range(num_blocks)],
        "the number of free rows": len(set(manager.table.free_rows)),
        "the rows' owners": sorted([sequence.row for sequence in manager.sequences.values()] + manager.table.free_rows),
        "the table on the device": Text("equal to the CPU's") if torch.equal(manager.table.cpu, manager.block_table)
        else [table_row(row) for row in manager.block_table],
    } | {
        f"the {half} in layer {layer}, a number for each slot": manager.kv_cache[layer, index, :, :, 0, 0].tolist()
        for layer in range(len(manager.kv_cache)) for index, half in enumerate(("keys", "values"))
    }


def table_row(row: torch.Tensor) -> list[int]:
    return row.tolist()


def show(expected, actual) -> tuple[str, str]:
    """The first thing in which two results differ."""
    if not (isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual)):
        return repr(expected), repr(actual)
    for number, (ours, theirs) in enumerate(zip(expected, actual, strict=True), 1):
        after = f"after call {number}, " if len(expected) > 1 else ""
        if list(ours)[0] != list(theirs)[0] or ours[list(ours)[0]] != theirs[list(theirs)[0]]:
            return f"{after}{_ending(ours)}", f"{after}{_ending(theirs)}"
        for part in list(ours)[1:]:
            if ours[part] != theirs[part]:
                return f"{after}{part}: {ours[part]}", f"{after}{part}: {theirs[part]}"
    return repr(expected), repr(actual)


def _ending(seen: dict) -> str:
    verb = next(iter(seen))
    return f"the call {verb} {seen[verb]!r}"


def describe(name: str, case) -> str:
    """A case in the learner's words."""
    sizes, steps, calls = case
    done = "".join(f"{step}({', '.join(map(str, args))}), " for step, *args in steps)
    call = ", ".join(f"{name}({', '.join(map(str, args))})" for args in calls)
    return (f"a pool of {sizes['num_blocks']} blocks of {sizes['block_size']} tokens, {sizes['max_blocks_per_seq']} entries "
            f"in a row; {done}then {call}")
