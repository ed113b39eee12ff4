"""Benchmarks: reads prompts, runs settings and baselines in turn, and reports the results."""
