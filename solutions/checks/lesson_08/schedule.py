"""Exercise 8.3: the next step's requests."""

import functools

from lessons_lib.checks import Exercise, Mistake, NoEnd
from lessons_lib.engine.scheduler import Scheduler
from solutions.checks.lesson_08 import scheduling
from solutions.checks.lesson_08.scheduling import Scenario


def number_left(request, budget):
    return min(request.num_uncomputed, budget)


def compute_running(self, budget, number, victim=-1, give_way=Scheduler.preempt):
    """The first half: those that run. Returns what they compute, and the rest of the budget."""
    scheduled = []
    for request in list(self.running):
        num_tokens = number(request, budget)
        while request in self.running and num_tokens and not self.make_room(request, num_tokens):
            give_way(self, self.running[victim])
        if request in self.running and num_tokens:
            scheduled.append((request, num_tokens))
            budget -= num_tokens
    return scheduled, budget


def admit(self, budget, number, most=None):
    """The second half: those that wait. Returns what they compute, and the rest of the budget."""
    scheduled = []
    while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs and len(scheduled) != most:
        request = self.waiting[0]
        self.start(request)
        num_tokens = number(request, budget)
        if not self.make_room(request, num_tokens):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        scheduled.append((request, num_tokens))
        budget -= num_tokens
    return scheduled, budget


def wrong(number=number_left, new_number=None, admit=admit, always_admit=False, budget_for_new=lambda budget, whole: budget,
          **differences):
    """A schedule() that differs from ours in one of its parts."""
    def schedule(self):
        num_running = len(self.running)
        scheduled, budget = compute_running(self, self.token_budget, number, **differences)
        if len(self.running) < num_running and not always_admit:
            return scheduled
        return scheduled + admit(self, budget_for_new(budget, self.token_budget), new_number or number)[0]
    return schedule


def from_whole_budget(first, second, spends=(True, True)):
    """A wrong answer that takes the step's whole budget for what is left of it, in the first or the second half."""
    def schedule(self):
        scheduled, budget, num_running, whole = [], self.token_budget, len(self.running), self.token_budget
        for request in list(self.running):
            num_tokens = number_left(request, whole if first else budget)
            while request in self.running and num_tokens and not self.make_room(request, num_tokens):
                self.preempt(self.running[-1])
            if request in self.running and num_tokens:
                scheduled.append((request, num_tokens))
                budget -= num_tokens if spends[0] else 0
        while len(self.running) >= num_running and self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            self.start(request)
            num_tokens = number_left(request, whole if second else budget)
            if not self.make_room(request, num_tokens):
                self.stop(request)
                break
            self.running.append(self.waiting.popleft())
            scheduled.append((request, num_tokens))
            budget -= num_tokens if spends[1] else 0
        return scheduled
    return schedule


def budget_used_up(self):
    """Counts down the scheduler's own budget, for all steps."""
    scheduled = Scheduler.schedule(self)
    self.token_budget -= sum(num_tokens for _, num_tokens in scheduled)
    return scheduled


def all_tokens(request, budget):
    return min(len(request.tokens), budget)


def prompt_tokens(request, budget):
    return min(len(request.prompt), budget)


def counted_as_computed(of_running, of_new):
    def schedule(self):
        running = list(self.running)
        scheduled = Scheduler.schedule(self)
        for request, num_tokens in scheduled:
            request.num_computed += num_tokens if (of_running if request in running else of_new) else 0
        return scheduled
    return schedule


def listed_with_all(self):
    """The numbers are right where room is made, and wrong in the list."""
    running = list(self.running)
    return [(request, num_tokens if request in running else request.num_uncomputed)
            for request, num_tokens in Scheduler.schedule(self)]


def only_when_nobody_runs(self):
    if self.running:
        most, self.max_num_seqs = self.max_num_seqs, 0
        try:
            return Scheduler.schedule(self)
        finally:
            self.max_num_seqs = most
    return Scheduler.schedule(self)


def admits_if(keeps_out):
    """A wrong answer in which not every preemption keeps those that wait out of the step."""
    def schedule(self):
        scheduled, budget, kept_out = [], self.token_budget, False
        for request in list(self.running):
            if request not in self.running:
                continue
            victims, num_tokens = [], number_left(request, budget)
            while request in self.running and num_tokens and not self.make_room(request, num_tokens):
                victims.append(self.running[-1])
                self.preempt(victims[-1])
            kept_out = keeps_out(kept_out, request, victims)
            if request in self.running and num_tokens:
                scheduled.append((request, num_tokens))
                budget -= num_tokens
        return scheduled if kept_out else scheduled + admit(self, budget, number_left)[0]
    return schedule


