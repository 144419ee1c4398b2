"""Opens JupyterLab on the learner's copies of the lessons, on their machine or on a hub."""

import sys
from collections.abc import Sequence
from pathlib import Path

from lessons_lib import installation
from lessons_lib.paths import IS_CHECKOUT, MY_NOTEBOOKS, NOTEBOOKS, ROOT
from lessons_lib.start import earlier_notebooks, jupyterlab, learner_copies

FIRST = "00_start_here.ipynb"


def open_lessons(
    folder: Path | None = None, arguments: Sequence[str] = (), only_copy: bool = False
) -> int:
    """Copies the lessons into `folder` and becomes JupyterLab there.

    folder: None takes MY_NOTEBOOKS.
    arguments: for JupyterLab.
    Returns an exit status if JupyterLab does not start.
    """
    folder = folder or MY_NOTEBOOKS
    copied = _copy(folder)
    if copied and not only_copy:
        # In a clone, show the files that the lessons name too, such as kernels/vector_add.cu.
        is_in_clone = IS_CHECKOUT and folder.resolve().is_relative_to(ROOT)
        jupyterlab.start(folder / FIRST, ROOT if is_in_clone else folder, arguments)
    return 0 if copied else 1


def open_on_hub(folder: Path, arguments: Sequence[str] = ()) -> int:
    """Copies the lessons into `folder` and becomes the server that JupyterHub starts for a
    learner. The server also starts if copying fails: a learner with a full disk has to be able
    to delete files.

    arguments: for JupyterHub's server.
    Returns an exit status if the server does not start.
    """
    if not jupyterlab.has_hub():
        print(
            "JupyterHub is not where the course is installed. Install both into one "
            f"environment: {sys.executable} -m pip install jupyterhub",
            file=sys.stderr,
        )
        return 1
    _copy(folder)
    jupyterlab.start_on_hub(arguments)


def _copy(folder: Path) -> bool:
    """Copies the lessons. Prints the copied files, or why copying failed. Returns success."""
    if damage := installation.faults():
        print(f"The course is not whole: {damage}.", file=sys.stderr)
        print(f"To mend it: {installation.remedy()}", file=sys.stderr)
        return False
    found = earlier_notebooks.find(NOTEBOOKS) if IS_CHECKOUT else []
    try:
        copied = learner_copies.bring(NOTEBOOKS, folder, found)
    except learner_copies.CannotCopy as error:
        print(error, file=sys.stderr)
        return False
    print(in_words(copied, folder), flush=True)
    return True


def in_words(copied: learner_copies.Copied, folder: Path) -> str:
    """A text for the learner about the copied files."""
    lines = [f"The lessons are in {folder.resolve()}."]
    if copied.updated:
        lines.append(f"Brought up to date: {', '.join(copied.updated)}.")
    for name, place in copied.earlier:
        lines.append(f"What you wrote earlier ({place}) is here now, as it was: {name}.")
    for offer in copied.filled:
        lines.append(f"{offer.new} is new{_with_answers(offer)}.{_to_look_at(offer)}")
    for offer in copied.beside:
        state = "has your own changes" if offer.opens else "is no longer a notebook that opens"
        lines.append(
            f"{offer.old[0]} {state} and is as you left it. Its new version is "
            f"{offer.new}{_with_answers(offer)}.{_to_look_at(offer)} Go on in the new one."
        )
    return "\n".join(lines + copied.problems)


def _with_answers(offer: learner_copies.Offer) -> str:
    if not offer.taken.answers:
        return ""
    sources = [name for name in offer.taken.sources if name != offer.new]
    return (
        f", with your answers to {_listed(offer.taken.answers)}. Outputs, and cells and notes "
        f"that you added, are only in {_listed(sources)}"
    )


def _to_look_at(offer: learner_copies.Offer) -> str:
    words = ""
    if differ := offer.taken.differ:
        words = (
            f" What is asked has changed in {_listed(differ)}. This shows it: from "
            f'lessons_lib.guide.show_cells import stub; stub("{differ[0]}")'
        )
    if offer.taken.gone:
        gone = _listed(offer.taken.gone)
        words += f" It has no exercise {gone}: that answer is only in the old one."
    return words


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
