"""Shows which rungs of both ladders this machine's GPU runs, and why not the others.

`python -m paged_attention.which_rungs`
"""

from collections.abc import Sequence

import torch

from paged_attention.gpu_needs import Capability, in_words
from paged_attention.ladder.rungs import RUNGS, Rung
from paged_attention.prefill.rungs import PREFILL_RUNGS

LADDERS = {"Lesson 07, decodes": RUNGS, "Lesson 09, prompts": PREFILL_RUNGS}


def table(rungs: Sequence[Rung], has: Capability | None) -> str:
    """A line for each rung: the least compute capability, and what an older GPU lacks.

    has: this machine's compute capability; None where there is no GPU.
    """
    width = max(len(rung.title) for rung in rungs)
    lines = []
    for rung in rungs:
        here = ""
        if has:
            here = "runs here" if rung.needs.met_by(has) else "not here"
        words = [f"rung {rung.number}", f"{rung.title:{width}}", f"{rung.needs!s:11}"]
        lines.append("  ".join([*words, f"{here:9}", rung.needs.reason]).rstrip())
    return "\n".join(lines)


def main() -> None:
    has = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    if has:
        print(f"{torch.cuda.get_device_name()}, compute capability {in_words(has)}")
    else:
        print("There is no GPU here: all rungs run on the CPU, slowly.")
    for title, rungs in LADDERS.items():
        print(f"\n{title}\n{table(rungs, has)}")
    print("\nRung 9 of lesson 07 needs 8.9 for a cache of 8 bits.")


if __name__ == "__main__":
    main()