def given_up(result):
    def schedule(self):
        num_running = len(self.running)
        scheduled, budget = compute_running(self, self.token_budget, number_left)
        if len(self.running) < num_running:
            return result
        return scheduled + admit(self, budget, number_left)[0]
    return schedule


def gives_up_at_once(self):
    scheduled, budget = [], self.token_budget
    for request in list(self.running):
        num_tokens = number_left(request, budget)
        if num_tokens and not self.make_room(request, num_tokens):
            self.preempt(self.running[-1])
            return scheduled
        if num_tokens:
            scheduled.append((request, num_tokens))
            budget -= num_tokens
    return scheduled + admit(self, budget, number_left)[0]


def without_looking_at_the_queue(take):
    """A wrong answer whose second half goes on while nobody waits."""
    def admit_anybody(self, budget, number):
        if self.waiting or not budget or len(self.running) >= self.max_num_seqs:
            scheduled, budget = admit(self, budget, number)
            if self.waiting or not budget or len(self.running) >= self.max_num_seqs:
                return scheduled, budget
        return take(self.waiting)
    return wrong(admit=admit_anybody)


def everything(request, budget):
    return request.num_uncomputed


def without_budget(self):
    given, self.token_budget = self.token_budget, 1_000
    try:
        return Scheduler.schedule(self)
    finally:
        self.token_budget = given


def budget_for_each(self):
    """Nobody's tokens are taken off the budget."""
    scheduled, num_running = [], len(self.running)
    for request in list(self.running):
        num_tokens = number_left(request, self.token_budget)
        while request in self.running and not self.make_room(request, num_tokens):
            self.preempt(self.running[-1])
        if request in self.running:
            scheduled.append((request, num_tokens))
    new = len(self.running) == num_running
    while new:
        new, _ = admit(self, self.token_budget, number_left, most=1)
        scheduled += new
    return scheduled


def waiting_first(self):
    scheduled, budget = admit(self, self.token_budget, number_left)
    new = [request for request, _ in scheduled]
    for request in [request for request in self.running if request not in new]:
        num_tokens = number_left(request, budget)
        while request in self.running and num_tokens and not self.make_room(request, num_tokens):
            self.preempt(self.running[-1])
        if request in self.running and num_tokens:
            scheduled.append((request, num_tokens))
            budget -= num_tokens
    return [(request, num_tokens) for request, num_tokens in scheduled if request in self.running]


def waiting_before_running(self):
    """The two halves in the other order; a newcomer is looked at again among those that run."""
    scheduled, budget = admit(self, self.token_budget, number_left)
    new = {request for request, _ in scheduled}
    more, _ = compute_running(self, budget, lambda request, budget: 0 if request in new else number_left(request, budget))
    return scheduled + more


def limit_ignored(self, budget, number):
    most, self.max_num_seqs = self.max_num_seqs, 1_000
    try:
        return admit(self, budget, number)
    finally:
        self.max_num_seqs = most


def one_above_the_limit(self, budget, number):
    self.max_num_seqs += 1
    try:
        return admit(self, budget, number)
    finally:
        self.max_num_seqs -= 1


def one_below_the_limit(self, budget, number):
    self.max_num_seqs -= 1
    try:
        return admit(self, budget, number)
    finally:
        self.max_num_seqs += 1


def overtaking(stop):
    def admit(self, budget, number):
        scheduled = []
        for request in list(self.waiting):
            if not budget or len(self.running) >= self.max_num_seqs:
                break
            self.start(request)
            num_tokens = number(request, budget)
            if not self.make_room(request, num_tokens):
                stop(self, request)
                continue
            self.waiting.remove(request)
            self.running.append(request)
            scheduled.append((request, num_tokens))
            budget -= num_tokens
        return scheduled, budget
    return admit


def last_come_first(self, budget, number):
    self.waiting.reverse()
    try:
        return admit(self, budget, number)
    finally:
        self.waiting.reverse()


