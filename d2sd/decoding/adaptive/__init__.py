"""Cost-aware decoding: the decisions (``controller``), from ``estimates``, ``costs``, and a table of these (``measure``)."""
