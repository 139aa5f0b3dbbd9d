#include "compiler/driver/draft_recipe.h"
#include "compiler/recipe/words.h"
#include "runtime/base/names/glob.h"
#include <algorithm>
#include <cctype>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {
namespace {

using import_::InspectedParameter;
using import_::InspectedValue;
using import_::Inspection;

constexpr int64_t someBatch = 8, someLength = 128, someSize = 16;

struct Task {
  const char *name, *loss, *labels, *rate, *decay;
};
constexpr Task tasks[] = {
    {"lm", "softmax_cross_entropy", "the next token at each place", "3.0e-4", "0.1"},
    {"classify", "softmax_cross_entropy", "the number of the class, from 0", "1.0e-3", "0.01"},
    {"segment", "softmax_cross_entropy", "the number of the class at each place, from 0", "1.0e-3", "0.01"},
    {"binary", "bce_with_logits", "0 or 1 for each output", "1.0e-3", "0.01"},
    {"regress", "mse", "numbers of the output's shape", "1.0e-3", "0.01"},
};

std::optional<int64_t> sizeOf(const std::string &entry) {
  int64_t size = 0;
  const char *end = entry.data() + entry.size();
  return std::from_chars(entry.data(), end, size).ptr == end && !entry.empty() ? std::optional(size) : std::nullopt;
}

bool isFloat(const InspectedValue &value) {
  return value.dtype.starts_with("float") || value.dtype == "bfloat16" || value.dtype == "double";
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

bool mentions(const std::string &name, std::initializer_list<const char *> words) {
  return std::ranges::any_of(words, [&](const char *word) { return lower(name).find(word) != std::string::npos; });
}

// A name as YAML writes it, whatever characters it has.
std::string quoted(const std::string &name) {
  const bool isPlain = std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '_'; }) &&
                       !name.empty() && !std::isdigit(uint8_t(name[0]));
  if (isPlain && !mentions(name, {"true", "false", "null", "yes", "no", "on", "off"})) return name;
  std::string out = "\"";
  for (char c : name) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string shown(const InspectedValue &value) {
  return fmt::format("{} {} [{}]", value.name, value.dtype, fmt::join(value.shape, ", "));
}

class Draft {
public:
  Draft(const Inspection &model, const DraftOptions &options) : model(model), options(options) {}

  Result<std::string> text() {
    output = lossOutput();
    if (!output && !options.saysLoss)
      return inputError(model.path + ": has no output of floats that a loss could read");
    if (Status chosen = chooseTask(); !chosen) return chosen;
    line("# {}", options.source.empty() ? "A recipe for " + model.path : options.source);
    line("# `cleave compile MODEL --recipe THIS --cluster cpu:4 -o X.plan` takes it as it is. All keys: "
         "docs/reference/recipe.md");
    for (const std::string &note : model.notes) line("# note: {}", note);
    for (const import_::UnsupportedOperator &op : model.unsupported)
      line("# not supported: {} (opset {})", op.op, op.version);
    addDims();
    if (options.saysLoss)
      line("# The model's file says its loss and optimizer (`cleave inspect` shows them); keys here would win over "
           "them.");
    else
      addLoss(), addOptimizer();
    addTraining();
    addData();
    return out;
  }

private:
  template <typename... Args> void line(fmt::format_string<Args...> format, Args &&...args) {
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    std::ranges::replace(text, '\n', ' '); // a note stays a comment
    out += text + "\n";
  }

  const InspectedValue *lossOutput() const {
    const InspectedValue *first = nullptr;
    for (const InspectedValue &value : model.outputs) {
      if (!isFloat(value)) continue;
      if (mentions(value.name, {"logits"}) || (value.shape.empty() && mentions(value.name, {"loss"}))) return &value;
      if (!first) first = &value;
    }
    return first;
  }

  bool isTokens(const InspectedValue &input) const {
    return input.dtype.starts_with("int") && input.shape.size() == 2 && !mentions(input.name, {"mask", "type", "pos"});
  }
  const InspectedValue *tokens() const {
    auto found = std::ranges::find_if(model.inputs, [&](const InspectedValue &input) { return isTokens(input); });
    return found == model.inputs.end() ? nullptr : &*found;
  }
  const InspectedValue *image() const {
    auto found = std::ranges::find_if(model.inputs, [](const InspectedValue &input) {
      return input.shape.size() == 4 && (isFloat(input) || input.dtype == "uint8");
    });
    return found == model.inputs.end() ? nullptr : &*found;
  }

  const char *guess() const {
    const size_t rank = output->shape.size();
    const std::optional<int64_t> last = rank > 0 ? sizeOf(output->shape.back()) : std::nullopt;
    if (rank == 3 && tokens()) return "lm";
    if (rank == 4 && image()) {
      const auto made = sizeOf(output->shape[1]), seen = sizeOf(image()->shape[1]);
      return made && seen && *made > 1 && *made != *seen ? "segment" : "regress";
    }
    return rank == 2 && last && *last > 1 ? "classify" : "regress";
  }

