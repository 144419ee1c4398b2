"""The first difference of two results, for messages that show no more than that."""


def first_place(ours, theirs) -> int:
    """The first place where two lists differ; 0 if there is none."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((place for place, (one, other) in pairs if one != other), 0)


def first_part(ours: dict, theirs: dict):
    """The first key of `ours` of which the value differs; None if there is none."""
    differing = (part for part in ours if part not in theirs or ours[part] != theirs[part])
    return next(differing, None)


def show(expected, actual) -> tuple[str, str]:
    """For `Exercise.show`: of dictionaries of named parts the first part that differs.

    A part that is missing in `actual`: its last part says why.
    """
    if not isinstance(actual, dict):
        return "no error", str(actual)
    part = first_part(expected, actual)
    if part is None:
        return repr(expected), repr(actual)
    theirs = part if part in actual else [*actual][-1]
    return f"{part}: {expected[part]}", f"{theirs}: {actual[theirs]}"
