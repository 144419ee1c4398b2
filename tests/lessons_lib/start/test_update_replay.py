"""The course's own history, update by update: a student has run a lesson from top to bottom,
with answers, and then the next version comes. 0 conflicts, 0 answers lost, and none in what
the course hands out.
"""

import pytest

from course_versions import answer, answers_in, write
from lessons_lib.guide import handed_out
from lessons_lib.paths import ROOT
from lessons_lib.start import learner_copies

pytestmark = pytest.mark.slow
LESSONS = ["01_block_manager", "02_block_tables", "06_cuda_kernel"]


def versions(name: str) -> list[dict]:
    """What this clone's history has of a lesson, the oldest first, as the build stamps it."""
    path = f"notebooks/{name}.ipynb"
    log = handed_out.git(ROOT, "log", "--reverse", "--format=%H", "--", path) or b""
    found = []
    for revision in log.decode().split():
        content = handed_out.git(ROOT, "show", f"{revision}:{path}")
        if content and (notebook := handed_out.parse(content)):
            handed_out.stamp(notebook)
            found.append(notebook)
    return found


def work(path) -> dict[str, str]:
    """Answers every second exercise anew, and the others below what was there; runs all."""
    answers = {
        number: f"answer = {number!r}"
        if turn % 2
        else f"{text}\n# ANSWERED by me\nanswer = 42"
        for turn, (number, text) in enumerate(sorted(answers_in(path).items()))
    }
    answer(path, **{f"e{number.replace('.', '_')}": text for number, text in answers.items()})
    return answers


def updates(name: str) -> list[tuple[dict, dict]]:
    found = versions(name)
    if len(found) < 2:
        pytest.skip("this clone has no history: git fetch --unshallow")
    return [*zip(found, found[1:])]


@pytest.mark.parametrize("name", LESSONS)
def test_an_update_of_a_copy_has_all_answers(name, tmp_path):
    for turn, (older, newer) in enumerate(updates(name)):
        course, mine = tmp_path / f"{turn}/course", tmp_path / f"{turn}/mine"
        write(course / f"{name}.ipynb", older)
        learner_copies.bring(course, mine)
        answers = work(mine / f"{name}.ipynb")
        before = (mine / f"{name}.ipynb").read_bytes()
        write(course / f"{name}.ipynb", newer)
        copied = learner_copies.bring(course, mine)
        assert (mine / f"{name}.ipynb").read_bytes() == before
        if handed_out.digest(older) == handed_out.digest(newer):
            assert copied.kept
            continue
        (offer,) = copied.beside
        given = answers_in(course / f"{name}.ipynb")  # with exercises that are new
        assert answers_in(mine / offer.new) == given | answers
        assert not handed_out.changed(course)
