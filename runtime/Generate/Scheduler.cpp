//===- Scheduler.cpp - many prompts at once -------------------------------===//

#include "nsa/Runtime/Scheduler.h"
#include "lib/Support/Philox.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/Generate/Generator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>

using namespace nsa;

/// The requests of one thread at a time.
class Scheduler::Slots {
public:
  Slots(Generator generator, SamplingThreads threads, bool prefills)
      : sequences(std::move(generator)), threads(std::move(threads)),
        prefills(prefills), slots(size_t(sequences.batch())),
        beginnings(slots.size()) {}

  Status checkSlots();
  Result<uint64_t> add(Request request);
  bool cancel(uint64_t request);
  Result<std::vector<GeneratedToken>> step();
  Count count() const;
  Selection selection(uint64_t request) const;

  const Generator &generator() const { return sequences; }

private:
  struct Queued {
    uint64_t number;
    Request request;
  };
  /// A request that has a slot.
  struct Slot {
    uint64_t number;
    Request request;
    TokenSampler sampler;
    PhiloxStream random;
    /// Tokens drawn, and the last of them.
    int64_t drawn = 0;
    int32_t last = -1;
    bool isDone = false;
  };
  /// What a prompt has in common with a slot, in whole parts.
  struct Beginning {
    size_t slot;
    int64_t tokens;
  };
  Status leave();
  Status join(std::vector<bool> &isComplete);
  bool awaitsPart(size_t row) const;
  Beginning findBeginning(size_t row, const std::vector<int32_t> &prompt) const;
  Status share(size_t row);
  bool fits(const Request &request, Beginning beginning) const;
  Result<bool> takePages(size_t row, const Request &request);
  Status fillPart(std::vector<bool> &isComplete);
  Status append(std::vector<bool> &isComplete);
  GeneratedToken take(Slot &slot, int32_t token);
  GeneratedToken draw(int64_t row);
  /// Tokens from `position` on are about to be replaced in the slot's caches.
  void forgetFrom(size_t row, int64_t position) {
    beginnings[row].resize(std::min(beginnings[row].size(), size_t(position)));
  }
  int64_t countSteps() const;
  Result<std::vector<GeneratedToken>> stepAhead(int64_t steps);

  Generator sequences;
  SamplingThreads threads;
  bool prefills;
  std::deque<Queued> queue;
  std::vector<std::optional<Slot>> slots;
  /// Of each slot, the tokens whose rows are in its caches and were taken in by
  /// whole parts, which are the same bits for all prompts that begin so.
  std::vector<std::vector<int32_t>> beginnings;
  uint64_t numbers = 0;
  /// For whom the program chooses tokens, and the steps that it does ahead.
  std::vector<uint64_t> chosenFor;
  int64_t ahead = 1;
};

/// Which slot a request gets depends on others.
Status Scheduler::Slots::checkSlots() {
  const size_t bytes = size_t(sequences.vocab()) * sizeof(float);
  constexpr int32_t steps = 2;
  for (int32_t token = 0; token < steps; ++token)
    NSA_RETURN_IF_ERROR(
        sequences.step(std::vector<int32_t>(slots.size(), token)));
  for (int64_t row = 1; row < sequences.batch(); ++row)
    if (std::memcmp(sequences.logits(0), sequences.logits(row), bytes) != 0)
      return Error{"of " + std::to_string(sequences.batch()) +
                   " slots, number " + std::to_string(row + 1) +
                   " computes other bits than the first one, by the matmuls "
                   "of this BLAS library: take fewer, such as 4"};
  return {};
}

