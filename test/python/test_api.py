"""Entries as methods on arrays of others, what a module says of itself, and what it says of misuse."""

import doctest
import inspect
import logging
import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import nsa
from nsa._runtime import load

TYPE = "tensor<1x64x2x16xf32>"
LSE = "tensor<1x2x64xf32>"
WINDOW = f"""func.func @window(%q: {TYPE} {{nn.name = "q"}}, %k: {TYPE} {{nn.name = "k"}}, %v: {TYPE} {{nn.name = "v"}})
    -> ({TYPE} {{nn.name = "o"}}, {LSE} {{nn.name = "lse"}}) {{
  %o, %lse = nsa.window_attention %q, %k, %v {{window = 8 : i64}} : ({TYPE}, {TYPE}, {TYPE}) -> ({TYPE}, {LSE})
  return %o, %lse : {TYPE}, {LSE}
}}
"""


def double(kind, shape="2x3"):
    tensor = f"tensor<{shape}x{kind}>"
    return (f'func.func @double(%x: {tensor} {{nn.name = "x"}}) -> ({tensor} {{nn.name = "y"}}) {{\n'
            f"  %y = nn.add %x, %x : ({tensor}, {tensor}) -> {tensor}\n  return %y : {tensor}\n}}\n")


@pytest.fixture(scope="module")
def window():
    return nsa.compile(WINDOW, name="window.mlir")


@pytest.fixture(scope="module")
def doubled():
    return nsa.compile(double("f32"))


@pytest.fixture(scope="module")
def gpu():
    return nsa.compile(WINDOW, name="window.mlir", target="sm_90a", ptxas="none")


def inputs(rng):
    return dict(zip("qkv", rng.standard_normal((3, 1, 64, 2, 16)).astype(np.float32)))


