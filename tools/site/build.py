"""Builds the site.

python -m tools.site                builds it, and checks its links
python -m tools.site --prepare      only writes the files that Jupyter Book reads
python -m tools.site --pip-args …   arguments for pip, when it installs Jupyter Book

Nothing is executed: the outputs are those in solutions/.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from lessons_lib.paths import NOTEBOOKS, ROOT
from tools.notebooks.build import not_as_given, select
from tools.site import addresses, lessons, links, pages, results
from tools.site.pictures import Pictures

HERE = Path(__file__).resolve().parent
SITE = ROOT / ".build" / "site"


class SiteError(Exception):
    """Building the site failed. The text says why."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the course's website.")
    parser.add_argument(
        "--prepare", action="store_true", help="only write what Jupyter Book reads"
    )
    parser.add_argument(
        "--pip-args", default="", help="arguments for pip, where Jupyter Book is installed"
    )
    options = parser.parse_args(arguments)
    try:
        repository = addresses.repository()
        if problems := not_as_given(select([])):
            raise SiteError("\n".join(problems))
        prepare(SITE / "source", repository)
        if options.prepare:
            return 0
        html = build(SITE, environment(SITE, shlex.split(options.pip_args)))
    except (SiteError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    found = links.problems(html)
    print("\n".join(found), file=sys.stderr) if found else print(
        f"The site: {html}/index.html"
    )
    return 1 if found else 0


def prepare(source: Path, repository: str) -> None:
    """Writes the files that Jupyter Book reads.

    source: the folder for them, which is emptied first.
    repository: its address, or an empty text.
    """
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(HERE / "static", source / "_static")
    (source / "extra" / "notebooks").mkdir(parents=True)
    for name in page_names():
        shutil.copy(NOTEBOOKS / f"{name}.ipynb", source / "extra" / "notebooks")
        if name != "glossary":
            lessons.write_page(name, source, repository)
    pages.write_glossary(source)
    readme = pages.README.read_text(encoding="utf-8")
    written = {
        "index.md": pages.first_page(readme, Pictures("index", source), repository),
        "start.md": pages.start_page(readme, repository),
        "results.md": results.results_page(Pictures("results", source)),
        "_toc.yml": (HERE / "_toc.yml").read_text(encoding="utf-8"),
        "_config.yml": configuration(repository),
    }
    for name, text in written.items():
        (source / name).write_text(text, encoding="utf-8")


def page_names() -> list[str]:
    """The names of all notebooks, such as 01_block_manager."""
    return sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def configuration(repository: str) -> str:
    """Jupyter Book's settings, with the repository's address if it is known."""
    settings = yaml.safe_load((HERE / "_config.yml").read_text(encoding="utf-8"))
    if repository:
        settings["repository"] = {"url": repository, "branch": addresses.BRANCH}
        settings["html"] |= {"use_repository_button": True, "use_issues_button": True}
        # The theme knows a few hosts by their names. Other hosts are treated like GitHub.
        provider = "gitlab" if "gitlab" in repository else "github"
        settings["sphinx"]["config"]["html_theme_options"]["repository_provider"] = provider
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


def pins(course: str, site: str) -> str:
    """The site's pins, and the course's pins for all other packages.

    course, site: the texts of both files.
    """
    own = {_package(line) for line in site.splitlines()}
    rest = [line for line in course.splitlines() if _package(line) not in own | {""}]
    return "\n".join([*rest, site])


def requirements() -> list[str]:
    """The packages of the site's environment, without their dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["optional-dependencies"]["site"]


def environment(folder: Path, pip_arguments: list[str]) -> Path:
    """Jupyter Book's own environment. It is made anew when its pins have changed.

    Returns its folder of commands. Raises SiteError if it cannot be made.
    """
    wanted = pins(
        (ROOT / "constraints.txt").read_text(encoding="utf-8"),
        (HERE / "constraints.txt").read_text(encoding="utf-8"),
    )
    commands = folder / "venv" / "bin"
    constraints = folder / "constraints.txt"
    ready = folder / "venv" / "ready.txt"
    wanted_by = f"{sys.version}\n{wanted}"
    if ready.is_file() and ready.read_text(encoding="utf-8") == wanted_by:
        return commands
    print(f"Setting up Jupyter Book in {folder / 'venv'}, once.")
    folder.mkdir(parents=True, exist_ok=True)
    constraints.write_text(wanted, encoding="utf-8")
    _run([sys.executable, "-m", "venv", "--clear", str(folder / "venv")], "make a venv")
    pip = [str(commands / "python"), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--constraint", str(constraints)]
    _run([*pip, *pip_arguments, *requirements()], "install Jupyter Book")
    ready.write_text(wanted_by, encoding="utf-8")
    return commands


def build(folder: Path, commands: Path) -> Path:
    """Runs Jupyter Book. Returns the folder of the pages.

    Raises SiteError if it fails or warns, for instance of a link that leads nowhere.
    """
    shutil.rmtree(folder / "_build", ignore_errors=True)
    book = [str(commands / "jupyter-book"), "build", str(folder / "source")]
    _run(
        [*book, "--path-output", str(folder), "--warningiserror", "--keep-going", "--quiet"],
        "build the site",
        PYTHONPATH=str(ROOT),
    )
    return folder / "_build" / "html"


def _run(command: list[str], purpose: str, **variables: str) -> None:
    done = subprocess.run(
        command,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    if done.returncode:
        raise SiteError(f"{done.stdout}\nCould not {purpose}: the lines above say why.")


def _package(line: str) -> str:
    """The package's name in a line of pins, as pip compares names; empty for a comment."""
    return re.sub(r"[-_.]+", "-", line.partition("==")[0].strip().lower()) * ("==" in line)
