"""Reads an exercise's `.mistakes`: each mistake is an edit of our own answer, with its name.

    ## slug
    The message, in plain lines.

        old => new        an edit. `old` is in our answer exactly once.
        old =>> new       in all places, one or more.
        f(…) => g(…)      `…` is any argument, or the rest of a line: each place by itself, and
                          all places together.
        old =>            the lines below, indented once more, are the new text.
            new
        or old => new     another form of the same mistake
           old => new     its second edit
        maybe old => new  an edit that makes two forms of one: with it, and without it

The lines up to the next `or` are one form. All its edits are made, from top to bottom. `old`
is one line here: write several lines of our answer one after the other. White space in `old`
does not matter. An `or` at the beginning of a line is never a part of `old`. New lines are
indented like the line in which `old` begins: to take a line out of a loop, quote from the
loop's first line on. A form may also be

        returns: result + 1        the mistake's result. `result` is our answer's result; the
                                   arguments have their names.
        def answer(…):             a whole text, for a mistake that is built differently.

In C++ and CUDA a form is edits, or a whole text: lines that are all not edits.

`## together`, the last section, lists mistakes that a text may make at once. Each combination
of two or more in a line is a form of its first mistake.

`## spellings`, the first section, has right answers in other words. Each mistake is made in
each combination of them too, wherever its edits fit. `general.mistakes` has mistakes of all
exercises in Python. A line that begins with `# ` is a comment.

`## slug (hangs on rounding)` begins a mistake whose result depends on the processor. If it
does, nothing is recorded, and the mistake is tried on the learner's machine.
"""

import ast
import functools
import itertools
import json
import re
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lessons_lib.checks import MistakesError

OUR_ANSWERS = Path(__file__).with_name("our_answers.json")
OF_OTHERS = ("spellings", "together")  # sections that are not mistakes
_INDENT = "    "
_HANGS = " (hangs on rounding)"
# Up to a comma or the end of the line, with two levels of brackets.
_ARGUMENT = r"(?:[^()\[\],\n]|\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])*"
_EDIT = re.compile(r"(?P<maybe>maybe )?(?P<old>.*?\S) =>(?P<all>>?)(?: (?P<new>.*))?$")


