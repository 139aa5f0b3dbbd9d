#include "compiler/import/weights/initial_weights.h"
#include "compiler/import/types.h"
#include "compiler/recipe/glob.h"
#include "runtime/base/names/first_few.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/plan/safetensors_set.h"
#include <algorithm>
#include <cstring>

namespace cleave::import_ {
namespace {

using runtime::SafetensorsSet;
using runtime::TensorView;

std::string shapeText(const std::vector<int64_t> &shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// How the checkpoint's names become the model's: one prefix more, or one less.
struct Prefix {
  std::string text;
  bool isOfModel = false;
  auto operator<=>(const Prefix &) const = default;
};

class CheckpointMatcher {
public:
  CheckpointMatcher(const FlatGraph &flat, const recipe::Init &init, const SafetensorsSet &set, ParameterTable &table)
      : flat(flat), init(init), set(set), table(table),
        dict(init.names == recipe::TensorNames::File ? fileNames(table) : table.state) {}

  Result<InitialWeights> run() {
    CLEAVE_RETURN_IF_ERROR(findPrefix());
    result.folder = set.folder();
    std::map<size_t, std::vector<const StateEntry *>> entriesOf;
    for (const StateEntry &entry : dict.entries)
      if (entry.source == StateEntry::Source::Parameter) entriesOf[entry.parameter].push_back(&entry);
    for (const auto &[at, entries] : entriesOf) CLEAVE_RETURN_IF_ERROR(place(at, entries));
    CLEAVE_RETURN_IF_ERROR(tellUnclear());
    CLEAVE_RETURN_IF_ERROR(tellMissing(entriesOf));
    tellUnused();
    return std::move(result);
  }

private:
  std::string where() const { return init.checkpoint; }

  const SafetensorsSet::Tensor *find(const std::string &key) const {
    if (!prefix.isOfModel && !prefix.text.empty())
      if (const SafetensorsSet::Tensor *tensor = set.find(prefix.text + key)) return tensor;
    if (const SafetensorsSet::Tensor *tensor = set.find(key)) return tensor;
    return prefix.isOfModel && key.starts_with(prefix.text) ? set.find(key.substr(prefix.text.size())) : nullptr;
  }

  // The prefix that gives the most names which do not fit as they are.
  Status findPrefix() {
    if (!init.prefix.empty()) {
      prefix.text = init.prefix;
      auto has = [&](const auto &tensor) { return tensor.first.starts_with(init.prefix); };
      if (std::ranges::none_of(set.tensors(), has))
        return inputError(fmt::format("{}: no tensor's name begins with 'init.prefix' {}; the first is '{}'", where(),
                                      init.prefix, firstName()));
      return Status::ok();
    }
    std::map<std::string, std::vector<std::string>> prefixesOf; // by the rest of a name
    for (const auto &[name, tensor] : set.tensors())
      for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
        prefixesOf[name.substr(dot + 1)].push_back(name.substr(0, dot + 1));
    std::map<Prefix, size_t> counts;
    bool isAnyNamed = false;
    for (const StateEntry &entry : dict.entries) {
      if (find(entry.key)) {
        isAnyNamed = true;
        continue;
      }
      for (const std::string &one : prefixesOf[entry.key]) ++counts[{one, false}];
      for (size_t dot = entry.key.find('.'); dot != std::string::npos; dot = entry.key.find('.', dot + 1))
        if (set.find(entry.key.substr(dot + 1))) ++counts[{entry.key.substr(0, dot + 1), true}];
    }
    if (counts.empty()) {
      if (isAnyNamed || dict.entries.empty()) return Status::ok();
      return inputError(fmt::format("{}: none of its names is one of the model's: it has '{}', the model has '{}' "
                                    "(`cleave inspect` lists them)",
                                    where(), firstName(), dict.entries.front().key));
    }
    auto fewer = [](const auto &a, const auto &b) { return a.second < b.second; };
    auto best = std::ranges::max_element(counts, fewer);
    for (const auto &[other, count] : counts)
      if (count == best->second && other != best->first)
        return inputError(fmt::format("{}: its names fit the model's with the prefix '{}' as well as with '{}'; give "
                                      "the recipe's init a `prefix`",
                                      where(), best->first.text, other.text));
    prefix = best->first;
    return Status::ok();
  }

  std::string firstName() const { return set.tensors().empty() ? "" : set.tensors().begin()->first; }

  // The entries of one parameter: names of all of it, or parts that follow one another.
  Status place(size_t at, const std::vector<const StateEntry *> &entries) {
    Parameter &parameter = table.parameters[at];
    const StateEntry *named = nullptr;
    std::map<int64_t, StoredRun> runs; // by their first element of the parameter
    for (const StateEntry *entry : entries) {
      const SafetensorsSet::Tensor *tensor = find(entry->key);
      if (!tensor || (entry->isPart && tensor->view->shape != entry->shape)) continue; // which rows is not known
      used.insert(tensor->view->name);
      CLEAVE_RETURN_IF_ERROR(check(parameter, *entry, *tensor->view));
      if (!entry->ranges.empty()) {
        addRanges(*entry, *tensor, runs);
      } else if (!named) {
        if (isUnclear(parameter, *entry)) unclear.push_back(fmt::format("'{}'", tensor->view->name));
        runs[0] = runOf(*tensor, 0, int64_t(tensor->view->bytes.size()), entry->isTransposed);
        named = entry;
      } else if (const TensorView &first = *find(named->key)->view;
                 !sameNumbers(first, *named, *tensor->view, *entry)) {
        return inputError(fmt::format("{}: '{}' and '{}' differ, and the model has one weight for both; the recipe's "
                                      "`ties` separates what the exporter merged",
                                      where(), first.name, tensor->view->name));
      }
    }
    int64_t bytes = 0;
    for (const auto &[begin, run] : runs) bytes += run.length / runtime::byteSize(run.type);
    if (runs.empty() || bytes != parameter.tensor.elements()) return Status::ok(); // missing
    if (parameter.role == Role::Constant) {
      if (!named || isConstant(parameter, *named, *find(named->key)->view)) return Status::ok();
      parameter.role = Role::Parameter;
      parameter.why = "a constant of the model that the checkpoint has other numbers for";
    }
    for (auto &[begin, run] : runs) result.places[at].push_back(std::move(run));
    return Status::ok();
  }

  StoredRun runOf(const SafetensorsSet::Tensor &tensor, int64_t begin, int64_t bytes, bool isTransposed) const {
    return {set.pathOf(tensor), set.offsetOf(tensor) + begin, bytes, tensor.view->dtype, isTransposed};
  }

  void addRanges(const StateEntry &entry, const SafetensorsSet::Tensor &tensor, std::map<int64_t, StoredRun> &runs) {
    const int64_t width = runtime::byteSize(tensor.view->dtype);
    int64_t begin = 0;
    for (const ElementRange &range : entry.ranges) {
      runs[range.begin] = runOf(tensor, begin * width, range.count * width, false);
      begin += range.count;
    }
  }

  Status check(const Parameter &parameter, const StateEntry &entry, const TensorView &view) const {
    const bool isOther = entry.isReshaped && !entry.isGuess
                             ? runtime::elementCount(view.shape) != runtime::elementCount(entry.shape)
                             : view.shape != entry.shape;
    if (isOther)
      return inputError(fmt::format("{}: tensor '{}' is {}, and the model's '{}' needs {}", where(), view.name,
                                    shapeText(view.shape), parameter.name, shapeText(entry.shape)));
    const plan::DType wanted = planType(parameter.tensor.dataType);
    if (runtime::isFp8BitFloat(view.dtype))
      return inputError(fmt::format("{}: tensor '{}' is {}, and its scales are other tensors, which Cleave does not "
                                    "read: write the checkpoint in 16 or 32 bits",
                                    where(), view.name, runtime::name(view.dtype)));
    if (view.dtype == wanted || (runtime::isFloat(view.dtype) && runtime::isFloat(wanted))) return Status::ok();
    return inputError(fmt::format("{}: tensor '{}' is {}, and the model's '{}' {}", where(), view.name,
                                  runtime::name(view.dtype), parameter.name, dataTypeName(parameter.tensor.dataType)));
  }

  // A square matrix of a product, of a model whose exporter does not say whether it was transposed.
  bool isUnclear(const Parameter &parameter, const StateEntry &entry) const {
    if (init.names == recipe::TensorNames::File || (!dict.isOfFile && !(entry.isGuess && entry.isReshaped)))
      return false;
    if (entry.shape.size() != 2 || entry.shape[0] != entry.shape[1] || entry.shape[0] == 1) return false;
    return std::ranges::any_of(parameter.uses, [&](const Use &use) {
      const std::string &op = flat.nodes[use.node].node->op_type();
      return op == "MatMul" || op == "Gemm" || op == "Transpose";
    });
  }

  static double number(const TensorView &view, const StateEntry &entry, int64_t i, const std::vector<int64_t> &shape) {
    if (entry.isTransposed) i = i % shape[1] * shape[0] + i / shape[1];
    return runtime::loadFloat(view.dtype, view.bytes.data() + i * runtime::byteSize(view.dtype));
  }

  // Two names of one parameter are compared.
  bool sameNumbers(const TensorView &a, const StateEntry &first, const TensorView &b, const StateEntry &second) const {
    if (a.dtype == b.dtype && first.isTransposed == second.isTransposed) return std::ranges::equal(a.bytes, b.bytes);
    const std::vector<int64_t> &shape = table.parameters[first.parameter].tensor.shape;
    for (int64_t i = 0; i < runtime::elementCount(shape); ++i)
      if (number(a, first, i, shape) != number(b, second, i, shape)) return false;
    return true;
  }

  // Has the model's file the same numbers? Integers are compared as they lie.
  bool isConstant(const Parameter &parameter, const StateEntry &entry, const TensorView &view) const {
    const StoredTensor &tensor = parameter.tensor;
    if (!tensor.bytes) return false;
    const auto *own = reinterpret_cast<const std::byte *>(tensor.bytes);
    const plan::DType type = planType(tensor.dataType);
    if (type == view.dtype && !entry.isTransposed) return std::memcmp(own, view.bytes.data(), view.bytes.size()) == 0;
    for (int64_t i = 0; i < tensor.elements(); ++i)
      if (number(view, entry, i, tensor.shape) != runtime::loadFloat(type, own + i * runtime::byteSize(type)))
        return false;
    return true;
  }

  Status tellUnclear() const {
    if (unclear.empty()) return Status::ok();
    return inputError(
        fmt::format("{}: these are square, and the model's file does not say whether its exporter "
                    "transposed them: {}; with the recipe's `init: {{names: file}}` tensors lie as in the "
                    "model's file",
                    where(), names::firstFew(unclear, 6)));
  }

  Status tellMissing(const std::map<size_t, std::vector<const StateEntry *>> &entriesOf) {
    std::vector<std::string> patterns, missing;
    for (const recipe::InitRule &rule : init.rules) patterns.push_back(rule.match);
    const recipe::ParameterPatterns rules(patterns);
    for (size_t at = 0; at < table.parameters.size(); ++at) {
      const Parameter &parameter = table.parameters[at];
      if (result.places.contains(at) || (!parameter.isWeight && parameter.role != Role::RunningStatistic)) continue;
      auto entries = entriesOf.find(at);
      recipe::ParameterNames names{parameter.name, {}, parameter.aliases};
      for (const Use &use : parameter.uses) names.nodes.push_back(flat.nodes[use.node].name);
      if (entries != entriesOf.end())
        for (const StateEntry *entry : entries->second) names.aliases.push_back(entry->key);
      if (rules.match(names)) continue;
      const StateEntry *first = entries == entriesOf.end() ? nullptr : entries->second.front();
      missing.push_back(
          fmt::format("'{}'{}", first ? first->key : parameter.name,
                      first && first->isPart ? fmt::format(" of {} rows, which the model has", first->shape[0]) : ""));
    }
    if (missing.empty()) return Status::ok();
    const std::string list = names::firstFew(missing, 8);
    if (init.missing == recipe::MissingWeights::Error)
      return inputError(
          fmt::format("{}: has no {}; `init: {{missing: keep}}` keeps the model's own numbers there, and a "
                      "rule of `init.rules` draws new ones",
                      where(), list));
    result.notes.push_back(fmt::format("{} has no {}: these begin as the model's file has them", where(), list));
    return Status::ok();
  }

  void tellUnused() {
    std::vector<std::string> unused;
    for (const auto &[name, tensor] : set.tensors())
      if (!used.contains(name) && !name.ends_with("num_batches_tracked")) unused.push_back("'" + name + "'");
    if (!unused.empty())
      result.notes.push_back(
          fmt::format("the model uses nothing of these tensors of {}: {}", where(), names::firstFew(unused, 8)));
  }

  const FlatGraph &flat;
  const recipe::Init &init;
  const SafetensorsSet &set;
  ParameterTable &table;
  const StateDict dict;
  Prefix prefix;
  InitialWeights result;
  std::set<std::string> used;
  std::vector<std::string> unclear;
};

} // namespace

Result<InitialWeights> matchCheckpoint(const FlatGraph &flat, const recipe::Init &init, ParameterTable &table) {
  Result<SafetensorsSet> set = SafetensorsSet::open(init.checkpoint);
  if (!set) return set.status();
  return CheckpointMatcher(flat, init, *set, table).run();
}

} // namespace cleave::import_
