"""What lesson 11 says in words is what its own shapes, functions and records give."""

from types import SimpleNamespace

import pytest

from lessons_content.lesson_10.bench.fast_engine_runs import recorded
from lessons_content.lesson_11 import e11_2_next_event as stream
from lessons_content.lesson_11 import pictures
from lessons_content.lesson_11.bench import two_gpus_runs
from paged_attention.engine.parallel.cuts import collectives, kept_by_rank
from paged_attention.engine.serve.stop_texts import next_event
from prose import prose

TEXT = prose("11")
QWEN3_8B = SimpleNamespace(
    hidden_size=4096, num_hidden_layers=36, vocab_size=151_936, tie_word_embeddings=False
)


def test_a_step_has_as_many_exchanges_as_the_text_says():
    number = len(collectives(QWEN3_8B, 2))
    assert f"How much is {number} times that?" in TEXT
    assert f"that {number} short waits are hardly felt" in TEXT


def test_two_ranks_have_the_heads_that_the_text_gives_them():
    rows, _ = kept_by_rank("k_proj", (8 * 128, 4096), 0, 2)
    kv_heads = (rows.stop - rows.start) // 128
    rows, _ = kept_by_rank("q_proj", (32 * 128, 4096), 0, 2)
    heads = (rows.stop - rows.start) // 128
    assert f"a rank has {kv_heads} of the 8 KV heads, and the {heads} heads of queries" in TEXT


def test_the_rate_of_reading_is_that_of_an_h200():
    assert any("H200" in run.card for run in recorded())
    assert "is what lesson 10 has recorded for an NVIDIA H200" in TEXT


@pytest.mark.parametrize(
    ("stop", "sent"), [("4m", ["", ""]), ("4x", ["", "4m"])], ids=["it comes", "it does not"]
)
def test_a_beginning_waits_as_the_lesson_says(stop, sent):
    first, _ = next_event("q7b4", 3, [stop], None)
    second, _ = next_event("q7b4m", 3 + len(first), [stop], None)
    assert [first, second] == sent


def test_the_cases_of_a_stream_can_happen():
    """What was sent before is no more than a stream may have sent of this text."""
    for case in stream.CASES:
        sure = next_event(case.text, 0, list(case.stop), "length")[0]
        assert case.num_sent <= len(sure), case


def test_the_picture_of_a_cut_layer_shows_the_learner_s_function():
    calls = []

    def kept(*arguments):
        calls.append(arguments)
        return slice(None), slice(0, 2)

    picture = pictures.cut_layer({"q_proj": (4, 4), "o_proj": (4, 2)}, kept)
    assert picture.png and len(calls) == 4
    assert calls[-1] == ("o_proj", (4, 2), 1, 2)


def test_what_two_gpus_gave_is_as_the_lesson_says():
    (run,) = two_gpus_runs.recorded()
    for context, words in (
        (610, "an exchange took 15 microseconds on average"),
        (4096, "an exchange took 55 microseconds"),
    ):
        each = 1000 * run.row(2, context).collectives / 73
        assert words in TEXT and f"{each:.0f} microseconds" in words
    assert f"no more than {run.cap:.0f} GiB" in TEXT
