"""The module itself: compiling, running, saving, and what it says when wrong."""


import os
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import nsa
import nsa.data
import nsa.evaluate
import nsa.hf
from numerics import to_bf16

ADD = """func.func @main(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = nn.add %a, %b : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
"""


@pytest.fixture(scope="module")
def module():
    return nsa.compile(ADD)


def test_run(module, rng):
    a, b = rng.standard_normal((2, 4, 8)).astype(np.float32)
    np.testing.assert_array_equal(module.run("main", {"arg0": a, "arg1": b})["result0"], a + b)
    # Any memory order will do.
    got = module.run("main", {"arg0": np.asfortranarray(a), "arg1": b})["result0"]
    np.testing.assert_array_equal(got, a + b)


def test_module_shared_by_threads_results_are_their_own(module):
    """Every thread gets what its own inputs give, and a read gives a whole array."""
    wrong = []

    def work(number):
        for i in range(150):
            a = np.full((4, 8), 1000 * number + i, np.float32)
            if not (module.run("main", {"arg0": a, "arg1": a})["result0"] == 2 * a).all():
                wrong.append((number, i))
            module.write("arg0", a)
            value = module.read("arg0")
            if not (value == value[0, 0]).all():
                wrong.append((number, i))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert not wrong


def test_module_array_that_leaves_has_its_own_strides(module, rng):
    a, b = rng.standard_normal((2, 4, 8)).astype(np.float32)
    got = module.run("main", {"arg0": a, "arg1": b})["result0"]
    assert got.strides == (32, 4)
    np.testing.assert_array_equal(got + got, 2 * (a + b))
    assert module.read("arg1").strides == (32, 4)
    np.testing.assert_array_equal(module.read("arg1"), b)


def test_entries(module):
    assert module.entries["main"] == (["arg0", "arg1"], ["result0"])
    assert module.tensors["arg0"] == ("f32", (4, 8), "input")
    assert module.tensors["result0"][2] == "output"


def test_save_and_load(module, rng, tmp_path):
    path = str(tmp_path / "add.nsax")
    module.save(path)
    loaded = nsa.load(path, threads=1)
    a, b = rng.standard_normal((2, 4, 8)).astype(np.float32)
    inputs = {"arg0": a, "arg1": b}
    np.testing.assert_array_equal(loaded.run("main", inputs)["result0"], module.run("main", inputs)["result0"])


def test_compiling_twice_gives_the_same_bytes(module):
    assert nsa.compile(ADD).artifact == module.artifact


def test_bf16_as_float_and_as_bits(rng):
    bf16 = nsa.compile(ADD.replace("f32", "bf16"))
    a, b = rng.standard_normal((2, 4, 8)).astype(np.float32)
    want = to_bf16(to_bf16(a) + to_bf16(b))
    np.testing.assert_array_equal(bf16.run("main", {"arg0": a, "arg1": b})["result0"], want)
    bits = (to_bf16(a).view(np.uint32) >> 16).astype(np.uint16)
    np.testing.assert_array_equal(bf16.run("main", {"arg0": bits, "arg1": b})["result0"], want)


@pytest.mark.parametrize("inputs,message", [
    ({}, "needs the input 'arg0'"),
    ({"arg0": np.zeros((4, 8), np.float32), "arg1": np.zeros((4, 8), np.float32), "c": np.zeros(1)},
     "has no input 'c'"),
    ({"arg0": np.zeros((4, 9), np.float32), "arg1": np.zeros((4, 8), np.float32)},
     r"'arg0' has shape \(4, 8\), the array has \(4, 9\)"),
    ({"arg0": np.zeros((4, 8)), "arg1": np.zeros((4, 8), np.float32)},
     "'arg0' is f32 and takes float32, the array has float64"),
])
def test_wrong_inputs(module, inputs, message):
    with pytest.raises(nsa.Error, match=message):
        module.run("main", inputs)


def test_unknown_names(module):
    with pytest.raises(nsa.Error, match="mian"):
        module.run("mian", {})
    with pytest.raises(nsa.Error, match="nothing"):
        module.read("nothing")


def test_diagnostics_are_the_message():
    with pytest.raises(nsa.Error, match=r"add.mlir:2:42: error: .*window"):
        nsa.compile("""func.func @f(%q: tensor<1x4x2x8xf32>) -> tensor<1x4x2x8xf32> {
  %o:2 = nsa.window_attention %q, %q, %q {window = 0 : i64} : (tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32>) -> (tensor<1x4x2x8xf32>, tensor<1x2x4xf32>)
  return %o#0 : tensor<1x4x2x8xf32>
}""", name="add.mlir")


@pytest.mark.parametrize("options,message", [
    ({"target": "sm_70"}, "unsupported target 'sm_70'"),
    ({"cpu": "z80"}, "unknown cpu 'z80'"),
    ({"precision": "fp8"}, "unknown precision 'fp8'"),
])
def test_wrong_options(options, message):
    with pytest.raises(nsa.Error, match=message):
        nsa.compile(ADD, **options)


@pytest.mark.parametrize("options,message", [
    ({"precison": "bf16"}, "unknown option 'precison'; did you mean 'precision'?"),
    ({"seq_len": "long"}, "option 'seq_len' takes an integer, not 'long'"),
    ({"allow_slow_path": "copy"}, "option 'allow_slow_path' takes a list of strings"),
])
def test_options_of_no_meaning_are_type_errors(options, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        nsa.compile(ADD, **options)


def test_options_of_nsa_compile_are_keywords_and_documented():
    assert "recompute_budget=0: MiB" in nsa.compile.__doc__
    assert nsa.compile(ADD, fuse=False).artifact != nsa.compile(ADD).artifact


def test_corrupted_files_are_errors(module, tmp_path):
    data = module.artifact
    for name, contents in [("cut", data[:100]), ("flip", data[:-1] + bytes([data[-1] ^ 1])), ("text", b"hello")]:
        path = tmp_path / name
        path.write_bytes(contents)
        with pytest.raises(nsa.Error, match=name):
            nsa.load(str(path))


@pytest.mark.parametrize("read", [
    lambda folder: nsa.compile(folder / "config.json"),
    lambda folder: nsa.hf.import_model(folder, folder / "run"),
    lambda folder: nsa.evaluate._choices.read_items(folder / "config.json"),
    lambda folder: nsa.data.write_shards(folder / "data", [[1]], vocabulary=2, tokenizer=folder / "config.json"),
    lambda folder: nsa.data.Shards(str(folder)),
])
def test_pipes_without_a_writer_are_errors(tmp_path, read):
    for name in ("config.json", "manifest.json"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(nsa.InputError, match="not a regular file|nothing came from it"):
        read(tmp_path)


def test_phases_are_text():
    for phase in nsa.PHASES:
        assert "main" in nsa.compile_to(phase, ADD)
    with pytest.raises(nsa.Error, match="unknown phase 'fuse'"):
        nsa.compile_to("fuse", ADD)
