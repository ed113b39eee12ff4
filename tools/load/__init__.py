"""Load test that simulates many users of one page: ``python -m tools.load``."""
