"""Model folders: presets, downloads, reading, loading and writing, and plans from configs alone."""
