"""What the passes of a step cost on a machine: measured, published, calculated or stated in a file; no torch."""