Result<uint64_t> Scheduler::Slots::add(Request request) {
  NSA_RETURN_IF_ERROR(sequences.check("the prompt", request.prompt));
  NSA_RETURN_IF_ERROR(request.sampling.check());
  int64_t prompt = int64_t(request.prompt.size()),
          context = sequences.context();
  // The last token is drawn, and not appended.
  if (request.tokens < 1 || request.tokens > context - prompt)
    return Error{"the prompt has " + std::to_string(prompt) + " tokens and " +
                 std::to_string(request.tokens) +
                 " are to follow, expected 1 to " +
                 std::to_string(context - prompt) + " in a context of " +
                 std::to_string(context)};
  for (const std::vector<int32_t> *ids : {&request.excluded, &request.given})
    for (int32_t id : *ids)
      if (id < 0 || id >= sequences.vocab())
        return Error{"the id " + std::to_string(id) +
                     " is no token, expected 0 to " +
                     std::to_string(sequences.vocab() - 1)};
  const PagePool &pool = sequences.pagePool();
  int64_t needed = pool.pagesOf(prompt + request.tokens - 1);
  if (pool && needed > pool.pages())
    return Error{"the prompt has " + std::to_string(prompt) + " tokens and " +
                 std::to_string(request.tokens) +
                 " are to follow, which take " + std::to_string(needed) +
                 " pages of " + std::to_string(pool.pageTokens()) +
                 " tokens, more than the " + std::to_string(pool.pages()) +
                 " that there are"};
  queue.push_back({++numbers, std::move(request)});
  return numbers;
}

bool Scheduler::Slots::cancel(uint64_t request) {
  for (std::optional<Slot> &slot : slots)
    if (slot && slot->number == request && !slot->isDone)
      return slot->isDone = true;
  auto found = std::find_if(queue.begin(), queue.end(), [&](const Queued &own) {
    return own.number == request;
  });
  if (found == queue.end())
    return false;
  queue.erase(found);
  return true;
}

Scheduler::Count Scheduler::Slots::count() const {
  auto runs = [](const std::optional<Slot> &slot) {
    return slot && !slot->isDone;
  };
  return {queue.size(),
          size_t(std::count_if(slots.begin(), slots.end(), runs))};
}

Selection Scheduler::Slots::selection(uint64_t request) const {
  for (size_t row = 0; row < slots.size(); ++row)
    if (slots[row] && slots[row]->number == request)
      return sequences.selection(int64_t(row));
  return {};
}

/// Frees the slots of requests that ended. They keep the pages of beginnings
/// that others may have, too.
Status Scheduler::Slots::leave() {
  for (size_t row = 0; row < slots.size(); ++row) {
    if (!slots[row] || !slots[row]->isDone)
      continue;
    slots[row].reset();
    if (!sequences.isClean(int64_t(row)))
      beginnings[row].clear();
    NSA_RETURN_IF_ERROR(
        sequences.clear(int64_t(row), int64_t(beginnings[row].size())));
  }
  return {};
}

/// Gives free slots to the requests that wait longest, and prefills their
/// prompts: whether that is worth it depends on a prompt alone.
Status Scheduler::Slots::join(std::vector<bool> &isComplete) {
  std::vector<std::vector<int32_t>> prompts(slots.size());
  bool hasPrompts = false;
  for (size_t row = 0; row < slots.size(); ++row) {
    std::optional<Slot> &slot = slots[row];
    if (slot || queue.empty())
      continue;
    NSA_ASSIGN_OR_RETURN(bool hasPages, takePages(row, queue.front().request));
    if (!hasPages)
      break;
    auto [number, request] = std::move(queue.front());
    queue.pop_front();
    TokenSampler sampler(request.sampling, sequences.vocab(), request.excluded);
    PhiloxStream random(request.seed, request.stream);
    slot.emplace(Slot{number, std::move(request), std::move(sampler), random});
    const std::vector<int32_t> &prompt = slot->request.prompt;
    if (!prefills || sequences.takesParts() ||
        !sequences.isWorthPrefill(int64_t(prompt.size())))
      continue;
    prompts[row] = prompt;
    hasPrompts = true;
    isComplete[row] = int64_t(prompt.size()) <= sequences.prefillLength();
  }
  if (hasPrompts)
    return sequences.fill(prompts);
  return {};
}

bool Scheduler::Slots::awaitsPart(size_t row) const {
  return sequences.takesParts() && slots[row] &&
         sequences.isWorthPrefill(int64_t(slots[row]->request.prompt.size()) -
                                  sequences.length(int64_t(row)));
}

