"""Messages to the learner, as text and as HTML. Both are the same on every machine."""

import html
from dataclasses import dataclass

_ACCENTS = {"passed": "#117733", "failed": "#b35900", "note": "#3465a4"}
_SIGNS = {"passed": "✓", "failed": "✗", "note": "›"}


@dataclass(frozen=True)
class Card:
    """A titled message. `tone` is "passed", "failed" or "note".

    Lines of the body that begin with two spaces are shown as code.
    """

    title: str
    body: str = ""
    tone: str = "note"

    def __repr__(self):
        body = "".join(f"\n  {line}" for line in self.body.split("\n")) if self.body else ""
        return f"{_SIGNS[self.tone]} {self.title}{body}"

    def _repr_html_(self):
        accent = _ACCENTS[self.tone]
        body = as_html(self.body) if self.body else ""
        # The text colour is the notebook's, so the card is readable in light and dark themes.
        return (
            f'<div role="status" style="border-left:4px solid {accent};'
            'padding:.3em .9em;margin:.2em 0;max-width:52em">'
            '<div style="font-weight:600">'
            f'<span aria-hidden="true">{_SIGNS[self.tone]}</span> '
            f"{_inline_code(html.escape(self.title))}</div>{body}</div>"
        )


def show(item):
    """Displays `item` in a notebook, and prints it anywhere else."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        get_ipython = None
    if get_ipython is None or get_ipython() is None:
        print(item)
    else:
        display(item)


def as_html(body: str) -> str:
    """The text of a message as escaped HTML. Lines that begin with two spaces become code."""
    return "".join(_paragraph(*group) for group in _groups(body))


def _groups(body: str) -> list[tuple[bool, list[str]]]:
    """Neighbouring lines of the body that are all code or all text: (is code, lines)."""
    groups: list[tuple[bool, list[str]]] = []
    for line in body.split("\n"):
        is_code = line.startswith("  ")
        if not groups or groups[-1][0] != is_code:
            groups.append((is_code, []))
        groups[-1][1].append(line)
    return groups


def _paragraph(is_code: bool, lines: list[str]) -> str:
    if is_code:
        text = html.escape("\n".join(line[2:] for line in lines))
        style = (
            # JupyterLab's own style would break words
            "margin:.3em 0;white-space:pre-wrap;word-break:normal"
        )
        return f'<pre style="{style}">{text}</pre>'
    return "".join(
        f'<div style="margin:.2em 0">{_inline_code(html.escape(line))}</div>' for line in lines
    )


def _inline_code(text: str) -> str:
    """`name` in backticks becomes <code>name</code>."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return text
    return "".join(
        f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts)
    )
