"""Changes in C++ and CUDA texts that no other way to lay out the lines disturbs."""

import re


def edited(text: str, *edits: tuple[str, str]) -> str:
    """The text with each (old, new) put in; spaces and line breaks of `old` do not count.

    Raises AssertionError if an `old` is not in the text exactly once.
    """
    for old, new in edits:
        pattern = r"\s*".join(map(re.escape, re.sub(r"\s", "", old)))
        assert len(re.findall(pattern, text)) == 1, old
        text = re.sub(pattern, lambda _, new=new: new.strip(), text)
    return text
