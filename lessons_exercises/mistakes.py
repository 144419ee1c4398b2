"""Reads an exercise's `.mistakes`: each mistake is an edit of our own answer, with its name.

    ## slug
    The message, in plain lines.

        old => new        an edit. `old` is in our answer exactly once.
        old =>> new       in all places, one or more.
        f(…) => g(…)      `…` is any argument, or the rest of a line: each place by itself, and
                          all of them.
        old =>            the lines below, indented once more, are the new text.
            new
        or                another form of the same mistake

The lines up to `or`, which is indented as they are, are one form. All its edits are made, from
top to bottom. `old` is one line here: write several lines of our answer one after the other.
White space in `old` does not matter. A form may also be

        returns: result + 1        what the mistake returns. `result` is what ours returns; the
                                   arguments have their names.
        def answer(…):             a whole text, for a mistake that is built differently.

`## spellings`, the first section, has forms that are right: each mistake is made in each
combination of them too, wherever its edits fit. `general.mistakes` has mistakes of all
exercises in Python. A line that begins with `# ` is a comment.
"""

import __future__

import ast
import functools
import itertools
import json
import re
import sys
import textwrap
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lessons_exercises import records
from lessons_lib import checks
from lessons_lib.checks import Mistake, MistakesError, NoEnd
from lessons_lib.paths import mistakes_folder

HERE = Path(__file__).parent
OUR_ANSWERS = HERE / "our_answers.json"
MOST_LINES = 100_000  # that a form may run on a case; ours run a few hundred
_INDENT = "    "
# up to a comma or the end of the line, with two levels of brackets
_ARGUMENT = r"(?:[^()\[\],\n]|\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])*"
_EDIT = re.compile(r"(?P<old>.*?\S) =>(?P<all>>?)(?: (?P<new>.*))?$")


@dataclass(frozen=True, eq=False)
class Form(checks.Form):
    """An answer that makes a mistake, as a text."""

    text: str
    bank: "Bank"
    place: str  # file and line
    is_respelt: bool  # whether it is an edit of another spelling than ours
    is_further: bool  # whether it is from a teacher's file

    def load(self):
        """The function or class. A function that does not come to an end raises NoEnd."""
        scope = {"torch": torch, **self.bank.scope, "__name__": "answer"}
        # our own text, or a teacher's; its annotations need no imports
        flags = __future__.annotations.compiler_flag
        exec(compile(self.text, self.place, "exec", flags, dont_inherit=True), scope)
        answer = scope[self.bank.answer_name]
        if isinstance(answer, types.FunctionType):
            return _with_an_end(answer, self.place)
        return answer

    def record(self, number: int):
        return self.bank.records.find(self.text, number)

    def gives(self, same, recorded, actual) -> bool:
        return self.bank.records.gives(same, recorded, actual)


@dataclass(frozen=True, eq=False)
class RecordedForm(checks.Form):
    """A form of which only the results are known; its text is made when it has to be tried."""

    bank: "Bank"
    slug: str
    number: int  # among the forms of its mistake
    row: list[int]  # of the records

    def load(self):
        (mistake,) = (each for each in self.bank.complete if each.slug == self.slug)
        return (mistake.wrong, *mistake.also)[self.number].load()

    def record(self, number: int):
        return self.bank.records.at(self.row, number)

    def gives(self, same, recorded, actual) -> bool:
        return self.bank.records.gives(same, recorded, actual)


