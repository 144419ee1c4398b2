"""Exercise 8.8: after the model has run."""

import random
from dataclasses import dataclass

import torch

from lessons_lib.checks import Exercise, Mistake, Text
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


def postprocess_with(
    counts=lambda request, num_tokens: request.num_computed + num_tokens,
    waits=lambda request: request.num_uncomputed,
    append=lambda request, token: request.tokens.append(token),
    ends=lambda engine, request, token: (
        token in engine.end_tokens and not request.params.ignore_end
    ),
    enough=lambda request: len(request.output) == request.params.max_new_tokens,
    end=lambda engine, request, reason: engine._end(request, reason),
    after=lambda request: None,
    row=lambda logits, index, new: logits[index],
    of_new=lambda request, token: (request, token),
    pick=lambda engine, row, request: engine.sample(row, request.params, request.generator),
):
    """postprocess() of ours, with some of its parts replaced."""

    def wrong(self, scheduled, logits):
        new = []
        for index, (request, num_tokens) in enumerate(scheduled):
            request.num_computed = counts(request, num_tokens)
            if waits(request):
                continue
            token = pick(self, row(logits, index, new), request)
            append(request, token)
            after(request)
            new.append(of_new(request, token))
            if ends(self, request, token):
                end(self, request, "end")
            elif enough(request):
                end(self, request, "length")
        return new

    return wrong


def length_first(self, scheduled, logits):
    """Looks at both ways to end, one after the other."""
    new = []
    for (request, num_tokens), row in zip(scheduled, logits, strict=True):
        request.num_computed += num_tokens
        if not request.num_uncomputed:
            token = self.sample(row, request.params, request.generator)
            request.tokens.append(token)
            new.append((request, token))
            if token in self.end_tokens and not request.params.ignore_end:
                self._end(request, "end")
            if len(request.output) == request.params.max_new_tokens:
                self._end(request, "length")
    return new


def only_chunks(self, scheduled, logits):
    """The condition the other way round."""
    new = []
    for (request, num_tokens), row in zip(scheduled, logits, strict=True):
        request.num_computed += num_tokens
        if request.num_uncomputed:
            token = self.sample(row, request.params, request.generator)
            request.tokens.append(token)
            new.append((request, token))
    return new


def only_single_tokens(self, scheduled, logits):
    """Takes every step of more than one token for a chunk."""
    new = []
    for pair, row in zip(scheduled, logits, strict=True):
        if pair[1] > 1:
            pair[0].num_computed += pair[1]
        else:
            new += Engine.postprocess(self, [pair], row[None])
    return new


def single_tokens_always(self, scheduled, logits):
    """As only_single_tokens, and a step of one token gives a token, whatever is left."""
    of_this_step = dict(scheduled)
    return postprocess_with(waits=lambda request: of_this_step[request] > 1)(
        self, scheduled, logits
    )


def waiting_by(waits):
    """postprocess() with waits(request, number of its tokens in this step).

    It is asked when they have been counted.
    """

    def wrong(self, scheduled, logits):
        of_this_step = dict(scheduled)
        return postprocess_with(waits=lambda request: waits(request, of_this_step[request]))(
            self, scheduled, logits
        )

    return wrong


def params_of(which, everywhere=False):
    """Everybody's tokens are drawn with one request's params.

    everywhere: and go by them when they end.
    """

    def wrong(self, scheduled, logits):
        params = scheduled[which][0].params
        others = (
            {
                "ends": (
                    lambda engine, request, token: (
                        token in engine.end_tokens and not params.ignore_end
                    )
                ),
                "enough": lambda request: len(request.output) >= params.max_new_tokens,
            }
            if everywhere
            else {}
        )
        return postprocess_with(
            pick=lambda engine, row, request: engine.sample(row, params, request.generator),
            **others,
        )(self, scheduled, logits)

    return wrong


def ignored_end_left_out(self, scheduled, logits):
    new = Engine.postprocess(self, scheduled, logits)
    for request, token in new:
        if request.params.ignore_end and token in self.end_tokens:
            request.tokens.pop()
    return new


