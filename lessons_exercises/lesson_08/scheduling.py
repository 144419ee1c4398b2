"""Requests on their way through a scheduler, without a model.

The checks of 8.3, 8.4 and 8.6 look at them.
"""

import functools
import operator
import random
import types
from dataclasses import dataclass, fields

import torch

from lessons_exercises.words import SLIPS, counted
from lessons_lib.checks import Text, raised
from paged_attention.engine.prefix_cache import PrefixCache
from paged_attention.engine.request import Request, SamplingParams
from paged_attention.engine.scheduler import Scheduler
from paged_attention.kv_cache import PagedAttentionManager

MAX_NUM_STEPS = 40  # right answers need fewer
ROW = 16  # entries of a row of the block table


class NotPairs(Exception):
    """schedule() returned something else than a list of pairs."""


class Failed(Text):
    """The end of a run that raised, in the learner's words, with the line that raised.

    Two are the same when kind and step of the error are, and those that run and wait then. Of
    a slip the words count as well.
    """

    def __new__(cls, words: str, message: str, where: str, queues: str):
        self = super().__new__(cls, words)
        self.message, self.where, self.queues = message, where, queues
        return self

    def __eq__(self, other):
        return isinstance(other, Failed) and self._parts() == other._parts()

    def _parts(self):
        is_slip = any(slip in self for slip in SLIPS)
        return str(self), self.queues, self.message if is_slip else ""

    __hash__ = Text.__hash__

    def __repr__(self):
        message = f": {self.message}" if self.message else ""
        return f"{self}{message}" + (f"\n  raised in {self.where}" if self.where else "")


@dataclass(frozen=True)
class Scenario:
    """Sizes, and what happens.

    requests: (id, prompt, new tokens, the step before which it comes); a prompt is a text, a
        token for each character, or the number of its tokens, which are then unlike everybody
        else's. given_way: (step, id) of requests that are preempted from outside, before that
        step. budgets: (step, token_budget), where it changes.
    """

    requests: tuple[tuple[str, str | int, int, int], ...]
    num_blocks: int = 8
    block_size: int = 2
    token_budget: int = 8
    max_num_seqs: int = 4
    sharing: bool = False
    given_way: tuple[tuple[int, str], ...] = ()
    budgets: tuple[tuple[int, int], ...] = ()


def hidden(seed: int, num_scenarios: int = 20):
    """For `Exercise.hidden`: scenarios that come to an end.

    There is little room for all and enough for each. In some of them prompts begin alike,
    requests are preempted from outside, or the budget changes.
    """
    chance = random.Random(seed)
    while num_scenarios:
        sharing = chance.random() < 0.3
        names = chance.sample("ABCD", chance.randint(2, 4))
        block_size = chance.randint(1, 3)
        prompts = [
            (
                "abcdefgh"[: chance.randint(1, 8)]
                + chance.choice("wxyz") * chance.randint(0, 3)
                if sharing
                else chance.randint(1, 9)
            )
            for _ in names
        ]
        num_new, steps = (
            chance.choices(those, k=4) for those in (range(1, 8), (0, 0, 0, 1, 2))
        )
        longest = max(
            (len(prompt) if sharing else prompt) + new
            for prompt, new in zip(prompts, num_new, strict=False)
        )
        scenario = Scenario(
            tuple(zip(names, prompts, num_new, steps, strict=False)),
            num_blocks=longest // block_size + chance.randint(1, 3),
            block_size=block_size,
            sharing=sharing,
            token_budget=chance.randint(2, 14),
            max_num_seqs=chance.randint(2, 4),
            given_way=tuple(
                (chance.randint(1, 3), name)
                for name in chance.sample(names, chance.choice((0, 0, 1, 2)))
            ),
            budgets=((chance.randint(1, 4), chance.randint(1, 4)),) * (chance.random() < 0.3),
        )
        if isinstance(run(scenario)[-1], Step):
            num_scenarios -= 1
            yield scenario


@dataclass(frozen=True)
class Step:
    """What stands where: after each schedule(), and at the end.

    Also before a step in which a request is preempted from outside.
    """

    when: str
    computes: tuple[tuple[str, int], ...]
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    tokens: tuple[tuple[str, int], ...]  # of the requests that have not ended
    computed: tuple[tuple[str, int], ...]
    inserted: tuple[tuple[str, int], ...]
    preempted: tuple[tuple[str, int], ...]
    draws: tuple[tuple[str, int | str], ...]  # how often each one's own generator has drawn
    reasons: tuple[tuple[str, str], ...]
    lengths: tuple[tuple[str, int], ...]  # of the sequences that have a row of the block table
    free_blocks: int  # those that only the prefix cache uses count as free

    def __repr__(self):
        return (
            f"{self.when}: "
            f"{'; '.join(_in_words(self, field.name) for field in fields(self)[1:])}"
        )


