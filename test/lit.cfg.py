import os
import shutil
import sys

import lit.formats
from lit.llvm import llvm_config
from lit.llvm.subst import ToolSubst

config.name = "NSA"
config.test_format = lit.formats.ShTest(not llvm_config.use_lit_shell)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "unit", "python", "e2e"]
config.test_source_root = os.path.dirname(__file__)
# `--param exec_root=DIR` keeps the outputs of another build's tools apart.
config.test_exec_root = lit_config.params.get(
    "exec_root", os.path.join(config.nsa_obj_root, "test")
)
# `--param runtime_tools=DIR` tests other builds of the tools that need no LLVM.
tool_dirs = [config.nsa_tools_dir, config.llvm_tools_dir]
if "runtime_tools" in lit_config.params:
    tool_dirs.insert(0, lit_config.params["runtime_tools"])
config.environment["FILECHECK_OPTS"] = (
    "-enable-var-scope --allow-unused-prefixes=false"
)
config.substitutions.append(("%docs", os.path.join(config.nsa_obj_root, "docs")))
config.substitutions.append(("%configs", os.path.join(config.nsa_src_root, "configs")))
config.substitutions.append(
    ("%fake-cuda", os.path.join(config.nsa_obj_root, "test/fake-cuda"))
)
config.substitutions.append(("%bench", os.path.join(config.test_source_root, "bench")))
config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%tools", config.nsa_tools_dir))
# Where nsa-compile looks for it.
ptxas = shutil.which(
    "ptxas",
    path=os.pathsep.join(
        [os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")]
        + [os.environ.get("PATH", "")]
    ),
)
if ptxas:
    config.available_features.add("ptxas")
    config.substitutions.append(("%ptxas", ptxas))
if os.path.exists(os.path.join(config.nsa_obj_root, "lib", "nsa-gloo.so")):
    config.available_features.add("gloo")
llvm_config.with_system_environment(
    ["NSA_KERNEL_CACHE", "NSA_TEST_SUITE", "NSA_TEST_SEED"]
)
llvm_config.add_tool_substitutions(
    [
        # FileCheck matches whole lines.
        ToolSubst("nsa-opt", extra_args=["--columns=0"]),
        "nsa-lsp-server",
        ToolSubst("nsa-compile", extra_args=["--columns=0"]),
        "nsa-model",
        "nsa-dump",
        "nsa-run",
        "nsa-data",
        "nsa-train",
        "nsa-generate",
        "nsa-test-artifact",
        "FileCheck",
        "llvm-as",
        "llvm-mc",
        "not",
        "split-file",
    ],
    tool_dirs,
)
