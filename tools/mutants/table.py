"""Prints the results of the mutants, for each file."""

from collections import Counter

OUTCOMES = ("killed", "explained", "survived", "not built", "to do")


def print_table(mutants, concerns, results, explained, show: bool = False) -> None:
    """Prints a line for each file.

    show: whether to print the survivors first.
    """
    counts: dict[str, Counter] = {}
    for mutant in mutants:
        verdict = results.find(mutant, concerns.tests(mutant.path))
        outcome = verdict.outcome if verdict else "to do"
        if explained.reason(mutant):
            outcome = "explained"
        counts.setdefault(mutant.path, Counter())[outcome] += 1
        if show and outcome == "survived":
            print(f"{mutant}\n")
    print(
        f"{'':44}{'mutants':>10}"
        + "".join(f"{outcome:>11}" for outcome in OUTCOMES)
        + f"{'share':>9}"
    )
    for path, count in counts.items():
        _print_line(path, count)
    if len(counts) > 1:
        _print_line("all", sum(counts.values(), Counter()))


def share(count: Counter) -> float:
    """Killed or explained mutants, as a share of all that were tried."""
    tried = count["killed"] + count["explained"] + count["survived"]
    return (count["killed"] + count["explained"]) / tried if tried else 1.0


def _print_line(name: str, count: Counter):
    numbers = "".join(f"{count[outcome] or '':>11}" for outcome in OUTCOMES)
    print(f"{name:44}{sum(count.values()):>10}{numbers}{share(count):>9.1%}")
