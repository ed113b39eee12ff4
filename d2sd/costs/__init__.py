"""Costs of the passes of a step on a machine, measured or published. Needs no torch."""
