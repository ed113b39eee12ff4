"""Tests that need a CUDA GPU. Without one, each module skips itself before its tests are collected."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(config, items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not config.getoption("timeout", None):
                item.add_marker(pytest.mark.timeout(1800))  # flashinfer compiles at its first use
            item.add_marker(pytest.mark.filterwarnings("default"))  # libraries for GPUs emit other warnings
