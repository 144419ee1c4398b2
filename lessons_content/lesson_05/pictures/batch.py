"""How batches are made from a queue of prompts, step by step, for the player."""

from dataclasses import dataclass

from lessons_lib.drawing.player import Cell, Cells, Numbers, Player, Recording, Row, View

BUDGET = 8  # tokens in a step
PROMPTS = {"A": 6, "B": 5, "C": 4}  # tokens
NUM_NEW = 3  # tokens of each answer


@dataclass
class Sequence:
    """num_tokens: of the prompt, and of the answer so far. num_computed: those in the pool."""

    name: str
    num_tokens: int
    num_computed: int = 0

    @property
    def decodes(self) -> bool:
        return self.num_computed >= PROMPTS[self.name]

    @property
    def is_done(self) -> bool:
        return self.num_tokens == PROMPTS[self.name] + NUM_NEW


def recorded() -> Player:
    """Three prompts under a budget of eight tokens, until each has three new tokens."""
    sequences = [Sequence(name, length) for name, length in PROMPTS.items()]
    rows = [
        Row(name, [f"{name}{place}" for place in range(length + NUM_NEW - 1)], True)
        for name, length in PROMPTS.items()
    ]
    tokens = Cells("tokens", "the tokens of each sequence", rows, 1, noun="token", ids=False)
    batch = Cells(
        "batch",
        "the batch of this step",
        [Row("", range(BUDGET))],
        1,
        BUDGET,
        "place",
        "tokens",
        ids=False,
    )
    queue = Cells(
        "queue", "waiting", [Row("", PROMPTS)], noun="request", missing="gone", ids=False
    )
    numbers = Numbers("numbers", {"used": f"of {BUDGET} places are used"})
    views = [View("", [queue, tokens]), View("", [batch, numbers])]
    recording = Recording("Batches from a queue", views, [*PROMPTS], pace=1800)
    chosen: list[str] = []

    def record(say: str) -> None:
        waiting = [
            each for each in sequences if not each.num_computed and not _in(each, chosen)
        ]
        places = {n: Cell([name[0]], 1, name) for n, name in enumerate(chosen)}
        heads = {each.name: _head(each) for each in sequences}
        recording.step(
            say,
            queue.at({each.name: Cell([each.name]) for each in waiting}),
            tokens.at(_tokens(sequences), heads),
            batch.at(places),
            numbers.at(used=str(len(chosen))),
        )

    record(
        f"Three prompts wait. Their tokens are hatched: they have no keys and values yet."
        f" A step computes {BUDGET} tokens at most."
    )
    number = 0
    while not all(each.is_done for each in sequences):
        taken = []
        for each in [each for each in sequences if not each.is_done]:
            count = min(each.num_tokens - each.num_computed, BUDGET - len(chosen))
            if not count:
                record(f"Step {number}. Nothing is left of the budget: {each.name} waits.")
                continue
            first = each.num_computed
            chosen += [f"{each.name}{first + n}" for n in range(count)]
            taken.append((each, count))
            record(f"Step {number}. {_said(each, count)}")
        new = []
        for each, count in taken:
            each.num_computed += count
            if each.num_computed == each.num_tokens:
                each.num_tokens += 1
                new.append(each.name)
        record(
            f"Step {number}. The model runs once. Keys and values of these {len(chosen)}"
            f" tokens are in the pool now. New tokens: {', '.join(new)}."
        )
        chosen.clear()
        number += 1
    return recording.player(
        still=7,
        alt=(
            "Three sequences as rows of tokens, and the eight places of a batch. All places"
            " are used: by token 6 of A, which decodes, by tokens 2 to 4 of B, the rest of its"
            " prompt, and by tokens 0 to 3 of C, its whole prompt."
        ),
    )


def _in(sequence: Sequence, chosen: list[str]) -> bool:
    return any(name.startswith(sequence.name) for name in chosen)


def _tokens(sequences: list[Sequence]) -> dict[str, Cell]:
    """Tokens in the pool are full. Tokens that are known but not computed are empty."""
    return {
        f"{each.name}{place}": Cell([each.name], place < each.num_computed, str(place))
        for each in sequences
        for place in range(min(each.num_tokens, PROMPTS[each.name] + NUM_NEW - 1))
    }


def _head(sequence: Sequence) -> str:
    if sequence.is_done:
        return f"{sequence.name}: done"
    return f"{sequence.name}: answer" if sequence.decodes else f"{sequence.name}: prompt"


def _said(each: Sequence, count: int) -> str:
    if each.decodes:
        return f"{each.name} decodes: its newest token goes into the batch."
    left = each.num_tokens - each.num_computed
    if count < left:
        return f"{each.name} gets a chunk: {count} of its {left} tokens fit into the budget."
    what = "the rest of its prompt" if each.num_computed else "its whole prompt"
    return f"{each.name} gets {what}: {count} tokens."
