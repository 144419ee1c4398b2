"""Lesson 08, exercises 8.1, 8.2 and 8.4. (8.3 is in lesson_08_schedule.py, 8.5 to 8.8 are in lesson_08_tokens.py.)"""

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


def forward_by_index_copy_without_effect(module, query, key, value, attention_mask=None, *, paged, **others):
    k_cache, v_cache = paged.kv_cache[module.layer_idx]
    new_k, new_v = (new[0].transpose(0, 1) for new in (key, value))
    k_cache = k_cache.flatten(0, 1).index_copy(0, paged.slot_mapping, new_k).view_as(k_cache)
    v_cache = v_cache.flatten(0, 1).index_copy(0, paged.slot_mapping, new_v).view_as(v_cache)
    return paged.attend(query[0].transpose(0, 1), k_cache, v_cache)[None], None


def forward_into_all_layers(module, query, key, value, attention_mask=None, *, paged, **others):
    paged.kv_cache[:, 0].flatten(1, 2)[:, paged.slot_mapping] = key[0].transpose(0, 1)
    paged.kv_cache[:, 1].flatten(1, 2)[:, paged.slot_mapping] = value[0].transpose(0, 1)
    return paged.attend(query[0].transpose(0, 1), *paged.kv_cache[module.layer_idx])[None], None


def forward_with_the_kind_first(module, query, key, value, attention_mask=None, *, paged, **others):
    for kind, new in enumerate((key, value)):
        paged.kv_cache[kind, module.layer_idx].flatten(0, 1)[paged.slot_mapping] = new[0].transpose(0, 1)
    caches = (paged.kv_cache[kind, module.layer_idx] for kind in range(2))
    return paged.attend(query[0].transpose(0, 1), *caches)[None], None


def forward_squeezing(module, query, key, value, attention_mask=None, *, paged, **others):
    q, k, v = (heads.squeeze().transpose(0, 1) for heads in (query, key, value))
    k_cache, v_cache = paged.kv_cache[module.layer_idx]
    k_cache.flatten(0, 1)[paged.slot_mapping] = k
    v_cache.flatten(0, 1)[paged.slot_mapping] = v
    return paged.attend(q, k_cache, v_cache).unsqueeze(0), None


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


def flatten_with_the_borders(scheduled):
    tokens, positions, last = [], [], [0]
    for request, n in scheduled:
        start = request.num_computed
        tokens += request.tokens[start : start + n]
        positions += range(start, start + n)
        last.append(last[-1] + n)
    return tokens, positions, last


def flatten_counting_on_from_the_last(scheduled):
    tokens, positions, last = [], [], [0]
    for request, n in scheduled:
        tokens += request.tokens[request.num_computed : request.num_computed + n]
        positions += [request.num_computed + i for i in range(n)]
        last.append(last[-1] + n - 1)
    return tokens, positions, last[1:]


def flatten_from_num_uncomputed(scheduled):
    tokens, positions, last = [], [], []
    for request, n in scheduled:
        for i in range(n):
            positions.append(request.num_uncomputed + i)
        tokens.extend(request.tokens[request.num_uncomputed :][:n])
        last.append(len(positions) - 1)
    return tokens, positions, last


def flatten_until_the_number(scheduled):
    tokens, positions, last = [], [], []
    for request, number in scheduled:
        tokens += request.tokens[request.num_computed : number]
        positions += range(request.num_computed, number)
        last.append(len(tokens) - 1)
    return tokens, positions, last


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


def preempt_and_seed(self, request):
    self.stop(request)
    self.running.remove(request)
    request.num_preempted += 1
    request.generator = torch.Generator()
    request.generator.manual_seed(request.params.seed)
    self.waiting.appendleft(request)


def preempt_into_a_list(self, request):
    self.stop(request)
    self.running = [other for other in self.running if other is not request]
    self.waiting = [request] + list(self.waiting)
    request.num_preempted += 1


def preempt_block_by_block(self, request):
    for block_id in self.manager.blocks_of(request.id):
        self.manager.block_manager.free(block_id)
    self.running.remove(request)
    self.waiting.insert(0, request)
    request.num_computed = 0
    request.num_preempted += 1


def preempt_all_from_it_on(self, request):
    at = self.running.index(request)
    self.running, victims = self.running[:at], self.running[at:]
    for victim in victims:
        self.stop(victim)
        victim.num_preempted += 1
    self.waiting.extendleft(victims)


def preempt_the_last(self, request):
    request = self.running.pop()
    self.stop(request)
    self.waiting.appendleft(request)
    request.num_preempted += 1


RIGHT_ANSWERS = {
    "8.1": [forward_by_permute, forward_by_block_and_offset, forward_token_by_token, forward_through_einsum,
            forward_by_index_put],
    "8.2": [flatten_by_slices, flatten_by_comprehensions, flatten_into_tensors, flatten_backwards, flatten_by_recursion],
    "8.4": [preempt_by_hand, preempt_through_remove, preempt_with_new_lists, preempt_waiting_first],
}

WRONG_ANSWERS = {
    "8.1": {"attends-before-writing": [forward_that_writes_last, forward_between_the_writes],
            "slots-assumed-contiguous": [forward_into_slots_in_a_row], "heads-scrambled": [forward_by_view],
            "output-transposed": [forward_heads_first],
            "nothing-written": [forward_into_a_copy, forward_by_index_copy_without_effect],
            "layer-0-always": [forward_on_the_first_layer], "squeezed-too-much": [forward_squeezing],
            "every-layer-written": [forward_into_all_layers], "layer-and-kind-mixed-up": [forward_with_the_kind_first],
            "row-taken-for-one-sequence": [forward_with_causal_attention], "weights-left-out": [forward_without_a_pair]},
    "8.2": {"positions-of-the-step": [flatten_with_enumerate], "positions-of-the-row": [flatten_with_one_arange],
            "all-that-is-left": [flatten_everything_left], "last-off-by-one": [flatten_with_lengths_behind],
            "last-within-the-request": [flatten_with_own_last], "counts-as-computed": [flatten_and_count],
            "positions-found-by-token": [flatten_by_looking_up_tokens],
            "number-taken-for-the-end": [flatten_until_the_number], "borders-for-last": [flatten_with_the_borders],
            "last-falls-behind": [flatten_counting_on_from_the_last],
            "num-uncomputed-for-the-start": [flatten_from_num_uncomputed]},
    "8.4": {"to-the-end-of-the-queue": [preempt_to_the_back], "generated-tokens-forgotten": [preempt_from_the_prompt],
            "num-computed-stays": [preempt_rows_only], "not-counted": [preempt_without_counting],
            "last-one-preempted": [preempt_the_last], "generator-begun-again": [preempt_and_seed],
            "waiting-is-a-list": [preempt_into_a_list], "row-kept": [preempt_block_by_block],
            "those-behind-too": [preempt_all_from_it_on]},
}
