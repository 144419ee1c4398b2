"""Runs functions in processes of their own, ends what they leave, and counts their work."""
