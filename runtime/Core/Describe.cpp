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

std::string nsa::describeCommand(const artifact::Artifact &root, size_t index,
                                 const artifact::Command &command,
                                 const std::string &what) {
  return "command " + std::to_string(index) + " (" +
         commandTitle(root, command) + "): " + what + ", from " +
         commandLocation(root, command);
}

uint64_t nsa::commandFlops(const artifact::Artifact &root,
                           const artifact::Command &command) {
  if (const auto *launch = command.action_as_Launch())
    return root.kernels()->Get(launch->kernel())->flops();
  if (const auto *gemm = command.action_as_Gemm())
    return 2 * gemm->m() * gemm->n() * gemm->k();
  return 0;
}

uint64_t nsa::commandBytes(const artifact::Artifact &root,
                           const artifact::Command &command) {
  uint64_t bytes = 0;
  switch (command.action_type()) {
  case Action::Launch:
    for (const artifact::Slice *slice : *command.action_as_Launch()->operands())
      bytes += slice->size();
    return bytes;
  case Action::Gemm: {
    const auto &gemm = *command.action_as_Gemm();
    uint64_t results = gemm.beta() == 0 ? 1 : 2;
    return gemm.lhs()->size() + gemm.rhs()->size() +
           results * gemm.out()->size();
  }
  case Action::Fill:
    return command.action_as_Fill()->out()->size();
  case Action::Copy:
    return 2 * command.action_as_Copy()->out()->size();
  case Action::Initialize:
    return root.tensors()
        ->Get(command.action_as_Initialize()->tensor())
        ->slice()
        ->size();
  case Action::NONE:
    break;
  }
  return bytes;
}
