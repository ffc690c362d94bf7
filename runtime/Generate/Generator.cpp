//===- Generator.cpp - sequences that grow by a token ---------------------===//

#include "runtime/Generate/Generator.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/CPU/Convert.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

using namespace nsa;

/// Of a fraction, as programs read it.
static constexpr int digits = training::fractionDigits;

Result<Generator> Generator::create(Program &program, bool consistent) {
  Generator generator(program);
  NSA_RETURN_IF_ERROR(generator.bind());
  generator.isConsistent = consistent;
  if (consistent && !generator.partEntry)
    return Error{program.artifact().name() + " has no entry " +
                 quote(training::prefillPartEntry) +
                 ", which computes consistent tokens: nsa-compile "
                 "--prefill-chunk N makes it"};
  NSA_RETURN_IF_ERROR(generator.bindPages());
  NSA_RETURN_IF_ERROR(generator.bindParts());
  NSA_RETURN_IF_ERROR(generator.bindNext());
  if (const EntryInfo *prepare = program.findEntry(training::prepareEntry))
    NSA_RETURN_IF_ERROR(program.run(*prepare));
  return generator;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// Without a branch for each, which a step has thousands of.
static bool areFinite(const float *numbers, int64_t count) {
  unsigned most = 0;
  for (int64_t i = 0; i < count; ++i) {
    unsigned bits = 0;
    std::memcpy(&bits, &numbers[i], sizeof bits);
    most = std::max(most, bits & 0x7FFFFFFFU);
  }
  constexpr unsigned infinity = 0x7F800000;
  return most < infinity;
}

Error Generator::notFinite(int64_t row) const {
  return Error{"the logits of sequence " + std::to_string(row + 1) +
               " are not finite after " + std::to_string(lengths[size_t(row)]) +
               " tokens"};
}

/// Copies logits that an entry has just left, those of row `source`.
void Generator::keepLogits(int64_t row, const TensorView &view,
                           int64_t source) {
  float *kept = keptLogits.data() + row * tokens;
  for (int64_t id = 0; id < tokens; ++id)
    kept[id] = float(elementAt(view.type, view.data, source * tokens + id));
  lastLogits[size_t(row)] = kept;
}

/// The logits that an entry has just left for a sequence.
void Generator::takeLogits(int64_t row) {
  if (nextLogits.type == DataType::F32)
    lastLogits[size_t(row)] = nextLogits.as<float>() + row * tokens;
  else
    keepLogits(row, nextLogits, row);
  checkLogits(row);
}

void Generator::checkLogits(int64_t row) {
  finite[size_t(row)] = areFinite(logits(row), tokens);
  if (!finite[size_t(row)])
    unclean[size_t(row)] = true;
}

Status Generator::checkFinite() const {
  for (int64_t row = 0; row < rows; ++row)
    if (positions.as<int32_t>()[row] >= 0 && !isFinite(row))
      return notFinite(row);
  return {};
}

/// What an entry has just left for the last tokens of a sequence.
void Generator::takeSelection(int64_t row,
                              const std::vector<TensorView> &layers,
                              int64_t source, int64_t count) {
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const TensorView &view = layers[layer];
    auto heads = int64_t(view.shape[1]), all = int64_t(view.shape[2]),
         blocks = int64_t(view.shape[3]);
    std::vector<int32_t> &own = selected[size_t(row)][layer];
    own.resize(size_t((lengths[size_t(row)] - count) * heads * blocks));
    for (int64_t at = 0; at < count; ++at)
      for (int64_t head = 0; head < heads; ++head) {
        const int32_t *list =
            view.as<int32_t>() + ((source * heads + head) * all + at) * blocks;
        own.insert(own.end(), list, list + blocks);
        // No block, -1, comes last.
        std::sort(own.end() - blocks, own.end(), [](int32_t a, int32_t b) {
          return uint32_t(a) < uint32_t(b);
        });
      }
  }
}

Selection Generator::selection(int64_t sequence) const {
  Selection result;
  if (stepSelection.empty())
    return result;
  const auto &own = selected[size_t(sequence)];
  result.layers = int64_t(own.size());
  result.heads = int64_t(stepSelection[0].shape[1]);
  result.count = int64_t(stepSelection[0].shape[3]);
  result.tokens = int64_t(own[0].size()) / (result.heads * result.count);
  for (const std::vector<int32_t> &layer : own)
    for (int64_t head = 0; head < result.heads; ++head)
      for (int64_t at = 0; at < result.tokens; ++at) {
        auto list = layer.begin() + (at * result.heads + head) * result.count;
        result.blocks.insert(result.blocks.end(), list, list + result.count);
      }
  return result;
}

