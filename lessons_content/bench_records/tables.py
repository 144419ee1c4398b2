"""Tables as text."""


def aligned(lines: list[list[str]]) -> str:
    """The first column to the left, the others to the right, each as wide as its text."""
    first, *others = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(first), *map(str.rjust, line[1:], others)]) for line in lines
    )
