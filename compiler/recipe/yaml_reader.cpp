#include "compiler/recipe/yaml_reader.h"
#include "compiler/recipe/keys.h"
#include "runtime/base/folder.h"
#include "runtime/base/names/glob.h"
#include "runtime/base/url.h"
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace fs = std::filesystem;

namespace cleave::recipe {
namespace {

template <typename Number> bool parseWhole(const std::string &text, Number &value) {
  const char *begin = text.data(), *end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  auto [at, failure] = std::from_chars(begin, end, value);
  return failure == std::errc() && at == end;
}

const char *typeName(const YAML::Node &node) {
  if (node.IsMap()) return "a map";
  if (node.IsSequence()) return "a list";
  return node.IsNull() ? "nothing" : "a value";
}

// A file, what a glob matches, or what the names of a .bin and an .idx begin with.
bool isThere(const std::string &path) {
  std::error_code failure;
  return fs::exists(path, failure) || fs::exists(path + ".idx", failure) || !runtime::matchesOf(path).empty();
}

} // namespace

bool isPlainName(const std::string &name) {
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
         std::string::npos;
}

std::string Source::where(const std::string &key, const YAML::Node &node) const {
  for (std::string prefix = key; !prefix.empty();) {
    if (auto found = overridden.find(prefix); found != overridden.end()) return found->second;
    size_t dot = prefix.rfind('.');
    prefix = dot == std::string::npos ? "" : prefix.substr(0, dot);
  }
  if (!node.IsDefined() || node.Mark().line < 0) return recipe.file;
  return fmt::format("{}:{}", recipe.file, node.Mark().line + 1);
}

MapReader::MapReader(Source &source, std::string path, YAML::Node node)
    : source(source), path(std::move(path)), self(node) {
  if (!self.IsDefined() || self.IsNull()) return;
  if (!self.IsMap())
    throw Fault{fmt::format("{}: {} must be a map of keys and values, is {}", source.where(this->path, self),
                            this->path.empty() ? "the recipe" : "'" + this->path + "'", typeName(self))};
  for (const auto &entry : self) {
    if (!entry.first.IsScalar())
      throw Fault{fmt::format("{}: a key must be a word", source.where(this->path, entry.first))};
    std::string key = entry.first.Scalar();
    if (!entries.emplace(key, entry.second).second)
      throw Fault{fmt::format("{}: the key '{}' is there twice", source.where(dotted(key), entry.first), dotted(key))};
    source.recipe.lines[dotted(key)] = source.where(dotted(key), entry.first);
    if (!entry.second.IsNull()) source.recipe.given.insert(dotted(key));
  }
}

std::vector<std::string> MapReader::keys() const {
  std::vector<std::string> result;
  if (self.IsMap())
    for (const auto &entry : self) result.push_back(entry.first.Scalar());
  return result;
}

YAML::Node MapReader::node(const std::string &key) {
  if (asked.insert(key).second) {
    if (!isKey(dotted(key))) throw Fault{fmt::format("the recipe's key '{}' is in no table of keys", dotted(key))};
    known.push_back(key);
  }
  auto found = entries.find(key);
  return found == entries.end() ? YAML::Node(YAML::NodeType::Undefined) : found->second;
}

bool MapReader::has(const std::string &key) {
  YAML::Node value = node(key);
  return value.IsDefined() && !value.IsNull();
}

bool MapReader::isNull(const std::string &key) {
  YAML::Node value = node(key);
  return value.IsDefined() && value.IsNull();
}

bool MapReader::isEmpty(const std::string &key) {
  return !has(key) || (node(key).IsScalar() && node(key).Scalar().empty()) ||
         (node(key).IsSequence() && node(key).size() == 0);
}

void MapReader::fail(const std::string &key, const std::string &message) { throw Fault{where(key) + ": " + message}; }

std::string MapReader::scalar(const std::string &key, const char *expected) {
  YAML::Node value = node(key);
  if (!value.IsScalar()) fail(key, fmt::format("'{}' must be {}, is {}", dotted(key), expected, typeName(value)));
  return value.Scalar();
}

void MapReader::read(const std::string &key, double &value, const Rule &rule) {
  if (!has(key)) return;
  std::string given = scalar(key, "a number");
  if (!parseWhole(given, value) || !std::isfinite(value))
    fail(key, fmt::format("'{}' must be a number, is '{}'", dotted(key), given));
  if (!rule.range.has(value))
    fail(key, fmt::format("'{}' must be {}, is {}", dotted(key), describe(rule.range), given));
}

void MapReader::read(const std::string &key, int64_t &value, const Rule &rule) {
  if (!has(key)) return;
  std::string given = scalar(key, "a whole number");
  if (!parseWhole(given, value)) fail(key, fmt::format("'{}' must be a whole number, is '{}'", dotted(key), given));
  if (!rule.range.has(static_cast<double>(value)))
    fail(key, fmt::format("'{}' must be {}, is {}", dotted(key), describe(rule.range), given));
}

void MapReader::read(const std::string &key, bool &value, const Rule &) {
  if (!has(key)) return;
  std::string given = scalar(key, "true or false");
  if (given != "true" && given != "false")
    fail(key, fmt::format("'{}' must be true or false, is '{}'", dotted(key), given));
  value = given == "true";
}

void MapReader::read(const std::string &key, std::string &value, const Rule &rule) {
  if (!has(key)) return;
  value = scalar(key, "a text");
  if (!isOneOf(rule.words, value)) unknownWord(key, value, splitWords(rule.words));
}

void MapReader::read(const std::string &key, std::vector<std::string> &value, const Rule &rule) {
  if (!has(key)) return;
  if (rule.takesOne && node(key).IsScalar()) return void(value = {node(key).Scalar()});
  YAML::Node list = node(key);
  if (!list.IsSequence())
    fail(key, fmt::format("'{}' must be a list, is {}; write [...]", dotted(key), typeName(list)));
  value.clear();
  for (const auto &entry : list) {
    if (!entry.IsScalar())
      throw Fault{fmt::format("{}: '{}' must list texts, one is {}", source.where(dotted(key), entry), dotted(key),
                              typeName(entry))};
    value.push_back(entry.Scalar());
  }
}

void MapReader::read(const std::string &key, std::vector<int64_t> &value, const Rule &) {
  std::vector<std::string> given;
  read(key, given);
  if (!has(key)) return;
  value.clear();
  for (const std::string &text : given)
    if (!parseWhole(text, value.emplace_back()))
      fail(key, fmt::format("'{}' must list whole numbers, one is '{}'", dotted(key), text));
}

void MapReader::read(const std::string &key, std::vector<double> &value, const Rule &rule) {
  std::vector<std::string> given;
  read(key, given, rule);
  if (!has(key)) return;
  value.clear();
  for (const std::string &text : given)
    if (!parseWhole(text, value.emplace_back()) || !std::isfinite(value.back()) || !rule.range.has(value.back()))
      fail(key, fmt::format("'{}' must list numbers{}{}, one is '{}'", dotted(key),
                            describe(rule.range).empty() ? "" : " ", describe(rule.range), text));
}

namespace {

// Words of PyTorch and of other trainers for what a recipe calls otherwise, or does not have.
const std::map<std::string, std::string> &otherWords() {
  static const std::map<std::string, std::string> words = {
      {"cross_entropy", "PyTorch's cross_entropy is softmax_cross_entropy"},
      {"crossentropyloss", "PyTorch's CrossEntropyLoss is softmax_cross_entropy"},
      {"nll_loss", "PyTorch's nll_loss is nll"},
      {"nllloss", "PyTorch's NLLLoss is nll"},
      {"mse_loss", "PyTorch's mse_loss is mse"},
      {"mseloss", "PyTorch's MSELoss is mse"},
      {"l1_loss", "PyTorch's l1_loss is l1"},
      {"smooth_l1", "PyTorch's smooth_l1_loss is huber, at beta = delta = 1"},
      {"smooth_l1_loss", "PyTorch's smooth_l1_loss is huber, at beta = delta = 1"},
      {"binary_cross_entropy", "PyTorch's binary_cross_entropy is bce"},
      {"binary_cross_entropy_with_logits", "PyTorch's binary_cross_entropy_with_logits is bce_with_logits"},
      {"bcewithlogitsloss", "PyTorch's BCEWithLogitsLoss is bce_with_logits"},
      {"kldivloss", "PyTorch's KLDivLoss is kl_div"},
      {"ctcloss", "PyTorch's CTCLoss is ctc"},
      {"ctc_loss", "PyTorch's ctc_loss is ctc"},
      {"triplet_margin", "PyTorch's TripletMarginLoss is triplet"},
      {"triplet_margin_loss", "PyTorch's triplet_margin_loss is triplet"},
      {"tripletmarginloss", "PyTorch's TripletMarginLoss is triplet"},
      {"cosineembeddingloss", "PyTorch's CosineEmbeddingLoss is cosine_embedding"},
      {"marginrankingloss", "PyTorch's MarginRankingLoss is margin_ranking"},
      {"hingeembeddingloss", "PyTorch's HingeEmbeddingLoss is hinge_embedding"},
      {"multimarginloss", "PyTorch's MultiMarginLoss is multi_margin"},
      {"optimizer.learning_rate", "the rate is optimizer.lr"},
      {"optimizer.beta1", "both are in optimizer.betas: [0.9, 0.999]"},
      {"optimizer.max_grad_norm", "gradients are clipped by clip_norm, beside optimizer"},
      {"gradient_accumulation_steps", "accumulate gradients with --microbatches N"},
      {"data.drop_last", "the key is data.last_batch: drop, or smaller"},
      {"batch_size", "the global batch is dims: {batch: N}"},
      {"rampup_batch_size", "a batch that grows is ramp: [{until: STEP, batch: N}]"},
      {"batch_ramp", "a batch that grows is ramp: [{until: STEP, batch: N}]"},
      {"curriculum", "samples that grow are ramp: [{until: STEP, seq: N}], with the name that dims has"},
  };
  return words;
}

// "" where nothing is known of the word; `dotted`: with the key that it stands in.
std::string hintOf(const std::string &word, const std::string &dotted) {
  std::string lower = word;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  for (const std::string &name : {dotted, lower})
    if (const auto known = otherWords().find(name); known != otherWords().end()) return known->second;
  return "";
}

} // namespace

void MapReader::unknownWord(const std::string &key, const std::string &given, const std::vector<std::string> &known) {
  if (const std::string hint = hintOf(given, ""); !hint.empty())
    fail(key, fmt::format("'{}' cannot be '{}'; {}", dotted(key), given, hint));
  std::string nearest = names::nearest(given, known);
  fail(key, fmt::format("'{}' cannot be '{}'; {}it is one of: {}", dotted(key), given,
                        nearest.empty() ? "" : "did you mean '" + nearest + "'? ", fmt::join(known, ", ")));
}

MapReader MapReader::map(const std::string &key) { return MapReader(source, dotted(key), node(key)); }

std::vector<MapReader> MapReader::list(const std::string &key, const Rule &rule) {
  std::vector<MapReader> entries;
  if (!has(key)) return entries;
  if (!node(key).IsSequence())
    fail(key, fmt::format("'{}' must be a list of maps such as {}", dotted(key), rule.example));
  for (const auto &entry : node(key)) entries.emplace_back(source, dotted(key), entry);
  return entries;
}

std::string MapReader::absolute(const std::string &path) const {
  if (path.empty() || runtime::isUrl(path) || fs::path(path).is_absolute()) return path;
  std::error_code failure;
  fs::path here = fs::absolute(path, failure).lexically_normal();
  if (source.path.empty()) return here.string();
  fs::path beside = (fs::absolute(source.path, failure).parent_path() / path).lexically_normal();
  return isThere(beside) || !isThere(here) ? beside.string() : here.string();
}

void MapReader::checkUses(const std::string &kind, const std::string &except) {
  for (const std::string &key : keys())
    if (std::string fault = useFault(dotted(key), kind); !fault.empty() && key != except && has(key)) fail(key, fault);
}

void MapReader::finish() {
  if (!self.IsMap()) return;
  for (const auto &entry : self) {
    std::string key = entry.first.Scalar();
    if (asked.count(key)) continue;
    const std::string nearest = names::nearest(key, known), hint = hintOf(key, dotted(key));
    throw Fault{fmt::format("{}: unknown key '{}'; {}", source.where(dotted(key), entry.first), dotted(key),
                            !hint.empty()     ? hint
                            : nearest.empty() ? fmt::format("known here: {}", fmt::join(known, ", "))
                                              : "did you mean '" + nearest + "'?")};
  }
}

} // namespace cleave::recipe
