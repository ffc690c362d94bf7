"""Wrong regions of nsa.fused: a right one, forward and backward, and what each case replaces in it."""

TYPES = """!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>
!s = tensor<1x16xi32>
!p = tensor<1x2xi32>
"""
FORWARD = TYPES + """func.func @forward(%q: !q, %k: !k, %i: !i, %z: !z) {
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<6>) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    nsa.yield %sum, %ow : !q, !q
  }
  return
}
"""
BACKWARD = TYPES + """func.func @backward(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t, %s: !s) {
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u, %s : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t, !s) -> (!q, !kc, !kc, !k, !k, !z) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t, %start: !s):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q
    nsa.yield %dq, %dkc, %dvc, %dks, %dvs, %dz : !q, !kc, !kc, !k, !k, !z
  }
  return
}
"""
VALID = [("nsa.fused forward", FORWARD), ("nsa.fused backward", BACKWARD)]
GATES = "    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)\n"
BRANCH = BACKWARD[BACKWARD.index("    %dqs, %dks"):BACKWARD.index("    %dq =")]
ADDED = "    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q\n"
TURNED = "    %turned = nn.rotary %dq, %angles {inverse} : (!q, !t) -> !q\n"
SUM = "    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q\n"
YIELD = "nsa.yield %dq,"

