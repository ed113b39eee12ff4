"""Networks of targets and drafters: attention, caches, forward passes, and checks of configs."""
