//===- ConfigReader.cpp - strict YAML to RunConfig ------------------------===//

#include "lib/Support/Config.h"
#include "lib/Support/Files.h"
#include "lib/Support/Stages.h"
#include "lib/Support/Suggest.h"
#include "lib/Support/Text.h"

#include <libfyaml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>

using namespace nsa;

namespace {

/// Where a value stands in the file, 1-based.
struct Position {
  int line = 0;
  int column = 0;
};

struct DocumentDeleter {
  void operator()(fy_document *document) const {
    fy_document_destroy(document);
  }
};
struct DiagDeleter {
  void operator()(fy_diag *diag) const { fy_diag_destroy(diag); }
};

/// Reads one document into a configuration.
class Reader {
public:
  Reader(const std::string &text, const std::string &name)
      : text(text), name(name) {}

  Status read(RunConfig &config);

  /// Makes the stages that were read, once all other keys have their values.
  /// `hasSteps` says that train.steps was given one.
  Status fillStages(RunConfig &config, bool hasSteps) const;

  /// The message of a conflict, which starts with a key's path, with the
  /// position of that key put before it.
  Error locate(const std::string &message) const;

  bool isGiven(const std::string &path) const {
    return positions.count(path) != 0;
  }

private:
  Error at(Position position, const std::string &message) const {
    return Error{name + ":" + std::to_string(position.line) + ":" +
                 std::to_string(position.column) + ": " + oneLine(message)};
  }
  Position position(fy_node *node) const;
  Status checkText() const;
  Status checkDocuments() const;
  Status checkPlain(fy_node *node, Position otherwise) const;
  Status readSection(fy_node *key, fy_node *value, RunConfig &config);
  Status readField(const std::string &section, fy_node *key, fy_node *value,
                   RunConfig &config);
  Status readStages(fy_node *key, fy_node *value);
  Status readStage(fy_node *stage, Position otherwise);

  /// A value that a stage gives a key.
  struct StageValue {
    const ConfigField *field;
    std::string text;
    Position place;
  };

  const std::string &text;
  std::string name;
  std::vector<std::vector<StageValue>> stages;
  std::map<std::string, Position> positions;
};

} // namespace

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

static std::string number(double value) {
  std::ostringstream stream;
  stream.precision(12);
  stream << value;
  return stream.str();
}

static Status checkRange(const ConfigField &field, double value,
                         const std::string &text) {
  if (value < field.minimum)
    return Error{field.path() + " (" + text + ") must be at least " +
                 number(field.minimum)};
  if (value > field.maximum)
    return Error{field.path() + " (" + text + ") must be at most " +
                 number(field.maximum)};
  return {};
}

static Status setInt(const ConfigField &field, const std::string &text,
                     int64_t &out) {
  errno = 0;
  char *end = nullptr;
  long long value = std::strtoll(text.c_str(), &end, 10);
  bool digits = !text.empty() && !std::isspace((unsigned char)text[0]);
  if (!digits || *end != '\0' || errno == ERANGE)
    return Error{field.path() + " must be an integer, not " + quote(text)};
  out = value;
  return checkRange(field, static_cast<double>(value), text);
}

static Status setFloat(const ConfigField &field, const std::string &text,
                       double &out) {
  errno = 0;
  char *end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  bool hex = text.find_first_of("xX") != std::string::npos;
  bool digits = !text.empty() && !std::isspace((unsigned char)text[0]);
  if (!digits || hex || *end != '\0')
    return Error{field.path() + " must be a number, not " + quote(text)};
  if (!std::isfinite(value))
    return Error{field.path() + " must be finite, not " + quote(text)};
  out = value;
  return checkRange(field, value, text);
}

static Status setString(const ConfigField &field, const std::string &text,
                        std::string &out) {
  const std::vector<std::string> &choices = field.choices;
  if (!choices.empty() &&
      std::find(choices.begin(), choices.end(), text) == choices.end()) {
    std::string list;
    for (const std::string &choice : choices)
      list += (list.empty() ? "" : ", ") + choice;
    return Error{field.path() + " must be one of " + list + ", not " +
                 quote(text) + suggestion(text, choices)};
  }
  for (size_t i = 0, length; i < text.size(); i += length) {
    length = utf8Length(&text[i], text.size() - i);
    if (length == 0)
      return Error{field.path() + " must be UTF-8 text, not " + quote(text)};
  }
  out = text;
  return {};
}