# (name, right region, beginning of the line that the error names, what is replaced by what, expected message)
CASES = [
    ("inputs of other types", FORWARD, "%r", [("%z : (!q, !k, !i, !z)", "%q : (!q, !k, !i, !q)")],
     "has inputs of types 'tensor<1x16x2x4xf32>', 'tensor<1x16x1x4xf32>', 'tensor<1x1x16x2xi32>', 'tensor<1x16x2x4xf32>', but its body takes"),
    ("results of other types", FORWARD, "nsa.yield", [("%sum, %ow : !q, !q", "%sum, %lw : !q, !l")],
     "gives values of types 'tensor<1x16x2x4xf32>', 'tensor<1x2x16xf32>', but the results have 'tensor<1x16x2x4xf32>', 'tensor<1x16x2x4xf32>'"),
    ("an input as a result", FORWARD, "nsa.yield", [("%sum, %ow :", "%sum, %x :")], "gives an input as it is"),
    ("the sum second", FORWARD, "nsa.yield", [("%sum, %ow :", "%ow, %sum :")], "must give the sum first"),
    ("another operation", FORWARD, "%s ", [(SUM, "    %s = nn.silu %x : (!q) -> !q\n" + SUM.replace("%ow", "%s"))], "cannot be fused"),
    ("two sums", FORWARD, "%more", [(SUM, SUM + SUM.replace("%sum", "%more")), ("%sum, %ow :", "%sum, %more :")], "is the second one of its kind in a kernel"),
    ("no sum", FORWARD, "%r", [(SUM, ""), ("%sum, %ow :", "%os, %ow :")], "has no 'nsa.combine'"),
    ("a branch of a branch", FORWARD, "%ow", [("%key, %key visible(#nsa.window<6>) : !q, !k, !k", "%os, %os visible(#nsa.window<6>) : !q, !q, !q")], "operand 1 is computed inside, where no kernel has it"),
    ("a branch twice", FORWARD, "%os", [("%gates, %os,", "%gates, %ow,")], "is not one branch of the sum"),
    ("rows of blocks", FORWARD, "%ow", [("#nsa.window<6>", "#nsa.compressed<block = 1, stride = 1>")], "attends to rows of blocks, which come before the selection"),
    ("two selections", FORWARD, "%ow", [("#nsa.window<6>", "#nsa.selected<block = 16>, %idx : !i")], "is the second branch with indices"),
    ("no selection", FORWARD, "%r", [("#nsa.selected<block = 8>, %idx : !i", "#nsa.causal")], "has no branch with indices"),
    ("other scales", FORWARD, "%ow", [("#nsa.window<6>)", "#nsa.window<6>) {scale = 2.0 : f64}")], "cannot be fused: the branches have different scales"),
    ("other soft caps", FORWARD, "%ow", [("#nsa.window<6>)", "#nsa.window<6>) {softcap = 2.0 : f64}")], "cannot be fused: the branches have different soft caps"),
    ("gates that leave", FORWARD, "nsa.yield", [("-> (!q, !q)", "-> (!q, !g)"), ("%sum, %ow : !q, !q", "%sum, %gates : !q, !g")], "reads what 'nn.gate' gives inside"),
    ("the gradient of the sum", BACKWARD, "%dqs", [("backward %ds,", "backward %dout,")], "has not alone the gradient of a branch"),
    ("another output", BACKWARD, "%dqs", [("%key, %out,", "%key, %dout,")], "has another output than branch 1 of the sum"),
    ("a branch without gradient", BACKWARD, "%dg", [(BRANCH, ""), (ADDED, ""), ("-> (!q, !kc, !kc, !k, !k, !z)", "-> (!q, !kc, !kc, !z)"),
     ("%dq, %dkc, %dvc, %dks, %dvs, %dz : !q, !kc, !kc, !k, !k, !z", "%dqc, %dkc, %dvc, %dz : !q, !kc, !kc, !z"), ("%r:6", "%r:4")], "has no gradient of the attention of branch 1"),
    ("gates without gradient", BACKWARD, "%gates", [(GATES, ""), (", %dz : !q, !kc, !kc, !k, !k, !z", " : !q, !kc, !kc, !k, !k"), ("!k, !z) {", "!k) {"), ("%r:6", "%r:5")], "has no gradient"),
    ("another activation", BACKWARD, "%dz", [("gate_backward sigmoid", "gate_backward softmax")], "is not the gradient of the gates of the sum"),
    ("logits of another type", BACKWARD, "%dz", [("logits_type = f32} : (!g, !g) -> (!z,", "logits_type = bf16} : (!g, !g) -> (tensor<1x16x4xbf16>,"), ("!k, !z) {", "!k, tensor<1x16x4xbf16>) {"), ("!k, !k, !z\n", "!k, !k, tensor<1x16x4xbf16>\n")], "gives other sums or logits than the gates have"),
    ("a bias", BACKWARD, "%dz", [("%dvs, %dz : !q, !kc, !kc, !k, !k, !z", "%dvs, %db : !q, !kc, !kc, !k, !k, !b"), ("!k, !z) {", "!k, !b) {")], "gives the gradient of a bias that the gates do not have"),
    ("gradients that are not added", BACKWARD, "%r", [(ADDED, ""), (YIELD, "nsa.yield %dqs,")], "does not add the gradients of the queries"),
    ("a gradient added twice", BACKWARD, "%dq ", [("nn.add %dqc,", "nn.add %dqs,")], "is not of the sum of the gradients of the queries"),
    ("queries turned alone", BACKWARD, "%r", [(ADDED, ADDED + TURNED), (YIELD, "nsa.yield %turned,")], "turns back 1 gradients of tokens, expected all 2 or none"),
    ("queries turned on", BACKWARD, "%turned", [(ADDED, ADDED + TURNED.replace(" {inverse}", "")), (YIELD, "nsa.yield %turned,")], "does not turn rows at a distance of 1 back"),
    ("other angles", BACKWARD, "%second", [(ADDED, ADDED + TURNED + "    %second = nn.rotary %dks, %others {inverse} : (!k, !t) -> !k\n"), (YIELD, "nsa.yield %turned,"), (" %dks, %dvs, %dz", " %second, %dvs, %dz")], "has other angles than others have"),
    ("values turned", BACKWARD, "%turned", [(ADDED, ADDED + "    %turned = nn.rotary %dvs, %angles {inverse} : (!k, !t) -> !k\n"), ("%dvs, %dz :", "%turned, %dz :")], "does not turn the gradient of rows"),
    ("another start", BACKWARD, "%turned", [("tensor<1x3x1x4xf32>", "tensor<1x4x1x4xf32>"), ("%idx : !i) :", "%idx : !i) start(%start : !s) :"), ("stride = 4>) :", "stride = 4>) start(%start : !s) :"), (ADDED, ADDED + TURNED + "    %second = nn.rotary %dks, %angles, %start {inverse} : (!k, !t, !s) -> !k\n"), (YIELD, "nsa.yield %turned,"), (" %dks, %dvs, %dz", " %second, %dvs, %dz")], "has another start than the attention"),
    ("queries turned at another place", BACKWARD, "%turned", [("%s: !s) {", "%s: !s, %p: !p) {"), ("%u, %s :", "%u, %s, %p :"), ("!t, !t, !s) ->", "!t, !t, !s, !p) ->"), ("%start: !s):", "%start: !s, %place: !p):"), (ADDED, ADDED + TURNED.replace("%angles", "%angles at(%place)").replace("!t)", "!t, !p)")), (YIELD, "nsa.yield %turned,")], "begins inside of longer sequences"),
]


def write():
    """(name, text, line of the error, expected message) for each case."""
    for name, text, begin, changes, expected in CASES:
        for old, new in changes:
            assert text.count(old) == 1, (name, old, text.count(old))
            text = text.replace(old, new)
        lines = [number for number, line in enumerate(text.split("\n"), 1) if line.strip().startswith(begin)]
        assert len(lines) == 1, (name, begin)
        yield name, text, lines[0], expected
