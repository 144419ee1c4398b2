"""Mistakes as edits of our answers: each form is refused and named, records are true, and a
file that cannot be read says where.
"""

import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile

import pytest

from answers import every_exercise, is_built
from lessons_exercises import __main__ as command
from lessons_exercises import further, mistakes, records
from lessons_exercises.mistakes import Bank, MistakesError
from lessons_lib import checks, results
from lessons_lib.paths import ROOT
from verdicts import recorded_verdicts

EXERCISES = [exercise for exercise in every_exercise() if isinstance(exercise.mistakes, Bank)]
BUILT = [exercise for exercise in EXERCISES if is_built(exercise)]
by_id = functools.partial(pytest.mark.parametrize, ids=lambda exercise: exercise.id)
by_exercise = by_id("exercise", EXERCISES)


def forms(exercise) -> list[tuple[str, mistakes.Form]]:
    return [
        (mistake.slug, form)
        for mistake in exercise.mistakes.own
        for form in (mistake.wrong, *mistake.also)
    ]


@pytest.mark.parametrize(
    "respelt",
    [
        pytest.param(False, id="as-ours"),
        pytest.param(True, id="respelt", marks=pytest.mark.slow),
    ],
)
@pytest.mark.sampled
@by_exercise
def test_each_form_of_each_mistake_is_refused_and_named(exercise, respelt):
    """Those of our own spelling get their own name. In other spellings two mistakes may be
    the same.
    """
    asked = [each for each in forms(exercise) if each[1].is_respelt == respelt]
    found = recorded_verdicts(exercise, [form for _, form in asked])
    misnamed = [
        f"{form.place}: {slug} {'passes' if verdict.passed else f'is named {verdict.mistake}'}"
        + f"\n{form.text}"
        for (slug, form), verdict in zip(asked, found, strict=True)
        if verdict.passed
        or verdict.mistake != slug
        and (not form.is_respelt or verdict.mistake == "wrong")
    ]
    assert not misnamed, "\n".join(misnamed)


@pytest.mark.sampled
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
@by_id("exercise", [exercise for exercise in EXERCISES if not is_built(exercise)])
def test_the_records_are_what_the_forms_give(exercise, every):
    cases = exercise.in_order(exercise.cases())
    own = [each for each in forms(exercise) if not each[1].is_respelt]
    for slug, form in own[::every]:
        for number, case in enumerate(cases):
            recorded = form.record(number)
            if exercise.mistakes.records.encoded(form.text)[number] == records.HANGS:
                assert slug in exercise.mistakes.hanging
                continue
            assert recorded, f"{exercise.id} has no record of {slug}; run: make records"
            given = checks.attempt(exercise, form, case)
            assert form.gives(exercise.same, recorded[1], given), (form.place, number)


@pytest.mark.slow
@pytest.mark.sampled
@by_id("exercise", BUILT)
def test_the_records_are_what_some_of_the_forms_give_when_they_are_built(exercise):
    """Others each time that the mistakes change. test_banks.py builds each mistake's first."""
    bank = exercise.mistakes
    # what the text shows by itself, C++ may leave undefined
    sure = [form for _, form in forms(exercise) if not exercise.recognise(form.text)]
    chosen = random.Random(bank.source).sample(sure, 5)
    for form in chosen:
        given = command.results_of(exercise, form.text)
        for number, encoded in enumerate(given):
            recorded = form.record(number)
            assert recorded, f"{exercise.id} has no record of {form.place}; run: make records"
            assert form.gives(exercise.same, recorded[1], results.decode(encoded)), (
                form.place,
                number,
            )


@by_exercise
def test_the_records_are_in_step(exercise, capsys):
    assert command.main([exercise.id, "--check"]) == 0, capsys.readouterr().out


def test_all_records_together_are_small():
    sizes = [path.stat().st_size for path in records.FOLDER.iterdir()]
    assert sum(sizes) < 8 << 20
    assert {path.name for path in records.FOLDER.iterdir()} == {
        records.file_of(exercise.id).name for exercise in EXERCISES
    }


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
        further.further_files()


def test_a_file_in_another_encoding_is_refused_by_name(bank, tmp_path):
    read = bank("## a\nA.\n\n    total > 9 => x\n")
    read.file.with_suffix(".mistakes").write_bytes("## ä\n".encode("latin-1"))
    with pytest.raises(MistakesError, match="e0_1_f.mistakes is not UTF-8"):
        read.own


