#!/usr/bin/env bash
# What a user of PyTorch does first: trains a model with the layer of nsa.torch,
# keeps it by torch.save, lets nsa-train go on with its weights, and takes them
# back. The model is that of test/bench/torch_model.py, which docs/torch.md names.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"
python=$("$root/test/python-env.sh")
export PYTHONPATH=$root/build/python:$root/test/bench OMP_NUM_THREADS=1 PATH=$bin:$PATH
export XDG_CACHE_HOME=$scratch/cache
cd "$scratch"

cat > c.yaml << 'END'
model: {dim: 32, n_layers: 2, n_heads: 2, n_kv_groups: 1, d_k: 16, d_v: 16, mlp: silu}
nsa: {l: 32, d: 16, l_sel: 64, n_sel: 16, w: 512}
train: {steps: 20, seq_len: 128, batch_size: 4, micro_batch: 4, warmup_steps: 0, lr: 1.0e-3, log_every: 1, final_eval_batches: 2, sample_bytes: 0}
END
nsa-data pack "$root/docs" --val-fraction 0.2 -o shards > /dev/null

cat > train.py << 'END'
import pathlib, subprocess, sys
import torch
from torch.nn.functional import cross_entropy
import nsa.torch
from torch_model import Decoder

text = torch.frombuffer(bytearray(pathlib.Path(sys.argv[1]).read_bytes()), dtype=torch.uint8).long()
torch.manual_seed(0)
model = Decoder("nsa", 2, dim=32, heads=2, kv_heads=1, width=16)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(60):
    ids = torch.stack([text[i:i + 129] for i in torch.randint(len(text) - 129, (4,))])
    loss = cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert loss < 4.5, f"the loss is {loss} after {step + 1} steps"

torch.save(model.state_dict(), "weights.pt")
again = Decoder("nsa", 2, dim=32, heads=2, kv_heads=1, width=16)
again.load_state_dict(torch.load("weights.pt"))
assert torch.equal(again(ids), model(ids)), "weights.pt has other weights"

# nsa-train begins where PyTorch was, and says what it misses of a model of another kind.
nsa.torch.save_parameters(model.state_dict(), "weights.safetensors")
command = ["nsa-train", "c.yaml", "--data", "shards", "--init-from", "weights.safetensors", "--run-name", "run", "--no-progress"]
wrong = subprocess.run([*command, "--set", "model.mlp=swiglu"], capture_output=True, text=True)
assert wrong.returncode == 1 and "layers.0.mlp.gate.weight" in wrong.stderr, wrong.stderr
log = subprocess.run(command, check=True, capture_output=True, text=True).stdout
losses = [float(line.split("|")[1].split()[1]) for line in log.splitlines() if line.startswith("step 00")]
assert len(losses) == 20 and abs(losses[0] - loss.item()) < 0.5, f"{loss.item()} in PyTorch, then {losses}"

# And back, with the norm that the model keeps in its attention.
for i, block in enumerate(again.layers):
    nsa.torch.load_checkpoint(block.attention, "runs/run", layer=i)
trained = nsa.Model("runs/run").parameters
for name, value in again.state_dict().items():
    assert (value.numpy() == trained[name]).all() == (".attention." in name), name
END
"$python" train.py "$root/README.md" 2> log || fail "$(tail -n 5 log)"
