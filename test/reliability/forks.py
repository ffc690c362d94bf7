"""Loaded modules in children of the process, as multiprocessing has them."""

from lab import HERE, ROOT, Process, Silent


class Forks:
    name, title = "forks", "modules in children, also while threads call: the same bits, nothing hangs"
    counts = 6, 60

    def case(self, lab, rng, folder, number):
        want = lab.once("forks", lambda: self.call(lab, lab.scratch, 1, 0, 0, 0))
        plan = rng.choice([1, 2, 3, 5]), number % 3, rng.randint(1, 3), rng.randint(1, 2)
        what = "{} threads, {} callers, {} children, {} generations".format(*plan)
        found = self.call(lab, folder, *plan)
        if found != want:
            raise Silent(f"{what}: the loss is {found} instead of {want}")
        return what

    def call(self, lab, folder, *plan):
        """By the tool that a test of the rows itself puts in its place, too."""
        tool = ["/usr/bin/python3", HERE / "forked.py"] if lab.tools == lab.honest else [lab.tool("nsa-run")]
        done = Process([*tool, lab.artefact, *plan], folder, {"PYTHONPATH": str(ROOT / "build" / "python")}).wait()
        return done.expect(0).out.strip()
