"""Wrong ways to schedule, for exercise 8.3.

They are ours in parts, each of which can be replaced by a wrong one.
"""

from lessons_lib.checks import NoEnd
from paged_attention.engine.scheduler import Scheduler


def number_left(request, budget):
    return min(request.num_uncomputed, budget)


def compute_running(self, budget, number, victim=-1, give_way=Scheduler.preempt):
    """The first half: those that run.

    Returns what they compute, and the rest of the budget.
    """
    scheduled = []
    for request in list(self.running):
        num_tokens = number(request, budget)
        while (
            request in self.running and num_tokens and not self.make_room(request, num_tokens)
        ):
            give_way(self, self.running[victim])
        if request in self.running and num_tokens:
            scheduled.append((request, num_tokens))
            budget -= num_tokens
    return scheduled, budget


def admit(self, budget, number, most=None):
    """The second half: those that wait.

    Returns what they compute, and the rest of the budget.
    """
    scheduled = []
    while (
        self.waiting
        and budget > 0
        and len(self.running) < self.max_num_seqs
        and len(scheduled) != most
    ):
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


def wrong(
    number=number_left,
    new_number=None,
    admit=admit,
    always_admit=False,
    budget_for_new=lambda budget, whole: budget,
    **differences,
):
    """A schedule() that differs from ours in one of its parts."""

    def schedule(self):
        num_running = len(self.running)
        scheduled, budget = compute_running(self, self.token_budget, number, **differences)
        if len(self.running) < num_running and not always_admit:
            return scheduled
        return (
            scheduled
            + admit(self, budget_for_new(budget, self.token_budget), new_number or number)[0]
        )

    return schedule


def from_whole_budget(first, second, spends=(True, True)):
    """A wrong answer that takes the step's whole budget for what is left of it.

    In the first or the second half.
    """

    def schedule(self):
        scheduled = []
        budget = self.token_budget
        num_running = len(self.running)
        whole = self.token_budget
        for request in list(self.running):
            num_tokens = number_left(request, whole if first else budget)
            while (
                request in self.running
                and num_tokens
                and not self.make_room(request, num_tokens)
            ):
                self.preempt(self.running[-1])
            if request in self.running and num_tokens:
                scheduled.append((request, num_tokens))
                budget -= num_tokens if spends[0] else 0
        while (
            len(self.running) >= num_running
            and self.waiting
            and budget > 0
            and len(self.running) < self.max_num_seqs
        ):
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


def even_shares(share):
    """Those that run have equal parts of the budget.

    share(self, how many ran, what is left of the budget) gives each its part.
    """

    def schedule(self):
        scheduled = []
        budget = self.token_budget
        num_running = len(self.running)
        for request in list(self.running):
            num_tokens = (
                min(request.num_uncomputed, share(self, num_running, budget))
                if request in self.running
                else 0
            )
            while (
                request in self.running
                and num_tokens
                and not self.make_room(request, num_tokens)
            ):
                self.preempt(self.running[-1])
            if request in self.running and num_tokens:
                scheduled.append((request, num_tokens))
                budget -= num_tokens
        return (
            scheduled
            if len(self.running) < num_running
            else scheduled + admit(self, budget, number_left)[0]
        )

    return schedule


def one_token_held_back(self):
    self.token_budget -= 1
    try:
        return Scheduler.schedule(self)
    finally:
        self.token_budget += 1


def budget_used_up(self):
    """Counts down the scheduler's own budget, for all steps."""
    scheduled = Scheduler.schedule(self)
    self.token_budget -= sum(num_tokens for _, num_tokens in scheduled)
    return scheduled


def budget_used_up_by(running):
    """As budget_used_up, but only a part is taken off.

    It is what those that run compute, or what the others do.
    """

    def schedule(self):
        before = list(self.running)
        scheduled = Scheduler.schedule(self)
        self.token_budget -= sum(
            num_tokens for request, num_tokens in scheduled if (request in before) == running
        )
        return scheduled

    return schedule


def all_tokens(request, budget):
    return min(len(request.tokens), budget)


def prompt_tokens(request, budget):
    return min(len(request.prompt), budget)


def prompt_tokens_left(request, budget):
    return min(len(request.prompt) - request.num_computed, budget)


def counted_as_computed(of_running, of_new):
    def schedule(self):
        running = list(self.running)
        scheduled = Scheduler.schedule(self)
        for request, num_tokens in scheduled:
            request.num_computed += (
                num_tokens if (of_running if request in running else of_new) else 0
            )
        return scheduled

    return schedule


