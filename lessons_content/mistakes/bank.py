"""The known mistakes of one exercise, as texts and as records."""

import __future__

import contextlib
import functools
import io
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lessons_content.mistakes import edits, pairs, records, repairs, thrown
from lessons_content.mistakes.ends import with_an_end
from lessons_content.mistakes.teachers_mistakes import further_files
from lessons_lib import checks
from lessons_lib.checks import Mistake, MistakesError
from lessons_lib.paths import mistakes_folder

HERE = Path(__file__).parent


@dataclass(frozen=True, eq=False)
class Form(checks.Form):
    """An answer that makes a mistake, as a text."""

    text: str
    bank: "Bank"
    place: str  # file and line
    is_respelt: bool  # whether it is an edit of another spelling of our answer
    is_further: bool  # whether it is from a teacher's file

    def load(self):
        """The function or class. If a function does not end, it raises NoEnd."""
        if self.bank.prepare:
            built = self._built
            if isinstance(built, Exception):
                raise built
            return built
        scope = {"torch": torch, **self.bank.scope, "__name__": "answer"}
        # The text is our own or a teacher's. Its annotations need no imports.
        flags = __future__.annotations.compiler_flag
        exec(compile(self.text, self.place, "exec", flags, dont_inherit=True), scope)
        answer = scope[self.bank.answer_name]
        if isinstance(answer, types.FunctionType):
            return with_an_end(answer, self.place)
        return answer

    @functools.cached_property
    def _built(self):
        """The result of `prepare`, or its error. It is kept, because a build takes seconds."""
        try:
            return self.bank.prepare(self.text)
        except Exception as error:
            return error

    @property
    def is_recorded(self) -> bool:  # type: ignore[override]
        return self.bank.records.find(self.text, 0) is not None

    @property
    def is_built(self) -> bool:  # type: ignore[override]
        return self.bank.prepare is not None

    def record(self, number: int):
        return self.bank.records.find(self.text, number)

    def gives(self, same, recorded, actual) -> bool:
        return self.bank.records.gives(same, recorded, actual)


@dataclass(frozen=True, eq=False)
class RecordedForm(checks.Form):
    """A form whose results are known. Its text is made only if it has to be tried."""

    bank: "Bank"
    slug: str
    number: int  # among the forms of its mistake
    row: Sequence[int]  # its row in the records
    is_recorded = True

    @property
    def is_built(self) -> bool:  # type: ignore[override]
        return self.bank.prepare is not None

    def load(self):
        (mistake,) = (each for each in self.bank.complete if each.slug == self.slug)
        return (mistake.wrong, *mistake.also)[self.number].load()

    def record(self, number: int):
        return self.bank.records.at(self.row, number)

    def gives(self, same, recorded, actual) -> bool:
        return self.bank.records.gives(same, recorded, actual)


