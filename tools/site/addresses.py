"""The repository's address on the web, and the addresses of links on the site."""

import os
import re
import tomllib
from pathlib import Path, PurePosixPath

from lessons_lib.paths import ROOT

BRANCH = "main"
# Code, in which brackets are not a link; or a link or a picture of Markdown.
_CODE_OR_LINK = re.compile(
    r"```.*?```|`[^`]*`|(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<address>[^)\s]+)\)", re.DOTALL
)


def repository(environment=os.environ, root: Path = ROOT) -> str:
    """The repository's address, or an empty text if it is not known.

    It is `COURSE_REPOSITORY` if that is set, as in the workflow, or else `Repository` in
    pyproject.toml's [project.urls].
    Raises ValueError if it is not an address.
    """
    found = environment.get("COURSE_REPOSITORY", "").strip()
    if not found:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        found = project["project"].get("urls", {}).get("Repository", "")
    if found and not re.fullmatch(r"https://[\w.-]+/\S+", found):
        raise ValueError(
            f"The repository's address is {found!r}. It has to begin with https://, as in"
            " COURSE_REPOSITORY=https://github.com/OWNER/NAME."
        )
    return found.rstrip("/")


def on_the_site(markdown: str, folder: str, address_of_repository: str) -> str:
    """A page's text with links that work on the site.

    A link to a lesson leads to the lesson's page. A link to another file leads to the
    repository, or becomes plain text if the repository's address is not known. A picture
    always becomes plain text.

    folder: of the page, from the repository's root; empty for the root.
    """

    def replace(match):
        target = match["address"]
        if target is None or re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, anchor = target.partition("#")
        place = _inside(PurePosixPath(folder) / path)
        anchor = f"#{anchor}" if anchor else ""
        if place.suffix == ".ipynb":
            return f"[{match['text']}]({place.name}{anchor})"
        if match["picture"] or not address_of_repository:
            return match["text"]
        return f"[{match['text']}]({address_of_repository}/blob/{BRANCH}/{place}{anchor})"

    return _CODE_OR_LINK.sub(replace, markdown)


def _inside(path: PurePosixPath) -> PurePosixPath:
    """The path without `..`. Raises ValueError if it leads out of the repository."""
    parts: list[str] = []
    for part in path.parts:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            raise ValueError(f"The link {path} leads out of the repository.")
    return PurePosixPath(*parts)