def admitting(on_no_room=None, pop_first=False, start=True, append=True, pop=True, fits=None, room=None, spend=True,
              listed=True):
    """The second half with a place for each mistake."""
    def admit(self, budget, number):
        scheduled = []
        while self.waiting and budget and len(self.running) < self.max_num_seqs:
            request = self.waiting.popleft() if pop_first else self.waiting[0]
            if fits and not fits(request, budget):
                break
            if start:
                self.start(request)
            num_tokens = number(request, budget)
            if room != "none" and not self.make_room(request, request.num_uncomputed if room == "all" else num_tokens):
                if on_no_room:
                    on_no_room(self, request)
                break
            if pop and not pop_first:
                self.waiting.popleft()
            if append:
                self.running.append(request)
            if listed:
                scheduled.append((request, num_tokens))
            if spend:
                budget -= num_tokens
        return scheduled, budget
    return admit


def newcomer_displaces(self, budget, number):
    """Takes for those that wait what is done for those that run."""
    scheduled = []
    while self.waiting and budget and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        num_tokens = number(request, budget)
        while not self.make_room(request, num_tokens) and self.running:
            self.stop(self.running[-1])
            self.waiting.append(self.running.pop())
        self.running.append(self.waiting.popleft())
        scheduled.append((request, num_tokens))
        budget -= num_tokens
    return [(request, num_tokens) for request, num_tokens in scheduled if request in self.running], budget


def newcomer_preempts(self, budget, number):
    scheduled = []
    while self.waiting and budget and len(self.running) < self.max_num_seqs:
        request = self.waiting.popleft()
        self.start(request)
        num_tokens = number(request, budget)
        while not self.make_room(request, num_tokens):
            self.preempt(self.running[-1])
        self.running.append(request)
        scheduled.append((request, num_tokens))
        budget -= num_tokens
    return scheduled, budget


def newcomer_preempts_from_the_queue(self, budget, number):
    """As newcomer_preempts(); the request leaves the queue last, and somebody else may be its first by then."""
    scheduled = []
    while self.waiting and budget and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        num_tokens = number(request, budget)
        while not self.make_room(request, num_tokens):
            self.preempt(self.running[-1])
        self.waiting.popleft()
        self.running.append(request)
        scheduled.append((request, num_tokens))
        budget -= num_tokens
    return scheduled, budget


def room_unheard(self, budget, number):
    scheduled = []
    while self.waiting and budget and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        num_tokens = number(request, budget)
        self.make_room(request, num_tokens)
        self.running.append(self.waiting.popleft())
        scheduled.append((request, num_tokens))
        budget -= num_tokens
    return scheduled, budget


def number_before_start(self, budget, number):
    scheduled = []
    while self.waiting and budget and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        num_tokens = number(request, budget)
        self.start(request)
        if not self.make_room(request, num_tokens):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        scheduled.append((request, num_tokens))
        budget -= num_tokens
    return scheduled, budget


def running_left_out(self):
    return admit(self, self.token_budget, number_left)[0]


def running_unlisted(self):
    running = list(self.running)
    return [(request, num_tokens) for request, num_tokens in Scheduler.schedule(self) if request not in running]


def running_by(each, admit=admit):
    """A wrong answer whose first half is each(self, request, num_tokens): True where the request is to be scheduled."""
    def schedule(self):
        scheduled, budget, num_running = [], self.token_budget, len(self.running)
        for request in list(self.running):
            num_tokens = number_left(request, budget)
            if each(self, request, num_tokens):
                scheduled.append((request, num_tokens))
                budget -= num_tokens
        if len(self.running) < num_running:
            return scheduled
        return scheduled + admit(self, budget, number_left)[0]
    return schedule


def victims_too(self, request, num_tokens):
    while num_tokens and not self.make_room(request, num_tokens):
        self.preempt(self.running[-1])
    return num_tokens > 0


def itself_too(self, request, num_tokens):
    if request not in self.running or not num_tokens:
        return False
    while request in self.running and not self.make_room(request, num_tokens):
        self.preempt(self.running[-1])
    return True


def victim_asks(self, request, num_tokens):
    """Sees that a request itself gives way, and not that it has given way to an earlier one."""
    while num_tokens and not self.make_room(request, num_tokens):
        victim = self.running[-1]
        self.preempt(victim)
        if victim is request:
            return False
    return num_tokens > 0


def sees_itself(self, request, num_tokens):
    """No mistake: another form of the first half, which differs from ours where a request stands twice in a list."""
    if request not in self.running or not num_tokens:
        return False
    while not self.make_room(request, num_tokens):
        victim = self.running[-1]
        self.preempt(victim)
        if victim is request:
            return False
    return True