def ignored_end_passed_over(self, scheduled, logits):
    """Before anything else is done with it.

    It is neither appended nor returned, and it does not count.
    """
    new = []
    for (request, num_tokens), row in zip(scheduled, logits, strict=True):
        request.num_computed += num_tokens
        if request.num_uncomputed:
            continue
        token = self.sample(row, request.params, request.generator)
        if request.params.ignore_end and token in self.end_tokens:
            continue
        request.tokens.append(token)
        new.append((request, token))
        if token in self.end_tokens:
            self._end(request, "end")
        elif len(request.output) >= request.params.max_new_tokens:
            self._end(request, "length")
    return new


def sampled_from(change):
    return postprocess_with(
        pick=lambda engine, row, request: engine.sample(
            change(row, request.params), request.params, request.generator
        )
    )


def returns_in_the_loop(self, scheduled, logits):
    for pair, row in zip(scheduled, logits, strict=True):
        if new := Engine.postprocess(self, [pair], row[None]):
            return new
    return []


def returns_in_its_first_turn(self, scheduled, logits):
    return Engine.postprocess(self, scheduled[:1], logits[:1])


def as_generator(self, scheduled, logits):
    yield from Engine.postprocess(self, scheduled, logits)


def as_iterator(self, scheduled, logits):
    return (pair for pair in tuple(Engine.postprocess(self, scheduled, logits)))


def as_dictionary(self, scheduled, logits):
    return dict(Engine.postprocess(self, scheduled, logits))


def with_reasons(name):
    """The right one, but for the reason: name(the right one)."""
    return postprocess_with(
        end=lambda engine, request, reason: engine._end(request, name(reason))
    )


def of_one_end_token(choose):
    return postprocess_with(
        ends=lambda engine, request, token: (
            token == choose(engine.end_tokens) and not request.params.ignore_end
        )
    )


def of_each_token_s_row(self, scheduled, logits):
    """As if the logits had a row for every token that was computed."""
    last, new = -1, []
    for request, num_tokens in scheduled:
        last += num_tokens
        request.num_computed += num_tokens
        if not request.num_uncomputed:
            new += Engine.postprocess(self, [(request, 0)], logits[last][None])
    return new


def changing_the_list(change):
    def wrong(self, scheduled, logits):
        new = Engine.postprocess(self, scheduled, logits)
        change(scheduled)
        return new

    return wrong


def chunks_removed(in_the_loop):
    """Takes those that get no token off the list.

    In the loop over it, that passes over the next one.
    """

    def wrong(self, scheduled, logits):
        new = []
        for pair, row in zip(
            scheduled if in_the_loop else list(scheduled), logits, strict=False
        ):
            got = Engine.postprocess(self, [pair], row[None])
            new += got
            if not got:
                scheduled.remove(pair)
        return new

    return wrong


def without_its_prompt(request, token):
    request.tokens = [*request.output, token]


def all_but_the_token_lost(request, token):
    request.tokens = [token]


def setting_the_output(request, token):
    request.output = [*request.output, token]


def appended_twice(request, token):
    request.tokens += [token, token]


def end_token_once_more(engine, request, token):
    """For `ends`: an end token is appended once more, ignored or not."""
    if token in engine.end_tokens:
        request.tokens.append(token)
    return token in engine.end_tokens and not request.params.ignore_end


def end_token_once_more_at_an_end(engine, request, token):
    is_end = token in engine.end_tokens and not request.params.ignore_end
    if is_end:
        request.tokens.append(token)
    return is_end


def has_enough(request):
    """As ours, where there may be more than enough."""
    return len(request.output) >= request.params.max_new_tokens


def same_token_again(request):
    return request.tokens[-1] == request.tokens[-2]


def up_to_the_prompt(request, num_tokens):
    return min(request.num_computed + num_tokens, len(request.prompt))


def preempted(engine, request, reason):
    engine.scheduler.preempt(request)


def to_both(request, token):
    request.tokens.append(token)
    request.prompt.append(token)


