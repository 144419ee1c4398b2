"""Exercise 8.3: the next step's requests."""

import functools

from lessons_exercises.lesson_08 import scheduling
from lessons_exercises.lesson_08.schedulers import (
    admit,
    admits_if,
    admitting,
    all_tokens,
    as_generator,
    as_long_as,
    asked_once,
    asking_the_manager,
    budget_for_each,
    budget_forgotten,
    budget_used_up,
    budget_used_up_by,
    counted_as_computed,
    decodes_only,
    dictionary,
    drop,
    drop_without_stop,
    even_shares,
    everything,
    from_whole_budget,
    given_up,
    gives_up_at_once,
    gives_way_itself,
    ids_for_requests,
    ids_in_one_half,
    itself_too,
    last_come_first,
    limit_ignored,
    listed_with_all,
    lose,
    never_ends,
    newcomer_displaces,
    newcomer_ends_the_step,
    newcomer_preempts,
    no_room_made,
    no_second_try,
    nobody_new,
    nothing_refused,
    number_before_start,
    number_left,
    oldest_at_each_look,
    oldest_by_index,
    one_above_the_limit,
    one_below_the_limit,
    one_gives_way_and_stop,
    one_token_held_back,
    only_stop,
    only_when_nobody_runs,
    others_give_way,
    overtaking,
    pop_then_preempt,
    preempt_and_queue,
    preempt_then_drop,
    preempt_then_pop,
    prompt_tokens,
    prompt_tokens_left,
    requests_alone,
    returns_nothing,
    room_alone,
    room_for_all,
    room_twice,
    room_unheard,
    running_by,
    running_left_out,
    running_unlisted,
    sees_itself,
    shut_out,
    started_in_front,
    stop_and_queue,
    stop_and_send_back,
    stops_at_no_room,
    swapped_pairs,
    uncounted,
    victim_asks,
    victims_too,
    waiting_before_running,
    waiting_first,
    waits_for_room,
    without_budget,
    without_looking_at_the_queue,
    wrong,
    zeros_listed,
)
from lessons_exercises.lesson_08.scheduling import Scenario
from lessons_lib.checks import Exercise, Mistake
from paged_attention.engine.scheduler import Scheduler

CASES = [
    Scenario((("A", 1, 1, 0),)),
    Scenario((("A", 3, 2, 0),)),
    Scenario((("A", 5, 2, 0),), token_budget=4),
    Scenario((("A", 1, 1, 0), ("B", 1, 1, 0))),
    Scenario((("A", 3, 3, 0), ("B", 3, 3, 0)), token_budget=4),
    Scenario((("A", 2, 4, 0), ("B", 6, 2, 1)), token_budget=4),
    Scenario((("A", 1, 2, 0), ("B", 2, 2, 0), ("C", 1, 1, 0)), max_num_seqs=2),
    Scenario((("A", 1, 3, 0), ("B", 1, 3, 0), ("C", 1, 3, 1)), token_budget=2),
    Scenario((("A", "abcdef", 2, 0), ("B", "abcdxyz", 2, 1)), token_budget=16, sharing=True),
    Scenario((("A", 3, 6, 0), ("B", 3, 6, 0)), num_blocks=5),
    Scenario((("A", 4, 4, 0), ("B", 4, 4, 0)), num_blocks=4),
    Scenario((("A", 4, 4, 0), ("B", 8, 2, 0), ("C", 1, 2, 0)), num_blocks=6, token_budget=16),
    Scenario(
        (("A", 2, 4, 0), ("B", 1, 4, 0), ("C", 3, 3, 0)), num_blocks=4, budgets=((1, 3),)
    ),
    Scenario((("A", 3, 5, 0), ("B", 2, 5, 1), ("C", 3, 4, 1)), num_blocks=5, token_budget=3),
    Scenario(
        (("A", 4, 6, 0), ("B", 2, 2, 0), ("C", 3, 3, 2)), num_blocks=5, given_way=((1, "A"),)
    ),
    Scenario(
        (("A", 7, 6, 0), ("B", 9, 4, 0), ("C", 2, 7, 1), ("D", 5, 3, 2)),
        num_blocks=9,
        token_budget=5,
        max_num_seqs=3,
    ),
    Scenario(
        (("A", 1, 4, 0), ("B", 1, 4, 0), ("C", 6, 2, 0)),
        token_budget=5,
        budgets=((1, 1), (3, 2), (5, 8)),
    ),
    Scenario(
        (("A", "abcdef", 4, 0), ("B", "abcdxyz", 4, 0), ("C", "abcdef", 3, 2)),
        token_budget=5,
        sharing=True,
    ),
    Scenario(
        (("A", 20, 3, 0), ("B", 30, 3, 0), ("C", 3, 9, 3)),
        num_blocks=14,
        block_size=3,
        token_budget=11,
    ),
]