def asked_once(self, request, num_tokens):
    """Goes by what make_room() said in the first place."""
    if request in self.running and num_tokens:
        self.make_room(request, num_tokens)
    return request in self.running and num_tokens > 0


def others_give_way(self, request, num_tokens):
    """Whoever is the last itself stays where it is."""
    if request not in self.running or not num_tokens:
        return False
    while not self.make_room(request, num_tokens):
        if self.running[-1] is request:
            return False
        self.preempt(self.running[-1])
    return True


def room_twice(self, request, num_tokens):
    done = zeros_listed(self, request, num_tokens) and num_tokens > 0
    return done and (self.make_room(request, num_tokens) or True)


def decodes_only(self, request, num_tokens):
    return request.num_uncomputed == 1 and num_tokens > 0 and zeros_listed(self, request, num_tokens)


def stops_at_no_room(self):
    scheduled, budget = [], self.token_budget
    for request in list(self.running):
        num_tokens = number_left(request, budget)
        if num_tokens and not self.make_room(request, num_tokens):
            break
        if num_tokens:
            scheduled.append((request, num_tokens))
            budget -= num_tokens
    return scheduled + admit(self, budget, number_left)[0]


def nothing_refused(self, request, num_tokens):
    while request in self.running and not self.make_room(request, num_tokens):
        self.preempt(self.running[-1])
    return request in self.running


def zeros_listed(self, request, num_tokens):
    while request in self.running and num_tokens and not self.make_room(request, num_tokens):
        self.preempt(self.running[-1])
    return request in self.running


def no_second_try(self, request, num_tokens):
    if request not in self.running or not num_tokens:
        return False
    if not self.make_room(request, num_tokens):
        self.preempt(self.running[-1])
        return False
    return True


def gives_way_itself(self, request, num_tokens):
    if not num_tokens:
        return False
    if not self.make_room(request, num_tokens):
        self.preempt(request)
        return False
    return True


def waits_for_room(self, request, num_tokens):
    return bool(num_tokens) and self.make_room(request, num_tokens)


def room_alone(self, request, num_tokens):
    zeros_listed(self, request, num_tokens)
    return False


def no_room_made(self, request, num_tokens):
    return num_tokens > 0


def room_for_all(self, request, num_tokens):
    while request in self.running and num_tokens and not self.make_room(request, request.num_uncomputed):
        self.preempt(self.running[-1])
    return request in self.running and num_tokens > 0


def budget_forgotten(self, budget, number):
    scheduled = []
    while self.waiting and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        num_tokens = number(request, budget)
        if not self.make_room(request, num_tokens):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        scheduled.append((request, num_tokens))
        budget -= num_tokens
    return scheduled, budget


def never_ends(self, request):
    raise NoEnd


def drop(self, request):
    self.stop(request)
    self.running.remove(request)


def drop_without_stop(self, request):
    self.running.remove(request)
    self.waiting.appendleft(request)


def only_stop(self, request):
    self.stop(request)
    self.running.remove(request)
    self.waiting.append(request)


def pop_then_preempt(self, request):
    self.preempt(self.running.pop(self.running.index(request)))


def preempt_and_queue(self, request):
    self.preempt(request)
    self.waiting.appendleft(request)


def uncounted(self, request):
    self.stop(request)
    self.running.remove(request)
    self.waiting.appendleft(request)


def stop_and_queue(self, request):
    self.stop(request)
    self.waiting.appendleft(request)


def stop_and_send_back(self, request):
    self.stop(request)
    self.waiting.remove(request)
    self.waiting.append(request)


def dictionary(self):
    return dict(Scheduler.schedule(self))


def swapped_pairs(self):
    return [(num_tokens, request) for request, num_tokens in Scheduler.schedule(self)]


def lose(self, request):
    self.stop(request)
    self.waiting.remove(request)


def nobody_new(self, budget, number):
    return [], budget


def ids_for_requests(self):
    return [(request.id, num_tokens) for request, num_tokens in Scheduler.schedule(self)]


def requests_alone(self):
    return [request for request, _ in Scheduler.schedule(self)]


