"""A model that stands in for a real one in the engine's tests.

It stores each token in the pool. It answers from what it reads back through the block table.
So a token that is in a wrong slot, or overwritten, changes an output.
"""

from types import SimpleNamespace

import torch

from paged_attention.engine.engine import Engine
from paged_attention.engine.fast.ahead import PENDING, AheadEngine
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.runner import flatten_batch
from paged_attention.engine.sampler import sample

VOCAB_SIZE, END = 11, 0


class EchoModel:
    """Writes tokens as keys and positions as values; the next token depends on all that the
    pool gives back.
    """

    config = SimpleNamespace(
        max_position_embeddings=40,
        num_key_value_heads=1,
        head_dim=1,
        num_hidden_layers=1,
        vocab_size=VOCAB_SIZE,
        eos_token_id=END,
        _attn_implementation="eager",
    )
    dtype, device = torch.float32, torch.device("cpu")
    fails = False

    def modules(self):
        return []

    def __call__(self, input_ids, position_ids, logits_to_keep, use_cache, paged):
        assert not use_cache  # keys and values are in the pool, and nowhere else
        if self.fails:
            raise RuntimeError("out of memory")
        k_cache, v_cache = paged.kv_cache[0]
        k_cache.view(-1)[paged.slot_mapping] = input_ids[0].float()
        v_cache.view(-1)[paged.slot_mapping] = position_ids[0].float()
        rows = [self.logits_after(tokens) for tokens in paged.attend(None, k_cache, v_cache)]
        ends = sorted(set(logits_to_keep.tolist()))
        kept = [rows[ends.index(place)] for place in logits_to_keep.tolist()]
        return SimpleNamespace(logits=torch.stack(kept)[None])

    def logits_after(self, tokens: list[int]) -> torch.Tensor:
        return logits_after(tokens)


def read_back(metadata):
    """A path that gives the tokens of each sequence, as the pool has them."""

    def attend(q, k_cache, v_cache):
        sequences = []
        for row, length in zip(
            metadata.block_table, metadata.seq_lens_kv.tolist(), strict=True
        ):
            blocks = row[: -(-length // k_cache.shape[1])]
            tokens, positions = (
                cache[blocks].flatten()[:length].int().tolist() for cache in (k_cache, v_cache)
            )
            assert positions == list(range(length))
            sequences.append(tokens)
        return sequences

    return attend


def logits_after(tokens: list[int]) -> torch.Tensor:
    likeliest = sum((index + 3) * token for index, token in enumerate(tokens)) * 31 + 7
    return torch.eye(VOCAB_SIZE)[likeliest % VOCAB_SIZE]


def continuation(prompt: list[int], params: SamplingParams) -> list[int]:
    """What a request gives when nothing else runs."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + params.max_new_tokens:
        tokens.append(sample(logits_after(tokens), params, len(tokens)))
        if tokens[-1] == END and not params.ignore_end:
            break
    return tokens[len(prompt) :]


SIZES = {"num_blocks": 12, "block_size": 4, "token_budget": 9, "max_num_seqs": 4}


def engine_with(model=None, **options) -> Engine:
    return Engine(model or EchoModel(), path=read_back, **SIZES | options)


class EchoDevice:
    """A runner as a device is one: it keeps the tokens that the host does not know yet.

    Like a device it only reads requests, so Ctrl-C in it leaves nothing in them.
    """

    def __init__(self, runner):
        self.runner, self.last_tokens, self.num_steps = runner, {}, 0
        runner.flatten_batch = self.flatten_batch

    def flatten_batch(self, scheduled):
        tokens, positions, last = flatten_batch(scheduled)
        for (request, _), place in zip(scheduled, last, strict=True):
            if tokens[place] == PENDING:
                tokens[place] = self.last_tokens[request]
        assert PENDING not in tokens
        return tokens, positions, last

    def run(self, scheduled):
        self.num_steps += 1
        logits = self.runner.run(scheduled)
        tokens = []
        for (request, num_tokens), row in zip(scheduled, logits, strict=True):
            position = request.num_computed + num_tokens
            is_finite = row.amax().isfinite()
            tokens.append(sample(row, request.params, position) if is_finite else -1)
            self.last_tokens[request] = max(tokens[-1], 0)
        return SimpleNamespace(wait=lambda: torch.tensor(tokens))


def ahead_engine(model=None, **options) -> AheadEngine:
    engine = AheadEngine(model or EchoModel(), path=read_back, **SIZES | options)
    engine.runner = EchoDevice(engine.runner)
    engine.sample = lambda token, params, position: int(token)
    engine.are_finite = lambda tokens: (tokens >= 0).tolist()
    return engine


def assert_right(requests) -> None:
    for request in requests:
        assert request.output == continuation(request.prompt, request.params)


def assert_nothing_is_lost(engine: Engine):
    manager, num_blocks = engine.manager, engine.manager.kv_cache.shape[2]
    assert not manager.sequences and not engine.requests and (manager.table.cpu == -1).all()
    assert (
        manager.block_manager.get_num_free_blocks() + len(engine.prefix_cache.blocks)
        == num_blocks
    )
    rows = range(len(manager.table.cpu))
    assert sorted(manager.table.free_rows) == list(rows)  # each of them once
    engine.prefix_cache.clear()
    assert manager.block_manager.get_num_free_blocks() == num_blocks
