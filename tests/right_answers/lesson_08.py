"""Lesson 08, exercises 8.1 to 8.4. (8.5 to 8.8 are in lesson_08_more.py.)"""

from collections import deque
from itertools import accumulate

import torch

# 8.1


def forward_by_permute(module, query, key, value, attention_mask=None, *, paged, **others):
    k_cache, v_cache = paged.kv_cache[module.layer_idx, 0], paged.kv_cache[module.layer_idx, 1]
    k_cache.flatten(0, 1).index_copy_(0, paged.slot_mapping, key.squeeze(0).permute(1, 0, 2))
    v_cache.flatten(0, 1).index_copy_(0, paged.slot_mapping, value.squeeze(0).permute(1, 0, 2))
    o = paged.attend(query.squeeze(0).permute(1, 0, 2).contiguous(), k_cache, v_cache)
    return o.unsqueeze(0), None


def forward_by_block_and_offset(module, query, key, value, attention_mask=None, *, paged, **others):
    layer = paged.kv_cache[module.layer_idx]
    blocks, offsets = paged.slot_mapping // layer.shape[2], paged.slot_mapping % layer.shape[2]
    for cache, new in zip(layer, (key, value), strict=True):
        cache[blocks, offsets] = new.transpose(1, 2)[0]
    return torch.stack([paged.attend(query.transpose(1, 2)[0], *layer)]), None


def forward_token_by_token(module, query, key, value, attention_mask=None, *, paged, **others):
    pool = paged.kv_cache[module.layer_idx]
    for token, slot in enumerate(paged.slot_mapping.tolist()):
        block_id, offset = divmod(slot, pool.shape[2])
        pool[0, block_id, offset] = key[0, :, token]
        pool[1, block_id, offset] = value[0, :, token]
    q = torch.stack([query[0, :, token] for token in range(query.shape[2])])
    return [paged.attend(q, pool[0], pool[1]).unsqueeze(0), None]


def forward_through_einsum(module, query, key, value, attention_mask=None, **others):
    step = others["paged"]
    both = step.kv_cache[module.layer_idx].flatten(1, 2)  # (2, num_slots, num_kv_heads, head_size), a view
    both[:, step.slot_mapping] = torch.einsum("bhtd->bthd", torch.cat([key, value]))
    return step.attend(torch.einsum("bhtd->bthd", query)[0], *step.kv_cache[module.layer_idx])[None], None


