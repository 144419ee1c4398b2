"""The rows and columns that two slices keep, for 11.1."""

from lessons_content.exercises.kit import Text


def observe(answer, case):
    """(start, stop, step) for rows and for columns, as the weight itself would read them."""
    result = answer(case.layer, case.shape, case.rank, case.world_size)
    if not isinstance(result, tuple | list) or len(result) != 2:
        return Text(f"{named(result)} instead of two slices")
    if not all(isinstance(part, slice) for part in result):
        return Text(f"{' and '.join(map(named, result))} instead of two slices")
    for part in result:
        for bound in (part.start, part.stop):
            if isinstance(bound, float):
                return Text(f"a slice with {bound!r}, which no tensor takes")
    return tuple(part.indices(size) for part, size in zip(result, case.shape, strict=True))


def named(part) -> str:
    if isinstance(part, range | int | float | slice) or part is None:
        return repr(part)
    if isinstance(part, tuple | list) and all(isinstance(each, int) for each in part):
        return repr(part)[:40]
    kind = type(part).__name__
    return f"a {kind} of {len(part)}" if isinstance(part, tuple | list) else f"a {kind}"


def show(expected, actual):
    return in_words(expected), in_words(actual)


def in_words(result) -> str:
    if not isinstance(result, tuple):
        return str(result)
    return ", ".join(
        f"{name} {start} to {stop}" + f" in steps of {step}" * (step != 1)
        for name, (start, stop, step) in zip(("rows", "columns"), result, strict=True)
    )