def make_request(name: str, prompt: str | int, num_new: int) -> Request:
    """A request that generates num_new tokens.

    A prompt given by its length has tokens of its own.
    """
    tokens = (
        [ord(letter) for letter in prompt]
        if isinstance(prompt, str)
        else [1_000 * ord(name) + position for position in range(prompt)]
    )
    return Request(name, tokens, SamplingParams(max_new_tokens=num_new))


def make_scheduler(scenario: Scenario, **methods) -> Scheduler:
    """A scheduler over an empty pool.

    In it, `methods` take the place of the methods of these names.
    """
    manager = PagedAttentionManager(
        scenario.num_blocks, scenario.block_size, 1, 2, scenario.max_num_seqs, ROW
    )
    scheduler = Scheduler(
        manager,
        PrefixCache(manager, scenario.sharing),
        scenario.token_budget,
        scenario.max_num_seqs,
    )
    for name, method in methods.items():
        setattr(scheduler, name, types.MethodType(method, scheduler))
    return scheduler


def run(scenario: Scenario, **methods) -> tuple:
    """What happens in a scenario, a Step for each step.

    An error ends it, as its last entry, in words.
    """
    scheduler = make_scheduler(scenario, **methods)
    arrivals = [
        (make_request(name, prompt, num_new), step)
        for name, prompt, num_new, step in scenario.requests
    ]
    requests, trace = [request for request, _ in arrivals], []
    for number in range(MAX_NUM_STEPS):
        scheduler.waiting += [request for request, step in arrivals if step == number]
        when = f"before step {number}"
        try:
            scheduler.token_budget = dict(scenario.budgets).get(number, scheduler.token_budget)
            for name in (name for step, name in scenario.given_way if step == number):
                scheduler.preempt(next(request for request in requests if request.id == name))
                trace.append(state(scheduler, when, (), requests))
            when = f"in step {number}"
            scheduled = pairs(scheduler.schedule())
            trace.append(state(scheduler, when, scheduled, requests))
            compute(scheduler, scheduled)
        except NotImplementedError:
            raise
        except NotPairs as error:
            return *trace, Text(f"{when} it returns {error}")
        except Exception as error:
            kind = type(error).__name__ + (
                " for a Request instead of its id" if "sequence Request(" in str(error) else ""
            )
            where = raised(error).where
            return *trace, Failed(f"{when}: {kind}", str(error), where, queues(scheduler))
        if not scheduler.has_work() and all(step <= number for _, step in arrivals):
            return *trace, state(scheduler, "at the end", (), requests)
    return *trace, Text(f"no end after {MAX_NUM_STEPS} steps")


def pairs(scheduled) -> list[tuple[Request, int]]:
    """What schedule() returned.

    Raises NotPairs where it is not a list of pairs of a request and an integer.
    """
    if not isinstance(scheduled, list | tuple):
        raise NotPairs(type(scheduled).__name__)
    for entry in scheduled:
        match entry:
            case Request(), number if hasattr(number, "__index__"):
                continue
            case tuple() | list():
                raise NotPairs(
                    f"a list with ({', '.join(type(part).__name__ for part in entry)})"
                )
            case _:
                raise NotPairs(f"a list with {type(entry).__name__}")
    return [(request, operator.index(number)) for request, number in scheduled]


def state(scheduler: Scheduler, when: str, scheduled, requests: list[Request]) -> Step:
    """Everything that can be seen from outside, but for the blocks' numbers.

    Which ones are taken is free.
    """
    manager = scheduler.manager
    there = [
        request
        for request in requests
        if request in scheduler.running or request in scheduler.waiting
    ]
    users = [
        manager.block_manager.get_ref_count(block_id)
        for block_id in scheduler.prefix_cache.blocks.values()
    ]
    return Step(
        when,
        tuple((request.id, num_tokens) for request, num_tokens in scheduled),
        tuple(request.id for request in scheduler.running),
        tuple(request.id for request in scheduler.waiting),
        tuple((request.id, len(request.tokens)) for request in there),
        tuple((request.id, request.num_computed) for request in there),
        tuple((request.id, request.num_inserted) for request in there),
        tuple((request.id, request.num_preempted) for request in requests),
        tuple((request.id, draws_of(request)) for request in there),
        tuple(
            (request.id, request.reason) for request in requests if request.reason is not None
        ),
        tuple(sorted((name, sequence.length) for name, sequence in manager.sequences.items())),
        manager.block_manager.get_num_free_blocks() + users.count(1),
    )


