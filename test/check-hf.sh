#!/usr/bin/env bash
# What nsa-export writes, in lm-eval's harness.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=$(test/python-env.sh)
export PYTHONPATH=$PWD/build/python HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1

# lm-eval scores multiple choice as nsa-eval does.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export HF_HOME=$scratch/hf
bin=$PWD/build/bin
"$python" test/python/hf_items.py "$scratch"
"$bin/nsa-data" pack "$scratch/text" -o "$scratch/data" --val-fraction 0.2 > "$scratch/log"
"$bin/nsa-train" configs/smoke.yaml --data "$scratch/data" --set train.steps=60 --out-dir "$scratch" --run-name run \
  --no-progress >> "$scratch/log"
"$bin/nsa-export" "$scratch/run" --hf "$scratch/model"
"$bin/nsa-eval" "$scratch/run" --choices "$scratch/items.jsonl" --json "$scratch/own.json"
"$python" -m lm_eval --model hf --model_args "pretrained=$scratch/model,trust_remote_code=True,dtype=float32" \
  --tasks local_items --include_path "$scratch" --device cpu --batch_size 4 --output_path "$scratch/results" \
  >> "$scratch/log" 2>&1 || { tail -20 "$scratch/log" >&2; exit 1; }
"$python" test/python/hf_items.py "$scratch" compare
