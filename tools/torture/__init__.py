"""Hostile input and faults, as campaigns that anyone can repeat: ``python -m tests.torture --seed 1``."""
