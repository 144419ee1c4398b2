"""Runs functions in separate processes, times them, and ends processes that they leave."""
