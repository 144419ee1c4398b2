"""Errors that an answer raises."""

from lessons_lib.checks import Raised, raised


def error_of(answer, *arguments) -> Exception | None:
    """The error that a call of the answer raises, or None.

    NotImplementedError goes on to the caller: the answer is not written yet.
    """
    try:
        answer(*arguments)
    except NotImplementedError:
        raise
    except Exception as error:
        return error
    return None


def retold(error: BaseException, more: str = "", kind: type[Raised] = Raised) -> Raised:
    """An error as a result of this kind, with `more` words after its own."""
    told = raised(error)
    result = kind(f"{told}{more}")
    result.where = told.where
    return result
