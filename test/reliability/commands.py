"""Wrong configurations and command lines: one error, code 1 or 2, nothing written."""


import check
import configs
from lab import Process, Silent, Wrong

# Another valid value of keys that an artefact fixes.
FIXED = {
    "model.dim": [8, 32], "model.n_layers": [2], "model.n_heads": [4], "model.n_kv_groups": [2],
    "model.d_k": [4, 16], "model.d_v": [4, 16], "model.mlp": ["swiglu"], "model.mlp_dim": [8],
    "model.vocab_size": [300], "model.rope_base": [0, 500], "model.norm_eps": [1e-3],
    "model.attention": ["window"], "nsa.l": [2], "nsa.d": [1], "nsa.l_sel": [8], "nsa.n_sel": [1],
    "nsa.n_initial": [0], "nsa.n_local": [1],
    "nsa.w": [4], "nsa.phi": ["linear"], "nsa.gate": ["softmax"], "runtime.precision": ["bf16"],
    "train.seq_len": [8, 32], "train.micro_batch": [2], "runtime.device": ["cuda"],
    "train.optimizer": ["lion"],
}
# What contradicts a good command line of nsa-train, which may begin with such options.
CONTRADICTIONS = [
    ["--rank-seconds=9"], ["--nccl=x"], ["--gpu=0"], ["--no-graph"], ["--gloo=x"],
    ["--run-name=a", "--resume=b"], ["--nproc=3"], ["--nproc=2", "--gpu=1"], ["--run-name=a", "--run-name=b"],
    ["--resume=missing"], ["--set", "train.batch_size=3", "--nproc=2"], ["--blas=missing.so"],
    ["--set", "train.warmup_steps=99"], ["--set", "train.lr_min=1", "--set", "train.lr=0.5"],
    ["--set", "nsa.d=3"], ["--set", "train.accumulate_grad_batches=3"], ["more"], ["--out-dir="],
]
WRONG_VALUES = {
    "--nproc": ["0", "-1", "2x", "1e3", "1025", "", "99999999999999999999"],
    "--stop-after": ["0", "-3", "soon", "1.5", ""],
    "--stall-seconds": ["-1", "soon", "nan"],
    "--profile": ["0", "-1", "many", "1048577"],
    "--threads": ["-1", "1025", "all", "1.5"],
    "--sample-bytes": ["-1", "1e3", "many"],
    "--resume": [""], "--run-name": [""],
    "--rank-seconds": ["0", "-5", "soon", "1e9"],
    "--gpu": ["-1", "first"],
}
FLAGS = ["--separate-update", "--no-progress", "--check-finite"]


def misspell(word, rng):
    """A letter less, twice or another, in the name of an option."""
    name, equals, value = word.partition("=")
    at = rng.randrange(3, len(name))
    kind = rng.randrange(3)
    if kind == 0:
        name = name[:at] + name[at + 1:]
    elif kind == 1:
        name = name[:at] + name[at] + name[at:]
    else:
        name = name[:at] + "z" + name[at + 1:]
    return name + equals + value


class Commands:
    name, title = "commands", "wrong configurations and command lines: one error, nothing written"
    counts = 48, 480

    def case(self, lab, rng, folder, number):
        good = lab.command(folder, "--run-name=run")
        kind = number % 6
        command, what, words = getattr(self, ("key", "fixed", "contradiction", "value", "option", "known")[kind])(
            lab, rng, folder, good)
        done = Process(command, folder).wait()
        try:
            if done.code == 0:
                if (folder / "runs" / "run").exists():
                    lab.same(folder / "runs" / "run", lab.reference(), done)
                raise Silent("is accepted")
            done.expect(1, 2).one_error(*words)
            if (folder / "runs").exists() or (folder / "out").exists():
                raise Wrong("writes something although it ends with an error")
        except Wrong as error:
            raise type(error)(f"{what}: {error}") from None
        return what

    def key(self, lab, rng, folder, good):
        """A wrong value, a repeated or misspelt key, of the lists of test/invalid."""
        keys = lab.once("schema", lambda: configs.schema(lab.must("nsa-model", lab.config)))
        mutations = lab.once("mutations", lambda: list(configs.key_mutations(keys)) + list(configs.FILES))
        name, text, *_, expected = rng.choice(mutations)
        path = folder / "wrong.yaml"
        path.write_bytes(text.encode(errors="surrogateescape"))
        # Settings of the command line could mend it.
        words = list(good)
        words[words.index("--config") + 1] = path
        while "--set" in words:
            at = words.index("--set")
            del words[at:at + 2]
        return words, name, [str(path), expected]

    def fixed(self, lab, rng, folder, good):
        """A key that is not the artefact's."""
        key = rng.choice(sorted(FIXED))
        value = rng.choice(FIXED[key])
        return [*good, "--set", f"{key}={value}"], f"{key}={value}", [key.split(".")[1].split("_")[0]]

    def contradiction(self, lab, rng, folder, good):
        options = rng.choice(CONTRADICTIONS)
        # A named run could not be continued.
        words = [w for w in good if w != "--run-name=run"] if "--resume=missing" in options else good
        return [*words, *options], " ".join(options), []

    def value(self, lab, rng, folder, good):
        option = rng.choice(sorted(WRONG_VALUES))
        value = rng.choice(WRONG_VALUES[option])
        more = ["--nproc=2"] if option == "--rank-seconds" else []
        return [*good, *more, f"{option}={value}"], f"{option}={value}", []

    def option(self, lab, rng, folder, good):
        """An option that is misspelt, missing, without or with a value."""
        kind = rng.randrange(4)
        if kind == 0:
            at = rng.choice([i for i, w in enumerate(good) if str(w).startswith("--")])
            words = [*good[:at], misspell(str(good[at]), rng), *good[at + 1:]]
            return words, f"{words[at]}", []
        if kind == 1:
            name = rng.choice(["--config", "--data", "artefact"])
            at = 1 if name == "artefact" else good.index(name)
            return good[:at] + good[at + (1 if at == 1 else 2):], f"no {name}", []
        if kind == 2:
            return [*good, rng.choice(["--set", "--stop-after", "--resume", "--blas"])], "no value", []
        flag = rng.choice(FLAGS)
        return [*good, f"{flag}={rng.choice(['maybe', '2x', 'x'])}"], f"{flag} with a value", []

    def known(self, lab, rng, folder, good):
        """What the other tools are given wrong by test/invalid."""
        with lab.lock:
            suite = lab.once("suite", lambda: self.suite(lab))
        case = rng.choice(suite.cases)
        with lab.lock:
            problem = case.problem()
        if problem:
            raise Wrong(f"{case.name}: {problem}")
        # It has been run; nsa-train with no words at all stands for it.
        return [lab.tool("nsa-train")], case.name, []

    def suite(self, lab):
        scratch = lab.scratch / "invalid"
        (scratch / "out").mkdir(parents=True)
        (scratch / "good.yaml").write_text("model:\n  dim: 64\n")
        suite = check.Suite(lab.tools, scratch, False)
        suite.add_artefacts()
        suite.add_data()
        return suite
