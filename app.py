"""Start the page: ``python app.py`` (also the entry of a Hugging Face Space)."""

from __future__ import annotations

import sys

from app import api
from app.layout import build, launch_options
from app.machine import leave_a_core
from app.model_choice import get_on_a_space
from app.visitors import listen_options
from d2sd import InputError

leave_a_core()
get_on_a_space()
demo = build()

if __name__ == "__main__":
    try:
        demo.launch(**launch_options(), **listen_options(), **api.mcp())
    except InputError as error:
        sys.exit(f"error: {error}")
