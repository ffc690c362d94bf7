//===- run-model.cpp - the runtime in another program ---------------------===//

#include "nsa/Runtime/Runtime.h"

#include <cstdio>

int main(int argc, char **argv) {
  if (argc != 2)
    return 2;
  nsa::Result<nsa::Artifact> artifact = nsa::Artifact::open(argv[1]);
  if (!artifact) {
    std::fprintf(stderr, "%s\n", artifact.message().c_str());
    return 1;
  }
  nsa::Result<nsa::Program> program = nsa::Program::create(*artifact);
  if (!program) {
    std::fprintf(stderr, "%s\n", program.message().c_str());
    return 1;
  }
  nsa::Status status = program->run("init");
  if (!status)
    std::fprintf(stderr, "%s\n", status.message().c_str());
  return !status;
}
