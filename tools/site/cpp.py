"""A Sphinx extension: colours C++ and CUDA in the strings of a cell, as in JupyterLab.

It runs in the site's environment, which does not have the course's packages.
"""

import re

from pygments.lexers import CudaLexer, PythonLexer
from pygments.token import String

_RAW_STRING = re.compile(r"""(r(?P<quotes>"{3}|'{3}))(?P<text>.*?)(?P=quotes)""", re.DOTALL)
_CPP = re.compile(r"^\s*#(include|define|pragma|if)|[;{]\s*(//.*)?$", re.MULTILINE)


class PythonWithCpp(PythonLexer):
    """Python, and C++ between the quotes of a raw string that has a line of C++."""

    def get_tokens_unprocessed(self, text, stack=("root",)):
        end = 0
        for match in _RAW_STRING.finditer(text):
            if _CPP.search(match["text"]):
                begin, before = match.start("text"), end
                end = match.end()
                yield from _moved(super().get_tokens_unprocessed(text[before:begin]), before)
                yield from _moved(CudaLexer().get_tokens_unprocessed(match["text"]), begin)
                yield match.end("text"), String.Double, match["quotes"]
        yield from _moved(super().get_tokens_unprocessed(text[end:]), end)


def _moved(tokens, by: int):
    for place, kind, word in tokens:
        yield place + by, kind, word


def setup(app):
    app.add_lexer("python", PythonWithCpp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
