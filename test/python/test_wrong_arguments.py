"""Wrong arguments of every public function: each is an nsa.Error, or right after all."""

import functools
import inspect
import itertools
import json
import math

import numpy as np
import pytest

import nsa
import nsa.data
import nsa.evaluate
import nsa.hf
from programs import train_on_ids
from test_docs import SMALL

try:
    import torch
    import nsa.torch as nt
except ImportError:
    torch = None

TWICE = """func.func @twice(%x: tensor<?x?x3xf32> {nn.name = "x"}) -> (tensor<?x?x3xf32> {nn.name = "y"}) {
  %y = nn.add %x, %x : (tensor<?x?x3xf32>, tensor<?x?x3xf32>) -> tensor<?x?x3xf32>
  return %y : tensor<?x?x3xf32>
}"""
X = np.ones((1, 2, 3), np.float32)


class Odd:
    """Nothing that any function takes."""


def read_only():
    array = np.zeros((1, 2, 3), np.float32)
    array.setflags(write=False)
    return array


WRONG = {
    "None": None, "text": "word", "empty text": "", "zero in text": "a\0b", "bytes": b"word", "true": True, "-1": -1,
    "1.5": 1.5, "nan": math.nan, "inf": math.inf, "2^70": 1 << 70, "-2^70": -(1 << 70), "complex": 1j, "object": Odd(),
    "class": Odd, "empty list": [], "ragged": [[1], [1, 2]], "list of text": ["a", 1], "list of None": [None],
    "deep": [[[[1]]]], "dict": {"a": 1}, "iterator": iter([1]), "float array": np.ones(3), "nan array": np.full(3, np.nan),
    "object array": np.array([1, "a"], object), "complex array": np.ones((1, 2, 3), np.complex64),
    "strided array": np.ones((1, 2, 6), np.float32)[:, :, ::2], "read-only array": read_only(),
    "empty array": np.zeros((0, 2, 3), np.float32), "scalar array": np.array(1), "text array": np.array(["a"]),
    "date array": np.array(["2020-01-01"], "datetime64[D]"), "huge ids": np.array([1 << 62]), "negative ids": np.array([-5, 1]),
}
if torch:
    WRONG |= {
        "meta tensor": torch.empty(1, 2, 3, device="meta"), "sparse tensor": torch.ones(1, 2, 3).to_sparse(),
        "complex tensor": torch.ones(1, 2, 3, dtype=torch.complex64), "bool tensor": torch.ones(1, 2, 3, dtype=torch.bool),
        "nested tensor": torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged),
        "quantized tensor": torch.quantize_per_tensor(torch.ones(1, 2, 3), 1.0, 0, torch.quint8),
        "tensor with gradient": torch.ones(1, 2, 3, requires_grad=True), "strided tensor": torch.ones(3, 2, 1).T,
        "one-sided tensor": torch.ones(1, 1, 1).expand(1, 2, 3), "scalar tensor": torch.tensor(1.0),
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run directory, shards, modules, and places for what is written. What is compiled again comes from a cache."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NSA_CACHE", "1")
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield make(folder)


def make(folder):
    run = train_on_ids(folder, SMALL)
    (folder / "text").mkdir()
    for number in range(20):
        (folder / "text" / f"{number}.txt").write_text(f"document {number} of a few words " * 20)
    (folder / "items.jsonl").write_text(json.dumps({"context": "a", "choices": ["b", "c"], "answer": 0}) + "\n")
    nsa.data.write_shards(folder / "ids", [[1, 2, 3]] * 30, [[1, 2]] * 60, vocabulary=16)
    made = {"folder": folder, "run": run, "module": nsa.compile(TWICE), "count": itertools.count(),
            "model": nsa.Model(run), "shards": nsa.data.Shards(str(folder / "ids"))}
    made["fixed"] = made["module"].with_extents(batch=1, seq=2)
    made["scorer"] = nsa.evaluate.Scorer(run)
    made["scheduler"] = nsa.Scheduler(run, slots=1)
    return made


def new_path(made):
    return made["folder"] / f"new-{next(made['count'])}"


def small_attention(length=8):
    q, k = torch.randn(1, length, 2, 16), torch.randn(1, length, 1, 16)
    sizes = dict(block=4, stride=2, select_block=4, count=2, window=4)
    return dict(q=q, k_cmp=k, v_cmp=k, k_slc=k, v_slc=k, k_win=k, v_win=k, gates=torch.rand(1, length, 2, 3), **sizes)


