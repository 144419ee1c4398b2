"""The engine, asked over HTTP: OpenAI's completions API.

`python -m paged_attention.engine.serve` starts it.
"""
