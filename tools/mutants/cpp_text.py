"""The mutants of a C++ or CUDA text, made by rules over its tokens.

A mutant that does not compile does not count. The rules rely on the course's C++ style: an
operator between two values has a space on each side, the bracket of a template has none.
"""

import re
from collections.abc import Iterator

from .mutant import Mutant, replaced

_TOKEN = re.compile(
    r"""
    (?P<skip>
        //[^\n]* | /\*.*?\*/
      | ^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*  # a directive, with its continued lines
      | R"\(.*?\)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'
    )
  | (?P<number> (?:0[xX][0-9a-fA-F']+ | \d[\d']*) (?:\.\d*)? (?:[eE][-+]?\d+)? [a-zA-Z]* )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<sign>
        <<= | >>= | \.\.\. | [-+*/%&|^=!<>]= | << | >> | && | \|\| | \+\+ | -- | -> | ::
      | \S
    )
""",
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_BETWEEN = {
    "==": "!=",
    "!=": "==",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "%": "*",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
    "^": "&",
    "&&": "||",
    "||": "&&",
    "+=": "-=",
    "-=": "+=",
    "*=": "/=",
    "|=": "&=",
    "&=": "|=",
    "^=": "&=",
}
_ANYWHERE = {
    "++": "--",
    "--": "++",
    "true": "false",
    "false": "true",
    "break": "continue",
    "continue": "break",
}
_HEADS = ("if", "while", "for", "switch")
# Words that begin a declaration, or a statement whose removal no test could notice.
_KEPT = {
    "return",
    "const",
    "constexpr",
    "auto",
    "static",
    "using",
    "typedef",
    "struct",
    "class",
    "enum",
    "template",
    "extern",
    "inline",
    "namespace",
    "friend",
    "case",
    "default",
    "do",
    "goto",
    "thread_local",
    "break",
    "continue",
}


def cpp_mutants(path: str, source: str) -> list[Mutant]:
    """One mutant for each small change, in the order of the text."""
    tokens = [match for match in _TOKEN.finditer(source) if match.lastgroup != "skip"]
    functions = _functions(tokens)
    changes = [
        *_changed_tokens(source, tokens),
        *_negated_conditions(tokens),
        *_removed_statements(source, tokens, functions),
    ]
    return [
        replaced(path, source, functions[place], start, end, words)
        for place, start, end, words in sorted(changes, key=lambda change: change[1])
    ]


def _changed_tokens(
    source: str, tokens: list[re.Match]
) -> Iterator[tuple[int, int, int, str]]:
    for place, token in enumerate(tokens):
        word = token[0]
        start = token.start()
        end = token.end()
        if (
            word in _BETWEEN
            and source[start - 1].isspace()
            and source[end : end + 1].isspace()
        ):
            yield place, start, end, _BETWEEN[word]
        elif word in _ANYWHERE:
            yield place, start, end, _ANYWHERE[word]
        elif word == "!":
            yield place, start, end, ""
        elif token.lastgroup == "number" and (
            number := re.fullmatch(r"(0[xX][\da-fA-F']+|[\d']+)([uUlL]*)", word)
        ):
            value = int(number[1].replace("'", ""), 0 if number[1][:2] in ("0x", "0X") else 10)
            yield place, start, end, f"{value + 1}{number[2]}"
            if value:
                yield place, start, end, f"{value - 1}{number[2]}"


def _negated_conditions(tokens: list[re.Match]) -> Iterator[tuple[int, int, int, str]]:
    """`if (there)` becomes `if (!(there))`.

    Conditions with a comparison or a `!` have other mutants.
    """
    for place, token in enumerate(tokens[:-1]):
        if token[0] in ("if", "while") and tokens[place + 1][0] == "(":
            close = _closing(tokens, place + 1)
            if not {"==", "!=", "<", "<=", ">", ">=", "!", "=", "&&", "||"} & {
                other[0] for other in tokens[place + 2 : close]
            }:
                start, end = tokens[place + 1].start(), tokens[close].end()
                inside = token.string[start:end]
                yield place, start, end, f"(!{inside})"


def _removed_statements(source, tokens, functions) -> Iterator[tuple[int, int, int, str]]:
    first, depth = 0, 0
    for place, token in enumerate(tokens):
        depth += (token[0] in "([") - (token[0] in ")]")
        if token[0] == ";" and depth == 0:
            begin = _past_heads(tokens, first, place)
            if (
                functions[place]
                and begin < place
                and _can_go([other[0] for other in tokens[begin:place]])
            ):
                yield place, tokens[begin].start(), token.start(), ""
        if token[0] in ";{}" and depth == 0:
            first = place + 1


def _past_heads(tokens: list[re.Match], first: int, last: int) -> int:
    """The position after `else`, `if (…)`, `for (…)` and `while (…)`."""
    while first < last:
        if tokens[first][0] == "else":
            first += 1
        elif tokens[first][0] in _HEADS and tokens[first + 1][0] in ("(", "constexpr"):
            first = _closing(tokens, first + 1 + (tokens[first + 1][0] == "constexpr")) + 1
        else:
            break
    return first


def _can_go(words: list[str]) -> bool:
    if words == ["return"]:
        return True
    return words[0] not in _KEPT and not re.match(
        r"(?:\w+ (?::: )?)+(?:< .* > )?(?:[*&] )*\w+ (?:[=;,({[]|$)", _spaced(words)
    )


def _spaced(words: list[str]) -> str:
    """The words with spaces: `a . b ( c )` has no two names in a row, but `int a = b` has."""
    return " ".join(words) + " "


def _closing(tokens: list[re.Match], opening: int) -> int:
    depth = 0
    for place in range(opening, len(tokens)):
        depth += (tokens[place][0] == "(") - (tokens[place][0] == ")")
        if not depth:
            return place
    return len(tokens) - 1


def _functions(tokens: list[re.Match]) -> list[str]:
    """The function around each token, or "".

    It is the name before the parentheses of the outermost head that has any.
    """
    names = []
    open_names = []
    first = 0
    for place, token in enumerate(tokens):
        if token[0] == "{":
            open_names.append(_name_of([other[0] for other in tokens[first:place]]))
        names.append(next(filter(None, open_names), ""))
        if token[0] == "}" and open_names:
            open_names.pop()
        if token[0] in ";{}":
            first = place + 1
    return names


def _name_of(head: list[str]) -> str:
    if (
        "(" not in head
        or head[0] in ("struct", "class", "namespace", "union", "enum")
        or "=" in head[: head.index("(")]
    ):
        return ""
    name = re.search(
        r"(?:\w+ :: )*(?:operator \S+|~? ?\w+) $", _spaced(head[: head.index("(")])
    )
    return name[0].replace(" ", "") if name and name[0].strip() not in _HEADS else ""
