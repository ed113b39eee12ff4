"""Measurements and campaigns that people run by hand, from the root of a checkout."""
