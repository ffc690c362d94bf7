"""What test/codegen.py consists of: normalise.py takes out of code what does not
matter to what it does, record.py keeps and compares what was found, programs.py
compiles what is recorded."""
