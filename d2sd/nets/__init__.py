"""Networks and how they run: targets by type, drafters, attention backends, caches, passes, and checks of their configs."""
