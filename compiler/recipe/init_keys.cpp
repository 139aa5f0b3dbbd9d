#include "compiler/recipe/schema.h"
#include "runtime/base/url.h"

namespace cleave::recipe {
namespace {

void startRule(MapReader &reader, InitRule &rule) {
  rule.kind = "";
  const char *kinds = Schema<InitRule>::of.keys.front().rule.words;
  reader.read("kind", rule.kind, {.words = kinds});
  if (rule.kind.empty()) reader.unknownWord("kind", rule.kind, splitWords(kinds));
  reader.checkUses(rule.kind);
}

// The distribution of all parameters, or whose weights they have.
void readBase(MapReader &reader, const Key<Init> &, Init &init) {
  std::string kind;
  reader.read("kind", kind);
  init.fromModel = isOneOf("from_model safetensors", kind) || (kind.empty() && reader.has("optimizer"));
  if (!init.fromModel) return readKeys(reader, Schema<InitRule>::of, init.base);
  reader.checkUses(kind);
  if (!kind.empty()) init.base.kind = kind;
}

void writeBase(MapWriter &writer, const Key<Init> &, const Init &init) {
  writeKeys(writer, Schema<InitRule>::of, init.base);
}

void checkInit(MapReader &reader, Init &init) {
  if (init.base.kind == "safetensors" && init.checkpoint.empty())
    reader.fail("path", "'init' of kind safetensors needs a 'path': a .safetensors file, an index of such files, or "
                        "the folder of either");
  if (Status file = runtime::refuseUrl(init.checkpoint); !file) reader.fail("path", "'init.path' " + file.message());
  init.checkpoint = reader.absolute(init.checkpoint);
  if (!init.optimizer.empty() && !init.fromModel)
    reader.fail("optimizer", "'init.optimizer' continues a training, which begins with its weights and not with kind " +
                                 init.base.kind);
  init.optimizer = reader.absolute(init.optimizer);
}

} // namespace

// clang-format off
template <> const Schema<InitRule> Schema<InitRule>::of = {.keys = {
    {"kind", at<&InitRule::kind>, "`from_model`, `safetensors`, `normal`, `uniform`, `constant`, `zeros`, `ones`, `xavier_uniform`, `xavier_normal`, `kaiming_uniform`, `kaiming_normal`", "required", {.words = "normal uniform constant zeros ones xavier_uniform xavier_normal kaiming_uniform kaiming_normal"}},
    {"mean", at<&InitRule::mean>, "mean", "0", {.kinds = "normal"}},
    {"std", at<&InitRule::std>, "standard deviation", "0.02", {.range = {.min = 0}, .kinds = "normal"}},
    {"low", at<&InitRule::low>, "lowest number", "0", {.kinds = "uniform"}},
    {"high", at<&InitRule::high>, "highest number", "1", {.kinds = "uniform"}},
    {"value", at<&InitRule::value>, "the number", "0", {.kinds = "constant"}},
    {"gain", at<&InitRule::gain>, "as in PyTorch", "1", {.range = {.above = 0}, .kinds = "xavier_uniform xavier_normal kaiming_uniform kaiming_normal"}},
}, .start = startRule, .kind = [](const InitRule &rule) { return rule.kind; }};
const Schema<InitRule> listedSchema = {.keys = {
    {"match", at<&InitRule::match>, "a [glob](#globs)", "required", {.required = "an entry of 'init.rules' needs 'match', a glob over parameter names"}},
    {"*", mapOf<InitRule, Schema<InitRule>::of>, "`kind` and its numbers, as of `init`, for these parameters"},
}};
template <> const Schema<Init> Schema<Init>::of = {.keys = {
    {"", at<&Init::base>.readBy(readBase).writtenBy(writeBase), ""},
    {"path", at<&Init::checkpoint>, "a `.safetensors` file, a `.safetensors.index.json`, or the folder of either; relative to the recipe's folder", "required there", {.kinds = "safetensors", .isQuiet = true}},
    {"prefix", at<&Init::prefix>, "what the checkpoint's names begin with and the model's do not", "found, as `model.`", {.kinds = "safetensors"}},
    {"names", at<&Init::names>, "`pytorch`, or `file`: tensors are called and lie as in the `.onnx` file", "`pytorch`", {.kinds = "safetensors"}},
    {"missing", at<&Init::missing>, "weights that the checkpoint lacks are an `error`, or `keep` the model's values", "`error`", {.kinds = "safetensors"}},
    {"optimizer", at<&Init::optimizer>, "the folder of an optimizer's state and steps, by `cleave export --optimizer` or `cleave.save_optimizer`, with which a training goes on", "none", {.isQuiet = true}},
    {"rules", listAt<&Init::rules, listedSchema>, "a list of maps: the first whose glob fits comes before `init.kind`", "none", {.example = R"({match: "*.bias", kind: zeros})"}},
}, .check = checkInit, .kind = [](const Init &init) { return init.base.kind; }};
// clang-format on

} // namespace cleave::recipe
