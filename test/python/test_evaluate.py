"""nsa-eval: losses are those of nsa-train, probes and choices are scored right, misuse is an error."""

import json
import pathlib
import re

import numpy as np
import pytest

import nsa
from nsa.evaluate import __main__ as tool
from nsa.evaluate import Scorer, _choices, _loss, choices, copying, loss, needle, recall
from nsa._text import Text, same_ids
from programs import run_programs

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

CONFIG = """model: {dim: 16, n_layers: 1, n_heads: 1, n_kv_groups: 1, d_k: 16, d_v: 16}
nsa: {l: 4, d: 4, l_sel: 8, n_sel: 2, n_local: 1, w: 16}
train: {steps: 2, seq_len: 128, batch_size: 2, micro_batch: 2, warmup_steps: 1, final_eval_batches: 3, sample_bytes: 0}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """text, bytes of it packed as data, and a run of two steps on them."""
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "text").mkdir()
    random = np.random.default_rng(0)
    for number in range(40):
        (folder / "text" / f"{number}.txt").write_text(" ".join(random.choice(["one", "two", "three"],
                                                                              10 + 5 * number)))
    (folder / "c.yaml").write_text(CONFIG)
    run_programs(folder, ["nsa-data", "pack", "text", "-o", "data", "--val-fraction", "0.4"],
                 ["nsa-model", "c.yaml", "-o", "m.mlir"], ["nsa-compile", "m.mlir", "-o", "m.nsax"],
                 ["nsa-train", "m.nsax", "--config", "c.yaml", "--data", "data", "--out-dir", ".", "--run-name", "run"])
    return folder


@pytest.fixture(scope="module")
def scorer(folder):
    return Scorer(folder / "run", artifact=folder / "m.nsax")


def test_loss_on_shards_is_that_of_training(folder, scorer):
    metrics = json.loads((folder / "run/metrics.json").read_text())
    result = loss(scorer, shards=folder / "data", windows=6)
    assert result["tokens"] == metrics["val_tokens"] == 6 * 128
    assert abs(result["loss"] - metrics["val_loss"]) < 1e-5
    assert abs(result["bits_per_byte"] - result["loss"] / np.log(2)) < 1e-12
    for key, largest in (("by_position", 128), ("by_document_length", None)):
        rows = result[key]
        assert sum(row["tokens"] for row in rows) == result["tokens"]
        assert abs(sum(row["tokens"] * row["loss"] for row in rows) / result["tokens"] - result["loss"]) < 1e-9
        assert largest is None or rows[-1]["to"] == largest


def test_loss_of_isolated_documents_is_that_of_training(tmp_path):
    (tmp_path / "c.yaml").write_text(CONFIG + "data: {isolate_documents: true}\n")
    run_programs(tmp_path, ["nsa-data", "synth", "--kind", "recall", "--vocab", "32", "--tokens", "40k", "-o", "data"],
                 ["nsa-model", "c.yaml", "-o", "m.mlir"], ["nsa-compile", "m.mlir", "-o", "m.nsax"],
                 ["nsa-train", "m.nsax", "--config", "c.yaml", "--data", "data", "--out-dir", ".", "--run-name", "run"])
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    result = loss(Scorer(tmp_path / "run", artifact=tmp_path / "m.nsax"), shards=tmp_path / "data", windows=6)
    assert result["tokens"] == metrics["val_tokens"] < 6 * 128
    assert abs(result["loss"] - metrics["val_loss"]) < 1e-5
    assert sum(row["tokens"] for row in result["by_position"]) == result["tokens"]


def test_loss_on_text_counts_every_byte(folder, scorer):
    files = [folder / "text/3.txt", folder / "text/20.txt"]
    result = loss(scorer, files=files)
    texts = [file.read_bytes() + b"\0" for file in files]
    assert result["tokens"] == result["bytes"] == sum(map(len, texts))
    assert [row["tokens"] for row in result["by_document_length"]] == [len(text) for text in texts]
    row = np.frombuffer(b"\0" + b"".join(texts), np.uint8)
    model, total = scorer.model(), 0.0
    for begin in range(0, len(row) - 1, 128):
        window = row[begin:begin + 129]
        logits = model.logits(window[:-1]).astype(np.float64)
        total += (np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(window) - 1), window[1:]]).sum()
    assert abs(result["loss"] - total / result["tokens"]) < 1e-6


def test_bytes_of_text_are_those_of_the_files(scorer, tmp_path):
    """Also where the tokenizer puts a space in front, which it does not before one that is there."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=280, special_tokens=["</s>"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    texts = ["one two", " three", "\nfour", "é five"]
    made.train_from_iterator(texts, trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    blind = Oracle(scorer, lambda context: -1)
    (tmp_path / "state.json").write_text("{}")
    blind.text, blind.is_isolated = Text(tmp_path, ""), False
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_loss, "check_vocabulary", lambda *_: None)
        for longest in (512, 4):
            blind.longest = longest
            assert loss(blind, files=[tmp_path / "a.jsonl"])["bytes"] == sum(len(text.encode()) for text in texts)


