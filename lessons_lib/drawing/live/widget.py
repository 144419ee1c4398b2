"""The widget: JavaScript in the browser, and a connection to the kernel."""

from functools import cache
from pathlib import Path
from typing import Any

from lessons_lib.drawing.player.recording import script, style

HERE = Path(__file__).parent


def make_widget(view) -> Any:
    """The widget of a view; None if anywidget is not installed."""
    kind = _kind()
    if kind is None:
        return None
    controls = [vars(each) | {"value": view.values.get(each.name)} for each in view.controls]
    widget = kind(recording=view.as_json(), controls=controls, lesson=view.lesson)
    widget.on_msg(lambda _, message, buffers: view.take(message))
    return widget


@cache
def _kind() -> type | None:
    try:
        import anywidget
        import traitlets
    except ImportError:
        return None

    class Live(anywidget.AnyWidget):
        _esm = script() + (HERE / "live.js").read_text(encoding="utf-8")
        _css = style(20) + (HERE / "live.css").read_text(encoding="utf-8")
        recording = traitlets.Dict().tag(sync=True)
        controls: traitlets.List = traitlets.List().tag(sync=True)
        lesson = traitlets.Unicode().tag(sync=True)

    return Live
