"""Lesson 08, as a second learner wrote it."""

import hashlib
import struct
import zlib

import numpy as np
import torch

from paged_attention.engine.request import SamplingParams


def forward_in_blocks_of_16(module, query, key, value, attention_mask=None, *, paged, **others):
    caches = paged.kv_cache[module.layer_idx]
    for token, slot in enumerate(paged.slot_mapping.tolist()):
        block_id, offset = divmod(slot, 16)
        for cache, new in zip(caches, (key, value), strict=True):
            cache[block_id, offset] = new[0, :, token]
    return paged.attend(query[0].movedim(0, 1), *caches).unsqueeze(0), None


def forward_with_weights(module, query, key, value, attention_mask=None, *, paged, **others):
    k_cache, v_cache = (cache.flatten(0, 1) for cache in paged.kv_cache[module.layer_idx])
    k_cache[paged.slot_mapping], v_cache[paged.slot_mapping] = key[0].movedim(0, 1), value[0].movedim(0, 1)
    o = paged.attend(query[0].movedim(0, 1), *paged.kv_cache[module.layer_idx]).unsqueeze(0)
    return o, o


def forward_adding(module, query, key, value, attention_mask=None, *, paged, **others):
    for cache, new in zip(paged.kv_cache[module.layer_idx], (key, value), strict=True):
        cache.flatten(0, 1).index_add_(0, paged.slot_mapping, new[0].movedim(0, 1))
    return paged.attend(query[0].movedim(0, 1), *paged.kv_cache[module.layer_idx]).unsqueeze(0), None


def forward_backwards(module, query, key, value, attention_mask=None, *, paged, **others):
    for cache, new in zip(paged.kv_cache[module.layer_idx], (key, value), strict=True):
        cache.flatten(0, 1)[paged.slot_mapping] = new[0].movedim(0, 1).flip(0)
    return paged.attend(query[0].movedim(0, 1), *paged.kv_cache[module.layer_idx]).unsqueeze(0), None


def forward_in(dtype):
    def forward(module, query, key, value, attention_mask=None, *, paged, **others):
        caches = paged.kv_cache[module.layer_idx]
        for cache, new in zip(caches, (key.to(dtype), value.to(dtype)), strict=True):
            cache.view(-1, *cache.shape[2:]).index_copy_(0, paged.slot_mapping, new[0].movedim(0, 1).to(cache.dtype))
        return paged.attend(query[0].movedim(0, 1), *caches).unsqueeze(0), None
    return forward


def forward_with_one_cache(module, query, key, value, attention_mask=None, *, paged, **others):
    caches = paged.kv_cache[module.layer_idx]
    for cache, new in zip(caches, (key, value), strict=True):
        cache.flatten(0, 1)[paged.slot_mapping] = new[0].movedim(0, 1)
    return paged.attend(query[0].movedim(0, 1), caches).unsqueeze(0), None


def forward_reading_the_first_layer(module, query, key, value, attention_mask=None, *, paged, **others):
    for cache, new in zip(paged.kv_cache[module.layer_idx], (key, value), strict=True):
        cache.flatten(0, 1)[paged.slot_mapping] = new[0].movedim(0, 1)
    return paged.attend(query[0].movedim(0, 1), *paged.kv_cache[0]).unsqueeze(0), None


def flatten_into_pairs(scheduled):
    pairs, last = [], []
    for request, count in scheduled:
        pairs += list(enumerate(request.tokens))[request.num_computed :][:count]
        last += [len(pairs) - 1]
    return [token for _, token in pairs], [position for position, _ in pairs], last


def flatten_popping(scheduled):
    tokens, positions, last = [], [], []
    while scheduled:
        request, count = scheduled.pop(0)
        start = request.num_computed
        tokens += request.tokens[start : start + count]
        positions += range(start, start + count)
        last.append(len(tokens) - 1)
    return tokens, positions, last


def flatten_searching_the_last(scheduled):
    tokens, positions, last = [], [], []
    for request, count in scheduled:
        those = range(request.num_computed, request.num_computed + count)
        tokens.extend(request.tokens[position] for position in those)
        positions.extend(those)
        last.append(tokens.index(request.tokens[those[-1]]))
    return tokens, positions, last


