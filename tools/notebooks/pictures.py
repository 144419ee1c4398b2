"""Puts a lesson's pictures into its text, so that they are seen before any cell has run.

In a text cell, a line `PICTURE name` becomes the picture that the function `name` in the
lesson's pictures draws without arguments. The picture is an attachment of the notebook, so it
goes wherever the notebook goes.
"""

import base64
import functools
import re

from lessons_lib import rooms
from lessons_lib.source.include import SourceError

_PICTURE = re.compile(r"^PICTURE (?P<name>\w+)$", re.MULTILINE)


def put_into(text: str, lesson: str) -> tuple[str, dict[str, dict[str, str]]]:
    """A text with its pictures in Markdown, and the pictures as attachments.

    lesson: its name, such as "01_block_manager".
    Raises SourceError if the lesson has no such picture.
    """
    attachments = {}

    def shown(match: re.Match) -> str:
        picture = draw(lesson, match["name"])
        data = base64.b64encode(picture.jpeg).decode()
        attachments[f"{match['name']}.jpg"] = {"image/jpeg": data}
        return f"![{picture.alt}](attachment:{match['name']}.jpg)"

    return _PICTURE.sub(shown, text), attachments


@functools.cache
def draw(lesson: str, name: str):
    """A picture that is drawn without arguments, with its `png`, `jpeg` and `alt`.

    lesson: its name, such as "01_block_manager"; or its number.
    name: of the function, such as "opening".
    Raises SourceError if there is no such function.
    """
    number = lesson.partition("_")[0]
    try:
        return getattr(rooms.pictures(number), name)()
    except (ModuleNotFoundError, AttributeError) as error:
        raise SourceError(f"PICTURE {name}: {error}") from None
