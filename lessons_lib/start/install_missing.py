"""Installs what the course needs in a notebook that runs on Colab or Kaggle.

Their machines have a PyTorch that fits their GPUs, and packages that are in use already. A
package whose version the course accepts is not touched, and neither is a newer PyTorch. Only
missing packages are installed.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

NAME = "paged-attention-course"
# The notebook is already open, in another page than JupyterLab. And JupyterLab would replace
# the packages that run the notebook's cells.
NOT_HERE = ("jupyterlab",)
LARGE = "torch"  # never installed or replaced without asking the user


@dataclass
class Needs:
    """How this machine meets the course's requirements.

    met: packages that stay, as name==version.
    missing: requirements that no installed package meets.
    in_use: names from `missing` of which this session uses another version.
    refused: sentences about packages that only the user should install or replace.
    newer: whether PyTorch is newer than the versions that the course was tried with.
    """

    met: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    in_use: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    newer: bool = False


def complete(say: Callable[[str], None] = print) -> bool:
    """Installs packages that the course needs and this machine lacks. Says what the user has
    to do.

    Returns whether the lessons can be run. Raises nothing if a package is missing or too old.
    """
    needs = look(metadata.requires(NAME) or [])
    for sentence in needs.refused:
        say(sentence)
    if needs.refused or (needs.missing and not _install(needs, say)):
        return False
    if needs.in_use:
        say(f"Restart the session: it still uses the old {' and '.join(needs.in_use)}.")
        return False
    # not at the top: it imports packages that were missing
    from lessons_lib.start.doctor import doctor

    if lacking := [one for one in doctor().findings if one.needed and not one.found]:
        for one in lacking:
            say(f"{one.name} is missing here: {one.without_it}. To get it: {one.remedy}.")
        return False
    brought = f" Installed beside it: {', '.join(needs.missing)}." if needs.missing else ""
    untried = ", which is newer than any that it was tried with" if needs.newer else ""
    say(
        f"The course {metadata.version(NAME)} is here, with the PyTorch "
        f"{metadata.version(LARGE)} of this machine{untried}.{brought} "
        "Now run the cells below."
    )
    return True


def look(requirements: list[str]) -> Needs:
    """Compares requirements, as a package's metadata has them, with what is installed."""
    needs = Needs()
    # sorted, because the metadata has them in any order
    for requirement in map(Requirement, sorted(requirements)):
        name, bounds = requirement.name, requirement.specifier
        if name in NOT_HERE or (requirement.marker and not requirement.marker.evaluate()):
            continue  # such as a requirement of an extra
        here = _version(name)
        if here and bounds.contains(here, prereleases=True):
            needs.met.append(f"{name}=={here}")
        elif name == LARGE and here and _at_least(bounds).contains(here, prereleases=True):
            needs.met.append(f"{name}=={here}")
            needs.newer = True
        elif name == LARGE:
            needs.refused.append(_about_torch(here, bounds))
        else:
            needs.missing.append(f"{name}{bounds}")
            if here and name in sys.modules:
                needs.in_use.append(name)
    return needs


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _at_least(bounds: SpecifierSet) -> SpecifierSet:
    """The lower bounds: a newer version cannot violate them."""
    return SpecifierSet(",".join(str(bound) for bound in bounds if bound.operator == ">="))


def _about_torch(here: str, bounds: SpecifierSet) -> str:
    found = f"PyTorch {here} is here" if here else "There is no PyTorch here"
    needed = " and ".join(sorted(map(str, bounds), reverse=True))
    return (
        f"{found}, and the course needs one that is {needed}. This brings it, in minutes: "
        f' %pip install "torch{bounds}"  Then restart the session (Colab: Runtime, Restart '
        "session; Kaggle: Run, Restart & clear cell outputs) and run this cell again."
    )


def _install(needs: Needs, say: Callable[[str], None]) -> bool:
    """Installs the missing packages. pip may not change the version of a package in `met`."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept.txt"
        kept.write_text("\n".join(needs.met) + "\n", encoding="utf-8")
        pip = [sys.executable, "-P", "-m", "pip", "install", "-q", "--constraint", str(kept)]
        done = subprocess.run([*pip, *needs.missing], capture_output=True, text=True)
    if done.returncode == 0:
        return True
    last = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
    say(
        f"pip could not install {', '.join(needs.missing)}: {last}. "
        "If the internet is turned off, turn it on (Kaggle: Settings, Turn on internet), and "
        "run this cell again."
    )
    return False
