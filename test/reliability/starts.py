"""Starts that cannot work: one error before anything is compiled, and nothing written."""

import jobs  # of test/gpu
from lab import Process, Silent, Wrong, copy, newest_checkpoint

import damage


class Starts:
    name, title = "starts", "stages and --resume that cannot work: refused before anything is compiled"
    counts = 14, 140

    def case(self, lab, rng, folder, number):
        run = copy(lab.stopped_run(), folder / "runs") / "run"
        before = sorted(path.relative_to(folder) for path in folder.rglob("*"))
        kind = ("window", "stage", "missing", "damaged", "model", "data", "shards")[number % 7]
        options, settings, words, data = ["--resume", run], {}, [], lab.data
        if kind == "window":
            options, words = ["--run-name=new"], ["split holds"]
            settings = {"train.seq_len": rng.randrange(2000, 1 << 20)}
        elif kind == "stage":
            options, words = ["--run-name=new"], ["stage 2: ", "split holds"]
        elif kind == "missing":
            gone = rng.choice([folder / "runs" / "gone", run / "checkpoints" / "step-7"])
            options, words = ["--resume", gone], [gone.name]
        elif kind == "damaged":
            newest = newest_checkpoint(run)
            file = newest / rng.choice(["model.safetensors", "optimizer.safetensors", "state.json", "config.yaml"])
            damage.damage_file(file, rng)
            options, words = ["--resume", newest], [newest.name]
        elif kind == "model":
            key = rng.choice(["model.dim", "model.n_layers", "nsa.w", "train.seed"])
            settings, words = {key: {**lab.settings, "train.seed": 1}[key] * 2}, [key]
        elif kind == "data":
            data = self.other(lab)
            words = ["belongs to data"]
        else:
            options += ["--compile-option", f"shard-optimizer={rng.choice([2, 4, 8])}"]
            words = ["shard-optimizer"]
        config = self.config(lab, folder, kind)
        done = Process([lab.tool("nsa-train"), config, "--data", data, "--out-dir", folder / "runs", "--no-progress",
                        *jobs.assign({**lab.settings, **settings} if kind != "stage" else lab.settings), *options],
                       folder, {"XDG_CACHE_HOME": str(folder / "cache")}).wait()
        try:
            if done.code == 0:
                raise Silent(f"code 0: {done.tail()}")
            done.expect(1).one_error(*words)
            after = sorted(path.relative_to(folder) for path in folder.rglob("*")
                           if path.suffix not in (".out", ".err") and path.name != "stages.yaml")
            if "compiling" in done.err or after != before:
                raise Wrong(f"compiled, or wrote {sorted(set(after) - set(before))[:3]}")
        except Wrong as error:
            raise type(error)(f"{kind}: {error}") from None
        return f"{kind} {' '.join(map(str, options))} {settings}"

    def config(self, lab, folder, kind):
        if kind != "stage":
            return lab.config
        path = folder / "stages.yaml"
        path.write_text(lab.config.read_text() + "stages:\n  - {steps: 12}\n  - {steps: 12, seq_len: 65536}\n")
        return path

    def other(self, lab):
        def make():
            lab.must("nsa-data", "synth", "--vocab=16", "--tokens=20000", "--seed=8", "-o", lab.scratch / "other")
            return lab.scratch / "other"
        return lab.once("other", make)
