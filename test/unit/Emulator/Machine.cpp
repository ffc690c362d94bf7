//===- Machine.cpp - one block at work ------------------------------------===//

#include "test/unit/Emulator/Machine.h"
#include "mlir/IR/Operation.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>
#include <map>

using namespace nsa::emulator;

/// Instructions of all warps of a block that no kernel of a test needs.
static constexpr uint64_t kMaxExecuted = uint64_t(1) << 28;

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

Warp::Warp(Block &block, unsigned number)
    : block(block), number(number),
      words(static_cast<uint32_t *>(std::aligned_alloc(
          128, std::max<size_t>(block.code.registers, 1) * kLanes * 4))),
      marks(block.code.registers) {
  std::memset(words.get(), 0, size_t(block.code.registers) * kLanes * 4);
  for (const Code::Constant &constant : block.code.constants)
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if (constant.wide)
        wide(constant.reg)[lane] = constant.bits;
      else
        narrow(constant.reg)[lane] = uint32_t(constant.bits);
    }
  for (size_t k = 0; k < block.code.arguments.size(); ++k)
    for (unsigned lane = 0; lane < kLanes; ++lane)
      wide(block.code.arguments[k])[lane] = argumentBase(unsigned(k));
}

void Warp::start() {
  std::memset(place, 0, sizeof place);
  std::memset(group, 0, sizeof group);
  copies.clear();
  productTrace = 0;
  registers = block.code.registersAtLaunch;
  registersSet = nullptr;
  alive = kAllLanes;
  waiting = blocked = 0;
  waitsFor = nullptr;
}

void Warp::move(LaneMask lanes, uint32_t to) {
  forLanes(lanes, [&](unsigned lane) { place[lane] = to; });
}

/// Lanes at the earliest instruction run first: where paths meet again, the
/// first one to come waits for the others.
void Warp::run() {
  const std::vector<Instruction> &code = block.code.instructions;
  wake();
  while (!block.failed() && !waitsFor) {
    LaneMask runnable = alive & ~waiting & ~blocked, mask = 0;
    if (!runnable) {
      if (alive && !blocked)
        reportStuck();
      return;
    }
    uint32_t pc = ~0u;
    forLanes(runnable, [&](unsigned lane) {
      if (place[lane] < pc) {
        pc = place[lane];
        mask = 0;
      }
      if (place[lane] == pc)
        mask |= LaneMask(1) << lane;
    });
    while (true) {
      while (code[pc].kind == Kind::Lane) {
        code[pc].run(*this, code[pc], mask);
        ++block.executed;
        if (block.failed())
          return;
        ++pc;
      }
      if (!step(mask, pc))
        break;
    }
  }
}

void Warp::wake() {
  for (LaneMask rest = blocked; rest && !block.failed();) {
    uint32_t pc = place[std::countr_zero(rest)];
    LaneMask here = 0;
    forLanes(rest, [&](unsigned lane) {
      here |= LaneMask(place[lane] == pc) << lane;
    });
    LaneMask ready =
        block.mbarriers.poll(*this, block.code.instructions[pc], here);
    move(ready, pc + 1);
    blocked &= ~ready;
    rest &= ~here;
  }
}

/// Runs what is not for single lanes. False: other lanes are to run first.
bool Warp::step(LaneMask &mask, uint32_t &pc) {
  const Instruction &i = block.code.instructions[pc];
  ++block.executed;
  switch (i.kind) {
  case Kind::Lane:
    return true;
  case Kind::Jump:
    if (block.executed - block.executedBefore > kMaxExecuted)
      block.fail(*this, i, std::countr_zero(mask), "runs for ever");
    pc = uint32_t(i.immediate);
    if (mask == alive)
      return true;
    move(mask, pc);
    return false;
  case Kind::Branch: {
    if (LaneMask bad = undefined(i.a) & mask) {
      block.fail(*this, i, std::countr_zero(bad),
                 "branches on an undefined value; " +
                     block.describe(origin(i.a)));
      return false;
    }
    const uint32_t *condition = narrow(i.a);
    LaneMask taken = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane)
      taken |= LaneMask(condition[lane] != 0) << lane;
    taken &= mask;
    if (mask == alive && (taken == mask || taken == 0)) {
      pc = taken ? uint32_t(i.immediate) : i.target;
      return true;
    }
    move(taken, uint32_t(i.immediate));
    move(mask & ~taken, i.target);
    return false;
  }
  case Kind::Return:
    alive &= ~mask;
    return false;
  case Kind::Mask:
  case Kind::Warp:
    if (!meet(mask, pc))
      return false;
    i.run(*this, i, mask);
    ++pc;
    return !block.failed();
  case Kind::Wait: {
    LaneMask ready = block.mbarriers.poll(*this, i, mask);
    if (ready == mask) {
      ++pc;
      return !block.failed();
    }
    move(ready, pc + 1);
    move(mask & ~ready, pc);
    blocked |= mask & ~ready;
    return false;
  }
  case Kind::Barrier:
    if (!meet(mask, pc))
      return false;
    move(mask, pc);
    waiting |= mask;
    waitsFor = &i;
    return false;
  }
  return false;
}

