"""The website: what is written for Jupyter Book, and that a fault in a page is found."""

import base64
import json
import re
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from lessons_lib.drawing import Picture, as_jpeg, as_png
from lessons_lib.paths import ROOT, SOLUTIONS
from tools.site import addresses, build, lessons, links, pages, results
from tools.site.pictures import Pictures

REPOSITORY = "https://example.org/people/course"


@pytest.fixture
def pictures(tmp_path):
    return Pictures("lesson", tmp_path)


class TestPictures:
    PNG = as_png(plt.figure(figsize=(4, 2)))

    def test_a_picture_becomes_a_file_that_a_page_loads_later(self, pictures, tmp_path):
        page = pictures.drawn(Picture(self.PNG, 'a "b" <c>'))
        assert (tmp_path / "_static/pictures/lesson-01.png").read_bytes() == self.PNG
        assert 'href="_static/pictures/lesson-01.png"' in page and 'loading="lazy"' in page
        assert 'alt="a &quot;b&quot; &lt;c&gt;"' in page and 'width="400" height="200"' in page

    def test_an_attached_picture_may_have_brackets_in_its_text(self, pictures):
        attached = {"a.jpg": {"image/jpeg": base64.b64encode(as_jpeg(self.PNG)).decode()}}
        page = pictures.from_text("x\n\n![blocks [0, 4]](attachment:a.jpg)\n\ny", attached)
        assert 'width="400"' in page
        assert re.fullmatch(r'x\n\n<div .*alt="blocks \[0, 4\]".*</div>\n\ny', page)


class TestContents:
    def test_each_notebook_has_one_place_in_the_table_of_contents_and_lessons_their_order(
        self,
    ):
        toc = yaml.safe_load((ROOT / "tools/site/_toc.yml").read_text(encoding="utf-8"))
        listed = [page["file"] for part in toc["parts"] for page in part["chapters"]]
        assert sorted(listed) == sorted([*build.page_names(), "start", "results"])
        assert toc["root"] == "index"
        numbered = [name for name in listed if name[0].isdigit()]
        assert numbered == sorted(numbered) and len(numbered) >= 11

    def test_the_settings_name_the_repository_only_if_it_is_known(self):
        without, known = map(yaml.safe_load, map(build.configuration, ("", REPOSITORY)))
        assert "repository" not in without
        assert not without["html"]["use_repository_button"]
        assert known["repository"]["url"] == REPOSITORY
        assert known["html"]["use_repository_button"]
        gitlab = yaml.safe_load(build.configuration("https://gitlab.com/people/course"))
        assert [
            settings["sphinx"]["config"]["html_theme_options"]["repository_provider"]
            for settings in (known, gitlab)
        ] == ["github", "gitlab"]


class TestPins:
    def test_only_what_clashes_is_pinned_twice(self):
        course, site = (
            path.read_text(encoding="utf-8")
            for path in (ROOT / "constraints.txt", ROOT / "tools/site/constraints.txt")
        )
        twice = {line for line in course.splitlines() if "==" in line} & {*site.splitlines()}
        assert not twice, "the course has them: take them out of tools/site/constraints.txt"
        assert "\nmarkdown-it-py==" in course and "\nmarkdown-it-py==" in site
        for name in build.requirements():
            assert f"\n{name}==" in (site + course).lower()


class TestRepository:
    URLS = f'[project.urls]\nRepository = "{REPOSITORY}"\n'
    FORK = "https://example.org/fork/course"

    def repository(self, root, urls="", **environment):
        (root / "pyproject.toml").write_text(f'[project]\nname = "a"\n{urls}')
        return addresses.repository(environment, root)

    def test_the_workflow_names_it_and_it_need_not_be_known(self, tmp_path):
        named = self.repository(tmp_path, self.URLS, COURSE_REPOSITORY=f"{self.FORK}/")
        assert named == self.FORK
        assert self.repository(tmp_path, self.URLS, COURSE_REPOSITORY="") == REPOSITORY
        assert self.repository(tmp_path) == ""


