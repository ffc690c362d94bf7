"""Damaged artefacts: every tool that reads them refuses them."""

import struct

import damage
from lab import Process, Silent, Wrong


def write_array(path, shape, values):
    """Integers as .npy."""
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
                     + struct.pack(f"<{len(values)}i", *values))


class Artefacts:
    name, title = "artefacts", "damaged artefacts: refused by nsa-train, nsa-run and nsa-dump"
    counts = 154, 1540

    def case(self, lab, rng, folder, number):
        path = folder / "model.nsax"
        good = lab.artefact.read_bytes()
        if rng.random() < 0.1:
            # The header of one program before the payload of another.
            other = lab.once("other artefact", lambda: self.other(lab)).read_bytes()
            data, what = good[:32] + other[32:], "another payload"
        else:
            data, what = damage.damaged(good, rng)
        path.write_bytes(data)
        tool = ("nsa-train", "nsa-run", "nsa-dump")[number % 3]
        done = Process(self.command(lab, tool, path, folder), folder).wait()
        try:
            self.judge(lab, tool, folder, path, done)
        except Wrong as error:
            raise type(error)(f"{what}, {tool}: {error}") from None
        return f"{what}, {tool}"

    def other(self, lab):
        path = lab.scratch / "other.nsax"
        lab.must("nsa-model", lab.config, "-o", path.with_suffix(".mlir"), "--set", "model.dim=32")
        lab.must("nsa-compile", path.with_suffix(".mlir"), "-o", path)
        return path

    def command(self, lab, tool, artefact, folder):
        if tool == "nsa-train":
            return lab.command(folder, "--run-name=run", artefact=artefact)
        if tool == "nsa-dump":
            return [lab.tool(tool), artefact, "--kernels", "--program"]
        for name in ("tokens", "targets"):
            write_array(folder / f"{name}.npy", (1, 16), [n % 16 for n in range(16)])
        return [lab.tool(tool), artefact, "--entry=eval", "--threads=1", "--output-dir", folder / "arrays",
                *(f"--input={name}={folder / name}.npy" for name in ("tokens", "targets"))]

    def judge(self, lab, tool, folder, path, done):
        if done.code == 0:
            if tool == "nsa-train":
                lab.same(folder / "runs" / "run", lab.reference(), done)
            elif self.output(folder, done) != lab.once((tool, "output"), lambda: self.good(lab, tool)):
                raise Silent("code 0 with another output than the undamaged artefact's")
            raise Wrong("is accepted, with the same result")
        done.expect(1).one_error(path)
        if (folder / "runs").exists() or (folder / "arrays").exists():
            raise Wrong("writes something although the artefact is refused")

    def output(self, folder, done):
        arrays = sorted((folder / "arrays").glob("*.npy"))
        return done.out.replace(str(folder), ""), [array.read_bytes() for array in arrays]

    def good(self, lab, tool):
        folder = lab.scratch / f"good-{tool}"
        folder.mkdir()
        (folder / "model.nsax").write_bytes(lab.artefact.read_bytes())
        command = self.command(lab, tool, folder / "model.nsax", folder)
        return self.output(folder, Process(command, folder).wait().expect(0))
