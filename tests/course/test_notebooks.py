"""If a learner runs all of a student notebook, it stops at the first exercise and names it.

The summary has no exercises and runs to its end. (test_browser.py checks the same in a
JupyterLab, if there is a browser.)
"""

import nbclient
import nbformat
import pytest

from lessons_lib.paths import NOTEBOOKS

NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_to_the_first_stub(name, tmp_path):
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    first_check = next(
        (index for index, cell in enumerate(notebook.cells) if "check" in cell.metadata), None
    )
    client = nbclient.NotebookClient(
        notebook,
        timeout=900,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    if first_check is None:
        assert name in ("glossary.ipynb", "summary.ipynb")
        client.execute()
        return
    with pytest.raises(nbclient.exceptions.CellExecutionError) as caught:
        client.execute()
    exercise = notebook.cells[first_check].metadata["check"]
    assert (caught.value.ename, caught.value.evalue) == (
        "NotAttempted",
        f"exercise {exercise}: not-attempted",
    )
    ran = [index for index, cell in enumerate(notebook.cells) if cell.get("execution_count")]
    assert max(ran) == first_check
    shown = notebook.cells[first_check].outputs[0]["data"]["text/plain"]
    assert shown.startswith(f"› Exercise {exercise}, ") and "not attempted yet" in shown
