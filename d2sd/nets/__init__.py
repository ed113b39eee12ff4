"""Targets and drafters as networks, their attention, caches and forward passes, and checks of their configs."""
