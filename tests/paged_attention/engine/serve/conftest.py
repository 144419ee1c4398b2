"""Tokenizers, and a server of a model that speaks, for all tests of a file."""

import pytest

from paged_attention.engine.serve.token_text import TokenizerWords
from serving import RunningServer, wait_until
from tiny_checkpoints import KINDS, save_model_that_speaks


def words_of_kind(kind: str, folder) -> TokenizerWords:
    KINDS[kind]().save_pretrained(folder)
    return TokenizerWords(folder)


@pytest.fixture(scope="module", params=KINDS)
def words(request, tmp_path_factory):
    return words_of_kind(request.param, tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def byte_words(tmp_path_factory):
    return words_of_kind("bytes", tmp_path_factory.mktemp("bytes"))


@pytest.fixture(scope="module")
def speaking(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speaks")
    save_model_that_speaks(folder)
    with RunningServer(folder=folder) as running:
        yield running
        wait_until(running.is_free)
