"""Small tokenizers of each kind, and checkpoints whose next token is written down."""

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEXTS = ["the cat sat on the mat .", "naïve café, déjà vu", "世界 你好 😀😃", "a  b\nc"] * 3
SPECIAL = ["<unk>", "<s>", "</s>", "<turn>"]
LETTERS = sorted({*"".join(TEXTS)} - {*" \n"})


def finished(own: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=own,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<turn>"],
    )


def byte_level() -> PreTrainedTokenizerFast:
    """GPT-2's, Llama 3's and Qwen's kind: a token is bytes; a character may have several."""
    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    own.train_from_iterator(TEXTS, trainer)
    return finished(own)


def bytes_for_the_rest() -> PreTrainedTokenizerFast:
    """Llama 2's kind: a word begins with "▁" for its space; unknown characters are bytes."""
    vocab = {name: token for token, name in enumerate(SPECIAL)}
    for name in [f"<0x{byte:02X}>" for byte in range(256)] + ["▁", *"thecaonrvrusd.", "▁t"]:
        vocab.setdefault(name, len(vocab))
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("▁", "c"), ("▁c", "a"), ("▁ca", "t")]
    for pair in merges:
        vocab.setdefault("".join(pair), len(vocab))
    own = Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    own.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    own.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return finished(own)


def metaspace(prepend_scheme: str) -> PreTrainedTokenizerFast:
    """SentencePiece's kind. prepend_scheme: whether a text begins with "▁" too."""
    names = [*SPECIAL, "▁", *LETTERS, "▁the", "▁cat", "▁sat", "at", "▁on"]
    own = Tokenizer(models.Unigram([(name, -float(len(names))) for name in names], unk_id=0))
    own.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme)
    own.decoder = decoders.Metaspace(prepend_scheme=prepend_scheme)
    return finished(own)


def word_pieces() -> PreTrainedTokenizerFast:
    """BERT's kind: what goes on within a word begins with "##"."""
    names = [*SPECIAL, "the", "cat", "sat", "on", ".", "'", "s", *(f"##{x}" for x in LETTERS)]
    own = Tokenizer(models.WordPiece(dict(zip(names, range(99))), unk_token="<unk>"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    own.decoder = decoders.WordPiece()
    return finished(own)


def ends_of_words() -> PreTrainedTokenizerFast:
    """The first BPE's kind: "</w>" ends a word, and is a space if another one follows."""
    names = [*SPECIAL, "the</w>", "ca", "t</w>", "t", "a", "</w>", "é</w>"]
    own = Tokenizer(models.BPE(dict(zip(names, range(99))), [], unk_token="<unk>"))
    own.decoder = decoders.BPEDecoder()
    return finished(own)


KINDS = {
    "bytes": byte_level,
    "bytes for the rest": bytes_for_the_rest,
    "▁ always": lambda: metaspace("always"),
    "▁ first": lambda: metaspace("first"),
    "▁ never": lambda: metaspace("never"),
    "pieces of words": word_pieces,
    "ends of words": ends_of_words,
}


def checkpoint(folder, next_token: dict[int, int], tokenizer=None, vocab=400, **config):
    """Saves a Llama that has next_token[token] after a token, whatever came before it."""
    torch.manual_seed(0)
    settings = {"hidden_size": 256, "intermediate_size": 32, "num_hidden_layers": 1}
    settings |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    settings |= {"vocab_size": vocab, "max_position_embeddings": 256}
    settings |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    model = LlamaForCausalLM(LlamaConfig(**settings | config))
    embedding = torch.nn.functional.normalize(torch.randn(vocab, 256), dim=-1)
    head = torch.zeros(vocab, 256)
    for before, after in next_token.items():
        head[after] += 4 * embedding[before]
    with torch.no_grad():
        (layer,) = model.model.layers
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(embedding)
        model.lm_head.weight.copy_(head)
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


TEMPLATE = (
    "{% for each in messages %}{% if each.content == 'no' %}{{ raise_exception('not so') }}"
    "{% endif %}<turn>{{ each.role }}:{{ each.content }}{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant:{% endif %}"
)


def save_model_that_speaks(folder, template=TEMPLATE):
    """After ":" it says "the cat 😀", and ends."""
    tokenizer = byte_level()
    tokenizer.chat_template = template
    said = [*tokenizer.encode(":"), *tokenizer.encode("the cat 😀"), tokenizer.eos_token_id]
    assert len(set(said)) == len(said)
    checkpoint(folder, dict(zip(said, said[1:])), tokenizer, eos_token_id=said[-1])
    return tokenizer