class Exported:
    """An array that is known by DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


# Calls


def test_entry_arrays_give_what_copies_give(window, rng):
    arrays = inputs(rng)
    want = window.run("window", arrays)
    got = window.window(**arrays)
    assert list(got) == ["o", "lse"]
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])


def test_entry_other_arrays_in_turn_each_has_its_own(window, rng):
    first, second = inputs(rng), inputs(rng)
    results = [window.window(**arrays)["o"] for arrays in (first, second, first)]
    np.testing.assert_array_equal(results[0], results[2])
    assert not np.array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[1], window.run("window", second)["o"])


def test_entry_out_is_written_where_it_is(window, rng):
    arrays = inputs(rng)
    o, lse = np.full((1, 64, 2, 16), np.nan, np.float32), np.full((1, 2, 64), np.nan, np.float32)
    result = window.window(**arrays, out={"o": o, "lse": Exported(lse)})
    assert result["o"] is o
    np.testing.assert_array_equal(o, window.run("window", arrays)["o"])
    np.testing.assert_array_equal(lse, window.run("window", arrays)["lse"])


def test_entry_one_output_out_is_the_array(doubled):
    y = np.zeros((2, 3), np.float32)
    assert doubled.double(x=np.ones((2, 3), np.float32), out=y)["y"] is y
    assert (y == 2).all()


def test_entry_inputs_stay_as_they_are(window, rng):
    arrays = inputs(rng)
    kept = {name: array.copy() for name, array in arrays.items()}
    for array in arrays.values():
        array.flags.writeable = False
    window.window(**arrays)
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], kept[name])


def test_entry_memory_at_any_element_is_used_in_place(doubled):
    memory = np.zeros(7, np.float32)
    memory[1:] = 1
    assert (doubled.double(x=memory[1:].reshape(2, 3))["y"] == 2).all()


@pytest.mark.parametrize("kind,dtype", [("f32", "float32"), ("f16", "float16")])
def test_entry_type_is_that_of_numpy(kind, dtype):
    y = nsa.compile(double(kind)).double(x=np.full((2, 3), 1.5, dtype))["y"]
    assert y.dtype == dtype and (y == 3).all()


def test_entry_bf16_takes_bits():
    module = nsa.compile(double("bf16"))
    y = module.double(x=np.full((2, 3), 0x3FC0, np.uint16), out=np.zeros((2, 3), np.uint16))["y"]
    assert (y == 0x4040).all()


def test_entry_bf16_takes_ml_dtypes():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    y = nsa.compile(double("bf16")).double(x=np.full((2, 3), 1.5, bfloat16))["y"]
    assert y.dtype == bfloat16 and (y == 3).all()


def test_entry_torch_tensors_give_tensors(window, rng):
    torch = pytest.importorskip("torch")
    arrays = inputs(rng)
    got = window.window(**{name: torch.from_numpy(array) for name, array in arrays.items()})["o"]
    assert isinstance(got, torch.Tensor)
    np.testing.assert_array_equal(got.numpy(), window.run("window", arrays)["o"])


def test_entry_torch_tensor_that_requires_a_gradient_is_an_error(doubled):
    torch = pytest.importorskip("torch")
    with pytest.raises(nsa.InputError, match="argument 'x' requires a gradient"):
        doubled.double(x=torch.ones(2, 3, requires_grad=True))
    with pytest.raises(nsa.InputError, match="argument 'x' is torch.float64, expected f32"):
        doubled.double(x=torch.ones(2, 3, dtype=torch.float64))
    with pytest.raises(nsa.InputError, match=re.escape("argument 'x' has strides (1, 2) in elements, expected (3, 1)")):
        doubled.double(x=torch.ones(3, 2).T)


def test_entry_torch_bf16_gives_bf16():
    torch = pytest.importorskip("torch")
    y = nsa.compile(double("bf16")).double(x=torch.full((2, 3), 1.5, dtype=torch.bfloat16))["y"]
    assert y.dtype == torch.bfloat16 and (y == 3).all()


def test_entry_dlpack_gives_what_numpy_gives(window, rng):
    arrays = inputs(rng)
    got = window.window(**{name: Exported(array) for name, array in arrays.items()})
    np.testing.assert_array_equal(got["o"], window.run("window", arrays)["o"])


def test_entry_result_has_the_interfaces(doubled):
    y = doubled.double(x=np.ones((2, 3), np.float32))["y"]
    assert y.__array_interface__["shape"] == (2, 3)
    assert (np.from_dlpack(y) == 2).all()


def test_entry_several_threads_results_are_their_own(doubled):
    wrong = []

    def work(number):
        for i in range(200):
            x = np.full((2, 3), 1000 * number + i, np.float32)
            if not (doubled.double(x=x)["y"] == 2 * x).all():
                wrong.append((number, i))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert not wrong


# Any batch and length, and memory of callers


EXTENTS = double("f32", "?x?x3")


def test_with_extents_entries_have_them():
    module = nsa.compile(EXTENTS)
    assert module.extents == ["batch", "seq"]
    for batch, length in [(1, 1), (2, 7), (3, 100)]:
        given = module.with_extents(batch=batch, seq=length)
        assert given.extents == [] and given.double.inputs["x"][1] == (batch, length, 3)
        assert (given.double(x=np.ones((batch, length, 3), np.float32))["y"] == 2).all()
        assert nsa.load(given.artifact).double.inputs == given.double.inputs
    with pytest.raises(nsa.InputError, match=re.escape("is given the extents (batch), expected (batch, seq)")):
        module.with_extents(batch=1)
    with pytest.raises(nsa.RunError, match="'batch', 'seq' are not given"):
        module.double(x=np.ones((1, 1, 3), np.float32))


def test_prepared_call_uses_addresses(window, rng):
    arrays = inputs(rng)
    want = window.run("window", arrays)
    program = load(window._artifact, threads=1, seed=0, check_finite=False, poison=True, blas_library="", device=0,
                   external_memory=True)
    call = program.prepare("window", ["v", "q", "k", "o", "lse"])
    scratch = np.empty(call.scratch_bytes, np.uint8)
    o, lse = np.empty_like(want["o"]), np.empty_like(want["lse"])
    tensors = [arrays["v"], arrays["q"], arrays["k"], o, lse]
    call([tensor.ctypes.data for tensor in tensors], scratch.ctypes.data, None)
    np.testing.assert_array_equal(o, want["o"])
    np.testing.assert_array_equal(lse, want["lse"])
    with pytest.raises(nsa.InputError, match="entry 'window' is given 1 addresses, expected 5"):
        call([o.ctypes.data], 0, None)
    with pytest.raises(nsa.InputError, match="unknown tensor 'x'"):
        program.prepare("window", ["x"])


# Gradients


def test_compile_gradients_are_those_of_the_formula(rng):
    module = nsa.compile(double("f32"), gradients=["x"])
    x, dy = rng.standard_normal((2, 2, 3)).astype(np.float32)
    got = module.double(x=x, grad_y=dy)
    assert list(got) == ["y", "grad.x"]
    np.testing.assert_array_equal(got["grad.x"], 2 * dy)
    np.testing.assert_array_equal(module.double(x=x, **{"grad.y": dy})["grad.x"], got["grad.x"])


@pytest.mark.parametrize("gradients,message", [
    (["kk"], "no function has an argument 'kk' to differentiate with respect to; did you mean 'k'?; the arguments are q, k, v"),
    ("q", "gradients is 'q', expected a list of texts"),
])
def test_compile_wrong_gradients_are_errors(gradients, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        nsa.compile(WINDOW, gradients=gradients)


# What a module says


def test_module_of_a_gpu_is_made_without_one(gpu, tmp_path):
    assert gpu.target == "sm_90a"
    assert ".target sm_90a" in gpu.ptx()
    path = tmp_path / "window.nsax"
    gpu.save(path)
    loaded = nsa.load(path)
    assert loaded.ptx() == gpu.ptx()
    assert loaded.entries == gpu.entries
    for phase in nsa.PHASES + ["layout", "nvvm"]:
        assert "window" in gpu.ir(phase)


def test_module_of_a_gpu_without_one_a_call_is_an_error(gpu, rng):
    try:
        gpu.program
    except nsa.RunError as error:
        assert "window.mlir" in str(error)
        with pytest.raises(RuntimeError):
            gpu.window(**inputs(rng))
    else:
        pytest.skip("there is a GPU")


def test_module_ir_report_and_estimate(window):
    assert "nsa." in window.ir("precision") and "tile.kernel" in window.ir("kernel")
    report, estimate = window.report(), window.estimate()
    assert report.kernels >= 1 and report.commands[0]["entry"] == "window"
    assert report.total_bytes == estimate.total_bytes > 0
    assert "window" in str(report) and "KiB" in report.memory or "MiB" in report.memory
    assert repr(report).startswith("<nsa.Report: ")


def test_module_repr_names_arguments_and_results(window):
    assert repr(window) == ("<nsa.Module 'window.mlir' for x86-64-v3: window(q: f32[1, 64, 2, 16], k: f32[1, 64, 2, 16], "
                            "v: f32[1, 64, 2, 16]) -> (o: f32[1, 64, 2, 16], lse: f32[1, 2, 64])>")
    assert str(inspect.signature(window.window)) == "(*, q, k, v, out=None, stream=None)"
    assert "window" in dir(window)


def test_module_path_and_module_as_sources(tmp_path, window):
    path = tmp_path / "window.mlir"
    path.write_text(WINDOW)
    module = nsa.compile(path)
    assert module.name == str(path)
    assert nsa.compile(str(path)).artifact == module.artifact
    assert nsa.compile(window).artifact == window.artifact
    assert nsa.compile(module, target="sm_80", ptxas="none").target == "sm_80"
    assert nsa.load(window.artifact).artifact == window.artifact


def test_version_is_that_of_the_modules():
    assert re.fullmatch(r"\d+\.\d+\.\d+", nsa.__version__)


# Misuse

Q = np.zeros((1, 64, 2, 16), np.float32)


@pytest.mark.parametrize("change,message", [
    ({"q": np.zeros((1, 63, 2, 16), np.float32)},
     "entry 'window': argument 'q' has shape (1, 63, 2, 16), expected (1, 64, 2, 16)"),
    ({"q": np.zeros((64, 2, 16), np.float32)}, "argument 'q' has shape (64, 2, 16), expected (1, 64, 2, 16)"),
    ({"q": Q.astype(np.float64)}, "argument 'q' is float64, expected f32"),
    ({"q": Q.astype(np.float16)}, "argument 'q' is f16, expected f32"),
    ({"q": Q.astype(">f4")}, "argument 'q' is >f4, expected f32"),
    ({"q": np.asfortranarray(np.zeros((1, 64, 2, 16), np.float32))},
     "argument 'q' has strides (1, 1, 64, 128) in elements, expected (2048, 32, 16, 1)"),
    ({"q": np.zeros((1, 64, 2, 32), np.float32)[..., ::2]},
     "argument 'q' has strides (4096, 64, 32, 2) in elements, expected (2048, 32, 16, 1)"),
    ({"q": [1.0]}, "argument 'q' is a list, expected an array"),
    ({"q": None}, "argument 'q' is a NoneType, expected an array"),
    ({"q": Exported(Q.astype(np.float64))}, "argument 'q' is float64, expected f32"),
    ({"k": Exported(Q[:, ::2])}, "argument 'k' has shape (1, 32, 2, 16), expected (1, 64, 2, 16)"),
    ({"qq": Q}, "entry 'window' has no argument 'qq'"),
    ({"out": {"p": Q}}, "entry 'window' has no output 'p'; it has o, lse"),
    ({"out": Q}, "entry 'window': out is one array, expected a dict for the 2 outputs o, lse"),
    ({"out": {"o": np.zeros((2, 2), np.float32)}}, "argument 'o' has shape (2, 2), expected (1, 64, 2, 16)"),
    ({"stream": "fast"}, "the stream is a str, expected a number"),
])
def test_entry_wrong_argument_is_an_error_with_both_values(window, change, message):
    arguments = {**{name: Q.copy() for name in "qkv"}, **change}
    with pytest.raises(nsa.InputError, match=re.escape(message)):
        window.window(**arguments)


def test_entry_missing_argument_is_named(window):
    with pytest.raises(ValueError, match=re.escape("entry 'window' needs k (f32 (1, 64, 2, 16)), v (f32")):
        window.window(q=Q)
    with pytest.raises(ValueError, match="takes its arrays by name: q, k, v"):
        window.window(Q, Q, Q)


def test_entry_output_that_cannot_be_written_is_an_error(window):
    arrays = {name: Q.copy() for name in "qkv"}
    with pytest.raises(ValueError, match="argument 'o' is written and shares memory with argument 'k'"):
        window.window(**arrays, out={"o": arrays["k"]})
    frozen = Q.copy()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="argument 'o' is read-only"):
        window.window(**arrays, out={"o": frozen})


class OnGPU:
    """What lies on a GPU, as its producer says."""

    def __init__(self, **interface):
        self.__cuda_array_interface__ = {"shape": (1, 64, 2, 16), "typestr": "<f4", "data": (1 << 20, False),
                                         "version": 3, **interface}


@pytest.mark.parametrize("value,message", [
    (OnGPU(), "argument 'q' lies on cuda:0, expected cpu"),
    (OnGPU(typestr="<f8"), "argument 'q' is <f8, expected f32"),
    (OnGPU(shape="many"), "argument 'q' has a __cuda_array_interface__ with a member of another type"),
])
def test_entry_array_of_another_device_is_an_error(window, value, message):
    with pytest.raises(nsa.InputError, match=re.escape(message)):
        window.window(q=value, k=Q, v=Q)


def test_entry_producer_that_fails_is_the_cause(window):
    class Failing(Exported):
        def __dlpack__(self, **keywords):
            raise BufferError("requires grad")

    with pytest.raises(nsa.InputError, match="argument 'q' cannot be had by DLPack: requires grad") as caught:
        window.window(q=Failing(Q), k=Q, v=Q)
    assert isinstance(caught.value.__cause__, BufferError)


@pytest.mark.parametrize("call,kind,message", [
    (lambda: nsa.compile("func.func @f(\n"), nsa.CompileError, "module.mlir:1:"),
    (lambda: nsa.compile(42), nsa.InputError, "the source is 42, expected text, a path, bytes or a Module"),
    (lambda: nsa.compile("nowhere.mlir"), nsa.InputError, "cannot read the source 'nowhere.mlir': No such file"),
    (lambda: nsa.load("nowhere.nsax"), nsa.InputError, "nowhere.nsax"),
    (lambda: nsa.compile(WINDOW, ptxas="none"), nsa.OptionError, "option 'ptxas' has no effect for the target 'cpu'"),
    (lambda: nsa.compile(WINDOW, target="sm_80", cpu="native"), nsa.OptionError,
     "option 'cpu' has no effect for the target 'sm_80'"),
    (lambda: nsa.compile(WINDOW, logits_mib=0), nsa.CompileError, "logits-mib 0, expected 1 to "),
    (lambda: nsa.compile(WINDOW, columns=-1), nsa.OptionError, "option 'columns' takes a number from 0, not -1"),
    (lambda: nsa.compile(WINDOW, threads="all"), nsa.OptionError, "option 'threads' is 'all', expected an integer from 0 to 2147483647"),
    (lambda: nsa.compile(WINDOW, seed=-1), nsa.OptionError, "option 'seed' is -1, expected an integer from 0 on"),
    (lambda: nsa.compile(WINDOW, poison=1), nsa.OptionError, "option 'poison' is 1, expected True or False"),
    (lambda: nsa.compile(WINDOW, blas_library=0), nsa.OptionError, "option 'blas_library' is 0, expected a path"),
    (lambda: nsa.compile(WINDOW, device=1), nsa.OptionError, "option 'device' has no effect for the target 'cpu'"),
])
def test_compile_misuse_is_an_error_of_its_kind(call, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        call()


def test_module_misuse_is_named(window, gpu):
    for call, message in [(lambda: window.ptx(), "is for the target 'cpu', expected a GPU"),
                          (lambda: window.ir("ptx"), "phase 'ptx' needs a GPU as target, not cpu"),
                          (lambda: nsa.load(window.artifact).ir("kernel"), "was loaded and has no source for ir()"),
                          (lambda: window.entry("windw"), "has no entry 'windw'; it has window")]:
        with pytest.raises(nsa.Error, match=re.escape(message)):
            call()
    with pytest.raises(AttributeError, match="it has window"):
        window.windw


def test_errors_are_those_of_python():
    assert issubclass(nsa.InputError, (nsa.Error, ValueError)) and issubclass(nsa.RunError, RuntimeError)
    assert issubclass(nsa.CompileError, ValueError) and issubclass(nsa.OptionError, TypeError)


# The cache

COMPILE = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import nsa
made = []
threads = [threading.Thread(target=lambda: made.append(nsa.compile(open(sys.argv[2]).read()).artifact)) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(made) == 4 and len(set(made)) == 1
sys.stdout.buffer.write(made[0])
"""


