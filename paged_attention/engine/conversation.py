"""Several people ask a model that speaks, all at once."""

import time
from collections.abc import Mapping

from paged_attention.engine.engine import Engine
from paged_attention.engine.history import History
from paged_attention.engine.request import Request, SamplingParams
from paged_attention.engine.serve.token_text import Words


class Conversation:
    """One question of each person, and the answers as they grow, step by step.

    requests: by the person's name.
    history: a StepRecord for each step.
    """

    def __init__(
        self,
        engine: Engine,
        words: Words,
        system: str,
        questions: Mapping[str, str],
        max_new_tokens: int = 60,
    ):
        """Puts the questions into the engine's queue.

        system: what the model is told before each question.
        questions: by the person's name.
        Raises RequestError if the engine can never serve one of them.
        Raises ValueError if the model has no chat template.
        """
        self.engine, self.words, self.questions = engine, words, dict(questions)
        self.history = self.engine.history = History()
        self.requests: dict[str, Request] = {}
        params = SamplingParams(max_new_tokens=max_new_tokens)
        for name, question in self.questions.items():
            messages = [
                {"role": "system", "content": system},
                {"role": "user", "content": question},
            ]
            self.requests[name] = engine.add(name, words.encode_chat(messages), params)
        self._began = time.perf_counter()
        self._last = self._began

    def step(self) -> bool:
        """Runs a step of the engine. Returns False once nothing is left to say."""
        if not self.engine.scheduler.has_work():
            return False
        self.engine.step()
        self._last = time.perf_counter()
        return True

    @property
    def answers(self) -> dict[str, str]:
        """What each person has been told by now."""
        special = self.words.special
        return {
            name: self.words.decode(
                [token for token in request.output if token not in special]
            )
            for name, request in self.requests.items()
        }

    @property
    def tokens_per_second(self) -> float:
        """Of all answers together, the computing of the prompts included."""
        num_tokens = sum(len(request.output) for request in self.requests.values())
        return num_tokens / max(self._last - self._began, 1e-9)

    @property
    def blocks(self) -> tuple[int, int]:
        """(in use, of these used by more than one request), in the step with the most."""
        return max(
            ((record.alone + record.shared, record.shared) for record in self.history),
            default=(0, 0),
        )
