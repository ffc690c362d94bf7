#!/usr/bin/env bash
# The first hour with texts of one's own: what a run will take, wrong turns with
# their hints, shards, a run that is interrupted and goes on, its report, a text
# that it continues. docs/getting-started.md has the tools one by one.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"
cd "$scratch"
export XDG_CACHE_HOME=$scratch/cache

mkdir own
for page in {1..30}; do
  for line in {1..40}; do echo "page $page says that line $line follows line $((line - 1))."; done > "own/$page.txt"
done
cat > c.yaml << 'END'
model: {dim: 32, n_layers: 1, n_heads: 2, n_kv_groups: 1, d_k: 16, d_v: 16}
nsa: {l: 8, d: 4, l_sel: 16, n_sel: 2, w: 32}
train: {steps: 1000000, seq_len: 128, batch_size: 2, micro_batch: 2, warmup_steps: 2, lr: 2.0e-3, final_eval_batches: 2}
END

# says PATTERN COMMAND...: a line of what it prints.
says() {
  local pattern=$1
  shift
  "$@" > out 2>&1 || true
  grep -qE -e "$pattern" out || fail "$* says '$(tail -n 3 out)', expected $pattern"
}
train=("$bin/nsa-train" c.yaml --data shards --no-progress)
says '^29,990 parameters; fp32 on cpu' "$bin/nsa-train" c.yaml --estimate
says '^  memory [0-9]+ MiB: parameters ' "$bin/nsa-train" c.yaml --estimate
says "no token shards in 'shards'.*\(nsa-data pack makes shards from texts\)" "${train[@]}"
says '^train +[0-9]+ tokens +29 documents' "$bin/nsa-data" pack own -o shards
says '\(--overwrite replaces the data set\)' "$bin/nsa-data" pack own -o shards
says "unknown key 'learn_rate' in 'train'" "${train[@]}" --set train.learn_rate=1
says 'a window of 4096 needs 4097' "${train[@]}" --set train.seq_len=4096

"${train[@]}" --run-name run > log 2>&1 &
until grep -q '^step 0010 | loss ' log; do
  kill -0 $! 2> /dev/null || fail "training: $(tail -n 3 log)"
  sleep 0.1
done
kill -TERM $!
wait $! && fail "the run went on" || [ $? -eq 4 ] || fail "exit code of a run that is stopped"
step=$(sed -n 's/^saved runs\/run\/checkpoints\/step-0*//p' log)
grep -qE "^interrupted at step $step of 1000000 \|" log || fail "stopping: $(tail -n 3 log)"
grep -qx 'to go on: the same command with --resume runs/run' log || fail "no hint: $(tail -n 3 log)"
says '\(--resume continues it, --run-name names another\)' "${train[@]}" --run-name run
says "^finished at step $((step + 300)) of" "$bin/nsa-train" --data shards --no-progress --resume runs/run --set train.steps=$((step + 300))
[ "$(sed -n 's/^validation loss \([0-9]\).*/\1/p' out)" = 0 ] || fail "nothing was learned: $(tail -n 1 out)"

says '^wrote report.html: 1 run' "$root/tools/nsa-report.py" runs/run -o report.html
grep -q '<svg' report.html || fail "the report has no picture"
says '^page [0-9]+ says that line' "$bin/nsa-generate" runs/run --prompt $'\n' --tokens 120 --temperature 0.1
says 'is neither a checkpoint nor a run with one' "$bin/nsa-generate" runs --prompt a
