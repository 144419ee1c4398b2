"""Measures the course: its kernels, its engine and its builds.

measured/ has the results.
"""
