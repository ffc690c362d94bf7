import os

import lit.formats
from lit.llvm import llvm_config

config.name = "NSA"
config.test_format = lit.formats.ShTest(not llvm_config.use_lit_shell)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "unit", "python", "e2e"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.nsa_obj_root, "test")
config.environment["FILECHECK_OPTS"] = (
    "-enable-var-scope --allow-unused-prefixes=false"
)
config.substitutions.append(("%configs", os.path.join(config.nsa_src_root, "configs")))
llvm_config.add_tool_substitutions(
    [
        "nsa-opt",
        "nsa-compile",
        "nsa-model",
        "nsa-dump",
        "nsa-run",
        "nsa-data",
        "nsa-train",
        "nsa-test-artifact",
        "FileCheck",
        "not",
        "split-file",
    ],
    [config.nsa_tools_dir, config.llvm_tools_dir],
)