static Status setBool(const ConfigField &field, const std::string &text,
                      bool &out) {
  if (text != "true" && text != "false")
    return Error{field.path() + " must be true or false, not " + quote(text)};
  out = text == "true";
  return {};
}

/// Gives the field a value from its text. `quoted` says that the text stood in
/// quotes, which only strings may.
static Status setField(const ConfigField &field, const std::string &text,
                       bool quoted, RunConfig &config) {
  if (auto *access = std::get_if<ConfigField::StringAccess>(&field.access))
    return setString(field, text, (*access)(config));
  auto *flag = std::get_if<ConfigField::BoolAccess>(&field.access);
  if (quoted)
    return Error{field.path() + " must be " +
                 (flag ? "true or false" : "a number") + ", not the string " +
                 quote(text)};
  if (flag)
    return setBool(field, text, (*flag)(config));
  if (auto *access = std::get_if<ConfigField::IntAccess>(&field.access))
    return setInt(field, text, (*access)(config));
  return setFloat(field, text,
                  std::get<ConfigField::FloatAccess>(field.access)(config));
}

static const ConfigField *findField(const std::string &section,
                                    const std::string &key) {
  for (const ConfigField &field : configSchema())
    if (field.section == section && field.key == key)
      return &field;
  return nullptr;
}

/// The message for a section that does not exist; empty for one that does.
static std::string unknownSection(const std::string &section) {
  std::vector<std::string> names;
  for (const ConfigField &field : configSchema())
    if (names.empty() || names.back() != field.section)
      names.push_back(field.section);
  if (std::find(names.begin(), names.end(), section) != names.end())
    return "";
  return "unknown section " + quote(section) + suggestion(section, names);
}

/// The message for a key that does not exist: the closest key of its section,
/// or the section in which the key does exist.
static std::string unknownKey(const std::string &section,
                              const std::string &key) {
  std::vector<std::string> keys;
  for (const ConfigField &field : configSchema()) {
    if (field.section == section)
      keys.push_back(field.key);
    else if (field.key == key)
      return "unknown key " + quote(key) + " in " + quote(section) +
             "; it belongs to " + quote(field.section);
  }
  return "unknown key " + quote(key) + " in " + quote(section) +
         suggestion(key, keys);
}

//===----------------------------------------------------------------------===//
// The document
//===----------------------------------------------------------------------===//

static bool isQuoted(fy_node *node) {
  fy_node_style style = fy_node_get_style(node);
  return style == FYNS_SINGLE_QUOTED || style == FYNS_DOUBLE_QUOTED;
}

Position Reader::position(fy_node *node) const {
  Position result{1, 1};
  fy_token *token = node ? fy_node_get_scalar_token(node) : nullptr;
  if (const fy_mark *mark = token ? fy_token_start_mark(token) : nullptr)
    result = {mark->line + 1, mark->column + 1};
  // The mark of a quoted scalar stands after its quote.
  if (node && isQuoted(node))
    --result.column;
  return result;
}

/// Refuses what would need more than a look at the node. A node without a
/// position of its own is at `otherwise`.
Status Reader::checkPlain(fy_node *node, Position otherwise) const {
  if (!node)
    return {};
  Position here = fy_node_is_scalar(node) ? position(node) : otherwise;
  if (fy_node_is_alias(node))
    return at(here, "aliases ('*') are not supported");
  if (fy_node_get_anchor(node))
    return at(here, "anchors ('&') are not supported");
  if (fy_node_get_tag_token(node))
    return at(here, "tags ('!') are not supported");
  return {};
}

static std::string scalarText(fy_node *node) {
  size_t length = 0;
  const char *data = fy_node_get_scalar(node, &length);
  return data ? std::string(data, length) : std::string();
}

Status Reader::readField(const std::string &section, fy_node *key,
                         fy_node *value, RunConfig &config) {
  for (fy_node *node : {key, value})
    NSA_RETURN_IF_ERROR(checkPlain(node, position(key)));
  std::string keyText = scalarText(key);
  const ConfigField *field = findField(section, keyText);
  if (!field)
    return at(position(key), unknownKey(section, keyText));
  if (!positions.emplace(field->path(), position(key)).second)
    return at(position(key), "duplicate key " + quote(field->path()));
  if (!value || !fy_node_is_scalar(value))
    return at(position(key), field->path() + " must be a single value");
  bool quoted = isQuoted(value);
  std::string text = scalarText(value);
  if (text.empty() && !quoted)
    return at(position(key), field->path() + " has no value");
  if (Status status = setField(*field, text, quoted, config); !status)
    return at(position(value), status.message());
  return {};
}

