"""What makes lesson 08's engine fast on a CPU: `cpu_engine` in engine.py."""