/// The whole parts of a prompt that some sequence has, that of the slot itself
/// above all. The last token is left: what follows needs its logits.
Scheduler::Slots::Beginning
Scheduler::Slots::findBeginning(size_t row,
                                const std::vector<int32_t> &prompt) const {
  Beginning found = {row, 0};
  for (size_t other = 0; other < slots.size(); ++other) {
    const std::vector<int32_t> &own = beginnings[other];
    size_t length = std::min(prompt.size() - 1, own.size());
    int64_t common =
        std::mismatch(own.begin(), own.begin() + std::ptrdiff_t(length),
                      prompt.begin())
            .first -
        own.begin();
    common -= common % sequences.prefixStep();
    if (common > found.tokens || (common == found.tokens && other == row))
      found = {other, common};
  }
  return found;
}

/// Makes a sequence the beginning of its prompt that some sequence has.
Status Scheduler::Slots::share(size_t row) {
  const std::vector<int32_t> &prompt = slots[row]->request.prompt;
  auto [from, most] = findBeginning(row, prompt);
  if (most <= sequences.length(int64_t(row)))
    return {};
  beginnings[row].assign(prompt.begin(), prompt.begin() + most);
  return sequences.copyPrefix(int64_t(from), int64_t(row), most);
}

/// Whether there are pages for a request besides those of the others that have
/// a slot. Those that only free slots have count as none.
bool Scheduler::Slots::fits(const Request &request, Beginning beginning) const {
  const PagePool &pool = sequences.pagePool();
  std::vector<bool> isTaken(size_t(pool.pages()) + 1);
  int64_t shared = beginning.tokens / pool.pageTokens(), taken = 0;
  auto take = [&](const int32_t *page, const int32_t *end) {
    for (; page != end; ++page)
      if (!isTaken[size_t(*page)]) {
        isTaken[size_t(*page)] = true;
        ++taken;
      }
  };
  for (size_t row = 0; row < slots.size(); ++row)
    if (slots[row])
      take(pool.begin(int64_t(row)), pool.end(int64_t(row)));
  const int32_t *first = pool.begin(int64_t(beginning.slot));
  take(first, first + shared);
  int64_t tokens = int64_t(request.prompt.size()) + request.tokens - 1;
  return taken + pool.pagesOf(tokens) - shared <= pool.pages();
}

/// Empties a slot for a request, with the pages of all its tokens: it never
/// waits for one later. Of its prompt, it has what others share with it.
/// Returns whether there are enough.
Result<bool> Scheduler::Slots::takePages(size_t row, const Request &request) {
  PagePool &pool = sequences.pagePool();
  if (!pool) {
    NSA_RETURN_IF_ERROR(sequences.clear(int64_t(row)));
    return true;
  }
  const std::vector<int32_t> &prompt = request.prompt;
  Beginning beginning = {row, 0};
  if (sequences.isWorthPrefill(int64_t(prompt.size())))
    beginning = findBeginning(row, prompt);
  if (!fits(request, beginning))
    return false;
  auto [from, common] = beginning;
  NSA_RETURN_IF_ERROR(sequences.clear(int64_t(row), from == row ? common : 0));
  NSA_RETURN_IF_ERROR(
      sequences.copyPrefix(int64_t(from), int64_t(row), common));
  beginnings[row].assign(prompt.begin(), prompt.begin() + common);
  int64_t tokens = int64_t(prompt.size()) + request.tokens - 1;
  int64_t needed = pool.pagesOf(tokens) - common / pool.pageTokens();
  for (size_t other = 0; needed > pool.free(); ++other)
    if (!slots[other] && other != row) {
      beginnings[other].clear();
      pool.shrink(int64_t(other), 0);
    }
  pool.grow(int64_t(row), tokens);
  return true;
}

/// Takes in a part of the prompt that waits longest for it: others wait for no
/// more than one.
Status Scheduler::Slots::fillPart(std::vector<bool> &isComplete) {
  std::optional<size_t> first;
  for (size_t row = 0; row < slots.size(); ++row)
    if (awaitsPart(row) &&
        (!first || slots[row]->number < slots[*first]->number))
      first = row;
  if (!first)
    return {};
  NSA_RETURN_IF_ERROR(share(*first));
  const std::vector<int32_t> &prompt = slots[*first]->request.prompt;
  if (awaitsPart(*first)) {
    forgetFrom(*first, sequences.length(int64_t(*first)));
    NSA_RETURN_IF_ERROR(sequences.fillPart(int64_t(*first), prompt));
  }
  int64_t length = sequences.length(int64_t(*first));
  if (length % sequences.prefillLength() == 0)
    beginnings[*first].assign(prompt.begin(), prompt.begin() + length);
  isComplete[*first] = length == int64_t(prompt.size());
  return {};
}

