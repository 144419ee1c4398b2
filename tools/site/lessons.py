"""Makes a lesson's page from its executed notebook and the learners' notebook."""

import copy
import re
from pathlib import Path

import nbformat

from lessons_lib.paths import NOTEBOOKS, SOLUTIONS
from tools.site.addresses import on_the_site
from tools.site.pictures import Pictures

# A learner's progress before the first exercise. It says nothing to a reader of the page.
NOTHING_PASSED = re.compile(r"› (Lesson \w+: )?0 of \d+ exercises passed")
NOTEBOOK_LINK = re.compile(r'href="(\w+)\.ipynb"')  # in the HTML of an output
MARKER = re.compile(r"^\s*(#|//) (BEGIN|END) SOLUTION\n?", re.MULTILINE)
FOLDED = {"code_prompt_show": "Show our answer", "code_prompt_hide": "Hide our answer"}
NOTE = """```{{div}} lesson-note
You read this page as it ran, with our answers folded away.
To do it yourself, [run the course](start.md), or take
<a href="notebooks/{name}.ipynb" download>the notebook with the exercises</a>.
```"""


def write_page(name: str, source: Path, repository: str) -> None:
    """Writes a lesson's page, and its pictures, into the site's sources.

    name: of the lesson, such as 01_block_manager.
    source: the folder of the site's sources.
    """
    page = as_page(
        nbformat.read(SOLUTIONS / f"{name}.ipynb", as_version=4),
        nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4),
        name,
        Pictures(name, source),
        repository,
    )
    nbformat.write(page, source / f"{name}.ipynb")


def as_page(solution, notebook, name: str, pictures: Pictures, repository: str):
    """The notebook that Jupyter Book shows.

    An exercise has the learner's stub, and our answer below it, folded. Neither notebook is
    changed.
    """
    stubs = {cell.id: cell for cell in notebook.cells if "exercise" in cell.metadata}
    page = copy.deepcopy(solution)
    cells = []
    for cell in _without_progress(page.cells):
        if cell.cell_type == "markdown":
            text = pictures.from_text(cell.source, cell.pop("attachments", {}))
            cell.source = on_the_site(text, "solutions", repository)
        else:
            cell.outputs = [_output(output, pictures) for output in cell.outputs]
        if "exercise" in cell.metadata:
            cells.append(_stub(cell, stubs))
            cell.source = MARKER.sub("", cell.source).rstrip("\n")
            cell.metadata.setdefault("tags", []).append("hide-input")
            cell.metadata["mystnb"] = dict(FOLDED)
        cells.append(cell)
    if any("exercise" in cell.metadata for cell in cells):
        _put_below_title(cells[0], NOTE.format(name=name), name)
    page.cells = cells
    return page


def _stub(cell, stubs: dict):
    """The learner's version of an exercise cell, without outputs."""
    if cell.id not in stubs:
        raise ValueError(
            f"Exercise {cell.metadata['exercise']} is missing in notebooks/. `make notebooks`"
            " makes both notebooks of a lesson."
        )
    stub = copy.deepcopy(stubs[cell.id])
    stub.id = f"{cell.id}-stub"
    stub.outputs = []
    stub.metadata = nbformat.NotebookNode()
    return stub


def _without_progress(cells: list) -> list:
    """The cells without a learner's progress, which a page does not have.

    A cell that only shows progress is left out, and so is a heading above nothing else.
    """
    kept: list = []
    for cell in cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_progress(output)]
            if cell.source.strip() == "show_progress()" and not cell.outputs:
                if kept and re.fullmatch(r"#+ [^\n]*\s*", kept[-1].source):
                    kept.pop()
                continue
        kept.append(cell)
    return kept


def _is_progress(output) -> bool:
    return bool(NOTHING_PASSED.match(output.get("data", {}).get("text/plain", "")))


def _output(output, pictures: Pictures):
    """An output with its pictures in files, and only in the form that the page shows."""
    data = output.get("data", {})
    if "text/html" in data:
        shown = pictures.from_output(data["text/html"])
        data["text/html"] = NOTEBOOK_LINK.sub(r'href="\1.html"', shown)
        data.pop("text/plain", None)
    return output


def _put_below_title(cell, text: str, name: str) -> None:
    title, _, rest = cell.source.partition("\n")
    if not title.startswith("# "):
        raise ValueError(f"{name} does not begin with a title: {title!r}")
    cell.source = f"{title}\n\n{text}\n{rest}"
