"""Campaigns with hostile input and faults, reproducible from a seed: ``python -m tools.torture --seed 1``."""
