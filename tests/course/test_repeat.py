"""A lesson prints the same whatever was run before it: lessons in any order, each cell twice,
and all of it once more.
"""

import random
import re

import nbclient
import nbformat
import pytest

from lessons_lib.paths import SOLUTIONS

LESSONS = sorted(SOLUTIONS.glob("*.ipynb"))
ORDER = random.Random(7).sample(LESSONS, len(LESSONS))


@pytest.fixture(scope="module")
def shared_folders(tmp_path_factory):
    """Separate folders for builds and progress, which all lessons here share."""
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LESSONS_BUILD_DIR", str(folder / "build"))
        patch.setenv("LESSONS_PROGRESS_DIR", str(folder / "progress"))
        yield


def shown(outputs) -> list[tuple]:
    """What outputs show, without the bytes of pictures, and with a stream's pieces joined."""
    streams, rest = {}, []
    for output in outputs:
        if output.output_type == "stream":
            streams[output.name] = streams.get(output.name, "") + output.text
        elif output.output_type == "error":
            rest.append((output.ename, output.evalue))
        else:
            rest.append(
                tuple(
                    (kind, re.sub("base64,[A-Za-z0-9+/=]+", "", str(data)))
                    for kind, data in sorted(output.data.items())
                    if kind != "image/png"
                )
            )
    return [*streams.items(), *rest]


@pytest.mark.slow(nightly=True)
@pytest.mark.sampled
@pytest.mark.parametrize("path", ORDER, ids=lambda path: path.stem)
def test_each_cell_twice_and_all_of_it_again(path, shared_folders):
    notebook = nbformat.read(path, as_version=4)
    recorded = [shown(cell.get("outputs", [])) for cell in notebook.cells]
    client = nbclient.NotebookClient(
        notebook,
        timeout=900,
        kernel_name="python3",
        resources={"metadata": {"path": str(SOLUTIONS)}},
    )
    different = []

    def run(index: int, when: str):
        cell = client.execute_cell(notebook.cells[index], index)
        if (
            "nbval-ignore-output" not in cell.metadata.get("tags", ())
            and shown(cell.outputs) != recorded[index]
        ):
            different.append(
                (index, when, cell.source[:80], shown(cell.outputs), recorded[index])
            )

    code = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    with client.setup_kernel():
        for index in code:
            run(index, "first")
            run(index, "at once again")
        for index in code:
            # there is progress by now
            if not re.search(r"progress_bar\(|open_lesson\(", notebook.cells[index].source):
                run(index, "in the second pass")
    assert different == []
