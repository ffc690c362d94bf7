//===- DecodeCheck.cpp - decoding beside whole sequences ------------------===//

#include "DecodePrograms.h"
#include "lib/Support/Files.h"
#include "nsa/Runtime/Weights.h"

#include <cmath>
#include <cstring>
#include <random>
#include <sstream>
#include <vector>

using namespace nsa;
using namespace nsa::test;

//===----------------------------------------------------------------------===//
// Logits
//===----------------------------------------------------------------------===//

namespace {
/// A sequence whose first `prompt` tokens were given.
struct Sequence {
  std::vector<int32_t> ids;
  size_t prompt = 0;
};

/// How far logits are from those of the reference.
struct LogitError {
  double most = 0, squares = 0, largest = 0;
  size_t agreeing = 0, rows = 0;

  void add(const float *logits, const float *reference, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      double gap = std::fabs(double(logits[i]) - double(reference[i]));
      // A NaN must not pass.
      most = gap <= most ? most : gap;
      squares += gap * gap;
      largest = std::max(largest, std::fabs(double(reference[i])));
    }
    ++rows;
    agreeing += std::max_element(logits, logits + count) - logits ==
                std::max_element(reference, reference + count) - reference;
  }
  void print(const char *name) const {
    std::printf("%s: largest error %.3e, root of squares %.3e, %zu of %zu "
                "likeliest tokens equal\n",
                name, most, std::sqrt(squares), agreeing, rows);
  }
};
} // namespace

static std::vector<Sequence> drawSequences(size_t count, size_t length,
                                           size_t vocab) {
  std::vector<Sequence> sequences(count);
  std::mt19937 random(3);
  for (Sequence &sequence : sequences) {
    sequence.prompt = length;
    for (size_t i = 0; i < length; ++i)
      sequence.ids.push_back(int32_t(random() % vocab));
  }
  return sequences;
}

static std::vector<Sequence> readSequences(const char *path, size_t count,
                                           size_t length) {
  std::vector<Sequence> sequences;
  std::istringstream lines(take(readFile(path)));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Sequence sequence;
    for (std::string word; words >> word;)
      if (word == "|")
        sequence.prompt = sequence.ids.size();
      else
        sequence.ids.push_back(int32_t(std::stol(word)));
    if (sequence.ids.size() > length || sequence.prompt == 0)
      fail(std::string(path) + ": a line has no prompt, or more than " +
           std::to_string(length) + " tokens");
    sequences.push_back(std::move(sequence));
  }
  if (sequences.size() != count)
    fail(std::string(path) + " has " + std::to_string(sequences.size()) +
         " sequences, expected " + std::to_string(count));
  return sequences;
}

static Program openWith(const char *path, const Weights *weights) {
  Program program = open(path);
  if (!weights)
    return program;
  if (Status status = weights->load(program); !status)
    fail(status.message());
  if (program.findEntry(training::prepareEntry))
    run(program, training::prepareEntry);
  return program;
}

/// Runs the whole sequences; the logits [sequences, length, vocab].
static const float *runForward(Program &program,
                               const std::vector<Sequence> &sequences) {
  TensorView tokens = view(program, training::tokensInput);
  std::fill_n(tokens.as<int32_t>(), tokens.elements(), 0);
  for (size_t b = 0; b < sequences.size(); ++b)
    std::copy(sequences[b].ids.begin(), sequences[b].ids.end(),
              tokens.as<int32_t>() + b * tokens.shape[1]);
  run(program, training::forwardEntry);
  return numbers(view(program, training::logitsOutput));
}

/// How far tokens that were continued with are from the likeliest ones.
static double findGap(const std::vector<Sequence> &sequences,
                      const float *logits, size_t length, size_t vocab) {
  double gap = 0;
  for (size_t b = 0; b < sequences.size(); ++b)
    for (size_t t = sequences[b].prompt; t < sequences[b].ids.size(); ++t) {
      const float *row = logits + (b * length + t - 1) * vocab;
      double own = row[sequences[b].ids[t]];
      gap = std::max(gap, *std::max_element(row, row + vocab) - own);
    }
  return gap;
}

