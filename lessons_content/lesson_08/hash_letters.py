"""Hashes as letters, equal ones with the same letter, for 8.5."""

import operator
import string
from collections.abc import Hashable

from lessons_content.exercises.kit import Text, counted, listed

MANY = 1_500  # blocks, among which hashes of one or two bytes cannot all be different
# bytes of a hash: with fewer, blocks that differ get the same one where a server has millions
# of them
ENOUGH = 8
# LONG blocks of WIDE tokens, each of 17 bits: nothing that is made of them and fits in
# fewer bytes than ENOUGH can tell them all apart.
LONG, WIDE = 32, 16


def observe(answer, case):
    block_size, calls = case
    results = []
    for call in calls:
        tokens = list(call.tokens)
        more = [results[call.after[0]][call.after[1]]] if call.after else []
        result = answer(tokens, block_size, *more)
        if not isinstance(result, list | tuple):
            return Text(f"{type(result).__name__} instead of a list")
        if call is calls[0] and _goes_on(answer, result, list(call.tokens), block_size):
            return Text("a list that grows with the next call")
        if any(hasattr(value, "hexdigest") for value in result):
            return Text("a list of objects that could go on hashing")
        for value in result:
            if not isinstance(value, Hashable):
                return Text(f"a list of {type(value).__name__}, which cannot be looked up")
        if tokens != list(call.tokens):
            return Text(f"the list of tokens was changed to {tokens}")
        results.append(list(result))
    if len(calls) == MANY:  # which ones are mixed up is left to chance
        hashes = [value for result in results for value in result]
        how_many = "all" if len(set(hashes)) == len(hashes) else "not all"
        kinds = listed(sorted({type(value).__name__ for value in hashes}))
        return Text(f"{len(hashes):,} hashes, {how_many} different, of the type {kinds}")
    if len(calls[0].tokens) == LONG * WIDE:
        return Text(f"{len(results[0])} hashes, {_room(results[0])}")
    letters = {}
    return tuple(
        tuple(letters.setdefault(value, _letter(len(letters))) for value in result)
        for result in results
    )


def _goes_on(answer, result, tokens, block_size) -> bool:
    """Whether each call returns the same list, which grows, or holds too much already."""
    num_hashes = min(len(result), len(tokens) // block_size)
    return answer(tokens, block_size) is result and len(result) > num_hashes


def _room(hashes) -> str:
    """How large they are. Small numbers may be places in a table, which mixes nothing up."""
    sizes = {len(value) for value in hashes if isinstance(value, bytes)}
    if hashes and all(hasattr(value, "__index__") for value in hashes):
        most = max(abs(operator.index(value)) for value in hashes)
        sizes = {(most.bit_length() + 7) // 8} if most >= 2**20 else set()
    elif hashes and all(_is_hexadecimal(value) for value in hashes):
        sizes = {len(value) // 2 for value in hashes}
    most = max(sizes, default=ENOUGH)
    return f"of {counted(most, 'byte')}" if most < ENOUGH else f"of {ENOUGH} bytes or more"


def _is_hexadecimal(value) -> bool:
    return isinstance(value, str) and set(value) <= set(string.hexdigits)


def _letter(number: int) -> str:
    """A to Z, then A2 to Z2, and so on."""
    more = str(number // 26 + 1) if number >= 26 else ""
    return string.ascii_uppercase[number % 26] + more


def describe(case):
    block_size, calls = case
    if len(calls) == MANY:
        first, last = (list(call.tokens) for call in (calls[0], calls[-1]))
        return f"block_hashes({first}, 1), and so on to block_hashes({last}, 1)"
    texts = []
    for call in calls:
        tokens, after = ", ".join(map(str, call.tokens)), ""
        if len(call.tokens) > 8:
            tokens = f"{call.tokens[0]}, …, {call.tokens[-1]}"
        if call.after:
            after = f", hash {call.after[1] + 1} of call {call.after[0] + 1}"
        texts.append(f"block_hashes([{tokens}], {block_size}{after})")
    return ", then ".join(texts)


def show(expected, actual):
    if isinstance(actual, Text):
        return expected if isinstance(expected, Text) else _letters(expected), actual
    if len(actual) == 1 and len(expected[0]) != len(actual[0]):
        numbers = [len(hashes) for (hashes,) in (expected, actual)]
        return tuple("1 hash" if number == 1 else f"{number} hashes" for number in numbers)
    return _letters(expected), _letters(actual)


def _letters(result):
    calls = [" ".join(hashes) or "none" for hashes in result]
    if len(calls) > 1:
        calls = [f"call {number}: {hashes}" for number, hashes in enumerate(calls, 1)]
    return f"{'; '.join(calls)} (equal letters are equal hashes)"
