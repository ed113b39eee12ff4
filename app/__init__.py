"""The web page of ``d2sd``: layout, controller and views."""

# Imported first: on ZeroGPU, the ``spaces`` package must be loaded before anything uses a GPU.
from app import machine as machine