int nsa::test::checkLogits(int count, const char *const *arguments) {
  std::optional<Weights> weights;
  if (count > 3)
    weights.emplace(take(Weights::open(arguments[3])));
  const Weights *given = weights ? &*weights : nullptr;
  Program reference = openWith(arguments[0], given),
          forward = openWith(arguments[1], given),
          decode = openWith(arguments[2], given);
  TensorView expected = view(reference, training::logitsOutput),
             next = view(decode, training::nextLogitsOutput),
             token = view(decode, training::tokenInput),
             positions = view(decode, training::positionsInput);
  size_t batch = expected.shape[0], length = expected.shape[1],
         vocab = expected.shape[2];
  std::vector<Sequence> sequences =
      count > 4 ? readSequences(arguments[4], batch, length)
                : drawSequences(batch, length, vocab);
  const float *rows = runForward(reference, sequences),
              *whole = runForward(forward, sequences);
  LogitError ofForward, ofDecode;
  for (size_t t = 0; t < length; ++t) {
    for (size_t b = 0; b < batch; ++b) {
      bool has = t < sequences[b].ids.size();
      token.as<int32_t>()[b] = has ? sequences[b].ids[t] : 0;
      positions.as<int32_t>()[b] = has ? int32_t(t) : -1;
    }
    run(decode, training::decodeEntry);
    for (size_t b = 0; b < batch; ++b) {
      if (t >= sequences[b].ids.size())
        continue;
      size_t row = (b * length + t) * vocab;
      ofForward.add(whole + row, rows + row, vocab);
      ofDecode.add(numbers(next) + b * vocab, rows + row, vocab);
    }
  }
  ofForward.print("forward");
  ofDecode.print("decode");
  double most = 2 * ofForward.most, squares = 4 * ofForward.squares;
  if (std::strcmp(arguments[0], arguments[1]) == 0) {
    most = 1e-4 * ofDecode.largest;
    squares = most * most * double(ofDecode.rows * vocab);
  }
  double gap = findGap(sequences, rows, length, vocab);
  if (count > 4)
    std::printf("the reference has continuations at most %.3e below its "
                "likeliest tokens\n",
                gap);
  // Either logit may be as far off.
  bool isGood = ofDecode.most <= most && ofDecode.squares <= squares &&
                gap <= 2 * most && ofDecode.rows > 0;
  std::printf("%s\n", isGood ? "passed" : "FAILED");
  return isGood ? 0 : 1;
}

//===----------------------------------------------------------------------===//
// Selected blocks
//===----------------------------------------------------------------------===//

namespace {
/// The model of test/gpu/generate.py, whose tokens are those of block `id /
/// idsPerBlock` alone: a logit is positive where the head reads its block.
class BlockModel {
public:
  static constexpr int64_t block = 32, stride = 16, selected = 64, width = 64,
                           listed = 4, idsPerBlock = 16;

  BlockModel(Program &program, const std::vector<Sequence> &sequences);

  int64_t heads() const { return numHeads; }
  int64_t group() const { return numHeads / keyHeads; }
  int64_t count() const { return numBlocks; }
  /// The scores of blocks for a token and the heads of a group.
  std::vector<double> scores(size_t sequence, int64_t token,
                             int64_t keyHead) const;

private:
  std::vector<float> read(Program &program, const char *name) const;

  std::vector<float> queries, keys;
  const std::vector<Sequence> &sequences;
  int64_t numHeads = 0, keyHeads = 0, numBlocks = 0;
};
} // namespace

std::vector<float> BlockModel::read(Program &program, const char *name) const {
  TensorView tensor = view(program, name);
  if (Status status = program.toHost(tensor); !status)
    fail(status.message());
  return {numbers(tensor), numbers(tensor) + tensor.elements()};
}

BlockModel::BlockModel(Program &program, const std::vector<Sequence> &sequences)
    : queries(read(program, "queries")), keys(read(program, "keys")),
      sequences(sequences) {
  TensorView table = view(program, "queries");
  numHeads = int64_t(table.shape[1]) / width;
  keyHeads = int64_t(view(program, "keys").shape[1]) / width;
  numBlocks = int64_t(table.shape[0]) / idsPerBlock;
}

/// SEMANTICS.md 6, in fp64.
std::vector<double> BlockModel::scores(size_t sequence, int64_t token,
                                       int64_t keyHead) const {
  const std::vector<int32_t> &ids = sequences[sequence].ids;
  int64_t rows = token < block - 1 ? 0 : (token - block + 1) / stride + 1;
  std::vector<double> sums(size_t(rows), 0.0),
      result(size_t(token / selected + 1), 0.0);
  for (int64_t head = keyHead * group(); head < (keyHead + 1) * group();
       ++head) {
    const float *query =
        queries.data() + (ids[size_t(token)] * numHeads + head) * width;
    std::vector<double> weights;
    double all = 0;
    for (int64_t row = 0; row < rows; ++row) {
      double product = 0;
      for (int64_t i = row * stride; i < row * stride + block; ++i)
        for (int64_t c = 0; c < width; ++c)
          product +=
              double(query[c]) *
              keys[size_t((ids[size_t(i)] * keyHeads + keyHead) * width + c)];
      weights.push_back(std::exp(product / block / std::sqrt(double(width))));
      all += weights.back();
    }
    for (int64_t row = 0; row < rows; ++row)
      sums[size_t(row)] += weights[size_t(row)] / all;
  }
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t j = 0; j < int64_t(result.size()); ++j) {
      int64_t begin = std::max(row * stride, j * selected),
              end = std::min(row * stride + block, (j + 1) * selected);
      result[size_t(j)] += double(std::max<int64_t>(end - begin, 0)) / stride *
                           sums[size_t(row)];
    }
  return result;
}

