"""A Qwen3 of 600,000 parameters that does four tasks whose answers can be checked, and the script that trained it."""