class TestLinks:
    @pytest.mark.parametrize(
        "text, folder, expected",
        [
            ("[02](02_tables.ipynb#Slots)", "solutions", "[02](02_tables.ipynb#Slots)"),
            ("[02](notebooks/02_tables.ipynb)", "", "[02](02_tables.ipynb)"),
            ("[a](LICENSE)", "", f"[a]({REPOSITORY}/blob/main/LICENSE)"),
            (
                "[a](../kernels/a.cu#L3)",
                "solutions",
                f"[a]({REPOSITORY}/blob/main/kernels/a.cu#L3)",
            ),
            ("[a](https://a.b/c) [d](#e)", "", "[a](https://a.b/c) [d](#e)"),
            ("![a picture](tests/a.png)", "", "a picture"),
            (
                "`rungs[4](x)` and\n```\na[0](b)\n```",
                "",
                "`rungs[4](x)` and\n```\na[0](b)\n```",
            ),
        ],
    )
    def test_a_link_leads_to_a_page_or_into_the_repository(self, text, folder, expected):
        assert addresses.on_the_site(text, folder, REPOSITORY) == expected

    def test_without_a_repository_a_file_is_only_named(self):
        assert addresses.on_the_site("see [it](LICENSE)", "", "") == "see it"

    def test_a_link_out_of_the_repository_is_refused(self):
        with pytest.raises(ValueError, match="out of the repository"):
            addresses.on_the_site("[a](../../b)", "solutions", REPOSITORY)


class TestLessonPage:
    def page(self, pictures, cells, stubs=()):
        title = new_markdown_cell("# 01 · Title\n\nText.", id="title")
        return lessons.as_page(
            new_notebook(cells=[title, *cells]),
            new_notebook(cells=[*stubs]),
            "01_a",
            pictures,
            "",
        )

    def exercise(self, source):
        return new_code_cell(source, id="exercise-1-1", metadata={"exercise": "1.1"})

    def test_an_exercise_that_learners_do_not_have_is_an_error(self, pictures):
        with pytest.raises(ValueError, match="1.1 is missing in notebooks/.*make notebooks"):
            self.page(pictures, [self.exercise("x")])

    def test_progress_that_is_none_is_left_out(self, pictures):
        def cell(source, text):
            output = new_output("display_data", {"text/plain": text, "text/html": "<p></p>"})
            return new_code_cell(source, outputs=[output])

        page = self.page(
            pictures,
            [
                cell("import a", "› Lesson 01: 0 of 6 exercises passed\n  □ 1.1"),
                new_markdown_cell("## What you have done"),
                cell("show_progress()", "› 0 of 69 exercises passed"),
                cell("show_progress()", "› 1 of 69 exercises passed"),
            ],
        )
        assert [cell.source for cell in page.cells[1:]] == ["import a", "show_progress()"]
        assert [len(cell.outputs) for cell in page.cells[1:]] == [0, 1]


class TestOtherPages:
    README = textwrap.dedent("""\
        # Title

        First words.

        ![picture](a.png)

        ## Start

        Run [it](LICENSE).

        ## The lessons

        | lesson | you build | time | exercises |
        |---|---|---|---|
        | [00 begin](notebooks/00_a.ipynb) | a `b` | 15 min | 1 |
        | [words](notebooks/glossary.ipynb) | nothing | | none |

        ## End
        """)

    def test_the_first_page_has_readmes_words_and_a_card_for_each_lesson(self, pictures):
        page = pages.first_page(self.README, pictures, "")
        assert page.startswith("# Title\n\nFirst words.\n") and "lesson-picture" in page
        assert ":link: 00_a\n" in page and "15 min, 1 exercise\n" in page
        assert page.count("{grid-item-card}") == 2 and page.count("{card-footer}") == 1

    def test_the_courses_own_readme_names_each_notebook_once(self):
        rows = pages.lesson_rows(pages.README.read_text(encoding="utf-8"))
        assert sorted(row["file"] for row in rows) == build.page_names()

    def test_a_row_of_another_form_is_an_error(self):
        with pytest.raises(ValueError, match="row of another form.*15 min"):
            pages.lesson_rows(self.README.replace("[00 begin](notebooks/00_a.ipynb)", "00"))

    def test_a_section_that_is_missing_is_named(self):
        with pytest.raises(ValueError, match="no section `## Start`"):
            pages.start_page("# Title\n", "")

    def test_the_start_page_names_the_repository_if_it_is_known(self):
        """A reader of the site has no "folder of this repository" yet."""
        alone = pages.start_page(self.README, "")
        assert REPOSITORY not in alone and "git clone" not in alone
        folder = REPOSITORY.rpartition("/")[2]
        page = pages.start_page(self.README, REPOSITORY)
        commands = f"git clone {REPOSITORY}\ncd {folder}\n```\n"
        assert page.partition("```\n")[2].startswith(commands)
        assert f"[it]({REPOSITORY}/blob/main/LICENSE)" in page

    def test_each_word_of_the_glossary_becomes_a_term(self):
        source = nbformat.read(SOLUTIONS / "glossary.ipynb", as_version=4).cells[0].source
        page = pages.as_terms(source)
        words = re.findall(r"^\| \*\*(.+?)\*\*", source, re.MULTILINE)
        term = r"^(.+)\n  \S.* \[Lesson \d\d\]\(\d\d_\w+\.ipynb\)$"
        assert re.findall(term, page, re.MULTILINE) == words
        assert len(words) > 30 and page.count(":::") == 2 and "|---" not in page

    @pytest.mark.slow
    def test_each_kind_of_record_is_on_the_page(self, tmp_path):
        page = results.results_page(Pictures("results", tmp_path))
        kept = [*ROOT.glob("lessons_content/*/bench/measured/*/*.json")]
        kept += ROOT.glob("tools/bench/measured/*/*.json")
        assert len(kept) > 14
        for file in kept:
            command = json.loads(file.read_text())["command"]
            command = command.replace("-m lessons_bench.", "-m tools.bench ")
            assert command in page or file.parent.name == "path_b", file


