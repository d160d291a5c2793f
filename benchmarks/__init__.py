"""Benchmarks: `python -m benchmarks [--small] [NAME ...]`; each module has `run(small)`."""