def returns_nothing(self):
    Scheduler.schedule(self)


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
    Scenario((("A", 2, 4, 0), ("B", 1, 4, 0), ("C", 3, 3, 0)), num_blocks=4, budgets=((1, 3),)),
    Scenario((("A", 3, 5, 0), ("B", 2, 5, 1), ("C", 3, 4, 1)), num_blocks=5, token_budget=3),
    Scenario((("A", 4, 6, 0), ("B", 2, 2, 0), ("C", 3, 3, 2)), num_blocks=5, given_way=((1, "A"),)),
    Scenario((("A", 7, 6, 0), ("B", 9, 4, 0), ("C", 2, 7, 1), ("D", 5, 3, 2)), num_blocks=9, token_budget=5, max_num_seqs=3),
    Scenario((("A", 1, 4, 0), ("B", 1, 4, 0), ("C", 6, 2, 0)), token_budget=5, budgets=((1, 1), (3, 2), (5, 8))),
    Scenario((("A", "abcdef", 4, 0), ("B", "abcdxyz", 4, 0), ("C", "abcdef", 3, 2)), token_budget=5, sharing=True),
    Scenario((("A", 20, 3, 0), ("B", 30, 3, 0), ("C", 3, 9, 3)), num_blocks=14, block_size=3, token_budget=11),
]

