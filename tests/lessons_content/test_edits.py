"""A `.mistakes` file as it is read: edits of our answer, or a sentence that says where it
cannot be read.
"""

import textwrap

import pytest

from lessons_content.mistakes import teachers_mistakes
from lessons_content.mistakes.bank import Bank, MistakesError
from lessons_lib import checks

OURS = """\
def f(x, y):
    total = x * (
        y + 1
    )
    if total > 9:
        total = 9
    return total
"""


@pytest.fixture
def bank(tmp_path, monkeypatch):
    """A function that reads a `.mistakes` of this text, for OURS."""
    monkeypatch.delenv("LESSONS_MISTAKES", raising=False)

    def read(text: str) -> Bank:
        file = tmp_path / "e0_1_f.py"
        file.touch()
        file.with_suffix(".mistakes").write_text(textwrap.dedent(text))
        read = Bank("0.1", "f", str(file), {})
        read.answer = OURS
        return read

    return read


def texts(bank: Bank, slug: str) -> list[str]:
    (mistake,) = [mistake for mistake in bank.own if mistake.slug == slug]
    return [form.text for form in (mistake.wrong, *mistake.also)]


def changed(text: str) -> str:
    """The lines of a text that are not in OURS."""
    ours = OURS.split("\n")
    return "\n".join(line for line in text.split("\n") if line not in ours)


X_OR_Y = ["    if x:", "    if y:\n        z"]
EDITS = {
    "no line breaks where our answer has them": (
        "x * (y + 1) => x * y",
        ["    total = x * y"],
    ),
    "an open place keeps what is there, and the rest is as it was": (
        "x * … => 2 * …",
        ["    total = 2 * ("],
    ),
    "an open place within a line": (
        "if total > … : => if total >= …:",
        ["    if total >= 9:"],
    ),
    "new lines have the indentation of their place": (
        "total = 9 =>\n        for _ in range(2):\n            total = x",
        ["        for _ in range(2):\n            total = x"],
    ),
    "each place, and all of them": (
        "total = … => total = x",
        [
            "    total = x",
            "        total = x",
            "    total = x\n        total = x",
        ],
    ),
    "`maybe` is with that edit and without": (
        "total > 9 => x\n    maybe total = 9 => z",
        ["    if x:", "    if x:\n        z"],
    ),
    "`or` begins another form, with aligned edits": (
        "total > 9 => x\n    or total > 9 => y\n       total = 9 => z",
        X_OR_Y,
    ),
    "`or` with edits that are not aligned": (
        "total > 9 => x\n    or total > 9 => y\n    total = 9 => z",
        X_OR_Y,
    ),
    "`or` on a line of its own": (
        "total > 9 => x\n    or\n    total > 9 => y\n    total = 9 => z",
        X_OR_Y,
    ),
}


@pytest.mark.parametrize(("edit", "expected"), EDITS.values(), ids=EDITS)
def test_an_edit_changes_our_answer(bank, edit, expected):
    found = texts(bank(f"## a\nA.\n\n    {edit}\n"), "a")
    assert [changed(text) for text in found] == expected


def test_a_message_may_have_two_lines_and_a_mistake_can_be_called(bank):
    found = bank("## a\nOne less.\nIt has two lines.\n\n    x * (y + 1) => x * y\n")
    assert found[0].message == "One less. It has two lines."
    assert found[0].wrong.load()(2, 3) == 6


def test_all_places_may_be_edited_together(bank):
    (text,) = texts(bank("## all\nAll.\n\n    total =>> x\n"), "all")
    assert "total" not in text


@pytest.mark.parametrize(
    "text, words",
    [
        ("## a\nA.\n\n    tot => x\n", "e0_1_f.mistakes:4: `tot` is not in our answer"),
        ("A.\n", "mistakes:1: the first line has to be `## name-of-the-mistake`"),
        ("## a\nA.\n", "mistakes:1: a changes nothing. An edit is indented by four spaces"),
        ("## a\n\n    total > 9 => x\n", "mistakes:1: a has no message"),
        ("## a\nA.\n\n\ttotal > 9 => x\n", "mistakes:4: indent `total > 9 => x` by four"),
        ("## a\nA.\n\n    total > 9 => x\nor\n", "mistakes:5: indent `or` by four spaces"),
        ("## a\nA.\n\n    total > 9 => x\n    total > 9 => y\n", "Is an `or` missing?"),
        (
            2 * "## a\nA.\n\n    total > 9 => x\n",
            "mistakes:5: a is there already, here or in the course",
        ),
        (
            "## a\nA.\n\n    total > 9 => x\n\n## together\n    a, b\n",
            "mistakes:7: there is no mistake b here",
        ),
        ("## a\nA.\n\n    total -> y\n", "mistakes:4: expected `old => new`, and found: tot"),
        ("## a\nA.\n\n    total => y\n", "mistakes:4: `total` is there 4 times. Quote more"),
        (
            "## a\nA.\n\n    (y + 1) => (y\n",
            "no Python: '(' was never closed: `total = x * (y`",
        ),
        (
            "## a\nA.\n\n    def f(x) return\n",
            "4: this text is no Python: expected ':'",
        ),
    ],
)
def test_a_file_that_cannot_be_read_says_where(bank, text, words):
    with pytest.raises(MistakesError) as caught:
        bank(text).own
    assert words in str(caught.value)


