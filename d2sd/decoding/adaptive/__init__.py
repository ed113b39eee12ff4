"""Cost-aware decoding: a step spends only what is expected to pay.

Read ``controller`` first: the decisions of a step. ``estimates`` says what drafts are expected to bring, ``costs`` what
stages take, and ``measure`` fills the table of these for a machine.
"""