bool Warp::meet(LaneMask &mask, uint32_t pc) {
  const Instruction &i = block.code.instructions[pc];
  LaneMask here = mask, needed = alive;
  forLanes(waiting,
           [&](unsigned lane) { here |= LaneMask(place[lane] == pc) << lane; });
  if (i.kind == Kind::Warp)
    needed = kAllLanes;
  if (i.kind == Kind::Mask) {
    const uint32_t *wanted = narrow(i.a);
    needed = wanted[std::countr_zero(here)];
    forLanes(here, [&](unsigned lane) {
      if (wanted[lane] != needed || !(needed >> lane & 1))
        block.fail(*this, i, int(lane),
                   "takes part with the mask " + std::to_string(wanted[lane]) +
                       ", another lane with " + std::to_string(needed));
    });
    if (block.failed())
      return false;
  }
  if (needed & ~alive) {
    block.fail(*this, i, std::countr_zero(here),
               "waits for lane " +
                   std::to_string(std::countr_zero(needed & ~alive)) +
                   ", which has left the kernel");
    return false;
  }
  if (here != needed) {
    move(mask, pc);
    waiting |= mask;
    return false;
  }
  mask = here;
  waiting &= ~here;
  return true;
}

void Warp::pass() {
  // All alive lanes are at the same instruction.
  uint32_t pc = place[std::countr_zero(alive)] + 1;
  move(alive, pc);
  waiting = 0;
  waitsFor = nullptr;
}

const Instruction &Warp::instructionOf(unsigned lane) const {
  return block.code.instructions[place[lane]];
}

