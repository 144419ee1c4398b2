"""Lesson 08, exercise 8.3."""

from collections import deque


def schedule_with_a_flag(self):
    chosen, left, somebody_gave_way = [], self.token_budget, False
    index = 0
    while index < len(self.running):
        request = self.running[index]
        wanted = min(left, len(request.tokens) - request.num_computed)
        if wanted == 0:
            break
        if self.make_room(request, wanted):
            chosen.append((request, wanted))
            left -= wanted
            index += 1
        else:
            self.preempt(self.running[-1])
            somebody_gave_way = True
    if not somebody_gave_way:
        while left > 0 and len(self.waiting) > 0 and len(self.running) < self.max_num_seqs:
            request = self.waiting.popleft()
            self.start(request)
            wanted = min(left, request.num_uncomputed)
            if not self.make_room(request, wanted):
                self.stop(request)
                self.waiting.appendleft(request)
                break
            self.running.append(request)
            chosen.append((request, wanted))
            left -= wanted
    return chosen


def schedule_over_a_queue(self):
    result, budget = {}, self.token_budget
    candidates, preempted = deque(self.running), []
    while candidates:
        request = candidates.popleft()
        number = min(budget, request.num_uncomputed)
        while number and not self.make_room(request, number):
            victim = candidates.pop() if candidates else request
            self.preempt(victim)
            preempted.append(victim)
            if victim is request:
                number = 0
        if number:
            result[request] = number
            budget -= number
    for request in [] if preempted else list(self.waiting):
        if budget == 0 or len(self.running) == self.max_num_seqs:
            break
        self.start(request)
        number = min(budget, request.num_uncomputed)
        if self.make_room(request, number):
            self.waiting.remove(request)
            self.running.append(request)
            result[request] = number
            budget -= number
        else:
            self.stop(request)
            break
    return list(result.items())


def schedule_by_recursion(self):
    def serve(index, budget):
        if index == len(self.running) or budget == 0:
            return [], budget
        request = self.running[index]
        number = min(request.num_uncomputed, budget)
        if self.make_room(request, number):
            more, budget = serve(index + 1, budget - number)
            return [(request, number), *more], budget
        self.preempt(self.running[-1])
        return serve(index, budget)

    def admit(budget):
        if budget == 0 or not self.waiting or len(self.running) >= self.max_num_seqs:
            return []
        request = self.waiting[0]
        self.start(request)
        number = min(request.num_uncomputed, budget)
        if not self.make_room(request, number):
            self.stop(request)
            return []
        self.running.append(self.waiting.popleft())
        return [(request, number), *admit(budget - number)]

    before = len(self.running)
    scheduled, budget = serve(0, self.token_budget)
    return scheduled + (admit(budget) if len(self.running) == before else [])


def schedule_appending_to_the_end(self):
    scheduled, budget, gave_way = [], self.token_budget, []
    for request in self.running:  # only its end is taken off
        number = min(request.num_uncomputed, budget)
        while number and not self.make_room(request, number):
            gave_way.append(self.running[-1])
            self.preempt(gave_way[-1])
            if gave_way[-1] is request:
                return scheduled
        if number:
            scheduled += [(request, number)]
        budget -= number
    while not gave_way and self.waiting and budget and len(scheduled) < self.max_num_seqs:
        self.start(self.waiting[0])
        number = min(self.waiting[0].num_uncomputed, budget)
        if not self.make_room(self.waiting[0], number):
            self.stop(self.waiting[0])
            return scheduled
        scheduled += [(self.waiting[0], number)]
        self.running += [self.waiting.popleft()]
        budget -= number
    return scheduled


def schedule_that_admits_always(self):
    chosen, left, index = [], self.token_budget, 0
    while index < len(self.running) and left:
        request = self.running[index]
        wanted = min(left, request.num_uncomputed)
        if self.make_room(request, wanted):
            chosen.append((request, wanted))
            left, index = left - wanted, index + 1
        else:
            self.preempt(self.running[-1])
    while left > 0 and self.waiting and len(self.running) < self.max_num_seqs:
        request = self.waiting.popleft()
        self.start(request)
        wanted = min(left, request.num_uncomputed)
        if not self.make_room(request, wanted):
            self.stop(request)
            self.waiting.appendleft(request)
            break
        self.running.append(request)
        chosen.append((request, wanted))
        left -= wanted
    return chosen