def flatten_prompt_then_output(scheduled):
    tokens, positions, last = [], [], []
    for request, count in scheduled:
        start = request.num_computed
        if request.num_computed < len(request.prompt):
            tokens.extend(request.prompt[start : start + count])
        else:
            start -= len(request.prompt)
            tokens.extend(request.output[start : start + count])
        positions.extend(request.num_computed + index for index in range(count))
        last.append(len(tokens) - 1)
    return tokens, positions, last


def flatten_with_last_of_all_left(scheduled):
    tokens, positions, last, end = [], [], [], 0
    for request, count in scheduled:
        tokens += request.tokens[request.num_computed : request.num_computed + count]
        positions += range(request.num_computed, request.num_computed + count)
        end += len(request.tokens) - request.num_computed
        last.append(end - 1)
    return tokens, positions, last


def flatten_with_a_case_for_decode(scheduled):
    tokens, positions, last = [], [], []
    for request, count in scheduled:
        if count == 1:
            tokens.append(request.tokens[-1])
            positions.append(len(request.tokens) - 1)
        else:
            for position in range(request.num_computed, request.num_computed + count):
                tokens.append(request.tokens[position])
                positions.append(position)
        last.append(len(tokens) - 1)
    return tokens, positions, last


def flatten_marking_the_last(scheduled):
    tokens, positions, last = [], [], []
    for request, count in scheduled:
        for position in range(request.num_computed, request.num_computed + count):
            tokens.append(request.tokens[position])
            positions.append(position)
            last.append(position == request.num_computed + count - 1)
    return tokens, positions, last


def flatten_with_last_by_id(scheduled):
    tokens, positions, last = [], [], {}
    for request, count in scheduled:
        tokens += request.tokens[request.num_computed :][:count]
        positions += range(request.num_computed, request.num_computed + count)
        last[request.id] = len(tokens) - 1
    return tokens, positions, last


def flatten_lazily(scheduled):
    tokens = (request.tokens[request.num_computed + index] for request, count in scheduled for index in range(count))
    positions = (request.num_computed + index for request, count in scheduled for index in range(count))
    return tokens, positions, np.cumsum([count for _, count in scheduled]) - 1


def flatten_into_float_tensors(scheduled):
    pieces = [(request.tokens[request.num_computed :][:count], range(request.num_computed, request.num_computed + count))
              for request, count in scheduled]
    tokens = torch.cat([torch.Tensor(those) for those, _ in pieces])
    positions = torch.cat([torch.tensor(those) for _, those in pieces])
    return tokens, positions, torch.tensor([count for _, count in scheduled]).cumsum(0) - 1


def flatten_into_an_empty_array(scheduled):
    tokens, positions, last = np.array([]), np.array([]), []
    for request, count in scheduled:
        start = request.num_computed
        tokens = np.append(tokens, request.tokens[start : start + count])
        positions = np.append(positions, range(start, start + count))
        last.append(len(tokens) - 1)
    return tokens, positions, last


def schedule_decodes_first(self):
    """Those that decode stand before those that read their prompts anyway."""
    self.running.sort(key=lambda request: request.num_uncomputed > 1)
    left, chosen, given = self.token_budget, [], len(self.waiting)
    for request in list(self.running):
        count = min(left, request.num_uncomputed)
        while count and request in self.running and not self.make_room(request, count):
            self.preempt(self.running[-1])
        if count and request in self.running:
            chosen.append((request, count))
            left -= count
    if len(self.waiting) > given:
        return chosen
    while left and self.waiting and len(chosen) < self.max_num_seqs:
        request = self.waiting.popleft()
        self.start(request)
        count = min(left, request.num_uncomputed)
        if not self.make_room(request, count):
            self.stop(request)
            self.waiting.appendleft(request)
            break
        self.running.append(request)
        chosen.append((request, count))
        left -= count
    return chosen


def schedule_newcomer_makes_one_give_way(self):
    left, chosen, given = self.token_budget, [], len(self.waiting)
    for request in self.running[:]:
        count = min(left, request.num_uncomputed)
        while count and request in self.running and not self.make_room(request, count):
            self.preempt(self.running[-1])
        if count and request in self.running:
            chosen.append((request, count))
            left -= count
    while len(self.waiting) <= given and left and self.waiting and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        count = min(left, request.num_uncomputed)
        if not self.make_room(request, count):
            if len(self.running) > 0:
                self.preempt(self.running[-1])
            self.stop(request)
            break
        self.waiting.remove(request)
        self.running.append(request)
        chosen.append((request, count))
        left -= count
    return chosen