void Warp::reportStuck() {
  auto first = unsigned(std::countr_zero(waiting));
  std::string text = "lanes of a warp wait for each other:";
  std::map<uint32_t, LaneMask> places;
  forLanes(waiting,
           [&](unsigned lane) { places[place[lane]] |= LaneMask(1) << lane; });
  for (auto [pc, lanes] : places)
    text += " lane " + std::to_string(std::countr_zero(lanes)) + " and " +
            std::to_string(std::popcount(lanes) - 1) + " others at '" +
            block.describe(block.code.instructions[pc]) + "';";
  if (alive != kAllLanes)
    text += " " + std::to_string(kLanes - unsigned(std::popcount(alive))) +
            " lanes have left the kernel";
  block.fail(*this, block.code.instructions[place[first]], int(first), text);
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

Block::Block(const Code &code, Dim3 grid, GlobalMemory &global)
    : code(code), grid(grid), global(global), shared(code.sharedBytes) {
  cells.resize((code.sharedBytes + code.sharedGranule - 1) /
               code.sharedGranule);
  for (unsigned warp = 0; warp < code.threads / kLanes; ++warp)
    warps.push_back(std::make_unique<Warp>(*this, warp));
}

Block::~Block() = default;

bool Block::run(Dim3 at) {
  index = at;
  number = int32_t(at.x + grid.x * (at.y + grid.y * at.z));
  executedBefore = executed;
  badReads.clear();
  std::memset(shared.data(), 0xFF, shared.size());
  std::fill(cells.begin(), cells.end(), Cell());
  mbarriers.reset();
  for (auto &warp : warps)
    warp->start();
  bool isReversed = number % 2 != 0;
  while (!failed()) {
    bool all = true;
    // In either order, so that what mbarriers should keep apart meets once.
    for (size_t k = 0; k < warps.size(); ++k) {
      Warp &warp = *warps[isReversed ? warps.size() - 1 - k : k];
      warp.run();
      all &= warp.ended();
    }
    isReversed = !isReversed;
    if (failed())
      break;
    checkWarpgroups();
    if (all) {
      checkRegisters();
      break;
    }
    bool progress = releaseBarriers();
    progress |= mbarriers.takeProgress();
    if (!progress && !failed() && !mbarriers.land(*this))
      reportDeadlock();
  }
  return !failed();
}

/// Lets the warps go on whose barriers are complete. False if there are none.
bool Block::releaseBarriers() {
  std::map<unsigned, std::vector<Warp *>> waiting;
  bool progress = false;
  for (auto &warp : warps) {
    if (!warp->waitsFor)
      continue;
    const Instruction &i = *warp->waitsFor;
    auto lane = unsigned(std::countr_zero(warp->aliveLanes()));
    unsigned id = warp->narrow(i.a)[lane];
    if (id > 15) {
      fail(*warp, i, int(lane), "there is no barrier " + std::to_string(id));
      return false;
    }
    waiting[id].push_back(warp.get());
  }
  for (auto &[id, list] : waiting)
    progress |= release(id, list);
  return progress && !failed();
}

/// Releases a barrier if all of its threads are there.
bool Block::release(unsigned id, const std::vector<Warp *> &waiting) {
  const Instruction &i = *waiting.front()->waitsFor;
  bool counted = i.immediate & Barrier::Counted;
  unsigned wanted =
      counted ? waiting.front()->narrow(
                    i.b)[std::countr_zero(waiting.front()->aliveLanes())]
              : code.threads;
  unsigned here = 0;
  for (Warp *warp : waiting) {
    here += unsigned(std::popcount(warp->aliveLanes()));
    if (!counted && warp->waitsFor != &i) {
      fail(*warp, *warp->waitsFor, -1,
           "waits at another barrier than warp " +
               std::to_string(waiting.front()->number) + ", which is at '" +
               describe(i) + "'");
      return false;
    }
  }
  if (here > wanted)
    fail(*waiting.back(), i, -1,
         std::to_string(here) + " threads are at barrier " +
             std::to_string(id) + ", which is for " + std::to_string(wanted));
  if (here != wanted)
    return false;
  uint32_t value = 0, undefinedFrom = 0;
  bool undefined = false, reduces = i.immediate & Barrier::Or;
  for (Warp *warp : waiting) {
    if (!reduces)
      continue;
    LaneMask bad = warp->undefined(i.c) & warp->aliveLanes();
    undefined |= bad != 0;
    undefinedFrom = bad ? warp->origin(i.c) : undefinedFrom;
    forLanes(warp->aliveLanes(),
             [&](unsigned lane) { value |= warp->narrow(i.c)[lane] != 0; });
  }
  for (Warp *warp : waiting) {
    if (reduces) {
      LaneMask mask = warp->aliveLanes();
      forLanes(mask,
               [&](unsigned lane) { warp->narrow(i.result)[lane] = value; });
      warp->define(i.result, mask, undefined ? mask : 0, undefinedFrom);
    }
    warp->pass();
  }
  ++barriers;
  return true;
}

/// All warps have come to a barrier or to their end. Those that wait at
/// mbarriers may lag others of their group.
void Block::checkWarpgroups() {
  std::vector<bool> waits(warps.size() / 4 + 1);
  for (auto &warp : warps)
    waits[warp->number / 4] =
        waits[warp->number / 4] || warp->blockedLanes() != 0;
  for (auto &warp : warps) {
    const Warp &first = *warps[warp->number / 4 * 4];
    if (!waits[warp->number / 4] && warp->productTrace != first.productTrace &&
        !failed())
      fail(*warp, code.instructions.front(), -1,
           "has issued other wgmmas or register counts than warp " +
               std::to_string(first.number) + " of its group");
  }
}

/// The registers that warps have in the end must be enough for all of them.
void Block::checkRegisters() {
  unsigned sum = 0;
  const Warp *last = nullptr;
  for (auto &warp : warps) {
    sum += warp->registers;
    last = warp->registersSet ? warp.get() : last;
  }
  if (last && sum > code.registersAtLaunch * warps.size())
    fail(*last, *last->registersSet, -1,
         "the threads of all warps have " + std::to_string(sum * kLanes) +
             " registers together, and had " +
             std::to_string(code.threads * code.registersAtLaunch) +
             " at the launch");
}

std::string Block::describeWait(Warp &warp) {
  std::string text = " warp " + std::to_string(warp.number);
  if (warp.ended())
    return text + " has left the kernel;";
  if (warp.waitsFor)
    return text + " is at '" + describe(*warp.waitsFor) + "' with " +
           std::to_string(std::popcount(warp.aliveLanes())) + " lanes;";
  auto lane = unsigned(std::countr_zero(warp.blockedLanes()));
  return text + " waits with " +
         std::to_string(std::popcount(warp.blockedLanes())) + " lanes for " +
         describe(warp.instructionOf(lane)) + ";";
}

void Block::reportDeadlock() {
  std::string text = "waits for ever;";
  for (auto &warp : warps)
    text += describeWait(*warp);
  for (auto &warp : warps) {
    if (warp->waitsFor)
      return fail(*warp, *warp->waitsFor, -1, text);
    if (LaneMask lanes = warp->blockedLanes()) {
      auto lane = unsigned(std::countr_zero(lanes));
      return fail(*warp, warp->instructionOf(lane), int(lane), text);
    }
  }
}

std::string Block::describe(const Instruction &at) const {
  mlir::Operation *op = code.sources[size_t(&at - code.instructions.data())];
  std::string text;
  llvm::raw_string_ostream stream(text);
  op->print(stream, mlir::OpPrintingFlags().useLocalScope().skipRegions());
  return text.substr(0, 200);
}

void Block::fail(const Warp &warp, const Instruction &at, int lane,
                 const std::string &what) {
  if (!error.empty())
    return;
  mlir::Operation *op = code.sources[size_t(&at - code.instructions.data())];
  llvm::raw_string_ostream stream(error);
  stream << "kernel @" << code.name << ", block (" << index.x << ", " << index.y
         << ", " << index.z << "), ";
  if (lane < 0)
    stream << "warp " << warp.number;
  else
    stream << "thread " << warp.thread(unsigned(lane));
  stream << ": " << what << "\n  in '" << describe(at) << "' at "
         << op->getLoc();
}
