"""What a message claims is what the case shows that is shown with it."""

import re

import pytest

from answers import every_exercise, forms_of
from verdicts import recorded_verdicts

EXERCISES = every_exercise()
SHOWN = re.compile(r"case that shows it: .*?\n  expected: (.*?)\n  got:      (.*)", re.DOTALL)


def numbers(text: str) -> list[str]:
    return re.findall(r"-?\d[\d.]*", text.partition("at [")[2] or text)


def part(noun: str):
    """Whether the number before a noun differs: "192 operations". Other results have none."""

    def differs(ours: str, theirs: str) -> bool:
        one, other = (re.findall(rf"(\S+) {noun}", text) for text in (ours, theirs))
        return not one or one != other

    return differs


def has(words: str):
    return lambda ours, theirs: re.search(words, theirs)


def in_another_order(ours: str, theirs: str) -> bool:
    return ours != theirs and sorted(numbers(ours)) == sorted(numbers(theirs))


# what the first sentence of a message says, and whether two results show it
CLAIMS = [
    (
        r"(Your operations|You count the operations|You count half of the operations)\b",
        part("operations"),
    ),
    (r"Your bytes\b", part("bytes")),
    (r"[^.?]*\bbegins at tile 0\b", has(r"begin 0\b")),
    (r"[^.?]*\bbegins at tile -1\b", has(r"begin -1\b")),
    (r"[^.?]*\b(raises an error|raises the error)\b", has("Error")),
    (r"The [^.?,]*\bare in reverse order\b", in_another_order),
    (r"[^.?]*\breturns nothing\b", has("None")),
]


@pytest.mark.sampled
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_a_message_claims_what_its_case_shows(exercise):
    forms = [form for _, form in forms_of(exercise)]
    false = []
    for form, found in zip(forms, recorded_verdicts(exercise, forms), strict=True):
        shown = SHOWN.search(found.message)
        for words, holds in CLAIMS if shown else ():
            if re.match(words, found.message) and not holds(*shown.groups()):
                false.append(f"{form.place}: {found.message}")
    assert not false, "\n\n".join(false)


def test_each_claim_is_made_by_a_message():
    messages = [mistake.message for exercise in EXERCISES for mistake in exercise.mistakes]
    made = {words for words, _ in CLAIMS if any(re.match(words, each) for each in messages)}
    assert made == {words for words, _ in CLAIMS}