def forward_that_writes_last(module, query, key, value, attention_mask=None, *, paged, **others):
    k_cache, v_cache = paged.kv_cache[module.layer_idx]
    o = paged.attend(query[0].permute(1, 0, 2), k_cache, v_cache)
    block_size = k_cache.size(1)
    for token, slot in enumerate(paged.slot_mapping):
        k_cache[slot // block_size, slot % block_size] = key[0, :, token]
        v_cache[slot // block_size, slot % block_size] = value[0, :, token]
    return o.unsqueeze(0), None


def forward_by_view(module, query, key, value, attention_mask=None, *, paged, **others):
    _, num_kv_heads, num_tokens, head_size = key.shape
    k_cache, v_cache = paged.kv_cache[module.layer_idx]
    k_cache.view(-1, num_kv_heads, head_size)[paged.slot_mapping] = key.reshape(num_tokens, num_kv_heads, head_size)
    v_cache.view(-1, num_kv_heads, head_size)[paged.slot_mapping] = value.reshape(num_tokens, num_kv_heads, head_size)
    q = query.reshape(num_tokens, query.shape[1], head_size)
    return paged.attend(q, k_cache, v_cache).unsqueeze(0), None


def forward_heads_first(module, query, key, value, attention_mask=None, *, paged, **others):
    cache = paged.kv_cache[module.layer_idx]
    cache[0].flatten(0, 1)[paged.slot_mapping] = key[0].transpose(0, 1)
    cache[1].flatten(0, 1)[paged.slot_mapping] = value[0].transpose(0, 1)
    o = paged.attend(query[0].transpose(0, 1), cache[0], cache[1])
    return o.permute(1, 0, 2).unsqueeze(0), None


def forward_into_a_copy(module, query, key, value, attention_mask=None, *, paged, **others):
    k_cache, v_cache = paged.kv_cache[module.layer_idx]
    k_slots = k_cache.reshape(-1, *k_cache.shape[2:])[paged.slot_mapping]
    v_slots = v_cache.reshape(-1, *v_cache.shape[2:])[paged.slot_mapping]
    k_slots[:] = key[0].transpose(0, 1)
    v_slots[:] = value[0].transpose(0, 1)
    return paged.attend(query[0].transpose(0, 1), k_cache, v_cache)[None], None


def forward_on_the_first_layer(module, query, key, value, attention_mask=None, *, paged, **others):
    k_cache, v_cache = paged.kv_cache[0]
    k_cache.flatten(0, 1)[paged.slot_mapping] = key[0].transpose(0, 1)
    v_cache.flatten(0, 1)[paged.slot_mapping] = value[0].transpose(0, 1)
    return paged.attend(query[0].transpose(0, 1), k_cache, v_cache)[None], None


def forward_with_causal_attention(module, query, key, value, attention_mask=None, *, paged, **others):
    k_cache, v_cache = paged.kv_cache[module.layer_idx]
    k_cache.flatten(0, 1)[paged.slot_mapping] = key[0].transpose(0, 1)
    v_cache.flatten(0, 1)[paged.slot_mapping] = value[0].transpose(0, 1)
    times = query.shape[1] // key.shape[1]
    k, v = key.double().repeat_interleave(times, 1), value.double().repeat_interleave(times, 1)
    scores = query.double() @ k.mT / query.shape[-1] ** 0.5
    scores += torch.full(scores.shape[-2:], float("-inf")).triu(1)
    return (scores.softmax(-1) @ v).float().transpose(1, 2), None


def forward_without_a_pair(module, query, key, value, attention_mask=None, *, paged, **others):
    k_cache, v_cache = paged.kv_cache[module.layer_idx]
    k_cache.flatten(0, 1)[paged.slot_mapping] = key[0].transpose(0, 1)
    v_cache.flatten(0, 1)[paged.slot_mapping] = value[0].transpose(0, 1)
    return paged.attend(query[0].transpose(0, 1), k_cache, v_cache).unsqueeze(0)


def forward_by_index_put(module, query, key, value, attention_mask=None, *, paged, **others):
    layer = paged.kv_cache[module.layer_idx]
    places = paged.slot_mapping // layer.size(2), paged.slot_mapping % layer.size(2)
    for cache, heads in ((layer[0], key), (layer[1], value)):
        cache.index_put_(places, torch.stack(list(heads[0]), dim=1))
    o = paged.attend(torch.movedim(query[0], 1, 0), k_cache=layer[0], v_cache=layer[1])
    return o.view(1, *o.shape), None


def forward_between_the_writes(module, query, key, value, attention_mask=None, *, paged, **others):
    k_cache, v_cache = paged.kv_cache[module.layer_idx]
    k_cache.flatten(0, 1)[paged.slot_mapping] = key[0].transpose(0, 1)
    o = paged.attend(query[0].transpose(0, 1), k_cache, v_cache)
    v_cache.flatten(0, 1)[paged.slot_mapping] = value[0].transpose(0, 1)
    return o[None], None


def forward_into_slots_in_a_row(module, query, key, value, attention_mask=None, *, paged, **others):
    k_cache, v_cache = paged.kv_cache[module.layer_idx]
    start, stop = int(paged.slot_mapping[0]), int(paged.slot_mapping[0]) + key.shape[2]
    k_cache.flatten(0, 1)[start:stop] = key[0].transpose(0, 1)
    v_cache.flatten(0, 1)[start:stop] = value[0].transpose(0, 1)
    return paged.attend(query[0].transpose(0, 1), k_cache, v_cache)[None], None


# 8.2


def flatten_by_slices(scheduled):
    tokens, positions, last, end = [], [], [], -1
    for request, num_tokens in scheduled:
        start, stop = request.num_computed, request.num_computed + num_tokens
        tokens.extend(request.tokens[start:stop])
        positions.extend(range(start, stop))
        end += num_tokens
        last.append(end)
    return tokens, positions, last


def flatten_by_comprehensions(scheduled):
    places = [(request, request.num_computed + index) for request, number in scheduled for index in range(number)]
    last = [end - 1 for end in accumulate(number for _, number in scheduled)]
    return [request.tokens[place] for request, place in places], [place for _, place in places], last


def flatten_into_tensors(scheduled):
    starts = torch.tensor([request.num_computed for request, _ in scheduled])
    lengths = torch.tensor([number for _, number in scheduled])
    last = lengths.cumsum(0) - 1
    first = (last + 1 - lengths).repeat_interleave(lengths)
    positions = torch.arange(int(lengths.sum())) - first + starts.repeat_interleave(lengths)
    owners = torch.arange(len(scheduled)).repeat_interleave(lengths).tolist()
    tokens = [scheduled[owner][0].tokens[place] for owner, place in zip(owners, positions.tolist(), strict=True)]
    return torch.tensor(tokens), positions, last


def flatten_backwards(scheduled):
    tokens, positions, behind = deque(), deque(), []
    for request, number in reversed(scheduled):
        behind.append(len(tokens))
        for place in range(request.num_computed + number - 1, request.num_computed - 1, -1):
            tokens.appendleft(request.tokens[place])
            positions.appendleft(place)
    return list(tokens), list(positions), [len(tokens) - 1 - count for count in reversed(behind)]


def flatten_with_enumerate(scheduled):
    tokens, positions, last = [], [], []
    for request, num_tokens in scheduled:
        new = request.tokens[request.num_computed : request.num_computed + num_tokens]
        for index, token in enumerate(new):
            tokens.append(token)
            positions.append(index)
        last.append(len(tokens) - 1)
    return tokens, positions, last


def flatten_with_one_arange(scheduled):
    tokens, last = [], []
    for request, num_tokens in scheduled:
        tokens += request.tokens[request.num_computed :][:num_tokens]
        last.append(len(tokens) - 1)
    return tokens, torch.arange(len(tokens)), last


def flatten_everything_left(scheduled):
    tokens, positions, last = [], [], []
    for request, _ in scheduled:
        tokens += request.tokens[request.num_computed :]
        positions += range(request.num_computed, len(request.tokens))
        last += [len(tokens) - 1]
    return tokens, positions, last


def flatten_with_lengths_behind(scheduled):
    tokens, positions, last = flatten_by_slices(scheduled)
    return tokens, positions, list(accumulate(number for _, number in scheduled))


def flatten_with_own_last(scheduled):
    tokens, positions, last = [], [], []
    for request, num_tokens in scheduled:
        stop = request.num_computed + num_tokens
        chunk = request.tokens[request.num_computed : stop]
        tokens, positions = tokens + chunk, positions + list(range(stop - len(chunk), stop))
        last.append(len(chunk) - 1)
    return tokens, positions, last


def flatten_and_count(scheduled):
    tokens, positions, last = [], [], []
    for request, num_tokens in scheduled:
        for _ in range(num_tokens):
            tokens.append(request.tokens[request.num_computed])
            positions.append(request.num_computed)
            request.num_computed += 1
        last.append(len(tokens) - 1)
    return tokens, positions, last


def flatten_by_recursion(scheduled):
    if not scheduled:
        return [], [], []
    tokens, positions, last = flatten_by_recursion(scheduled[:-1])
    request, number = scheduled[-1]
    stop = request.num_computed + number
    tokens += request.tokens[stop - number : stop]
    return tokens, positions + list(range(stop - number, stop)), [*last, len(tokens) - 1]


def flatten_by_looking_up_tokens(scheduled):
    tokens, positions, last = [], [], []
    for request, number in scheduled:
        for token in request.tokens[request.num_computed :][:number]:
            tokens.append(token)
            positions.append(request.tokens.index(token))
        last.append(len(tokens) - 1)
    return tokens, positions, last


def flatten_until_the_number(scheduled):
    tokens, positions, last = [], [], []
    for request, number in scheduled:
        tokens += request.tokens[request.num_computed : number]
        positions += range(request.num_computed, number)
        last.append(len(tokens) - 1)
    return tokens, positions, last


# 8.3


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


# 8.4


def preempt_by_hand(self, request):
    self.manager.free_sequence(request.id)
    request.num_computed, request.num_inserted = 0, 0
    del self.running[self.running.index(request)]
    self.waiting.insert(0, request)
    request.num_preempted = request.num_preempted + 1


def preempt_through_remove(self, request):
    request.num_preempted += 1
    self.remove(request)
    self.waiting.extendleft([request])


def preempt_with_new_lists(self, request):
    self.stop(request)
    self.running = [other for other in self.running if other is not request]
    self.waiting = deque([request, *self.waiting])
    request.num_preempted += 1


def preempt_waiting_first(self, request):
    self.waiting.appendleft(self.running.pop(self.running.index(request)))
    self.waiting[0].num_preempted += 1
    self.stop(self.waiting[0])


def preempt_to_the_back(self, request):
    self.stop(request)
    self.running = [other for other in self.running if other is not request]
    self.waiting = deque([*self.waiting, request])
    request.num_preempted += 1


def preempt_from_the_prompt(self, request):
    self.remove(request)
    del request.tokens[len(request.prompt):]
    self.waiting.appendleft(request)
    request.num_preempted += 1


def preempt_rows_only(self, request):
    self.manager.free_sequence(request.id)
    self.running.remove(request)
    self.waiting.appendleft(request)
    request.num_preempted += 1


def preempt_without_counting(self, request):
    self.remove(request)
    self.waiting.insert(0, request)


def preempt_the_last(self, request):
    request = self.running.pop()
    self.stop(request)
    self.waiting.appendleft(request)
    request.num_preempted += 1


RIGHT_ANSWERS = {
    "8.1": [forward_by_permute, forward_by_block_and_offset, forward_token_by_token, forward_through_einsum,
            forward_by_index_put],
    "8.2": [flatten_by_slices, flatten_by_comprehensions, flatten_into_tensors, flatten_backwards, flatten_by_recursion],
    "8.3": [schedule_with_a_flag, schedule_over_a_queue, schedule_by_recursion, schedule_appending_to_the_end],
    "8.4": [preempt_by_hand, preempt_through_remove, preempt_with_new_lists, preempt_waiting_first],
}

WRONG_ANSWERS = {
    "8.1": {"attends-before-writing": [forward_that_writes_last, forward_between_the_writes],
            "slots-assumed-contiguous": [forward_into_slots_in_a_row], "heads-scrambled": [forward_by_view],
            "output-transposed": [forward_heads_first], "nothing-written": [forward_into_a_copy],
            "layer-0-always": [forward_on_the_first_layer],
            "row-taken-for-one-sequence": [forward_with_causal_attention], "weights-left-out": [forward_without_a_pair]},
    "8.2": {"positions-of-the-step": [flatten_with_enumerate], "positions-of-the-row": [flatten_with_one_arange],
            "all-that-is-left": [flatten_everything_left], "last-off-by-one": [flatten_with_lengths_behind],
            "last-within-the-request": [flatten_with_own_last], "counts-as-computed": [flatten_and_count],
            "positions-found-by-token": [flatten_by_looking_up_tokens],
            "number-taken-for-the-end": [flatten_until_the_number]},
    "8.3": {"admits-after-preemption": [schedule_that_admits_always],
            "budget-ignored": [schedule_without_a_budget], "started-not-stopped": [schedule_that_keeps_rows],
            "preempts-the-oldest": [schedule_from_the_oldest], "token-budget-changed": [schedule_counting_down_its_own],
            "head-of-line-overtaken": [schedule_that_skips_the_first]},
    "8.4": {"to-the-end-of-the-queue": [preempt_to_the_back], "generated-tokens-forgotten": [preempt_from_the_prompt],
            "num-computed-stays": [preempt_rows_only], "not-counted": [preempt_without_counting],
            "last-one-preempted": [preempt_the_last]},
}
