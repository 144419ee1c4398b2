"""Where two engines part: which of several differences comes first, and what a NaN is."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from examples import few
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.divergence import (
    Divergence,
    LayerCall,
    first_difference,
    locate_divergence,
)
from paged_attention.engine.engine import Engine
from paged_attention.engine.paths import PATHS
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.tasks import encode

# 49 tokens: three blocks of 16, and one
PROMPT = encode("Ka17..q42......z93c21......k45..m60....t88..?mqa>")
KINDS = ("key", "value", "query", "output")

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model():
    return load_model()


def calls(num_layers=3, num_tokens=4, changes=()):
    """What two engines' layers did, all zeros; changes: (layer, kind, token, head, number) of
    the second one.
    """

    def of_layer(layer):
        numbers = {kind: torch.zeros(num_tokens, 2, 3) for kind in KINDS}
        for place, kind, token, head, number in changes:
            if place == layer:
                numbers[kind][token, head, 1] = number
        return LayerCall(**numbers, attend=None, k_cache=None, v_cache=None)

    return [of_layer(layer) for layer in range(num_layers)]


changes = st.tuples(
    st.integers(0, 2),
    st.sampled_from(KINDS),
    st.integers(0, 3),
    st.integers(0, 1),
    st.sampled_from([0.5, -2.0, math.nan, math.inf, -math.inf]),
)


def test_a_difference_up_to_the_tolerance_is_rounding():
    changed = calls(changes=[(1, "key", 2, 0, 0.25)])
    assert first_difference(calls(), changed, tolerance=0.25) is None
    assert first_difference(calls(), changed, tolerance=0.2) == (2, 1, "key", 0, 0.25)


@few(40, drawn_anew=100)
@given(found=st.lists(changes, max_size=5, unique_by=lambda change: change[:4]))
def test_the_token_comes_before_the_layer_and_that_before_what_and_head(found):
    first = first_difference(calls(), calls(changes=found), tolerance=1e-3)
    assert first_difference(calls(changes=found), calls(), tolerance=1e-3) == first
    if not found:
        assert first is None
        return
    where_nans_begin = min(
        (change[0], KINDS.index(change[1]))
        for change in found + [(9, "key", 0, 0, math.nan)]
        if not math.isfinite(change[4])
    )
    found = [
        change for change in found if (change[0], KINDS.index(change[1])) <= where_nans_begin
    ]
    layer, kind, token, head, number = min(
        found, key=lambda each: (each[2], each[0], KINDS.index(each[1]), each[3])
    )
    difference = abs(number) if math.isfinite(number) else math.inf
    assert first == (token, layer, kind, head, difference)


@pytest.mark.parametrize(
    ("what", "head"), [("key", "KV"), ("value", "KV"), ("query", "query"), ("output", "query")]
)
def test_it_says_whose_head_it_is(what, head):
    found = Divergence(token=7, layer=2, head=3, block=1, what=what, difference=0.126)
    words = f"token 7, layer 2, {head} head 3, block 1: the {what} differs by 0.13"
    assert str(found) == words


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("block", [0, 1, 2])
def test_numbers_that_are_none_are_found_in_their_block(model, number, block):
    """A query that sees the fourth key of a block gets no number, as long as the values of the
    block are not all zeros.
    """

    def path(metadata):
        attend = PATHS["gather"](metadata)

        def attend_spoiled(q, k_cache, v_cache):
            o = attend(q, k_cache, v_cache)
            if v_cache[metadata.block_table[0, block]].any():
                o[16 * block + 3 :] = number
            return o

        return attend_spoiled

    engines = Engine(model, path="gather"), Engine(model, path=path)
    for pair in (engines, engines[::-1]):
        pair[0].prefix_cache.clear(), pair[1].prefix_cache.clear()
        found = locate_divergence(*pair, PROMPT, num_tokens=2)
        where = found.token, found.layer, found.head, found.block, found.what
        assert where == (16 * block + 3, 0, 0, block, "output")
        assert found.difference == math.inf and not pair[0].requests and not pair[1].requests


def test_it_goes_on_past_an_end_token(model):
    """To each of these engines any token is the end; they part at the third new one."""

    def path(metadata):
        attend = PATHS["gather"](metadata)
        return lambda *arguments: (
            attend(*arguments) + (int(metadata.seq_lens_kv[0]) == len(PROMPT) + 3)
        )

    engines = [Engine(model, path=each, block_size=8) for each in ("gather", path)]
    for engine in engines:
        engine.end_tokens = frozenset(range(engine.vocab_size))
    assert locate_divergence(*engines, PROMPT, num_tokens=4).token == len(PROMPT) + 2
    # which is never computed: it is the last
    assert locate_divergence(*engines, PROMPT, num_tokens=3) is None


def test_unequal_starts_are_refused(model):
    """As many tokens in the step, but not the same ones: one engine has the first block from
    the prefix cache.
    """
    engines = [Engine(model, path="gather", token_budget=16) for _ in range(2)]
    engines[1].generate([PROMPT[:16]], SamplingParams(max_new_tokens=1))
    with pytest.raises(ValueError, match="the same token_budget and no prefix"):
        locate_divergence(*engines, PROMPT)
    engines[1].prefix_cache.clear()
    engines[0].prefix_cache.clear()
    assert locate_divergence(*engines, PROMPT, num_tokens=2) is None


def test_the_second_goes_on_with_the_tokens_of_the_first(model):
    """The second one's logits are upside down, and what its attention sees is the same all the
    same.
    """
    engines = [Engine(model, path="gather") for _ in range(2)]
    run = engines[1].runner.run
    engines[1].runner.run = lambda scheduled: -run(scheduled)
    assert locate_divergence(*engines, PROMPT, num_tokens=3) is None