def schedule_that_skips_the_first(self):
    chosen, left, before = [], self.token_budget, len(self.running)
    for request in self.running[:]:
        wanted = min(left, request.num_uncomputed)
        while wanted and request in self.running and not self.make_room(request, wanted):
            self.preempt(self.running[-1])
        if wanted and request in self.running:
            chosen.append((request, wanted))
            left -= wanted
    if len(self.running) < before:
        return chosen
    skipped = []
    while left and self.waiting and len(self.running) < self.max_num_seqs:
        request = self.waiting.popleft()
        self.start(request)
        wanted = min(left, request.num_uncomputed)
        if self.make_room(request, wanted):
            self.running.append(request)
            chosen.append((request, wanted))
            left -= wanted
        else:
            self.stop(request)
            skipped.append(request)
    self.waiting.extendleft(reversed(skipped))
    return chosen


def schedule_without_a_budget(self):
    chosen, before = [], len(self.running)
    for request in list(self.running):
        while request in self.running and not self.make_room(request, request.num_uncomputed):
            self.preempt(self.running[-1])
        if request in self.running:
            chosen.append((request, request.num_uncomputed))
    while len(self.running) >= before and self.waiting and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        if not self.make_room(request, request.num_uncomputed):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        chosen.append((request, request.num_uncomputed))
    return chosen


def schedule_that_keeps_rows(self):
    chosen, left, before = [], self.token_budget, len(self.running)
    for request in list(self.running):
        if request not in self.running or left == 0:
            break
        wanted = min(left, request.num_uncomputed)
        while not self.make_room(request, wanted):
            victim = self.running[-1]
            self.preempt(victim)
            if victim is request:
                return chosen
        chosen.append((request, wanted))
        left -= wanted
    if before > len(self.running):
        return chosen
    while left and self.waiting and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        wanted = min(left, request.num_uncomputed)
        if not self.make_room(request, wanted):
            return chosen
        self.waiting.popleft()
        self.running.append(request)
        chosen.append((request, wanted))
        left -= wanted
    return chosen


def schedule_from_the_oldest(self):
    chosen, left, before = [], self.token_budget, len(self.running)
    for request in self.running[:]:
        wanted = min(left, request.num_uncomputed)
        while wanted and request in self.running and not self.make_room(request, wanted):
            self.preempt(self.running[0])
        if wanted and request in self.running:
            chosen.append((request, wanted))
            left -= wanted
    while before == len(self.running) and left and self.waiting and before < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        wanted = min(left, request.num_uncomputed)
        if not self.make_room(request, wanted):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        chosen.append((request, wanted))
        left, before = left - wanted, before + 1
    return chosen


def schedule_by_index(self):
    budget, result, preempted, i = self.token_budget, [], False, 0
    while i < len(self.running):
        request = self.running[i]
        n = min(request.num_uncomputed, budget)
        if n == 0:
            break
        while not self.make_room(request, n):
            last = self.running[-1]
            self.preempt(last)
            preempted = True
            if last is request:
                break
        else:
            result.append((request, n))
            budget -= n
            i += 1
    while not preempted and self.waiting and budget and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        n = min(request.num_uncomputed, budget)
        if not self.make_room(request, n):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        result.append((request, n))
        budget -= n
    return result


def schedule_popping_as_well(self):
    budget, result, preempted, i = self.token_budget, [], False, 0
    while i < len(self.running):
        request = self.running[i]
        n = min(request.num_uncomputed, budget)
        if n == 0:
            break
        while not self.make_room(request, n):
            last = self.running[-1]
            self.preempt(last)
            self.running.pop()
            preempted = True
            if last is request:
                break
        else:
            result.append((request, n))
            budget -= n
            i += 1
    while not preempted and self.waiting and budget and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        n = min(request.num_uncomputed, budget)
        if not self.make_room(request, n):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        result.append((request, n))
        budget -= n
    return result


def schedule_by_who_gave_way_ever(self):
    budget, result, i = self.token_budget, [], 0
    while i < len(self.running):
        request = self.running[i]
        n = min(request.num_uncomputed, budget)
        if n == 0:
            break
        while not self.make_room(request, n):
            last = self.running[-1]
            self.preempt(last)
            if last is request:
                break
        else:
            result.append((request, n))
            budget -= n
            i += 1
    while self.waiting and not self.waiting[0].num_preempted and budget and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        n = min(request.num_uncomputed, budget)
        if not self.make_room(request, n):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        result.append((request, n))
        budget -= n
    return result


def schedule_nothing_without_room(self):
    budget, result, preempted, i = self.token_budget, [], False, 0
    while i < len(self.running):
        request = self.running[i]
        n = min(request.num_uncomputed, budget)
        if n == 0:
            break
        while not self.make_room(request, n):
            last = self.running[-1]
            self.preempt(last)
            preempted = True
            if last is request:
                break
        else:
            result.append((request, n))
            budget -= n
            i += 1
    while not preempted and self.waiting and budget and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        n = min(request.num_uncomputed, budget)
        if not self.make_room(request, n):
            self.stop(request)
            return []
        self.running.append(self.waiting.popleft())
        result.append((request, n))
        budget -= n
    return result