Status Generator::run(const EntryInfo &entry) {
  for (int64_t row = 0; row < rows; ++row) {
    float *kept = keptLogits.data() + row * tokens;
    if (positions.as<int32_t>()[row] < 0 && lastLogits[size_t(row)] != kept) {
      std::copy_n(lastLogits[size_t(row)], tokens, kept);
      lastLogits[size_t(row)] = kept;
    }
  }
  NSA_RETURN_IF_ERROR(model->run(entry));
  for (int64_t row = 0; row < rows; ++row) {
    int64_t last = positions.as<int32_t>()[row];
    if (last < 0)
      continue;
    takeLogits(row);
    if (&entry == prefillEntry)
      takeSelection(row, promptSelection, row, last + 1);
    else
      takeSelection(row, stepSelection, row, 1);
  }
  return {};
}

Status Generator::fill(const std::vector<std::vector<int32_t>> &prompts) {
  std::fill_n(promptTokens.as<int32_t>(), rows * promptLength, 0);
  std::fill_n(positions.as<int32_t>(), rows, -1);
  for (size_t row = 0; row < prompts.size(); ++row) {
    int64_t count =
        std::min<int64_t>(int64_t(prompts[row].size()), promptLength);
    std::copy_n(prompts[row].begin(), count,
                promptTokens.as<int32_t>() + int64_t(row) * promptLength);
    positions.as<int32_t>()[row] = int32_t(count - 1);
    if (count)
      lengths[row] = count;
  }
  return run(*prefillEntry);
}

Status Generator::fillPart(int64_t sequence,
                           const std::vector<int32_t> &prompt) {
  int64_t &length = lengths[size_t(sequence)];
  int64_t count = std::min(promptLength, int64_t(prompt.size()) - length);
  tails[size_t(sequence)].assign(prompt.begin() + length,
                                 prompt.begin() + length + count);
  length += count;
  return runPart(sequence);
}

Status Generator::runPart(int64_t sequence) {
  const std::vector<int32_t> &tail = tails[size_t(sequence)];
  auto count = int64_t(tail.size()), length = lengths[size_t(sequence)];
  std::fill_n(promptTokens.as<int32_t>(), promptLength, 0);
  std::copy_n(tail.begin(), count, promptTokens.as<int32_t>());
  part.at.as<int32_t>()[0] = int32_t(sequence);
  part.at.as<int32_t>()[1] = int32_t(length - count);
  if (pool)
    part.position.as<int32_t>()[1] = int32_t(length - count);
  *part.last.as<int32_t>() = int32_t(length - 1);
  NSA_RETURN_IF_ERROR(model->run(*partEntry));
  keepLogits(sequence, part.logits, 0);
  checkLogits(sequence);
  takeSelection(sequence, promptSelection, 0, count);
  return {};
}

Status Generator::copyPrefix(int64_t from, int64_t to, int64_t count) {
  if (from != to && pool)
    pool.share(from, to, count);
  if (from != to && copyEntry) {
    part.from.as<int32_t>()[0] = int32_t(from);
    part.at.as<int32_t>()[0] = int32_t(to);
    part.from.as<int32_t>()[1] = part.at.as<int32_t>()[1] = 0;
    *part.last.as<int32_t>() = int32_t(count - 1);
    NSA_RETURN_IF_ERROR(model->run(*copyEntry));
  }
  selected[size_t(to)] = selected[size_t(from)];
  for (size_t layer = 0; layer < stepSelection.size(); ++layer)
    selected[size_t(to)][layer].resize(
        size_t(count * int64_t(stepSelection[layer].shape[1] *
                               stepSelection[layer].shape[3])));
  lengths[size_t(to)] = count;
  return {};
}

Status Generator::check(const std::string &name,
                        const std::vector<int32_t> &prompt) const {
  if (prompt.empty())
    return Error{name + " is empty: it needs at least one token"};
  if (int64_t(prompt.size()) > limit)
    return Error{name + " has " + std::to_string(prompt.size()) +
                 " tokens, more than the context of " + std::to_string(limit)};
  for (int32_t id : prompt)
    if (id < 0 || id >= tokens)
      return Error{name + " has the id " + std::to_string(id) +
                   ", expected 0 to " + std::to_string(tokens - 1)};
  return {};
}

int64_t Generator::prefixStep() const {
  return pool ? std::lcm(promptLength, pool.pageTokens()) : promptLength;
}

