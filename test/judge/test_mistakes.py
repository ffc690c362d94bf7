"""Mistakes that published implementations made, where random inputs would not show them."""

import numpy as np
import pytest
from executors import CPU, nsa

import generate
import generate_nsa
import nsa_rules

TILES = nsa_rules.visibility("compressed", block=16, stride=16)


def test_offsets_of_more_than_31_bits():
    """A table of 2^31 + 2^20 elements of which only a few pages are ever touched."""
    rows = (1 << 21) + 1024
    table = f"tensor<{rows}x1024xbf16>"
    module = nsa.compile(f"""
      func.func @gather(%t: {table} {{nn.name = "table"}}, %i: tensor<4xi32> {{nn.name = "ids"}}) -> (tensor<4x1024xbf16> {{nn.name = "y"}}) {{
        %y = nn.embedding %t, %i : ({table}, tensor<4xi32>) -> tensor<4x1024xbf16>
        return %y : tensor<4x1024xbf16>
      }}""")
    ids = np.array([rows - 1, 0, (1 << 21) + 1, 1 << 20], np.int32)
    values = np.zeros((rows, 1024), np.uint16)
    values[ids] = np.array([0x3F80, 0x4000, 0x4040, 0x4080], np.uint16)[:, None]  # 1, 2, 3, 4
    found = np.asarray(module.gather(table=values, ids=ids)["y"]).view(np.uint16)
    np.testing.assert_array_equal(found, values[ids])


@pytest.mark.parametrize("sequence", [1024, 4096, 16384])
def test_inverse_index_is_not_quadratic(sequence):
    q, kv, lse = (f"tensor<{shape}xf32>" for shape in (f"1x{sequence}x8x16", f"1x{sequence}x2x16", f"1x8x{sequence}"))
    indices = f"tensor<1x2x{sequence}x16xi32>"
    text = f"""
      func.func @main(%do: {q}, %q: {q}, %k: {kv}, %v: {kv}, %o: {q}, %lse: {lse}, %i: {indices}) -> ({q}, {kv}, {kv}) {{
        %dq, %dk, %dv = nsa.attention_backward %do, %q, %k, %v, %o, %lse visible(#nsa.selected<block = 16>, %i : {indices})
            : {q}, {q}, {kv}, {kv}, {q}, {lse}
        return %dq, %dk, %dv : {q}, {kv}, {kv}
      }}"""
    report = nsa.compile(text).estimate()
    # An entry for each selected block of each token, an offset for each block, and do . o of each row.
    entries = 2 * (sequence * 16 + sequence // 16 + 2) + 8 * sequence
    assert report.arena_bytes + report.workspace_bytes <= entries * 4 + 4096


def select_by(scores, group):
    """The indices of the last queries of 256 tokens where head h of a group gives block i scores[i][h]."""
    b = generate.Builder(np.random.default_rng(0))
    query, key = np.zeros((1, 256, group, 64)), np.zeros((1, 16, 1, 64))
    query[0, :, np.arange(group), np.arange(group)] = 8.0  # over the root of 64
    for block, own in scores.items():
        key[0, block, 0, :group] = own
    query, key = b.argument(query, "f32"), b.argument(key, "f32")
    lse = b.given("nsa.attention", query=query, key=key, value=key, visibility=TILES)[1]
    selected = nsa_rules.visibility("selected", block=16, count=4, initial=1, local=2)
    b.program.results = b.op("nsa.select", query=query, key=key, lse=lse, compressed=TILES, selected=selected)
    return CPU()(b.program)[0][0, 0, 80:]


def expect_blocks(indices, best):
    own = np.arange(80, 256) // 16
    np.testing.assert_array_equal(indices, np.stack([0 * own, 0 * own + best, own - 1, own], 1))


def test_scores_are_not_rounded_before_the_best_are_taken():
    """Block 3 is better than block 1 by 2e-5 of the score, less than 16 bits can tell; a tie would go to block 1."""
    score = 0.5 + 0.1 * np.arange(32)
    expect_blocks(select_by({1: score, 3: score + 2e-5}, 32), 3)


def test_sums_of_large_groups_stay_below_those_of_forced_blocks():
    expect_blocks(select_by({2: np.full(32, 90.0)}, 32), 2)


assert generate_nsa
