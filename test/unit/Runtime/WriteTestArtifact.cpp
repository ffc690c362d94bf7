//===- WriteTestArtifact.cpp - the hand-made artefact as a file -----------===//

#include "lib/Support/CommandLine.h"
#include "lib/Support/Files.h"
#include "test/unit/Runtime/ArtifactBuilder.h"

#include <cstdio>

/// nsa-test-artifact FILE: writes what makeTestArtifact returns, so that the
/// tools are tested without the compiler.
int main(int argc, char **argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: nsa-test-artifact FILE\n");
    return nsa::exitUsage;
  }
  nsa::Status status =
      nsa::writeFileAtomically(argv[1], nsa::makeTestArtifact());
  return status ? 0 : nsa::reportError("nsa-test-artifact", status.message());
}
