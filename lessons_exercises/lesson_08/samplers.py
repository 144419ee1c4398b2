"""Wrong ways to sample, for exercise 8.7.

They are functions that draw, with what each one's draws tend to.

A check draws only from the learner's answer. With which mistake its draws agree is computed,
which is exact and fast.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Model:
    """What is known of a wrong sampler without a draw.

    tokens(logits, params): {token: its part of many draws}.
    always_one: the same token at each draw of one seed.
    repeats: the same seed gives the same tokens.
    uses_global: torch's global generator.
    uses_generator_at_zero: at temperature 0.
    kind, kind_at_zero: the type of a token, above temperature 0 and there.
    follows_the_generator: another seed of the generator gives other tokens although each seed
        gives one alone.
    """

    tokens: Callable
    always_one: bool = False
    repeats: bool = True
    uses_global: bool = False
    kind: str = "int"
    uses_generator_at_zero: bool = False
    kind_at_zero: str = "int"
    follows_the_generator: bool = False


# of each function that this file makes. A copy of one, handed in as an answer, is not in here:
# it draws.
MODELS = {}


def wrong_sampler(
    weights,
    draw=None,
    limit=None,
    token=None,
    kind=int,
    greedy=True,
    at_zero=torch.argmax,
    kind_at_zero=None,
    **facts,
):
    """A sampler, with its model in MODELS.

    weights(logits, params): weights, and the tokens that they belong to.

    draw(weights, params, generator): a position. limit(weights): what its draws tend to.
    token(tokens, position).
    greedy: takes at_zero(logits) at temperature 0, the likeliest token.
    """
    kind_at_zero = kind_at_zero or kind
    draw = draw or multinomial
    limit = limit or shares_of_multinomial
    token = token or at

    def sampler(logits, params, generator):
        if greedy and params.temperature == 0:
            return kind_at_zero(at_zero(logits))
        p, tokens = weights(logits, params)
        return kind(token(tokens, draw(p, params, generator)))

    def tokens_of(logits, params):
        if greedy and params.temperature == 0:
            return {int(at_zero(logits)): 1.0}
        p, tokens = weights(logits, params)
        return {
            int(token(tokens, position)): share
            for position, share in enumerate(limit(p))
            if share > 1e-9
        }

    kinds = [type(convert(torch.tensor(0))).__name__ for convert in (kind, kind_at_zero)]
    MODELS[sampler] = Model(
        tokens_of,
        uses_generator_at_zero=not greedy,
        kind=kinds[0],
        kind_at_zero=kinds[1],
        **facts,
    )
    return sampler


def at(tokens, position):
    return tokens[position]


# Weights: ours, with one of its parts replaced.


def before(p):
    """The probability of all that stand before each of the sorted tokens."""
    return p.cumsum(-1) - p


def enough(p, top_p):
    return before(p) < top_p


def softmax(logits):
    return torch.softmax(logits, dim=-1)


def weights_with(
    scale=lambda logits, t: logits / t,
    num_kept=lambda k: k,
    kept=enough,
    soft=softmax,
    dtype=torch.float64,
):
    def weights(logits, params):
        likeliest, order = scale(logits.to(dtype), params.temperature).sort(descending=True)
        num = None if params.top_k is None else num_kept(params.top_k)
        p = soft(likeliest[:num])
        return p.masked_fill(~kept(p, params.top_p), 0.0), order[:num]

    return weights


def one_more(p, top_p):
    those = enough(p, top_p)
    return torch.cat([those[:1], those[:-1]])


def likeliest_last(p, top_p):
    return enough(p.flip(-1), top_p).flip(-1)


def all_of_them(p, top_p):
    return torch.ones_like(p, dtype=torch.bool)


def up_to(p, top_p):
    return p.cumsum(-1) <= top_p


def below(p, top_p):
    return p.cumsum(-1) < top_p


def with_the_first(kept):
    def wrong(p, top_p):
        those = kept(p, top_p)
        those[0] = True
        return those

    return wrong


def top_p_of_all_tokens(logits, params):
    """top_p of the probabilities that the tokens have before top_k."""
    p, order = softmax(logits.double() / params.temperature).sort(descending=True)
    return p.masked_fill(~enough(p, params.top_p), 0.0)[: params.top_k], order[: params.top_k]


def probabilities_divided(of_all):
    """The temperature divides the probabilities. of_all: these are made before top_k."""

    def weights(logits, params):
        likeliest, order = logits.double().sort(descending=True)
        p = (
            softmax(likeliest)[: params.top_k]
            if of_all
            else softmax(likeliest[: params.top_k])
        )
        p = p / params.temperature
        return p.masked_fill(~enough(p, params.top_p), 0.0), order[: params.top_k]

    return weights


def one_of_the_two(top_k_first):
    """Either top_k or top_p has an effect, where a request asks for both."""

    def weights(logits, params):
        likeliest, order = (logits.double() / params.temperature).sort(descending=True)
        if (params.top_k is not None) if top_k_first else (params.top_p == 1.0):
            return softmax(likeliest[: params.top_k]), order[: params.top_k]
        p = softmax(likeliest)
        return p.masked_fill(~enough(p, params.top_p), 0.0), order

    return weights


def top_p_before_temperature(logits, params):
    likeliest, order = logits.double().sort(descending=True)
    likeliest, order = likeliest[: params.top_k], order[: params.top_k]
    left_out = ~enough(softmax(likeliest), params.top_p)
    return softmax(likeliest.masked_fill(left_out, -math.inf) / params.temperature), order


def through_topk(logits, params):
    if params.top_k is not None:
        logits.topk(params.top_k)  # raises where the vocabulary is smaller
    return weights_with()(logits, params)


def divided_in_place(logits, params):
    logits /= params.temperature
    return weights_with(scale=lambda logits, t: logits)(logits, params)


def masked_in_place(logits, params):
    weights = weights_with()(logits.clone(), params)
    if params.top_k is not None:
        logits[logits < logits.sort(descending=True).values[: params.top_k][-1]] = -math.inf
    return weights


def only_the_likeliest(logits, params):
    return torch.ones(1), logits.argmax()[None]


def largest_not_subtracted(logits):
    return logits.exp() / logits.exp().sum()


def softmax_by_python(logits):
    weights = [math.exp(logit) for logit in logits.tolist()]
    return torch.tensor([weight / sum(weights) for weight in weights], dtype=logits.dtype)


def divided_by_python(logits, t):
    return torch.tensor([logit / t for logit in logits.tolist()], dtype=logits.dtype)


def drawn_at_zero(change):
    """What a temperature of 0 is replaced with."""
    return weights_with(scale=lambda logits, t: logits / (t or change))


def then(weights, change):
    """Weights that are changed in the end: change(p)."""

    def changed(logits, params):
        p, tokens = weights(logits, params)
        return change(p), tokens

    return changed


def normalised(p):
    return p / p.sum()


def softmax_of_those_kept(p):
    return softmax(p.masked_fill(p == 0, -math.inf))


def even(p):
    return (p > 0).to(p.dtype)


def drawn_from_all_at_zero(logits, params):
    if params.temperature == 0:
        return softmax(logits.double()), torch.arange(len(logits))
    return weights_with()(logits, params)


def ascending(logits, params):
    likeliest, order = (logits.double() / params.temperature).sort()
    p = softmax(likeliest[: params.top_k])
    return p.masked_fill(~enough(p, params.top_p), 0.0), order[: params.top_k]


def masked_with_zero(logits, params):
    likeliest, order = (logits.double() / params.temperature).sort(descending=True)
    if params.top_k is not None:
        likeliest[params.top_k :] = 0.0
    p = softmax(likeliest)
    return p.masked_fill(~enough(p, params.top_p), 0.0), order


def masked_with_zero_before_the_sort(logits, params):
    """The smaller logits may be below the zeros that were to take tokens away.

    These come first then.
    """
    scaled = logits.double() / params.temperature
    if params.top_k is not None:
        smallest = scaled.sort(descending=True).values[: params.top_k][-1]
        scaled = torch.where(scaled < smallest, 0.0, scaled)
    p, order = softmax(scaled).sort(descending=True)
    return p.masked_fill(~enough(p, params.top_p), 0.0), order


def top_k_is_a_number(weights):
    def raises(logits, params):
        if params.top_k is None:
            raise TypeError("None is not a number")
        return weights(logits, params)

    return raises


def summed_until_reached(logits, params):
    """A loop that looks for top_p behind the last token.

    It does where the sum of all is rounded to less.
    """
    p, _ = weights_with(kept=all_of_them, dtype=torch.float32)(logits, params)
    if sum(p.tolist()) < params.top_p:
        raise IndexError("behind the last token")
    return weights_with()(logits, params)


def number_of_tokens(p, top_p):
    return torch.arange(len(p)) < max(1, int(len(p) * top_p))


# Ways of drawing, and what they tend to.


def multinomial(p, params, generator):
    return torch.multinomial(p, 1, generator=generator)


def shares_of_multinomial(p):
    if not (p >= 0).all() or not 0 < p.sum() < math.inf:
        raise RuntimeError("no probabilities")
    return (p / p.sum()).tolist()


def below_a_running_sum(p, params, generator):
    """The position at which the running sum passes a number between 0 and 1.

    One too far where the sum is smaller.
    """
    return int(
        torch.searchsorted(p.cumsum(-1), torch.rand((), generator=generator, dtype=p.dtype))
    )


def shares_below_a_running_sum(p):
    if not p.sum() > 1 - 1e-5:
        raise IndexError("behind the last position")
    return p.tolist()


def of_a_running_sum(p, params, generator):
    return below_a_running_sum(p / p.sum(), params, generator)


def shares_of_a_running_sum(p):
    return shares_below_a_running_sum(p / p.sum())


def rest_to_the_last(p, params, generator):
    """As below_a_running_sum, but a number behind the end gives the last token kept."""
    return min(below_a_running_sum(p, params, generator), int((p > 0).sum()) - 1)


def shares_with_the_rest_at_the_last(p):
    shares = p.clone()
    shares[int((p > 0).sum()) - 1] += 1 - p.sum()
    return shares.tolist()


def rest_to_the_very_last(p, params, generator):
    return min(below_a_running_sum(p, params, generator), len(p) - 1)


def shares_with_the_rest_at_the_very_last(p):
    shares = p.clone()
    shares[-1] += 1 - p.sum()
    return shares.tolist()


def generator_begun_again(p, params, generator):
    return torch.multinomial(
        p, 1, generator=torch.Generator().manual_seed(generator.initial_seed())
    )


def by_torch(p, params, generator):
    return torch.multinomial(p, 1)


def by_numpy(p, params, generator):
    return int(np.random.choice(len(p), p=(p / p.sum()).numpy()))


def by_random(p, params, generator):
    return random.choices(range(len(p)), p.tolist())[0]


def seeded_each_time(p, params, generator):
    return torch.multinomial(p, 1, generator=generator.manual_seed(params.seed))


def new_generator_each_time(p, params, generator):
    return torch.multinomial(p, 1, generator=torch.Generator().manual_seed(params.seed))


def all_seeded_each_time(p, params, generator):
    torch.manual_seed(params.seed)
    return torch.multinomial(p, 1)


def with_weights(**parts):
    """The right sampler, but for these parts of its weights."""
    return wrong_sampler(weights_with(**parts))


def with_draw(*ways, **facts):
    """The right weights, drawn from in another way."""
    return wrong_sampler(weights_with(), *ways, **facts)


def _seeded_first():
    right = with_draw()

    def sampler(logits, params, generator):
        generator.manual_seed(params.seed)
        return right(logits, params, generator)

    MODELS[sampler] = Model(MODELS[right].tokens, always_one=True, uses_generator_at_zero=True)
    return sampler


seeded_first = _seeded_first()
