"""Measures the course: its kernels, its engine and its builds. What was measured is kept in measured/."""