class Bank(Sequence):
    """The mistakes of one exercise, in the order in which they are compared.

    They are read when they are first needed, which is when an answer is wrong.
    """

    def __init__(
        self,
        exercise_id: str,
        answer_name: str,
        file: str,
        scope: dict[str, Any],
        prepare: Callable[[str], Any] | None = None,
    ):
        """
        file: the exercise's Python file.
        scope: the names that its texts may use.
        prepare: builds a text in C++ or CUDA.
        """
        self.exercise_id, self.answer_name, self.scope = exercise_id, answer_name, scope
        self.file, self.prepare = Path(file), prepare

    def __getitem__(self, index):
        return self.mistakes[index]

    def __len__(self):
        return len(self.mistakes)

    @functools.cached_property
    def answer(self) -> str:
        """Our answer, which the edits change."""
        return edits.our_answers()[self.exercise_id]

    @functools.cached_property
    def records(self) -> records.Records:
        return records.read(self.exercise_id, self.made_with)

    @functools.cached_property
    def made_with(self) -> str:
        """A digest of the exercise. A record with another digest does not count."""
        return records.harness(self.file, self.scope, self.prepare is not None)

    @functools.cached_property
    def mistakes(self) -> tuple[Mistake, ...]:
        """The recorded mistakes, if the records know them all, because that is far faster."""
        if mistakes_folder() or self.records.source != self.source:
            return self.complete
        forms: dict[str, list[RecordedForm]] = {}
        for slug, number, row in self.records.named:
            forms.setdefault(slug, []).append(RecordedForm(self, slug, number, row))
        messages = self._messages()
        found = [
            Mistake(slug, messages.pop(slug), first, also=tuple(further))
            for slug, (first, *further) in forms.items()
        ]
        # No result tells the rest apart from others, or the answer's text shows them.
        return (*found, *(Mistake(slug, words, None) for slug, words in messages.items()))

    @property
    def source(self) -> str:
        """A digest of all texts that the forms are made from."""
        texts = [file.read_text(encoding="utf-8") for file in self._files()]
        return records.key("\0".join([*texts, self.answer]))

    @functools.cached_property
    def hanging(self) -> set[str]:
        """The slugs of the course's mistakes whose results may depend on rounding."""
        return {
            section.slug
            for file in self._files()
            for section in self._sections(file)
            if section.hangs
        }

    def _files(self) -> list[Path]:
        own = self.file.with_suffix(".mistakes")
        is_function = not self.prepare and f"class {self.answer_name}" not in self.answer
        return [own, HERE / "general.mistakes"] if is_function else [own]

    def _sections(self, file: Path):
        return edits.sections(file, is_python=not self.prepare)

    def _messages(self) -> dict[str, str]:
        """The message of each of the course's mistakes. The exercise's own come first."""
        found: dict[str, str] = {}
        for file in self._files():
            for section in self._sections(file):
                if section.slug not in edits.OF_OTHERS:
                    found.setdefault(section.slug, self._message(section))
        return found

    def _message(self, section: edits.Section) -> str:
        return section.message.replace("{answer}", self.answer_name)

    @functools.cached_property
    def complete(self) -> tuple[Mistake, ...]:
        """The exercise's own mistakes, then a teacher's, then those of all exercises."""
        found = [*self.own, *self.further]
        slugs = [mistake.slug for mistake in found]
        general = [mistake for file in self._files()[1:] for mistake in self._read(file)]
        return (*found, *(mistake for mistake in general if mistake.slug not in slugs))

    @property
    def further(self) -> tuple[Mistake, ...]:
        """A teacher's own mistakes, read from the files now."""
        found: list[Mistake] = []
        for file in further_files(f"{self.exercise_id}[!0-9]*mistakes"):
            found += self._read(file, known=[each.slug for each in (*self.own, *found)])
        return tuple(found)

    @functools.cached_property
    def own(self) -> tuple[Mistake, ...]:
        return tuple(self._read(self.file.with_suffix(".mistakes")))

    def tell(self, exercise, answer, verdict: checks.CheckResult) -> checks.CheckResult:
        """The verdict. For a wrong answer in C++, its message has the exception's own name."""
        if verdict.mistake != "wrong" or exercise.language != "c++":
            return verdict
        return replace(verdict, message=thrown.told(verdict.message, answer))

    def explain(self, exercise, answer, verdict: checks.CheckResult) -> tuple[str, str] | None:
        """(slug, message) for an answer that no mistake explains, or None.

        The answer may have a slip that any answer can have, or two of this exercise's mistakes
        at once. If the verdict is about an exception, the message still is. If a mistake
        explains it, only a slip that hides itself as that mistake counts.
        """
        if self.prepare:
            return None
        cases = exercise.in_order(exercise.cases())
        if verdict.mistake != "wrong":

            def all_right(changed) -> bool:
                return all(
                    exercise.same(
                        checks.attempt(exercise, exercise.reference, case),
                        checks.attempt(exercise, changed, case),
                    )
                    for case in cases
                )

            with contextlib.redirect_stdout(io.StringIO()):
                return repairs.hidden(answer, all_right)
        # the text that the answer prints is already known
        with contextlib.redirect_stdout(io.StringIO()):
            given, expected = (
                [checks.attempt(exercise, each, case) for case in cases]
                for each in (answer, exercise.reference)
            )
            slip = self._explained(exercise, answer, cases, given, expected)
        said = verdict.message.split("\n")[0]
        if slip and said.startswith(checks.AN_ERROR):
            return slip[0], f"{said} {slip[1]}"
        return slip

    def _explained(self, exercise, answer, cases: list, given: list, expected: list):
        """given, expected: the results of the answer and of our answer on the cases."""

        def is_right(changed, number: int) -> bool:
            result = checks.attempt(exercise, changed, cases[number])
            return exercise.same(expected[number], result)

        were_right = [*map(exercise.same, expected, given)]
        found = repairs.slip(answer, is_right, were_right)
        if found and not found[1].endswith(pairs.BESIDES):
            return found
        return pairs.find(self, exercise, cases, given, expected) or found

    def first_forms(self) -> Iterator[tuple[str, edits.Form]]:
        """The first form of each own mistake of the exercise, unless it is a whole text."""
        for section in self._sections(self.file.with_suffix(".mistakes")):
            if section.slug not in edits.OF_OTHERS and not section.forms[0].whole:
                yield section.slug, section.forms[0]

    def form(self, text: str) -> Form:
        return Form(text, self, self.exercise_id, is_respelt=True, is_further=False)

    def message_of(self, slug: str) -> str:
        return next(mistake.message for mistake in self.mistakes if mistake.slug == slug)

    def _read(self, file: Path, known: Sequence[str] = ()) -> list[Mistake]:
        sections, slugs = list(self._sections(file)), set(known)
        spellings = [self.answer]
        if sections and sections[0].slug == "spellings":
            spellings += self._spellings(sections.pop(0))
        together = self._together(sections)
        read = []
        for section in sections:
            if section.slug in slugs:
                raise MistakesError(
                    f"{section.place}: {section.slug} is there already, here or "
                    "in the course. Choose another name."
                )
            slugs.add(section.slug)
            texts: dict[str, tuple[str, bool]] = {}  # without duplicates
            for number, spelling in enumerate(spellings):
                for form in section.forms:
                    for text in form.texts(spelling, spellings):
                        texts.setdefault(text, (form.place, number > 0))
            for text, place in together.get(section.slug, ()):
                texts.setdefault(text, (place, True))
            is_further = file.parent not in (self.file.parent, HERE)
            forms = [Form(text, self, *about, is_further) for text, about in texts.items()]
            if not forms:
                raise MistakesError(
                    f"{section.place}: {section.slug} changes nothing. An edit is indented by "
                    "four spaces, below the message."
                )
            message = self._message(section)
            read.append(Mistake(section.slug, message, forms[0], also=tuple(forms[1:])))
        return read

    def _together(self, sections: list[edits.Section]) -> dict[str, list[tuple[str, str]]]:
        """(text, place) of texts that make several mistakes at once, by the first mistake's
        name.

        Removes the last section from `sections` if it lists such combinations.
        """
        found: dict[str, list[tuple[str, str]]] = {}
        if not sections or sections[-1].slug != "together":
            return found
        listed = sections.pop()
        known = {section.slug: section.forms for section in sections}
        for place, line in listed.lines:
            slugs = line.strip().split(", ") if line else []
            for slug in slugs:
                if slug not in known:
                    raise MistakesError(f"{place}: there is no mistake {slug} here.")
            groups = [(slug, known[slug]) for slug in slugs]
            for text, first in edits.combined(groups, self.answer).items():
                found.setdefault(first, []).append((text, place))
        return found

    def _spellings(self, section: edits.Section) -> list[str]:
        """Our answer in all combinations of its other right spellings."""
        texts = {self.answer: None}
        for form in section.forms:
            for text in form.texts(self.answer, [self.answer]):
                texts[text] = None
        for size in range(2, len(section.forms) + 1):
            for chosen in itertools.combinations(section.forms, size):
                combined = [self.answer]
                for form in chosen:
                    combined = [new for text in combined for new in form.texts_of(text)]
                texts.update(dict.fromkeys(combined))
        return [*texts][1:]
