"""Fresh random inputs for every run; NSA_TEST_SEED repeats one."""

import os
import secrets
import sys

import numpy as np
import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.environ.get("NSA_PYTHON_PATH", os.path.join(ROOT, "build", "python")))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(ROOT, "test", "judge"))

# Every run compiles what it tests.
os.environ.setdefault("NSA_CACHE", "0")
# The programs make tokens of prompts by the python3 of the PATH.
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
# Nothing is looked for on the network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

SEED = int(os.environ.get("NSA_TEST_SEED", secrets.randbelow(2**31)))


def pytest_configure(config):
    config.addinivalue_line("markers", "device(name): a test for tensors on `name` alone, cpu or cuda")


def pytest_report_header(config):
    return f"inputs: NSA_TEST_SEED={SEED}"


def pytest_collection_modifyitems(config, items):
    """Tests of another device than NSA_TORCH_DEVICE are no part of a run."""
    device = os.environ.get("NSA_TORCH_DEVICE", "cpu")
    others = [item for item in items if any(mark.args != (device,) for mark in item.iter_markers("device"))]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


def pytest_terminal_summary(terminalreporter):
    """test/suites.inc counts what was skipped."""
    if "NSA_TEST_RESULTS" in os.environ:
        with open(os.environ["NSA_TEST_RESULTS"], "a") as results:
            results.writelines(f"skipped {report.nodeid}\n" for report in terminalreporter.stats.get("skipped", []))


@pytest.fixture
def rng(request):
    name = np.frombuffer(request.node.nodeid.encode(), np.uint8)
    return np.random.default_rng([SEED, *name])