def has_more(request):
    """As num_uncomputed, but that below 0 it is false."""
    return request.num_uncomputed > 0


def others_generator(which):
    """Everybody's tokens are drawn with one request's generator."""

    def wrong(self, scheduled, logits):
        generator = scheduled[which][0].generator
        return postprocess_with(
            pick=lambda engine, row, request: engine.sample(row, request.params, generator)
        )(self, scheduled, logits)

    return wrong


def generator_left_out(engine, row, request):
    return engine.sample(row, request.params, None)


def drawn_for_everybody(self, scheduled, logits):
    """Draws for chunks as well, and throws these tokens away."""
    drawn = iter(
        [
            self.sample(row, request.params, request.generator)
            for (request, _), row in zip(scheduled, logits, strict=True)
        ]
    )
    tokens = dict(zip((request for request, _ in scheduled), drawn, strict=True))
    return postprocess_with(pick=lambda engine, row, request: tokens[request])(
        self, scheduled, logits
    )


def never_counted(self, scheduled, logits):
    new = []
    for (request, num_tokens), row in zip(scheduled, logits, strict=True):
        if request.num_computed + num_tokens >= len(request.tokens):
            given = request.num_computed
            new += Engine.postprocess(self, [(request, num_tokens)], row[None])
            request.num_computed = given
    return new


def stops_at_an_end(reasons):
    def wrong(self, scheduled, logits):
        new = []
        for pair, row in zip(scheduled, logits, strict=True):
            new += Engine.postprocess(self, [pair], row[None])
            if pair[0].reason in reasons:
                break
        return new

    return wrong


def the_ended_returned(self, scheduled, logits):
    return [
        (request, token)
        for request, token in Engine.postprocess(self, scheduled, logits)
        if request.reason
    ]


def row_of_a_token_looked_up_first(self, scheduled, logits):
    """As of_each_token_s_row, and before it is known whether the request gets a token."""
    last, new = -1, []
    for request, num_tokens in scheduled:
        last += num_tokens
        new += Engine.postprocess(self, [(request, num_tokens)], logits[last][None])
    return new


def only_for(reasons, end):
    """Ends in a wrong way for some of the reasons."""
    return postprocess_with(
        end=lambda engine, request, reason: (end if reason in reasons else Engine._end)(
            engine, request, reason
        )
    )


def ended_without_a_reason(engine, request, reason):
    engine._end(request)


def ended_the_other_way_round(engine, request, reason):
    engine._end(reason, request)


def ended_as_cancelled(engine, request, reason):
    engine.cancel(request.id)


def ended_by_id(engine, request, reason):
    engine._end(request.id, reason)


def ended_and_freed(engine, request, reason):
    engine._end(request, reason)
    engine.manager.free_sequence(request.id)


def stopped_and_ended(engine, request, reason):
    engine.scheduler.stop(request)
    engine._end(request, reason)


def ended_and_stopped(engine, request, reason):
    engine._end(request, reason)
    engine.scheduler.stop(request)


def chunks_not_counted(self, scheduled, logits):
    new = []
    for (request, num_tokens), row in zip(scheduled, logits, strict=True):
        if request.num_computed + num_tokens < len(request.tokens):
            continue
        new += Engine.postprocess(self, [(request, num_tokens)], row[None])
    return new


def stops_at_a_chunk(self, scheduled, logits):
    new = []
    for pair, row in zip(scheduled, logits, strict=True):
        got = Engine.postprocess(self, [pair], row[None])
        new += got
        if not got:
            break
    return new


def nothing_returned(self, scheduled, logits):
    Engine.postprocess(self, scheduled, logits)


def the_unended_returned(self, scheduled, logits):
    return [
        (request, token)
        for request, token in Engine.postprocess(self, scheduled, logits)
        if request.reason is None
    ]


def everybody_returned(self, scheduled, logits):
    got = dict(Engine.postprocess(self, scheduled, logits))
    return [(request, got.get(request)) for request, _ in scheduled]


def end_token_dropped(self, scheduled, logits):
    new = Engine.postprocess(self, scheduled, logits)
    for request, _ in new:
        if request.reason == "end":
            request.tokens.pop()
    return new


