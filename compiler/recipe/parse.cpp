#include "compiler/recipe/schema.h"
#include "runtime/base/names/yaml_end.h"
#include <filesystem>
#include <fstream>
#include <sstream>

namespace cleave::recipe {
namespace {

// Puts "optimizer.lr=1e-3" into the tree.
void applyOverride(YAML::Node root, const std::string &text, Source &source) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw Fault{fmt::format("--set {}: must be KEY=VALUE, such as optimizer.lr=1e-3", text)};
  std::string key = text.substr(0, equals);
  source.overridden[key] = "--set " + text;
  YAML::Node value = YAML::Load(text.substr(equals + 1));
  std::vector<std::string> parts;
  std::stringstream split(key);
  for (std::string part; std::getline(split, part, '.');) parts.push_back(part);
  YAML::Node at = root;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (at.IsDefined() && !at.IsNull() && !at.IsMap())
      throw Fault{fmt::format("--set {}: '{}' is not a map in the recipe", text, parts[i - 1])};
    // Symbolic dimensions may hold dots: the rest of the key is one name.
    if (i == 1 && parts[0] == "dims") break;
    YAML::Node next = at[parts[i]];
    if (!next.IsDefined() || next.IsNull()) at[parts[i]] = YAML::Node(YAML::NodeType::Map);
    at.reset(at[parts[i]]);
  }
  if (at.IsDefined() && !at.IsNull() && !at.IsMap())
    throw Fault{fmt::format("--set {}: '{}' is one value in the recipe, not a map", text, key)};
  std::string last = parts.size() > 1 && parts[0] == "dims" ? key.substr(5) : parts.empty() ? key : parts.back();
  at[last] = value;
}

// `path`: of the file that the text is from; "": of none.
Result<Recipe> parse(const std::string &text, const std::string &name, const std::string &path,
                     const std::vector<std::string> &overrides) {
  Recipe recipe;
  recipe.file = name;
  Source source{recipe, path, {}};
  try {
    YAML::Node root = YAML::Load(text);
    if (auto line = names::lineBehindFirst(text))
      throw Fault{fmt::format("{}:{}: more stands behind the end of the recipe", name, *line + 1)};
    if (root.IsNull()) root = YAML::Node(YAML::NodeType::Map);
    if (root.IsMap())
      for (const std::string &override : overrides) applyOverride(root, override, source);
    readMap(MapReader(source, "", root), Schema<Recipe>::of, recipe);
    return recipe;
  } catch (const Fault &fault) {
    return inputError(fault.message);
  } catch (const YAML::Exception &error) {
    return inputError(error.mark.is_null()
                          ? fmt::format("{}: {}", name, error.msg)
                          : fmt::format("{}:{}: is not YAML: {}", name, error.mark.line + 1, error.msg));
  }
}

} // namespace

std::string Recipe::at(const std::string &key) const {
  for (std::string prefix = key; !prefix.empty();) {
    if (auto found = lines.find(prefix); found != lines.end()) return found->second;
    size_t dot = prefix.rfind('.');
    prefix = dot == std::string::npos ? "" : prefix.substr(0, dot);
  }
  return file;
}

std::string Recipe::resolved() const {
  MapWriter writer(*this);
  writeKeys(writer, Schema<Recipe>::of, *this);
  return writer.finish();
}

std::string Recipe::dataYaml() const {
  if (!data) return "";
  MapWriter writer(*this);
  writeKeys(writer, Schema<Data>::of, *data);
  return writer.finish();
}

std::string Recipe::evalYaml() const {
  if (!eval) return "";
  MapWriter writer(*this, true);
  writeKeys(writer, Schema<Eval>::of, *eval);
  return writer.finish();
}

size_t outputsOf(LossKind kind) {
  if (kind == LossKind::Triplet) return 3;
  return kind == LossKind::CosineEmbedding || kind == LossKind::MarginRanking ? 2 : 1;
}

const char *lowElement(Precision kind) {
  const bool isBrain = kind == Precision::Bf16 || kind == Precision::Fp8;
  return isBrain ? "bf16" : kind == Precision::Fp16 ? "f16" : "";
}

bool allowsLibraryAttention(const Recipe &recipe) {
  return recipe.attention != Attention::Written && *lowElement(recipe.precision) != '\0';
}

std::string toString(const Metric &metric) {
  return metric.kind == MetricKind::TopK ? "top_" + std::to_string(metric.k) : toString(metric.kind);
}

Result<Recipe> parseRecipe(const std::string &path, const std::vector<std::string> &overrides) {
  std::ifstream file(path, std::ios::binary);
  std::error_code failure;
  if (!file || std::filesystem::is_directory(path, failure)) return inputError(path + ": the recipe cannot be opened");
  std::stringstream text;
  text << file.rdbuf();
  return parse(text.str(), path, path, overrides);
}

Result<Recipe> parseRecipeText(const std::string &text, const std::string &name,
                               const std::vector<std::string> &overrides) {
  return parse(text, name, "", overrides);
}

} // namespace cleave::recipe
