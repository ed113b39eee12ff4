"""Drafts along a recorded text. At temperature 0, the text itself contains the target's choices, so only the drafters have to run."""
