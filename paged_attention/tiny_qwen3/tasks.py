"""The four tasks of the small model.

A token is one character; each prompt has one right answer.
"""

import numpy as np

PAD, END = "_", "$"
CHARACTERS = PAD + END + "KCVS?>." + "abcdefghijklmnopqrstuvwxyz" + "0123456789"
TOKEN_OF = {character: token for token, character in enumerate(CHARACTERS)}
LETTERS, DIGITS = list("abcdefghijklmnopqrstuvwxyz"), list("0123456789")
MOST_FILLERS = 230


def encode(text: str) -> list[int]:
    """The token ids of a text.

    Raises ValueError for a character that the model does not know.
    """
    unknown = sorted(set(text) - set(CHARACTERS))
    if unknown:
        raise ValueError(
            f"the model knows the characters {CHARACTERS!r}, and not {''.join(unknown)!r}"
        )
    return [TOKEN_OF[character] for character in text]


def decode(tokens: list[int]) -> str:
    """The text of token ids. Raises IndexError for a token beyond the alphabet."""
    return "".join(CHARACTERS[token] for token in tokens)


def recall(
    random: np.random.Generator, size: float, fillers: int | None = None
) -> tuple[str, str]:
    """`Ka17..q42...z93?zq>` asks for `z93q42`.

    The prompt is long, with pairs far apart. Some of them are asked for at the end.

    fillers: the number of dots between the pairs; None draws it.
    """
    num_pairs = 2 + round(22 * size)
    num_wanted = min(num_pairs, 1 + round(7 * size))
    if fillers is None:
        fillers = int(random.integers(0, 1 + round(MOST_FILLERS * size)))
    keys = random.permutation(LETTERS)[:num_pairs]
    values = ["".join(random.choice(DIGITS, 2)) for _ in keys]
    gaps = np.bincount(random.integers(0, num_pairs, fillers), minlength=num_pairs)
    wanted = random.permutation(num_pairs)[:num_wanted]
    pairs = "".join(
        "." * gap + key + value for gap, key, value in zip(gaps, keys, values, strict=True)
    )
    return f"K{pairs}?{''.join(keys[wanted])}>", "".join(
        keys[index] + values[index] for index in wanted
    )


def copy(random: np.random.Generator, size: float) -> tuple[str, str]:
    """`Cq7b>` asks for `q7b`."""
    text = _distinct_symbols(random, size)
    return f"C{text}>", text


def reverse(random: np.random.Generator, size: float) -> tuple[str, str]:
    """`Vq7b>` asks for `b7q`."""
    text = _distinct_symbols(random, size)
    return f"V{text}>", text[::-1]


def sort(random: np.random.Generator, size: float) -> tuple[str, str]:
    """`Sqxb>` asks for `bqx`."""
    letters = random.permutation(LETTERS)[: 2 + round(22 * size)]
    return f"S{''.join(letters)}>", "".join(sorted(letters))


def _distinct_symbols(random: np.random.Generator, size: float) -> str:
    """Draws symbols, none of them twice.

    So the model must look for a symbol's neighbour, and cannot count instead.
    """
    return "".join(random.permutation(LETTERS + DIGITS)[: 2 + round(34 * size)])


TASKS = {"recall": recall, "copy": copy, "reverse": reverse, "sort": sort}