  Status chooseTask() {
    const std::string name = !options.task.empty() ? options.task : output ? guess() : "regress";
    auto found = std::ranges::find(tasks, name, [](const Task &task) { return std::string(task.name); });
    if (found == std::end(tasks))
      return Status(ErrorKind::Usage, fmt::format("--task is one of {}{}", fmt::join(draftTasks(), ", "),
                                                  names::suggestion(name, draftTasks())));
    task = found;
    const size_t wanted = name == "lm" || name == "segment" ? 3 : name == "classify" ? 2 : 0;
    if (output && !options.saysLoss && output->shape.size() < wanted)
      return inputError(fmt::format("{}: --task {} wants an output of {} dimensions or more, and there is {}",
                                    model.path, name, wanted, shown(*output)));
    return Status::ok();
  }

  void addDims() {
    std::vector<std::pair<std::string, std::string>> named; // dimension, the first input that has it
    for (const InspectedValue &input : model.inputs)
      for (const std::string &entry : input.shape)
        if (!sizeOf(entry) &&
            std::ranges::find(named, entry, &std::pair<std::string, std::string>::first) == named.end())
          named.emplace_back(entry, input.name);
    line("");
    line("dims:");
    if (named.empty()) {
      const bool hasSamples = !model.inputs.empty() && !model.inputs[0].shape.empty();
      line("  batch: {}  # the global batch; the model was exported with a fixed one",
           hasSamples ? *sizeOf(model.inputs[0].shape[0]) : someBatch);
      return;
    }
    auto batch = std::ranges::find_if(named, [](const auto &dim) { return mentions(dim.first, {"batch"}); });
    if (batch == named.end()) batch = named.begin();
    line("  {}: {}  # the global batch: samples a step, over all devices", quoted(batch->first), someBatch);
    for (const auto &[name, input] : named) {
      if (name == batch->first) continue;
      const bool isLength = mentions(name, {"seq", "len", "time", "tok", "ctx"});
      line("  {}: {}  # choose: a dimension of {}", quoted(name), isLength ? someLength : someSize, input);
    }
  }

  void addLoss() {
    line("");
    if (output->shape.empty()) {
      line("# The graph computes its loss. Other outputs: {}", others());
      line("loss: {{kind: output, output: {}}}", quoted(output->name));
      return;
    }
    const bool isLogSoftmax = model.operators.contains("LogSoftmax");
    const bool isProbability = mentions(output->name, {"prob", "sigmoid"});
    std::string kind = task->loss;
    if (kind == "softmax_cross_entropy" && isLogSoftmax) kind = "nll";
    if (isProbability && output->shape.size() == 2) kind = "bce";
    const bool isClasses = kind == "softmax_cross_entropy" || kind == "nll";
    line("# The loss reads {}. Other outputs: {}", shown(*output), others());
    line("#   softmax_cross_entropy (logits) or nll (log-probabilities): labels are class numbers");
    line("#   bce (probabilities) or bce_with_logits (logits): labels are 0 to 1, of the output's shape");
    line("#   mse, l1 or huber: labels are numbers, of the output's shape");
    line("#   output: the graph computes the loss itself");
    line("# labels: {}", kind == "bce" ? "0 to 1 for each output" : task->labels);
    line("loss:");
    line("  kind: {}", kind);
    line("  output: {}", quoted(output->name));
    line("  labels: {{name: {}}}", quoted(labelsName()));
    if (isClasses && output->shape.size() > 2)
      line("  axis: {}  # of the classes", std::string(task->name) == "lm" ? -1 : 1);
    if (isClasses) line("  # label_smoothing: 0.1");
  }

  // A name that no input has.
  std::string labelsName() const {
    std::string name = "labels";
    while (std::ranges::find(model.inputs, name, &InspectedValue::name) != model.inputs.end()) name = "train_" + name;
    return name;
  }

  std::string others() const {
    std::vector<std::string> names;
    for (const InspectedValue &value : model.outputs)
      if (&value != output) names.push_back(shown(value));
    return names.empty() ? "none" : fmt::format("{}", fmt::join(names, "; "));
  }

  void addOptimizer() {
    const std::vector<std::string> globs = noDecay();
    line("");
    line("# {}", fmt::join(recipe::wordsOf(recipe::OptimizerKind()), ", "));
    line("optimizer:");
    line("  kind: adamw");
    line("  lr: {}  # or {{kind: cosine, peak: {}, warmup_steps: 100, total_steps: 10000}}", task->rate, task->rate);
    line("  weight_decay: {}", task->decay);
    if (globs.empty()) return;
    std::vector<std::string> shownGlobs;
    for (const std::string &glob : globs) shownGlobs.push_back(quoted(glob));
    line("  # Biases, scales of norms and other parameters of one dimension do not decay.");
    line("  no_decay: [{}]", fmt::join(shownGlobs, ", "));
  }

  // Exporters write the scale of a norm over images as [64, 1, 1].
  static bool isOfOneDimension(const InspectedParameter &parameter) {
    const size_t rank = parameter.shape.size();
    return rank < 2 || (rank > 2 && std::ranges::count(parameter.shape, 1) + 1 >= std::ptrdiff_t(rank));
  }

