"""Drafting along a text that is already known. At temperature 0 the text contains the target's choices, so only drafters run."""
