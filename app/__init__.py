"""The page: layout, controller and views over ``d2sd``'s public names."""

# Imported first: on ZeroGPU, the ``spaces`` package must be loaded before anything uses a GPU.
from app import machine as machine