def queues(scheduler: Scheduler) -> str:
    """Those that run and wait, whatever an answer has put there."""
    return " | ".join(
        " ".join(str(getattr(request, "id", "?")) for request in queue)
        for queue in (scheduler.running, scheduler.waiting)
    )


def compute(scheduler: Scheduler, scheduled: list[tuple[Request, int]]) -> None:
    """What the model, the prefix cache and postprocess() do in a step.

    A request's next token is how many it has, though its generator draws for it, as it does at
    a temperature above 0.
    """
    for request, num_tokens in scheduled:
        scheduler.prefix_cache.insert(request, request.num_computed + num_tokens)
        request.num_computed += num_tokens
        if not request.num_uncomputed:
            request.tokens.append(len(request.tokens))
            torch.rand((), generator=request.generator)
            if len(request.output) == request.params.max_new_tokens:
                scheduler.remove(request)


def draws_of(request: Request) -> int | str:
    """How often the request's generator has drawn since it was seeded."""
    return _states().get(_state_of(request.generator), "as no other")


@functools.cache
def _states() -> dict[bytes, int]:
    """The state of a request's generator to the number of draws that it has made."""
    generator, states = make_request("A", 1, 1).generator, {}
    for number in range(MAX_NUM_STEPS + 1):
        states[_state_of(generator)] = number
        torch.rand((), generator=generator)
    return states


def _state_of(generator: torch.Generator) -> bytes:
    return generator.get_state().numpy().tobytes()


def show(expected, actual) -> tuple[str, str]:
    """For `Exercise.show`: the first step in which two runs differ, and of it what differs."""
    if not (isinstance(expected, tuple) and isinstance(actual, tuple)):
        return repr(expected), repr(actual)
    ours, theirs = next(
        ((our, their) for our, their in zip(expected, actual, strict=False) if our != their),
        (expected[-1], actual[-1]),
    )
    if not (isinstance(ours, Step) and isinstance(theirs, Step)):
        return tuple(_briefly(entry) for entry in (ours, theirs))
    names = [
        field.name
        for field in fields(Step)
        if getattr(ours, field.name) != getattr(theirs, field.name)
    ]
    return tuple(_briefly(step, names[:3]) for step in (ours, theirs))


def size(scenario: Scenario) -> tuple[int, int, int]:
    """Requests, tokens, and what else happens."""
    tokens = sum(
        (prompt if isinstance(prompt, int) else len(prompt)) + num_new
        for _, prompt, num_new, _ in scenario.requests
    )
    return len(scenario.requests), tokens, len(scenario.given_way) + len(scenario.budgets)


def describe(scenario: Scenario) -> str:
    """A scenario in a learner's words."""
    those = [
        f"{name} (prompt {_prompt(prompt)}, "
        f"{num_new} new{f', comes in step {step}' if step else ''})"
        for name, prompt, num_new, step in scenario.requests
    ]
    others = [f"{name} is preempted before step {step}" for step, name in scenario.given_way]
    others += [
        f"token_budget is {budget} from step {step} on" for step, budget in scenario.budgets
    ]
    return (
        f"{counted(scenario.num_blocks, 'block')} of {scenario.block_size}, "
        f"token_budget {scenario.token_budget}, max_num_seqs {scenario.max_num_seqs}; "
        f"{', '.join(those + others)}"
    )


def _briefly(entry, names=("computes", "running", "waiting")) -> str:
    if not isinstance(entry, Step):
        return repr(entry)
    return (
        f"{entry.when}: "
        f"{'; '.join(_in_words(entry, name) for name in names if name != 'when')}"
    )


def _prompt(prompt: str | int) -> str:
    return f"{prompt!r}" if isinstance(prompt, str) else f"of {prompt}"


def _in_words(step: Step, name: str) -> str:
    value = getattr(step, name)
    words = {
        "computes": "scheduled",
        "computed": "num_computed",
        "inserted": "num_inserted",
        "preempted": "num_preempted",
        "draws": "draws of the generator",
        "reasons": "reason",
        "lengths": "lengths in the manager",
        "free_blocks": "free blocks",
    }.get(name, name)
    if isinstance(value, int):
        return f"{words} {value}"
    each = [entry if isinstance(entry, str) else f"{entry[0]}: {entry[1]}" for entry in value]
    return f"{words} [{', '.join(each)}]"
