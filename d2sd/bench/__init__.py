"""Benchmarks: prompt files, interleaved runs, tables."""
