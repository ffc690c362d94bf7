"""Fresh random inputs for every run; NSA_TEST_SEED repeats one."""

import os
import secrets
import sys

import numpy as np
import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.environ.get("NSA_PYTHON_PATH", os.path.join(ROOT, "build", "python")))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# Every run compiles what it tests.
os.environ.setdefault("NSA_CACHE", "0")

SEED = int(os.environ.get("NSA_TEST_SEED", secrets.randbelow(2**31)))


def pytest_report_header(config):
    return f"inputs: NSA_TEST_SEED={SEED}"


@pytest.fixture
def rng(request):
    name = np.frombuffer(request.node.nodeid.encode(), np.uint8)
    return np.random.default_rng([SEED, *name])
