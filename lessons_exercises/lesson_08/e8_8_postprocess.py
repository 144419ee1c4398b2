"""Exercise 8.8: after the model has run."""

import random
from dataclasses import dataclass

import torch

from lessons_exercises.mistakes import Bank
from lessons_lib.checks import Exercise, Text
from paged_attention.engine.engine import Engine
from paged_attention.engine.prefix_cache import PrefixCache
from paged_attention.engine.request import Request, SamplingParams
from paged_attention.engine.scheduler import Scheduler
from paged_attention.kv_cache import PagedAttentionManager

VOCAB_SIZE, END, OTHER_END = 16, 1, 13
NUM_BLOCKS, BLOCK_SIZE = 16, 4
COLD = 0.01  # a temperature at which the likeliest token comes
# the likeliest token of a row that is of no use: that of a chunk in the middle of a prompt
UNASKED = 15


@dataclass(frozen=True)
class Case:
    """prompts: their lengths.

    steps: in each, (number of the request, tokens that it computes, the model's next token).

    generated: tokens that a request has of its own, from before it was preempted; they are
        computed again.
    """

    prompts: tuple[int, ...]
    steps: tuple[tuple[tuple[int, int, int], ...], ...]
    max_new_tokens: tuple[int, ...] = (9, 9, 9)
    ignore_end: tuple[int, ...] = ()
    generated: tuple[int, ...] = (0, 0, 0)
    end_tokens: tuple[int, ...] = (END,)
    drawn: bool = False  # at a high temperature from even logits, so that any token may come
    # these at so low a temperature that the likeliest comes, and is drawn all the same
    cold: tuple[int, ...] = ()
    end_in_prompt: bool = False  # each prompt begins with END


class OtherReason(Text):
    """A reason that is neither of the two; whichever it is, it is the same mistake."""

    def __eq__(self, other):
        return isinstance(other, OtherReason)

    def __ne__(self, other):
        return not self == other

    __hash__ = Text.__hash__


class BareEngine(Engine):
    """An engine without a model."""

    def __init__(self, end_tokens):
        self.manager = PagedAttentionManager(
            NUM_BLOCKS, BLOCK_SIZE, 1, 2, max_num_seqs=4, max_blocks_per_seq=16
        )
        self.prefix_cache = PrefixCache(self.manager, enabled=False)
        self.scheduler = Scheduler(
            self.manager, self.prefix_cache, token_budget=64, max_num_seqs=4
        )
        self.vocab_size = VOCAB_SIZE
        self.end_tokens = frozenset(end_tokens)
        self.history = None
        self.requests = {}

    def watch_samples(self, logits):
        """From now on self.sample tells whether it gets rows of these.

        A constant added to a row changes nothing.
        """
        rows = logits.double().log_softmax(-1)
        self.rows_given = Text("as they came")

        def sample(row, params, generator):
            given = (
                row.double().log_softmax(-1)
                if isinstance(row, torch.Tensor) and row.is_floating_point()
                else None
            )
            if (
                given is not None
                and given.shape == rows[0].shape
                and not (given - rows).abs().amax(1).lt(1e-3).any()
            ):
                is_softmax = bool((row >= 0).all()) and abs(float(row.sum()) - 1) < 1e-3
                self.rows_given = Text("probabilities" if is_softmax else "other numbers")
            return Engine.sample(row, params, generator)

        # the name that a learner reads where it gets too few arguments
        sample.__qualname__ = "sample"
        self.sample = sample


BareEngine.__name__ = "Engine"  # as messages name it


