"""Looks at the built pages for links that lead nowhere, pictures without a text, and parts
that a page would load from another site.
"""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}
NOT_LOADED = {"canonical", "next", "prev", "search", "index", "author", "copyright"}
_CSS_ADDRESS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


@dataclass
class Page:
    """The addresses and the pictures of a page.

    anchors: all ids and names.
    links: addresses that a reader may follow.
    loads: addresses that a browser loads with the page.
    silent: pictures without a text for people who cannot see them.
    """

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag, attrs):
        found = {name: value or "" for name, value in attrs}
        self.page.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.page.links.append(found["href"])
        for loading, name in LOADING:
            is_link = tag == "link" and set(found.get("rel", "").split()) & NOT_LOADED
            if tag == loading and found.get(name) and not is_link:
                self.page.loads.append(found[name])
        if tag == "img" and not found.get("alt", "").strip():
            self.page.silent.append(found.get("src", "")[:80])


def read(path: Path) -> Page:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.page


def problems(folder: Path) -> list[str]:
    """A line for each fault of the pages in a folder.

    Raises ValueError if there are no pages.
    """
    # _static has the theme's templates, which are not pages.
    paths = [path for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts]
    pages = {path.resolve(): read(path) for path in paths}
    if not pages:
        raise ValueError(f"There are no pages in {folder}.")
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        found += [f"{name}: no text for the picture {address}" for address in page.silent]
        for address in page.loads:
            if is_elsewhere(address):
                found.append(f"{name}: loads {address} from elsewhere")
        for address in dict.fromkeys(page.links + page.loads):
            if reason := _leads_nowhere(address, path, folder, pages):
                found.append(f"{name}: {address} leads nowhere: {reason}")
    for path in sorted(folder.rglob("*.css")):
        found += _of_styles(path, folder)
    return found


def is_elsewhere(address: str) -> bool:
    return address.startswith("//") or urlsplit(address).scheme in ("http", "https", "ftp")


def _leads_nowhere(address: str, path: Path, folder: Path, pages: dict) -> str:
    """Why an address is wrong, or an empty text. Addresses of other sites are not checked."""
    parts = urlsplit(address)
    if parts.scheme or address.startswith("//"):
        return ""
    target = path
    if parts.path:
        target = (path.parent / unquote(parts.path)).resolve()
        if not target.is_relative_to(folder.resolve()):
            return "it is outside of the site"
        if not target.is_file():
            return "there is no such file"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "the page has no such anchor"
    return ""


def _of_styles(path: Path, folder: Path) -> list[str]:
    """The faults in a style sheet's addresses."""
    found = []
    for match in _CSS_ADDRESS.finditer(path.read_text(encoding="utf-8", errors="replace")):
        address = match[1] or match[2]
        if is_elsewhere(address):
            found.append(f"{path.relative_to(folder)}: loads {address} from elsewhere")
    return found
