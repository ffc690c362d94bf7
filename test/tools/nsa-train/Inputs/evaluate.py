"""evaluate.py NSA-RUN ARTEFACT CHECKPOINT DATA LENGTH BATCH SCRATCH: the loss
that a model whose parameters are inputs gives those of a checkpoint, on the
validation windows that training chooses for one micro-batch."""

import glob
import json
import os
import subprocess
import sys

import numpy as np

nsa_run, artefact, checkpoint, data, scratch = sys.argv[1:5] + sys.argv[7:]
length, batch = int(sys.argv[5]), int(sys.argv[6])
os.makedirs(scratch, exist_ok=True)
inputs = []


def give(name, array):
    path = f"{scratch}/{len(inputs)}.npy"
    np.save(path, array)
    inputs.append(f"--input={name}={path}")


with open(f"{checkpoint}/model.safetensors", "rb") as file:
    blob = file.read()
size = int.from_bytes(blob[:8], "little")
for name, tensor in json.loads(blob[8 : 8 + size]).items():
    if name != "__metadata__":
        begin, end = tensor["data_offsets"]
        values = np.frombuffer(blob[8 + size + begin : 8 + size + end], np.float32)
        give(name, values.reshape(tensor["shape"]))
[shard] = glob.glob(f"{data}/val_*.bin")
stream = np.fromfile(shard, np.uint16)[512:].astype(np.int32)
windows = (len(stream) - 1) // length
chosen = [i * windows // batch * length for i in range(batch)]
give("tokens", np.stack([stream[at : at + length] for at in chosen]))
give("targets", np.stack([stream[at + 1 : at + length + 1] for at in chosen]))
shown = subprocess.run(
    [nsa_run, artefact, "--entry", "model", *inputs], check=True, stdout=subprocess.PIPE, text=True
).stdout
print(next(line.split()[-1] for line in shown.splitlines() if line.startswith("loss: ")))