def attention_part(name):
    def arguments(made):
        all = small_attention()
        q, k, blocks = all["q"], all["k_cmp"], dict(block=4, stride=2)
        kc = nt.compress(k, **blocks)
        _, lse = nt.compressed_attention(q, kc, kc, **blocks)
        indices = nt.select(q, kc, lse, **blocks, select_block=4, count=2)
        ends = torch.tensor([0, 3, 8], dtype=torch.int32)
        return {"attention": dict(all, scale=1.0, initial=1, local=1, phi="mean", rotary=nt.rotary_table(8, 16), cu_seqlens=ends,
                                  key_parameters=[], value_parameters=[]),
                "compress": dict(x=k, **blocks, phi="mean", parameters=[], cu_seqlens=ends),
                "compressed_attention": dict(q=q, k=kc, v=kc, **blocks, scale=1.0),
                "select": dict(q=q, k=kc, lse=lse, **blocks, select_block=4, count=2, initial=1, local=1, scale=1.0),
                "selected_attention": dict(q=q, k=k, v=k, indices=indices, select_block=4, scale=1.0, cu_seqlens=None),
                "window_attention": dict(q=q, k=k, v=k, window=4, scale=1.0, cu_seqlens=ends),
                "causal_attention": dict(q=q, k=k, v=k, scale=1.0, cu_seqlens=ends)}[name]
    return arguments


