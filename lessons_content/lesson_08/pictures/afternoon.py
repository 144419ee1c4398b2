"""An engine's work, step by step, for the player: its requests over time, and its pool."""

from string import ascii_uppercase

from lessons_content.lesson_08.pictures.timeline import states_of
from lessons_lib.drawing.looks import request_look
from lessons_lib.drawing.player import (
    Bar,
    Cell,
    Cells,
    Lanes,
    Numbers,
    Player,
    Recording,
    Row,
    View,
)
from paged_attention.tiny_qwen3.tasks import decode

KINDS = [("prefills", ""), ("decodes", ""), ("waits", "empty"), ("gave way, waits", "again")]


def played(history: list, title: str, num_blocks: int, block_size: int = 16) -> Player:
    """A lane for each request. Below are the pool, and the requests that wait.

    history: a list of StepRecord.
    """
    states, numbers = states_of(history)
    letters = dict(zip(states, ascii_uppercase))
    looks = {id: request_look(place).name for place, id in enumerate(states)}
    lanes = Lanes(
        "time",
        "requests over time: plain for a prompt, with a pattern for new tokens",
        [f"{letter} {id}" for id, letter in letters.items()],
        len(history),
        KINDS,
        [bar for id in states for bar in _bars(id, states, numbers, looks)],
    )
    pool = Cells("pool", "the pool", [Row("", range(num_blocks))], block_size, columns=10)
    queue = Cells(
        "queue",
        "waiting",
        [Row("", letters.values())],
        noun="request",
        missing="gone",
        ids=False,
    )
    counts = Numbers(
        "counts", {"used": "blocks in use", "free": "free", "saved": "saved by sharing"}
    )
    views = [View("", [lanes], wide=True), View("", [pool]), View("", [queue, counts])]
    recording = Recording(title, views, [*letters.values()])
    before = None
    for step, record in enumerate(history):
        waiting = [letters[id] for id in (*record.preempted, *record.waiting)]
        used = record.alone + record.shared
        recording.step(
            f"Step {step}. {_said(record, before, letters, block_size)}",
            lanes.at(step + 1),
            pool.at(_blocks(record, letters, block_size)),
            queue.at({name: Cell([name]) for name in waiting}),
            counts.at(
                used=str(used),
                free=str(num_blocks - used),
                saved=str(record.unshared - used),
            ),
        )
        before = record
    most_shared = max(range(len(history)), key=lambda step: _interest(history[step]))
    return recording.player(
        f"A timeline with {len(states)} rows, and the pool of {num_blocks} blocks at step"
        f" {most_shared}: {history[most_shared].shared} blocks have several users, and"
        f" {len(history[most_shared].preempted)} requests gave way and wait again.",
        most_shared,
    )


def _interest(record) -> tuple:
    """How interesting a step is. Preemption while blocks are shared comes first."""
    return (bool(record.preempted) and record.shared, len(record.preempted), record.alone)


def _bars(id, states: dict, numbers: dict, looks: dict):
    """A bar for steps in a row with one state, and a bar for each chunk of a prompt."""
    kinds = ["prefills", "decodes", "waits", "preempted, waits again"]
    runs: list[list] = []
    for step, state in sorted(states[id].items()):
        if runs and runs[-1][1:] == [step, state] and state != "prefills":
            runs[-1][1] = step + 1
        else:
            runs.append([step, step + 1, state])
    own = {"prefills": f"{looks[id]} plain", "decodes": looks[id]}
    for start, end, state in runs:
        tells = f"{numbers[id, start]} tokens" if state == "prefills" else ""
        look = own.get(state, "")
        yield Bar([*states].index(id), start, end, kinds.index(state), tells=tells, look=look)


def _blocks(record, letters: dict, block_size: int) -> dict[int, Cell]:
    users: dict[int, list] = {}
    filled, texts = {}, {}
    for id, blocks in record.blocks.items():
        text = decode(record.tokens[id])
        for place, block_id in enumerate(blocks):
            first = place * block_size
            users.setdefault(block_id, []).append(letters[id])
            filled[block_id] = max(0, min(block_size, record.lengths[id] - first))
            texts[block_id] = text[first : first + filled[block_id]]
    kept = {block_id: Cell([]) for block_id in record.only_kept}
    return kept | {
        block_id: Cell(names, filled[block_id], tells=texts[block_id])
        for block_id, names in users.items()
    }


def _said(record, before, letters: dict, block_size: int) -> str:
    """A sentence: which requests came, gave way and ended, and what is computed."""
    had = before.blocks if before else {}
    waited = {*before.waiting, *before.preempted} if before else set()
    said = []
    for id in record.blocks.keys() - had.keys():
        found = (record.lengths[id] - record.scheduled[id][0]) // block_size
        where = f" and finds {found} of its blocks in the pool" if found else ""
        again = before and id in before.preempted
        said.append(f"{letters[id]} {'runs again' if again else 'comes in'}{where}.")
    for id in record.preempted:
        if count := len(had.get(id, [])):
            free = "its block is free" if count == 1 else f"its {count} blocks are free"
            said.append(f"{letters[id]} is preempted; {free} again.")
    if late := [letters[id] for id in record.waiting if id not in waited]:
        said.append(f"{' and '.join(late)} must wait.")
    gone = had.keys() - {*record.blocks, *record.preempted}
    said += [f"{letters[id]} has ended." for id in gone]
    chunks = {id: n for id, (n, phase) in record.scheduled.items() if phase == "prefills"}
    said = sorted(said)
    said += [f"{letters[id]} computes {n} tokens of its prompt." for id, n in chunks.items()]
    if decoding := [letters[id] for id in record.scheduled if id not in chunks]:
        said.append(f"{', '.join(decoding)} decode{'s' * (len(decoding) == 1)}.")
    return " ".join(said)