def schedule_newcomers_in_front(self):
    budget, result, preempted, i = self.token_budget, [], False, 0
    while i < len(self.running):
        request = self.running[i]
        n = min(request.num_uncomputed, budget)
        if n == 0:
            break
        while not self.make_room(request, n):
            last = self.running[-1]
            self.preempt(last)
            preempted = True
            if last is request:
                break
        else:
            result.append((request, n))
            budget -= n
            i += 1
    while not preempted and self.waiting and budget and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        n = min(request.num_uncomputed, budget)
        if not self.make_room(request, n):
            self.stop(request)
            break
        self.waiting.popleft()
        self.running.insert(0, request)
        result.append((request, n))
        budget -= n
    return result


def schedule_a_token_for_each_that_runs(self):
    budget, result, preempted, i = self.token_budget, [], False, 0
    while i < len(self.running):
        request = self.running[i]
        n = max(min(request.num_uncomputed, budget), 1)
        while not self.make_room(request, n):
            last = self.running[-1]
            self.preempt(last)
            preempted = True
            if last is request:
                break
        else:
            result.append((request, n))
            budget -= n
            i += 1
    while not preempted and self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        n = min(request.num_uncomputed, budget)
        if not self.make_room(request, n):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        result.append((request, n))
        budget -= n
    return result


def schedule_all_tokens_of_newcomers(self):
    budget, result, preempted, i = self.token_budget, [], False, 0
    while i < len(self.running):
        request = self.running[i]
        n = min(request.num_uncomputed, budget)
        if n == 0:
            break
        while not self.make_room(request, n):
            last = self.running[-1]
            self.preempt(last)
            preempted = True
            if last is request:
                break
        else:
            result.append((request, n))
            budget -= n
            i += 1
    while not preempted and self.waiting and budget and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        n = min(len(request.tokens), budget)
        if not self.make_room(request, n):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        result.append((request, n))
        budget -= n
    return result


def schedule_without_the_first_by_index(self):
    budget, result, preempted, i = self.token_budget, [], False, 0
    while i < len(self.running):
        request = self.running[i]
        n = min(request.num_uncomputed, budget)
        if n == 0:
            break
        while not self.make_room(request, n):
            last = self.running[0]
            self.preempt(last)
            preempted = True
            if last is request:
                break
        else:
            result.append((request, n))
            budget -= n
            i += 1
    while not preempted and self.waiting and budget and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        n = min(request.num_uncomputed, budget)
        if not self.make_room(request, n):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        result.append((request, n))
        budget -= n
    return result


def schedule_counting_down_its_own(self):
    chosen, gave_way = [], False
    for request in list(self.running):
        if request not in self.running or self.token_budget == 0:
            continue
        wanted = min(self.token_budget, request.num_uncomputed)
        while request in self.running and not self.make_room(request, wanted):
            gave_way = True
            self.preempt(self.running[-1])
        if request in self.running:
            chosen.append((request, wanted))
            self.token_budget -= wanted
    while not gave_way and self.token_budget and self.waiting and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        wanted = min(self.token_budget, request.num_uncomputed)
        if not self.make_room(request, wanted):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        chosen.append((request, wanted))
        self.token_budget -= wanted
    return chosen


RIGHT_ANSWERS = {
    "8.3": [schedule_with_a_flag, schedule_over_a_queue, schedule_by_recursion, schedule_appending_to_the_end,
            schedule_by_index],
}

WRONG_ANSWERS = {
    "8.3": {"admits-after-preemption": [schedule_that_admits_always],
            "budget-ignored": [schedule_without_a_budget], "started-not-stopped": [schedule_that_keeps_rows],
            "preempts-the-oldest": [schedule_from_the_oldest, schedule_without_the_first_by_index],
            "more-than-preempt": [schedule_popping_as_well], "shut-out-for-good": [schedule_by_who_gave_way_ever],
            "newcomer-ends-the-step": [schedule_nothing_without_room], "started-in-front": [schedule_newcomers_in_front],
            "token-beyond-the-budget": [schedule_a_token_for_each_that_runs],
            "counted-before-start": [schedule_all_tokens_of_newcomers],
            "token-budget-changed": [schedule_counting_down_its_own],
            "head-of-line-overtaken": [schedule_that_skips_the_first]},
}
