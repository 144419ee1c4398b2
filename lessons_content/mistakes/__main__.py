"""Records the results of the known mistakes on their exercises' cases.

    python -m lessons_content.mistakes [3.3 …] [--check]

Only forms that have changed are tried again. A form whose result depends on how one machine
rounds is refused, unless its title says `(hangs on rounding)`. `--check` changes nothing, and
lists the exercises whose records are out of step.
"""

import argparse
import json
import sys

from lessons_content.exercises.naming_words import counted
from lessons_content.mistakes import records, roundings
from lessons_content.mistakes.bank import Bank, MistakesError
from lessons_lib import checks
from lessons_lib.checks import CRASH, HANG, Exercise, result_codec
from lessons_lib.cuda.compiler_errors import CompileError
from lessons_lib.processes import isolation

FORM_LIMIT = 30.0  # seconds for one form on all cases; most forms take milliseconds


AGAIN = "Run: python -m lessons_content.mistakes"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lessons_content.mistakes",
        description="Record what the known mistakes of each exercise give on its cases.",
    )
    parser.add_argument("exercises", nargs="*", metavar="ID", help="all, if none is named")
    parser.add_argument("--check", action="store_true", help="only say what is out of step")
    options = parser.parse_args(arguments)
    try:
        chosen = [checks.find(id) for id in options.exercises] or _every_exercise()
        stale = [exercise for exercise in chosen if is_stale(exercise)]
        for exercise in stale:
            if options.check:
                print(f"{exercise.id}: its records are out of step. {AGAIN}")
            else:
                record(exercise)
    except (KeyError, MistakesError) as error:
        print(error.args[0])
        return 2
    if options.check:
        return int(bool(stale))
    print(f"The records of {counted(len(chosen), 'exercise')} are in step.")
    return 0


def is_stale(exercise: Exercise) -> bool:
    bank = exercise.mistakes
    return isinstance(bank, Bank) and bank.records.source != bank.source


def texts_to_record(exercise: Exercise) -> list[str]:
    """The forms without a current record, and all whose results depend on rounding, or did."""
    forms, hanging = exercise.mistakes.records, hanging_texts(exercise)
    return [
        text
        for _, _, text in named(exercise)
        if text in hanging
        or records.key(text) not in forms.forms
        or records.HANGS in forms.encoded(text)
    ]


def hanging_texts(exercise: Exercise) -> set[str]:
    """The forms of mistakes whose results may depend on how a processor rounds."""
    hanging = exercise.mistakes.hanging
    return {text for slug, _, text in named(exercise) if slug in hanging}


def named(exercise: Exercise) -> list[tuple[str, int, str]]:
    """(slug, number, text) of each form, except a teacher's forms."""
    return [
        (mistake.slug, number, form.text)
        for mistake in exercise.mistakes.complete
        for number, form in enumerate((mistake.wrong, *mistake.also))
        if not form.is_further
    ]


def record(exercise: Exercise):
    """Tries the forms that are new, and writes the exercise's file."""
    bank = exercise.mistakes
    new = [*dict.fromkeys(texts_to_record(exercise))]
    given: dict[str, list] = {}
    while len(given) < len(new):
        outcome = isolation.run_isolated(
            _try_forms,
            exercise.id,
            new[len(given) :],
            time_limit=FORM_LIMIT,
            report=True,
            on_report=lambda about: _note(exercise.id, given, new, *about),
        )
        if outcome.ending == "raised":
            raise outcome.error
        if outcome.ending != "returned":
            given[new[len(given)]] = _one_case_at_a_time(exercise, new[len(given)])
    recorded = {
        text: given.get(text) or bank.records.encoded(text) for _, _, text in named(exercise)
    }
    print()
    records.write(exercise.id, bank.made_with, bank.source, recorded, named(exercise))
    del bank.records  # the records are read again when they are needed


def _note(exercise_id: str, given: dict, new: list[str], text: str, encoded: list) -> float:
    given[text] = encoded
    if sys.stdout.isatty() or len(given) == len(new):  # a log gets only one line
        print(f"\r{exercise_id}: {len(given)} of {len(new)} forms", end="", flush=True)
    return FORM_LIMIT