RUNTIME = dict(threads=1, seed=0, check_finite=False, poison=False, blas_library="", device=0)
#: {name: (function, arguments that are right)}, both of what `made` has.
CALLS = {
    "compile": (lambda made: nsa.compile, lambda made: dict(source=TWICE, name="a", target="cpu", gradients=[], **RUNTIME)),
    "compile_to": (lambda made: nsa.compile_to, lambda made: dict(phase="plan", source=TWICE, name="a", target="cpu")),
    "load": (lambda made: nsa.load, lambda made: dict(artifact=made["module"].artifact, name="a", **RUNTIME)),
    "load_bytes": (lambda made: nsa.load_bytes, lambda made: dict(artifact=made["module"].artifact)),
    "model_text": (lambda made: nsa.model_text, lambda made: dict(config=SMALL, name="a")),
    "with_extents": (lambda made: made["module"].with_extents, lambda made: dict(batch=1, seq=2)),
    "entry": (lambda made: made["fixed"].twice, lambda made: dict(x=X, out=np.zeros_like(X), stream=None)),
    "module.run": (lambda made: made["fixed"].run, lambda made: dict(entry="twice", inputs={"x": X})),
    "module.run inputs": (lambda made: lambda x: made["fixed"].run("twice", {"x": x}), lambda made: dict(x=X)),
    "module.entry": (lambda made: made["fixed"].entry, lambda made: dict(name="twice")),
    "module.read": (lambda made: made["fixed"].read, lambda made: dict(name="x")),
    "module.write": (lambda made: made["fixed"].write, lambda made: dict(name="x", value=X)),
    "module.ir": (lambda made: made["module"].ir, lambda made: dict(phase="plan")),
    "module.save": (lambda made: made["module"].save, lambda made: dict(path=new_path(made))),
    "Model": (lambda made: nsa.Model, lambda made: dict(checkpoint=made["run"], artifact=None, target="cpu", micro_batch=1,
                                                       precision="fp32", seq_len=64, threads=1)),
    "model.loss": (lambda made: made["model"].loss, lambda made: dict(ids=[1, 2, 3])),
    "model.logits": (lambda made: made["model"].logits, lambda made: dict(ids=[1, 2, 3])),
    "model.generate": (lambda made: made["model"].generate, lambda made: dict(
        prompts=[1, 2], tokens=2, temperature=1.0, top_k=2, top_p=0.9, seed=0, stop=[], context=64)),
    "Scheduler": (lambda made: nsa.Scheduler, lambda made: dict(checkpoint=made["run"], slots=1, context=64, prefill_chunk=16,
                                                                artifact=None, target="cpu", precision="fp32", threads=1)),
    "scheduler.add": (lambda made: made["scheduler"].add, lambda made: dict(
        prompt=[1, 2], tokens=2, temperature=1.0, top_k=2, top_p=0.9, seed=0, stop=[], stop_ids=[3], ignore_end=True, logprobs=1,
        number=0, as_text=False)),
    "scheduler.cancel": (lambda made: made["scheduler"].cancel, lambda made: dict(request=1)),
    "model.parameters": (lambda made: lambda value: made["model"].parameters.__setitem__("norm.weight", value),
                         lambda made: dict(value=made["model"].parameters["norm.weight"])),
    "write_shards": (lambda made: nsa.data.write_shards, lambda made: dict(
        output=new_path(made), train=[[1, 2]], val=[[1]], vocabulary=16, end_of_text=3, tokenizer=None, overwrite=False,
        shard_tokens=100)),
    "Shards": (lambda made: nsa.data.Shards, lambda made: dict(directory=str(made["folder"] / "ids"))),
    "Shards.read": (lambda made: made["shards"].read, lambda made: dict(split="train", position=0, count=2)),
    "Shards.documents": (lambda made: made["shards"].documents, lambda made: dict(split="train")),
    "Shards.size": (lambda made: made["shards"].size, lambda made: dict(split="train")),
    "Scorer": (lambda made: nsa.evaluate.Scorer, lambda made: dict(seq_len=64, checkpoint=made["run"])),
    "Scorer.score": (lambda made: lambda rows: list(made["scorer"].score(rows)), lambda made: dict(rows=[[1, 2, 3]])),
    "evaluate.loss": (lambda made: functools.partial(nsa.evaluate.loss, made["scorer"]), lambda made: dict(
        shards=made["folder"] / "ids", split="val", files=None, text_key="text", windows=1)),
    "evaluate.recall": (lambda made: functools.partial(nsa.evaluate.recall, made["scorer"]), lambda made: dict(
        samples=1, seed=1, pairs=2, vocab=0, max_distance=8)),
    "evaluate.copying": (lambda made: functools.partial(nsa.evaluate.copying, made["scorer"]), lambda made: dict(
        samples=1, seed=1, vocab=0, max_distance=8)),
    "evaluate.choices": (lambda made: functools.partial(nsa.evaluate.choices, made["scorer"]),
                         lambda made: dict(path=made["folder"] / "items.jsonl")),
    "hf.export": (lambda made: nsa.hf.export, lambda made: dict(checkpoint=made["run"], folder=new_path(made), overwrite=False)),
}
if torch:
    CALLS |= {f"torch.{name}": (lambda made, name=name: getattr(nt, name), attention_part(name)) for name in
              ("attention", "compress", "compressed_attention", "select", "selected_attention", "window_attention",
               "causal_attention")}
    CALLS |= {
        "torch.rotary_table": (lambda made: nt.rotary_table, lambda made: dict(length=8, width=16, base=10000.0, device="cpu")),
        "torch.NativeSparseAttention": (lambda made: nt.NativeSparseAttention, lambda made: dict(
            dim=16, heads=2, kv_heads=1, head_dim=16, block=4, stride=2, select_block=4, count=2, window=4, value_dim=16,
            phi="mean", positions=False, gate="sigmoid", initial=1, local=1, rope_base=10000.0, init_std=0.02,
            output_std=0.02)),
        "torch.layer": (lambda made: nt.NativeSparseAttention(16, 2, 1, 16, block=4, stride=2, select_block=4, count=2, window=4),
                        lambda made: dict(x=torch.randn(1, 8, 16), cu_seqlens=torch.tensor([0, 8], dtype=torch.int32))),
        "torch.load_checkpoint": (lambda made: nt.load_checkpoint, lambda made: dict(
            module=nt.NativeSparseAttention(32, 2, 1, 16, block=8, stride=4, select_block=16, count=4, window=32),
            path=made["run"], layer=0)),
        "torch.save_parameters": (lambda made: nt.save_parameters, lambda made: dict(
            parameters={"a": torch.ones(2)}, path=new_path(made))),
        "torch.set_dynamic_shapes": (lambda made: nt.set_dynamic_shapes, lambda made: dict(enabled=False)),
    }


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_errors_of_nsa(name, made, tmp_path, monkeypatch):
    # A wrong path may be one all the same.
    monkeypatch.chdir(tmp_path)
    find, arguments = CALLS[name]
    call = find(made)
    call(**arguments(made))
    others = []
    for argument in arguments(made):
        for kind, value in WRONG.items():
            try:
                call(**{**arguments(made), argument: value})
            except nsa.Error as error:
                if not str(error) or "\n" in str(error).strip() and not isinstance(error, nsa.CompileError):
                    others.append(f"{argument} = {kind}: not one line: {error}")
            except Exception as error:
                others.append(f"{argument} = {kind}: {type(error).__name__}: {str(error).splitlines()[:1]}")
    assert not others, "\n".join(others)


def test_wrong_arguments_every_public_function_is_tried():
    for module in (nsa, nsa.data, nsa.evaluate, nsa.hf, *([nt] if torch else [])):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) or inspect.isclass(value) and name not in EXEMPT:
                assert any(known.split(".")[-1] == name for known in CALLS) or name in EXEMPT, name


#: Errors and what functions give; what tests of their own are for, with packages or minutes of their own.
EXEMPT = {"CompileError", "Entry", "Error", "InputError", "Module", "OptionError", "RunError", "Report", "pack",
          "train_tokenizer", "needle", "import_model", "register_attention"}
