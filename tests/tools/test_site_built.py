"""The website as it is built: read by a program, and looked at in a real browser."""

import functools
import http.server
import re
import threading
from contextlib import contextmanager

import nbformat
import pytest

from jupyterlab_driver import browser_page
from lessons_lib.paths import NOTEBOOKS, SOLUTIONS
from tools.site import build, links

pytestmark = pytest.mark.slow


NAMES = build.page_names()
WIDTHS = (1366, 800, 390)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the pages, built as `make site` does it."""
    folder = tmp_path_factory.mktemp("site")
    build.prepare(folder / "source", "https://example.org/people/course")
    return build.build(folder, build.environment(build.SITE, []))


@pytest.fixture(scope="module")
def address(site):
    with served(site) as where:
        yield where


@contextmanager
def served(folder):
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def text_of(site, name):
    return (site / f"{name}.html").read_text(encoding="utf-8")


def test_links_lead_somewhere_and_pictures_have_texts(site):
    assert links.problems(site) == []
    assert sum(len(links.read(path).links) for path in site.glob("*.html")) > 500


@pytest.mark.parametrize("name", NAMES)
def test_each_answer_is_folded_below_its_exercise(site, name):
    notebook = nbformat.read(SOLUTIONS / f"{name}.ipynb", as_version=4)
    exercises = [cell for cell in notebook.cells if "exercise" in cell.metadata]
    page = text_of(site, name)
    assert len(re.findall(r'<details class="[^"]*\bhide above-input">', page)) == len(
        exercises
    )
    assert page.count("Show our answer") == len(exercises)
    assert "<details open" not in page and "SOLUTION" not in page


@pytest.mark.parametrize("name", NAMES)
def test_each_notebook_can_be_taken_from_the_site(site, name):
    notebook = (NOTEBOOKS / f"{name}.ipynb").read_bytes()
    assert (site / "notebooks" / f"{name}.ipynb").read_bytes() == notebook


def test_each_picture_of_the_lessons_is_on_its_page(site):
    pattern = re.compile(r"data:image/|attachment:")
    for name in NAMES:
        notebook = nbformat.read(SOLUTIONS / f"{name}.ipynb", as_version=4)
        texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
        texts += [
            output.get("data", {}).get("text/html", "")
            for cell in notebook.cells
            for output in cell.get("outputs", [])
        ]
        expected = sum(len(pattern.findall(text)) for text in texts)
        assert text_of(site, name).count('src="_static/pictures/') == expected, name


def test_cpp_in_the_string_of_a_cell_is_in_colour(site):
    page = text_of(site, "01_block_manager")
    assert (
        '<span class="k">class</span><span class="w"> </span><span class="nc">FreeList' in page
    )


def test_each_lessons_card_has_its_picture(site):
    cards = re.findall(r'<img[^>]*class="[^"]*sd-card-img-top[^>]*>', text_of(site, "index"))
    assert len(cards) == len(NAMES) - 1  # the glossary has none
    assert all(re.search('alt="[^"]{40}', card) for card in cards)


def test_formulas_need_no_script(site):
    page = text_of(site, "03_prefill")
    assert page.count("<math ") > 10 and not re.search("<script[^>]*mathjax", page, re.I)
    assert not re.search(r"\$\$|\\_|\\text", re.sub(r"<pre>.*?</pre>", "", page, flags=re.S))


def test_results_have_the_card_the_day_and_the_versions_of_others(site):
    page = text_of(site, "results")
    for heading in ("One decode step", "Prompts", "Serving", "The engine, made fast"):
        assert heading in page
    for pattern in (
        r"NVIDIA H\d00",
        r"Measured on 20\d\d-\d\d-\d\d",
        r"FlashInfer \d",
        r"transformers \d",
        r"Mini-SGLang [0-9a-f]{7}",
        r"nano-vllm [0-9a-f]{7}",
    ):
        assert re.search(pattern, page), pattern
    assert page.count("All figures of this run") >= 8


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_window_or_loads_anything_from_elsewhere(
    address, width, theme
):
    with browser_page({"width": width, "height": 850}) as page:
        page.emulate_media(color_scheme=theme)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        for name in ("index", "start", "results", *NAMES):
            page.goto(f"{address}/{name}.html")
            seen = page.evaluate(
                "() => [document.documentElement.scrollWidth, innerWidth,"
                " document.documentElement.dataset.theme]"
            )
            assert seen[0] <= seen[1] and seen[2] == theme, (name, seen)
        assert page.console_errors == []
        assert [url for url in asked if not url.startswith((address, "data:"))] == []


@pytest.mark.browser
def test_a_search_finds_a_word_in_a_lesson_and_in_the_glossary(address):
    with browser_page() as page:
        page.goto(f"{address}/search.html?q=swizzle")
        found = page.locator("#search-results li a")
        found.first.wait_for()
        page.wait_for_function("document.body.innerText.includes('Search finished')")
        addresses = {link.get_attribute("href") for link in found.all()}
        assert any("glossary.html#term-swizzle" in link for link in addresses)
        assert any("07_fast_kernel.html" in link for link in addresses)


@pytest.mark.browser
def test_an_answer_unfolds(address):
    with browser_page() as page:
        page.goto(f"{address}/00_start_here.html")
        answer = page.locator("details.hide pre").first
        assert not answer.is_visible()
        page.get_by_text("Show our answer").first.click()
        answer.wait_for(state="visible")
        assert "return (num_tokens + block_size - 1) // block_size" in answer.inner_text()
