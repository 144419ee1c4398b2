"""The engine of lesson 08: requests in, tokens out, over a paged cache.

Start with `engine.py`.
"""
