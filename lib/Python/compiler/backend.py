"""Builds wheels with scikit-build-core, and with LLVM of PyPI where CMake finds none."""

import os
import pathlib
import shutil
import sys

from scikit_build_core import build as _build
from scikit_build_core.build import *  # noqa: F403

_REQUIREMENTS = "tools/requirements-llvm.txt"
# Where lib/Python/CMakeLists.txt's find_package looks besides what the caller names.
_PREFIXES = ["/usr/lib/llvm-22", "/usr/local", "/usr"]


def _has_llvm(settings):
    """Whether the caller names an MLIR, or the system has one that the caller does not hide."""
    if settings.get("cmake.define.MLIR_DIR") or any(os.environ.get(name) for name in ("MLIR_DIR", "MLIR_ROOT")):
        return True
    hidden = settings.get("cmake.define.CMAKE_IGNORE_PREFIX_PATH", "").split(";")
    return any(os.path.exists(os.path.join(prefix, "lib/cmake/mlir/MLIRConfig.cmake"))
               for prefix in _PREFIXES if prefix not in hidden)


def _needs_llvm(settings):
    # nsa-runtime leaves the compiler out.
    usual = "OFF" if 'NSA_BUILD_COMPILER = "OFF"' in pathlib.Path("pyproject.toml").read_text() else "ON"
    return settings.get("cmake.define.NSA_BUILD_COMPILER", usual) != "OFF" and not _has_llvm(settings)


def get_requires_for_build_wheel(config_settings=None):
    requires = _build.get_requires_for_build_wheel(config_settings)
    if not _needs_llvm(config_settings or {}):
        return requires
    root = next(folder for folder in pathlib.Path(__file__).resolve().parents if (folder / _REQUIREMENTS).exists())
    lines = (root / _REQUIREMENTS).read_text().splitlines()
    return requires + [line for line in lines if line and not line.startswith("#")]


def _package(name):
    """The folder of CMake's package where the requirement was installed: no prefix of CMake for pip."""
    for folder in sys.path:
        path = os.path.join(folder, name, "lib", "cmake", name)
        if os.path.isdir(path):
            return path
    sys.exit(f"error: no {name.upper()}: neither the system's nor that of {_REQUIREMENTS}")


def _choose_compiler():
    """Names the compiler of the presets where nobody asks for one: scikit-build-core takes that of Python."""
    programs = {"CC": "clang-22", "CXX": "clang++-22"}
    if not any(name in os.environ for name in programs) and all(map(shutil.which, programs.values())):
        os.environ.update(programs)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _choose_compiler()
    settings = dict(config_settings or {})
    if _needs_llvm(settings):
        settings.update({f"cmake.define.{name.upper()}_DIR": _package(name) for name in ("llvm", "mlir")})
    return _build.build_wheel(wheel_directory, settings, metadata_directory)