/// Masked rows count nothing if they are finite: 0 times NaN is none.
Status Generator::clean(int64_t sequence) {
  auto zero = [](const TensorView &view, int64_t number) {
    uint64_t bytes = view.bytes / view.shape[0];
    std::memset(static_cast<char *>(view.data) + uint64_t(number) * bytes, 0,
                bytes);
  };
  for (const TensorView &view : rowCaches) {
    NSA_RETURN_IF_ERROR(model->toHost(view));
    zero(view, sequence);
    NSA_RETURN_IF_ERROR(model->toDevice(view));
  }
  for (const TensorView &view : pageCaches) {
    NSA_RETURN_IF_ERROR(model->toHost(view));
    for (const int32_t *page = pool.begin(sequence); page != pool.end(sequence);
         ++page)
      if (!pool.isShared(*page))
        zero(view, *page - 1);
    NSA_RETURN_IF_ERROR(model->toDevice(view));
  }
  unclean[size_t(sequence)] = false;
  return {};
}

Status Generator::clear(int64_t sequence, int64_t kept) {
  lengths[size_t(sequence)] = 0;
  if (unclean[size_t(sequence)])
    NSA_RETURN_IF_ERROR(clean(sequence));
  if (pool)
    pool.shrink(sequence, kept);
  return {};
}

bool Generator::isWorthPrefill(int64_t tokens) const {
  // All weights are read once for all tokens of a prefill, and once for each
  // step: as many steps take about as long.
  constexpr int64_t stepsOfPrefill = 16;
  if (isConsistent)
    return tokens > 0;
  return promptLength && tokens * stepsOfPrefill >= promptLength;
}

/// Gives each of so many sequences the pages of a context.
Status Generator::givePages(int64_t sequences) {
  if (!pool)
    return {};
  int64_t needed = sequences * pool.pagesOf(limit);
  if (needed > pool.free())
    return Error{std::to_string(sequences) + " sequences of a context of " +
                 std::to_string(limit) + " tokens take " +
                 std::to_string(needed) + " pages of " +
                 std::to_string(pool.pageTokens()) +
                 " tokens, the program has " + std::to_string(pool.pages())};
  for (int64_t row = 0; row < sequences; ++row)
    pool.grow(row, limit);
  return {};
}

Status Generator::prefill(const std::vector<std::vector<int32_t>> &prompts) {
  if (prompts.empty() || int64_t(prompts.size()) > rows)
    return Error{std::to_string(prompts.size()) + " prompts, expected 1 to " +
                 std::to_string(rows)};
  size_t longest = 0;
  for (size_t row = 0; row < prompts.size(); ++row) {
    NSA_RETURN_IF_ERROR(
        check("prompt " + std::to_string(row + 1), prompts[row]));
    longest = std::max(longest, prompts[row].size());
  }
  for (int64_t row = 0; row < rows; ++row)
    NSA_RETURN_IF_ERROR(clear(row));
  NSA_RETURN_IF_ERROR(givePages(int64_t(prompts.size())));
  if (takesParts()) {
    for (size_t row = 0; row < prompts.size(); ++row)
      while (isWorthPrefill(int64_t(prompts[row].size()) - lengths[row]))
        NSA_RETURN_IF_ERROR(fillPart(int64_t(row), prompts[row]));
  } else if (isWorthPrefill(int64_t(longest))) {
    NSA_RETURN_IF_ERROR(fill(prompts));
    NSA_RETURN_IF_ERROR(checkFinite());
  }
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  for (;;) {
    bool isDone = true;
    for (size_t row = 0; row < size_t(rows); ++row) {
      bool has =
          row < prompts.size() && lengths[row] < int64_t(prompts[row].size());
      ids[row] = has ? prompts[row][size_t(lengths[row])] : -1;
      isDone &= !has;
    }
    if (isDone)
      return {};
    NSA_RETURN_IF_ERROR(append(ids));
  }
}

/// What a step appends, and where.
Status Generator::placeTokens(const std::vector<int32_t> &ids,
                              const TensorView &token,
                              const TensorView &positions) {
  for (size_t row = 0; row < size_t(rows); ++row) {
    bool has = row < ids.size() && ids[row] >= 0;
    if (has && ids[row] >= tokens)
      return Error{"the id " + std::to_string(ids[row]) +
                   " is no token, expected 0 to " + std::to_string(tokens - 1)};
    if (has && lengths[row] == limit)
      return Error{"sequence " + std::to_string(row + 1) +
                   " is full: the context has " + std::to_string(limit) +
                   " tokens"};
    token.as<int32_t>()[row] = has ? ids[row] : 0;
    positions.as<int32_t>()[row] = has ? int32_t(lengths[row]++) : -1;
  }
  return {};
}