/// Appends the next token of a prompt, or the one that was drawn last, to each
/// sequence but those whose prompts have just been prefilled, or wait for it.
Status Scheduler::Slots::append(std::vector<bool> &isComplete) {
  std::vector<int32_t> ids(slots.size(), -1);
  bool hasTokens = false;
  for (size_t row = 0; row < slots.size(); ++row) {
    if (!slots[row] || isComplete[row] || awaitsPart(row))
      continue;
    const std::vector<int32_t> &prompt = slots[row]->request.prompt;
    int64_t length = sequences.length(int64_t(row));
    forgetFrom(row, length);
    bool isPrompt = length < int64_t(prompt.size());
    ids[row] = isPrompt ? prompt[size_t(length)] : slots[row]->last;
    isComplete[row] = length + 1 >= int64_t(prompt.size());
    hasTokens = true;
  }
  if (hasTokens)
    return sequences.step(ids);
  return {};
}

/// The next token of a request; -1 if there is none, as logits are not finite.
GeneratedToken Scheduler::Slots::take(Slot &slot, int32_t token) {
  using Finish = GeneratedToken::Finish;
  const Request &request = slot.request;
  GeneratedToken result;
  result.request = slot.number;
  result.token = slot.last = token;
  if (token < 0)
    result.finish = Finish::NotFinite;
  else if (std::find(request.ends.begin(), request.ends.end(), token) !=
           request.ends.end())
    result.finish = Finish::End;
  else if (++slot.drawn == request.tokens)
    result.finish = Finish::Length;
  slot.isDone = result.finish != Finish::No;
  return result;
}

GeneratedToken Scheduler::Slots::draw(int64_t row) {
  Slot &slot = *slots[size_t(row)];
  const Request &request = slot.request;
  if (!sequences.isFinite(row))
    return take(slot, -1);
  const float *logits = sequences.logits(row);
  GeneratedToken result =
      take(slot, slot.drawn < int64_t(request.given.size())
                     ? request.given[size_t(slot.drawn)]
                     : slot.sampler.choose(logits, slot.random.uniform()));
  if (request.logprobs >= 0)
    result.logprobs =
        findLogprobs(logits, sequences.vocab(), result.token, request.logprobs);
  return result;
}

/// The steps for which the program can choose the tokens of all requests; 0
/// where one needs the host or waits.
int64_t Scheduler::Slots::countSteps() const {
  int64_t left = 0;
  const Request *first = nullptr;
  for (const std::optional<Slot> &slot : slots) {
    if (!slot || slot->isDone)
      continue;
    const Request &request = slot->request;
    if (!slot->drawn || !request.given.empty() || request.logprobs >= 0 ||
        (first && first->excluded != request.excluded))
      return 0;
    first = &request;
    left = std::max(left, request.tokens - slot->drawn);
  }
  return queue.empty() ? std::min({left, ahead, sequences.stepsAhead()}) : 0;
}

