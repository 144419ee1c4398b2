"""Writes the notebooks for Colab and Kaggle: `python -m tools.notebooks.online FOLDER`.

Colab and Kaggle open a notebook by its address on GitHub, on a machine without the course. So
each copy begins with a cell that installs the course. A workflow
(.github/workflows/online.yml) builds the course's wheel into FOLDER, calls this, and pushes
the folder as the branch `online`.

`python -m tools.notebooks.online --badges` prints the README's badges.
"""

import argparse
import importlib
import os
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from lessons_lib.guide import handed_out
from lessons_lib.paths import IS_CHECKOUT, NOTEBOOKS

BRANCH = "online"
FIRST = "00_start_here.ipynb"
# Links in a notebook to the files of other notebooks.
_LINK = re.compile(r"\]\((\w+\.ipynb)(#[^)]*)?\)")
# People read this at the beginning of each notebook. PLACE and LEAST are filled in.
CELL = """\
# @title Run this cell first. It installs the course beside what is here.
import site, subprocess, sys

COURSE = "PLACE"
if sys.version_info < LEAST:
    print("The course needs Python MINIMUM or newer. This is", sys.version.split()[0] + ".")
else:
    pip = [sys.executable, "-P", "-m", "pip", "install", "-q", "--no-deps", COURSE]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        print("The course could not be installed:", *done.stderr.splitlines()[-1:])
        print("Is the internet on? (Kaggle: Settings, Turn on internet.) Then run this again.")
    else:
        for folder in [*site.getsitepackages(), site.getusersitepackages()]:
            site.addsitedir(folder)  # so that this session sees what is new
        from lessons_lib.start.install_missing import complete

        complete()
"""
IMAGES = {
    "Colab": "https://colab.research.google.com/assets/colab-badge.svg",
    "Kaggle": "https://kaggle.com/static/images/open-in-kaggle.svg",
    "Binder": "https://mybinder.org/badge_logo.svg",
    "Codespaces": "https://github.com/codespaces/badge.svg",
}


class CannotWrite(Exception):
    """Something is missing for the online copies. The text says what it is, and what to do."""


def owner_and_name(repository: str) -> str:
    """OWNER/NAME of a repository on GitHub.

    Raises CannotWrite for another address: Colab opens notebooks from GitHub only.
    """
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(\.git)?/?", repository)
    if not found:
        raise CannotWrite(
            f"The repository's address is {repository or 'not known'}. Colab opens notebooks "
            "from GitHub only: COURSE_REPOSITORY=https://github.com/OWNER/NAME"
        )
    return found[1]


def addresses(repository: str, notebook: str = FIRST) -> dict[str, str]:
    """The addresses that open a notebook, by the names of the places that run it."""
    project = owner_and_name(repository)
    on_github = f"github.com/{project}/blob/{BRANCH}/{notebook}"
    in_lab = f"main?urlpath=lab/tree/my-notebooks/{notebook}"
    return {
        "Colab": f"https://colab.research.google.com/{on_github.replace('.com', '', 1)}",
        "Kaggle": f"https://kaggle.com/kernels/welcome?src=https://{on_github}",
        "Binder": f"https://mybinder.org/v2/gh/{project}/{in_lab}",
        "Codespaces": f"https://codespaces.new/{project}",
    }


def badges(repository: str) -> str:
    """The badges for a page of Markdown, each with its link."""
    return "\n".join(
        f"[![Open in {place}]({IMAGES[place]})]({address})"
        for place, address in addresses(repository).items()
    )


def address_of_course(repository: str, wheel: str) -> str:
    """The course's address for pip: the wheel on the branch, of the notebook's version."""
    return f"https://raw.githubusercontent.com/{owner_and_name(repository)}/{BRANCH}/{wheel}"


def first_cell(course: str, least: tuple[int, ...]) -> dict:
    """The cell that installs the course.

    course: the course's address for pip.
    least: the oldest version of Python that the course supports.
    """
    minimum = ".".join(map(str, least))
    text = CELL.replace("PLACE", course).replace("LEAST", repr(least))
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": "install-the-course",
        "metadata": {"cellView": "form"},  # Colab shows the title, and folds the code
        "outputs": [],
        "source": text.replace("MINIMUM", minimum).rstrip().splitlines(keepends=True),
    }


def online_copy(notebook: dict, first: dict, repository: str) -> dict:
    """The notebook with its first cell. Its links to other notebooks work on Colab."""

    def elsewhere(match):
        return f"]({addresses(repository, match[1])['Colab']}{match[2] or ''})"

    cells = [first]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = _LINK.sub(elsewhere, "".join(cell["source"]))
            cell = cell | {"source": text.splitlines(keepends=True)}
        cells.append(cell)
    copy = notebook | {"cells": cells, "metadata": dict(notebook["metadata"])}
    handed_out.stamp(copy)
    return copy


def least_python(wheel: Path) -> tuple[int, ...]:
    """The oldest version of Python that a wheel supports."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    found = re.search(r"^Requires-Python: >=([\d.]+)$", text, re.MULTILINE)
    if not found:
        raise CannotWrite(f"{wheel} does not say which Python it needs, as in >=3.11.")
    return tuple(map(int, found[1].split(".")))


def write(folder: Path, repository: str, notebooks: Path = NOTEBOOKS) -> list[Path]:
    """Writes a copy of each student notebook into a folder that has the course's wheel.

    Raises CannotWrite if the folder has no wheel, or the repository is not on GitHub.
    """
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise CannotWrite(
            f"{folder} has {len(wheels) or 'no'} wheels, and the notebooks need one to "
            f"install:  python -m pip wheel --no-deps --wheel-dir {folder} ."
        )
    course = address_of_course(repository, wheels[0].name)
    first = first_cell(course, least_python(wheels[0]))
    written = []
    for source in sorted(notebooks.glob("*.ipynb")):
        copy = online_copy(handed_out.read(source), first, repository)
        written.append(folder / source.name)
        written[-1].write_bytes(handed_out.as_file(copy))
    return written


def main(words: Sequence[str] | None = None, environment=os.environ) -> int:
    parser = argparse.ArgumentParser("python -m tools.notebooks.online", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the course's wheel is")
    parser.add_argument("--badges", action="store_true", help="print badges for the README")
    options = parser.parse_args(words)
    if not options.badges and options.folder is None:
        parser.error("name the folder that the notebooks go into, or --badges")
    if not IS_CHECKOUT:
        print("This makes copies from a checkout of the course.", file=sys.stderr)
        return 1
    try:
        # a wheel does not have this module
        site = importlib.import_module("tools.site.addresses")
        repository = site.repository(environment)
        if options.badges:
            print(badges(repository))
        else:
            written = write(options.folder, repository)
            print(f"{len(written)} notebooks in {options.folder}")
    except (CannotWrite, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
