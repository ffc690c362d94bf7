#!/usr/bin/env bash
# What a user of Hugging Face does first: a dense model of transformers becomes a
# sparse one, is trained further, and answers in transformers what nsa-generate
# answers; a dense one goes back as it came.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"
python=$("$root/test/python-env.sh")
export PYTHONPATH=$root/build/python OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 HF_HOME=$scratch/hf
export XDG_CACHE_HOME=$scratch/cache
cd "$scratch"
# nsa-import needs packages, which are that Python's.
import=("$python" "$bin/nsa-import")

"$python" - 2> log << 'END' || fail "$(tail -n 3 log)"
import torch, transformers
torch.manual_seed(0)
transformers.LlamaForCausalLM(transformers.LlamaConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, vocab_size=256,
    max_position_embeddings=128, initializer_range=0.2)).save_pretrained("llama")
END
"$bin/nsa-data" pack "$root/docs" --val-fraction 0.2 -o shards > /dev/null

"$bin/nsa-train" llama --fine-tune --data shards > log 2>&1 || true
grep -q '(nsa-import makes one of a model of transformers)$' log || fail "$(cat log)"
"${import[@]}" llama -o runs/sparse --attention nsa --set nsa.l=8 --set nsa.d=4 --set nsa.l_sel=16 --set nsa.n_sel=4 --set nsa.w=32 > log
grep -q '^wrote runs/sparse' log || fail "$(cat log)"
"$bin/nsa-train" runs/sparse --fine-tune --data shards --run-name tuned --set train.steps=20 --set train.batch_size=4 \
  --set train.warmup_steps=2 --no-progress > log 2>&1 || fail "$(tail -n 3 log)"
grep -q '^step 0020 | loss .* | lr 0.00e+00' log || fail "--fine-tune does not end at a learning rate of 0"
"$bin/nsa-export" runs/tuned --hf sparse > log
grep -qE '^wrote sparse: [0-9,]+ parameters$' log || fail "$(cat log)"
prompt=84,104,101,32,108,97,121,101,114
"$bin/nsa-generate" runs/tuned --ids --prompt $prompt --tokens 30 --temperature 0 --ignore-end 2> log > ids || fail "$(cat log)"

"${import[@]}" llama -o runs/dense > log
"$bin/nsa-export" runs/dense --hf back --original > log

"$python" - $prompt 2> log << 'END' || fail "$(tail -n 3 log)"
import sys
import torch, transformers
prompt = torch.tensor([[int(word) for word in sys.argv[1].split(",")]])
model = transformers.AutoModelForCausalLM.from_pretrained("sparse", trust_remote_code=True)
own = [int(word) for word in open("ids").read().split(",")]
found = model.generate(prompt, max_new_tokens=30, do_sample=False, eos_token_id=None)[0, prompt.shape[1]:].tolist()
assert len(set(own)) > 5 and found == own, f"{found} in transformers, {own} of nsa-generate"
before, after = (transformers.AutoModelForCausalLM.from_pretrained(name).state_dict() for name in ("llama", "back"))
assert list(before) == list(after) and all(torch.equal(before[name], after[name]) for name in before), "another model came back"
END