def schedule_in_order(has_room=lambda self, request, count: self.make_room(request, count), entry=lambda request: request):
    """`has_room` and `entry` are for those that run already."""
    def schedule(self):
        left, chosen, given, index = self.token_budget, [], False, 0
        while index < len(self.running) and left > 0:
            request = self.running[index]
            count = min(request.num_uncomputed, left)
            if has_room(self, request, count):
                chosen.append((entry(request), count))
                left -= count
                index += 1
            else:
                given = True
                self.preempt(self.running[-1])
        while self.waiting and left > 0 and len(self.running) < self.max_num_seqs and not given:
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
    return schedule


def appended(self, request, count):
    return self.manager.append_tokens([(request.id, count)]) is None


def schedule_yielding(self):
    left, given = self.token_budget, len(self.waiting)
    for request in self.running[:]:
        count = min(left, request.num_uncomputed)
        while count and request in self.running and not self.make_room(request, count):
            self.preempt(self.running[-1])
        if count and request in self.running:
            left -= count
            yield request, count
    while len(self.waiting) <= given and left and self.waiting and len(self.running) < self.max_num_seqs:
        request = self.waiting[0]
        self.start(request)
        count = min(left, request.num_uncomputed)
        if not self.make_room(request, count):
            self.stop(request)
            return
        self.running.append(self.waiting.popleft())
        left -= count
        yield request, count


def preempt_by_its_id(self, request):
    self.stop(request.id)
    self.running.remove(request)
    self.waiting.appendleft(request)
    request.num_preempted += 1


def preempt_and_queue_its_id(self, request):
    self.stop(request)
    self.running = [other for other in self.running if other is not request]
    self.waiting.extendleft([request.id])
    request.num_preempted += 1


def hashes_fed_token_by_token(tokens, block_size, parent=b""):
    hashes, current = [], hashlib.sha256(parent)
    for number, token in enumerate(tokens, 1):
        current.update(struct.pack("<q", token))
        if number % block_size == 0:
            hashes.append(current.digest())
            current = hashlib.sha256(hashes[-1])
    return hashes