Status Reader::readSection(fy_node *key, fy_node *value, RunConfig &config) {
  for (fy_node *node : {key, value})
    NSA_RETURN_IF_ERROR(checkPlain(node, position(key)));
  std::string section = scalarText(key);
  if (section == "stages")
    return readStages(key, value);
  if (std::string message = unknownSection(section); !message.empty())
    return at(position(key), message);
  if (!positions.emplace(section, position(key)).second)
    return at(position(key), "duplicate section " + quote(section));
  if (!value || !fy_node_is_mapping(value))
    return at(position(key), "section " + quote(section) +
                                 " must be a mapping of keys to values");
  void *iterator = nullptr;
  while (fy_node_pair *pair = fy_node_mapping_iterate(value, &iterator)) {
    fy_node *field = fy_node_pair_key(pair);
    if (!field || !fy_node_is_scalar(field))
      return at(position(key), "a key must be a plain word");
    NSA_RETURN_IF_ERROR(
        readField(section, field, fy_node_pair_value(pair), config));
  }
  return {};
}

/// One mapping of the list of stages.
Status Reader::readStage(fy_node *stage, Position otherwise) {
  NSA_RETURN_IF_ERROR(checkPlain(stage, otherwise));
  std::string name = "stage " + std::to_string(stages.size() + 1);
  if (!stage || !fy_node_is_mapping(stage))
    return at(otherwise, name + " must be a mapping of keys to values");
  std::vector<std::string> names;
  for (const StageKey &key : stageKeys())
    names.push_back(key.name);
  std::vector<StageValue> &values = stages.emplace_back();
  void *iterator = nullptr;
  while (fy_node_pair *pair = fy_node_mapping_iterate(stage, &iterator)) {
    fy_node *key = fy_node_pair_key(pair), *value = fy_node_pair_value(pair);
    if (!key || !fy_node_is_scalar(key))
      return at(otherwise, "a key must be a plain word");
    for (fy_node *node : {key, value})
      NSA_RETURN_IF_ERROR(checkPlain(node, position(key)));
    std::string keyText = scalarText(key);
    auto found = std::find(names.begin(), names.end(), keyText);
    if (found == names.end())
      return at(position(key), "unknown key " + quote(keyText) + " of " + name +
                                   suggestion(keyText, names));
    if (!value || !fy_node_is_scalar(value) || isQuoted(value))
      return at(position(key), quote(keyText) + " must be a number");
    std::string path = stageKeys()[size_t(found - names.begin())].path;
    const ConfigField *field = findField(path.substr(0, path.find('.')),
                                         path.substr(path.find('.') + 1));
    auto isSame = [&](const StageValue &other) { return other.field == field; };
    if (std::any_of(values.begin(), values.end(), isSame))
      return at(position(key),
                "duplicate key " + quote(keyText) + " of " + name);
    values.push_back({field, scalarText(value), position(key)});
  }
  auto isSteps = [](const StageValue &value) {
    return value.field->path() == "train.steps";
  };
  if (std::none_of(values.begin(), values.end(), isSteps))
    return at(values.empty() ? otherwise : values.front().place,
              name + " has no steps");
  return {};
}

Status Reader::readStages(fy_node *key, fy_node *value) {
  if (!positions.emplace("stages", position(key)).second)
    return at(position(key), "duplicate section 'stages'");
  int count = fy_node_sequence_item_count(value);
  if (!value || !fy_node_is_sequence(value) || count == 0)
    return at(position(key),
              "section 'stages' must be a list of stages, at least one");
  constexpr int most = 100;
  if (count > most)
    return at(position(key), "section 'stages' has " + std::to_string(count) +
                                 " stages, at most " + std::to_string(most) +
                                 " are supported");
  void *iterator = nullptr;
  while (fy_node *stage = fy_node_sequence_iterate(value, &iterator))
    NSA_RETURN_IF_ERROR(readStage(stage, position(key)));
  return {};
}

