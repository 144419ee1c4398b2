"""A request: its prompt, what was generated so far, and how much of both the cache holds."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from paged_attention.validate import as_integer


class RequestError(ValueError):
    """A request that the engine refuses. The other requests go on."""


class EmptyPromptError(RequestError):
    """A prompt without a token: there is nothing to predict from."""


class UnknownTokenError(RequestError):
    """A token id that the model's vocabulary does not have."""


class PromptTooLongError(RequestError):
    """The prompt and its answer would not fit into the model's context or into the pool."""


class DuplicateRequestError(RequestError):
    """A request with that id is waiting or running."""


class UnknownRequestError(LookupError):
    """No request with that id is waiting or running."""


@dataclass(frozen=True)
class SamplingParams:
    """How a request's tokens are chosen, and when it ends.

    max_new_tokens: the most tokens that it may generate.
    temperature: 0 takes the likeliest token. Above 0, tokens are drawn; the higher, the more
        evenly.
    top_k: draws among the k likeliest tokens only. None draws among all.
    top_p: draws among the likeliest tokens that together have this probability.
    seed: of the draws. The same seed gives the same tokens, whatever else the engine runs.
    ignore_end: goes on after the end token.
    Raises ValueError for a value out of range.
    """

    max_new_tokens: int = 64
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0
    ignore_end: bool = False

    def __post_init__(self):
        for name in ("max_new_tokens", "top_k"):
            value = getattr(self, name)
            if (name, value) != ("top_k", None) and as_integer(name, value) < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or more, not {self.temperature}")
        # logits divided by it could be infinite, and nothing could be drawn
        if 0 < self.temperature < 1e-5:
            raise ValueError(
                f"temperature {self.temperature} is too close to 0; "
                "0 takes the likeliest token"
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if not -(2**63) <= as_integer("seed", self.seed) < 2**64:
            raise ValueError(f"seed must fit into 64 bits, not be {self.seed}")


@dataclass(eq=False)
class Request:
    """One prompt on its way through the engine.

    `tokens`: the prompt and what was generated.
    `num_computed`: how many of `tokens` have their keys and values in the cache.
    `reason`: None until it has ended; then "end" (the end token), "length", "cancelled", or
        "not finite": an overflow or a NaN left no logits to choose a token by.
    `hashes`: of its full blocks, as far as needed. The prefix cache knows `num_inserted` of
    them. `num_preempted`: how often it had to give its blocks back.
    `forks`: further answers to its prompt, which wait until it has computed it. `fork_of`: the
        request for which this one waited so.
    """

    id: Hashable
    prompt: list[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    tokens: list[int] = field(init=False)
    num_computed: int = 0
    reason: str | None = None
    hashes: list[bytes] = field(default_factory=list)
    num_inserted: int = 0
    num_preempted: int = 0
    forks: list["Request"] = field(default_factory=list, repr=False)
    fork_of: "Request | None" = field(default=None, repr=False)

    def __post_init__(self):
        self.prompt = [as_integer("a token", token) for token in self.prompt]
        self.tokens = list(self.prompt)

    @property
    def output(self) -> list[int]:
        """What was generated so far."""
        return self.tokens[len(self.prompt) :]

    @property
    def num_uncomputed(self) -> int:
        """How many tokens the model still has to see.

        It is 1 while the request decodes, and more while its prompt is read.
        """
        return len(self.tokens) - self.num_computed
