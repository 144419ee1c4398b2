"""Puts small faults into the course's code, one at a time, and sees whether a test notices:
`python -m tools.mutants`.
"""
