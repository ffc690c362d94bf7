//===- DataModule.cpp - data sets in nsa._runtime -------------------------===//

#include "lib/Python/DataModule.h"
#include "lib/Python/Errors.h"
#include "lib/Support/Hash.h"
#include "nsa/Runtime/TokenShards.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>

namespace py = pybind11;

using namespace nsa;

namespace {

using Lengths =
    py::array_t<uint64_t, py::array::c_style | py::array::forcecast>;

/// Appends documents whose tokens are a dense row of the writer's width.
void append(TokenShardsWriter &writer, const std::string &split,
            const py::array &ids, const Lengths &lengths) {
  char kind = ids.dtype().kind();
  bool isRow = ids.ndim() == 1 && (ids.flags() & py::array::c_style);
  if (!isRow || kind != 'u' || size_t(ids.itemsize()) != writer.tokenBytes())
    throw PythonError(kInputError, "tokens must be one dense row of uint" +
                                       std::to_string(8 * writer.tokenBytes()));
  Status status;
  {
    py::gil_scoped_release release;
    status = writer.append(split, ids.data(), uint64_t(ids.size()),
                           lengths.data(), size_t(lengths.size()));
  }
  check(status, kInputError);
}

void finish(TokenShardsWriter &writer, const std::string &kind,
            const std::string &tool, int64_t endOfText,
            std::vector<std::pair<std::string, std::string>> options,
            std::vector<std::pair<std::string, uint64_t>> counts,
            uint64_t sourceDigest) {
  Status status;
  {
    py::gil_scoped_release release;
    status = writer.finish({kind, tool, endOfText, std::move(options),
                            std::move(counts), sourceDigest});
  }
  check(status, kInputError);
}

py::array_t<int32_t> readTokens(const TokenShards &shards,
                                const std::string &split, uint64_t position,
                                uint64_t count) {
  uint64_t size = take(shards.size(split), kInputError);
  // Allocates for tokens that exist only.
  py::array_t<int32_t> out(static_cast<py::ssize_t>(std::min(count, size)));
  int32_t *tokens = out.mutable_data();
  Status status;
  {
    py::gil_scoped_release release;
    status = shards.read(split, position, count, tokens);
  }
  check(status, kInputError);
  return out;
}

py::array_t<uint64_t> documents(const TokenShards &shards,
                                const std::string &split) {
  std::vector<uint64_t> starts = take(shards.documents(split), kInputError);
  return py::array_t<uint64_t>(static_cast<py::ssize_t>(starts.size()),
                               starts.data());
}

py::list tokenBytes(const py::bytes &text, const std::string &name) {
  py::list result;
  for (const std::string &bytes :
       take(readTokenBytes(std::string(text), name), kInputError).bytes)
    result.append(py::bytes(bytes));
  return result;
}

std::pair<bool, std::string> tokenizerTraits(const py::bytes &text,
                                             const std::string &name) {
  TokenBytes found = take(readTokenBytes(std::string(text), name), kInputError);
  return {found.addsBlank, found.changes};
}

} // namespace

void nsa::defineData(py::module_ &m) {
  py::class_<TokenShardsWriter>(m, "ShardWriter", "Writes a data set.")
      .def(py::init([](const std::string &directory, bool overwrite,
                       int64_t vocabulary, uint64_t tokensPerShard) {
             return take(TokenShardsWriter::create(directory, overwrite,
                                                   vocabulary, tokensPerShard),
                         kInputError);
           }),
           py::arg("directory"), py::arg("overwrite"), py::arg("vocabulary"),
           py::arg("tokens_per_shard"))
      .def("append", &append, py::arg("split"), py::arg("ids"),
           py::arg("lengths"))
      .def(
          "set_tokenizer",
          [](TokenShardsWriter &writer, const py::bytes &text) {
            check(writer.setTokenizer(std::string_view(text)), kInputError);
          },
          py::arg("text"))
      .def("finish", &finish, py::kw_only(), py::arg("kind"), py::arg("tool"),
           py::arg("end_of_text"), py::arg("options"), py::arg("counts"),
           py::arg("source_digest"))
      .def_property_readonly("token_bytes", &TokenShardsWriter::tokenBytes);
  py::class_<TokenShards>(m, "Shards",
                          "A data set: token shards with their manifest.")
      .def(py::init([](const std::string &directory) {
             return take(TokenShards::open(directory), kInputError);
           }),
           py::arg("directory"))
      .def("read", &readTokens, py::arg("split"), py::arg("position"),
           py::arg("count"))
      .def("documents", &documents, py::arg("split"))
      .def(
          "size",
          [](const TokenShards &shards, const std::string &split) {
            return take(shards.size(split), kInputError);
          },
          py::arg("split"))
      .def(
          "verify",
          [](const TokenShards &shards) {
            check(shards.verify(), kInputError);
          },
          py::call_guard<py::gil_scoped_release>(),
          "Compares every file with its hash in the manifest, and every token "
          "with the vocabulary.")
      .def_property_readonly("vocabulary", &TokenShards::vocabSize)
      .def_property_readonly("end_of_text", &TokenShards::endOfText)
      .def_property_readonly("kind", &TokenShards::kind)
      .def_property_readonly(
          "tokenizer",
          [](const TokenShards &shards) {
            return py::bytes(take(shards.tokenizer(), kInputError));
          },
          "The text of its tokenizer.json; empty if it has none.");
  m.def("token_bytes", &tokenBytes, py::arg("text"), py::arg("name"),
        "What each token of a tokenizer.json stands for: [bytes], empty for "
        "those that are special.");
  m.def("tokenizer_traits", &tokenizerTraits, py::arg("text"), py::arg("name"),
        "Whether a space is put before each text, and how texts are "
        "changed before they become tokens, or nothing.");
  m.def(
      "hash64",
      [](const py::bytes &data) { return hashBytes(std::string_view(data)); },
      py::arg("data"), "The XXH3-64 of bytes.");
}