def listed_with_all(self):
    """The numbers are right where room is made, and wrong in the list."""
    running = list(self.running)
    return [
        (request, num_tokens if request in running else request.num_uncomputed)
        for request, num_tokens in Scheduler.schedule(self)
    ]


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
        scheduled = []
        budget = self.token_budget
        kept_out = False
        for request in list(self.running):
            if request not in self.running:
                continue
            victims, num_tokens = [], number_left(request, budget)
            while (
                request in self.running
                and num_tokens
                and not self.make_room(request, num_tokens)
            ):
                victims.append(self.running[-1])
                self.preempt(victims[-1])
            kept_out = keeps_out(kept_out, request, victims)
            if request in self.running and num_tokens:
                scheduled.append((request, num_tokens))
                budget -= num_tokens
        return scheduled if kept_out else scheduled + admit(self, budget, number_left)[0]

    return schedule


def oldest_by_index(self):
    """Goes on with the next index when the first one that runs has given way."""
    scheduled = []
    budget = self.token_budget
    num_running = len(self.running)
    index = 0
    while index < len(self.running):
        request = self.running[index]
        num_tokens = number_left(request, budget)
        while (
            request in self.running and num_tokens and not self.make_room(request, num_tokens)
        ):
            self.preempt(self.running[0])
        if request in self.running:
            index += 1
            if num_tokens:
                scheduled.append((request, num_tokens))
                budget -= num_tokens
    return (
        scheduled
        if len(self.running) < num_running
        else scheduled + admit(self, budget, number_left)[0]
    )


def oldest_at_each_look(self):
    """Looks anew at the same index after each that gave way.

    By then another request stands there.
    """
    scheduled = []
    budget = self.token_budget
    num_running = len(self.running)
    index = 0
    while index < len(self.running) and budget:
        request = self.running[index]
        num_tokens = number_left(request, budget)
        if self.make_room(request, num_tokens):
            scheduled.append((request, num_tokens))
            budget -= num_tokens
            index += 1
        else:
            self.preempt(self.running[0])
    return (
        scheduled
        if len(self.running) < num_running
        else scheduled + admit(self, budget, number_left)[0]
    )


def newcomer_ends_the_step(result):
    """What is returned when one that waits finds no room."""

    def schedule(self):
        given = len(self.waiting)
        scheduled = Scheduler.schedule(self)
        budget = self.token_budget - sum(num_tokens for _, num_tokens in scheduled)
        gave_way = len(self.waiting) > given
        stopped = (
            self.waiting and budget and len(self.running) < self.max_num_seqs and not gave_way
        )
        return result if stopped else scheduled

    return schedule


def shut_out(is_shut_out):
    """Starts nobody as long as is_shut_out(waiting), which goes by who has ever given way."""

    def schedule(self):
        scheduled, budget = compute_running(self, self.token_budget, number_left)
        while self.waiting and not is_shut_out(self.waiting):
            new, budget = admit(self, budget, number_left, most=1)
            if not new:
                break
            scheduled += new
        return scheduled

    return schedule


def preempt_then_drop(drop):
    """For the first half: takes another request out of `running` as well."""

    def each(self, request, num_tokens):
        if request not in self.running or not num_tokens:
            return False
        while not self.make_room(request, num_tokens):
            victim = self.running[-1]
            self.preempt(victim)
            drop(self, victim)
            if victim is request:
                return False
        return True

    return each


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
        while (
            request in self.running and num_tokens and not self.make_room(request, num_tokens)
        ):
            self.preempt(self.running[-1])
        if request in self.running and num_tokens:
            scheduled.append((request, num_tokens))
            budget -= num_tokens
    return [
        (request, num_tokens) for request, num_tokens in scheduled if request in self.running
    ]


def waiting_before_running(self):
    """The two halves in the other order.

    A newcomer is looked at again among those that run.
    """
    scheduled, budget = admit(self, self.token_budget, number_left)
    new = {request for request, _ in scheduled}
    more, _ = compute_running(
        self,
        budget,
        lambda request, budget: 0 if request in new else number_left(request, budget),
    )
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


def as_long_as(there_is_a_place):
    """The second half with another look at the limit."""

    def admit_some(self, budget, number):
        scheduled, new = [], True
        while new and there_is_a_place(self):
            new, budget = admit(self, budget, number, most=1)
            scheduled += new
        return scheduled, budget

    return admit_some


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