/// Tokens of block j have the ids of block j.
static std::vector<Sequence> drawBlockSequences(size_t count, size_t length) {
  std::vector<Sequence> sequences(count);
  std::mt19937 random(4);
  for (Sequence &sequence : sequences)
    for (size_t i = 0; i < length; ++i)
      sequence.ids.push_back(
          int32_t(i / BlockModel::selected * BlockModel::idsPerBlock +
                  random() % BlockModel::idsPerBlock));
  return sequences;
}

namespace {
/// Lists of blocks that were compared, and the largest gap of scores, relative
/// to their sum, by which they differ.
struct BlockGaps {
  size_t lists = 0, differing = 0, wrong = 0;
  double gap = 0;

  /// Of one head: a logit for each block.
  void add(const BlockModel &model, const float *one, const float *other,
           size_t sequence, int64_t token, int64_t head);
};
} // namespace

void BlockGaps::add(const BlockModel &model, const float *one,
                    const float *other, size_t sequence, int64_t token,
                    int64_t head) {
  ++lists;
  std::vector<int64_t> onlyOne, onlyOther;
  int64_t listed = 0;
  for (int64_t j = 0; j < model.count(); ++j) {
    listed += one[j] > 0;
    if ((one[j] > 0) != (other[j] > 0))
      (one[j] > 0 ? onlyOne : onlyOther).push_back(j);
  }
  wrong +=
      listed != std::min(BlockModel::listed, token / BlockModel::selected + 1);
  if (onlyOne.empty() && onlyOther.empty())
    return;
  ++differing;
  wrong += onlyOne.size() != onlyOther.size();
  std::vector<double> scores =
      model.scores(sequence, token, head / model.group());
  double all = 0;
  for (double score : scores)
    all += score;
  for (int64_t i : onlyOne)
    for (int64_t j : onlyOther)
      if (std::max(i, j) < int64_t(scores.size()))
        gap = std::max(gap,
                       std::fabs(scores[size_t(i)] - scores[size_t(j)]) / all);
      else
        ++wrong;
}

int nsa::test::checkBlocks(const char *const *paths) {
  Program forward = open(paths[0]), decode = open(paths[1]);
  TensorView logits = view(forward, training::logitsOutput),
             next = view(decode, training::nextLogitsOutput),
             token = view(decode, training::tokenInput);
  size_t batch = logits.shape[0], length = logits.shape[1],
         vocab = logits.shape[2];
  std::vector<Sequence> sequences = drawBlockSequences(batch, length);
  // One-hot values.
  for (Program *program : {&forward, &decode}) {
    TensorView values = view(*program, "values");
    auto ids = int64_t(values.shape[0]), cols = int64_t(values.shape[1]);
    for (int64_t id = 0; id < ids; ++id)
      for (int64_t c = 0; c < cols; ++c)
        values.as<float>()[id * cols + c] =
            float(c % BlockModel::width == id / BlockModel::idsPerBlock);
    if (Status status = program->toDevice(values); !status)
      fail(status.message());
    if (program->findEntry(training::prepareEntry))
      run(*program, training::prepareEntry);
  }
  BlockModel model(forward, sequences);
  const float *rows = runForward(forward, sequences);
  BlockGaps gaps;
  for (size_t t = 0; t < length; ++t) {
    for (size_t b = 0; b < batch; ++b)
      token.as<int32_t>()[b] = sequences[b].ids[t];
    setPositions(decode, int64_t(t));
    run(decode, training::decodeEntry);
    for (size_t b = 0; b < batch; ++b)
      for (int64_t head = 0; head < model.heads(); head += model.group())
        gaps.add(model,
                 rows + (b * length + t) * vocab + head * BlockModel::width,
                 numbers(next) + b * vocab + head * BlockModel::width, b,
                 int64_t(t), head);
  }
  // What rounding in 16 bits, or the order of sums in fp32, leaves open.
  double tolerance = std::strstr(paths[0], "fp32") ? 1e-5 : 1e-2;
  std::printf(
      "%zu of %zu lists of blocks differ, by scores at most %.1e of all "
      "apart\n",
      gaps.differing, gaps.lists, gaps.gap);
  bool isGood = gaps.lists > 0 && gaps.wrong == 0 && gaps.gap <= tolerance &&
                gaps.differing * 10 < gaps.lists;
  std::printf("%s\n", isGood ? "passed" : "FAILED");
  return isGood ? 0 : 1;
}