def test_tokenizers_of_equal_ids_are_one():
    one = b'{"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 2, "content": "</s>"}]}'
    other = b'{"version": "1", "model": {"vocab": {"b": 1, "a": 0, "</s>": 2}}}'
    assert same_ids(one, other) and same_ids(b"", b"")
    assert not same_ids(one, b'{"model": {"vocab": {"a": 1, "b": 0, "</s>": 2}}}') and not same_ids(one, b"")


class Oracle(Scorer):
    """Scores as a model would that gives the ids `known` says, with certainty."""

    longest, precision = 512, "fp32"

    def __init__(self, scorer, known):
        self.text, self.model, self._known = scorer.text, scorer.model, known

    def score(self, rows):
        for row in rows:
            row = np.asarray(row)
            right = np.array([self._known(row[:end]) == row[end] for end in range(1, len(row))])
            yield np.where(right, 0.0, 5.0), right


def last_after_the_same(context):
    """What followed the last id of `context` when it was there before; the first time is taken."""
    before = np.flatnonzero(context[:-1] == context[-1])
    return context[before[0] + 1] if len(before) else -1


@pytest.mark.parametrize("options", [{"vocab": 32}, {}])
def test_recall_is_solved_by_looking_keys_up(scorer, options):
    seen = recall(Oracle(scorer, last_after_the_same), samples=3, pairs=5, **options)
    assert seen["accuracy"] == 1 and seen["loss"] == 0 and seen["answers"] == 5 * 3 * len([8, 16, 32, 64, 128, 256])
    blind = recall(Oracle(scorer, lambda context: -1), samples=3, pairs=5, **options)
    assert blind["accuracy"] == 0 and blind["by_distance"] == [{
        **row, "accuracy": 0.0,
        "loss": 5.0
    } for row in seen["by_distance"]]
    assert seen == recall(Oracle(scorer, last_after_the_same), samples=3, pairs=5, **options)


def test_copying_is_solved_by_the_id_so_far_back(scorer):
    for length in (8, 64):
        result = copying(Oracle(scorer, lambda context: context[-length] if len(context) > length else -1), samples=2)
        assert {row["from"]: row["accuracy"] for row in result["by_distance"]}[length] == 1
        assert result["accuracy"] < 0.8


def test_needle_is_solved_by_reading_the_number(scorer):
    def read(context):
        text = bytes(context[1:].astype(np.uint8)).decode()
        question = text[text.rindex(" The number of"):]
        head = question[:question.index(" is") + 3]
        told = text.index(head) + len(head)
        return ord(text[told + len(question) - len(head)]) if " is" in question and told < len(text) else -1

    seen = []

    def know(context):
        # Only the answer has been told before.
        text = bytes(context[1:].astype(np.uint8)).decode()
        if text.count(" The number of") < 2 or " is" not in text[text.rindex(" The number of"):]:
            return -1
        seen.append(text)
        return read(context)

    result = needle(Oracle(scorer, know), samples=2)
    assert result["accuracy"] == 1 and result["loss"] == 0
    assert 256 < max(map(len, seen)) <= 512


def test_probe_of_a_model_is_that_of_its_logits(scorer):
    result = recall(scorer, samples=2, vocab=32, pairs=2)
    assert 0 <= result["accuracy"] <= 1 and abs(result["loss"] - np.log(256)) < 1
    assert abs(result["loss"] - sum(row["loss"] * row["answers"]
                                    for row in result["by_distance"]) / result["answers"]) < 1e-9


def test_choices_by_sum_by_character_and_by_token(folder, scorer, tmp_path):
    items = [{"context": "one two ", "choices": ["three", "one one one", "x"], "answer": 0},
             {"ctx": "two", "endings": ["three two", " one"], "label": "1"}]
    path = tmp_path / "items.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    result = choices(scorer, path)
    right = np.zeros(3)
    for context, options, answer in (("one two", [" three", " one one one", " x"], 0), ("two", [" three two",
                                                                                                " one"], 1)):
        sums = []
        for option in options:
            ids = np.frombuffer((context + option).encode(), np.uint8)
            logits = scorer.model().logits(ids[:-1]).astype(np.float64)
            logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            sums.append(logs[np.arange(len(ids) - 1), ids[1:]][-len(option):].sum())
        lengths = np.array([len(option) for option in options])
        # The blank is not of the choice, but is a token.
        given = lengths - [
            not text.startswith(" ") for text in (items[0]["choices"] if answer == 0 else items[1]["endings"])
        ]
        right += [np.argmax(scores) == answer for scores in (sums, sums / given, sums / lengths)]
    assert [result[key] for key in ("accuracy", "accuracy_per_character", "accuracy_per_token")] == list(right / 2)
    assert result["items"] == 2 and abs(result["chance"] - (1 / 3 + 1 / 2) / 2) < 1e-12 and result["truncated"] == 0


