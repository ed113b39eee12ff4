"""Many people at once on one page: ``python -m tools.load``."""
