"""Start the page: ``python app.py`` (also the entry of a Hugging Face Space)."""

from __future__ import annotations

from app.layout import build, launch_options
from app.threads import leave_a_core

leave_a_core()
demo = build()

if __name__ == "__main__":
    demo.launch(**launch_options())
