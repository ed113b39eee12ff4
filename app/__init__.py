"""The page: layout, controller and views over ``d2sd``'s public names."""

# First of all: on a shared Space the ``spaces`` package has to see torch before anything touches a GPU.
from app import machine as machine