/// Gives the configuration its stages, whose keys that are not given have the
/// values of the stage before, and the values of the first one.
Status Reader::fillStages(RunConfig &config, bool hasSteps) const {
  if (stages.empty())
    return {};
  RunConfig current = config;
  int64_t steps = 0;
  for (const std::vector<StageValue> &stage : stages) {
    for (const StageValue &value : stage)
      if (Status status =
              setField(*value.field, value.text, /*quoted=*/false, current);
          !status)
        return at(value.place, "stage " +
                                   std::to_string(config.stages.size() + 1) +
                                   ": " + status.message());
    config.stages.push_back(getStage(current));
    if (__builtin_add_overflow(steps, current.train.steps, &steps))
      return at(stage.front().place, "the stages have too many steps together");
  }
  if (hasSteps && steps != config.train.steps)
    return locate("train.steps: steps (" + std::to_string(config.train.steps) +
                  ") must be those of all stages together (" +
                  std::to_string(steps) + "), or left out");
  config.train.steps = steps;
  applyStage(config, 0);
  return {};
}

static std::string hexByte(unsigned char byte) {
  return formatted("0x%02X", byte);
}

/// Whether a key that is marked as one (`? key`) begins at `i`; `before` is the
/// character before it that is no blank, 0 at the start of a line.
static bool beginsExplicitKey(const std::string &text, size_t i, char before) {
  if (text[i] != '?' || (before && !std::strchr(":-?,[{", before)))
    return false;
  return i + 1 == text.size() || std::strchr(" \t\r\n", text[i + 1]);
}

/// Refuses what the YAML library does not survive: it hangs on directives that
/// are no text, and reads what it has freed after some explicit keys.
Status Reader::checkText() const {
  const std::string byteOrderMark = "\xEF\xBB\xBF";
  Position here{1, 1};
  bool lineBegins = true;
  char before = 0;
  for (size_t i = 0, length; i < text.size(); i += length) {
    length = utf8Length(&text[i], text.size() - i);
    auto c = static_cast<unsigned char>(text[i]);
    bool isBreak = c == '\n' || c == '\r';
    if (length == 0)
      return at(here, "byte " + hexByte(c) + " is not UTF-8 text");
    if ((c < ' ' && c != '\t' && !isBreak) || c == 0x7F)
      return at(here, "character " + hexByte(c) + " is not allowed");
    if (c == '%' && lineBegins)
      return at(here, "YAML directives are not supported");
    if (beginsExplicitKey(text, i, before))
      return at(here, "explicit keys ('?') are not supported");
    if (isBreak)
      before = 0;
    else if (c != ' ' && c != '\t')
      before = text[i];
    lineBegins =
        isBreak || (i == 0 && text.compare(0, length, byteOrderMark) == 0);
    bool ends = isBreak && text.compare(i, 2, "\r\n") != 0;
    here = ends ? Position{here.line + 1, 1}
                : Position{here.line, here.column + !isBreak};
  }
  return {};
}

/// Whether a line begins with a marker of documents, `---` or `...`.
static bool isMarker(const std::string &line, const char *marker) {
  return line.compare(0, 3, marker) == 0 &&
         (line.size() == 3 || std::strchr(" \t\r", line[3]));
}

/// Refuses a second document, of which the YAML library says nothing.
Status Reader::checkDocuments() const {
  bool begun = false, ended = false;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    size_t first = line.find_first_not_of(" \t\r");
    bool isEmpty = first == std::string::npos || line[first] == '#';
    bool begins = isMarker(line, "---");
    if ((begins && begun) || (ended && !isEmpty && !isMarker(line, "...")))
      return at({number, 1}, "a second document ('---') is not supported");
    begun |= begins || !isEmpty;
    ended |= isMarker(line, "...");
  }
  return {};
}

Status Reader::read(RunConfig &config) {
  NSA_RETURN_IF_ERROR(checkText());
  NSA_RETURN_IF_ERROR(checkDocuments());
  fy_diag_cfg diagConfig;
  fy_diag_cfg_default(&diagConfig);
  diagConfig.fp = nullptr;
  diagConfig.output_fn = [](fy_diag *, void *, const char *, size_t) {};
  std::unique_ptr<fy_diag, DiagDeleter> diag(fy_diag_create(&diagConfig));
  fy_diag_set_collect_errors(diag.get(), true);
  fy_parse_cfg parseConfig = {};
  // Duplicate keys are reported by this reader, with the key's name.
  parseConfig.flags =
      static_cast<fy_parse_cfg_flags>(FYPCF_QUIET | FYPCF_ALLOW_DUPLICATE_KEYS);
  parseConfig.diag = diag.get();
  std::unique_ptr<fy_document, DocumentDeleter> document(
      fy_document_build_from_string(&parseConfig, text.data(), text.size()));
  if (!document) {
    void *iterator = nullptr;
    if (fy_diag_error *error = fy_diag_errors_iterate(diag.get(), &iterator))
      return at({error->line, error->column},
                shortened(error->msg, 2 * kMostQuoted));
    return at({1, 1}, "a configuration is a mapping of sections");
  }
  fy_node *root = fy_document_root(document.get());
  NSA_RETURN_IF_ERROR(checkPlain(root, {1, 1}));
  if (!root || !fy_node_is_mapping(root))
    return at({1, 1}, "a configuration is a mapping of sections");
  void *iterator = nullptr;
  while (fy_node_pair *pair = fy_node_mapping_iterate(root, &iterator)) {
    fy_node *key = fy_node_pair_key(pair);
    if (!key || !fy_node_is_scalar(key))
      return at({1, 1}, "a section must be a plain word");
    NSA_RETURN_IF_ERROR(readSection(key, fy_node_pair_value(pair), config));
  }
  return {};
}

