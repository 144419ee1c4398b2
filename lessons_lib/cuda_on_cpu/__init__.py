"""CUDA on a CPU: each thread is a fiber, and every access can be watched. See README.md."""
