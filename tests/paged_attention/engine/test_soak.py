"""Long lives with faults: no token is ever wrong, and in the end all blocks are free.

Engines live one after another. In each, requests come and go, and at random a step fails: the
model is out of memory, its logits are NaN, the history cannot be written, or Ctrl-C comes at
any instruction. SOAK_SECONDS says for how long, and decides nothing else. A failure says which
life it was: `LIFE=number` lives that one alone.
"""

import os
import random
import time

import pytest
import torch

from ctrl_c import CtrlC
from echo import (
    END,
    VOCAB_SIZE,
    EchoModel,
    ahead_engine,
    assert_nothing_is_lost,
    continuation,
    engine_with,
)
from paged_attention.engine.fast.ahead import PENDING
from paged_attention.engine.request import RequestError, SamplingParams

SECONDS = float(os.environ.get("SOAK_SECONDS", "120"))
FEW, TURNS = 10, 60
TOO_MUCH = 9  # a token after which this model's logits are NaN, if it is broken


class BreakableModel(EchoModel):
    """It may fail, or give NaN after some tokens."""

    breaks = False

    def logits_after(self, tokens):
        row = super().logits_after(tokens)
        return row + torch.nan if self.breaks and TOO_MUCH in tokens else row


def full_disk(engine, scheduled):
    raise OSError("the disk is full")


class Life:
    """An engine, and what it was asked."""

    def __init__(self, number: int):
        self.chance = chance = random.Random(number)
        block_size = chance.randint(1, 5)
        self.model, self.asked, self.num_faults = BreakableModel(), [], 0
        self.engine = chance.choice((engine_with, ahead_engine))(
            self.model,
            block_size=block_size,
            num_blocks=chance.randint(-(-30 // block_size), 40),
            token_budget=chance.randint(1, 24),
            max_num_seqs=chance.randint(1, 6),
            prefix_sharing=chance.random() < 0.7,
        )

    def add(self, name: int) -> None:
        chance, count = self.chance, self.chance.choice((1, 1, 1, 3))
        start = chance.choice(([1, 2, 3, 4, 5, 6, 7, 8], [2] * 8, []))
        prompt = start + [chance.randrange(VOCAB_SIZE) for _ in range(chance.randint(0, 9))]
        params = [
            SamplingParams(chance.randint(1, 14), chance.choice((0.0, 2.0)), seed=name + place)
            for place in range(count)
        ]
        try:
            ids = [(name, place) for place in range(count)]
            self.asked += self.engine.add_answers(ids, prompt, params)
        except RequestError:
            pass

    def disturb(self) -> None:
        chance, engine = self.chance, self.engine
        what = chance.choice(("cancel", "preempt"))
        if what == "cancel" and engine.requests:
            engine.cancel(chance.choice(list(engine.requests)))
        if what == "preempt" and engine.scheduler.running:
            engine.scheduler.preempt(chance.choice(engine.scheduler.running))

    def fail(self) -> None:
        """A step in which something goes wrong, if it gets so far."""
        what = self.chance.choice(("memory", "history", "Ctrl-C", "NaN"))
        try:
            if what == "memory":
                self.model.fails = True
            elif what == "history":
                self.engine.history = full_disk
            elif what == "NaN":
                self.model.breaks = True
            if what == "Ctrl-C":
                with CtrlC(self.chance.randrange(4000)).watching():
                    self.engine.step()
            else:
                self.engine.step()
        except (RuntimeError, OSError, KeyboardInterrupt):
            self.num_faults += 1
        self.model.fails = self.model.breaks = False
        self.engine.history = None

    def live(self) -> None:
        for turn in range(TURNS):
            what = self.chance.random()
            if what < 0.3:
                self.add(turn)
            elif what < 0.4:
                self.disturb()
            elif what < 0.5:
                self.fail()
            else:
                self.engine.step()
            assert not any(PENDING in request.tokens for request in self.asked)
        self.engine.run()
        for request in self.asked:
            alone = continuation(request.prompt, request.params)
            if request.reason in ("cancelled", "not finite"):
                assert request.output == alone[: len(request.output)]
            else:
                assert request.output == alone
                assert request.reason == ("end" if alone[-1] == END else "length")
        assert_nothing_is_lost(self.engine)


def live(number: int) -> int:
    """Returns how many steps failed."""
    try:
        life = Life(number)
        life.live()
        return life.num_faults
    except BaseException as error:
        error.add_note(f"LIFE={number} lives this life alone")
        raise


def test_some_lives_with_faults():
    first = int(os.environ.get("LIFE", "0"))
    num_faults = sum(live(number) for number in range(first, first + FEW))
    assert num_faults >= FEW or "LIFE" in os.environ


@pytest.mark.slow
def test_lives_with_faults_for_as_long_as_it_is_asked():
    end, number = time.monotonic() + SECONDS, FEW
    while number < 3 * FEW or time.monotonic() < end:
        live(number)
        number += 1
