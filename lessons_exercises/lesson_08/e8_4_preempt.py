"""Exercise 8.4: a request gives its blocks back."""

import copy
from collections import deque

import torch

from lessons_exercises.lesson_08 import scheduling
from lessons_exercises.lesson_08.scheduling import Scenario
from lessons_lib.checks import Exercise, Mistake
from paged_attention.engine.scheduler import Scheduler


def generator_seeded_again(self, request):
    request.generator.manual_seed(request.params.seed)


def new_generator(self, request):
    request.generator = torch.Generator().manual_seed(request.params.seed)


def waiting_as_a_list(self, request):
    self.waiting = [request, *self.waiting]


def count(self, request):
    request.num_preempted += 1


def first(self, request):
    self.waiting.appendleft(request)


def last(self, request):
    self.waiting.append(request)


def second(self, request):
    """Before all that wait but the first."""
    self.waiting.insert(1, request)


def out(self, request):
    self.running.remove(request)


def pop(self, request):
    self.running.pop()


def pop_first(self, request):
    self.running.pop(0)


def another_first(self, request):
    """The last that runs leaves, and is the one that waits."""
    self.waiting.appendleft(self.running.pop())


def free_by_request(self, request):
    self.manager.free_sequence(request)


def computed_is_prompt(self, request):
    self.stop(request)
    request.num_computed = len(request.prompt)


def those_behind_too(self, request):
    for other in reversed(self.running[self.running.index(request) :]):
        Scheduler.preempt(self, other)


def those_behind_too_turned_round(self, request):
    """The first of them comes to stand behind the others."""
    for other in list(self.running[self.running.index(request) :]):
        Scheduler.preempt(self, other)


def second_last(self, request):
    self.waiting.insert(-1, request)


def empty(self, request):
    self.running.clear()


def nothing(self, request):
    pass


def wrong(stop=Scheduler.stop, leave=out, wait=first, counted=count, more=nothing):
    """A preempt() that differs from ours in one of its parts."""

    def preempt(self, request):
        stop(self, request)
        leave(self, request)
        wait(self, request)
        counted(self, request)
        more(self, request)

    return preempt


def free_only(self, request):
    self.manager.free_sequence(request.id)


def free_and_forget_computed(self, request):
    self.manager.free_sequence(request.id)
    request.num_computed = 0


def free_and_forget_inserted(self, request):
    self.manager.free_sequence(request.id)
    request.num_inserted = 0


def computed_only(self, request):
    request.num_computed = 0


def both_numbers_only(self, request):
    request.num_computed = request.num_inserted = 0


def stopped_twice(self, request):
    self.stop(request)
    self.stop(request)


def freed_twice(self, request):
    self.stop(request)
    self.manager.free_sequence(request.id)


def blocks_freed_before(self, request):
    for block_id in self.manager.blocks_of(request.id):
        self.manager.block_manager.free(block_id)
    self.stop(request)


def blocks_freed_only(self, request):
    for block_id in self.manager.blocks_of(request.id):
        self.manager.block_manager.free(block_id)
    request.num_computed = request.num_inserted = 0


def blocks_freed_and_computed_set(self, request):
    for block_id in self.manager.blocks_of(request.id):
        self.manager.block_manager.free(block_id)
    request.num_computed = 0


def blocks_freed_and_nothing_set(self, request):
    for block_id in self.manager.blocks_of(request.id):
        self.manager.block_manager.free(block_id)


def prompt_again(self, request):
    request.tokens = list(request.prompt)


def prompt_emptied(self, request):
    request.tokens.clear()


def prompt_itself(self, request):
    """The generated tokens are gone, and the next ones grow the prompt, too."""
    request.tokens = request.prompt


def prompt_is_tokens(self, request):
    request.prompt = request.tokens


def last_token_lost(self, request):
    request.tokens.pop()


def output_joins_prompt(self, request):
    """As if what was generated were part of the prompt from now on."""
    request.prompt = list(request.tokens)


def last_one(self, request):
    Scheduler.preempt(self, self.running[-1])


def count_set(self, request):
    request.num_preempted = 1


def removed(self, request):
    self.remove(request)
    self.waiting.appendleft(request)


def ended(self, request):
    self.remove(request)
    count(self, request)


def cancelled(self, request):
    Scheduler.preempt(self, request)
    request.reason = "preempted"


def anew(request):
    return type(request)(request.id, request.tokens, request.params)


def prompt_anew(request):
    return type(request)(request.id, request.prompt, request.params)


def another_waits(make):
    """Not the request itself waits, but make(request)."""

    def wait(self, request):
        other = make(request)
        other.num_preempted = request.num_preempted + 1
        self.waiting.appendleft(other)

    return wait


def sorted_by(key, put):
    """Counts first, then sorts all that wait."""

    def wait(self, request):
        count(self, request)
        put(self, request)
        self.waiting = deque(sorted(self.waiting, key=key))

    return wait


def by_id(request):
    return request.id


def by_count(request):
    return -request.num_preempted


