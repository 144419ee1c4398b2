"""Requests on their way through a scheduler, without a model: for 8.3, 8.4, 8.6, 8.8, 8.9."""

import operator
import random
import re
import types
from dataclasses import dataclass, fields

from lessons_content.exercises.naming_words import SLIPS, counted
from lessons_lib.checks import Text, raised
from paged_attention.engine.prefix_cache import PrefixCache
from paged_attention.engine.request import Request, SamplingParams
from paged_attention.engine.scheduler import Scheduler
from paged_attention.pool.kv_cache import PagedAttentionManager

MAX_NUM_STEPS = 40  # right answers need fewer


class NotPairs(Exception):
    """schedule() returned something else than a list of pairs."""


class Failed(Text):
    """The end of a run that raised an error, with the error's words and the learner's line.

    Two are the same if the error's kind and its step are the same, and the requests that run
    and wait then. Of a slip the words count as well.
    """

    def __new__(cls, words: str, message: str, where: str, queues: str):
        self = super().__new__(cls, words)
        self.message, self.where, self.queues = message, where, queues
        self.slip = message if any(slip in words for slip in SLIPS) else ""
        return self

    def __eq__(self, other):
        return isinstance(other, Failed) and self._parts() == other._parts()

    def _parts(self):
        return str(self), self.queues, self.slip

    __hash__ = Text.__hash__

    def __repr__(self):
        message = f": {self.message}" if self.message else ""
        return f"{self}{message}" + (f"\n  raised in {self.where}" if self.where else "")


@dataclass(frozen=True)
class Scenario:
    """Sizes, and what happens.

    requests: (id, prompt, new tokens, the step before which it comes). A prompt is a text with
        a token for each character, or a number of tokens that no other request has.
    given_way: (step, id) of requests that are preempted from outside, before that step.
    budgets: (step, token_budget), where it changes.
    more_tokens: (step, id, number) of tokens that come from outside, before that step.
    """

    requests: tuple[tuple[str, str | int, int, int], ...]
    num_blocks: int = 8
    block_size: int = 2
    token_budget: int = 8
    max_num_seqs: int = 4
    sharing: bool = False
    given_way: tuple[tuple[int, str], ...] = ()
    budgets: tuple[tuple[int, int], ...] = ()
    more_tokens: tuple[tuple[int, str, int], ...] = ()


def scenario(requests: str, **more) -> Scenario:
    """A scenario of "A:3+2 B:abcd+1@4".

    A has a prompt of 3 tokens and generates 2. B's prompt is "abcd", and B comes in step 4.
    """
    found = []
    for name, prompt, num_new, step in re.findall(r"(\w):(\w+)\+(\d+)@?(\d*)", requests):
        length_or_text = int(prompt) if prompt.isdigit() else prompt
        found.append((name, length_or_text, int(num_new), int(step or 0)))
    return Scenario(tuple(found), **more)


def hidden(chance: random.Random, num_scenarios: int = 20):
    """Scenarios that come to an end.

    There is little room for all and enough for each. In some of them prompts begin alike,
    requests are preempted from outside, or the budget changes.
    """

    def prompt() -> str | int:
        if not sharing:
            return chance.randint(1, 9)
        start = "abcdefgh"[: chance.randint(1, 8)]
        return start + chance.choice("wxyz") * chance.randint(0, 3)

    while num_scenarios:
        sharing = chance.random() < 0.3
        names = chance.sample("ABCD", chance.randint(2, 4))
        block_size = chance.randint(1, 3)
        prompts = [prompt() for _ in names]
        num_new = chance.choices(range(1, 8), k=4)
        steps = chance.choices((0, 0, 0, 1, 2), k=4)
        requests = tuple(zip(names, prompts, num_new, steps, strict=False))
        longest = max(_length(prompt) + new for _, prompt, new, _ in requests)
        num_blocks = longest // block_size + chance.randint(1, 3)
        sizes = num_blocks, block_size, chance.randint(2, 14), chance.randint(2, 4)
        leaving = chance.sample(names, chance.choice((0, 0, 1, 2)))
        given_way = tuple((chance.randint(1, 3), name) for name in leaving)
        budget = chance.randint(1, 4), chance.randint(1, 4)
        budgets = (budget,) if chance.random() < 0.3 else ()
        scenario = Scenario(requests, *sizes, sharing, given_way, budgets)
        if isinstance(run(scenario)[-1], Step):
            num_scenarios -= 1
            yield scenario


