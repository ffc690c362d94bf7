#!/usr/bin/env bash
# What test/gpu/lessons.py checks on a GPU, here on the processor and with a
# small model.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

lessons=$root/test/gpu/lessons.py
python=/usr/bin/python3
"$python" "$lessons" prepare "$scratch/jobs" --build "$bin/.." --target cpu \
  --config smoke > "$scratch/log" 2>&1 || fail "$(tail -20 "$scratch/log")"
"$python" "$lessons" run "$scratch/jobs" --out "$scratch/runs" ||
  fail "a lesson was forgotten"

rm "$scratch/jobs/memory-1024.nsax"
"$python" "$lessons" run "$scratch/jobs" --out "$scratch/runs" \
  --only lesson-17 > "$scratch/log" 2>&1 && fail "a model is missing, and nothing failed"
grep -q "memory-1024.nsax" "$scratch/log" || fail "the missing model is not named"

# Races of our kernels are told from those within cuBLAS.
PYTHONPATH=$(dirname "$lessons") "$python" - <<'PY' || fail "reports of races are read wrongly"
import races

def report(*names):
    lines = [f"========= Error: Race reported between Read access at {names[0]}+0x970"]
    lines += [f"=========     and Write access at {name}+0x35b0 [736 hazards]" for name in names[1:]]
    return "\n".join(lines) + "\n========= \n"

cublas, ours = "nvjet_sm90_tst_64x64_64x13_2x1_v_bz_TNT", "window_attention_3"
end = "========= RACECHECK SUMMARY: {} hazards displayed ({} errors, 0 warnings)\n"
text = report(cublas, cublas, cublas) + "step 0001\n" + report(ours, ours)
foreign, own = races.split(text + end.format(2, 2))
assert foreign == [[cublas] * 3] and own == [[ours] * 2], (foreign, own)
assert len(races.split(report(cublas, ours) + end.format(1, 1))[1]) == 1
assert races.split(end.format(0, 0)) == ([], [])
for wrong in (text, text + end.format(3, 3)):
    try:
        races.split(wrong)
    except AssertionError:
        continue
    raise SystemExit("a text that ends early or counts otherwise is read")
PY
