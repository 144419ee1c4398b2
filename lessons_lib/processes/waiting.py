"""Shows in a notebook what a cell is waiting for, and how long it has waited so far.

The line is there only while the cell waits, and only where a person can see it: in a kernel
that Jupyter's server has started. Where a program executes notebooks, nothing is printed.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 2.0  # seconds before the line appears; most builds and checks are quicker


@contextmanager
def waiting(
    what: str, show: Callable[[str], object] | None = None, patience: float = PATIENCE
) -> Iterator[None]:
    """Shows `what` and the seconds so far while the `with` block runs.

    show: called with the line, and at the end with ""; None shows it below the cell.
    patience: seconds before the line appears; 0 if the `with` block is known to take long.
    """
    if show is None:
        if not _is_watched():
            yield
            return
        show = _below_the_cell()
    over, begun = threading.Event(), time.monotonic()
    if not patience:
        show(f"{what} …")

    def tell():
        told = not patience
        while not over.wait(1.0 if told else patience):
            show(f"{what} … {time.monotonic() - begun:.0f} s")
            told = True
        if told:
            show("")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _is_watched() -> bool:
    """Whether this is a kernel that Jupyter's server has started, and not a child of it."""
    if "JPY_SESSION_NAME" not in os.environ or "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


def _below_the_cell() -> Callable[[str], object]:
    from IPython.display import display

    handles: list = []

    def show(line: str):
        shown = {"text/plain": line, "text/html": f"<i>{line}</i>" if line else ""}
        if handles:
            handles[0].update(shown, raw=True)
        else:
            handles.append(display(shown, raw=True, display_id=True))

    return show
