"""Links lead somewhere, lessons lead to each other, and the glossary is in order."""

import re

import nbformat
import pytest

from lessons_lib.paths import NOTEBOOKS, ROOT

LESSONS = [*sorted(NOTEBOOKS.glob("[0-9]*.ipynb")), NOTEBOOKS / "summary.ipynb"]
GLOSSARY = NOTEBOOKS / "glossary.ipynb"
PAGES = [
    *LESSONS,
    GLOSSARY,
    ROOT / "README.md",
    ROOT / "TEACHING.md",
    ROOT / "lessons_lib/start/README.md",
    *ROOT.glob("*/*/README.md"),
]


def text_of(path) -> str:
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    return "\n".join(
        cell.source
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "markdown"
    )


def anchors(path) -> set[str]:
    """The headings of a page, as JupyterLab names them in links."""
    return {
        heading.strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text_of(path), re.MULTILINE)
    }


@pytest.mark.parametrize(
    "path",
    PAGES,
    ids=lambda path: path.name if path.suffix == ".ipynb" else str(path.relative_to(ROOT)),
)
def test_each_link_within_the_course_leads_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text_of(path))):
        if re.match(r"https?:|attachment:", target):
            continue
        file, _, anchor = target.partition("#")
        page = path.parent / file if file else path
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), target


@pytest.mark.parametrize(
    "path, following",
    list(zip(LESSONS, LESSONS[1:], strict=False)),
    ids=lambda path: path.stem,
)
def test_a_lesson_ends_with_the_way_to_the_next(path, following):
    assert f"]({following.name})" in text_of(path).split("\n## ")[-1]


def test_each_lesson_says_where_the_words_are():
    assert len(LESSONS) >= 10
    for path in LESSONS:
        assert f"]({GLOSSARY.name})" in text_of(path), path.name


def test_the_glossary_is_sorted_and_each_word_names_its_lesson():
    table = text_of(GLOSSARY)
    rows = re.findall(
        r"^\| \*\*(.+?)\*\* \| (.+?) \| \[(\d\d)\]\((\d\d)_\w+\.ipynb\) \|$",
        table,
        re.MULTILINE,
    )
    words = [word for word, *_ in rows]
    assert len(rows) == table.count("\n| **") >= 30
    assert words == sorted(words, key=str.lower) and len(set(words)) == len(words)
    lessons = {path.name[:2]: text_of(path).lower() for path in LESSONS}
    for word, meaning, shown, linked in rows:
        assert shown == linked and meaning.endswith(".")
        assert re.search(re.escape(word.lower()).replace(r"\ ", "[ _\n]"), lessons[linked]), (
            f"lesson {linked} does not speak of {word}"
        )
