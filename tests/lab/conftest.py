"""The laboratory's tests run in its own Python (python in the build directory)."""

from __future__ import annotations

import pytest

from tools.flitnet import paths


@pytest.fixture(scope="session")
def simulator() -> None:
    """Skipped where nothing is built."""
    if not (paths.build_dir() / paths.PROGRAMS["flitnet-point"]).exists():
        pytest.skip("flitnet-point is not built")
