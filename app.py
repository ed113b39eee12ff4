"""Start the page: ``python app.py`` (also the entry of a Hugging Face Space)."""

from __future__ import annotations

from app.layout import build, launch_options

demo = build()

if __name__ == "__main__":
    demo.launch(**launch_options())