def test_cache_four_threads_of_two_processes_share_an_entry(tmp_path):
    (tmp_path / "window.mlir").write_text(WINDOW)
    environment = dict(os.environ, NSA_CACHE="1", XDG_CACHE_HOME=str(tmp_path))
    package = str(pathlib.Path(nsa.__file__).parent.parent)
    processes = [subprocess.Popen([sys.executable, "-c", COMPILE, package, str(tmp_path / "window.mlir")],
                                  env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    made = [process.communicate()[0] for process in processes]
    assert made[0] == made[1] == nsa.compile(WINDOW).artifact
    assert len(list((tmp_path / "nsa").iterdir())) == 1


def test_cache_hit_damage_and_change(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("NSA_CACHE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    caplog.set_level(logging.INFO, logger="nsa")
    first = nsa.compile(WINDOW)
    [entry] = (tmp_path / "nsa").iterdir()
    assert nsa.compile(WINDOW).artifact == first.artifact
    assert "compiled before" in caplog.text
    (entry / "model.nsax").write_bytes(first.artifact[:-1] + b"?")
    caplog.clear()
    assert nsa.compile(WINDOW).artifact == first.artifact
    assert "compiling again" in caplog.text
    assert nsa.compile(WINDOW, fuse=False, name="other.mlir").name == "other.mlir"
    assert len(list((tmp_path / "nsa").iterdir())) == 2


def test_cache_of_no_folder_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("NSA_CACHE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "")
    with pytest.warns(UserWarning, match="compiled without a cache: there is no folder"):
        nsa.compile(WINDOW)


def test_compile_debug_options_are_keywords(tmp_path, capfd):
    nsa.compile(WINDOW, save_phases=str(tmp_path / "phases"), mlir_timing=True, mlir_print_ir_after=["nsa-fuse", "nsa-plan"])
    assert len(list((tmp_path / "phases").iterdir())) == len(nsa.PHASES)
    shown = capfd.readouterr().err
    assert "Total Execution Time" in shown and "(nsa-fuse)" in shown and "(nsa-plan)" in shown


def test_docstrings_are_examples_that_run():
    [example] = doctest.DocTestFinder().find(nsa.compile, "compile", globs={})
    assert doctest.DocTestRunner().run(example) == (0, 3)
