"""The prose of lessons and pages, comments and docstrings have none of the turns that read
like a translation.

A turn is here only if a pattern can find it and leave right English alone. To add one, add a
row to TURNS, with a sentence that it must find. NOUNLESS has turns that only comments and
docstrings must not have: they avoid the noun.
"""

import ast
import io
import re
import tokenize
from typing import NamedTuple

import pytest

from answers import every_exercise
from lessons_lib.paths import ROOT, SOLUTIONS
from tools.notebooks.lesson_files import read_lesson

PAGES = [
    *sorted(SOLUTIONS.glob("*.py")),
    ROOT / "README.md",
    ROOT / "TEACHING.md",
    ROOT / "lessons_lib/start/README.md",
    *sorted(ROOT.glob("*/*/README.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]

CODE = (".py", ".h", ".cpp", ".cu", ".cuh")
ROOMS = (
    *("kernels", "lessons_content", "lessons_grading", "lessons_lib"),
    *("paged_attention", "solutions", "tests", "tools"),
)
# Here comments and docstrings also name each noun. Not yet: exercises, and the other rooms.
NAMES_NOUNS = re.compile(
    r"(lessons_lib|tools)/|lessons_content/(bench|mistakes|lesson_\w+/(bench|pictures))/"
)

NOT_PROSE = re.compile(
    r"```.*?```"  # a block of code
    r"|<code>.*?</code>|`[^`]*`|<[a-z/][^>\n]*>"  # code within a line, other tags
    r"|\$\$.*?\$\$|\$[^$\n]+\$"  # formulas
    r"|!\[[^\]]*\]\([^)]*\)|(?<=\])\([^)\s]*\)"  # pictures with alt text, links' addresses
    r"|^#+ [^\n]*$",  # headings
    re.DOTALL | re.MULTILINE,
)
NEW_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=[-*] |\d+\. )|\|")
START = r"(?:^…*|[.:;(] )"  # of a sentence, or of its second half


class Turn(NamedTuple):
    """A pattern, why the turn is wrong, a better text, and a sentence with the turn."""

    pattern: str
    why: str
    instead: str
    example: str


TURNS = [
    Turn(
        r"(?<!idea )(?<!ideas )(?<!reason )(?<!thinking )"
        r"\bbehind (?:(?:the|a|its|their|each) )?"
        r"(?:last|first|second|leading|end|text|query|prompt|pointer|slots?|tokens?|block"
        r"|context|entries|entry|diagonal|number|position|same calls?|theirs|different)\b",
        "“behind” is a place in a room",
        "after, past, beyond",
        "Entries behind the last block are -1.",
    ),
    Turn(
        r"(?<!as it )\b(?:stands?|standing|stood) "
        r"(?:(?:there|here|below|above|before|beside|under|side by side|far apart)\b|\d"
        r"|in (?!the way|for|line|contrast)|on (?!its own|their own|the should))"
        r"|\b[Ww]hat stands (?!in the way|for|out)|… stands? the\b",
        "numbers and lines of text do not stand",
        "is, are, lies",
        "Nothing stands there yet.",
    ),
    Turn(
        r"\b(?:request|block|thread|lane|warp|token|sequence|kernel|key|value|slot)s?"
        r",? whom?\b",
        "“who” is for persons",
        "that, which",
        "The requests who wait are in a queue.",
    ),
    Turn(
        START + r"[Ww]ho (?!is\b|are\b|was\b|were\b)[a-z]+ (?!which\b|what\b|whom\b)"
        r"[^.?;]*(?:[.;]|$)",
        "“who” alone opens a question",
        "the thread that …; a request that …; what …",
        "A mutex is a door. Who holds the key works inside.",
    ),
    Turn(
        r"\b[Ww]hoever\b",
        "stiff for a person, wrong for a thing",
        "anyone who, if you; any request that",
        "Whoever has ended gives its blocks back.",
    ),
    Turn(
        r"\b[Nn]obody (?:uses|owns|allocates|goes on|waits|runs|is started|will ever free)\b"
        r"|\bbelongs? to nobody\b|(?<!waits )\bfor nobody\b|\bof somebody else\b"
        r"|\b(?:anybody|somebody) (?:had to give|has to give|waits)\b",
        "“nobody” and “somebody” are persons",
        "nothing, no request, no thread; another sequence's",
        "The ids of the blocks that nobody uses.",
    ),
    Turn(
        r"\b(?:nothing|little|few|small|much|anything) beside\b"
        r"|\bbeside (?:that|this|the model itself|those of)\b",
        "“beside” is a place, not an addition or a comparison",
        "besides, on top of; compared with",
        "They are few beside the keys.",
    ),
    Turn(
        r"\b(?:the|into) so many\b|\bso many [a-z]+ (?:to (?:each|a)|behind|fill)\b"
        r"|\bso and so many\b|\b(?:of|most|least) so many\b|^[#\"]* ?So many [a-z]+ of\b",
        "“so many” does not stand for a number",
        "that many, this number of",
        "Only the so many likeliest may be drawn.",
    ),
    Turn(
        r"(?<!give )(?<!gives )(?<!hand )(?<!hands )\b(?:[Aa]|[Oo]ne) "
        r"(?:part|line|row|query|key|bar|entry|warp|thread) a "
        r"(?:block|step|request|sequence|head|token|row|key)\b",
        "“a … a …” is for rates (100 tokens a second)",
        "for each, to each, in each",
        "A part a block, and one step.",
    ),
    Turn(
        r"\bas it were\b",
        "an ornament",
        "leave it out, or say what is meant",
        "It is the head of the queue, as it were.",
    ),
    Turn(
        r"(?<!one )(?<!some )(?<!none )(?<!all )(?<!any )(?<!friend )(?<!thing )"
        r"\bof (?:ours|yours|theirs)\b",
        "goes the long way round the noun",
        "our …, your …, their …",
        "A wrong type needs no line of yours.",
    ),
    Turn(
        r"\b(?:is|are|was|were|be) of (?:the|that|this) kind\b",
        "“of the kind” needs a noun before it",
        "is like that, is one of these",
        "The third would be of that kind too.",
    ),
    Turn(
        r"\b(?:has|have) it (?:twice|turned)\b|\bone has not[.,;)]"
        r"|\b(?:where|which|that) (?:\w+ )?(?:has|have) it[.,;)]",
        "the object is left to be guessed",
        "name it: contains the function twice; if yours has one; does not have one",
        "The recorded one has not.",
    ),
    Turn(
        r"\bcom(?:es?|ing) to (?:lie|stand)\b",
        "from “zu liegen kommen”",
        "lies, ends up",
        "It comes to lie in slot 3.",
    ),
    Turn(
        r"\bmodels? of (?:others|other people)\b",
        "“of others” is a genitive",
        "another project's model",
        "This is attention for a model of others.",
    ),
    Turn(
        r"\b[Gg]o(?:es)? on running\b",
        "from “läuft weiter”",
        "keeps running, runs on",
        "It gets nothing and goes on running.",
    ),
    Turn(
        START + r"In (?:checked|fast) mode (?:runs?|is|are|does|do)\b",
        "the subject comes before the verb",
        "In checked mode the kernel runs …",
        "In checked mode runs the same kernel.",
    ),
    Turn(
        r"[,(] ?also (?:when|if|those|where|inside)\b",
        "from “auch wenn”",
        "even when, even if; including those",
        "It gives the key back, also when an error is raised.",
    ),
    Turn(
        r"\bsome (?:hundreds|thousands|seconds|minutes|hours|gigabytes|megabytes)\b"
        r"(?! later| ago)",
        "from “einige Minuten”",
        "a few, several, hundreds of",
        "It takes some minutes.",
    ),
    Turn(
        r"\b(?:each|every) \w+ for itself\b",
        "from “für sich”",
        "by itself, separately",
        "It reads each number for itself.",
    ),
    Turn(
        r"\b[Ii]t is not so\.",
        "from “so ist es nicht”",
        "That is not the case; or say what is",
        "It is not so. Take one row.",
    ),
    Turn(
        r"\bcan as well (?!as\b)|\bdifferently often\b",
        "from “kann ebenso gut” and “verschieden oft”",
        "can just as well; a different number of times",
        "One can as well write first.",
    ),
]

NOUNLESS = [
    Turn(
        r"^What (?![^.:]*\?)",
        "“what” takes the place of a noun",
        "the noun: the result of a call, the files that a kernel includes",
        "What became of a run.",
    ),
    Turn(
        r"^(?:Those|Ours|Theirs)\b",
        "the noun is left to be guessed",
        "the noun: the processes of runs, our answer",
        "Ours do not import the main module.",
    ),
    Turn(
        r"^(?:Calls|Runs|Ends|Keeps|Takes|Makes|Gives|Copies|Removes|Deletes|Compiles) what\b",
        "“what” takes the place of a noun",
        "the noun: the function, the packages, the cached block",
        "Calls what may take all memory but the reserve.",
    ),
    Turn(
        START + r"[Oo]f what (?:is|are|was|were|can|cannot|has|have|may|does)\b[^.;]*,",
        "the sentence begins with a noun that is not there",
        "the noun first: if a launch is refused, the launcher's result",
        "The output; of what cannot be launched, what the launcher returned.",
    ),
    Turn(
        r"\b(?:for|by|with|to) what (?:comes|follows|goes) (?:after|before|next)\b",
        "“what” takes the place of a noun",
        "the noun: the code after the call, the next token",
        "It is there for what comes after it.",
    ),
    Turn(
        r"(?<!instead )\bof (?:its|their|your|our) own"
        r"(?=[.,;:)]|$"
        r"| (?:and|that|which|in|with|for|so|or|to|on|is|are|because|as|when|if)\b)",
        "goes the long way round the noun",
        "its own …, a separate …",
        "It runs in a process of its own.",
    ),
    Turn(
        r"\bthe one\b[^.;]*\bthe other(?=[.,;]|$)",
        "two nouns are left to be guessed",
        "both nouns: the source changes the notebook",
        "A change of the one changes the other.",
    ),
]


def prose(path) -> list[str]:
    """The paragraphs of a page, each in one line, without code, formulas and pictures."""
    if path.suffix == ".md":
        text = path.read_text(encoding="utf-8")
    else:
        cells = read_lesson(path).cells
        text = "\n\n".join(cell.source for cell in cells if cell.kind == "markdown")
    paragraphs = NEW_PARAGRAPH.split(NOT_PROSE.sub("…", text))
    lines = (" ".join(paragraph.replace("*", "").split()) for paragraph in paragraphs)
    return [line for line in lines if line]


def comments(path) -> list[str]:
    """The docstrings and comments of a file; comments on lines below each other are one
    text.
    """
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        nodes = [
            node
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
        ]
        texts = [ast.get_docstring(node) or "" for node in nodes]
        found = [
            (token.start[0], token.string.lstrip("# "), token.line.strip().startswith("#"))
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        ]
    else:
        texts = []
        found = [
            (number, match[2], not match[1].strip())
            for number, line in enumerate(source.split("\n"))
            if (match := re.match(r"(.*?)// ?(.*)", line))
        ]
    last = None
    for number, words, is_alone in found:
        if is_alone and last == number - 1:
            texts[-1] += f"\n{words}"
        else:
            texts.append(words)
        last = number if is_alone else None
    return [
        " ".join(part.split())
        for text in texts
        for part in NEW_PARAGRAPH.split(NOT_PROSE.sub("…", text))
        if part
    ]


def turns_in(*paragraphs: str, turns: list[Turn] = TURNS) -> list[str]:
    """For each turn in paragraphs: its words, why it is wrong, a better text, its place."""
    return [
        f"{match[0]!r}: {turn.why}. Write: {turn.instead}.\n    in: {paragraph}"
        for paragraph in paragraphs
        for turn in turns
        for match in re.finditer(turn.pattern, paragraph)
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_has_none_of_the_turns(path):
    paragraphs = prose(path)
    assert paragraphs
    found = turns_in(*paragraphs)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("exercise", every_exercise(), ids=lambda exercise: exercise.id)
def test_what_a_check_says_has_none_of_the_turns(exercise):
    messages = [mistake.message for mistake in exercise.mistakes] + [*exercise.hints]
    found = turns_in(*(NOT_PROSE.sub("…", message) for message in messages))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("room", ROOMS)
def test_comments_and_docstrings_have_none_of_the_turns(room):
    found = []
    for path in sorted((ROOT / room).rglob("*")):
        # tests/banks has answers and kernels as other people would write them
        if path.suffix not in CODE or path.is_relative_to(ROOT / "tests/banks"):
            continue
        place = path.relative_to(ROOT).as_posix()
        turns = [*TURNS, *NOUNLESS] if NAMES_NOUNS.match(place) else TURNS
        found += [f"{place}: {each}" for each in turns_in(*comments(path), turns=turns)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("turn", [*TURNS, *NOUNLESS], ids=lambda turn: turn.example)
def test_each_pattern_finds_its_example(turn):
    assert re.search(turn.pattern, turn.example)
