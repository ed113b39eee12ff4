"""Recorded runs: the events of a generation, written as JSON lines and read back. Needs no torch."""