class TestFaultsOfPages:
    """Each fault of a built site is found; a site without one is not blamed."""

    GOOD = (
        '<html><head><link rel="stylesheet" href="a.css">'
        '<link rel="next" href="b.html"></head><body><h1 id="top">A</h1>'
        '<a href="b.html#there">b</a><a href="#top">up</a>'
        '<a href="https://example.org/x">x</a><a href="mailto:a@b.c">m</a>'
        '<img src="a.png" alt="a picture"></body></html>'
    )

    def site(self, folder, page=GOOD, css="a { background: url(a.png) }"):
        (folder / "_static").mkdir()
        files = {
            "index.html": page,
            "b.html": '<h1 id="there">B</h1>',
            "a.css": css,
            "a.png": "",
            "_static/template.html": '<a href="{{ pathto }}">no page</a>',
        }
        for name, text in files.items():
            (folder / name).write_text(text)
        return links.problems(folder)

    def test_a_good_site_has_none(self, tmp_path):
        assert self.site(tmp_path) == []

    @pytest.mark.parametrize(
        "old, new, found",
        [
            (
                '"b.html#there"',
                '"c.html"',
                "index.html: c.html leads nowhere: there is no such file",
            ),
            (
                "b.html#there",
                "b.html#where",
                "b.html#where leads nowhere: the page has no such",
            ),
            ("#top", "#bottom", "#bottom leads nowhere"),
            ('"b.html#there"', '"../b.html"', "it is outside of the site"),
            ('alt="a picture"', 'alt=" "', "index.html: no text for the picture a.png"),
            ('alt="a picture"', "", "no text for the picture a.png"),
            (
                'src="a.png"',
                'src="https://a.b/c.png"',
                "loads https://a.b/c.png from elsewhere",
            ),
            ('href="a.css"', 'href="//a.b/c.css"', "loads //a.b/c.css from elsewhere"),
            ("<h1", '<script src="http://a.b/c.js"></script><h1', "loads http://a.b/c.js"),
        ],
    )
    def test_a_fault_is_named_with_its_page(self, tmp_path, old, new, found):
        assert old in self.GOOD
        problems = self.site(tmp_path, self.GOOD.replace(old, new))
        assert len(problems) == 1 and found in problems[0]

    @pytest.mark.parametrize("css", ["@import 'https://a.b/c.css';", 'a{src:url("//a.b/c")}'])
    def test_styles_load_nothing_from_elsewhere(self, tmp_path, css):
        (problem,) = self.site(tmp_path, css=css)
        assert problem.startswith("a.css: loads") and "a.b/c" in problem

    def test_a_folder_without_pages_is_an_error(self, tmp_path):
        with pytest.raises(ValueError, match="no pages"):
            links.problems(tmp_path)


class TestCommand:
    @pytest.mark.parametrize("text", ["people/course", "git@example.org:people/course.git"])
    def test_a_wrong_address_ends_it_with_the_right_form(self, monkeypatch, capsys, text):
        monkeypatch.setenv("COURSE_REPOSITORY", text)
        assert build.main(["--prepare"]) == 1
        said = capsys.readouterr().err
        assert "has to begin with https://" in said and "COURSE_REPOSITORY=https://" in said


def test_the_first_page_begins_as_the_readme_does():
    title, text = pages.beginning((ROOT / "README.md").read_text(encoding="utf-8"))
    assert title == "PagedAttention, built from scratch" and text.startswith("PagedAttention ")
    assert text.endswith(".") and "![" not in text


def test_on_a_phone_a_picture_that_goes_on_to_the_side_shows_a_bar():
    """Half of the picture of the idea was out of sight, and nothing said so."""
    css = (Path(build.__file__).parent / "static" / "site.css").read_text(encoding="utf-8")
    phone = css.partition("@media (max-width: 600px)")[2]
    assert ".lesson-picture::-webkit-scrollbar-thumb" in phone