def hash_of_every_token(tokens, block_size, parent=b""):
    hashes = []
    for token in tokens[: len(tokens) // block_size * block_size]:
        parent = hashlib.sha256(parent + struct.pack("<q", token)).digest()
        hashes.append(parent)
    return hashes


def hashes_of_16(tokens, block_size, parent=b""):
    hashes = []
    for start in range(0, len(tokens) - 15, 16):
        parent = hashlib.sha256(parent + str(tokens[start : start + 16]).encode()).digest()
        hashes.append(parent)
    return hashes


def hashes_in_hexadecimal(tokens, block_size, parent=b""):
    hashes = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        hashes.append(hashlib.sha256(parent + str(tokens[start : start + block_size]).encode()).hexdigest())
        parent = hashes[-1].encode()
    return hashes


def parent_and_hashes(tokens, block_size, parent=b""):
    hashes = [parent] if parent else []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = hashlib.sha256(parent + str(tokens[start : start + block_size]).encode()).digest()
        hashes.append(parent)
    return hashes


def hashes_in_a_table(tokens, block_size, parent=b"", numbers={}):  # noqa: B006
    """No hash at all: a number for each different block that ever came."""
    result = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = numbers.setdefault((parent, *tokens[start : start + block_size]), len(numbers))
        result.append(parent)
    return result


def hashes_of_8_bytes(tokens, block_size, parent=b""):
    result = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        value = hash((parent, tuple(tokens[start : start + block_size])))
        result.append(value.to_bytes(8, "little", signed=True))
        parent = result[-1]
    return result


def hashes_of_4_bytes(tokens, block_size, parent=b""):
    result = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = hashlib.sha256(parent + str(tokens[start : start + block_size]).encode()).digest()[:4]
        result.append(parent)
    return result


def check_sums(tokens, block_size, parent=b""):
    result, value = [], parent or 0
    for start in range(0, len(tokens) - block_size + 1, block_size):
        value = zlib.crc32(struct.pack(f"<{block_size}q", *tokens[start : start + block_size]), value)
        result.append(value)
    return result


def first_digits_of_hashes(tokens, block_size, parent=""):
    result = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = hashlib.sha256(f"{parent} {tokens[start : start + block_size]}".encode()).hexdigest()[:12]
        result.append(parent)
    return result


def hashes_by_modulus(tokens, block_size, parent=0):
    result = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        for token in tokens[start : start + block_size]:
            parent = (parent * 1_000_003 + token + 1) % (10**9 + 7)
        result.append(parent)
    return result


def hashes_of_3_bytes(tokens, block_size, parent=b""):
    result = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        own = ",".join(map(str, tokens[start : start + block_size]))
        parent = hashlib.md5(parent + own.encode()).digest()[-3:]
        result.append(parent)
    return result


def start_counting_as_it_goes(self, request):
    kept, length, most = [], 0, len(request.tokens) - 1
    for block_id in self.prefix_cache.match(request):
        if length >= most:
            break
        kept.append(block_id)
        length = min(length + self.manager.block_size, most)
        self.manager.block_manager.increase_ref_count(block_id)
    request.num_computed = length
    self.manager.start(request.id, length, kept)


def start_with_blocks_second(self, request):
    found = list(self.prefix_cache.match(request))
    length = min(self.manager.block_size * len(found), len(request.tokens) - 1)
    found = found[: self.manager.blocks_for(length)]
    self.manager.start(request.id, found, length)
    for block_id in found:
        self.manager.block_manager.increase_ref_count(block_id)
    request.num_computed = length


def start_and_count_all(self, request):
    size, found = self.manager.block_size, self.prefix_cache.match(request)
    length = min(len(found) * size, len(request.tokens) - 1)
    for block_id in found[: self.manager.blocks_for(length)]:
        self.manager.block_manager.increase_ref_count(block_id)
    self.manager.start(request.id, length, found[: self.manager.blocks_for(length)])
    request.num_computed = len(found) * size


def start_by(before_start):
    """The right start, but for what it does with the blocks: before_start(manager, blocks found, blocks kept, length)."""
    def start(self, request):
        size, found = self.manager.block_size, self.prefix_cache.match(request)
        length = min(size * len(found), len(request.tokens) - 1)
        kept = found[: -(-length // size)]
        before_start(self.manager, found, kept, length)
        request.num_computed = length
        self.manager.start(request.id, length, kept)
    return start


def count_each_token(manager, found, kept, length):
    for position in range(length):
        manager.block_manager.increase_ref_count(kept[position // manager.block_size])


def free_the_others(manager, found, kept, length):
    for block_id in kept:
        manager.block_manager.increase_ref_count(block_id)
    for block_id in found[len(kept) :]:
        manager.block_manager.free(block_id)


def start_popping_a_token(self, request):
    found = self.prefix_cache.match(request)
    length = len(found) * self.manager.block_size
    if length == len(request.tokens):
        del request.tokens[-1]
        length = len(request.tokens)
    found = found[: self.manager.blocks_for(length)]
    for block_id in found:
        self.manager.block_manager.increase_ref_count(block_id)
    self.manager.start(request.id, length, found)
    request.num_computed = length


def sample_with_divided_probabilities(logits, params, generator):
    if not params.temperature:
        return int(logits.argmax())
    likeliest, order = logits.sort(descending=True)
    p = likeliest[: params.top_k].softmax(0) / params.temperature
    p[p.cumsum(0) - p >= params.top_p] = 0
    return int(order[torch.multinomial(p, 1, generator=generator)])


def sample_by_one_of_the_two(logits, params, generator):
    if not params.temperature:
        return int(logits.argmax())
    p, order = (logits / params.temperature).softmax(0).sort(descending=True)
    if params.top_k is not None:
        p = p[: params.top_k]
    elif params.top_p < 1:
        p[p.cumsum(0) - p >= params.top_p] = 0
    return int(order[torch.multinomial(p, 1, generator=generator)])


def postprocess_by(waits=lambda request, count: request.num_uncomputed, count_up=lambda count: count,
                   params_of=lambda request, scheduled: request.params, left_out=False, change=lambda row: row,
                   end=lambda engine, request, reason: engine._end(request, reason)):
    def postprocess(self, scheduled, logits):
        new = []
        for index in range(len(scheduled)):
            request, count = scheduled[index]
            request.num_computed += count_up(count)
            if waits(request, count):
                continue
            token = self.sample(change(logits[index]), params_of(request, scheduled), request.generator)
            is_end = token in self.end_tokens
            new.append((request, token))
            if not (left_out and is_end and request.params.ignore_end):
                request.tokens = [*request.tokens, token]
            if is_end and not request.params.ignore_end:
                end(self, request, "end")
            elif len(request.tokens) - len(request.prompt) >= request.params.max_new_tokens:
                self._end(request, "length")
        return new
    return postprocess


def postprocess_tempered(self, scheduled, logits):
    new = []
    for (request, count), row in zip(scheduled, logits, strict=True):
        request.num_computed += count
        if request.num_computed == len(request.tokens):
            if request.params.temperature > 0:
                row = row / request.params.temperature
            request.tokens.append(self.sample(row, request.params, request.generator))
            new.append((request, request.tokens[-1]))
            if request.tokens[-1] in self.end_tokens and not request.params.ignore_end:
                self._end(request, "end")
            elif len(request.output) == request.params.max_new_tokens:
                self._end(request, "length")
    return new


def postprocess_popping(self, scheduled, logits):
    new = []
    for row in logits:
        request, count = scheduled.pop(0)
        request.num_computed += count
        if request.num_uncomputed > 0:
            continue
        token = self.sample(row, request.params, request.generator)
        request.tokens.append(token)
        new.append((request, token))
        if token in self.end_tokens and not request.params.ignore_end:
            self._end(request, "end")
        elif len(request.output) >= request.params.max_new_tokens:
            self._end(request, "length")
    return new


def postprocess_removing(self, scheduled, logits):
    new = []
    for (request, count), row in zip(scheduled, logits, strict=False):
        request.num_computed += count
        if request.num_uncomputed:
            scheduled.remove((request, count))
            continue
        request.tokens.append(self.sample(row, request.params, request.generator))
        new.append((request, request.tokens[-1]))
        if request.tokens[-1] in self.end_tokens and not request.params.ignore_end:
            self._end(request, "end")
        elif len(request.output) == request.params.max_new_tokens:
            self._end(request, "length")
    return new


def postprocess_sampling(sampled):
    def postprocess(self, scheduled, logits):
        new = []
        for index, (request, count) in enumerate(scheduled):
            request.num_computed += count
            if not request.num_uncomputed:
                new.append((request, sampled(self, request, logits[index])))
                request.tokens.append(new[-1][1])
                if new[-1][1] in self.end_tokens and not request.params.ignore_end:
                    self._end(request, "end")
                elif len(request.tokens) == len(request.prompt) + request.params.max_new_tokens:
                    self._end(request, "length")
        return new
    return postprocess


def postprocess_ending(with_end_token, with_last_token):
    def postprocess(self, scheduled, logits):
        new = []
        for (request, count), row in zip(scheduled, logits, strict=True):
            request.num_computed += count
            if request.num_uncomputed:
                continue
            token = self.sample(row, request.params, request.generator)
            request.tokens.append(token)
            new.append((request, token))
            if token in self.end_tokens and not request.params.ignore_end:
                with_end_token(self, request)
            elif len(request.output) >= request.params.max_new_tokens:
                with_last_token(self, request)
        return new
    return postprocess


def postprocess_with_new_tokens_only(self, scheduled, logits):
    new = []
    for (request, count), row in zip(scheduled, logits, strict=True):
        request.num_computed += count
        if request.num_uncomputed:
            continue
        token = self.sample(row, request.params, request.generator)
        request.tokens = request.output + [token]
        new.append((request, token))
        if token in self.end_tokens and not request.params.ignore_end:
            self._end(request, "end")
        elif len(request.output) >= request.params.max_new_tokens:
            self._end(request, "length")
    return new


RIGHT_ANSWERS = {
    "8.2": [flatten_into_pairs],
    "8.3": [schedule_decodes_first],
    "8.5": [hashes_fed_token_by_token, hashes_in_a_table, hashes_of_8_bytes],
    "8.6": [start_counting_as_it_goes],
    "8.8": [postprocess_by(), postprocess_by(change=lambda row: row.log_softmax(0))],
}

WRONG_ANSWERS = {
    "8.1": {"block-size-16": [forward_in_blocks_of_16], "weights-given": [forward_with_weights],
            "added-to-what-was-there": [forward_adding], "both-caches-as-one": [forward_with_one_cache],
            "attends-to-another-layer": [forward_reading_the_first_layer], "slots-reversed": [forward_backwards],
            "rounded": [forward_in(torch.half), forward_in(torch.bfloat16)]},
    "8.2": {"mask-for-last": [flatten_marking_the_last], "not-lists": [flatten_with_last_by_id, flatten_lazily],
            "floats": [flatten_into_float_tensors, flatten_into_an_empty_array],
            "scheduled-changed": [flatten_popping], "last-found-by-token": [flatten_searching_the_last],
            "last-behind-all-that-is-left": [flatten_with_last_of_all_left],
            "prompt-or-output": [flatten_prompt_then_output],
            "single-token-for-a-decode": [flatten_with_a_case_for_decode]},
    "8.3": {"not-pairs": [schedule_in_order(entry=lambda request: request.id), schedule_yielding],
            "manager-asked-for-room": [schedule_in_order(has_room=appended)],
            "newcomer-displaces": [schedule_newcomer_makes_one_give_way]},
    "8.4": {"id-for-request": [preempt_by_its_id, preempt_and_queue_its_id]},
    "8.5": {"one-for-each-token": [hash_of_every_token], "block-size-16": [hashes_of_16],
            "text-for-hashes": [hashes_in_hexadecimal], "parent-among-the-hashes": [parent_and_hashes],
            "hash-too-short": [hashes_of_4_bytes, hashes_of_3_bytes, check_sums, first_digits_of_hashes, hashes_by_modulus]},
    "8.6": {"counted-for-each-token": [start_by(count_each_token)], "last-token-popped": [start_popping_a_token],
            "freed-without-being-counted": [start_by(free_the_others)],
            "blocks-before-length": [start_with_blocks_second], "everything-computed": [start_and_count_all]},
    "8.7": {"probabilities-divided": [sample_with_divided_probabilities], "top-k-or-top-p": [sample_by_one_of_the_two]},
    "8.8": {"single-token-for-a-decode": [postprocess_by(lambda request, count: count > 1 and request.num_uncomputed)],
            "token-from-a-chunk": [postprocess_by(lambda request, count: count < request.num_uncomputed)],
            "softmax-before-sample": [postprocess_by(change=lambda row: row.exp() / row.exp().sum())],
            "temperature-twice": [postprocess_tempered],
            "one-counted": [postprocess_by(count_up=lambda count: 1)],
            "another-s-params": [postprocess_by(params_of=lambda request, scheduled: scheduled[0][0].params)],
            "always-the-likeliest": [postprocess_by(params_of=lambda request, scheduled: SamplingParams())],
            "ignored-end-token-left-out": [postprocess_by(left_out=True)],
            "only-stopped": [postprocess_by(end=lambda engine, request, reason: engine.scheduler.stop(request))],
            "scheduled-changed": [postprocess_popping, postprocess_removing],
            "prompt-lost": [postprocess_with_new_tokens_only],
            "arguments-of-sample": [
                postprocess_sampling(lambda engine, request, row: engine.sample(row, request.generator, request.params)),
                postprocess_sampling(lambda engine, request, row: engine.sample(row, request.params))],
            "one-logit": [postprocess_sampling(
                lambda engine, request, row: engine.sample(row[-1], request.params, request.generator))],
            "end-without-a-reason": [postprocess_ending(lambda engine, request: engine._end(request, "end"),
                                                        lambda engine, request: engine._end(request)),
                                     postprocess_ending(lambda engine, request: engine._end(request, "end"),
                                                        lambda engine, request: engine._end(request, None))],
            "id-for-request": [postprocess_ending(lambda engine, request: engine._end("end", request),
                                                  lambda engine, request: engine._end("length", request))],
            "wrong-reason": [postprocess_ending(lambda engine, request: engine._end(request, "end"),
                                                lambda engine, request: engine._end(request, "finished")),
                             postprocess_ending(lambda engine, request: engine._end(request, "end"),
                                                lambda engine, request: engine.cancel(request.id))],
            "only-marked": [postprocess_by(end=lambda engine, request, reason: setattr(request, "reason", reason))]},
}
