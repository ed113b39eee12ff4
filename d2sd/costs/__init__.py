"""What the passes of a step cost on a machine: measured or published; no torch."""