@dataclass(frozen=True)
class Step:
    """What is where: after each schedule(), before a preemption from outside, and at the end.

    The fields' names are a message's words.
    """

    when: str
    scheduled: tuple[tuple[str, int], ...]
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    tokens: tuple[tuple[str, int], ...]  # of the requests that have not ended
    num_computed: tuple[tuple[str, int], ...]
    num_inserted: tuple[tuple[str, int], ...]
    num_preempted: tuple[tuple[str, int], ...]
    reason: tuple[tuple[str, str], ...]
    lengths_in_the_manager: tuple[tuple[str, int], ...]  # of sequences with a row
    free_blocks: int  # those that only the prefix cache uses count as free

    def __repr__(self):
        return self.text([field.name for field in fields(self)[1:]])

    def text(self, names: list[str]) -> str:
        """These fields in words."""
        return f"{self.when}: {'; '.join(_in_words(self, name) for name in names)}"


def make_request(name: str, prompt: str | int, num_new: int = 64) -> Request:
    """A request. A prompt that is given by its length has tokens of its own."""
    if isinstance(prompt, str):
        tokens = [*map(ord, prompt)]
    else:
        tokens = [1_000 * ord(name) + position for position in range(prompt)]
    return Request(name, tokens, SamplingParams(max_new_tokens=num_new))


def make_scheduler(scenario: Scenario, row: int = 16, **methods) -> Scheduler:
    """A scheduler over an empty pool. Some of its methods are replaced by `methods`.

    row: the entries of a row of the block table.
    """
    most = scenario.max_num_seqs
    manager = PagedAttentionManager(scenario.num_blocks, scenario.block_size, 1, 2, most, row)
    cache = PrefixCache(manager, scenario.sharing)
    scheduler = Scheduler(manager, cache, scenario.token_budget, most)
    for name, method in methods.items():
        setattr(scheduler, name, types.MethodType(method, scheduler))
    return scheduler


class WithoutModel:
    """What an engine has besides its model: a class of engines is derived from this first."""

    def __init__(self, pool: Scenario, end_tokens):
        self.scheduler = make_scheduler(pool)
        self.manager, self.prefix_cache = self.scheduler.manager, self.scheduler.prefix_cache
        self.end_tokens, self.history, self.requests = frozenset(end_tokens), None, {}

    def begin(self, request: Request):
        """Lets a request run. It has no room yet."""
        self.requests[request.id] = request
        self.manager.start(request.id, 0, [])
        self.scheduler.running.append(request)


def run(scenario: Scenario, **methods) -> tuple:
    """A Step for each step of a scenario. An error ends it, as its last entry, in words."""
    scheduler = make_scheduler(scenario, **methods)
    requests = {name: make_request(name, *those) for name, *those, _ in scenario.requests}
    arrivals = {name: step for name, _, _, step in scenario.requests}
    trace: list[Step] = []

    def note(when: str, scheduled=()):
        trace.append(state(scheduler, when, scheduled, [*requests.values()]))

    for number in range(MAX_NUM_STEPS):
        scheduler.waiting += [requests[name] for name in requests if arrivals[name] == number]
        when = f"before step {number}"
        try:
            scheduler.token_budget = dict(scenario.budgets).get(number, scheduler.token_budget)
            for step, name, more in scenario.more_tokens:
                requests[name].tokens += [0] * (more if step == number else 0)
            for name in (name for step, name in scenario.given_way if step == number):
                scheduler.preempt(requests[name])
                note(when)
            when = f"in step {number}"
            scheduled = pairs(scheduler.schedule())
            note(when, scheduled)
            compute(scheduler, scheduled)
        except NotImplementedError:
            raise
        except NotPairs as error:
            return *trace, Text(f"{when} it returns {error}")
        except Exception as error:
            words, where = f"{when}: {type(error).__name__}", raised(error).where
            if "sequence Request(" in str(error):
                words += " for a Request instead of its id"
            return *trace, Failed(words, str(error), where, queues(scheduler))
        if not scheduler.has_work() and max(arrivals.values()) <= number:
            note("at the end")
            return tuple(trace)
    return *trace, Text(f"no end after {MAX_NUM_STEPS} steps")


def pairs(scheduled) -> list[tuple[Request, int]]:
    """What schedule() returned. Raises NotPairs for all but pairs of request and integer."""
    if not isinstance(scheduled, list | tuple):
        raise NotPairs(type(scheduled).__name__)
    for entry in scheduled:
        match entry:
            case Request(), number if hasattr(number, "__index__"):
                continue
            case tuple() | list():
                words = f"({', '.join(type(part).__name__ for part in entry)})"
            case _:
                words = type(entry).__name__
        raise NotPairs(f"a list with {words}")
    return [(request, operator.index(number)) for request, number in scheduled]