EXERCISE = Exercise(
    id="8.3",
    title="who computes what in the next step",
    answer_name="schedule",
    reference=Scheduler.schedule,
    cases=lambda: CASES,
    observe=lambda answer, scenario: scheduling.run(scenario, schedule=answer),
    describe=scheduling.describe,
    show=scheduling.show,
    points=3,
    mistakes=(
        Mistake("budget-ignored",
                "A step has more tokens than token_budget. A long prompt is read in chunks, over several steps.",
                wrong(number=everything), also=(wrong(new_number=everything), without_budget, listed_with_all)),
        Mistake("budget-for-each-request",
                "Each request alone stays within the budget, and the step as a whole does not. What has been given to one "
                "is not left for the next.",
                budget_for_each,
                also=(wrong(admit=admitting(Scheduler.stop, spend=False)), from_whole_budget(True, False),
                      from_whole_budget(False, True), from_whole_budget(True, True),
                      from_whole_budget(False, False, spends=(False, True)))),
        Mistake("token-budget-changed",
                "`self.token_budget` is used up after some steps. Each step has all of it again: count down a number of "
                "your own.",
                budget_used_up),
        Mistake("second-budget",
                "Those that wait get a budget of their own. It is one for the whole step; they get what those that run "
                "leave.",
                wrong(budget_for_new=lambda budget, whole: whole)),
        Mistake("waiting-before-running",
                "Those that wait are served before those that run. They take the budget and the blocks of requests that "
                "hold memory already.",
                waiting_before_running, also=(waiting_first,)),
        Mistake("admits-after-preemption",
                "Somebody had to give way in this step, and somebody is started in it as well. That would use up the room "
                "just made.",
                wrong(always_admit=True),
                also=(admits_if(lambda before, request, victims: bool(victims)),
                      admits_if(lambda before, request, victims: before or request in victims),
                      admits_if(lambda before, request, victims: before or bool(victims) and request not in victims))),
        Mistake("max-num-seqs-ignored",
                "More requests run than max_num_seqs allows: the block table has no row for them.",
                wrong(admit=limit_ignored), also=(wrong(admit=one_above_the_limit),)),
        Mistake("one-fewer-than-max-num-seqs",
                "One more request could run: max_num_seqs itself is allowed.",
                wrong(admit=one_below_the_limit)),
        Mistake("head-of-line-overtaken",
                "The first in the queue does not fit, and one behind it is taken. A long prompt would wait as long as short "
                "ones keep coming.",
                wrong(admit=overtaking(Scheduler.stop)), also=(wrong(admit=overtaking(lambda self, request: None)),)),
        Mistake("last-come-first-served",
                "The request that came last is taken first. The earliest stands at the left of `waiting`.",
                wrong(admit=last_come_first)),
        Mistake("preempts-the-oldest",
                "The request that has run the longest gives way. It is the nearest to its end; the last one has the least "
                "to lose.",
                wrong(victim=0)),
        Mistake("gives-way-itself",
                "A request without room gives way itself, while later ones go on. The last that runs has to.",
                running_by(gives_way_itself)),
        Mistake("waits-for-room",
                "There is no room for a request that runs, and nobody gives way. When all that run want a block, none of "
                "them can go on.",
                running_by(waits_for_room), also=(stops_at_no_room,)),
        Mistake("last-never-gives-way",
                "The last that runs has no room and does not give way itself. The last is preempted, whoever it is.",
                running_by(others_give_way)),
        Mistake("room-not-looked-at",
                "`make_room` said False, and the request is in the step all the same. There is no place for its keys and "
                "values.",
                running_by(asked_once), also=(wrong(admit=room_unheard),)),
        Mistake("room-made-twice",
                "Room is made twice for the same tokens. `make_room` has done it when it says True.",
                running_by(room_twice)),
        Mistake("no-second-try",
                "The last one has given its blocks back, and the request for which it did is not in the step. Try again "
                "after each that gives way.",
                running_by(no_second_try)),
        Mistake("victim-scheduled",
                "A request that has given its blocks back is still in the step, or is still asked for. It has no row of the "
                "block table any more.",
                running_by(victims_too), also=(running_by(itself_too), running_by(victim_asks))),
        Mistake("victim-lost",
                "A request that gave way is nowhere any more: neither waiting nor running. `preempt` puts it back.",
                wrong(give_way=drop), also=(wrong(give_way=Scheduler.remove),)),
        Mistake("victim-not-preempted",
                "A request that gives way has to go through `preempt`: it takes its blocks back, counts, and puts it before "
                "all others that wait.",
                wrong(give_way=only_stop),
                also=(wrong(give_way=drop_without_stop), wrong(give_way=uncounted))),
        Mistake("more-than-preempt",
                "`preempt` does all of it: it takes the request out of `running` and its blocks away, and puts it in front "
                "of those that wait. You do a part of that yourself as well.",
                wrong(give_way=pop_then_preempt), also=(wrong(give_way=preempt_and_queue),)),
        Mistake("started-not-stopped",
                "A request was started, found no room, and still has a row of the block table, and maybe shared blocks. Who "
                "cannot go on after `start` has to be stopped.",
                wrong(admit=admitting()), also=(wrong(admit=admitting(on_no_room=Scheduler.preempt)),)),
        Mistake("twice-in-the-queue",
                "A request found no room, and stands in the queue twice. It has not left it: look at where you take it off.",
                wrong(admit=admitting(on_no_room=stop_and_queue)),
                also=(running_by(sees_itself, admitting(on_no_room=stop_and_queue)),)),
        Mistake("sent-to-the-end",
                "The first that waits finds no room and goes to the end of the queue. It stays the first.",
                wrong(admit=admitting(on_no_room=stop_and_send_back))),
        Mistake("queue-is-empty",
                "Nobody waits any more, and the first of the queue is asked for.",
                without_looking_at_the_queue(lambda waiting: waiting[0]),
                also=(without_looking_at_the_queue(lambda waiting: waiting.popleft()),)),
        Mistake("lost-without-room",
                "A request left the queue, found no room, and is nowhere now. Take it off the queue when it has its room.",
                wrong(admit=admitting(on_no_room=Scheduler.stop, pop_first=True)),
                also=(wrong(admit=admitting(on_no_room=lose)), wrong(admit=admitting(pop_first=True)))),
        Mistake("search-never-ends",
                "There is no room for the first that waits, and the search goes on with it for ever. Nothing will be free "
                "before the next step.",
                wrong(admit=admitting(on_no_room=never_ends))),
        Mistake("newcomer-displaces",
                "There is no room for a request that waits, and one that runs had to give way for it. Only those that run "
                "make others give way; who waits goes on waiting.",
                wrong(admit=newcomer_displaces),
                also=(wrong(admit=newcomer_preempts), wrong(admit=newcomer_preempts_from_the_queue))),
        Mistake("no-tokens-scheduled",
                "The budget is used up, and a request gets 0 tokens. Who runs goes on running and is left out of the step; "
                "who waits goes on waiting.",
                running_by(nothing_refused), also=(running_by(zeros_listed), wrong(admit=budget_forgotten))),
        Mistake("whole-prompt-or-nothing",
                "A prompt that is longer than what is left of the budget waits, though part of it could be read now.",
                wrong(admit=admitting(Scheduler.stop, fits=lambda request, budget: request.num_uncomputed <= budget))),
        Mistake("one-token-each",
                "A request that runs gets one token. In the middle of its prompt it has more to compute, and the budget "
                "allows more.",
                wrong(number=lambda request, budget: min(1, budget), new_number=number_left),
                also=(wrong(number=lambda request, budget: 1, new_number=number_left),)),
        Mistake("decodes-only",
                "A request that runs and is in the middle of its prompt is passed over. The rest of its prompt comes in the "
                "next steps.",
                running_by(decodes_only)),
        Mistake("computed-ones-again",
                "A request's tokens that are computed already are counted, too. How many are left, `num_uncomputed` says.",
                wrong(number=all_tokens), also=(wrong(number=all_tokens, new_number=number_left),)),
        Mistake("prompt-only",
                "Of a request that is started, the prompt is counted. The prefix cache may have some of them, and "
                "one that was preempted has generated tokens to compute too.",
                wrong(new_number=prompt_tokens)),
        Mistake("waits-for-the-batch",
                "Nobody is started as long as somebody runs. Whether there is budget and room is asked before each step.",
                only_when_nobody_runs),
        Mistake("counts-as-computed",
                "num_computed has changed. Nothing is computed yet: exercise 8.8 counts it, when it is.",
                counted_as_computed(True, True),
                also=(counted_as_computed(True, False), counted_as_computed(False, True))),
        Mistake("step-given-up",
                "Somebody had to give way, and those that have their room are not in what is returned. They compute in this "
                "step; only nobody is started.",
                given_up([]), also=(given_up(None), gives_up_at_once)),
        Mistake("one-token-of-a-prompt",
                "Of a new prompt one token is read in each step, though the budget allows more.",
                wrong(number=lambda request, budget: min(1, budget)),
                also=(wrong(new_number=lambda request, budget: min(1, budget)),)),
        Mistake("one-newcomer-a-step",
                "One request is started in each step. As many are as have budget and room.",
                wrong(admit=functools.partial(admit, most=1))),
        Mistake("nobody-is-started",
                "Nobody that waits is ever started.",
                wrong(admit=nobody_new)),
        Mistake("counted-before-start",
                "The number of tokens was taken before `start`. It finds out how many of them the prefix cache has; they "
                "need no computing.",
                wrong(admit=number_before_start)),
        Mistake("not-started",
                "A request that leaves the queue has no row of the block table. `start` gives it one.",
                wrong(admit=admitting(Scheduler.stop, start=False))),
        Mistake("not-running",
                "A request computes in the step and is not among those that run. Nobody will go on with it.",
                wrong(admit=admitting(Scheduler.stop, append=False))),
        Mistake("still-waiting",
                "A request runs, and still stands in the queue.",
                wrong(admit=admitting(Scheduler.stop, pop=False)),
                also=(running_by(sees_itself, admitting(Scheduler.stop, pop=False)),)),
        Mistake("running-left-out",
                "Only those that wait are looked at. Those that run have tokens to compute in each step.",
                running_left_out),
        Mistake("not-in-the-result",
                "A request has got its room, and is not in the list that is returned: nobody will compute its tokens.",
                wrong(admit=admitting(Scheduler.stop, listed=False)), also=(running_unlisted, running_by(room_alone))),
        Mistake("no-room-made",
                "A request has tokens to compute and no place for them. `make_room` appends them to its blocks, for those "
                "that run and for those that are started.",
                wrong(admit=admitting(Scheduler.stop, room="none")),
                also=(running_by(no_room_made),)),
        Mistake("room-for-all-tokens",
                "Room is made for all that a request has left, and not for the tokens of this step.",
                wrong(admit=admitting(Scheduler.stop, room="all")),
                also=(running_by(room_for_all),)),
        Mistake("not-pairs",
                "What is returned is not a list of pairs, each a request and its number of tokens.",
                requests_alone, also=(ids_for_requests, swapped_pairs, dictionary)),
        Mistake("returns-nothing",
                "The function returns nothing. The step needs the list of requests and their numbers of tokens.",
                returns_nothing),
    ),
    hints=(
        "Two halves: those that run, in the order of `running`; then those that wait, in the order of `waiting`. One budget "
        "goes through both.",
        "For one that runs: as long as `make_room` says False and it still runs itself, the last of `running` is preempted. "
        "It may be the one that asked.",
        "`preempt` changes `running` while you go through it. What do you walk over, and how do you notice that a request "
        "is no longer there?",
        "For one that waits: look at `waiting[0]`, start it, make room. Only when that worked does it leave the queue; "
        "otherwise it is stopped, and so is the search.",
    ),
)
