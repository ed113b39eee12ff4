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
                item.add_marker(pytest.mark.timeout(1800))  # the first use of flashinfer compiles
            item.add_marker(pytest.mark.filterwarnings("default"))  # what only GPUs need warns in ways of its own