@pytest.mark.parametrize("item,context", [
    ({"context": "Rain fell.", "question": "What fell?"}, "Rain fell. What fell?"),
    ({"ctx": "Rain\n", "query": "What?"}, "Rain\nWhat?"),
    ({"context": "", "question": "What?"}, "What?"),
    ({"context": "Rain", "question": ""}, "Rain"),
    ({"question": "What?", "id": 3}, "What?"),
    ({"ind": 4, "activity_label": "a", "ctx_a": "She", "ctx_b": "ran", "ctx": "She ran", "source_id": "s", "split": "val",
      "split_type": "zeroshot"}, "She ran"),
])
def test_choices_read_the_context_and_then_the_question(tmp_path, item, context):
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps({**item, "choices": ["a", "b"], "answer": 1}))
    assert _choices.read_items(path) == [(context, ["a", "b"], 1)]


def test_choices_longer_than_the_model_lose_their_beginning(scorer, tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps({"context": "one " * 100, "choices": ["two", "three"], "answer": 1}))
    assert choices(scorer, path)["truncated"] == 2


def test_program_is_as_long_as_needed(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    scorer = Scorer(folder / "run")
    row = np.arange(20)
    [(nats, best)] = scorer.score([row])
    assert scorer.model(len(row)).seq_len == 64 and scorer.longest == 128
    assert abs(nats.mean() - nsa.Model(folder / "run", artifact=folder / "m.nsax").loss(row)) < 1e-5 and len(best) == 19


def test_tool_writes_tables_and_json(folder, capsys, tmp_path):
    model = [str(folder / "run"), "--artifact", str(folder / "m.nsax")]
    assert tool.main([*model, "--data", str(folder / "data"), "--probe", "copying", "--samples", "1",
                      "--json", str(tmp_path / "r.json")]) == 0
    printed = capsys.readouterr().out
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["step"], result["target"], result["precision"]) == (2, "cpu", "fp32")
    [losses] = result["loss"]
    assert f"loss {losses['loss']:.4f} nats/token | {losses['bits_per_byte']:.4f} bits/byte" in printed
    assert f"copying: accuracy {result['probes']['copying']['accuracy']:.3f} (chance" in printed
    assert tool.main([*model, "--text", str(folder / "text/1.txt"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"][0]["windows"] == 1


def test_tool_compares_checkpoints_in_a_picture(folder, capsys, tmp_path):
    runs = [str(folder / "run"), str(next((folder / "run/checkpoints").glob("step-*")))]
    assert tool.main([*runs, "--artifact", str(folder / "m.nsax"), "--probe", "copying", "--samples", "1", "--json",
                      str(tmp_path / "r.json"), "--plot", str(tmp_path / "r.svg")]) == 0
    first, second = json.loads((tmp_path / "r.json").read_text())
    assert first == second and capsys.readouterr().out.count("copying: accuracy") == 2
    assert all(f"<!-- {run} -->" in (tmp_path / "r.svg").read_text() for run in runs)


@pytest.mark.parametrize("arguments,message", [
    (["--data", "nowhere"], "nowhere"),
    (["--probe", "copying", "--samples", "1", "--plot", "x.txt"], "--plot is 'x.txt', expected a name that ends with .svg, .png, .pdf"),
    (["--text", "nowhere"], "there is no file or folder 'nowhere'"),
    (["--choices", "nowhere"], "cannot read 'nowhere': No such file or directory"),
    (["--probe", "recall", "--vocab", "300"], "--vocab has a vocabulary of 300, the model has 256"),
    (["--probe", "recall", "--vocab", "4"], "--vocab is 4, keys, values and filler need at least 5 ids"),
    (["--probe", "recall", "--pairs", "30"], "--pairs is 30, expected 1 to 21, as many as there are keys"),
    (["--probe", "recall", "--pairs", "31", "--vocab", "100"
      ], "the task asks over 4 tokens at most, expected at least 8"),
    (["--probe", "copying", "--max-distance", "7"], "the task asks over 7 tokens at most, expected at least 8"),
    (["--probe", "copying", "--seq-len", "512"], "the length is 512, but an artefact has its own"),
])
def test_misuse_is_an_error_with_both_values(folder, capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert tool.main([str(folder / "run"), "--artifact", str(folder / "m.nsax"), *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("nsa-eval: error: ") and message in error and error.count("\n") == 1


@pytest.mark.parametrize("line,message", [
    ("{", "line 1 of 'items' is no JSON"),
    ("[]", "line 1 of 'items' is a list, expected an object"),
    ('{"context": "a", "choices": ["b", "c"], "answer": 0, "hint": 1}',
     'line 1 of \'items\' has the unknown key "hint": known are context, ctx, question, '),
    ('{"context": "a", "ctx": "b", "choices": ["b", "c"], "answer": 0}',
     "line 1 of 'items' has both context and ctx, which are one thing"),
    ('{"context": "a", "question": 3, "choices": ["b", "c"], "answer": 0}',
     "the context in line 1 of 'items' is a int, expected text"),
    ("[" * 100_000, "line 1 of 'items' is no JSON"),
    ('{"choices": ["a", "b"], "answer": 0}',
     "line 1 of 'items' has none of context, ctx, question, query: it has choices, answer"),
    ('{"context": "a", "choices": ["b"], "answer": 0}',
     "the choices in line 1 of 'items' are [\"b\"], expected two or more texts"),
    ('{"context": "a", "choices": ["b", "c"], "answer": 2}',
     "the answer in line 1 of 'items' is 2, expected a number from 0 to 1"),
    ('{"context": "a", "choices": ["b", "c"], "answer": null}',
     "the answer in line 1 of 'items' is null, expected a number"),
    (json.dumps({
        "context": "a",
        "choices": ["b" * 200, "c"],
        "answer": 0
    }), "item 0, choice 0, has a choice of 201 tokens, the model takes 128"),
    ("\n", "'items' has no lines"),
])
def test_wrong_items_are_errors_with_their_place(scorer, monkeypatch, tmp_path, line, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "items").write_text(line)
    with pytest.raises(nsa.InputError) as error:
        choices(scorer, "items")
    assert message in str(error.value)


def test_other_data_are_errors(folder, scorer, tmp_path):
    nsa.data.write_shards(tmp_path / "wide", [[1, 2, 3]], val=[[1, 2, 300]], vocabulary=301)
    with pytest.raises(nsa.InputError, match="has a vocabulary of 301, the model has 256"):
        loss(scorer, shards=tmp_path / "wide")
    nsa.data.write_shards(tmp_path / "short", [[1, 2, 3]], val=[[1, 2, 3]], vocabulary=4)
    with pytest.raises(nsa.InputError, match="has 3 tokens, a window needs 129"):
        loss(scorer, shards=tmp_path / "short")


def test_ids_without_text_have_losses_but_no_bytes(folder, scorer, tmp_path):
    ids = np.arange(300) % 7
    nsa.data.write_shards(tmp_path / "ids", [ids], val=[ids], vocabulary=7, end_of_text=6)
    result = loss(scorer, shards=tmp_path / "ids")
    assert result["bits_per_byte"] is None and result["windows"] == 2
    assert [(row["from"], row["to"]) for row in result["by_document_length"]] == [(256, 300)]


def test_documents_are_found_by_what_ends_them(scorer, tmp_path):
    run_programs(tmp_path, ["nsa-data", "synth", "--kind", "recall", "--vocab", "32", "--pairs", "2", "--distance", "5",
                            "--queries", "2", "--tokens", "8k", "-o", "data"])
    result = loss(scorer, shards=tmp_path / "data")
    assert [(row["from"], row["to"]) for row in result["by_document_length"]] == [(8, 14)]


def test_page_example_runs(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "runs").mkdir()
    (folder / "runs/small").symlink_to("../run")
    (folder / "shards").symlink_to("data")
    [example] = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/evaluate.md").read_text(), re.M | re.S)
    exec(compile(example, "evaluate.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.parametrize("arguments,message", [
    ([], "there is nothing to evaluate"),
    (["--data", "d", "--pairs", "3"], "--pairs says nothing: it needs --probe recall"),
    (["--probe", "needle", "--vocab", "9"], "--vocab says nothing: it needs --probe recall or --probe copying"),
    (["--probe", "all", "--artifact", "a", "--target", "cpu"], "--target says nothing: it needs no --artifact"),
    (["--probe", "all", "--samples", "0"], "'0' is no whole number of at least 1"),
])
def test_wrong_command_lines_are_errors(capsys, arguments, message):
    with pytest.raises(SystemExit) as code:
        tool.main(["run", *arguments])
    assert code.value.code == 2 and message in capsys.readouterr().err
