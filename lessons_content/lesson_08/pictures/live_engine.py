"""Follows an engine: requests come while it runs."""

from collections.abc import Callable, Sequence
from typing import Any

from lessons_content.lesson_08.pictures.engine_pool import EnginePool
from lessons_lib.drawing.live.view import Control, LiveView

LETTERS = "ABCDEFGHIJKLMNOPQRST"


class LiveEngine(LiveView):
    """Requests that come one after the other, and the steps of an engine.

    engine_class: the learner's.
    prompts: of the requests A, B and so on, in the order in which they come; 20 at most.
    `engine`: the object that is shown. A change of sizes makes a new one.
    """

    lesson = "08"
    alt = "A pool with the blocks of several requests, and the requests of one step."
    controls = (
        Control("run", "advance", "Run"),
        Control("button", "advance", "Step"),
        Control("number", "every", "Steps from request to request", 2),
        Control("number", "num_blocks", "Number of blocks", 30, begins=True),
        Control("number", "token_budget", "Tokens a step", 48, begins=True),
        Control(
            "choice", "prefix_sharing", "Prefix sharing", "on", ("on", "off"), begins=True
        ),
    )

    def __init__(
        self,
        engine_class: type,
        model,
        prompts: Sequence[list[int]],
        decode: Callable[[list[int]], str],
        **sizes: Any,
    ):
        self.engine_class, self.model, self.decode = engine_class, model, decode
        self.prompts = dict(zip(LETTERS, prompts, strict=False))
        super().__init__(**sizes)

    def begin(
        self, num_blocks: int, token_budget: int, prefix_sharing: str, **values: Any
    ) -> None:
        self.engine = self.engine_class(
            self.model,
            num_blocks,
            token_budget=token_budget,
            prefix_sharing=prefix_sharing == "on",
            history=self._follow,
        )
        self.left, self.num_steps = dict(self.prompts), 0
        self.pool = EnginePool(self.engine, LETTERS, self.decode)
        self.restart(
            self.pool.recording("Your engine"), "Nobody is here yet.", *self.pool.states([])
        )

    def advance(self, every: int, **values: Any) -> bool:
        """Lets a request come if one is due, and runs a step.

        False when all requests have ended.
        """
        scheduler = self.engine.scheduler
        is_due = self.num_steps % max(1, every) == 0 or not scheduler.has_work()
        if self.left and is_due:
            name = next(iter(self.left))
            self.engine.add(name, self.left[name])
            del self.left[name]
        if scheduler.has_work():
            self.num_steps += 1
            self.engine.step()
            return True
        self.step("All are answered.", *self.pool.states([]))
        return False

    def _follow(self, engine, scheduled: list) -> None:
        """The engine calls this in each step, before any request ends."""
        if engine is self.engine:
            self.step(self.pool.say(scheduled), *self.pool.states(scheduled))
