"""Words for the descriptions of cases."""


def count(number: int, noun: str) -> str:
    """"1 block", "2 blocks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
