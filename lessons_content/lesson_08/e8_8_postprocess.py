"""Exercise 8.8: complete the step.

For each scheduled request, first count: which of its tokens have their keys and values now?
Only then ask whether any are left.

A request whose tokens are all computed gets its next one from its own row: `self.sample(row,
request.params, position)`. Which place in `request.tokens` will the new token have?

There are two ways to end, and `self._end(request, reason)` does what both need. At most one of
them happens.
"""

from dataclasses import dataclass

from lessons_content.exercises.kit import differences, exercise
from lessons_content.lesson_08 import completed_steps
from lessons_content.lesson_08.completed_steps import END, OTHER_END
from paged_attention.engine.engine import Engine
from paged_attention.engine.request import SamplingParams

# the likeliest token of a row that nobody needs, after a chunk in the middle of a prompt
UNASKED = 15
NAMED = {"end": END, "other_end": OTHER_END, "unasked": UNASKED}


@dataclass(frozen=True)
class Case:
    """prompts: their lengths.

    steps: in each, (number of the request, tokens that it computes, the model's next token).
    generated: how many tokens each has from before it was preempted. They are computed again.
    """

    prompts: tuple[int, ...]
    steps: tuple[tuple[tuple[int, int, int], ...], ...]
    max_new_tokens: tuple[int, ...] = (9, 9, 9)
    ignore_end: tuple[int, ...] = ()
    generated: tuple[int, ...] = (0, 0, 0)
    end_tokens: tuple[int, ...] = (END,)
    # those whose token is drawn, at so low a temperature that it is the likeliest one
    cold: tuple[int, ...] = ()
    end_in_prompt: bool = False  # each prompt begins with END


def steps_of(text):
    """Steps from "A3:7 B2:unasked | A1:end": first A computes 3 tokens, and 7 comes next."""

    def read(entry):
        num_tokens, token = entry[1:].split(":")
        token = NAMED[token] if token in NAMED else int(token)
        return "ABC".index(entry[0]), int(num_tokens), token

    return tuple(tuple(map(read, step.split())) for step in text.split("|"))


LONG = steps_of("A2:4 B3:unasked C3:6 | A1:end B3:unasked C1:7 | B2:3 C1:end | B1:2")
CASES = [
    Case((3,), steps_of("A3:7")),
    Case((5,), steps_of("A3:unasked")),
    Case((5,), steps_of("A3:unasked | A2:6")),
    Case((3,), steps_of("A3:7 | A1:8 | A1:9")),
    Case((3, 4), steps_of("A3:7 B4:8")),
    Case((3,), steps_of("A3:end")),
    Case((3,), steps_of("A3:7 | A1:end")),
    Case((3,), steps_of("A3:end | A1:6"), ignore_end=(0,)),
    Case((5,), steps_of("A3:unasked | A2:6"), cold=(0,)),
    Case((3, 4), steps_of("A3:7 B4:8"), cold=(0, 1)),
    Case((3, 4), steps_of("A3:7 B4:8"), cold=(0,)),
    Case((3, 4), steps_of("A3:7 B4:8"), cold=(1,)),
    Case((3,), steps_of("A3:7"), (1, 9, 9)),
    Case((3,), steps_of("A3:7 | A1:8"), (2, 9, 9)),
    Case((2,), steps_of("A2:7 | A1:8 | A1:9"), (3, 9, 9)),
    Case((6,), steps_of("A6:7"), (4, 9, 9)),
    Case((3,), steps_of("A3:5 | A1:end"), (2, 9, 9)),
    Case((3,), steps_of("A3:end | A1:end"), (2, 9, 9), ignore_end=(0,)),
    Case((4,), steps_of("A3:unasked | A1:6")),
    Case((4,), steps_of("A1:unasked | A3:6")),
    Case((2,), steps_of("A3:unasked | A2:7"), generated=(3, 0, 0)),
    Case((3,), steps_of("A4:unasked | A1:7"), (3, 9, 9), generated=(2, 0, 0)),
    Case((3,), steps_of("A3:other_end"), end_tokens=(END, OTHER_END)),
    Case((3,), steps_of("A3:end"), end_tokens=(END, OTHER_END)),
    Case((3,), steps_of("A3:0"), end_tokens=(0,)),
    Case((3,), steps_of("A3:end | A1:6"), end_tokens=()),
    Case((6, 3), steps_of("A4:unasked B3:9 | A2:5 B1:8")),
    Case((3, 2), steps_of("A3:5 B2:6"), (1, 9, 9)),
    Case((2, 8, 3), LONG, (9, 2, 9)),
    Case((3, 2, 4), steps_of("A3:end B2:end C4:5 | B1:6 C1:end"), ignore_end=(1,)),
    Case((3,), steps_of("A3:5 | A1:6"), end_in_prompt=True),
]


def hidden(chance):
    """Up to three requests, that compute some or all of their tokens in every step."""
    for number in range(16):
        prompts = [chance.randint(2, 7) for _ in range(1 + number // 4 % 3)]
        own, limits = (chance.choices(those, k=3) for those in ((0, 0, 0, 2, 3), range(4, 7)))
        ignore_end = tuple(chance.sample(range(3), number % 2))
        ends = chance.choice(((END,), (END, OTHER_END), ()))
        left = [prompt + more for prompt, more in zip(prompts, own, strict=False)]
        steps, num_new = [], list(own)
        while len(steps) < 4 and any(left):
            step = []
            for index in filter(left.__getitem__, range(len(prompts))):
                some = chance.randint(1, left[index])
                num_tokens = chance.choice((left[index], left[index], some))
                token = UNASKED
                if num_tokens == left[index]:
                    token = chance.choice((*range(2, 13), END, END, OTHER_END))
                step.append((index, num_tokens, token))
                left[index] -= num_tokens
                if not left[index]:
                    num_new[index] += 1
                    is_end = token in ends and index not in ignore_end
                    left[index] = 0 if is_end or num_new[index] == limits[index] else 1
            steps.append(tuple(step))
        cold = tuple(sorted(chance.sample(range(3), number % 3)))
        given = map(tuple, (prompts, steps, limits, ignore_end, own, ends))
        yield Case(*given, cold=cold, end_in_prompt=number % 5 == 4)


EXERCISE = exercise(
    globals(),
    completed_steps,
    differences,
    reference=Engine.postprocess,
    size=lambda case: (sum(map(len, case.steps)), sum(case.prompts) + sum(case.generated)),
)