def started_in_front(self, budget, number):
    """The second half puts those that it starts before those that run."""
    num_running = len(self.running)
    scheduled, budget = admit(self, budget, number)
    self.running = self.running[num_running:][::-1] + self.running[:num_running]
    return scheduled, budget


def last_come_first(self, budget, number):
    self.waiting.reverse()
    try:
        return admit(self, budget, number)
    finally:
        self.waiting.reverse()


def admitting(
    on_no_room=None,
    pop_first=False,
    start=True,
    append=True,
    pop=True,
    fits=None,
    room=None,
    spend=True,
    listed=True,
    more_room=lambda num_tokens: 0,
):
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
            if more_room(num_tokens):
                self.make_room(request, more_room(num_tokens))
            if room != "none" and not self.make_room(
                request, request.num_uncomputed if room == "all" else num_tokens
            ):
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
    return [
        (request, num_tokens) for request, num_tokens in scheduled if request in self.running
    ], budget


def one_gives_way_and_stop(self, request):
    """A newcomer without room: the last that runs is preempted, and nobody is started."""
    if self.running:
        self.preempt(self.running[-1])
    self.stop(request)


def newcomer_preempts(pop_first):
    """Who is popped last may no longer be the first of the queue by then.

    Another is popped then.
    """

    def admit(self, budget, number):
        scheduled = []
        while self.waiting and budget and len(self.running) < self.max_num_seqs:
            request = self.waiting.popleft() if pop_first else self.waiting[0]
            self.start(request)
            num_tokens = number(request, budget)
            while not self.make_room(request, num_tokens):
                self.preempt(self.running[-1])
            if not pop_first:
                self.waiting.popleft()
            self.running.append(request)
            scheduled.append((request, num_tokens))
            budget -= num_tokens
        return scheduled, budget

    return admit


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
    return [
        (request, num_tokens)
        for request, num_tokens in Scheduler.schedule(self)
        if request not in running
    ]


def running_by(each, admit=admit):
    """A wrong answer whose first half is each(self, request, num_tokens).

    It gives True where the request is to be scheduled.
    """

    def schedule(self):
        scheduled = []
        budget = self.token_budget
        num_running = len(self.running)
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
    """Sees that a request itself gives way, not that it gave way to an earlier one."""
    while num_tokens and not self.make_room(request, num_tokens):
        victim = self.running[-1]
        self.preempt(victim)
        if victim is request:
            return False
    return num_tokens > 0


def sees_itself(self, request, num_tokens):
    """No mistake: another form of the first half.

    It differs from ours where a request stands twice in a list.
    """
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
    return (
        request.num_uncomputed == 1
        and num_tokens > 0
        and zeros_listed(self, request, num_tokens)
    )


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
    while (
        request in self.running
        and num_tokens
        and not self.make_room(request, request.num_uncomputed)
    ):
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


def preempt_then_pop(self, request):
    self.preempt(request)
    self.running.pop()


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


def ids_in_one_half(running):
    """Ids for those that run already, or for those that are started.

    The others as requests.
    """

    def schedule(self):
        ran = list(self.running)
        return [
            (request.id if (request in ran) == running else request, num_tokens)
            for request, num_tokens in Scheduler.schedule(self)
        ]

    return schedule


def as_generator(self):
    yield from Scheduler.schedule(self)


def asking_the_manager(running, new):
    """append_tokens() in place of make_room().

    For those that run, for those that are started, or for both.
    """

    def schedule(self):
        def append(request, num_tokens):
            self.manager.append_tokens([(request.id, num_tokens)])
            return True

        room_for_running = append if running else self.make_room
        room_for_new = append if new else self.make_room
        scheduled = []
        budget = self.token_budget
        num_running = len(self.running)
        for request in list(self.running):
            num_tokens = number_left(request, budget)
            while (
                request in self.running
                and num_tokens
                and not room_for_running(request, num_tokens)
            ):
                self.preempt(self.running[-1])
            if request in self.running and num_tokens:
                scheduled.append((request, num_tokens))
                budget -= num_tokens
        while (
            len(self.running) >= num_running
            and self.waiting
            and budget
            and len(self.running) < self.max_num_seqs
        ):
            request = self.waiting[0]
            self.start(request)
            num_tokens = number_left(request, budget)
            if not room_for_new(request, num_tokens):
                self.stop(request)
                break
            self.running.append(self.waiting.popleft())
            scheduled.append((request, num_tokens))
            budget -= num_tokens
        return scheduled

    return schedule


def requests_alone(self):
    return [request for request, _ in Scheduler.schedule(self)]


def returns_nothing(self):
    Scheduler.schedule(self)