/// Takes as many tokens of each request as there are steps, or up to its end.
Result<std::vector<GeneratedToken>> Scheduler::Slots::stepAhead(int64_t steps) {
  std::vector<uint64_t> requests;
  std::vector<SamplingOptions> options(slots.size(), {/*temperature=*/0});
  std::vector<int32_t> ids(slots.size(), -1), excluded;
  std::vector<double> uniforms(slots.size() * size_t(steps));
  for (size_t row = 0; row < slots.size(); ++row) {
    requests.push_back(slots[row] && !slots[row]->isDone ? slots[row]->number
                                                         : 0);
    if (!requests.back())
      continue;
    const Slot &slot = *slots[row];
    ids[row] = slot.last;
    options[row] = slot.request.sampling;
    excluded = slot.request.excluded;
    PhiloxStream random = slot.random;
    for (int64_t step = 0; step < steps; ++step)
      uniforms[row * size_t(steps) + size_t(step)] = random.uniform();
  }
  if (requests != chosenFor)
    NSA_RETURN_IF_ERROR(sequences.setChoice(options, excluded, /*end=*/-1));
  chosenFor = std::move(requests);
  std::vector<std::vector<int32_t>> chosen;
  auto start = std::chrono::steady_clock::now();
  NSA_RETURN_IF_ERROR(sequences.appendChosen(ids, steps, uniforms, chosen));
  // Who joins waits for as many steps as take little time.
  constexpr std::chrono::milliseconds most(20);
  if (2 * (std::chrono::steady_clock::now() - start) < most)
    ahead = std::min(2 * ahead, sequences.stepsAhead());
  std::vector<GeneratedToken> tokens;
  for (size_t step = 0; step < size_t(steps); ++step)
    for (size_t row = 0; row < slots.size(); ++row)
      if (ids[row] >= 0 && !slots[row]->isDone && step < chosen[row].size()) {
        slots[row]->random.next();
        tokens.push_back(take(*slots[row], chosen[row][step]));
      }
  return tokens;
}

Result<std::vector<GeneratedToken>> Scheduler::Slots::step() {
  NSA_RETURN_IF_ERROR(leave());
  if (int64_t steps = countSteps())
    return stepAhead(steps);
  std::vector<bool> isComplete(slots.size());
  NSA_RETURN_IF_ERROR(join(isComplete));
  NSA_RETURN_IF_ERROR(fillPart(isComplete));
  NSA_RETURN_IF_ERROR(append(isComplete));
  std::vector<GeneratedToken> drawn(slots.size()), tokens;
  threads.forEach(int64_t(slots.size()), [&](int64_t row) {
    if (isComplete[size_t(row)])
      drawn[size_t(row)] = draw(row);
  });
  for (size_t row = 0; row < slots.size(); ++row)
    if (isComplete[row])
      tokens.push_back(std::move(drawn[row]));
  return tokens;
}

//===----------------------------------------------------------------------===//
// For any thread
//===----------------------------------------------------------------------===//

Scheduler::Scheduler(Session &session) : session(session) {}

Scheduler::~Scheduler() = default;

template <typename T, typename Action>
Result<T> Scheduler::use(const Action &action) {
  Result<T> result = T();
  NSA_RETURN_IF_ERROR(
      session.use(session.program().findEntry(training::decodeEntry),
                  [&](Program &) -> Status {
                    result = action();
                    return {};
                  }));
  return result;
}

Result<std::unique_ptr<Scheduler>>
Scheduler::create(Session &session, bool prefills, bool consistent) {
  std::unique_ptr<Scheduler> created(new Scheduler(session));
  NSA_RETURN_IF_ERROR(session.use(nullptr, [&](Program &program) -> Status {
    NSA_ASSIGN_OR_RETURN(Generator generator,
                         Generator::create(program, consistent));
    NSA_ASSIGN_OR_RETURN(
        SamplingThreads threads,
        SamplingThreads::create(generator.batch(), generator.vocab()));
    created->own = std::make_unique<Slots>(std::move(generator),
                                           std::move(threads), prefills);
    return prefills ? Status() : created->own->checkSlots();
  }));
  return created;
}

int64_t Scheduler::slots() const { return own->generator().batch(); }

int64_t Scheduler::context() const { return own->generator().context(); }

int64_t Scheduler::longest() const {
  const PagePool &pool = own->generator().pagePool();
  return pool ? std::min(context(), pool.pages() * pool.pageTokens())
              : context();
}

Result<uint64_t> Scheduler::add(Request request) {
  return use<uint64_t>([&] { return own->add(std::move(request)); });
}

Result<bool> Scheduler::cancel(uint64_t request) {
  return use<bool>([&] { return own->cancel(request); });
}

Result<std::vector<GeneratedToken>> Scheduler::step() {
  return use<std::vector<GeneratedToken>>([&] { return own->step(); });
}

Result<Scheduler::Count> Scheduler::count() {
  return use<Count>([&] { return own->count(); });
}

Result<Selection> Scheduler::selection(uint64_t request) {
  return use<Selection>([&] { return own->selection(request); });
}
