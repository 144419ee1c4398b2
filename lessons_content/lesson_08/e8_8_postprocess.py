"""Exercise 8.8: complete the step.

For each scheduled request, first count: which of its tokens have their keys and values now?
Only then ask whether any are left.

A request whose tokens are all computed gets its next one from its own row: `self.sample(row,
request.params, position)`. Which place in `request.tokens` will the new token have?

There are two ways to end, and `self._end(request, reason)` does what both need. At most one of
them happens.
"""

from dataclasses import dataclass

import torch

from lessons_content.exercises.kit import Text, differences, exercise
from lessons_content.lesson_08 import bare_engine
from lessons_content.lesson_08.bare_engine import END, OTHER_END, VOCAB_SIZE
from lessons_content.lesson_08.scheduling import Scenario
from paged_attention.engine.engine import Engine
from paged_attention.engine.request import Request, SamplingParams

POOL = Scenario((), num_blocks=16, block_size=4, token_budget=64)
COLD = 0.01  # a temperature at which the likeliest token comes
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


def observe(answer, case):
    engine = bare_engine.SamplingEngine(POOL, case.end_tokens)
    requests = [_add(engine, case, number) for number in range(len(case.prompts))]
    owners = {request.params: request.id for request in requests}
    seen = {}
    for number, step in enumerate(case.steps, 1):
        scheduled = [(requests[index], num_tokens) for index, num_tokens, _ in step]
        as_it_came = list(scheduled)
        try:
            for request, num_tokens in scheduled:
                engine.scheduler.make_room(request, num_tokens)
        except Exception as error:
            seen[f"in step {number}, room for its tokens"] = Text(type(error).__name__)
            break
        logits = _logits(case, step)
        engine.watch_samples(logits, owners)
        result = answer(engine, scheduled, logits)
        if engine.rows_given != "as they came":
            seen["the logits that self.sample got"] = engine.rows_given
        if scheduled != as_it_came:
            seen[f"after step {number}, the list `scheduled`"] = Text("changed")
        for part, value in bare_engine.after_step(engine, requests, result).items():
            seen[f"after step {number}, {part}"] = value
        sampled = "; ".join(sorted(engine.sampled)) or "nothing"
        seen[f"in step {number}, self.sample got"] = Text(sampled)
    return seen


def _add(engine, case, number):
    params = SamplingParams(
        case.max_new_tokens[number],
        temperature=COLD if number in case.cold else 0.0,
        seed=number,  # so that no two have the same params
        ignore_end=number in case.ignore_end,
    )
    prompt = [2 + number] * case.prompts[number]
    if case.end_in_prompt:
        prompt[0] = END
    request = Request("ABC"[number], prompt, params)
    request.tokens += [6] * case.generated[number]
    engine.begin(request)
    return request


def _logits(case, step):
    logits = torch.linspace(-1.0, 0.0, VOCAB_SIZE).repeat(len(step), 1)
    for row, (_, _, token) in zip(logits, step, strict=True):
        row[token] = 3.0
    return logits


def describe(case):
    those = ", ".join(_request_in_words(case, number) for number in range(len(case.prompts)))
    numbered = []
    for number, step in enumerate(case.steps, 1):
        computes = [f"{'ABC'[i]} computes {num}, next token {token}" for i, num, token in step]
        numbered.append(f"step {number}: {' and '.join(computes)}")
    noun = "end token" if len(case.end_tokens) == 1 else "end tokens"
    ends = ", ".join(map(str, case.end_tokens)) or "none"
    return f"{noun} {ends}; {those}; {'; '.join(numbered)}"


def _request_in_words(case, number):
    words = f"{'ABC'[number]} (prompt of {case.prompts[number]}"
    if case.end_in_prompt:
        words += f" that begins with {END}"
    if own := case.generated[number]:
        words += f" and {own} of its own from before it was preempted"
    words += f", max_new_tokens={case.max_new_tokens[number]}"
    if number in case.ignore_end:
        words += ", ignore_end"
    if number in case.cold:
        words += f", temperature={COLD}"
    return f"{words})"


EXERCISE = exercise(
    globals(),
    differences,
    reference=Engine.postprocess,
    size=lambda case: (sum(map(len, case.steps)), sum(case.prompts) + sum(case.generated)),
)