CASES = [
    Case((3,), (((0, 3, 7),),)),
    Case((5,), (((0, 3, UNASKED),),)),
    Case((5,), (((0, 3, UNASKED),), ((0, 2, 6),))),
    Case((3,), (((0, 3, 7),), ((0, 1, 8),), ((0, 1, 9),))),
    Case((3, 4), (((0, 3, 7), (1, 4, 8)),)),
    Case((3,), (((0, 3, END),),)),
    Case((3,), (((0, 3, 7),), ((0, 1, END),))),
    Case((3,), (((0, 3, END),), ((0, 1, 6),)), ignore_end=(0,)),
    Case(
        (2,),
        tuple(((0, 2 if step == 0 else 1, 4),) for step in range(24)),
        (30, 9, 9),
        drawn=True,
    ),
    Case((5,), (((0, 3, UNASKED),), ((0, 2, 6),)), cold=(0,)),
    Case((3, 4), (((0, 3, 7), (1, 4, 8)),), cold=(0, 1)),
    Case((3, 4), (((0, 3, 7), (1, 4, 8)),), cold=(0,)),
    Case((3, 4), (((0, 3, 7), (1, 4, 8)),), cold=(1,)),
    Case((3,), (((0, 3, 7),),), (1, 9, 9)),
    Case((3,), (((0, 3, 7),), ((0, 1, 8),)), (2, 9, 9)),
    Case((2,), (((0, 2, 7),), ((0, 1, 8),), ((0, 1, 9),)), (3, 9, 9)),
    Case((6,), (((0, 6, 7),),), (4, 9, 9)),
    Case((3,), (((0, 3, 5),), ((0, 1, END),)), (2, 9, 9)),
    Case((3,), (((0, 3, END),), ((0, 1, END),)), (2, 9, 9), ignore_end=(0,)),
    Case((4,), (((0, 3, UNASKED),), ((0, 1, 6),))),
    Case((4,), (((0, 1, UNASKED),), ((0, 3, 6),))),
    Case((2,), (((0, 3, UNASKED),), ((0, 2, 7),)), generated=(3, 0, 0)),
    Case((3,), (((0, 4, UNASKED),), ((0, 1, 7),)), (3, 9, 9), generated=(2, 0, 0)),
    Case((3,), (((0, 3, OTHER_END),),), end_tokens=(END, OTHER_END)),
    Case((3,), (((0, 3, END),),), end_tokens=(END, OTHER_END)),
    Case((3,), (((0, 3, 0),),), end_tokens=(0,)),
    Case((3,), (((0, 3, END),), ((0, 1, 6),)), end_tokens=()),
    Case((6, 3), (((0, 4, UNASKED), (1, 3, 9)), ((0, 2, 5), (1, 1, 8)))),
    Case((3, 2), (((0, 3, 5), (1, 2, 6)),), (1, 9, 9)),
    Case(
        (2, 8, 3),
        (
            ((0, 2, 4), (1, 3, UNASKED), (2, 3, 6)),
            ((0, 1, END), (1, 3, UNASKED), (2, 1, 7)),
            ((1, 2, 3), (2, 1, END)),
            ((1, 1, 2),),
        ),
        (9, 2, 9),
    ),
    Case(
        (3, 2, 4),
        (((0, 3, END), (1, 2, END), (2, 4, 5)), ((1, 1, 6), (2, 1, END))),
        ignore_end=(1,),
    ),
    Case((3,), (((0, 3, 5),), ((0, 1, 6),)), end_in_prompt=True),
]


def hidden(seed):
    """Up to three requests, in steps until some of them end.

    Each computes a part or all of its tokens in every step.
    """
    chance = random.Random(seed)
    for number in range(16):
        prompts = [chance.randint(2, 7) for _ in range(1 + number // 4 % 3)]
        own, limits = (chance.choices(those, k=3) for those in ((0, 0, 0, 2, 3), range(4, 7)))
        ignore_end = tuple(chance.sample(range(3), number % 2))
        ends = chance.choice(((END,), (END, OTHER_END), ()))
        left = [prompt + more for prompt, more in zip(prompts, own, strict=False)]
        steps = []
        num_new = list(own)
        while len(steps) < 4 and any(left):
            step = []
            for index in filter(left.__getitem__, range(len(prompts))):
                num_tokens = chance.choice(
                    (left[index], left[index], chance.randint(1, left[index]))
                )
                token = (
                    chance.choice((*range(2, 13), END, END, OTHER_END))
                    if num_tokens == left[index]
                    else UNASKED
                )
                step.append((index, num_tokens, token))
                left[index] -= num_tokens
                if not left[index]:
                    num_new[index] += 1
                    ended = (
                        num_new[index] == limits[index]
                        or token in ends
                        and index not in ignore_end
                    )
                    left[index] = 0 if ended else 1
            steps.append(tuple(step))
        cold = tuple(sorted(chance.sample(range(3), number % 3)))
        yield Case(
            tuple(prompts),
            tuple(steps),
            tuple(limits),
            ignore_end,
            tuple(own),
            ends,
            cold=cold,
            end_in_prompt=number % 5 == 4,
        )
    length, token = chance.randint(3, 6), chance.randint(2, 12)
    yield Case(
        (length,), (((0, length, token),), *[((0, 1, token),)] * 23), (30, 9, 9), drawn=True
    )


def observe(answer, case):
    engine = BareEngine(case.end_tokens)
    requests = [_add(engine, case, number) for number in range(len(case.prompts))]
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
        before = [request.generator.get_state() for request in requests]
        logits = _logits(case, step)
        engine.watch_samples(logits)
        result = answer(engine, scheduled, logits)
        if engine.rows_given != "as they came":
            seen["the logits that self.sample got"] = engine.rows_given
        if case.drawn:
            continue
        if scheduled != as_it_came:
            seen[f"after step {number}, the list `scheduled`"] = Text("changed")
        seen |= {
            f"after step {number}, {part}": value
            for part, value in _state(engine, requests, result).items()
        }
        seen[f"in step {number}, drawn with the generator of"] = [
            request.id
            for request, given in zip(requests, before, strict=True)
            if not torch.equal(given, request.generator.get_state())
        ]
    if case.drawn:
        drawn = set(_plain(requests[0].output))
        likeliest = {case.steps[0][0][2]}
        seen["its output"] = Text(
            "many different tokens"
            if len(drawn) > 3
            else f"{'the likeliest' if drawn == likeliest else 'one'} token again and again"
        )
    return seen


def _add(engine, case, number):
    params = SamplingParams(
        case.max_new_tokens[number],
        temperature=50.0 if case.drawn else COLD if number in case.cold else 0.0,
        ignore_end=case.drawn or number in case.ignore_end,
    )
    prompt = [2 + number] * case.prompts[number]
    if case.end_in_prompt:
        prompt[0] = END
    request = Request("ABC"[number], prompt, params)
    request.tokens += [6] * case.generated[number]
    engine.requests[request.id] = request
    engine.manager.start(request.id, 0, [])
    engine.scheduler.running.append(request)
    return request


def _logits(case, step):
    logits = torch.linspace(-1.0, 0.0, VOCAB_SIZE).repeat(len(step), 1)
    for row, (_, _, token) in zip(logits, step, strict=True):
        row[token] = 3.0
    return logits


def _state(engine, requests, result):
    manager = engine.manager
    return {
        "returned": _pairs(result),
        "outputs": {request.id: _plain(request.output) for request in requests},
        "prompts": {request.id: _plain(request.prompt) for request in requests},
        "why it ended": {
            request.id: _reason(request) for request in requests if request.reason is not None
        },
        "running": [request.id for request in engine.scheduler.running],
        "waiting": [request.id for request in engine.scheduler.waiting],
        "in engine.requests": list(engine.requests),
        "num_computed": {
            request.id: request.num_computed for request in engine.scheduler.running
        },
        "free blocks": manager.block_manager.get_num_free_blocks(),
    }


def _pairs(result):
    if not isinstance(result, list | tuple):
        return Text(f"{type(result).__name__} instead of a list")
    if not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], Request)
        for pair in result
    ):
        return Text(f"a list of {type(result[0]).__name__} instead of (request, token)")
    return [(request.id, _plain([token])[0]) for request, token in result]


