"""Hostile input and faults, as campaigns that anyone can repeat: ``python -m tools.torture --seed 1``."""