def _try_forms(exercise_id: str, texts: list[str], report):
    """Runs in the isolated process, and reports the results of each form."""
    exercise = _prepared(exercise_id)
    forms = _forms(exercise)
    cases, hanging = exercise.in_order(exercise.cases()), hanging_texts(exercise)
    for text in texts:
        if exercise.language != "python" and not exercise.recognise(text):
            _build(forms[text])
        may_hang = text in hanging
        report((text, [_encoded(exercise, forms[text], case, may_hang) for case in cases]))


def _build(form):
    try:
        form.load()
    except CompileError as error:
        raise MistakesError(f"{form.place}: this text cannot be built.\n{error}") from None


def results_of(exercise: Exercise, text: str) -> list:
    """The encoded results of a form on all cases, computed in a separate process."""
    outcome = isolation.run_isolated(
        _try_forms, exercise.id, [text], time_limit=FORM_LIMIT, report=True
    )
    if outcome.ending != "returned":
        return _one_case_at_a_time(exercise, text)
    return outcome.last_report[1]


def _one_case_at_a_time(exercise: Exercise, text: str) -> list:
    """The results of a form that ends its process on some cases."""
    given: list = []

    def note(encoded) -> float:
        given.append(encoded)
        return FORM_LIMIT

    while len(given) < len(list(exercise.cases())):
        outcome = isolation.run_isolated(
            _try_cases,
            exercise.id,
            text,
            len(given),
            time_limit=FORM_LIMIT,
            report=True,
            on_report=note,
        )
        if outcome.ending == "raised":
            raise outcome.error
        if outcome.ending != "returned":
            given.append(result_codec.encode(HANG if outcome.ending == "timed out" else CRASH))
    return given


def _try_cases(exercise_id: str, text: str, start: int, report):
    """Runs in the isolated process, and reports each result from case `start` on."""
    exercise = _prepared(exercise_id)
    form = _forms(exercise)[text]
    may_hang = text in hanging_texts(exercise)
    for case in exercise.in_order(exercise.cases())[start:]:
        report(_encoded(exercise, form, case, may_hang))


def _prepared(exercise_id: str) -> Exercise:
    import torch

    torch.set_num_threads(1)
    return checks.find(exercise_id)


def _forms(exercise: Exercise) -> dict:
    return {
        form.text: form
        for mistake in exercise.mistakes.complete
        for form in (mistake.wrong, *mistake.also)
    }


def _encoded(exercise: Exercise, form, case, may_hang: bool):
    """The form's result on the case, encoded; HANGS if the form may depend on rounding, and
    does.

    Raises MistakesError if another form depends on rounding, or if a result cannot be
    recorded.
    """
    given = checks.attempt(exercise, form, case)
    for way in (1, -1) if exercise.language == "python" else ():
        with roundings.Shaken(way):
            shaken = checks.attempt(exercise, form, case)
        if exercise.same(given, shaken):
            continue
        if may_hang:
            return records.HANGS
        raise MistakesError(
            f"{_what_gives(exercise, form)} hangs on "
            "roundings, which other processors do in their own ways. Change the case or "
            "the mistake, or write `(hangs on rounding)` after its name.\n"
            f"  {exercise.describe(case)}\n"
            + "\n".join(f"  or: {words}" for words in exercise.show(given, shaken))
        )
    encoded = result_codec.encode(given)
    if '["foreign", ' in json.dumps(encoded):
        raise MistakesError(
            f"{_what_gives(exercise, form)} is too large to be recorded. Let `observe` say "
            "less of it, or change the case or the mistake.\n"
            f"  {exercise.describe(case)}"
        )
    return records.coarse(encoded)


def _what_gives(exercise: Exercise, form) -> str:
    slug = next(slug for slug, _, text in named(exercise) if text == form.text)
    return f"{exercise.id}: what {slug} ({form.place}) gives on this case"


def _every_exercise() -> list[Exercise]:
    return [
        exercise for lesson in checks.lessons() for exercise in checks.exercises_of(lesson)
    ]


if __name__ == "__main__":
    sys.exit(main())