def _plain(tokens):
    return [int(token) if hasattr(token, "__index__") else Text(token) for token in tokens]


def _reason(request):
    """Where both reasons hold, either is right."""
    params = request.params
    both = (
        request.tokens[-1] in (END, OTHER_END)
        and len(request.output) == params.max_new_tokens
        and not params.ignore_end
    )
    if request.reason not in ("end", "length"):
        return OtherReason(request.reason)
    return Text("end or length") if both else Text(request.reason)


def describe(case):
    names = "ABC"[: len(case.prompts)]
    those = []
    for number, name in enumerate(names):
        ignores = ", ignore_end" if number in case.ignore_end else ""
        limit = case.max_new_tokens[number]
        ignores += f", temperature={COLD}" if number in case.cold else ""
        own = (
            f" and {case.generated[number]} of its own from before it was preempted"
            if case.generated[number]
            else ""
        )
        begins = f" that begins with {END}" if case.end_in_prompt else ""
        those.append(
            f"{name} (prompt of {case.prompts[number]}{begins}{own}, "
            f"max_new_tokens={limit}{ignores})"
        )
    if case.drawn:
        return (
            f"{those[0][:-1]}, temperature=50), {len(case.steps)} steps with the same logits"
        )
    steps = [
        " and ".join(
            f"{names[index]} computes {num_tokens}, next token {token}"
            for index, num_tokens, token in step
        )
        for step in case.steps
    ]
    numbered = "; ".join(f"step {number}: {step}" for number, step in enumerate(steps, 1))
    ends = "end token" if len(case.end_tokens) == 1 else "end tokens"
    return (
        f"{ends} {', '.join(map(str, case.end_tokens)) or 'none'}; {', '.join(those)}; "
        f"{numbered}"
    )


def show(expected, actual):
    if not isinstance(actual, dict):
        return "no error", str(actual)
    for part, ours in expected.items():
        if part not in actual:
            last = list(actual)[-1]
            return f"{part}: {ours}", f"{last}: {actual[last]}"
        if ours != actual[part]:
            return f"{part}: {ours}", f"{part}: {actual[part]}"
    return repr(expected), repr(actual)


EXERCISE = Exercise(
    id="8.8",
    title="complete the step",
    answer_name="postprocess",
    reference=Engine.postprocess,
    cases=lambda: CASES,
    size=lambda case: (sum(map(len, case.steps)), sum(case.prompts) + sum(case.generated)),
    hidden=hidden,
    observe=observe,
    describe=describe,
    show=show,
    mistakes=Bank("8.8", "postprocess", __file__, globals()),
    hints=(
        (
            "For each scheduled request, first count: which of its tokens have their keys "
            "and values now? Only then ask whether any are left."
        ),
        (
            "A request whose tokens are all computed gets its next one from its own row: "
            "`self.sample(row, request.params, request.generator)`."
        ),
        (
            "There are two ways to end, and `self._end(request, "
            "reason)` does what both need. At most one of them happens."
        ),
    ),
)
