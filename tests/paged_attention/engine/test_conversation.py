"""Several people who ask at once: what they are told, and the blocks that they share."""

import pytest

from lessons_content.lesson_08 import pictures
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.conversation import Conversation
from paged_attention.engine.engine import Engine
from paged_attention.engine.serve.token_text import Characters, TokenizerWords
from tiny_checkpoints import save_model_that_speaks

SYSTEM = "the cat and the dog and the cat again:"


@pytest.fixture(scope="module")
def speaker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speaks")
    save_model_that_speaks(folder)
    return load_model(folder), TokenizerWords(folder)


def talk(speaker, budget=64, block_size=4, **questions):
    model, words = speaker
    engine = Engine(model, block_size=block_size, token_budget=budget)
    return Conversation(engine, words, SYSTEM, questions or {"Ada": "the cat:", "Ben": "dog:"})


def test_each_is_told_what_the_model_says_and_the_end_is_no_part_of_it(speaker):
    conversation = talk(speaker)
    assert conversation.answers == {"Ada": "", "Ben": ""} and conversation.blocks == (0, 0)
    while conversation.step():
        pass
    assert conversation.answers == {"Ada": "the cat 😀", "Ben": "the cat 😀"}
    assert conversation.tokens_per_second > 0
    rate = conversation.tokens_per_second
    assert not conversation.step() and conversation.tokens_per_second == rate


def test_the_system_prompt_lies_in_memory_once_if_one_prompt_is_computed_before_the_other(
    speaker,
):
    together, after = talk(speaker, budget=1000), talk(speaker, budget=8)
    for conversation in (together, after):
        while conversation.step():
            pass
    assert together.blocks[1] == 0
    assert after.blocks[1] >= len(speaker[1].encode(SYSTEM)) // 4
    assert after.answers == together.answers


def test_a_model_without_a_template_says_so():
    with pytest.raises(ValueError, match="no chat template"):
        Conversation(Engine(load_model()), Characters(), SYSTEM, {"Ada": "the cat:"})


def test_side_by_side_it_shows_all_answers_as_they_grow(speaker):
    conversation = talk(speaker, Ada="the <cat>:")
    pages = [pictures.side_by_side(conversation)._repr_html_()]
    while conversation.step():
        pages.append(pictures.side_by_side(conversation)._repr_html_())
    assert "the cat 😀" not in pages[0] and "the cat 😀" in pages[-1]
    assert "the &lt;cat&gt;:" in pages[0] and "blocks in use" in pages[-1]
    assert "Ada: the cat 😀" in repr(pictures.side_by_side(conversation))
