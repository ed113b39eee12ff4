"""Cost-aware decoding: ``controller`` decides from ``estimates`` of tokens and stage ``costs``, which ``measure`` times."""
