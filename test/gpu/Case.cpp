//===- Case.cpp - what an entry of a module must give ---------------------===//

#include "test/gpu/Case.h"

#include <limits>
#include <sstream>

using namespace nsa;
using namespace nsa::test;
using reference::Tensor;

static void writeTensor(std::ostream &out, const Tensor &tensor) {
  out << ' ' << tensor.rank();
  for (int64_t size : tensor.shape)
    out << ' ' << size;
  out << '\n';
  std::vector<float> elements(tensor.data.begin(), tensor.data.end());
  out.write(reinterpret_cast<const char *>(elements.data()),
            static_cast<std::streamsize>(elements.size() * sizeof(float)));
  out << '\n';
}

static Tensor readTensor(std::istream &in) {
  size_t rank = 0;
  if (!(in >> rank) || rank > 8)
    in.setstate(std::ios::failbit);
  std::vector<int64_t> shape(in ? rank : 0);
  size_t count = 1;
  for (int64_t &size : shape) {
    if (!(in >> size) || size < 0 || size > (1 << 24))
      in.setstate(std::ios::failbit);
    count *= in ? static_cast<size_t>(size) : 0;
  }
  in.ignore(1);
  if (!in || count > (1 << 26)) {
    in.setstate(std::ios::failbit);
    return {};
  }
  std::vector<float> elements(count);
  in.read(reinterpret_cast<char *>(elements.data()),
          static_cast<std::streamsize>(count * sizeof(float)));
  Tensor tensor(shape);
  tensor.data.assign(elements.begin(), elements.end());
  return tensor;
}

std::string nsa::test::writeCases(const std::vector<Case> &cases) {
  std::ostringstream out;
  out.precision(std::numeric_limits<double>::max_digits10);
  for (const Case &c : cases) {
    out << "entry " << c.entry << ' ' << c.arguments.size() << ' '
        << c.results.size() << '\n';
    for (const CaseArgument &argument : c.arguments) {
      out << argument.name << ' ' << argument.isShared;
      writeTensor(out, argument.value);
    }
    for (const CaseResult &result : c.results) {
      out << result.name << ' ' << result.argument << ' ' << result.tolerance;
      writeTensor(out, result.value);
    }
  }
  return out.str();
}

Result<std::vector<Case>> nsa::test::readCases(const std::string &bytes) {
  std::vector<Case> cases;
  std::istringstream in(bytes);
  for (std::string word; in >> word;) {
    Case c;
    size_t arguments = 0, results = 0;
    if (word != "entry" || !(in >> c.entry >> arguments >> results))
      return Error{"no case of an entry where one should be"};
    for (size_t i = 0; i < arguments && in; ++i) {
      CaseArgument argument;
      in >> argument.name >> argument.isShared;
      argument.value = readTensor(in);
      c.arguments.push_back(std::move(argument));
    }
    for (size_t i = 0; i < results && in; ++i) {
      CaseResult result;
      in >> result.name >> result.argument >> result.tolerance;
      result.value = readTensor(in);
      if (result.argument >= static_cast<int64_t>(arguments))
        return Error{"a result of @" + c.entry + " updates no argument"};
      c.results.push_back(std::move(result));
    }
    if (!in)
      return Error{"the case of @" + c.entry + " ends early"};
    cases.push_back(std::move(c));
  }
  if (cases.empty())
    return Error{"no cases"};
  return cases;
}
