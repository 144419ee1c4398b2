"""The sizes of a model of transformers that is built in no time, for its config."""

SIZES = dict(
    vocab_size=50,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=64,
    max_position_embeddings=128,
    bos_token_id=None,
    eos_token_id=None,
)
BIASES = dict(attention_bias=True, mlp_bias=True)