def end_token_dropped_and_not_returned(self, scheduled, logits):
    return [
        (request, token)
        for request, token in end_token_dropped(self, scheduled, logits)
        if request.reason != "end"
    ]


def only_marked(engine, request, reason):
    request.reason = reason


def only_stopped(engine, request, reason):
    engine.scheduler.stop(request)


def only_out_of_the_scheduler(engine, request, reason):
    engine.scheduler.remove(request)


def out_of_the_scheduler_and_marked(engine, request, reason):
    engine.scheduler.remove(request)
    request.reason = reason


def blocks_kept(engine, request, reason):
    engine.scheduler.running.remove(request)
    del engine.requests[request.id]
    request.reason = reason


def drawn_with_a_new_generator(engine, row, request):
    return engine.sample(
        row, request.params, torch.Generator().manual_seed(request.params.seed)
    )


def to_the_output(request, token):
    request.output.append(token)


def counted_up(request):
    request.num_computed += 1


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
    request = Request("ABC"[number], [2 + number] * case.prompts[number], params)
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
        return Text(f"{type(result).__name__}, in place of a list")
    if not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], Request)
        for pair in result
    ):
        return Text(f"a list of {type(result[0]).__name__}, in place of (request, token)")
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
        those.append(
            f"{name} (prompt of {case.prompts[number]}{own}, max_new_tokens={limit}{ignores})"
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
    mistakes=(
        Mistake(
            "token-from-a-chunk",
            "The request computed a chunk of its prompt, with more of it to come, and has a "
            "new token already. What follows the middle of a prompt is known: the rest of it.",
            postprocess_with(waits=lambda request: False),
            also=(
                waiting_by(lambda request, num_tokens: num_tokens < request.num_uncomputed),
            ),
        ),
        Mistake(
            "one-token-early",
            "One token is not computed yet, and the request has a next one already. "
            "Behind which token does it stand?",
            postprocess_with(waits=lambda request: request.num_uncomputed > 1),
        ),
        Mistake(
            "prompt-in-place-of-tokens",
            "The request was preempted, and computes its prompt and its own tokens again. "
            "Not all of these were computed, and it has a new one.",
            postprocess_with(waits=lambda request: request.num_computed < len(request.prompt)),
        ),
        Mistake(
            "only-chunks-get-a-token",
            "Those whose tokens are not all computed have got a new one, the others none: "
            "the other way round.",
            only_chunks,
            also=(postprocess_with(waits=lambda request: request.num_uncomputed == 0),),
        ),
        Mistake(
            "no-first-token",
            "The prompt is computed to its end, and the request has no token. "
            "A chunk may be the last one.",
            only_single_tokens,
            also=(single_tokens_always,),
        ),
        Mistake(
            "single-token-for-a-decode",
            "A request with one token in this step is taken for one that decodes. "
            "A single token can also be a chunk in the middle of a prompt, "
            "when the budget had no more.",
            waiting_by(lambda request, num_tokens: num_tokens > 1 and request.num_uncomputed),
            also=(
                waiting_by(
                    lambda request, num_tokens: num_tokens != 1 and request.num_uncomputed > 0
                ),
            ),
        ),
        Mistake(
            "computed-not-counted",
            "`num_computed` stands where it stood before the step. "
            "The next step would compute the same tokens again.",
            postprocess_with(
                counts=lambda request, num_tokens: request.num_computed,
                waits=lambda request: False,
            ),
            also=(
                never_counted,
                postprocess_with(counts=lambda request, num_tokens: request.num_computed),
                postprocess_with(
                    counts=lambda request, num_tokens: request.num_computed,
                    waits=lambda request: request.num_computed < len(request.prompt),
                ),
            ),
        ),
        Mistake(
            "computed-set-not-added",
            "`num_computed` is the number of tokens of this step. "
            "Those of the steps before count as well.",
            postprocess_with(counts=lambda request, num_tokens: num_tokens),
        ),
        Mistake(
            "counted-up-to-the-prompt",
            "`num_computed` never grows beyond the prompt. "
            "The tokens behind the prompt are computed, too, and count.",
            postprocess_with(counts=up_to_the_prompt),
            also=(
                postprocess_with(
                    counts=up_to_the_prompt,
                    waits=lambda request: request.num_computed < len(request.prompt),
                ),
            ),
        ),
        Mistake(
            "one-counted",
            "`num_computed` grows by 1, whatever the request has computed in this step. "
            "How many tokens it was, `scheduled` says.",
            postprocess_with(counts=lambda request, num_tokens: request.num_computed + 1),
        ),
        Mistake(
            "all-counted-as-computed",
            "`num_computed` went up to all of the request's tokens. "
            "Only a chunk of them was computed.",
            postprocess_with(counts=lambda request, num_tokens: len(request.tokens)),
        ),
        Mistake(
            "new-token-counted",
            "The new token counts as computed. "
            "Its keys and values will be there after the next step.",
            postprocess_with(after=counted_up),
            also=(
                postprocess_with(
                    after=counted_up, waits=lambda request: request.num_uncomputed > 0
                ),
            ),
        ),
        Mistake(
            "chunk-not-counted",
            "A chunk in the middle of a prompt was not added to `num_computed`. "
            "It gives no token, but it is computed.",
            chunks_not_counted,
        ),
        Mistake(
            "stops-at-a-chunk",
            "The requests behind the one that is in the middle of its prompt were left out.",
            stops_at_a_chunk,
        ),
        Mistake(
            "stops-at-an-end",
            "The requests behind one that has ended were left out. "
            "Its end is not the end of the step.",
            stops_at_an_end(("end", "length")),
            also=(stops_at_an_end(("end",)), stops_at_an_end(("length",))),
        ),
        Mistake(
            "returns-in-the-loop",
            "Only one request was looked at, or all up to the first with a new token. "
            "Where does your `return` stand?",
            returns_in_the_loop,
            also=(returns_in_its_first_turn,),
        ),
        Mistake(
            "rows-mixed-up",
            "A token was taken from another request's row of the logits. "
            "Every scheduled request has a row, also the one that gets no token.",
            postprocess_with(row=lambda logits, index, new: logits[len(new)]),
            also=(
                postprocess_with(row=lambda logits, index, new: logits[-1]),
                postprocess_with(row=lambda logits, index, new: logits[0]),
                postprocess_with(row=lambda logits, index, new: logits),
            ),
        ),
        Mistake(
            "not-a-row",
            "`self.sample` takes a row of logits, (vocab_size,), "
            "and was given a matrix with one row.",
            postprocess_with(row=lambda logits, index, new: logits[index][None]),
        ),
        Mistake(
            "one-logit",
            "`self.sample` got a single number. A row is what it takes: one logit "
            "for each token of the vocabulary. The rows are those of the last tokens already.",
            postprocess_with(row=lambda logits, index, new: logits[index][-1]),
        ),
        Mistake(
            "arguments-of-sample",
            "`self.sample` takes three things, in this order: "
            "the row of logits, the request's params, its generator.",
            postprocess_with(
                pick=lambda engine, row, request: engine.sample(
                    row, request.generator, request.params
                )
            ),
            also=tuple(
                postprocess_with(pick=pick)
                for pick in (
                    lambda engine, row, request: engine.sample(row, request.params),
                    lambda engine, row, request: engine.sample(row),
                    lambda engine, row, request: engine.sample(row, request),
                    lambda engine, row, request: engine.sample(
                        row, request, request.generator
                    ),
                    lambda engine, row, request: engine.sample(
                        row, request.params.temperature, request.generator
                    ),
                )
            ),
        ),
        Mistake(
            "row-of-a-token",
            "The logits have a row for each request, whatever number of tokens it computes: "
            "the one of its last token.",
            of_each_token_s_row,
            also=(row_of_a_token_looked_up_first,),
        ),
        Mistake(
            "appended-to-a-copy",
            "The token is not among `request.tokens`, where a request keeps its own. "
            "`request.output` is a copy, made anew at each look: "
            "what is appended to it is lost.",
            postprocess_with(append=to_the_output),
            also=tuple(
                postprocess_with(append=append, waits=waits)
                for append, waits in (
                    (to_the_output, has_more),
                    (lambda request, token: None, has_more),
                    (lambda request, token: None, lambda request: request.num_uncomputed),
                    (setting_the_output, has_more),
                )
            ),
        ),
        Mistake(
            "prompt-lost",
            "The request has lost its prompt: `request.tokens` holds its prompt "
            "and its own tokens. A new one is appended to it.",
            postprocess_with(append=without_its_prompt),
            also=(
                postprocess_with(append=without_its_prompt, waits=has_more),
                postprocess_with(append=all_but_the_token_lost),
                postprocess_with(append=all_but_the_token_lost, waits=has_more),
            ),
        ),
        Mistake(
            "appended-to-the-prompt",
            "The token went into the prompt, which stays as it came.",
            postprocess_with(append=lambda request, token: request.prompt.append(token)),
            also=(
                postprocess_with(
                    append=lambda request, token: request.prompt.append(token), waits=has_more
                ),
                postprocess_with(append=to_both),
                postprocess_with(
                    append=to_both,
                    enough=lambda request: (
                        len(request.output) >= request.params.max_new_tokens
                    ),
                ),
            ),
        ),
        Mistake(
            "appended-twice",
            "A new token stands twice among the request's tokens. "
            "Each is appended once, an end token as well.",
            postprocess_with(append=appended_twice, enough=has_enough),
            also=(
                postprocess_with(append=appended_twice),
                *(
                    postprocess_with(ends=ends, enough=enough)
                    for ends in (end_token_once_more, end_token_once_more_at_an_end)
                    for enough in (
                        has_enough,
                        lambda request: len(request.output) == request.params.max_new_tokens,
                    )
                ),
            ),
        ),
        Mistake(
            "end-token-ignored",
            "The model gave its end token, and the request goes on.",
            postprocess_with(ends=lambda engine, request, token: False),
            also=(
                postprocess_with(
                    ends=lambda engine, request, token: False, enough=lambda request: False
                ),
            ),
        ),
        Mistake(
            "only-one-end-token",
            "A model may have several end tokens, or none. `self.end_tokens` is a set.",
            of_one_end_token(lambda tokens: min(tokens, default=None)),
            also=tuple(
                map(
                    of_one_end_token,
                    (
                        lambda tokens: max(tokens, default=None),
                        min,
                        max,
                        lambda tokens: next(iter(tokens)),
                        lambda tokens: next(iter(tokens), None),
                        lambda tokens: list(tokens)[0],
                    ),
                )
            ),
        ),
        Mistake(
            "every-token-ends",
            "A token that is no end token ended the request.",
            postprocess_with(
                ends=lambda engine, request, token: (
                    token in engine.end_tokens or not request.params.ignore_end
                )
            ),
            also=(
                postprocess_with(
                    enough=lambda request: same_token_again(request) or has_enough(request)
                ),
                postprocess_with(
                    ends=lambda engine, request, token: (
                        same_token_again(request)
                        or (token in engine.end_tokens and not request.params.ignore_end)
                    )
                ),
            ),
        ),
        Mistake(
            "ignore-end-inverted",
            "Exactly those requests end at an end token that asked to ignore it.",
            postprocess_with(
                ends=lambda engine, request, token: (
                    token in engine.end_tokens and request.params.ignore_end
                )
            ),
        ),
        Mistake(
            "end-token-dropped",
            "The end token is missing from the output. It is a token like the others.",
            end_token_dropped,
            also=(end_token_dropped_and_not_returned,),
        ),
        Mistake(
            "ignore-end-not-honoured",
            "The request asked to go on behind the end token, and it was ended.",
            postprocess_with(ends=lambda engine, request, token: token in engine.end_tokens),
        ),
        Mistake(
            "ignored-end-token-left-out",
            "A request that ignores the end token did not get it. "
            "It is a token like the others then.",
            ignored_end_left_out,
            also=(ignored_end_passed_over,),
        ),
        Mistake(
            "goes-on-too-long",
            "The request has as many new tokens as it may have, and is still running.",
            postprocess_with(
                enough=lambda request: len(request.output) > request.params.max_new_tokens
            ),
            also=(
                postprocess_with(enough=lambda request: False),
                postprocess_with(
                    enough=lambda request: (
                        not request.params.ignore_end
                        and len(request.output) >= request.params.max_new_tokens
                    )
                ),
            ),
        ),
        Mistake(
            "one-token-too-few",
            "The request was ended although it may have one more token.",
            postprocess_with(
                enough=lambda request: len(request.output) + 1 == request.params.max_new_tokens
            ),
            also=(
                postprocess_with(
                    enough=lambda request: (
                        len(request.output) + 1 >= request.params.max_new_tokens
                    )
                ),
            ),
        ),
        Mistake(
            "prompt-counted",
            "max_new_tokens is about new tokens; "
            "you compare it with all of them, the prompt's as well.",
            postprocess_with(
                enough=lambda request: len(request.tokens) >= request.params.max_new_tokens
            ),
            also=(
                postprocess_with(
                    enough=lambda request: len(request.tokens) == request.params.max_new_tokens
                ),
                postprocess_with(
                    enough=lambda request: (
                        request.num_computed >= request.params.max_new_tokens
                    )
                ),
            ),
        ),
        Mistake(
            "wrong-reason",
            "The request ended, and not for the reason that it gives. "
            'There are two: "end" and "length".',
            with_reasons(lambda reason: {"end": "length", "length": "end"}[reason]),
            also=(
                with_reasons(lambda reason: "end"),
                with_reasons(lambda reason: "length"),
                with_reasons(lambda reason: {"end": "stop", "length": "length"}[reason]),
                with_reasons(lambda reason: {"end": "end", "length": "stop"}[reason]),
                postprocess_with(end=ended_as_cancelled),
            ),
        ),
        Mistake(
            "only-marked",
            "The request has a reason for its end, and it still stands in the engine: "
            "it would be scheduled again, or its id and its blocks would never be free. "
            "`self._end` does all of it.",
            postprocess_with(end=only_marked),
            also=(
                postprocess_with(end=out_of_the_scheduler_and_marked),
                postprocess_with(end=blocks_kept),
                only_for(("end",), only_marked),
                only_for(("length",), only_marked),
            ),
        ),
        Mistake(
            "only-stopped",
            "The request has lost its blocks, and still runs and has no reason. "
            "`self._end` does all of it.",
            postprocess_with(end=only_stopped),
            also=(only_for(("end",), only_stopped), only_for(("length",), only_stopped)),
        ),
        Mistake(
            "preempted-in-place-of-ended",
            "A request that has all of its tokens was preempted: it waits, to go on later. "
            "`self._end` ends it.",
            postprocess_with(end=preempted),
            also=(only_for(("end",), preempted), only_for(("length",), preempted)),
        ),
        Mistake(
            "given-back-twice",
            "The blocks of a request that ends are given back twice. "
            "`self._end` does that, too.",
            postprocess_with(end=ended_and_stopped),
            also=tuple(
                only_for(reasons, end)
                for reasons in (("end", "length"), ("end",), ("length",))
                for end in (ended_and_stopped, stopped_and_ended, ended_and_freed)
            ),
        ),
        Mistake(
            "id-for-request",
            "`self._end` takes the request first, and got something else in its place: "
            "its id, or the reason.",
            postprocess_with(end=ended_by_id),
            also=(
                postprocess_with(end=ended_the_other_way_round),
                *(
                    only_for((reason,), end)
                    for reason in ("end", "length")
                    for end in (ended_by_id, ended_the_other_way_round)
                ),
            ),
        ),
        Mistake(
            "end-without-a-reason",
            "`self._end` takes two things: the request, and the reason for its end.",
            postprocess_with(end=ended_without_a_reason),
            also=(
                only_for(("end",), ended_without_a_reason),
                only_for(("length",), ended_without_a_reason),
                with_reasons(lambda reason: None),
                with_reasons({"end": "end"}.get),
                with_reasons({"length": "length"}.get),
            ),
        ),
        Mistake(
            "no-reason",
            "The request is gone from the scheduler, and nobody can see that it ended, "
            "or why. `self._end` does all of it.",
            postprocess_with(end=only_out_of_the_scheduler),
            also=(
                only_for(("end",), only_out_of_the_scheduler),
                only_for(("length",), only_out_of_the_scheduler),
            ),
        ),
        Mistake(
            "ended-twice",
            "The end token came as the last allowed token, and the request was ended twice.",
            length_first,
        ),
        Mistake(
            "scheduled-changed",
            "The list `scheduled` is not what it was. "
            "It is the engine's: when something raises in a step, "
            "the engine goes through it to make the step's requests wait again.",
            changing_the_list(list.clear),
            also=(
                changing_the_list(list.reverse),
                chunks_removed(True),
                chunks_removed(False),
            ),
        ),
        Mistake(
            "nothing-returned",
            "The new tokens are in the requests, and the caller gets none of them: "
            "it waits for a list.",
            nothing_returned,
        ),
        Mistake(
            "not-a-list-of-pairs",
            "What you return has another form: it is a list of pairs, (request, token).",
            postprocess_with(of_new=lambda request, token: token),
            also=(
                postprocess_with(of_new=lambda request, token: request),
                as_generator,
                as_dictionary,
                as_iterator,
                postprocess_with(of_new=lambda request, token: (request.id, token)),
                postprocess_with(of_new=lambda request, token: (token, request)),
                postprocess_with(of_new=lambda request, token: (request, request.output)),
            ),
        ),
        Mistake(
            "last-token-not-returned",
            "The token with which a request ends is missing from what you return.",
            the_unended_returned,
        ),
        Mistake(
            "only-the-ended-returned",
            "You return those that have ended. "
            "The caller waits for every new token, to pass it on at once.",
            the_ended_returned,
        ),
        Mistake(
            "everybody-returned",
            "You return every scheduled request. "
            "In the middle of its prompt a request has no new token.",
            everybody_returned,
        ),
        Mistake(
            "always-the-likeliest",
            "The token is always the likeliest one, whatever temperature the request asks "
            "for. How a row becomes a token, `self.sample` knows.",
            postprocess_with(pick=lambda engine, row, request: int(row.argmax())),
            also=(postprocess_with(pick=lambda engine, row, request: row.argmax()),),
        ),
        Mistake(
            "softmax-before-sample",
            "`self.sample` got probabilities, and it takes logits: "
            "it makes the softmax itself, behind the temperature.",
            sampled_from(lambda row, params: row.softmax(-1)),
        ),
        Mistake(
            "temperature-twice",
            "`self.sample` got logits that were divided by the temperature before. "
            "It does that itself.",
            sampled_from(lambda row, params: row / max(params.temperature, 1e-5)),
            also=(
                sampled_from(
                    lambda row, params: row / params.temperature if params.temperature else row
                ),
            ),
        ),
        Mistake(
            "seeded-at-each-draw",
            "Each draw begins at the request's seed again. "
            "`request.generator` remembers where it is.",
            postprocess_with(pick=drawn_with_a_new_generator),
        ),
        Mistake(
            "drawn-for-nothing",
            "A token was drawn for a request in the middle of its prompt, and not used. "
            "Each draw moves the request's generator on, "
            "so its answer would depend on how its prompt was cut into chunks.",
            drawn_for_everybody,
        ),
        Mistake(
            "another-s-generator",
            "A token was not drawn with its request's own generator. "
            "The answer would depend on who else is in the step.",
            others_generator(0),
            also=(others_generator(-1), postprocess_with(pick=generator_left_out)),
        ),
        Mistake(
            "another-s-params",
            "A token was drawn with the params of another request. "
            "The requests of a step may have different ones, as their temperatures.",
            params_of(0),
            also=(params_of(-1), params_of(0, True), params_of(-1, True)),
        ),
    ),
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