class Bank(Sequence):
    """The mistakes of one exercise, in the order in which they are looked through.

    They are read when they are first needed, which is when an answer is wrong.
    """

    def __init__(self, exercise_id: str, answer_name: str, file: str, scope: dict[str, Any]):
        """`file`: the exercise's Python file. `scope`: the names that its texts may use."""
        self.exercise_id, self.answer_name, self.scope = exercise_id, answer_name, scope
        self.file = Path(file)

    def __getitem__(self, index):
        return self.mistakes[index]

    def __len__(self):
        return len(self.mistakes)

    @functools.cached_property
    def answer(self) -> str:
        """Our answer, which the edits change."""
        return json.loads(OUR_ANSWERS.read_text(encoding="utf-8"))[self.exercise_id]

    @functools.cached_property
    def records(self) -> records.Records:
        return records.read(self.exercise_id, self.file, self.scope)

    @functools.cached_property
    def mistakes(self) -> tuple[Mistake, ...]:
        """As recorded, if the records know them all: that is far faster."""
        if mistakes_folder() or self.records.source != self.source:
            return self.complete
        forms: dict[str, list[RecordedForm]] = {}
        for slug, number, row in self.records.named:
            forms.setdefault(slug, []).append(RecordedForm(self, slug, number, row))
        sections = [each for file in self._files() for each in _sections(file)]
        messages = {each.slug: self._message(each) for each in reversed(sections)}
        return tuple(
            Mistake(slug, messages[slug], first, also=tuple(further))
            for slug, (first, *further) in forms.items()
        )

    @property
    def source(self) -> str:
        """A digest of all texts that the forms are made of."""
        texts = [file.read_text(encoding="utf-8") for file in self._files()]
        return records.key("\0".join([*texts, self.answer]))

    def _files(self) -> list[Path]:
        own = self.file.with_suffix(".mistakes")
        is_class = f"class {self.answer_name}" in self.answer
        return [own] if is_class else [own, HERE / "general.mistakes"]

    def _message(self, section: "_Section") -> str:
        return section.message.replace("{answer}", self.answer_name)

    @functools.cached_property
    def complete(self) -> tuple[Mistake, ...]:
        """The exercise's own, then a teacher's, then those of all exercises."""
        found = [*self.own, *self._further()]
        slugs = [mistake.slug for mistake in found]
        general = [mistake for file in self._files()[1:] for mistake in self._read(file)]
        return (*found, *(mistake for mistake in general if mistake.slug not in slugs))

    def _further(self) -> list[Mistake]:
        found: list[Mistake] = []
        for file in further_files(f"{self.exercise_id}[!0-9]*mistakes"):
            found += self._read(file, known=[each.slug for each in (*self.own, *found)])
        return found

    @property
    def num_further(self) -> int:
        """How many of a teacher's own mistakes there are. All of them are read."""
        return len(self._further())

    @functools.cached_property
    def own(self) -> tuple[Mistake, ...]:
        return tuple(self._read(self.file.with_suffix(".mistakes")))

    def _read(self, file: Path, known: Sequence[str] = ()) -> list[Mistake]:
        sections, slugs = list(_sections(file)), set(known)
        spellings = [self.answer]
        if sections and sections[0].slug == "spellings":
            spellings += self._spellings(sections.pop(0))
        read = []
        for section in sections:
            if section.slug in slugs:
                raise MistakesError(
                    f"{section.place}: {section.slug} is there already, here or "
                    "in the course. Choose another name."
                )
            slugs.add(section.slug)
            texts: dict[str, tuple[str, bool]] = {}  # each once
            for number, spelling in enumerate(spellings):
                for form in section.forms:
                    for text in form.texts(spelling, spellings):
                        texts.setdefault(text, (form.place, number > 0))
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

    def _spellings(self, section: "_Section") -> list[str]:
        """Our answer in all combinations of other right spellings."""
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


def further_files(pattern: str = "*.mistakes") -> list[Path]:
    """A teacher's own files. Raises MistakesError if they should be in what is no folder."""
    folder = mistakes_folder()
    if folder and not folder.is_dir():
        raise MistakesError(f"LESSONS_MISTAKES names {folder}, which is no folder.")
    for file in sorted(folder.iterdir()) if folder else []:
        _look_at_name(file)
    return sorted(folder.glob(pattern)) if folder else []


def _look_at_name(file: Path) -> None:
    """Raises MistakesError for a file that would never be read."""
    name = re.fullmatch(r"(\d+\.\d+)([^\d].*)?\.mistakes", file.name)
    known = json.loads(OUR_ANSWERS.read_text(encoding="utf-8"))
    if file.is_file() and not file.name.startswith(".") and (not name or name[1] not in known):
        raise MistakesError(
            f"{file}: its name has to begin with an exercise in Python "
            "and to end in .mistakes, such as 2.5.mistakes or 2.5_monday.mistakes."
        )