@functools.cache
def our_answers() -> dict[str, str]:
    """Our answers, which the edits change, by exercise."""
    return json.loads(OUR_ANSWERS.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Edit:
    old: str
    new: str
    everywhere: bool
    is_optional: bool
    place: str

    def texts(self, text: str) -> list[str]:
        """`text` with this edit. Several texts if `…` fits several places; none if `old` is
        not in `text`.
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
class Form:
    """A form has `edits`, or a `whole` text, or `returns`, an expression."""

    place: str
    is_python: bool
    edits: tuple[Edit, ...] = ()
    whole: str = ""
    returns: str = ""

    def texts(self, spelling: str, spellings: list[str]) -> list[str]:
        """The texts that this form makes of a spelling.

        It has to fit our answer, the first one.
        """
        if self.whole:
            return [self.whole]
        texts = self.texts_of(spelling, is_ours=spelling == spellings[0])
        if not texts and spelling == spellings[0]:
            raise self._does_not_fit(spelling)
        return [text for text in texts if text not in spellings]

    def texts_of(self, text: str, is_ours: bool = False) -> list[str]:
        if self.returns:
            return [_returning(text, self.returns, self.place)]
        texts = [text]
        for edit in self.edits:
            edited = [new for text in texts for new in edit.texts(text)]
            texts = texts + edited if edit.is_optional and (edited or not is_ours) else edited
        return [text for text in texts if not self.is_python or _is_python(text)]

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
class Section:
    """One mistake as it is written.

    The lines below its title are read when they are needed.
    """

    slug: str
    place: str
    lines: list[tuple[str, str]]  # (place, line), below the title
    is_python: bool
    head: str = ""  # put before each text that has none, such as `def f(x):`
    hangs: bool = False  # whether its result may depend on how a processor rounds

    @functools.cached_property
    def message(self) -> str:
        words = " ".join(
            line for _, line in self.lines if line and not line.startswith(_INDENT)
        )
        if not words and self.slug not in OF_OTHERS:
            raise MistakesError(f"{self.place}: {self.slug} has no message for the learner.")
        return words

    @functools.cached_property
    def forms(self) -> tuple[Form, ...]:
        for place, line in self.lines:
            if line == "or" or line[:1].isspace() and not line.startswith(_INDENT):
                raise MistakesError(
                    f"{place}: indent `{line.strip()}` by four spaces, as the edits are."
                )
        code = [
            (place, line.removeprefix(_INDENT))
            for place, line in self.lines
            if not line or line.startswith(_INDENT)
        ]
        return tuple(_forms(_with_or_alone(code), self.is_python, self.head))


def combined(groups: list[tuple[str, tuple[Form, ...]]], text: str) -> dict[str, str]:
    """`text` with two or more mistakes at once: for each new text, the name of the first
    mistake.

    groups: for each mistake its name and its forms. Forms that are whole texts are left out.
    """
    made = [(text, "", 0)]
    for slug, forms in groups:
        made += [
            (new, first or slug, number + 1)
            for old, first, number in made
            for form in forms
            if not form.whole
            for new in form.texts_of(old)
            if new != old
        ]
    return {new: first for new, first, number in made if number > 1}


def sections(file: Path, is_python: bool = True, head: str = "") -> Iterator[Section]:
    """The mistakes in a file, for an answer in Python, or in C++ or CUDA.

    Raises MistakesError, with file and line, if the file cannot be read.
    """
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
        slug, hangs = title[3:].strip().removesuffix(_HANGS), title.endswith(_HANGS)
        yield Section(slug, place, lines[start + 1 : end], is_python, head, hangs)


def _with_or_alone(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The lines of forms, all with the same indentation. Each `or` has its own line."""
    found = []
    for place, line in lines:
        if line.startswith("or "):
            found.append((place, "or"))
        # Further lines of the form may be aligned with the text after `or`.
        found.append((place, line[3:] if re.match(r"or | {3}\S", line) else line))
    return found


def _forms(lines: list[tuple[str, str]], is_python: bool, head: str) -> Iterator[Form]:
    for is_or, group in itertools.groupby(lines, lambda line: line[1] == "or"):
        form = list(group)
        while form and not form[0][1]:
            form.pop(0)
        while form and not form[-1][1]:
            form.pop()
        if is_or or not form:
            continue
        place, first = form[0]
        if is_python and first.startswith("returns: "):
            yield Form(place, is_python, returns=first.removeprefix("returns: "))
        elif _is_whole(form, is_python, head):
            text = "\n".join(line for _, line in form) + "\n"
            if is_python and not _has_head(first, head):
                text = f"{head}\n{textwrap.indent(text, _INDENT)}"
            if is_python and not _is_python(text):
                raise MistakesError(f"{place}: this text is no Python: {_problem(text)}")
            yield Form(place, is_python, whole=text)
        else:
            yield Form(place, is_python, edits=tuple(_edits(form)))


def _is_whole(lines: list[tuple[str, str]], is_python: bool, head: str) -> bool:
    if is_python and not head:
        return _has_head(lines[0][1], head)
    is_text = not any(_EDIT.match(line) for _, line in lines)
    return is_text and (is_python or len(lines) > 1)


def _has_head(line: str, head: str) -> bool:
    """Whether this first line makes a text in Python complete. `f = …` does so too if the head
    defines f.
    """
    name = head.partition("(")[0].removeprefix("def ")
    return bool(re.match(rf"(def|class|from|import)\b|@|{name} = ", line))


def _edits(lines: list[tuple[str, str]]) -> Iterator[Edit]:
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
        yield Edit(
            edit["old"].strip(),
            "\n".join([*([edit["new"]] if edit["new"] else []), *below]).rstrip(),
            bool(edit["all"]),
            bool(edit["maybe"]),
            place,
        )


@functools.lru_cache(maxsize=10_000)
def _pattern(old: str) -> re.Pattern:
    """Finds `old` with any white space. A word does not match a part of a longer word."""
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
    """Puts `new` into these places.

    New lines are indented like the line that they begin in.
    """
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
    """Python's message about a text that it cannot read, with the line; "" if it can read it.

    A call of a number, as in 0(x), counts too: an edit has torn a spelling apart.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # a mistake may be one of these
            warnings.filterwarnings("error", ".*object is not callable", SyntaxWarning)
            compile(text, "", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{error.msg}: `{(error.text or '').strip()}`"
    return ""


def _returning(text: str, expression: str, place: str) -> str:
    """The function in `text`, wrapped so that it returns the expression."""
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
