"""What the passes of a step cost on a machine: measured, published or calculated; no torch."""
