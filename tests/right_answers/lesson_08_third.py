"""Lesson 08, as a third learner wrote it: mistakes only."""

import copy
from collections import deque

import torch


def flatten_and_forget(scheduled):
    tokens, positions, last = [], [], []
    for request, num_tokens in scheduled:
        end = request.num_computed + num_tokens
        tokens + request.tokens[request.num_computed : end]
        positions + list(range(request.num_computed, end))
    return tokens, positions, last


def flatten_into_new_lists(scheduled):
    tokens, positions, last = [], [], []

    def add(tokens, positions, request, num_tokens):
        end = request.num_computed + num_tokens
        tokens = tokens + request.tokens[request.num_computed : end]
        positions = positions + list(range(request.num_computed, end))
        return tokens, positions

    for request, num_tokens in scheduled:
        add(tokens, positions, request, num_tokens)
        last.append(len(tokens) - 1)
    return tokens, positions, last


def schedule_by(budget_of=lambda self: self.token_budget, part_of=lambda self, left, first_share: left,
                has_place=lambda self: len(self.running) < self.max_num_seqs, started=lambda self, request, count: None):
    def schedule(self):
        left, chosen, somebody_gave_way, index = budget_of(self), [], False, 0
        first_share = max(1, left // max(1, len(self.running)))
        while index < len(self.running) and left > 0:
            request = self.running[index]
            count = min(request.num_uncomputed, part_of(self, left, first_share))
            if count == 0:
                index += 1
            elif self.make_room(request, count):
                chosen.append((request, count))
                left -= count
                index += 1
            else:
                somebody_gave_way = True
                self.preempt(self.running[-1])
        while self.waiting and left > 0 and has_place(self) and not somebody_gave_way:
            request = self.waiting[0]
            self.start(request)
            count = min(request.num_uncomputed, left)
            started(self, request, count)
            if not self.make_room(request, count):
                self.stop(request)
                break
            self.running.append(self.waiting.popleft())
            chosen.append((request, count))
            left -= count
        return chosen
    return schedule


def schedule_in_equal_parts(self):
    left, chosen, gave_way, index = self.token_budget, [], False, 0
    while index < len(self.running):
        request = self.running[index]
        count = min(request.num_uncomputed, self.token_budget // len(self.running))
        if count == 0:
            index += 1
            continue
        while not self.make_room(request, count):
            last = self.running[-1]
            self.preempt(last)
            gave_way = True
            if last is request:
                break
        else:
            chosen.append((request, count))
            left -= count
            index += 1
    if gave_way:
        return chosen
    while self.waiting and left and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        count = min(request.num_uncomputed, left)
        if not self.make_room(request, count):
            self.stop(request)
            break
        self.running.append(self.waiting.popleft())
        chosen.append((request, count))
        left -= count
    return chosen


def preempt_a_copy(self, request):
    self.stop(request)
    self.running.remove(request)
    new = copy.copy(request)
    new.num_preempted += 1
    self.waiting.appendleft(new)


def preempt_and_make_a_request(self, request):
    self.stop(request)
    self.running.remove(request)
    new = type(request)(request.id, request.tokens, request.params)
    new.num_preempted = request.num_preempted + 1
    self.waiting.appendleft(new)


def preempt_and_sort(self, request):
    self.stop(request)
    self.running.remove(request)
    self.waiting.append(request)
    self.waiting = deque(sorted(self.waiting, key=lambda other: other.id))
    request.num_preempted += 1


def preempt_and_sort_by_count(self, request):
    request.num_preempted += 1
    self.running.remove(request)
    self.stop(request)
    self.waiting = deque(sorted([*self.waiting, request], key=lambda other: other.num_preempted, reverse=True))


def preempt_and_lower_the_limit(self, request):
    self.max_num_seqs -= 1
    self.stop(request)
    del self.running[self.running.index(request)]
    self.waiting.appendleft(request)
    request.num_preempted += 1


def preempt_and_clear_the_cache(self, request):
    request.num_preempted += 1
    self.running.remove(request)
    self.waiting.insert(0, request)
    self.stop(request)
    self.prefix_cache.clear()


def start_by(before=lambda self, request: None, match=lambda self, request: self.prefix_cache.match(request),
             after=lambda self, request: None):
    def start(self, request):
        before(self, request)
        size, blocks = self.manager.block_size, match(self, request)
        length = min(len(blocks) * size, len(request.tokens) - 1)
        blocks = blocks[: -(-length // size)]
        for block in blocks:
            self.manager.block_manager.increase_ref_count(block)
        self.manager.start(request.id, length, blocks)
        request.num_computed = length
        after(self, request)
    return start


def match_the_prompt(self, request):
    tokens, request.tokens = request.tokens, request.prompt
    try:
        return self.prefix_cache.match(request)
    finally:
        request.tokens = tokens


def sample_in_half(logits, params, generator):
    if params.temperature == 0:
        return int(logits.argmax())
    values, order = (logits.half() / params.temperature).sort(descending=True)
    if params.top_k is not None:
        values, order = values[: params.top_k], order[: params.top_k]
    p = values.softmax(0)
    p = p[p.cumsum(0) - p < params.top_p]
    return int(order[torch.multinomial(p, 1, generator=generator)])


def postprocess_by(count_up=lambda request, count: request.num_computed + count, appended=lambda self, request, token: None,
                   is_long_enough=lambda request: len(request.output) >= request.params.max_new_tokens,
                   at_length=lambda self, request: self._end(request, "length")):
    def postprocess(self, scheduled, logits):
        new = []
        for (request, count), row in zip(scheduled, logits, strict=True):
            request.num_computed = count_up(request, count)
            if request.num_uncomputed:
                continue
            token = self.sample(row, request.params, request.generator)
            request.tokens.append(token)
            new.append((request, token))
            appended(self, request, token)
            if token in self.end_tokens and not request.params.ignore_end:
                self._end(request, "end")
            elif is_long_enough(request):
                at_length(self, request)
        return new
    return postprocess


def append_an_end_token(self, request, token):
    if token in self.end_tokens:
        request.tokens.append(token)


RIGHT_ANSWERS = {}

WRONG_ANSWERS = {
    "8.2": {"lists-stay-empty": [flatten_and_forget, flatten_into_new_lists]},
    "8.3": {"queue-counted": [schedule_by(has_place=lambda self: len(self.running) + len(self.waiting) <= self.max_num_seqs)],
            "even-shares": [schedule_in_equal_parts,
                            schedule_by(part_of=lambda self, left, first_share: min(left, first_share))],
            "one-token-held-back": [schedule_by(budget_of=lambda self: self.token_budget - 1)],
            "room-made-twice": [schedule_by(started=lambda self, request, count: self.make_room(request, 1)),
                                schedule_by(started=lambda self, request, count: self.make_room(request, count))]},
    "8.4": {"another-one-waits": [preempt_a_copy, preempt_and_make_a_request],
            "queue-sorted": [preempt_and_sort, preempt_and_sort_by_count],
            "max-num-seqs-changed": [preempt_and_lower_the_limit],
            "prefix-cache-cleared": [preempt_and_clear_the_cache]},
    "8.6": {"room-for-one-token": [start_by(after=lambda self, request: self.make_room(request, 1))],
            "asked-before-its-start": [start_by(before=lambda self, request: self.stop(request)),
                                       start_by(before=lambda self, request: self.manager.blocks_of(request.id))],
            "prompt-in-place-of-tokens": [start_by(match=match_the_prompt)]},
    "8.7": {"half-precision": [sample_in_half]},
    "8.8": {"preempted-in-place-of-ended": [postprocess_by(at_length=lambda self, request: self.scheduler.preempt(request))],
            "appended-twice": [postprocess_by(appended=append_an_end_token)],
            "counted-up-to-the-prompt": [
                postprocess_by(lambda request, count: min(request.num_computed + count, len(request.prompt)))],
            "every-token-ends": [postprocess_by(is_long_enough=lambda request: (
                request.tokens[-1] == request.tokens[-2] or len(request.output) >= request.params.max_new_tokens))]},
}
