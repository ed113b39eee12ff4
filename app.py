"""Start the page: ``python app.py`` (also the entry of a Hugging Face Space)."""

from __future__ import annotations

import sys

from app.visitors import listen_options
from d2sd import InputError
from d2sd.trace.text import replace_unencodable


def start(inbrowser: bool = False) -> None:
    """Starts the page. Raises ``InputError`` if it cannot listen on its address, before modules that take seconds are imported.

    inbrowser: whether to open the page in the browser.
    """
    replace_unencodable()
    listen_options()
    from app import api
    from app.layout import build, launch_options
    from app.machine import leave_a_core
    from app.model_choice import get_on_a_space

    leave_a_core()
    get_on_a_space()
    build().launch(inbrowser=inbrowser, **launch_options(), **listen_options(), **api.mcp())


if __name__ == "__main__":
    try:
        start()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
