"""What an earlier version wrote (test/compat) is read, or refused with what to do about it."""

import csv
import os
import pathlib
import subprocess
import tarfile

import pytest

import nsa.data
from programs import BIN

ARCHIVE = pathlib.Path(__file__).resolve().parent.parent / "compat/0.1.0-pre1.tar.xz"


@pytest.fixture
def files(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    return tmp_path / "files"


def start(folder, tool, *words):
    return subprocess.run([BIN / tool, *words], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")})


def losses(path):
    with open(path) as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def read_or_refused(done, artefact):
    """Whether an artefact was taken; else it was refused in one line that names it and says to compile it again."""
    if done.returncode == 0:
        return True
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    assert done.returncode == 1 and len(errors) == 1, done.stderr
    assert artefact in errors[0] and "compile it again" in errors[0], errors[0]
    return False


@pytest.mark.parametrize("name, size, documents, tokens", [
    ("u16", 1900, 0, [11, 9, 10]), ("u32", 725, 36, [69728, 49901, 67408]), ("words", 710, 36, [3, 3, 1])])
def test_shards_are_read(files, name, size, documents, tokens):
    done = start(files, "nsa-data", "info", name)
    assert done.returncode == 0, done.stderr
    shards = nsa.data.Shards(str(files / name))
    assert (shards.size("train"), len(shards.documents("train"))) == (size, documents)
    assert list(shards.read("train", 5, 3)) == tokens


@pytest.mark.parametrize("run, options", [("run", []), ("ranks", []), ("ranks", ["--nproc", "2"])])
def test_checkpoint_is_resumed(files, run, options):
    done = start(files, "nsa-train", "config.yaml", "--data", "u16", "--resume", f"runs/{run}", *options)
    assert done.returncode == 0, done.stderr
    assert "has no hashes of the files of its data" in done.stdout
    assert losses(files / f"runs/{run}/training.csv") == pytest.approx(losses(files / "losses.csv"), abs=1e-4)


@pytest.mark.parametrize("run, artefact, options", [("run", "train.nsax", []), ("ranks", "shared.nsax", ["--nproc", "2"])])
def test_artefact_trains_or_is_refused(files, run, artefact, options):
    before = (files / f"runs/{run}/training.csv").read_text()
    done = start(files, "nsa-train", artefact, "--config", "config.yaml", "--data", "u16", "--resume", f"runs/{run}", *options)
    if read_or_refused(done, artefact):
        assert losses(files / f"runs/{run}/training.csv") == pytest.approx(losses(files / "losses.csv"), abs=1e-4)
    else:
        assert (files / f"runs/{run}/training.csv").read_text() == before


@pytest.mark.parametrize("artefact", ["generate.nsax", None])
def test_checkpoint_generates(files, artefact):
    done = start(files, "nsa-generate", "runs/run", *(["--artifact", artefact] if artefact else []),
                 "--ids", "--prompt", "3,5,9", "--temperature", "0", "--tokens", "6")
    if artefact is None:
        assert done.returncode == 0, done.stderr
    if artefact is None or read_or_refused(done, artefact):
        assert done.stdout == (files / "generated.txt").read_text()
