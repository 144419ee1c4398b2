"""How much of an engine's step learners write: `python -m tools.share`.

It counts the lines that plain steps execute, and those of them that are in exercise cells. A
line is the same wherever it is kept, in a notebook or imported. The model, the server and the
fast parts are left out.
"""

import functools
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from lessons_lib.paths import ROOT
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.tasks import encode

COURSE = ROOT / "paged_attention"
LEFT_OUT = "engine/cpu", "engine/fast", "engine/serve", "engine/parallel", "tiny_qwen3"
PROMPTS = "Cq7b>", "Ka17..q42......z93?zq>", "Ka17..q42......z93?az>"
GIVEN = "given"


@functools.cache
def executed_lines() -> set[tuple[Path, int]]:
    """The lines of plain steps.

    They have chunks, decodes, a shared prefix and a request that gives way. Some requests draw
    their tokens. They attend as lesson 05 does.
    """
    sizes = dict(num_blocks=8, block_size=8, token_budget=16, path="paged_torch")
    Engine(load_model(), **sizes).generate([[1]], SamplingParams(1))  # imports what it needs
    engine, requests = Engine(load_model(), **sizes), []
    for number, prompt in enumerate(PROMPTS):
        params = SamplingParams(20, temperature=number % 2, top_k=8, ignore_end=True)
        requests.append(engine.add(number, encode(prompt), params))
    lines = executed(engine.run)
    assert any(request.num_preempted for request in requests)
    return lines


def count_lines(room: str = "") -> Counter[str]:
    """Counts the lines of plain steps, for each exercise and for what is given.

    room: a folder of paged_attention; "" for all of it.
    """
    lines = executed_lines()
    files = {file for file, _ in lines if file.is_relative_to(COURSE / room)}
    owners = {file: owner_of_each_line(file) for file in files}
    return Counter(owners[file][number] for file, number in lines if file in files)


def executed(call: Callable[[], object]) -> set[tuple[Path, int]]:
    """The lines of the course that a call executes."""
    lines: set[tuple[Path, int]] = set()

    def trace(frame, event, argument):
        file = Path(frame.f_code.co_filename)
        if not file.is_relative_to(COURSE) or any(
            file.is_relative_to(COURSE / part) for part in LEFT_OUT
        ):
            return None
        if event == "line":
            lines.add((file, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def owner_of_each_line(file: Path) -> dict[int, str]:
    """The exercise that each line of a file belongs to, or `GIVEN`."""
    owner, owners = GIVEN, {}
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
        words = line.split()
        if words[:3] == ["#", "BEGIN", "SOLUTION"]:
            owner = words[3]
        elif words[:3] == ["#", "END", "SOLUTION"]:
            owner = GIVEN
        owners[number] = owner
    return owners


def main() -> None:
    for room, title in (("", "a step"), ("engine", "the engine's part of it")):
        counts = count_lines(room)
        of_lesson = sum(n for owner, n in counts.items() if owner.startswith("8."))
        total = counts.total()
        print(
            f"{title}: {total} lines, {1 - counts[GIVEN] / total:.0%} in exercise cells, "
            f"{of_lesson / total:.0%} in those of lesson 08"
        )


if __name__ == "__main__":
    main()
