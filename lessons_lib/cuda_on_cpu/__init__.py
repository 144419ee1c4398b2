"""CUDA on a CPU: each thread of a kernel is a fiber, and every access can be watched. README.md says how."""