  // Globs that fit the trained parameters of one dimension and no others, the shortest first.
  std::vector<std::string> noDecay() const {
    std::vector<std::string> globs;
    auto fits = [](const std::string &glob, const std::string &name) {
      return glob[0] == '=' ? glob.substr(1) == name : names::matchGlob(glob, name);
    };
    for (const InspectedParameter &parameter : model.parameters) {
      if (!parameter.trainable || !isOfOneDimension(parameter)) continue;
      if (std::ranges::any_of(globs, [&](const std::string &glob) { return fits(glob, parameter.name); })) continue;
      for (const std::string &glob : globsOf(parameter.name))
        if (std::ranges::none_of(model.parameters, [&](const InspectedParameter &other) {
              return other.trainable && !isOfOneDimension(other) && fits(glob, other.name);
            })) {
          globs.push_back(glob);
          break;
        }
    }
    return globs;
  }

  // "onnx::Add_17": "onnx::Add_*"
  static std::string withoutNumbers(const std::string &name) {
    std::string glob;
    for (unsigned char c : name)
      if (!std::isdigit(c))
        glob += char(c);
      else if (!glob.ends_with('*'))
        glob += '*';
    return glob;
  }

  // From the widest to the parameter itself: "*.weight", "*.ln_1.weight", "*.0.ln_1.weight", "=h.0.ln_1.weight".
  static std::vector<std::string> globsOf(const std::string &name) {
    std::vector<std::string> globs;
    if (name.find_first_of("*?") == std::string::npos) {
      std::string end;
      size_t dot = name.size();
      for (int parts = 0; parts < 3 && dot != std::string::npos && dot > 0; ++parts) {
        dot = name.rfind('.', dot - 1);
        if (dot == std::string::npos) break;
        globs.push_back("*" + name.substr(dot));
      }
    }
    if (globs.empty()) globs.push_back(withoutNumbers(name));
    globs.push_back("=" + name);
    return globs;
  }

  void addTraining() {
    line("");
    const bool isLanguage = std::string(task->name) == "lm";
    line("{}clip_norm: 1.0{}", isLanguage ? "" : "# ",
         isLanguage ? "" : "       # largest norm of all gradients together");
    line("# precision: bf16      # or fp16, fp8, tf32; fp32 unless told otherwise");
    if (model.statisticElements > 0)
      line("# batch_norm: training  # statistics of the global batch; frozen: the running ones; as_exported unless "
           "told");
    if (model.operators.contains("Dropout")) line("# dropout: off         # or one rate; as exported unless told");
    if (model.trainedElements > 0)
      line("# trainable: [\"*\"]     # globs; parameters that fit none are frozen (`cleave inspect` lists the names)");
  }

  void addData() {
    line("");
    line("# Data has the inputs{}", options.saysLoss ? ":" : " and the labels that the loss compares with:");
    for (const InspectedValue &input : model.inputs) line("#   {}", shown(input));
    const std::string path = options.data.empty() ? "" : options.data;
    const bool isPictures =
        image() && model.inputs.size() == 1 && std::string(task->name) == "classify" && !options.saysLoss;
    const bool isText = tokens() && model.inputs.size() == 1 && std::string(task->name) == "lm" && !options.saysLoss;
    std::string fitting, about;
    if (isText) {
      const auto length = sizeOf(tokens()->shape[1]);
      const bool isPlain = path.ends_with(".txt");
      fitting = fmt::format("{{kind: {}, path: {}, block: {}, train_split: 0.9}}", isPlain ? "chars" : "tokens",
                            quoted(path.empty() ? "tokens.bin" : path), length.value_or(someLength));
      about =
          isPlain ? "blocks of a text over its characters" : "blocks of a file of token numbers (dtype: uint16, ...)";
    } else if (isPictures && !path.ends_with(".npz")) {
      fitting = fmt::format("{{kind: images, path: {}, train_split: 0.9}}", quoted(path.empty() ? "pictures" : path));
      about = "a folder with one folder of PNG and JPEG files for each class";
    } else {
      fitting = fmt::format("{{kind: arrays, path: {}, train_split: 0.9}}", quoted(path.empty() ? "data.npz" : path));
      about = "an .npz, or a folder of .npy, with an array of each name above; its first axis counts samples";
    }
    if (path.empty()) {
      line("# Replace the random data by {}:", about);
      line("# data: {}", fitting);
      line("data: {{kind: synthetic}}");
    } else {
      line("# {}", about);
      line("data: {}", fitting);
    }
    line("# eval: {{every: 100, batches: 10}}  # on the part that train_split holds out");
  }

  const Inspection &model;
  const DraftOptions &options;
  const InspectedValue *output = nullptr;
  const Task *task = nullptr;
  std::string out;
};

} // namespace

std::vector<std::string> draftTasks() {
  std::vector<std::string> names;
  for (const Task &task : tasks) names.emplace_back(task.name);
  return names;
}

Result<std::string> draftRecipe(const Inspection &model, const DraftOptions &options) {
  return Draft(model, options).text();
}

} // namespace cleave