def state(scheduler: Scheduler, when: str, scheduled, requests: list[Request]) -> Step:
    """All that can be seen from outside. Of blocks it is how many are free, not which."""
    manager, running, waiting = scheduler.manager, scheduler.running, scheduler.waiting
    there = [request for request in requests if request in running or request in waiting]
    ended = [request for request in requests if request.reason is not None]
    num_users = manager.block_manager.get_ref_count
    users = [num_users(block_id) for block_id in scheduler.prefix_cache.blocks.values()]

    def each(those, name: str) -> tuple:
        return tuple((request.id, getattr(request, name)) for request in those)

    return Step(
        when,
        tuple((request.id, num_tokens) for request, num_tokens in scheduled),
        tuple(request.id for request in running),
        tuple(request.id for request in waiting),
        tuple((request.id, len(request.tokens)) for request in there),
        each(there, "num_computed"),
        each(there, "num_inserted"),
        each(requests, "num_preempted"),
        each(ended, "reason"),
        tuple(sorted((name, sequence.length) for name, sequence in manager.sequences.items())),
        manager.block_manager.get_num_free_blocks() + users.count(1),
    )


def queues(scheduler: Scheduler) -> str:
    """The requests that run and wait, and whatever else an answer has put there."""
    both = (scheduler.running, scheduler.waiting)
    ids = ([str(getattr(request, "id", "?")) for request in queue] for queue in both)
    return " | ".join(map(" ".join, ids))


def compute(scheduler: Scheduler, scheduled: list[tuple[Request, int]]) -> None:
    """What the model, the prefix cache and postprocess() do in a step.

    The next token is the number of those before it.
    """
    for request, num_tokens in scheduled:
        scheduler.prefix_cache.insert(request, request.num_computed + num_tokens)
        request.num_computed += num_tokens
        if not request.num_uncomputed:
            request.tokens.append(len(request.tokens))
            if len(request.output) == request.params.max_new_tokens:
                scheduler.remove(request)


def admit(scheduler: Scheduler, request: Request, generated: str = "") -> None:
    """What the engine does with a request that generates this text.

    The last token is not computed.
    """
    Scheduler.start(scheduler, request)
    scheduler.running.append(request)
    for letter in generated or [""]:
        if not scheduler.make_room(request, request.num_uncomputed):
            raise AssertionError("the case is too large for its pool")
        request.num_computed = len(request.tokens)
        scheduler.prefix_cache.insert(request, request.num_computed)
        request.tokens += map(ord, letter)


def show(expected, actual) -> tuple[str, str]:
    """For `Exercise.show`: the first step in which two runs differ, and of it what differs."""
    if not (isinstance(expected, tuple) and isinstance(actual, tuple)):
        return repr(expected), repr(actual)
    steps, ends = zip(expected, actual, strict=False), (expected[-1], actual[-1])
    ours, theirs = next(((our, their) for our, their in steps if our != their), ends)
    names = ["scheduled", "running", "waiting"]
    if isinstance(ours, Step) and isinstance(theirs, Step):
        every = [field.name for field in fields(Step)]
        differing = [name for name in every if getattr(ours, name) != getattr(theirs, name)]
        names = [name for name in differing[:3] if name != "when"]
    both = (ours, theirs)
    return tuple(step.text(names) if isinstance(step, Step) else repr(step) for step in both)


def size(scenario: Scenario) -> tuple[int, int, int]:
    """Requests, tokens, and what else happens."""
    tokens = sum(_length(prompt) + num_new for _, prompt, num_new, _ in scenario.requests)
    events = (*scenario.given_way, *scenario.budgets, *scenario.more_tokens)
    return len(scenario.requests), tokens, len(events)


def _length(prompt: str | int) -> int:
    return prompt if isinstance(prompt, int) else len(prompt)


def describe(scenario: Scenario) -> str:
    """A scenario in a learner's words."""
    those = []
    for name, prompt, num_new, step in scenario.requests:
        of = f"{prompt!r}" if isinstance(prompt, str) else f"of {prompt}"
        comes = f", comes in step {step}" if step else ""
        those.append(f"{name} (prompt {of}, {num_new} new{comes})")
    those += [f"{name} is preempted before step {step}" for step, name in scenario.given_way]
    for step, name, more in scenario.more_tokens:
        those.append(f"{name} gets {counted(more, 'more token')} before step {step}")
    those += [f"token_budget is {most} from step {step} on" for step, most in scenario.budgets]
    return (
        f"{counted(scenario.num_blocks, 'block')} of {scenario.block_size}, token_budget "
        f"{scenario.token_budget}, max_num_seqs {scenario.max_num_seqs}; {', '.join(those)}"
    )


def _in_words(step: Step, name: str) -> str:
    value = getattr(step, name)
    words = name if name.startswith("num_") else name.replace("_", " ")
    if isinstance(value, int):
        return f"{words} {value}"
    each = [entry if isinstance(entry, str) else f"{entry[0]}: {entry[1]}" for entry in value]
    return f"{words} [{', '.join(each)}]"