@dataclass(frozen=True)
class _Edit:
    old: str
    new: str
    everywhere: bool
    place: str

    def texts(self, text: str) -> list[str]:
        """`text` with this edit: several where `…` leaves the place open; none if `old` is not
        there.
        """
        found = list(_pattern(self.old).finditer(text))
        if self.everywhere and found:
            return [_replace(text, found, self.new)]
        if "…" in self.old:
            chosen = [[place] for place in found] + ([found] if len(found) > 1 else [])
            return [_replace(text, places, self.new) for places in chosen]
        return [_replace(text, found, self.new)] if len(found) == 1 else []

    def count(self, text: str) -> int:
        return len(_pattern(self.old).findall(text))


@dataclass(frozen=True)
class _Form:
    """edits: what is edited; or `whole`: a text; or `returns`: an expression."""

    place: str
    edits: tuple[_Edit, ...] = ()
    whole: str = ""
    returns: str = ""

    def texts(self, spelling: str, spellings: list[str]) -> list[str]:
        """What this form makes of a spelling. It has to fit the first, which is our answer."""
        if self.whole:
            return [self.whole]
        texts = self.texts_of(spelling)
        if not texts and spelling == spellings[0]:
            raise self._does_not_fit(spelling)
        return [text for text in texts if text not in spellings]

    def texts_of(self, text: str) -> list[str]:
        if self.returns:
            return [_returning(text, self.returns, self.place)]
        texts = [text]
        for edit in self.edits:
            texts = [new for text in texts for new in edit.texts(text)]
        return [text for text in texts if _is_python(text)]

    def _does_not_fit(self, answer: str) -> MistakesError:
        texts = [answer]
        for edit in self.edits:
            edited = [new for text in texts for new in edit.texts(text)]
            if not edited and (count := edit.count(texts[0])):
                words = f"is there {count} times. Quote more of the line, or write =>> for all"
                return MistakesError(f"{edit.place}: `{edit.old}` {words}.")
            if not edited and edit.count(answer):
                words = (
                    "is in our answer, and an edit above has replaced it. Is an `or` missing?"
                )
                return MistakesError(f"{edit.place}: `{edit.old}` {words}")
            if not edited:
                words = f'is not in our answer. solution("{self._exercise()}") shows it'
                return MistakesError(f"{edit.place}: `{edit.old}` {words}.")
            texts = edited
        return MistakesError(
            f"{self.place}: the edited answer is no Python: {_problem(texts[0])}"
        )

    def _exercise(self) -> str:
        """The exercise that the file's name begins with: `2.5` of `e2_5_append_token`."""
        found = re.match(r"e?(\d+)[._](\d+)", self.place)
        return f"{found[1]}.{found[2]}" if found else "…"


@dataclass(frozen=True)
class _Section:
    slug: str
    message: str
    forms: tuple[_Form, ...]
    place: str


def _sections(file: Path) -> Iterator[_Section]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise MistakesError(f"{file.name} is not UTF-8. Save it as UTF-8.") from None
    lines = [
        (f"{file.name}:{number}", line.rstrip())
        for number, line in enumerate(text.split("\n"), 1)
        if not line.startswith("# ")
    ]
    starts = [number for number, (_, line) in enumerate(lines) if line.startswith("## ")]
    for place, line in lines[: starts[0] if starts else None]:
        if line:
            raise MistakesError(f"{place}: the first line has to be `## name-of-the-mistake`.")
    for start, end in itertools.pairwise([*starts, len(lines)]):
        place, title = lines[start]
        body = lines[start + 1 : end]
        for where, line in body:
            if line == "or" or line[:1].isspace() and not line.startswith(_INDENT):
                raise MistakesError(
                    f"{where}: indent `{line.strip()}` by four spaces, as the edits are."
                )
        message = " ".join(line for _, line in body if line and not line.startswith(_INDENT))
        code = [
            (place, line.removeprefix(_INDENT))
            for place, line in body
            if not line or line.startswith(_INDENT)
        ]
        slug = title[3:].strip()
        if not message and slug != "spellings":
            raise MistakesError(f"{place}: {slug} has no message for the learner.")
        yield _Section(slug, message, tuple(_forms(code)), place)


