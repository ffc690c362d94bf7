#!/usr/bin/env bash
# Two network namespaces stand for two machines, each with two ranks that torchrun
# starts: losses are those of four ranks on one machine, and where a machine is lost,
# by its processes or by its cable, the ranks of the other say so and end.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"
python=$("$root/test/python-env.sh")
one=nsa-one-$$ two=nsa-two-$$
# stop NAMESPACE: its processes end.
stop() { ip netns pids "$1" | xargs -r kill -KILL; }
for space in "$one" "$two"; do
  ip netns add "$space" 2> "$scratch/why" || {
    echo "skipped two-machines: $(tail -n 1 "$scratch/why")" | tee -a "${NSA_TEST_RESULTS:-/dev/null}"
    exit
  }
done
trap 'stop "$one"; stop "$two"; ip netns del "$one"; ip netns del "$two"; rm -rf "$scratch"' EXIT
ip -n "$one" link add cable type veth peer name cable netns "$two"
for place in "$one 10.210.0.1" "$two 10.210.0.2"; do
  read -r space address <<< "$place"
  ip -n "$space" address add "$address/24" dev cable
  for device in lo cable; do ip -n "$space" link set "$device" up; done
done

cd "$scratch"
settings=(--set train.steps=30 --set train.seq_len=64 --set train.micro_batch=1 --set train.warmup_steps=2
  --set train.log_every=1 --set train.eval_every=0 --set train.final_eval_batches=1)
"$bin/nsa-data" synth --vocab 16 --tokens 100k -o data > log
"$bin/nsa-model" "$configs/smoke.yaml" "${settings[@]}" -o m.mlir
"$bin/nsa-compile" m.mlir -o m.nsax > log
train=("$bin/nsa-train" m.nsax --config "$configs/smoke.yaml" --data data "${settings[@]}" --no-progress --rank-seconds 5)
"${train[@]}" --nproc 4 --run-name four > log 2>&1 || fail "four ranks of one machine: $(tail -n 3 log)"

export NSA_RENDEZVOUS_TOKEN=two-machines-of-one-run OMP_NUM_THREADS=1
# start NAME OPTION...: both machines; their torchruns are `nodes`.
start() {
  local node=0 name=$1
  shift
  nodes=()
  for space in "$one" "$two"; do
    ip netns exec "$space" "$python" -m torch.distributed.run --nnodes 2 --node-rank $node --nproc-per-node 2 \
      --master-addr 10.210.0.1 --master-port 29511 --no-python "${train[@]}" --run-name "$name" "$@" > "$name.$node" 2>&1 &
    nodes+=($!)
    node=$((node + 1))
  done
}
start both
wait "${nodes[0]}" && wait "${nodes[1]}" || fail "two machines: $(grep -h 'error' both.*)"
cmp <(cut -d, -f1-4 runs/four/training.csv) <(cut -d, -f1-4 runs/both/training.csv) || fail "losses differ"

# lose NAME WHAT SECONDS COMMAND...: the second machine is lost by COMMAND; the first
# one ends in SECONDS, torchrun's own included, and says WHAT of the ranks.
lose() {
  local name=$1 what=$2 seconds=$3 end
  shift 3
  start "$name" --set train.steps=1000000
  disown "${nodes[1]}"
  until grep -q '^step 0010 ' "$name.0"; do
    kill -0 "${nodes[0]}" 2> /dev/null || fail "$name: $(tail -n 3 "$name.0")"
    sleep 0.1
  done
  "$@"
  end=$((SECONDS + seconds))
  while kill -0 "${nodes[0]}" 2> /dev/null; do
    [ $SECONDS -lt $end ] || fail "$name: the first machine still runs after $seconds s"
    sleep 0.1
  done
  for rank in 0 1; do
    grep -qE "^nsa-train: error: .*: rank $rank in reduction .*\[rank [23] $what" "$name.0" ||
      fail "$name: rank $rank says $(grep '^nsa-train: error' "$name.0")"
  done
  [ "$(grep -c 'exitcode  : 5 ' "$name.0")" -eq 2 ] || fail "$name: not both ranks end with code 5"
}
lose killed "was lost" 10 stop "$two"
lose cut "does not answer" 15 ip -n "$two" link set cable down
