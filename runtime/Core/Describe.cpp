//===- Describe.cpp - commands in words -----------------------------------===//

#include "runtime/Core/Describe.h"

using namespace nsa;
using artifact::Action;

std::string nsa::commandTitle(const artifact::Artifact &root,
                              const artifact::Command &command) {
  switch (command.action_type()) {
  case Action::Launch:
    return "launch @" + root.kernels()
                            ->Get(command.action_as_Launch()->kernel())
                            ->name()
                            ->str();
  case Action::Gemm: {
    const auto &gemm = *command.action_as_Gemm();
    return "gemm " + std::to_string(gemm.m()) + "x" + std::to_string(gemm.n()) +
           "x" + std::to_string(gemm.k());
  }
  case Action::Fill:
    return "fill";
  case Action::Copy:
    return "copy";
  case Action::Initialize:
    return "initialize @" + root.tensors()
                                ->Get(command.action_as_Initialize()->tensor())
                                ->name()
                                ->str();
  case Action::NONE:
    break;
  }
  return "unknown";
}

std::string nsa::commandLocation(const artifact::Artifact &root,
                                 const artifact::Command &command) {
  std::string location = root.locations()->Get(command.location())->str();
  return location.empty() ? "unknown" : location;
}

uint64_t nsa::commandFlops(const artifact::Artifact &root,
                           const artifact::Command &command) {
  if (const auto *launch = command.action_as_Launch())
    return root.kernels()->Get(launch->kernel())->flops();
  if (const auto *gemm = command.action_as_Gemm())
    return 2 * gemm->m() * gemm->n() * gemm->k();
  return 0;
}
