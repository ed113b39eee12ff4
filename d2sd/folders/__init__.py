"""Model folders: presets, downloads, loading and saving, and plans of how models would run."""
