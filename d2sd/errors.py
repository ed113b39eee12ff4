"""The one exception type whose message is written for the person at the keyboard."""


class InputError(ValueError):
    """Something the user gave cannot be used; the message is one sentence that says what to do.

    The command line prints it and exits with code 2, the page shows it as a notice.
    """
