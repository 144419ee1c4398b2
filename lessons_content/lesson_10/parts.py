"""Requests in the step that the device computes, for 10.6 and 10.7."""

from dataclasses import dataclass

from paged_attention.engine.request import Request, SamplingParams


@dataclass(frozen=True)
class Part:
    """A request when a step is launched, and its part in the step.

    prompt, own: how many tokens its prompt has, and how many it has generated.
    computed: how many of them the steps before have computed.
    num_tokens: how many this step computes.
    most: its max_new_tokens.
    """

    prompt: int
    own: int
    computed: int
    num_tokens: int
    most: int = 9
    ignore_end: bool = False

    def request(self, number: int, kind: type[Request] = Request) -> Request:
        """Its tokens are number * 10, number * 10 + 1, …"""
        tokens = [10 * number + place for place in range(self.prompt + self.own)]
        params = SamplingParams(max_new_tokens=self.most, ignore_end=self.ignore_end)
        request = kind("ABCDEF"[number], tokens[: self.prompt], params)
        request.tokens += tokens[self.prompt :]
        request.num_computed = self.computed
        return request

    def in_words(self, number: int) -> str:
        own = f" and {self.own} of its own" if self.own else ""
        ignore = ", ignore_end" if self.ignore_end else ""
        return (
            f"{'ABCDEF'[number]} (prompt of {self.prompt}{own}, {self.computed} computed, "
            f"max_new_tokens={self.most}{ignore}) computes {self.num_tokens}"
        )


def decode(prompt: int, own: int, most: int = 9, ignore_end: bool = False) -> Part:
    """All but the last token are computed."""
    return Part(prompt, own, prompt + own - 1, 1, most, ignore_end)


def chunk(prompt: int, computed: int, num_tokens: int, most: int = 9) -> Part:
    """A part of a prompt, or all of it."""
    return Part(prompt, 0, computed, num_tokens, most)


def again(prompt: int, own: int, computed: int, num_tokens: int, most: int = 9) -> Part:
    """It was preempted, and computes its prompt and its own tokens again."""
    return Part(prompt, own, computed, num_tokens, most)


def random_part(chance) -> Part:
    """chance: a random.Random."""
    prompt, own = chance.randint(1, 7), chance.choice((0, 0, 1, 2, 4))
    computed = chance.randrange(prompt + own)
    if own and chance.random() < 0.5:
        computed = prompt + own - 1
    left = prompt + own - computed
    num_tokens = chance.choice((left, left, chance.randint(1, left)))
    most = own + chance.choice((1, 1, 2, 2, 3, 8))
    return Part(prompt, own, computed, num_tokens, most, chance.random() < 0.3)


def in_words(parts: tuple[Part, ...]) -> str:
    each = [part.in_words(number) for number, part in enumerate(parts)]
    return "; ".join(each) or "an empty list"


def size(parts: tuple[Part, ...]) -> tuple[int, int, int]:
    """Requests, their tokens, and how many of these they compute."""
    tokens = sum(part.prompt + part.own for part in parts)
    return len(parts), tokens, sum(part.num_tokens for part in parts)