def cache_cleared(self, request):
    self.prefix_cache.clear()


def cache_cleared_and_stop(self, request):
    self.prefix_cache.clear()
    self.stop(request)


def one_place_less(self, request):
    self.max_num_seqs -= 1


FOUR = (("A", 2, 3, 0), ("B", 2, 3, 0), ("C", 2, 3, 0), ("D", 2, 2, 0))
CASES = [
    Scenario((("A", 1, 1, 0), ("B", 1, 3, 0)), given_way=((1, "B"),)),
    Scenario((("A", 3, 3, 0), ("B", 3, 3, 0)), given_way=((1, "B"),)),
    Scenario((("A", 3, 4, 0), ("B", 3, 6, 0)), given_way=((2, "B"), (3, "B"))),
    Scenario((("A", 3, 4, 0), ("B", 3, 6, 0)), given_way=((2, "B"), (3, "B"), (3, "A"))),
    Scenario((("A", 3, 3, 0), ("B", 2, 3, 0), ("C", 1, 3, 0)), given_way=((1, "A"),)),
    Scenario((("A", 3, 3, 0), ("B", 2, 3, 0), ("C", 1, 3, 0)), given_way=((1, "B"),)),
    Scenario(FOUR, max_num_seqs=2, given_way=((1, "B"),)),
    Scenario(FOUR, max_num_seqs=2, given_way=((1, "B"), (1, "A"))),
    Scenario(
        (("C", 2, 3, 0), ("A", 2, 3, 0), ("B", 2, 2, 0), ("D", 2, 2, 0)),
        max_num_seqs=3,
        given_way=((1, "B"), (1, "C")),
    ),
    Scenario((("A", 11, 2, 0), ("B", 3, 2, 0)), token_budget=5, given_way=((1, "A"),)),
    Scenario((("A", 3, 6, 0), ("B", 3, 6, 0)), num_blocks=5),
    Scenario((("A", 4, 4, 0), ("B", 4, 4, 0), ("C", 4, 3, 1)), num_blocks=4),
    Scenario(
        (("A", "abcdef", 4, 0), ("B", "abcdxyz", 4, 1)),
        sharing=True,
        token_budget=16,
        given_way=((2, "B"), (3, "A")),
    ),
    Scenario(
        (("A", "abcd", 5, 0), ("B", "abcdx", 6, 0), ("C", "uvwx", 2, 0)),
        num_blocks=6,
        token_budget=5,
        sharing=True,
    ),
    Scenario(
        (("A", 7, 6, 0), ("B", 9, 4, 0), ("C", 2, 7, 1), ("D", 5, 3, 2)),
        num_blocks=9,
        token_budget=5,
        max_num_seqs=3,
    ),
]

