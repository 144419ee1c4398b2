"""Guides a learner: what is passed and what is next, and why a name is missing."""
