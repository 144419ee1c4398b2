"""A trace of requests, and the ways to serve it that lesson 08's benchmark compares."""

import copy
import dataclasses
import logging
from dataclasses import dataclass

import numpy as np
import torch

from paged_attention.engine.engine import Engine
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.tasks import END, TASKS, TOKEN_OF, encode

BLOCK_SIZE = 16


@dataclass(frozen=True)
class Trace:
    """Requests that all arrive at once.

    end_token: None if each answer has max_new_tokens tokens.
    """

    title: str
    prompts: list[list[int]]
    max_new_tokens: int
    end_token: int | None = None

    def useful(self, answer: list[int]) -> list[int]:
        """An answer's tokens up to its end token, which is included.

        Later tokens do not count.
        """
        answer = answer[: self.max_new_tokens]
        return (
            answer[: answer.index(self.end_token) + 1] if self.end_token in answer else answer
        )

    @property
    def num_blocks(self) -> int:
        """The number of blocks of a pool in which all requests fit at once."""
        return sum(
            -(-(len(prompt) + self.max_new_tokens) // BLOCK_SIZE) for prompt in self.prompts
        )


def task_trace(num_requests: int = 64, seed: int = 8) -> Trace:
    """Requests with the small model's four tasks in turn, of all sizes."""
    random, makers = np.random.default_rng(seed), [*TASKS.values()]
    prompts = [
        encode(makers[i % len(makers)](random, random.random())[0])
        for i in range(num_requests)
    ]
    return Trace(
        _title(prompts, "the four tasks, at most 64 new tokens each"),
        prompts,
        64,
        TOKEN_OF[END],
    )


def random_trace(
    vocab_size: int,
    num_requests: int = 64,
    shortest: int = 128,
    longest: int = 1024,
    new_tokens: int = 128,
    seed: int = 8,
) -> Trace:
    """Prompts of random tokens, of all lengths, each with the same number of new tokens."""
    random = np.random.default_rng(seed)
    lengths = random.integers(shortest, longest + 1, num_requests)
    prompts = [random.integers(0, vocab_size, length).tolist() for length in lengths]
    return Trace(
        _title(prompts, f"random tokens, {new_tokens} new tokens each"), prompts, new_tokens
    )


def _title(prompts: list[list[int]], rest: str) -> str:
    lengths = sorted(map(len, prompts))
    return (
        f"{len(prompts)} requests, "
        f"prompts of {lengths[0]} to {lengths[-1]} tokens, {sum(lengths):,} in all; {rest}"
    )


def random_model(
    num_layers: int = 28,
    device: str = "cuda",
    dtype: torch.dtype = torch.bfloat16,
    seed: int = 8,
    **changes,
):
    """A model with the shapes of Qwen3-0.6B and random weights.

    changes: fields of its config.
    """
    from transformers import AutoModelForCausalLM, Qwen3Config

    sizes = dict(
        hidden_size=1024,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=3072,
        vocab_size=151_936,
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
    )
    config = Qwen3Config(
        num_hidden_layers=num_layers, **sizes | changes, bos_token_id=None, eos_token_id=None
    )
    torch.manual_seed(seed)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model.to(device).eval()


class EngineServer:
    """The course's engine. It is made anew for each turn, so that turns share nothing.

    options: the engine's.
    """

    name = "our engine"

    def __init__(self, model, trace: Trace, path: str = "batched", **options):
        self.model, self.trace = copy.deepcopy(model), trace
        self.options = dict(
            num_blocks=trace.num_blocks,
            block_size=BLOCK_SIZE,
            max_num_seqs=len(trace.prompts),
            path=path,
        )
        self.options |= options
        self.title = f"path {path}, {self.options.get('token_budget', 256)} tokens a step"

    def prepare(self) -> None:
        self.engine = None  # frees the last engine's pool before a new one is made
        self.engine = Engine(self.model, **self.options)

    def serve(self) -> list[list[int]]:
        results = self.engine.generate(
            self.trace.prompts, SamplingParams(max_new_tokens=self.trace.max_new_tokens)
        )
        for result in results:
            if isinstance(result, Exception):
                raise result
        return [request.output for request in results]

    def close(self) -> None:
        self.engine = self.model = None


class GenerateServer:
    """`model.generate` on batches with padding on the left.

    Requests of similar length share a batch, so that there is little padding.
    """

    def __init__(self, model, trace: Trace, batch_size: int):
        self.model = copy.deepcopy(model)
        self.trace = trace
        self.batch_size = batch_size
        self.name = f"generate, batches of {batch_size}"
        self.title = "padded on the left, sorted by length"

    def prepare(self) -> None:
        pass

    def serve(self) -> list[list[int]]:
        prompts, answers = self.trace.prompts, {}
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            answers |= zip(
                batch, self._batch([prompts[index] for index in batch]), strict=True
            )
        return [answers[index] for index in range(len(prompts))]

    def _batch(self, prompts: list[list[int]]) -> list[list[int]]:
        longest, device = max(map(len, prompts)), self.model.device
        tokens = torch.tensor(
            [[0] * (longest - len(prompt)) + prompt for prompt in prompts], device=device
        )
        mask = torch.tensor(
            [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts],
            device=device,
        )
        result = self.model.generate(
            tokens, attention_mask=mask, generation_config=_greedy(self.trace)
        )
        return result[:, longest:].tolist()

    def close(self) -> None:
        self.model = None


class GenerateBatchServer:
    """transformers' own continuous batching. Its pool is made before the first turn.

    Nothing is kept between turns.
    options: for its ContinuousBatchingConfig. Options that this version lacks are left out.
    """

    def __init__(self, model, trace: Trace, name: str = "generate_batch", **options):
        self.model, self.trace, self.name = copy.deepcopy(model), trace, name
        self.options = options
        self.title = (
            ", ".join(f"{key} {value}" for key, value in options.items())
            or "as it chooses itself"
        )

    def prepare(self) -> None:
        # Its errors are raised here, so they need not be logged.
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)

    def serve(self) -> list[list[int]]:
        from transformers import ContinuousBatchingConfig

        known = {field.name for field in dataclasses.fields(ContinuousBatchingConfig)}
        config = ContinuousBatchingConfig(
            **{key: value for key, value in self.options.items() if key in known}
        )
        results = self.model.generate_batch(
            self.trace.prompts,
            generation_config=_greedy(self.trace),
            continuous_batching_config=config,
            persistent_manager=True,
        ).values()
        answers = {tuple(result.prompt_ids): result for result in results}
        missing = [prompt for prompt in self.trace.prompts if tuple(prompt) not in answers]
        errors = [result.error for result in results if result.error]
        if missing or errors:
            raise RuntimeError(
                f"{len(missing) + len(errors)} "
                f"of {len(self.trace.prompts)} requests have no answer: "
                + str(errors[0] if errors else "it stopped without a word")
            )
        return [answers[tuple(prompt)].generated_tokens for prompt in self.trace.prompts]

    def close(self) -> None:
        if self.model is not None and hasattr(
            self.model, "destroy_cached_continuous_batching_manager"
        ):
            self.model.destroy_cached_continuous_batching_manager()
        self.model = None


def _greedy(trace: Trace):
    from transformers import GenerationConfig

    return GenerationConfig(
        max_new_tokens=trace.max_new_tokens,
        do_sample=False,
        pad_token_id=0,
        use_cache=True,
        eos_token_id=trace.end_token,
    )