def _forms(lines: list[tuple[str, str]]) -> Iterator[_Form]:
    for is_or, group in itertools.groupby(lines, lambda line: line[1] == "or"):
        form = list(group)
        while form and not form[0][1]:
            form.pop(0)
        while form and not form[-1][1]:
            form.pop()
        if is_or or not form:
            continue
        place, first = form[0]
        if first.startswith("returns: "):
            yield _Form(place, returns=first.removeprefix("returns: "))
        elif re.match(r"(def|class|from|import|@)\b|@", first):
            text = "\n".join(line for _, line in form) + "\n"
            if not _is_python(text):
                raise MistakesError(f"{place}: this text is no Python: {_problem(text)}")
            yield _Form(place, whole=text)
        else:
            yield _Form(place, edits=tuple(_edits(form)))


def _edits(lines: list[tuple[str, str]]) -> Iterator[_Edit]:
    waiting = list(lines)
    while waiting:
        place, line = waiting.pop(0)
        if not line:
            continue
        edit = _EDIT.match(line)
        if not edit:
            raise MistakesError(f"{place}: expected `old => new`, and found: {line.strip()}")
        below = []
        while waiting and (waiting[0][1].startswith(_INDENT) or not waiting[0][1]):
            below.append(waiting.pop(0)[1].removeprefix(_INDENT))
        yield _Edit(
            edit["old"].strip(),
            "\n".join([*([edit["new"]] if edit["new"] else []), *below]).rstrip(),
            bool(edit["all"]),
            place,
        )


@functools.lru_cache(maxsize=10_000)
def _pattern(old: str) -> re.Pattern:
    """`old` in any white space. A word does not begin or end within a longer one."""
    tokens = re.findall(r"\w+|[^\w\s]", old)
    pattern = ""
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before:
            both_words = re.match(r"\w", before) and re.match(r"\w", token)
            pattern += r"\s+" if both_words else r"\s*"
        pattern += f"({_ARGUMENT})" if token == "…" else re.escape(token)
    start = r"(?<!\w)" if re.match(r"\w", tokens[0]) else ""
    end = r"(?!\w)" if re.match(r"\w", tokens[-1]) else ""
    return re.compile(start + pattern + end)


def _replace(text: str, places: list[re.Match], new: str) -> str:
    """New lines are indented like the line that they begin in."""
    for place in reversed(places):
        line = text[text.rfind("\n", 0, place.start()) + 1 :]
        indent = line[: len(line) - len(line.lstrip())]
        added = new.replace("\n", f"\n{indent}")
        added = added.replace("…", place[1] if place.re.groups else "")
        text = text[: place.start()] + added + text[place.end() :]
    return text


def _is_python(text: str) -> bool:
    return not _problem(text)


def _problem(text: str) -> str:
    """What Python says of a text that it cannot read, with the line; nothing if it can."""
    try:
        compile(text, "", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{error.msg}: `{(error.text or '').strip()}`"
    return ""


def _returning(text: str, expression: str, place: str) -> str:
    """The function in `text`, with another result."""
    function = ast.parse(text).body[-1]
    if not isinstance(function, ast.FunctionDef):
        raise MistakesError(f"{place}: `returns:` needs a function.")
    own = function.args
    called = ", ".join(
        [argument.arg for argument in [*own.posonlyargs, *own.args]]
        + ([f"*{own.vararg.arg}"] if own.vararg else [])
        + [f"{argument.arg}={argument.arg}" for argument in own.kwonlyargs]
        + ([f"**{own.kwarg.arg}"] if own.kwarg else [])
    )
    defined = f"def {function.name}({ast.unparse(function.args)}):"
    return (
        f"{defined}\n"
        f"{textwrap.indent(text, _INDENT)}\n"
        f"    result = {function.name}({called})\n"
        f"    return {expression}\n"
    )


def _with_an_end(function, place: str):
    """`function`, which raises NoEnd once its own lines have run MOST_LINES times."""

    @functools.wraps(function)
    def guarded(*arguments, **named):
        lines = 0

        def follow(frame, event, argument):
            nonlocal lines
            if frame.f_code.co_filename != place:
                return None
            lines += event == "line"
            if lines > MOST_LINES:
                raise NoEnd
            return follow

        before = sys.gettrace()
        sys.settrace(follow)
        try:
            return function(*arguments, **named)
        finally:
            sys.settrace(before)

    return guarded
