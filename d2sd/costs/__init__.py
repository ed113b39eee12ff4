"""Times of the passes of a step on a machine, measured or published. This package does not need torch."""
