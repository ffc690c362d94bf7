"""Prompts in parts select and say what whole ones do; the beginning of one is that of another."""

import numpy as np
import pytest

import nsa

MODEL = """model: {{dim: 32, n_layers: 3, n_heads: 4, n_kv_groups: 2, d_k: 16, d_v: 16, mlp: silu, layers: "{layers}"}}
nsa: {{l: {l}, d: {d}, l_sel: 16, n_sel: {n_sel}, w: {w}, phi: {phi}}}
train: {{seq_len: 160, batch_size: 3, micro_batch: 3}}
"""
LENGTHS = [130, 97, 64]


class Caches:
    """A model with the same random weights, and the entries that take in whole prompts, or parts of `part` ids."""

    def __init__(self, text, part):
        self.part = part
        self.module = nsa.compile(text, context=160, micro_batch=3, selection=True, prefill_chunk=part)
        self.module.run("init", {})
        rng = np.random.default_rng(1)
        for name, (_, shape, role) in sorted(self.module.tensors.items()):
            if role == "parameter" and len(shape) > 1:
                self.module.write(name, rng.standard_normal(shape).astype(np.float32) * 0.3)

    def take_part(self, slot, first, ids):
        tokens = np.zeros((1, self.part), np.int32)
        tokens[0, :len(ids)] = ids
        return self.module.run("prefill_part", {"part_tokens": tokens, "part_at": np.array([[slot, first]], np.int32),
                                                "part_last": np.array([first + len(ids) - 1], np.int32)})

    def copy(self, source, slot, count):
        self.module.run("copy_prefix", {"part_from": np.array([[source, 0]], np.int32), "part_at": np.array([[slot, 0]], np.int32),
                                        "part_last": np.array([count - 1], np.int32)})

    def step(self, ids, positions):
        return self.module.run("decode", {"token": np.array(ids, np.int32)[:, None], "positions": np.array(positions, np.int32)})


@pytest.mark.parametrize("part,geometry", [
    (32, {"l": 8, "d": 4, "n_sel": 4, "w": 20, "phi": "mean", "layers": "nsa, dense, window:33"}),
    (4, {"l": 8, "d": 4, "n_sel": 3, "w": 100, "phi": "mlp", "layers": "nsa*3"}),
    (48, {"l": 12, "d": 4, "n_sel": 4, "w": 9, "phi": "mean", "layers": "nsa*3"}),
    (16, {"l": 16, "d": 16, "n_sel": 2, "w": 33, "phi": "linear", "layers": "nsa*3"}),
], ids=["layers", "short", "blocks", "stride"])
def test_parts_select_and_say_what_whole_prompts_do(part, geometry):
    text = nsa.model_text(MODEL.format(**geometry))
    whole, parts = Caches(text, 0), Caches(text, part)
    layers = sum(name.startswith("selection.") for name in whole.module.tensors)
    # Lists are equal where no scores nearly tie, which these ids see to.
    ids, slots = np.random.default_rng(2).integers(0, 256, (3, 160)).astype(np.int32), [2, 0, 1]
    wanted = whole.module.run("prefill", {"tokens": ids, "positions": np.array(LENGTHS, np.int32) - 1})

    def check(found, expected):
        np.testing.assert_allclose(found, expected, atol=3e-5 * np.abs(expected).max())
    for row, (slot, length) in enumerate(zip(slots, LENGTHS)):
        for first in range(0, length, part):
            count = min(part, length - first)
            found = parts.take_part(slot, first, ids[row, first:first + count])
            for layer in range(layers):
                assert np.array_equal(found[f"selection.{layer}"][0, :, :count],
                                      wanted[f"selection.{layer}"][row, :, first:first + count])
        check(found["part_logits"][0], wanted["next_logits"][row])
    for step in range(20):
        positions = [length + step for length in LENGTHS]
        expected = whole.step([ids[row, positions[row]] for row in range(3)], positions)
        back = [slots.index(slot) for slot in range(3)]
        found = parts.step([ids[row, positions[row]] for row in back], [positions[row] for row in back])
        for row, slot in enumerate(slots):
            check(found["next_logits"][slot], expected["next_logits"][row])
    # Slot 2 has gone on since; what follows its first tokens in another slot has the same bits.
    first = 96 // part * part
    rest = ids[0, first:first + min(part, 130 - first)]
    parts.copy(2, 1, first)
    own, other = (parts.take_part(slot, first, rest) for slot in (2, 1))
    assert np.array_equal(own["part_logits"], other["part_logits"])
    for layer in range(layers):
        assert np.array_equal(*(found[f"selection.{layer}"][:, :, :len(rest)] for found in (own, other)))


def test_part_that_does_not_fit_is_an_error():
    text = nsa.model_text(MODEL.format(l=8, d=4, n_sel=4, w=20, phi="mean", layers="nsa*3"))
    with pytest.raises(nsa.CompileError, match="has the stride 4, of which a part of 18 tokens is no multiple"):
        nsa.compile(text, context=160, prefill_chunk=18)
    with pytest.raises(nsa.CompileError, match="a part of 164 tokens is more than the context of 160"):
        nsa.compile(text, context=160, prefill_chunk=164)
    with pytest.raises(nsa.CompileError, match="--prefill-chunk has no effect without --context"):
        nsa.compile(text, prefill_chunk=16)
