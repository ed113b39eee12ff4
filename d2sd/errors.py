"""The exception ``InputError``, whose message is written for the user, and one-line summaries of other exceptions."""


class InputError(ValueError):
    """Invalid input of the user. The message is one sentence that says what to do.

    The command line prints the message and exits with code 2; the page shows the message as a notice.
    """


def require(ok: object, sentence: str) -> None:
    """Raises ``InputError`` with this sentence unless ``ok`` is true."""
    if not ok:
        raise InputError(sentence)


def first_line(error: Exception, most: int = 300) -> str:
    """Returns the first line of an error's message, cut to ``most`` characters. If the message is empty, returns the error's type."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    end = 2 if lines[0].endswith(":") else 1  # a line that ends with a colon continues on the next line
    return " ".join(" ".join(lines[:end]).split())[:most]


def error_line(error: Exception) -> str:
    """Returns an error's type and the first line of its message, to report an unexpected error."""
    name, message = type(error).__name__, first_line(error)
    return name if message == name else f"{name}: {message}"
