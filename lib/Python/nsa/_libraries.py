"""Where packages of PyPI keep the libraries and programs that nsa opens."""

import os
import sysconfig

# Below site-packages: OpenBLAS, then what PyTorch for CUDA 13 and for CUDA 12 brings.
_FOLDERS = ["scipy_openblas32/lib", "nvidia/cu13/lib", "nvidia/cublas/lib", "nvidia/nccl/lib"]
_PROGRAMS = ["nvidia/cu13/bin", "nvidia/cuda_nvcc/bin"]


def _existing(folders):
    roots = dict.fromkeys(sysconfig.get_path(kind) for kind in ("platlib", "purelib"))
    paths = [os.path.join(root, folder) for root in roots for folder in folders]
    return [path for path in paths if os.path.isdir(path)]


def _append(variable, folders):
    known = [folder for folder in os.environ.get(variable, "").split(os.pathsep) if folder]
    new = known + [folder for folder in folders if folder not in known]
    if new != known:
        os.environ[variable] = os.pathsep.join(new)


def make_known():
    """Append them to NSA_LIBRARY_PATH and PATH: the system's come first."""
    _append("NSA_LIBRARY_PATH", _existing(_FOLDERS))
    _append("PATH", _existing(_PROGRAMS))