Status Generator::step(const std::vector<int32_t> &ids) {
  NSA_RETURN_IF_ERROR(placeTokens(ids, token, positions));
  if (!isConsistent)
    return run(*decodeEntry);
  // The part that each token is in, again: of one shape and place, whose rows
  // do not depend on the padding after it.
  for (int64_t row = 0; row < rows; ++row) {
    int64_t position = positions.as<int32_t>()[row];
    if (position < 0)
      continue;
    std::vector<int32_t> &tail = tails[size_t(row)];
    tail.resize(size_t(position % promptLength));
    tail.push_back(token.as<int32_t>()[row]);
    NSA_RETURN_IF_ERROR(runPart(row));
  }
  return {};
}

Status Generator::append(const std::vector<int32_t> &ids) {
  NSA_RETURN_IF_ERROR(step(ids));
  return checkFinite();
}

//===----------------------------------------------------------------------===//
// Tokens that the program chooses
//===----------------------------------------------------------------------===//

int64_t Generator::stepsAhead() const {
  // What each step selected, the host takes.
  return nextEntry && stepSelection.empty() && !isConsistent
             ? int64_t(next.ids.shape[1])
             : 0;
}

Status Generator::setChoice(const std::vector<SamplingOptions> &options,
                            const std::vector<int32_t> &excluded, int64_t end) {
  std::fill_n(next.bias.as<float>(), tokens, 0.0f);
  for (int32_t id : excluded)
    next.bias.as<float>()[id] = -std::numeric_limits<float>::infinity();
  *next.end.as<int32_t>() = int32_t(end);
  draws = false;
  std::fill_n(next.inverse.as<float>(), rows, 0.0f);
  for (size_t row = 0; row < options.size(); ++row) {
    DrawParameters own(options[row]);
    draws |= own.inverse > 0;
    next.inverse.as<float>()[row] = own.inverse;
    next.topK.as<int32_t>()[row] = int32_t(std::min(own.topK, tokens));
    splitFraction(own.topP, next.topP.as<int32_t>() + digits * int64_t(row));
  }
  for (const TensorView &state :
       {next.bias, next.end, next.inverse, next.topK, next.topP})
    NSA_RETURN_IF_ERROR(model->toDevice(state));
  return {};
}

/// What the steps have chosen for a sequence: all of it but the last token is
/// appended.
std::vector<int32_t> Generator::takeChosen(int64_t row, int64_t steps) {
  int64_t &length = lengths[size_t(row)], kept = int64_t(next.ids.shape[1]);
  std::vector<int32_t> chosen;
  for (;; ++length) {
    int32_t id = next.ids.as<int32_t>()[row * kept + length % kept];
    chosen.push_back(id);
    if (int64_t(chosen.size()) == steps || id < 0 ||
        id == *next.end.as<int32_t>() || length == limit)
      return chosen;
  }
}

Status Generator::appendChosen(const std::vector<int32_t> &ids, int64_t steps,
                               const std::vector<double> &uniforms,
                               std::vector<std::vector<int32_t>> &chosen) {
  int64_t kept = nextEntry ? int64_t(next.ids.shape[1]) : 0;
  if (steps < 1 || steps > kept)
    return Error{std::to_string(steps) + " steps, expected 1 to " +
                 std::to_string(kept)};
  NSA_RETURN_IF_ERROR(placeTokens(ids, next.token, next.positions));
  for (int64_t row = 0; draws && row < int64_t(ids.size()); ++row)
    for (int64_t step = 0; step < steps; ++step)
      splitFraction(
          toFraction(uniforms[size_t(row * steps + step)]),
          next.uniforms.as<int32_t>() +
              digits * (row * kept + (lengths[size_t(row)] + step) % kept));
  NSA_RETURN_IF_ERROR(model->toDevice(next.token));
  NSA_RETURN_IF_ERROR(model->toDevice(next.positions));
  if (draws)
    NSA_RETURN_IF_ERROR(model->toDevice(next.uniforms));
  for (int64_t step = 0; step < steps; ++step)
    NSA_RETURN_IF_ERROR(model->start(*nextEntry));
  NSA_RETURN_IF_ERROR(model->finish(*nextEntry));
  NSA_RETURN_IF_ERROR(model->toHost(next.ids));
  chosen.assign(size_t(rows), {});
  for (size_t row = 0; row < ids.size(); ++row)
    if (ids[row] >= 0)
      chosen[row] = takeChosen(int64_t(row), steps);
  return {};
}
