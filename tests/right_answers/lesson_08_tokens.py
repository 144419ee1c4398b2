"""Lesson 08, exercises 8.5 to 8.8."""

import functools
import hashlib
import itertools
import math
import random

import numpy as np
import torch

# 8.5


def hashes_of_text(tokens, block_size, parent=b""):
    result = []
    for i in range(len(tokens) // block_size):
        h = hashlib.blake2b(parent)
        for token in tokens[i * block_size : (i + 1) * block_size]:
            h.update(f"{token},".encode())
        parent = h.digest()
        result.append(parent)
    return result


def hashes_recursively(tokens, block_size, parent=b""):
    if len(tokens) < block_size:
        return []
    own = b"".join(token.to_bytes(8, "little") for token in tokens[:block_size])
    first = hashlib.md5(parent + own).digest()
    return [first, *hashes_recursively(tokens[block_size:], block_size, first)]


def hashes_by_python(tokens, block_size, parent=b""):
    """Python's own hash: an int."""
    hashes = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = hash((parent, *tokens[start : start + block_size]))
        hashes.append(parent)
    return hashes


def hashes_accumulated(tokens, block_size, parent=b""):
    blocks = zip(*[iter(tokens)] * block_size)
    return list(itertools.accumulate(blocks, lambda h, block: hashlib.sha256(h + str(block).encode()).digest(),
                                     initial=parent))[1:]


def nested_tuples(tokens, block_size, parent=b""):
    """No hash at all: everything before, as a tuple."""
    found, block = [], []
    for token in tokens:
        block.append(token)
        if len(block) == block_size:
            parent = (parent, *block)
            found.append(parent)
            block = []
    return found


def all_tokens_by_numpy(tokens, block_size, parent=b""):
    """All of the tokens so far, as bytes."""
    rows = np.asarray(tokens[: len(tokens) // block_size * block_size], dtype=np.int32).reshape(-1, block_size)
    return [parent + rows[: i + 1].tobytes() for i in range(len(rows))]


def number_of_two_bytes(tokens, block_size, parent=b""):
    hashes = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        words = hashlib.md5(repr((parent, tokens[start : start + block_size])).encode()).hexdigest()
        parent = int(words, 16) % 65_536
        hashes.append(parent)
    return hashes


def own_text_only(tokens, block_size, parent=b""):
    return [hashlib.sha256(str(tokens[i : i + block_size]).encode()).hexdigest()
            for i in range(0, len(tokens) - block_size + 1, block_size)]


def anew_in_each_call(tokens, block_size, parent=b""):
    blocks = len(tokens) // block_size
    return [hash(tuple(tokens[: (b + 1) * block_size])) for b in range(blocks)]


def whole_call_so_far(tokens, block_size, parent=b""):
    return [hash((parent, tuple(tokens[: (b + 1) * block_size]))) for b in range(len(tokens) // block_size)]


def every_started_block(tokens, block_size, parent=b""):
    hashes = []
    while tokens:
        own, tokens = tokens[:block_size], tokens[block_size:]
        parent = hashlib.sha1(parent + np.array(own).tobytes()).digest()
        hashes.append(parent)
    return hashes


def bytes_of_tokens(tokens, block_size, parent=b""):
    hashes = []
    for end in range(block_size, len(tokens) + 1, block_size):
        parent = hashlib.sha256(parent + bytes(t & 255 for t in tokens[end - block_size : end])).digest()
        hashes.append(parent)
    return hashes


def sixteen_bits(tokens, block_size, parent=b""):
    hashes = []
    for end in range(block_size, len(tokens) + 1, block_size):
        own = torch.tensor(tokens[end - block_size : end]).to(torch.int16).numpy().tobytes()
        parent = hashlib.sha256(parent + own).digest()
        hashes.append(parent)
    return hashes


def text_without_commas(tokens, block_size, parent=b""):
    hashes = []
    for b in range(len(tokens) // block_size):
        h = hashlib.sha256(parent)
        for token in tokens[b * block_size :][:block_size]:
            h.update(str(token).encode())
        hashes.append(parent := h.digest())
    return hashes


def added_up(tokens, block_size, parent=b""):
    value, hashes = int.from_bytes(parent, "little"), []
    for b in range(len(tokens) // block_size):
        value ^= hash(tuple(tokens[b * block_size : (b + 1) * block_size])) & (2**64 - 1)
        hashes.append(value.to_bytes(8, "little"))
    return hashes


def stops_before_the_end(tokens, block_size, parent=b""):
    hashes, end = [], block_size
    while end < len(tokens):
        parent = hash((parent, *tokens[end - block_size : end]))
        hashes.append(parent)
        end += block_size
    return hashes


def bytes_as_long_as_needed(tokens, block_size, parent=b""):
    hashes = []
    for end in range(block_size, len(tokens) + 1, block_size):
        h = hashlib.sha256(parent)
        for token in tokens[end - block_size : end]:
            h.update(token.to_bytes((token.bit_length() + 7) // 8 or 1, "little"))
        hashes.append(parent := h.digest())
    return hashes


def characters_of_tokens(tokens, block_size, parent=b""):
    hashes = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        text = "".join(chr(token) for token in tokens[start : start + block_size])
        parent = hashlib.sha256(parent + text.encode("utf-8")).digest()
        hashes.append(parent)
    return hashes


def into_a_default_list(tokens, block_size, parent=b"", hashes=[]):  # noqa: B006
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = hashlib.sha256(parent + str(tokens[start : start + block_size]).encode()).digest()
        hashes.append(parent)
    return hashes


def first_token_and_block(tokens, block_size, parent=b""):
    return [hashlib.sha256(str((start, tokens[start : start + block_size])).encode()).digest()
            for start in range(0, len(tokens) - block_size + 1, block_size)]


def tokens_of_two_blocks(tokens, block_size, parent=b""):
    return [hashlib.sha256(parent + str(tokens[max(0, start - block_size) : start + block_size]).encode()).digest()
            for start in range(0, len(tokens) - block_size + 1, block_size)]


def only_the_last_hash(tokens, block_size, parent=b""):
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = hashlib.sha256(parent + str(tokens[start : start + block_size]).encode()).digest()
    return [parent]


# 8.6


def start_with_an_if(self, request):
    blocks = self.prefix_cache.match(request)
    computed = len(blocks) * self.manager.block_size
    if computed == len(request.tokens):
        computed -= 1
        if computed % self.manager.block_size == 0:
            blocks.pop()
    for block in blocks:
        self.manager.block_manager.increase_ref_count(block)
    self.manager.start(request.id, computed, blocks)
    request.num_computed = computed


def start_block_by_block(self, request):
    size, shared, computed = self.manager.block_size, [], 0
    for block_id in self.prefix_cache.match(request):
        new = min(size, len(request.tokens) - 1 - computed)
        if new > 0:
            self.manager.block_manager.increase_ref_count(block_id)
            shared.append(block_id)
            computed += new
    request.num_computed = computed
    self.manager.start(request.id, computed, shared)


def start_with_the_row_first(self, request):
    """The row first, with nothing in it; then length and blocks."""
    self.manager.start(request.id, 0, [])
    sequence = self.manager.get(request.id)
    found = self.prefix_cache.match(request)
    sequence.length = request.num_computed = min(self.manager.block_size * len(found), request.num_uncomputed - 1)
    for index in range(-(-sequence.length // self.manager.block_size)):
        self.manager.table.write(sequence.row, index, [found[index]])
        self.manager.block_manager.increase_ref_count(found[index])


def start_by_forking(self, request):
    """Looks the blocks up, and notes what the cache knows already."""
    size, last = self.manager.block_size, len(request.tokens) - 1
    matched = self.prefix_cache.match(request)[: math.ceil(last / size)]
    request.num_inserted = 0
    list(map(self.manager.block_manager.increase_ref_count, matched))
    request.num_computed = last if len(matched) * size > last else len(matched) * size
    self.manager.start(seq_id=request.id, length=request.num_computed, blocks=matched)


def shares_without_telling(self, request):
    blocks = self.prefix_cache.match(request)
    n = len(blocks) * self.manager.block_size
    if n >= len(request.tokens):
        n = len(request.tokens) - 1
        blocks = blocks[: self.manager.blocks_for(n)]
    request.num_computed = n
    self.manager.start(request.id, n, blocks)


def nothing_left(self, request):
    blocks = self.prefix_cache.match(request)
    for b in blocks:
        self.manager.block_manager.increase_ref_count(b)
    self.manager.start(request.id, len(blocks) * self.manager.block_size, blocks)
    request.num_computed = len(blocks) * self.manager.block_size


def pops_a_full_match(self, request):
    blocks = self.prefix_cache.match(request)
    if blocks and len(blocks) * self.manager.block_size >= len(request.tokens):
        blocks.pop()
    for b in blocks:
        self.manager.block_manager.increase_ref_count(b)
    request.num_computed = len(blocks) * self.manager.block_size
    self.manager.start(request.id, request.num_computed, blocks)


def forgets_what_is_computed(self, request):
    blocks = self.prefix_cache.match(request)
    n = min(len(blocks) * self.manager.block_size, len(request.tokens) - 1)
    blocks = blocks[: self.manager.blocks_for(n)]
    for b in blocks:
        self.manager.block_manager.increase_ref_count(b)
    self.manager.start(request.id, n, blocks)


def only_after_a_match(self, request):
    if found := self.prefix_cache.match(request):
        start_with_an_if(self, request)
        assert found


def limited_by_the_prompt(self, request):
    blocks = self.prefix_cache.match(request)
    request.num_computed = min(len(blocks) * self.manager.block_size, len(request.prompt) - 1)
    del blocks[self.manager.blocks_for(request.num_computed) :]
    for b in blocks:
        self.manager.block_manager.increase_ref_count(b)
    self.manager.start(request.id, request.num_computed, blocks)


def keeps_the_surplus_block(self, request):
    blocks = self.prefix_cache.match(request)
    for b in blocks:
        self.manager.block_manager.increase_ref_count(b)
    request.num_computed = len(blocks) * self.manager.block_size
    if request.num_computed == len(request.tokens):
        request.num_computed -= 1
    self.manager.start(request.id, request.num_computed, blocks)


def start_in_blocks_of_16(self, request):
    shared = self.prefix_cache.match(request)
    known = min(16 * len(shared), len(request.tokens) - 1)
    shared = shared[: math.ceil(known / 16)]
    for block in shared:
        self.manager.block_manager.increase_ref_count(block)
    request.num_computed = known
    self.manager.start(request.id, known, shared)


def start_with_a_copy(self, request):
    blocks = [*self.prefix_cache.match(request)]
    known = len(blocks) * self.manager.block_size
    mine = []
    if known == len(request.tokens):
        known -= 1
        old, new = blocks.pop(), self.manager.block_manager.allocate()
        self.manager.kv_cache[:, :, new] = self.manager.kv_cache[:, :, old].clone()
        mine.append(new)
    for block in blocks:
        self.manager.block_manager.increase_ref_count(block)
    request.num_computed = known
    self.manager.start(request.id, known, [*blocks, *mine])


def start_the_request_itself(self, request):
    blocks = self.prefix_cache.match(request)
    length = min(self.manager.block_size * len(blocks), len(request.tokens) - 1)
    blocks = blocks[: self.manager.blocks_for(length)]
    list(map(self.manager.block_manager.increase_ref_count, blocks))
    request.num_computed = length
    self.manager.start(request, length, blocks)


def match_the_tokens(self, request):
    blocks = self.prefix_cache.match(request.tokens)
    request.num_computed = min(self.manager.block_size * len(blocks), len(request.tokens) - 1)
    self.manager.start(request.id, request.num_computed, blocks)


def a_block_back_and_all_in_the_row(self, request):
    blocks, size = self.prefix_cache.match(request), self.manager.block_size
    length = len(blocks) * size
    if length == len(request.tokens):
        length -= size
    for block in blocks:
        self.manager.block_manager.increase_ref_count(block)
    self.manager.start(request.id, length, blocks)
    request.num_computed = length


def shares_and_adds(self, request):
    blocks = self.prefix_cache.match(request)
    for block in blocks[: self.manager.blocks_for(min(len(blocks) * self.manager.block_size, len(request.tokens) - 1))]:
        self.manager.block_manager.increase_ref_count(block)
    request.num_computed = min(len(blocks) * self.manager.block_size, len(request.tokens) - 1)
    self.manager.add_sequence(request.id, request.num_computed)


# 8.7


def sample_unsorted(logits, params, generator):
    """Masks instead of cuts; the tokens stay in their order."""
    if params.temperature == 0:
        return logits.argmax().item()
    logits = logits.float() / params.temperature
    if params.top_k is not None and params.top_k < len(logits):
        logits[logits < logits.topk(params.top_k).values[-1]] = -math.inf
    p = logits.softmax(0)
    if params.top_p < 1:
        sorted_p, order = p.sort(descending=True)
        keep = torch.zeros_like(p, dtype=torch.bool)
        keep[order] = sorted_p.cumsum(0) - sorted_p < params.top_p
        p = p * keep
    return torch.multinomial(p, 1, generator=generator).item()


def sample_by_gumbel(logits, params, generator):
    """The largest of the logits with noise on them."""
    if not params.temperature:
        return int(torch.argmax(logits))
    scaled, order = torch.sort(logits / params.temperature, descending=True)
    k = min(params.top_k or len(order), len(order))
    log_p = torch.log_softmax(scaled[:k], dim=0)
    reached = torch.cat([torch.zeros(1), log_p.exp().cumsum(0)[:-1]])
    log_p = log_p.masked_fill(reached >= params.top_p, -math.inf)
    noise = torch.empty(k).exponential_(generator=generator)
    return int(order[int((log_p - noise.log()).argmax())])


def sample_by_hand(logits, params, generator):
    """Plain Python, and one uniform number."""
    values = logits.tolist()
    tokens = sorted(range(len(values)), key=values.__getitem__, reverse=True)
    if params.temperature == 0:
        return tokens[0]
    kept, total = [], 0.0
    tokens = tokens[: params.top_k]
    weights = [math.exp((values[token] - values[tokens[0]]) / params.temperature) for token in tokens]
    for token, weight in zip(tokens, weights):
        kept.append((token, weight))
        total += weight
        if total >= params.top_p * sum(weights):
            break
    number = torch.rand(1, generator=generator).item() * total
    for token, weight in kept:
        number -= weight
        if number < 0:
            return token
    return kept[-1][0]


def sample_by_searching(logits, params, generator):
    """The number of tokens to keep from the running sum, and the drawn one from it as well."""
    if params.temperature == 0:
        return int(logits.max(dim=0).indices)
    p, tokens = torch.softmax(logits.double() / params.temperature, dim=0).sort(descending=True)
    p = p[: params.top_k] / p[: params.top_k].sum()
    num_kept = min(int(torch.searchsorted(p.cumsum(0), params.top_p)) + 1, len(p))
    sums = p[:num_kept].cumsum(0)
    number = torch.rand((), generator=generator, dtype=torch.float64) * sums[-1]
    return int(tokens[torch.searchsorted(sums, number, right=True).clamp(max=num_kept - 1)])


def sample_by_numpy(logits, params, generator):
    x = logits.numpy().astype(np.float64)
    if params.temperature == 0:
        return int(x.argmax())
    order = np.argsort(-x)[: params.top_k]
    p = np.exp((x[order] - x.max()) / params.temperature)
    p /= p.sum()
    kept = np.cumsum(p) - p < params.top_p
    order, p = order[kept], p[kept] / p[kept].sum()
    number = float(torch.rand(1, generator=generator, dtype=torch.float64))
    return int(order[min(np.searchsorted(np.cumsum(p), number), len(order) - 1)])


def unsorted_with(logits, params, generator, divide=True, keep=lambda p, top_p: p.cumsum(0) - p < top_p, draw=None, k=0):
    """sample_unsorted, with a part of it replaced."""
    if params.temperature == 0:
        return int(logits.argmax())
    scaled = logits / params.temperature if divide else logits * params.temperature
    if params.top_k is not None:
        least = scaled.topk(min(params.top_k + k, len(logits))).values[-1]
        scaled = scaled.masked_fill(scaled < least, -math.inf)
    p, order = scaled.softmax(0).sort(descending=True)
    kept = torch.zeros_like(p, dtype=torch.bool).scatter(0, order, keep(p, params.top_p))
    p = scaled.softmax(0) * kept
    return int((draw or torch.multinomial)(p, 1, generator=generator))


def always_with_the_first(p, top_p):
    kept = p.cumsum(0) <= top_p
    kept[0] = True
    return kept


def one_past(p, top_p):
    kept = p.cumsum(0) - p < top_p
    kept[1:] = kept[:-1].clone()
    return kept


def globally(p, num_samples, generator):
    return torch.multinomial(p, num_samples)


def by_choices(p, num_samples, generator):
    return random.choices(range(len(p)), weights=p.tolist())[0]


def sample_at_temperature_one(logits, params, generator):
    return sample_unsorted(logits, params if params.temperature == 0 else type(params)(
        temperature=1.0, top_k=params.top_k, top_p=params.top_p), generator)


def cut_position(logits, params, generator):
    """A place among the likeliest, where the token should be."""
    if params.temperature == 0:
        return int(logits.argmax())
    best = torch.topk(logits / params.temperature, min(params.top_k or len(logits), len(logits))).values.softmax(0)
    best = torch.where(best.cumsum(0) - best < params.top_p, best, torch.zeros(()))
    return torch.multinomial(best, 1, generator=generator).item()


def seed_in_the_function(logits, params, generator):
    return sample_by_gumbel(logits, params, torch.Generator().manual_seed(params.seed))


def seeds_the_generator(logits, params, generator):
    generator.manual_seed(params.seed)
    return sample_by_hand(logits, params, generator)


def no_case_for_zero(logits, params, generator):
    p = torch.softmax(logits / params.temperature, dim=0)
    if params.top_k:
        p = p * (p >= p.topk(min(params.top_k, len(p))).values[-1])
    p = p / p.sum()
    sorted_p, order = p.sort(descending=True)
    sorted_p[sorted_p.cumsum(0) - sorted_p >= params.top_p] = 0
    return order[torch.multinomial(sorted_p, 1, generator=generator)].item()


def divides_what_it_was_given(logits, params, generator):
    if params.temperature == 0:
        return int(logits.argmax())
    logits /= params.temperature
    return sample_by_hand(logits, type(params)(temperature=1.0, top_k=params.top_k, top_p=params.top_p), generator)


def exponentials(logits, params, generator):
    if params.temperature == 0:
        return int(logits.argmax())
    e = torch.exp(logits / params.temperature)
    p, order = (e / e.sum()).sort(descending=True)
    p = p[: params.top_k] / p[: params.top_k].sum()
    return int(order[torch.multinomial(p * (p.cumsum(0) - p < params.top_p), 1, generator=generator)])


def top_p_then_top_k(logits, params, generator):
    if params.temperature == 0:
        return int(logits.argmax())
    p, order = torch.softmax(logits / params.temperature, 0).sort(descending=True)
    num = 1 + int((p.cumsum(0) < params.top_p).sum())
    num = min(num, params.top_k or len(p))
    return int(order[torch.multinomial(p[:num], 1, generator=generator)])


def never_thinks_of_zero(logits, params, generator):
    return int(torch.multinomial((logits / params.temperature).softmax(0), 1, generator=generator))


def zero_in_place_of_what_goes(logits, params, generator):
    if params.temperature == 0:
        return int(logits.argmax())
    scaled = logits / params.temperature
    if params.top_k is not None and params.top_k < len(scaled):
        scaled = torch.where(scaled < scaled.topk(params.top_k).values[-1], 0.0, scaled)
    p, order = scaled.softmax(0).sort(descending=True)
    p = p[p.cumsum(0) - p < params.top_p]
    return int(order[torch.multinomial(p, 1, generator=generator)])


def any_of_those_that_stay(logits, params, generator):
    if params.temperature == 0:
        return int(logits.argmax())
    p, order = (logits / params.temperature).softmax(0).sort(descending=True)
    p = p[: params.top_k] / p[: params.top_k].sum()
    num = int((p.cumsum(0) - p < params.top_p).sum())
    return int(order[torch.randint(num, (1,), generator=generator)])


# 8.8


def postprocess_by_index(self, scheduled, logits):
    result = []
    for i in range(len(scheduled)):
        request, num_tokens = scheduled[i]
        request.num_computed = request.num_computed + num_tokens
        if request.num_computed == len(request.tokens):
            request.tokens.append(self.sample(logits[i], request.params, request.generator))
            token = request.tokens[-1]
            result.append((request, token))
            ended = token in self.end_tokens and request.params.ignore_end is False
            if ended or len(request.tokens) - len(request.prompt) >= request.params.max_new_tokens:
                self._end(request, "end" if ended else "length")
    return result


def postprocess_in_three_passes(self, scheduled, logits):
    for request, num_tokens in scheduled:
        request.num_computed += num_tokens
    new = [(request, self.sample(row, request.params, request.generator))
           for (request, _), row in zip(scheduled, logits) if request.num_uncomputed == 0]
    for request, token in new:
        request.tokens += [token]
        if len(request.output) == request.params.max_new_tokens:
            self._end(request, "length")
        elif not request.params.ignore_end and token in self.end_tokens:
            self._end(request, "end")
    return new


def postprocess_without_end(self, scheduled, logits):
    """Does what _end does, step by step."""
    new = {}
    for (request, num_tokens), row in zip(scheduled, logits.unbind()):
        missing = len(request.tokens) - request.num_computed - num_tokens
        request.num_computed += num_tokens
        if missing > 0:
            continue
        new[request] = self.sample(row, request.params, request.generator)
        request.tokens.append(new[request])
        if new[request] in self.end_tokens and not request.params.ignore_end:
            request.reason = "end"
        elif len(request.output) >= request.params.max_new_tokens:
            request.reason = "length"
        if request.reason:
            self.scheduler.remove(request)
            self.requests.pop(request.id)
    return list(new.items())


def postprocess_ends_last(self, scheduled, logits):
    new, ended = [], []
    for position, (request, num_tokens) in enumerate(scheduled):
        request.num_computed += num_tokens
        if not request.num_uncomputed:
            token = self.sample(logits[position], request.params, request.generator)
            new.append((request, token))
            request.tokens.append(token)
            if token in self.end_tokens and not request.params.ignore_end:
                ended.append((request, "end"))
            elif len(request.output) == request.params.max_new_tokens:
                ended.append((request, "length"))
    for request, reason in ended:
        self._end(request, reason)
    return tuple(new)


def by_index(self, scheduled, logits, whole=True, row=lambda i, new: i, count=lambda request: len(request.output), first=0,
             mark=None, check_end=True):
    """postprocess_by_index, with a part of it replaced."""
    result = []
    for i, (request, num_tokens) in enumerate(scheduled):
        request.num_computed += num_tokens
        if whole and request.num_computed < len(request.tokens):
            continue
        token = self.sample(logits[row(i, result)], request.params, request.generator)
        request.tokens.append(token)
        request.num_computed += first
        result.append((request, token))
        reason = None
        if check_end and token in self.end_tokens and not request.params.ignore_end:
            reason = "end"
        elif count(request) >= request.params.max_new_tokens:
            reason = "length"
        if reason:
            (mark or self._end)(request, reason)
    return result


def mark_only(request, reason):
    request.reason = reason


def rows_from_an_iterator(self, scheduled, logits):
    """Takes a row only for those who need one."""
    rows, new = iter(logits), []
    for request, num_tokens in scheduled:
        request.num_computed += num_tokens
        if not request.num_uncomputed:
            new += postprocess_in_three_passes(self, [(request, 0)], next(rows)[None])
    return new


def as_long_as_the_prompt_is_read(self, scheduled, logits):
    """Forgets that a request may compute tokens of its own again."""
    new = []
    for (request, num_tokens), row in zip(scheduled, logits):
        request.num_computed += num_tokens
        if request.num_computed >= len(request.prompt):
            new += postprocess_in_three_passes(self, [(request, 0)], row[None]) or by_index(
                self, [(request, 0)], row[None], whole=False)
    return new


def takes_any_end_token(self, scheduled, logits):
    end_token = next(iter(self.end_tokens))
    new = by_index(self, scheduled, logits, check_end=False)
    for request, token in new:
        if request.reason is None and token == end_token and not request.params.ignore_end:
            self._end(request, "end")
    return new


def tokens_alone(self, scheduled, logits):
    return [token for _, token in postprocess_by_index(self, scheduled, logits)]


def returns_too_late(self, scheduled, logits):
    new = postprocess_by_index(self, scheduled, logits)
    return [pair for pair in new if pair[0] in self.scheduler.running]


def two_ifs(self, scheduled, logits):
    new = by_index(self, scheduled, logits, mark=lambda request, reason: None)
    for request, token in new:
        if token in self.end_tokens and not request.params.ignore_end:
            self._end(request, "end")
        if len(request.output) >= request.params.max_new_tokens:
            self._end(request, "length")
    return new


def part(function, **parts):
    """A function with some of its parts replaced, as a learner would have written it out."""
    @functools.wraps(function)
    def wrong(*args):
        return function(*args, **parts)
    return wrong


def draws_before_it_looks(self, scheduled, logits):
    new = []
    for (request, n), row in zip(scheduled, logits, strict=True):
        request.num_computed += n
        token = self.sample(row, request.params, request.generator)
        if request.num_uncomputed:
            continue
        request.tokens.append(token)
        new.append((request, token))
        if token in self.end_tokens and not request.params.ignore_end:
            self._end(request, "end")
        elif len(request.output) == request.params.max_new_tokens:
            self._end(request, "length")
    return new


def first_one_s_generator(self, scheduled, logits):
    new, generator = [], scheduled[0][0].generator
    for (request, n), row in zip(scheduled, logits, strict=True):
        request.num_computed += n
        if request.num_uncomputed:
            continue
        token = self.sample(row, request.params, generator)
        request.tokens.append(token)
        new.append((request, token))
        if token in self.end_tokens and not request.params.ignore_end:
            self._end(request, "end")
        elif len(request.output) == request.params.max_new_tokens:
            self._end(request, "length")
    return new


def counts_nothing(self, scheduled, logits):
    new = []
    for (request, n), row in zip(scheduled, logits, strict=True):
        if request.num_uncomputed > n:
            continue
        token = self.sample(row, request.params, request.generator)
        request.tokens.append(token)
        new.append((request, token))
        if token in self.end_tokens and not request.params.ignore_end:
            self._end(request, "end")
        elif len(request.output) == request.params.max_new_tokens:
            self._end(request, "length")
    return new


def ends_with_the_first_end(self, scheduled, logits):
    new = []
    for (request, n), row in zip(scheduled, logits, strict=True):
        request.num_computed += n
        if request.num_uncomputed:
            continue
        token = self.sample(row, request.params, request.generator)
        request.tokens.append(token)
        new.append((request, token))
        if token in self.end_tokens and not request.params.ignore_end:
            self._end(request, "end")
            break
        elif len(request.output) == request.params.max_new_tokens:
            self._end(request, "length")
    return new


def ends_by_id(self, scheduled, logits):
    new = []
    for (request, n), row in zip(scheduled, logits, strict=True):
        request.num_computed += n
        if request.num_uncomputed:
            continue
        token = self.sample(row, request.params, request.generator)
        request.tokens.append(token)
        new.append((request, token))
        if token in self.end_tokens and not request.params.ignore_end:
            self._end(request.id, "end")
        elif len(request.output) == request.params.max_new_tokens:
            self._end(request.id, "length")
    return new


def stops_what_has_ended(self, scheduled, logits):
    new = []
    for (request, n), row in zip(scheduled, logits, strict=True):
        request.num_computed += n
        if request.num_uncomputed:
            continue
        token = self.sample(row, request.params, request.generator)
        request.tokens.append(token)
        new.append((request, token))
        if token in self.end_tokens and not request.params.ignore_end:
            self._end(request, "end")
            self.scheduler.stop(request)
        elif len(request.output) == request.params.max_new_tokens:
            self._end(request, "length")
    return new


def keeps_no_token(self, scheduled, logits):
    new = []
    for (request, n), row in zip(scheduled, logits, strict=True):
        request.num_computed += n
        if request.num_uncomputed:
            continue
        token = self.sample(row, request.params, request.generator)
        new.append((request, token))
        if token in self.end_tokens and not request.params.ignore_end:
            self._end(request, "end")
        elif len(request.output) == request.params.max_new_tokens:
            self._end(request, "length")
    return new


def returns_the_ended(self, scheduled, logits):
    new = []
    for (request, n), row in zip(scheduled, logits, strict=True):
        request.num_computed += n
        if request.num_uncomputed:
            continue
        token = self.sample(row, request.params, request.generator)
        request.tokens.append(token)
        if token in self.end_tokens and not request.params.ignore_end:
            self._end(request, "end")
            new.append((request, token))
        elif len(request.output) == request.params.max_new_tokens:
            self._end(request, "length")
            new.append((request, token))
    return new


def row_behind_all_tokens(self, scheduled, logits):
    new, at = [], -1
    for request, n in scheduled:
        at += n
        row = logits[at]
        request.num_computed += n
        if request.num_uncomputed:
            continue
        token = self.sample(row, request.params, request.generator)
        request.tokens.append(token)
        new.append((request, token))
        if token in self.end_tokens and not request.params.ignore_end:
            self._end(request, "end")
        elif len(request.output) == request.params.max_new_tokens:
            self._end(request, "length")
    return new


RIGHT_ANSWERS = {
    "8.5": [hashes_of_text, hashes_recursively, hashes_by_python, hashes_accumulated, nested_tuples, all_tokens_by_numpy],
    "8.6": [start_with_an_if, start_block_by_block, start_with_the_row_first, start_by_forking],
    "8.7": [sample_unsorted, sample_by_gumbel, sample_by_hand, sample_by_searching, sample_by_numpy],
    "8.8": [postprocess_by_index, postprocess_in_three_passes, postprocess_without_end, postprocess_ends_last],
}

WRONG_ANSWERS = {
    "8.5": {
        "not-chained": [own_text_only, first_token_and_block],
        "only-the-block-before": [tokens_of_two_blocks],
        "one-hash-for-the-whole": [only_the_last_hash],
        "list-kept-between-calls": [into_a_default_list],
        "not-every-token-is-a-character": [characters_of_tokens],
        "hash-too-short": [number_of_two_bytes],
        "parent-ignored": [anew_in_each_call],
        "depends-on-the-calls": [whole_call_so_far],
        "rest-hashed": [every_started_block],
        "last-block-missing": [stops_before_the_end],
        "tokens-cut-short": [bytes_of_tokens, sixteen_bits],
        "digits-joined": [text_without_commas, bytes_as_long_as_needed],
        "order-of-blocks-lost": [added_up],
    },
    "8.6": {
        "users-not-counted": [shares_without_telling],
        "everything-computed": [nothing_left],
        "last-block-dropped": [pops_a_full_match, a_block_back_and_all_in_the_row],
        "new-blocks-taken": [shares_and_adds],
        "copied-already": [start_with_a_copy],
        "block-size-16": [start_in_blocks_of_16],
        "request-for-its-id": [start_the_request_itself],
        "tokens-for-the-request": [match_the_tokens],
        "computed-not-set": [forgets_what_is_computed],
        "no-row-without-a-match": [only_after_a_match],
        "prompt-in-place-of-tokens": [limited_by_the_prompt],
        "block-without-a-token": [keeps_the_surplus_block],
    },
    "8.7": {
        "division-by-zero": [no_case_for_zero, never_thinks_of_zero],
        "masked-with-zero": [zero_in_place_of_what_goes],
        "softmax-twice": [any_of_those_that_stay],
        "temperature-multiplied": [part(unsorted_with, divide=False)],
        "temperature-ignored": [sample_at_temperature_one],
        "position-for-token": [cut_position],
        "crossing-token-left-out": [part(unsorted_with, keep=lambda p, top_p: p.cumsum(0) < top_p),
                                    part(unsorted_with, keep=always_with_the_first)],
        "one-token-too-many": [part(unsorted_with, keep=one_past)],
        "top-p-ignored": [part(unsorted_with, keep=lambda p, top_p: p >= 0)],
        "top-p-of-all-tokens": [top_p_then_top_k],
        "top-k-off-by-one": [part(unsorted_with, k=1)],
        "generator-ignored": [part(unsorted_with, draw=globally), part(unsorted_with, draw=by_choices)],
        "seeded-at-each-draw": [seed_in_the_function, seeds_the_generator],
        "logits-changed": [divides_what_it_was_given],
        "overflow": [exponentials],
    },
    "8.8": {
        "token-from-a-chunk": [part(by_index, whole=False)],
        "prompt-in-place-of-tokens": [as_long_as_the_prompt_is_read],
        "only-one-end-token": [takes_any_end_token],
        "rows-mixed-up": [part(by_index, row=lambda i, new: len(new)), rows_from_an_iterator],
        "prompt-counted": [part(by_index, count=lambda request: len(request.tokens))],
        "goes-on-too-long": [part(by_index, count=lambda request: len(request.output) - 1)],
        "one-token-too-few": [part(by_index, count=lambda request: len(request.output) + 1)],
        "end-token-ignored": [part(by_index, check_end=False)],
        "new-token-counted": [part(by_index, first=1)],
        "only-marked": [part(by_index, mark=mark_only)],
        "not-a-list-of-pairs": [tokens_alone],
        "last-token-not-returned": [returns_too_late],
        "ended-twice": [two_ifs],
        "drawn-for-nothing": [draws_before_it_looks],
        "another-s-generator": [first_one_s_generator],
        "computed-not-counted": [counts_nothing],
        "stops-at-an-end": [ends_with_the_first_end],
        "id-for-request": [ends_by_id],
        "given-back-twice": [stops_what_has_ended],
        "appended-to-a-copy": [keeps_no_token],
        "only-the-ended-returned": [returns_the_ended],
        "row-of-a-token": [row_behind_all_tokens],
    },
}
