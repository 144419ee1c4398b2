"""Measures the course: its kernels, its engine and its builds.

The results are in measured/.
"""