EXERCISE = Exercise(
    id="8.3",
    title="schedule the next step",
    answer_name="schedule",
    reference=Scheduler.schedule,
    cases=lambda: CASES,
    size=scheduling.size,
    hidden=scheduling.hidden,
    observe=lambda answer, scenario: scheduling.run(scenario, schedule=answer),
    describe=scheduling.describe,
    show=scheduling.show,
    points=3,
    mistakes=(
        Mistake(
            "budget-ignored",
            "A step has more tokens than token_budget. "
            "A long prompt is read in chunks, over several steps.",
            wrong(number=everything),
            also=(wrong(new_number=everything), without_budget, listed_with_all),
        ),
        Mistake(
            "budget-for-each-request",
            "Each request alone stays within the budget, and the step as a whole does not. "
            "What has been given to one is not left for the next.",
            budget_for_each,
            also=(
                wrong(admit=admitting(Scheduler.stop, spend=False)),
                from_whole_budget(True, False),
                from_whole_budget(False, True),
                from_whole_budget(True, True),
                from_whole_budget(False, False, spends=(False, True)),
            ),
        ),
        Mistake(
            "token-budget-changed",
            "`self.token_budget` is used up after some steps. "
            "Each step has all of it again: count down a number of your own.",
            budget_used_up,
            also=(budget_used_up_by(True), budget_used_up_by(False)),
        ),
        Mistake(
            "even-shares",
            "Those that run get equal parts of the budget, "
            "and what one of them does not need is not left for the next. "
            "In the order of `running`, each takes what it can use of all that is left.",
            even_shares(
                lambda self, num_running, budget: self.token_budget // len(self.running)
            ),
            also=(
                even_shares(
                    lambda self, num_running, budget: min(
                        budget, max(1, self.token_budget // num_running)
                    )
                ),
                even_shares(
                    lambda self, num_running, budget: min(
                        budget, self.token_budget // num_running
                    )
                ),
            ),
        ),
        Mistake(
            "one-token-held-back",
            "The step has one token fewer than token_budget allows, "
            "and a request could use it. All of the budget may be given away.",
            one_token_held_back,
        ),
        Mistake(
            "second-budget",
            "Those that wait get a budget of their own. "
            "It is one for the whole step; they get what those that run leave.",
            wrong(budget_for_new=lambda budget, whole: whole),
        ),
        Mistake(
            "waiting-before-running",
            "Those that wait are served before those that run. "
            "They take the budget and the blocks of requests that hold memory already.",
            waiting_before_running,
            also=(waiting_first,),
        ),
        Mistake(
            "admits-after-preemption",
            "Somebody had to give way in this step, and somebody is started in it as well. "
            "That would use up the room just made.",
            wrong(always_admit=True),
            also=(
                admits_if(lambda before, request, victims: bool(victims)),
                admits_if(lambda before, request, victims: before or request in victims),
                admits_if(
                    lambda before, request, victims: (
                        before or bool(victims) and request not in victims
                    )
                ),
            ),
        ),
        Mistake(
            "shut-out-for-good",
            "A request that gave way in an earlier step keeps those that wait "
            "from being started. It counts only whether somebody gave way in this step.",
            shut_out(lambda waiting: waiting[0].num_preempted),
            also=(
                shut_out(lambda waiting: any(request.num_preempted for request in waiting)),
            ),
        ),
        Mistake(
            "max-num-seqs-ignored",
            "More requests run than max_num_seqs allows: the block table has no row for them.",
            wrong(admit=limit_ignored),
            also=(wrong(admit=one_above_the_limit),),
        ),
        Mistake(
            "one-fewer-than-max-num-seqs",
            "One more request could run: max_num_seqs itself is allowed.",
            wrong(admit=one_below_the_limit),
        ),
        Mistake(
            "queue-counted",
            "Those that wait are counted against max_num_seqs as well. "
            "It says how many may run: a long queue takes nobody's place.",
            wrong(
                admit=as_long_as(
                    lambda self: len(self.running) + len(self.waiting) <= self.max_num_seqs
                )
            ),
            also=(
                wrong(
                    admit=as_long_as(
                        lambda self: len(self.running) + len(self.waiting) < self.max_num_seqs
                    )
                ),
                wrong(admit=as_long_as(lambda self: len(self.waiting) <= self.max_num_seqs)),
                wrong(admit=as_long_as(lambda self: len(self.waiting) < self.max_num_seqs)),
            ),
        ),
        Mistake(
            "head-of-line-overtaken",
            "The first in the queue does not fit, and one behind it is taken. "
            "A long prompt would wait as long as short ones keep coming.",
            wrong(admit=overtaking(Scheduler.stop)),
            also=(wrong(admit=overtaking(lambda self, request: None)),),
        ),
        Mistake(
            "last-come-first-served",
            "The request that came last is taken first. "
            "The earliest stands at the left of `waiting`.",
            wrong(admit=last_come_first),
        ),
        Mistake(
            "preempts-the-oldest",
            "The request that has run the longest gives way. "
            "It is the nearest to its end; the last one has the least to lose.",
            wrong(victim=0),
            also=(oldest_by_index, oldest_at_each_look),
        ),
        Mistake(
            "gives-way-itself",
            "A request without room gives way itself, while later ones go on. "
            "The last that runs has to.",
            running_by(gives_way_itself),
        ),
        Mistake(
            "waits-for-room",
            "There is no room for a request that runs, and nobody gives way. "
            "When all that run want a block, none of them can go on.",
            running_by(waits_for_room),
            also=(stops_at_no_room,),
        ),
        Mistake(
            "last-never-gives-way",
            "The last that runs has no room and does not give way itself. "
            "The last is preempted, whoever it is.",
            running_by(others_give_way),
        ),
        Mistake(
            "room-not-looked-at",
            "`make_room` said False, and the request is in the step all the same. "
            "There is no place for its keys and values.",
            running_by(asked_once),
            also=(wrong(admit=room_unheard),),
        ),
        Mistake(
            "room-made-twice",
            "Room is made twice for the same tokens. `make_room` has done it when it says "
            "True: the next call is about further tokens.",
            running_by(room_twice),
            also=tuple(
                wrong(admit=admitting(Scheduler.stop, more_room=more_room))
                for more_room in (lambda num_tokens: 1, lambda num_tokens: num_tokens)
            ),
        ),
        Mistake(
            "no-second-try",
            "The last one has given its blocks back, and the request for which it did "
            "is not in the step. Try again after each that gives way.",
            running_by(no_second_try),
        ),
        Mistake(
            "victim-scheduled",
            "A request that has given its blocks back is still in the step, "
            "or is still asked for. It has no row of the block table any more.",
            running_by(victims_too),
            also=(running_by(itself_too), running_by(victim_asks)),
        ),
        Mistake(
            "victim-lost",
            "A request that gave way is nowhere any more: neither waiting nor running. "
            "`preempt` puts it back.",
            wrong(give_way=drop),
            also=(wrong(give_way=Scheduler.remove),),
        ),
        Mistake(
            "victim-not-preempted",
            "A request that gives way has to go through `preempt`: "
            "it takes its blocks back, counts, and puts it before all others that wait.",
            wrong(give_way=only_stop),
            also=(wrong(give_way=drop_without_stop), wrong(give_way=uncounted)),
        ),
        Mistake(
            "more-than-preempt",
            "`preempt` does all of it: it takes the request out of `running` "
            "and its blocks away, and puts it in front of those that wait. "
            "You do a part of that yourself as well.",
            wrong(give_way=pop_then_preempt),
            also=(
                wrong(give_way=preempt_and_queue),
                wrong(give_way=preempt_then_pop),
                running_by(preempt_then_drop(lambda self, victim: self.running.pop())),
                running_by(
                    preempt_then_drop(lambda self, victim: self.running.remove(victim))
                ),
            ),
        ),
        Mistake(
            "started-not-stopped",
            "A request was started, found no room, and still has a row of the block table, "
            "and maybe shared blocks. Who cannot go on after `start` has to be stopped.",
            wrong(admit=admitting()),
            also=(wrong(admit=admitting(on_no_room=Scheduler.preempt)),),
        ),
        Mistake(
            "twice-in-the-queue",
            "A request found no room, and stands in the queue twice. "
            "It has not left it: look at where you take it off.",
            wrong(admit=admitting(on_no_room=stop_and_queue)),
            also=(running_by(sees_itself, admitting(on_no_room=stop_and_queue)),),
        ),
        Mistake(
            "sent-to-the-end",
            "The first that waits finds no room and goes to the end of the queue. "
            "It stays the first.",
            wrong(admit=admitting(on_no_room=stop_and_send_back)),
        ),
        Mistake(
            "queue-is-empty",
            "Nobody waits any more, and the first of the queue is asked for.",
            without_looking_at_the_queue(lambda waiting: waiting[0]),
            also=(without_looking_at_the_queue(lambda waiting: waiting.popleft()),),
        ),
        Mistake(
            "lost-without-room",
            "A request left the queue, found no room, and is nowhere now. "
            "Take it off the queue when it has its room.",
            wrong(admit=admitting(on_no_room=Scheduler.stop, pop_first=True)),
            also=(
                wrong(admit=admitting(on_no_room=lose)),
                wrong(admit=admitting(pop_first=True)),
            ),
        ),
        Mistake(
            "search-never-ends",
            "There is no room for the first that waits, and the search goes "
            "on with it for ever. Nothing will be free before the next step.",
            wrong(admit=admitting(on_no_room=never_ends)),
        ),
        Mistake(
            "newcomer-displaces",
            "There is no room for a request that waits, and one that runs had to give way "
            "for it. Only those that run make others give way; who waits goes on waiting.",
            wrong(admit=newcomer_displaces),
            also=(
                wrong(admit=newcomer_preempts(True)),
                wrong(admit=newcomer_preempts(False)),
                wrong(admit=admitting(on_no_room=one_gives_way_and_stop)),
            ),
        ),
        Mistake(
            "no-tokens-scheduled",
            "The budget is used up, and a request gets 0 tokens. "
            "Who runs goes on running and is left out of the step; who waits goes on waiting.",
            running_by(nothing_refused),
            also=(running_by(zeros_listed), wrong(admit=budget_forgotten)),
        ),
        Mistake(
            "whole-prompt-or-nothing",
            "A prompt that is longer than what is left of the budget waits, "
            "though part of it could be read now.",
            wrong(
                admit=admitting(
                    Scheduler.stop,
                    fits=lambda request, budget: request.num_uncomputed <= budget,
                )
            ),
        ),
        Mistake(
            "one-token-each",
            "A request that runs gets one token. "
            "In the middle of its prompt it has more to compute, and the budget allows more.",
            wrong(number=lambda request, budget: min(1, budget), new_number=number_left),
            also=(wrong(number=lambda request, budget: 1, new_number=number_left),),
        ),
        Mistake(
            "decodes-only",
            "A request that runs and is in the middle of its prompt is passed over. "
            "The rest of its prompt comes in the next steps.",
            running_by(decodes_only),
        ),
        Mistake(
            "computed-ones-again",
            "A request's tokens that are computed already are counted, too. "
            "How many are left, `num_uncomputed` says.",
            wrong(number=all_tokens),
            also=(wrong(number=all_tokens, new_number=number_left),),
        ),
        Mistake(
            "prompt-only",
            "Of a request that is started, the prompt is counted. "
            "The prefix cache may have some of them, "
            "and one that was preempted has generated tokens to compute too.",
            wrong(new_number=prompt_tokens),
            also=(wrong(new_number=prompt_tokens_left),),
        ),
        Mistake(
            "waits-for-the-batch",
            "Nobody is started as long as somebody runs. "
            "Whether there is budget and room is asked before each step.",
            only_when_nobody_runs,
        ),
        Mistake(
            "counts-as-computed",
            "num_computed has changed. "
            "Nothing is computed yet: exercise 8.8 counts it, when it is.",
            counted_as_computed(True, True),
            also=(counted_as_computed(True, False), counted_as_computed(False, True)),
        ),
        Mistake(
            "step-given-up",
            "Somebody had to give way, and those that have their room are not in what "
            "is returned. They compute in this step; only nobody is started.",
            given_up([]),
            also=(given_up(None), gives_up_at_once),
        ),
        Mistake(
            "one-token-of-a-prompt",
            "Of a new prompt one token is read in each step, though the budget allows more.",
            wrong(number=lambda request, budget: min(1, budget)),
            also=(wrong(new_number=lambda request, budget: min(1, budget)),),
        ),
        Mistake(
            "one-newcomer-a-step",
            "One request is started in each step. As many are as have budget and room.",
            wrong(admit=functools.partial(admit, most=1)),
        ),
        Mistake(
            "nobody-is-started", "Nobody that waits is ever started.", wrong(admit=nobody_new)
        ),
        Mistake(
            "counted-before-start",
            "Tokens that the prefix cache has are counted among those to compute. "
            "`start` finds them, and changes `num_computed`: what do you look at, and when?",
            wrong(admit=number_before_start),
        ),
        Mistake(
            "not-started",
            "A request that leaves the queue has no row of the block table. "
            "`start` gives it one.",
            wrong(admit=admitting(Scheduler.stop, start=False)),
        ),
        Mistake(
            "not-running",
            "A request computes in the step and is not among those that run. "
            "Nobody will go on with it.",
            wrong(admit=admitting(Scheduler.stop, append=False)),
        ),
        Mistake(
            "still-waiting",
            "A request runs, and still stands in the queue.",
            wrong(admit=admitting(Scheduler.stop, pop=False)),
            also=(running_by(sees_itself, admitting(Scheduler.stop, pop=False)),),
        ),
        Mistake(
            "running-left-out",
            "Only those that wait are looked at. "
            "Those that run have tokens to compute in each step.",
            running_left_out,
        ),
        Mistake(
            "not-in-the-result",
            "A request has got its room, and is not in the list that is returned: "
            "nobody will compute its tokens.",
            wrong(admit=admitting(Scheduler.stop, listed=False)),
            also=(running_unlisted, running_by(room_alone)),
        ),
        Mistake(
            "no-room-made",
            "A request has tokens to compute and no place for them. `make_room` appends them "
            "to its blocks, for those that run and for those that are started.",
            wrong(admit=admitting(Scheduler.stop, room="none")),
            also=(running_by(no_room_made),),
        ),
        Mistake(
            "manager-asked-for-room",
            "The manager was asked for room itself, and it raises where there is none. "
            "`make_room` asks it too: it gives back what only the prefix cache uses, "
            "and it says False where that is not enough.",
            asking_the_manager(True, True),
            also=(asking_the_manager(True, False), asking_the_manager(False, True)),
        ),
        Mistake(
            "room-for-all-tokens",
            "Room is made for all that a request has left, "
            "and not for the tokens of this step.",
            wrong(admit=admitting(Scheduler.stop, room="all")),
            also=(running_by(room_for_all),),
        ),
        Mistake(
            "newcomer-ends-the-step",
            "A request that waits found no room, and those that have theirs are not in what "
            "is returned. They compute in this step all the same.",
            newcomer_ends_the_step([]),
            also=(newcomer_ends_the_step(None),),
        ),
        Mistake(
            "started-in-front",
            "A request that is started stands before those that run already. "
            "`running` has the earliest first: its last is the one that gives way.",
            wrong(admit=started_in_front),
        ),
        Mistake(
            "token-beyond-the-budget",
            "The budget is used up, and a request that runs gets a token all the same. "
            "The budget is for the whole step: who gets nothing goes on in a later one.",
            wrong(
                number=lambda request, budget: max(1, number_left(request, budget)),
                new_number=number_left,
            ),
            also=(
                wrong(
                    number=lambda request, budget: (
                        1
                        if request.num_uncomputed == 1
                        else number_left(request, max(0, budget))
                    ),
                    new_number=number_left,
                ),
            ),
        ),
        Mistake(
            "not-pairs",
            "What is returned is not a list of pairs, "
            "each a request and its number of tokens.",
            requests_alone,
            also=(
                ids_for_requests,
                swapped_pairs,
                dictionary,
                ids_in_one_half(True),
                ids_in_one_half(False),
                as_generator,
            ),
        ),
        Mistake(
            "returns-nothing",
            "The function returns nothing. "
            "The step needs the list of requests and their numbers of tokens.",
            returns_nothing,
        ),
    ),
    hints=(
        (
            "Two halves: those that run, in the order of `running`; then those that wait, "
            "in the order of `waiting`. One budget goes through both."
        ),
        (
            "For one that runs: as long as `make_room` says False and it still runs itself, "
            "the last of `running` is preempted. It may be the one that asked."
        ),
        (
            "`preempt` changes `running` while you go through it. "
            "What do you walk over, and how do you notice that a request is no longer there?"
        ),
        (
            "For one that waits: look at `waiting[0]`, start it, make room. "
            "Only when that worked does it leave the queue; otherwise it is stopped, "
            "and so is the search."
        ),
    ),
)