@by_exercise
def test_what_is_recorded_names_as_the_texts_do(exercise):
    """The forms that give different results, in the same order, with the same messages."""
    bank = exercise.mistakes
    quick = {mistake.slug: mistake.message for mistake in bank.mistakes}
    whole = {mistake.slug: mistake.message for mistake in bank.complete}
    assert quick == {slug: whole[slug] for slug in quick}
    assert set(quick) == set(whole)
    with_results = [mistake.slug for mistake in bank.mistakes if mistake.wrong]
    assert with_results == [slug for slug in whole if slug in with_results]
    first = bank.mistakes[0].wrong
    assert isinstance(first, mistakes.RecordedForm)
    assert first.record(0) == bank.complete[0].wrong.record(0)


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


def run_copy(folder, *command, **changed) -> subprocess.CompletedProcess:
    """What a command prints in a copy of the course that has no solutions.

    changed: what is added to the `.mistakes` of an exercise, by the file's name.
    """
    for name in ("lessons_exercises", "lessons_lib", "lessons_build", "paged_attention"):
        shutil.copytree(ROOT / name, folder / name)
    for name, added in changed.items():
        (file,) = folder.glob(f"lessons_exercises/*/{name}.mistakes")
        file.write_text(file.read_text(encoding="utf-8") + textwrap.dedent(added))
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, *command]
    return subprocess.run(command, env=environment, text=True, capture_output=True, cwd=folder)


def test_mistakes_are_named_in_a_copy_of_the_course_without_the_solutions(tmp_path):
    (tmp_path / "program.py").write_text(
        "from lessons_lib import checks\n"
        "def blocks_needed(num_tokens, block_size):\n"
        "    return num_tokens // block_size\n"
        "assert not checks.ROOT.joinpath('solutions').exists()\n"
        "if __name__ == '__main__':\n"
        "    print(checks.run('0.1', blocks_needed).mistake)\n"
    )
    run = run_copy(tmp_path, "program.py")
    assert run.stdout == "floor-division\n", run.stderr


THIRDS = """
        ## thirds{}
        Three thirds, twice.
            (num_tokens + block_size - 1) => 2 * int(torch.full((3,), num_tokens / 3).sum())
        """


def record_thirds(folder, remark: str) -> tuple[subprocess.CompletedProcess, zipfile.ZipFile]:
    """What recording a mistake says, and the records afterwards."""
    added = THIRDS.format(remark)
    run = run_copy(folder, "-m", "lessons_exercises", "0.1", e0_1_blocks_needed=added)
    return run, zipfile.ZipFile(folder / "lessons_exercises" / "records" / "0.1.zip")


@pytest.mark.slow
def test_what_other_roundings_would_change_is_not_recorded(tmp_path):
    """A third, three times, is 1 or a little less: the processor decides."""
    run, kept = record_thirds(tmp_path, "")
    assert run.returncode == 2
    assert re.match(
        r"0\.1: what thirds \(.*e0_1_blocks_needed\.mistakes:\d+\) gives on this case hangs "
        r"on roundings.*\n  blocks_needed\(num_tokens=\d+, .*\n  or: \d+\n  or: \d+\n",
        run.stdout,
    ), run.stdout + run.stderr
    assert "thirds" not in kept.read("head").decode()


@pytest.mark.slow
def test_a_mistake_that_may_hang_on_rounding_is_recorded_where_it_does_not(tmp_path):
    """Elsewhere it is tried, and so it is named all the same."""
    run, kept = record_thirds(tmp_path, " (hangs on rounding)")
    assert run.returncode == 0, run.stdout + run.stderr
    named = json.loads(kept.read("head"))["named"]
    (row,) = (row for slug, _, row in named if slug == "thirds")
    given = [
        kept.read(str(case)).decode().split("\n")[place] for case, place in enumerate(row)
    ]
    assert "{}" in given and set(given) != {"{}"}
    program = """
        import torch
        from lessons_lib import checks

        def blocks_needed(num_tokens, block_size):
            thirds = int(torch.full((3,), num_tokens / 3).sum())
            return 2 * thirds // block_size

        exercise = checks.find("0.1")
        verdict = checks.compare(
            exercise,
            lambda _, case: exercise.reference(*case),
            lambda _, case: blocks_needed(*case),
            lambda _: None,
        )
        print(verdict.mistake)
        """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    words = [sys.executable, "program.py"]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout == "thirds\n", found.stdout + found.stderr