def test_mistakes_that_one_text_makes_at_once_have_the_first_ones_name(bank):
    found = bank("""\
        ## above
        Above.

            total > 9 => total > 8

        ## forgotten
        Forgotten.

            total = 9 => pass

        ## together
            forgotten, above
        """)
    one, both = texts(found, "forgotten")
    assert changed(one) == "        pass"
    assert changed(both) == "    if total > 8:\n        pass"
    assert len(texts(found, "above")) == 1


def test_what_may_be_edited_has_to_be_there_but_in_another_spelling(bank):
    with pytest.raises(MistakesError, match="4: `missing` is not in our answer"):
        bank("## a\nA.\n    total > 9 => x\n    maybe missing => z\n").own
    spelt = "## spellings\n    total = 9 => return 9\n"
    form = "## a\nA.\n    total > 9 => x\n    maybe total = 9 => z\n"
    found = [changed(text) for text in texts(bank(spelt + form), "a")]
    assert found[2:] == ["    if x:\n        return 9"]


def test_another_result_and_a_whole_text(bank):
    found = bank("""\
        ## other
        Other.

            returns: (result, y)
            or
            def f(x, y):

                return x
        """)
    one, two = (form.load() for form in (found[0].wrong, *found[0].also))
    assert one(1, 2) == (3, 2) and two(1, 2) == 1


def test_right_spellings_multiply_with_each_mistake(bank):
    found = bank("""\
        ## spellings

            x * (y + 1) => x * y + x
            or
            total > 9 => 9 < total

        ## forgotten
        Forgotten.

            total = 9 => pass

        ## only-here
        Only here.

            total > 9 => total > 8
        """)
    assert len(texts(found, "forgotten")) == 4
    # it does not fit where the comparison is spelt in another way
    assert len(texts(found, "only-here")) == 2
    first, *others = (form.is_respelt for form in (found[0].wrong, *found[0].also))
    assert not first and others == [True] * 3


def test_a_form_without_an_end_is_ended_and_its_result_is_that_it_hangs(bank):
    found = bank("## a\nA.\n\n    if total > 9: =>\n        while True:\n")
    exercise = checks.Exercise(
        "0.1", "", "f", None, tuple, lambda f, x: f(x, 1), size=abs, mistakes=(), hints=()
    )
    assert checks.attempt(exercise, found[0].wrong, 9) == checks.HANG


def test_a_teachers_file_is_read_from_the_folder_that_is_named(bank, tmp_path, monkeypatch):
    found = bank("## a\nA.\n\n    total = 9 => pass\n")
    monkeypatch.setenv("LESSONS_MISTAKES", str(tmp_path / "none"))
    with pytest.raises(MistakesError, match="names .*none, which is no folder"):
        found.mistakes
    further = tmp_path / "further"
    further.mkdir()
    (further / "0.1_mine.mistakes").write_text(
        "## mine\nMine.\n\n    return total => return x\n"
    )
    monkeypatch.setenv("LESSONS_MISTAKES", str(further))
    slugs = [mistake.slug for mistake in found.mistakes]
    assert slugs[:2] == ["a", "mine"] and "nothing-returned" in slugs
    assert found.mistakes[1].wrong.is_further and len(found.further) == 1


@pytest.mark.parametrize("name", ["9.9.mistakes", "25.mistakes", "2.5.txt", "a"])
def test_a_file_that_would_never_be_read_is_refused(tmp_path, monkeypatch, name):
    (tmp_path / name).write_text("## mine\nMine.\n")
    monkeypatch.setenv("LESSONS_MISTAKES", str(tmp_path))
    with pytest.raises(MistakesError, match=f"{name}: its name has to begin"):
        teachers_mistakes.further_files()


def test_a_file_in_another_encoding_is_refused_by_name(bank, tmp_path):
    read = bank("## a\nA.\n\n    total > 9 => x\n")
    read.file.with_suffix(".mistakes").write_bytes("## ä\n".encode("latin-1"))
    with pytest.raises(MistakesError, match="e0_1_f.mistakes is not UTF-8"):
        read.own


@pytest.mark.parametrize(
    "slug, returned",
    [
        ("nothing-returned", None),
        ("one-tuple", "(result,)"),
        ("inside-a-list", "[result]"),
        ("text-for-a-result", "str(result)"),
        ("float-for-an-integer", "float(result)"),
        ("tensor-for-a-number", "torch.tensor(result)"),
    ],
)
def test_a_slip_that_happens_anywhere_has_a_name(bank, slug, returned):
    found = bank(
        f"## a\nA.\n\n    total = 9 => pass\n\n## made\nMade.\n\n    returns: {returned}\n"
    )
    exercise = checks.Exercise(
        "0.1",
        "",
        "f",
        lambda x: min(2 * x, 9),
        lambda: range(9),
        lambda f, x: _with_type(f(x, 1)),
        size=abs,
        mistakes=[mistake for mistake in found.mistakes if mistake.slug != "made"],
        hints=(),
    )
    answer = found.mistakes[1].wrong.load()
    verdict = checks.compare(
        exercise,
        lambda _, x: _with_type(exercise.reference(x)),
        lambda _, x: checks.attempt(exercise, answer, x),
        lambda _: None,
    )
    assert verdict.mistake == slug


def _with_type(result):
    return type(result).__name__, result
