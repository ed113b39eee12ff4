"""The recipe of the bundled nets, ``tiny``: what they were trained on, and how."""
