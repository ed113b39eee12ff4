"""Model folders: presets, downloads, loading and saving, and predictions of whether and how models would run."""
