"""A Qwen3 with 600,000 parameters, and the script that trained it.

It does four tasks with answers that can be checked.
"""