Error Reader::locate(const std::string &message) const {
  auto found = positions.find(message.substr(0, message.find(':')));
  if (found == positions.end())
    return Error{name + ": " + message};
  return at(found->second, message);
}

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

static Status applyOverride(const std::string &text, RunConfig &config) {
  auto fail = [&](const std::string &message) {
    return Error{oneLine("override " + quote(text) + ": " + message)};
  };
  size_t equals = text.find('=');
  size_t dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals)
    return fail("must have the form section.key=value");
  std::string section = text.substr(0, dot);
  std::string key = text.substr(dot + 1, equals - dot - 1);
  if (std::string message = unknownSection(section); !message.empty())
    return fail(message);
  const ConfigField *field = findField(section, key);
  if (!field)
    return fail(unknownKey(section, key));
  Status status =
      setField(*field, text.substr(equals + 1), /*quoted=*/false, config);
  if (!status)
    return fail(status.message());
  return {};
}

/// Whether the passes of a step are those that batch_size and micro_batch give.
static bool followsBatch(int64_t passes, int64_t batch, int64_t micro) {
  return batch % micro == 0 && passes == batch / micro;
}

/// Whether they are in the configuration and all its stages.
static bool followsBatches(const RunConfig &config) {
  int64_t passes = config.train.accumulateGradBatches;
  return followsBatch(passes, config.train.batchSize,
                      config.train.microBatch) &&
         std::all_of(config.stages.begin(), config.stages.end(),
                     [&](const StageConfig &stage) {
                       return followsBatch(passes, stage.batchSize,
                                           stage.microBatch);
                     });
}

Result<RunConfig> nsa::parseModelConfig(const std::string &text,
                                        const std::string &name) {
  return parseConfig(text, name, {"data.tokenizer=shards"});
}

Result<RunConfig> nsa::parseConfig(const std::string &text,
                                   const std::string &name,
                                   const std::vector<std::string> &overrides) {
  RunConfig config;
  Reader reader(text, name);
  NSA_RETURN_IF_ERROR(reader.read(config));
  bool follows = followsBatches(config);
  for (const std::string &override : overrides)
    NSA_RETURN_IF_ERROR(applyOverride(override, config));
  auto isOverridden = [&](const std::string &path) {
    auto sets = [&](const std::string &text) {
      return text.compare(0, path.size() + 1, path + "=") == 0;
    };
    return std::any_of(overrides.begin(), overrides.end(), sets);
  };
  auto isGiven = [&](const std::string &path) {
    return reader.isGiven(path) || isOverridden(path);
  };
  NSA_RETURN_IF_ERROR(reader.fillStages(config, isGiven("train.steps")));
  // What followed in the file follows where a later level changes the batch.
  if (follows && !isOverridden("train.accumulate_grad_batches") &&
      !followsBatches(config))
    config.train.accumulateGradBatches = 0;
  if (Status status = validateConfig(config, isGiven); !status)
    return reader.locate(status.message());
  return config;
}

Result<std::string> nsa::readConfigText(const std::string &path) {
  // A configuration has a few thousand bytes.
  constexpr uint64_t mostBytes = 1 << 20;
  Result<std::string> text = readFile(path, mostBytes);
  if (text)
    return text;
  std::string named = "'" + path + "': ";
  size_t at = text.message().find(named);
  return Error{
      path + ": cannot read the configuration: " +
      text.message().substr(at == std::string::npos ? 0 : at + named.size())};
}

Result<RunConfig> nsa::loadConfig(const std::string &path,
                                  const std::vector<std::string> &overrides) {
  NSA_ASSIGN_OR_RETURN(std::string text, readConfigText(path));
  return parseConfig(text, path, overrides);
}
