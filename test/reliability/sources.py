"""Damaged files of text: python -m nsa.data refuses them, or leaves them out by name."""

import functools
import pathlib
import subprocess

import damage
import texts
from lab import ROOT, Process, Silent, Wrong


@functools.cache
def find_python():
    """One with pyarrow, tokenizers and zstandard, as other tests have it; nothing where there is none."""
    return subprocess.run([ROOT / "test" / "python-env.sh"], stdout=subprocess.PIPE, text=True).stdout.strip()


class Sources:
    name, title = "sources", "damaged parquet, Arrow, .gz, .zst, JSON: refused, or left out by name"

    @property
    def counts(self):
        return (16, 260) if find_python() else (0, 0)

    def case(self, lab, rng, folder, number):
        good = lab.once("sources", lambda: self.make(lab))
        name = list(texts.KINDS)[number % len(texts.KINDS)]
        goes_on = number // len(texts.KINDS) % 3 == 2
        (folder / "in").mkdir()
        path = folder / "in" / name
        other, what = damage.damaged((good / "in" / name).read_bytes(), rng)
        path.write_bytes(other)
        (folder / "in" / "z.jsonl").write_bytes(texts.BESIDE)
        done = self.pack(lab, folder, folder / "in", *(["--skip-bad=1000"] if goes_on else []))
        try:
            if goes_on:
                done.expect(0)
            elif done.code != 0:
                done.expect(1).one_error(name)
            if done.code == 0:
                self.compare(folder / "out", good, name, done)
        except Wrong as error:
            raise type(error)(f"{name}: {what}: {error}") from None
        return f"{name}: {what}"

    def make(self, lab):
        """One of each kind, a tokenizer, and what is packed of each and of the good file beside it."""
        good = lab.scratch / "good-sources"
        (good / "in").mkdir(parents=True)
        for command in ([pathlib.Path(texts.__file__), good / "in"],
                        ["-m", "nsa.data", "train-tokenizer", good / "in/a.jsonl", "--vocabulary=300", "-o", good / "t.json"]):
            Process([find_python(), *command], good, self.env()).wait().expect(0)
        (good / "alone/in").mkdir(parents=True)
        (good / "alone/in/z.jsonl").write_bytes(texts.BESIDE)
        self.pack(lab, good / "alone", good / "alone/in").expect(0)
        for name in texts.KINDS:
            (good / name / "in").mkdir(parents=True)
            (good / name / "in" / name).write_bytes((good / "in" / name).read_bytes())
            (good / name / "in/z.jsonl").write_bytes(texts.BESIDE)
            self.pack(lab, good / name, good / name / "in").expect(0)
        return good

    def env(self):
        return {"PYTHONPATH": str(ROOT / "build" / "python")}

    def pack(self, lab, folder, source, *options):
        """By the tool that a test of the rows itself puts in its place, too."""
        tool = [find_python(), "-m", "nsa.data"] if lab.tools == lab.honest else [lab.tool("nsa-data")]
        return Process([*tool, "pack", source, "-o", folder / "out", "--tokenizer", lab.scratch / "good-sources/t.json",
                        "--val-fraction=0.3", "--workers=1", *options], folder, self.env()).wait()

    def compare(self, out, good, name, done):
        """The tokens of all files, or of the good one and what comes before the damage."""
        if not (out / "manifest.json").exists():
            raise Silent("ends with code 0 without a data set")
        if not texts.KINDS[name][1]:
            return
        tokens = [self.documents(folder) for folder in (out, good / name / "out", good / "alone/out")]
        named = name in done.err
        if (tokens[0] != tokens[1] and not named) or not tokens[2] <= tokens[0] <= tokens[1]:
            raise Silent("other documents are packed than are in the files")

    def documents(self, folder):
        """Each document as its tokens; those of both splits."""
        found = set()
        for split in ("train", "val"):
            tokens = b"".join(path.read_bytes()[1024:] for path in sorted(folder.glob(f"{split}_*.bin")))
            index = (folder / f"{split}_documents.idx").read_bytes()[1024:]
            starts = [2 * int.from_bytes(index[at:at + 8], "little") for at in range(0, len(index), 8)]
            found |= {tokens[begin:end] for begin, end in zip(starts, [*starts[1:], len(tokens)])}
        return found
