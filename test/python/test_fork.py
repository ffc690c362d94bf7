"""Modules of the parent in its children, as multiprocessing and workers of PyTorch's DataLoader have them."""

import gc
import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

import nsa

SECONDS = 60
PRODUCT = """func.func @product(%x: tensor<64x32xf32> {nn.name = "x"}, %w: tensor<32x48xf32> {nn.name = "w"})
    -> (tensor<64x48xf32> {nn.name = "y"}) {
  %m = nn.matmul %x, %w : (tensor<64x32xf32>, tensor<32x48xf32>) -> tensor<64x48xf32>
  %y = nn.add %m, %m : (tensor<64x48xf32>, tensor<64x48xf32>) -> tensor<64x48xf32>
  return %y : tensor<64x48xf32>
}"""


@pytest.fixture(scope="module")
def module():
    """It multiplies by OpenBLAS and has a kernel of its own."""
    return nsa.compile(PRODUCT, threads=3)


@pytest.fixture
def call(module, rng):
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 32), (32, 48)))
    want = module.product(x=x, w=w)["y"]
    np.testing.assert_allclose(want, 2 * x @ w, rtol=1e-4, atol=1e-4)

    def is_right():
        return np.array_equal(module.product(x=x, w=w)["y"], want)

    return is_right


def in_child(action):
    """Whether `action` is true in a child, which a signal ends if it hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(SECONDS)
            code = 0 if action() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_fork_while_threads_call_and_load(module, call):
    ending = threading.Event()

    def work():
        while not ending.is_set():
            assert call()
            nsa.load(module.artifact, threads=2).program

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert in_child(lambda: call() and call())
            time.sleep(0.01)
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    assert call()


def test_fork_child_drops_a_module_that_it_did_not_call():
    modules = [nsa.compile(PRODUCT, threads=2)]
    modules[0].product(x=np.ones((64, 32), np.float32), w=np.ones((32, 48), np.float32))

    def drop():
        modules.clear()
        return gc.collect() >= 0

    assert in_child(drop)


def test_fork_pool_of_processes_calls(call):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert all(result.get(SECONDS) for result in [pool.apply_async(_call_again) for _ in range(6)])


def _call_again():
    w = np.eye(32, 48, dtype=np.float32)
    x = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    return np.array_equal(_shared().product(x=x, w=w)["y"], 2 * x @ w)


def _shared(cache={}):
    return cache.setdefault("module", nsa.compile(PRODUCT, threads=2))


def test_fork_operators_of_torch_are_called_and_compiled():
    torch = pytest.importorskip("torch", minversion="2.9")
    import nsa.torch as nt
    torch.set_num_threads(1)
    q, k = torch.randn(1, 40, 2, 16), torch.randn(1, 40, 1, 16)
    want = nt.window_attention(q, k, k, window=8)

    class Outputs(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, number):
            # One that the parent has compiled, and one that it has not.
            return nt.window_attention(q, k, k, window=8), nt.causal_attention(q, k, k)

    loader = torch.utils.data.DataLoader(Outputs(), batch_size=None, num_workers=2, multiprocessing_context="fork",
                                         timeout=SECONDS)
    causal = nt.causal_attention(q, k, k)
    assert all(torch.equal(o, want) and torch.equal(other, causal) for o, other in loader)
