"""The pages that are not lessons: the first page, how to run the course, and the glossary.

Their texts come from README and the glossary, so that nothing is written twice.
"""

import re
from pathlib import Path

import nbformat

from lessons_lib.paths import ROOT, SOLUTIONS
from tools.notebooks.pictures import draw
from tools.site.addresses import on_the_site
from tools.site.pictures import Pictures

README = ROOT / "README.md"
_WORD = re.compile(r"^\| \*\*(?P<word>.+?)\*\* \| (?P<meaning>.+?) \| \[(?P<link>.+?) \|$")


def first_page(readme: str, pictures: Pictures, repository: str) -> str:
    """The landing page: what the course is, its idea as a picture, and the lessons.

    readme: the text of README.md.
    """
    title, introduction = beginning(readme)
    return f"""# {title}

{on_the_site(introduction, "", repository)}

{pictures.drawn(draw("00", "opening"))}

*Two requests share one memory, which is cut into blocks. Each has a table, which says where
its blocks are. That is the idea of the whole course.*

Here you read every lesson as it ran, with all outputs. Answers are folded: open them when you
have thought about the question yourself. [](start.md) says how to write them, and have them
checked, on your own machine.

## The lessons

{_cards(lesson_rows(readme), pictures)}

The [glossary](glossary.ipynb) has every word, and [](results.md) has what was measured, on
which machine, and beside what.
"""


def start_page(readme: str, repository: str) -> str:
    """How to run the course: README's own words."""
    words = on_the_site(section(readme, "Start"), "", repository)
    folder = repository.rstrip("/").rpartition("/")[2].removesuffix(".git")
    clone = f"git clone {repository}\ncd {folder}"
    where = f"\nFirst get [the repository]({repository}):\n\n```\n{clone}\n```\n"
    where = where if repository else ""
    return f"# Run the course\n{where}\n{words}\n"


def write_glossary(source: Path) -> None:
    """Writes the glossary's page, where each word has an anchor and is found by a search."""
    page = nbformat.read(SOLUTIONS / "glossary.ipynb", as_version=4)
    for cell in page.cells:
        cell.source = as_terms(cell.source)
    nbformat.write(page, source / "glossary.ipynb")


def as_terms(markdown: str) -> str:
    """The text with its table of words as a list of Sphinx's `glossary`."""
    lines: list[str] = []
    rows = 0
    for line in markdown.split("\n"):
        if match := _WORD.match(line):
            if not rows:
                lines = lines[:-2]  # the table's head
                lines += [":::{glossary}"]
            meaning, link = match["meaning"], match["link"]
            lines += [match["word"], f"  {meaning} [Lesson {link}", ""]
            rows += 1
        elif rows and lines[-1] == "" and lines[-2] != ":::":
            lines += [":::", line]
        else:
            lines.append(line)
    if not rows:
        return markdown
    return "\n".join(lines) + ("" if ":::" in lines else "\n:::")


def beginning(readme: str) -> tuple[str, str]:
    """README's title, and its first paragraph that is not a picture.

    Raises ValueError if there is none before the next heading.
    """
    title, *parts = re.split(r"\n\s*\n", readme.partition("\n## ")[0].strip())
    texts = [part for part in parts if not part.startswith(("![", "|"))]
    if not title.startswith("# ") or not texts:
        raise ValueError("README.md does not begin with a title and a text.")
    return title.removeprefix("# "), texts[0]


def section(readme: str, heading: str) -> str:
    """The text below a heading of README. Raises ValueError if there is no such heading."""
    match = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", readme, re.M | re.S)
    if not match:
        raise ValueError(f"README.md has no section `## {heading}`, which the site shows.")
    return match[1].strip()


def lesson_rows(readme: str) -> list[dict[str, str]]:
    """The rows of README's table of lessons. Keys are the words of its head, and `file`."""
    table = re.findall(r"^\|(.*)\|$", section(readme, "The lessons"), re.MULTILINE)
    head, _, *body = [[cell.strip() for cell in row.split("|")] for row in table]
    rows = []
    for row in body:
        found = dict(zip(head, row))
        link = re.fullmatch(r"\[(.+)\]\(notebooks/(\w+)\.ipynb\)", found.get("lesson", ""))
        if len(row) != len(head) or not link:
            raise ValueError(f"README's table of lessons has a row of another form: {row}")
        rows.append(found | {"lesson": link[1], "file": link[2]})
    return rows


def _cards(rows: list[dict[str, str]], pictures: Pictures) -> str:
    """A card for each lesson, which leads to it, with the lesson's first picture."""
    cards = []
    for row in rows:
        shown = ""
        if row["file"] != "glossary":
            picture = draw(row["file"], "opening")
            address = pictures.write(picture.png, "png")
            shown = f":img-top: {address}\n:img-alt: {picture.alt}\n"
        count = row["exercises"]
        exercises = "" if count == "none" else f"{count} exercise{'s' * (count != '1')}"
        below = ", ".join(filter(None, (row["time"], exercises)))
        footer = f":::{{card-footer}}\n{below}\n:::\n" if below else ""
        cards.append(
            f"::::{{grid-item-card}} {row['lesson']}\n"
            f":link: {row['file']}\n:link-type: doc\n{shown}"
            f"\n{row['you build']}\n\n{footer}::::"
        )
    return ":::::{grid} 1 1 2 2\n:gutter: 3\n\n" + "\n".join(cards) + "\n:::::"