EXERCISE = Exercise(
    id="8.4",
    title="preempt a request",
    answer_name="preempt",
    reference=Scheduler.preempt,
    cases=lambda: CASES,
    size=scheduling.size,
    hidden=scheduling.hidden,
    observe=lambda answer, scenario: scheduling.run(scenario, preempt=answer),
    describe=scheduling.describe,
    show=scheduling.show,
    mistakes=(
        Mistake(
            "to-the-end-of-the-queue",
            "The request waits behind all others. "
            "It came before them and has been computed in part already: it is the next.",
            wrong(wait=last),
        ),
        Mistake(
            "second-in-the-queue",
            "The request waits behind another one. It came before all that wait.",
            wrong(wait=second),
            also=(wrong(wait=second_last),),
        ),
        Mistake(
            "not-waiting",
            "The request has left `running` and waits nowhere: "
            "nobody will ever go on with it.",
            wrong(wait=nothing),
            also=(ended,),
        ),
        Mistake(
            "generated-tokens-forgotten",
            "The tokens that were generated are gone. "
            "Only their keys and values are: the tokens are read again, with the prompt.",
            wrong(more=prompt_again),
            also=(wrong(more=prompt_itself),),
        ),
        Mistake(
            "tokens-lost",
            "The request's tokens are not what they were. Nothing of them changes: "
            "prompt and generated tokens stay, and what belongs to the prompt too.",
            wrong(more=prompt_emptied),
            also=(
                wrong(more=last_token_lost),
                wrong(more=output_joins_prompt),
                wrong(more=prompt_is_tokens),
            ),
        ),
        Mistake(
            "num-computed-stays",
            "The blocks are gone, and num_computed still counts the tokens in them. "
            "Their keys and values have to be computed again. "
            "`stop` sets everything back that belongs to the blocks.",
            wrong(stop=free_only),
            also=(wrong(stop=free_and_forget_inserted), wrong(stop=computed_is_prompt)),
        ),
        Mistake(
            "num-inserted-stays",
            "The blocks are gone, and num_inserted still counts those that the prefix cache "
            "was told of. `stop` sets everything back that belongs to the blocks.",
            wrong(stop=free_and_forget_computed),
        ),
        Mistake(
            "blocks-kept",
            "The request waits, and still has its blocks and its row of the block table. "
            "That others get them is what it gives way for.",
            wrong(stop=nothing),
            also=(wrong(stop=computed_only), wrong(stop=both_numbers_only)),
        ),
        Mistake(
            "row-kept",
            "The request's blocks are free, and its row of the block table still names them. "
            "`stop` gives both back.",
            wrong(stop=blocks_freed_only),
            also=(
                wrong(stop=blocks_freed_and_computed_set),
                wrong(stop=blocks_freed_and_nothing_set),
            ),
        ),
        Mistake(
            "freed-twice",
            "What belongs to the request is given back twice. `stop` does all of it.",
            wrong(stop=stopped_twice),
            also=(wrong(stop=freed_twice), wrong(stop=blocks_freed_before)),
        ),
        Mistake(
            "request-for-its-id",
            "The manager knows sequences by their ids and got a request. "
            "`stop` calls it the right way.",
            wrong(stop=free_by_request),
        ),
        Mistake(
            "id-for-request",
            "`stop` and the two queues take the request itself, and one of them got its id.",
            wrong(stop=lambda self, request: self.stop(request.id)),
            also=(
                wrong(wait=lambda self, request: self.waiting.appendleft(request.id)),
                wrong(wait=lambda self, request: self.waiting.append(request.id)),
                wrong(leave=lambda self, request: self.running.remove(request.id)),
            ),
        ),
        Mistake(
            "still-running",
            "The request waits, and is still among those that run.",
            wrong(leave=nothing),
        ),
        Mistake(
            "another-one-leaves",
            "Not the request that gives way has left `running`, "
            "but the one at its end or at its front. It may be any.",
            wrong(leave=pop),
            also=(wrong(leave=pop_first), wrong(leave=another_first, wait=nothing)),
        ),
        Mistake(
            "those-behind-too",
            "The requests behind it have given way as well. "
            "One is preempted; whether that is enough, the caller sees.",
            those_behind_too,
            also=(those_behind_too_turned_round,),
        ),
        Mistake(
            "last-one-preempted",
            "Not the request of the argument gives way, but the last that runs. "
            "Which one it is, the caller decides.",
            last_one,
        ),
        Mistake(
            "nobody-runs",
            "All requests have left `running`. One gives way, the others go on.",
            wrong(leave=empty),
        ),
        Mistake(
            "not-counted",
            "num_preempted does not grow. It says how often the request had to give way.",
            wrong(counted=nothing),
            also=(removed,),
        ),
        Mistake(
            "counted-once",
            "A request can give way more than once, and num_preempted stays at 1.",
            wrong(counted=count_set),
        ),
        Mistake(
            "generator-begun-again",
            "The request's generator begins at its seed again. "
            "Its tokens stay, so the next draw is the one behind theirs: "
            "from the seed on, the same draws would come a second time.",
            wrong(more=generator_seeded_again),
            also=(wrong(more=new_generator),),
        ),
        Mistake(
            "waiting-is-a-list",
            "`self.waiting` has become a list. It was a deque, "
            "from whose left end the scheduler takes the next one. It has to remain a deque.",
            wrong(wait=waiting_as_a_list),
        ),
        Mistake(
            "another-one-waits",
            "A new object waits in place of the request, a copy of it or another `Request`. "
            "The request itself has to wait: the engine knows this one.",
            wrong(wait=another_waits(copy.copy), counted=nothing),
            also=tuple(
                wrong(wait=another_waits(make), counted=counted)
                for make, counted in (
                    (copy.copy, count),
                    (anew, nothing),
                    (anew, count),
                    (prompt_anew, nothing),
                    (prompt_anew, count),
                )
            ),
        ),
        Mistake(
            "queue-sorted",
            "The queue was sorted. The request comes to its front, "
            "and the others stay in the order in which they stood.",
            wrong(wait=sorted_by(by_id, last), counted=nothing),
            also=tuple(
                wrong(wait=sorted_by(key, put), counted=nothing)
                for key, put in ((by_id, first), (by_count, last), (by_count, first))
            ),
        ),
        Mistake(
            "max-num-seqs-changed",
            "`max_num_seqs` is another number afterwards. "
            "It is a limit, not a count: the request's place is free for the next one.",
            wrong(more=one_place_less),
        ),
        Mistake(
            "prefix-cache-cleared",
            "The prefix cache was emptied. "
            "Others share its blocks, and this request will when it comes back. "
            "Where memory is short, `make_room` takes blocks from the cache.",
            wrong(more=cache_cleared),
            also=(wrong(stop=cache_cleared_and_stop),),
        ),
        Mistake(
            "ended", "The request has a reason, as if it had ended. It only waits.", cancelled
        ),
    ),
    hints=(
        "Which two lists change, and which end of `waiting` is served first?",
        (
            "What does the request have in the pool, "
            "and which method of the scheduler takes all of that away?"
        ),
        (
            "Four things: its blocks, its place among those that run, "
            "its place among those that wait, and a number."
        ),
    ),
)
