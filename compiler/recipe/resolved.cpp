#include "compiler/recipe/keys.h"
#include "compiler/recipe/recipe.h"
#include <fmt/format.h>
#include <utility>
#include <yaml-cpp/yaml.h>

namespace cleave::recipe {
namespace {

// A map in the order it is written; numbers print so that they read back exactly.
class MapWriter {
public:
  MapWriter() { out << YAML::BeginMap; }
  MapWriter &text(const char *key, const std::string &value) {
    if (uses(key)) out << YAML::Key << key << YAML::Value << YAML::DoubleQuoted << value;
    return *this;
  }
  MapWriter &word(const std::string &key, const std::string &value) {
    if (uses(key)) out << YAML::Key << key << YAML::Value << value;
    return *this;
  }
  MapWriter &number(const char *key, double value) { return word(key, fmt::format("{}", value)); }
  MapWriter &integer(const std::string &key, int64_t value) { return word(key, fmt::format("{}", value)); }
  MapWriter &boolean(const char *key, bool value) { return word(key, value ? "true" : "false"); }
  MapWriter &texts(const char *key, const std::vector<std::string> &values) {
    out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginSeq;
    for (const std::string &value : values) out << YAML::DoubleQuoted << value;
    out << YAML::EndSeq;
    return *this;
  }
  MapWriter &numbers(const char *key, const std::vector<double> &values) {
    if (!uses(key)) return *this;
    out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginSeq;
    for (double value : values) out << fmt::format("{}", value);
    out << YAML::EndSeq;
    return *this;
  }
  MapWriter &integers(const char *key, const std::vector<int64_t> &values) {
    if (!uses(key)) return *this;
    out << YAML::Key << key << YAML::Value << YAML::Flow << values;
    return *this;
  }
  MapWriter &null(const char *key) {
    if (!uses(key)) return *this;
    out << YAML::Key << key << YAML::Value << YAML::Null;
    return *this;
  }
  template <typename Body> MapWriter &map(const char *key, Body body) {
    if (!uses(key)) return *this;
    out << YAML::Key << key << YAML::Value << YAML::BeginMap;
    body();
    out << YAML::EndMap;
    return *this;
  }
  // Writes `body`'s keys below `path`, but for those that `kind` has no use for.
  template <typename Body> void of(const std::string &path, const std::string &kind, Body body) {
    const auto around = std::exchange(owner, {path, kind});
    body();
    owner = around;
  }
  YAML::Emitter out;
  std::string finish() {
    out << YAML::EndMap;
    return std::string(out.c_str()) + "\n";
  }

private:
  std::pair<std::string, std::string> owner; // path and kind
  bool uses(const std::string &key) const {
    return owner.first.empty() || useFault(owner.first + "." + key, owner.second).empty();
  }
};

void writeLoss(MapWriter &to, const Loss &loss) {
  to.word("kind", toString(loss.kind));
  if (!loss.name.empty()) to.text("name", loss.name).number("scale", loss.scale);
  if (loss.outputs.size() == 1) to.text("output", loss.outputs[0]);
  if (loss.outputs.size() > 1) to.texts("output", loss.outputs);
  to.map("labels", [&] {
    if (loss.labels.output) return void(to.text("output", *loss.labels.output));
    to.text("name", loss.labels.name);
    if (loss.labels.dtype) to.word("dtype", *loss.labels.dtype);
    if (loss.labels.shape) to.texts("shape", *loss.labels.shape);
  });
  if (loss.ignoreIndex)
    to.integer("ignore_index", *loss.ignoreIndex);
  else
    to.null("ignore_index");
  to.number("label_smoothing", loss.labelSmoothing).word("reduction", toString(loss.reduction));
  to.integer("axis", loss.axis).number("delta", loss.huberDelta);
  if (!loss.weight.empty()) to.numbers("weight", loss.weight);
  if (!loss.posWeight.empty()) to.numbers("pos_weight", loss.posWeight);
  if (loss.zLoss > 0) to.number("z_loss", loss.zLoss);
  to.boolean("log_target", loss.logTarget).number("margin", loss.margin).integer("p", loss.p);
  to.number("eps", loss.eps).boolean("swap", loss.swap);
  to.integer("blank", loss.blank).boolean("zero_infinity", loss.zeroInfinity);
  to.text("input_lengths", loss.inputLengths).text("target_lengths", loss.targetLengths);
}

void writeLosses(MapWriter &to, const Recipe &recipe) {
  auto write = [&](const Loss &loss) { to.of("loss", toString(loss.kind), [&] { writeLoss(to, loss); }); };
  if (!recipe.sumsLosses()) return void(to.map("loss", [&] { write(recipe.losses.front()); }));
  to.out << YAML::Key << "loss" << YAML::Value << YAML::BeginSeq;
  for (const Loss &loss : recipe.losses) {
    to.out << YAML::BeginMap;
    write(loss);
    to.out << YAML::EndMap;
  }
  to.out << YAML::EndSeq;
}

void writeGroup(MapWriter &to, const OptimizerGroup &group) {
  to.out << YAML::BeginMap;
  to.texts("match", group.match);
  if (group.kind) to.word("kind", toString(*group.kind));
  to.map("lr", [&] { to.number("scale", group.rateScale); });
  if (group.beta1) to.numbers("betas", {*group.beta1, *group.beta2});
  for (auto [key, value] : {std::pair("eps", &group.eps), std::pair("weight_decay", &group.weightDecay),
                            std::pair("momentum", &group.momentum)})
    if (*value) to.number(key, **value);
  to.out << YAML::EndMap;
}

void writeSchedule(MapWriter &to, const Schedule &lr) {
  to.word("kind", toString(lr.kind)).number("peak", lr.peak).number("min", lr.min);
  to.integer("warmup_steps", lr.warmupSteps);
  if (lr.start) to.number("start", *lr.start);
  if (lr.totalSteps > 0) to.integer("total_steps", lr.totalSteps);
  to.integers("milestones", lr.milestones).number("gamma", lr.gamma).number("power", lr.power);
  to.integer("period", lr.period).integer("period_factor", lr.periodFactor).integer("decay_steps", lr.decaySteps);
  to.word("anneal", toString(lr.anneal)).number("warmup_share", lr.warmupShare);
}

void writeOptimizer(MapWriter &to, const Optimizer &optimizer) {
  const Schedule &lr = optimizer.lr;
  to.word("kind", toString(optimizer.kind));
  to.map("lr", [&] { to.of("optimizer.lr", toString(lr.kind), [&] { writeSchedule(to, lr); }); });
  to.numbers("betas", {optimizer.beta1, optimizer.beta2});
  to.number("eps", optimizer.eps).number("weight_decay", optimizer.weightDecay).number("momentum", optimizer.momentum);
  to.number("dampening", optimizer.dampening).boolean("nesterov", optimizer.nesterov);
  to.number("initial_accumulator", optimizer.initialAccumulator).number("lr_decay", optimizer.lrDecay);
  to.number("eps2", optimizer.eps2).number("beta2_decay", optimizer.beta2Decay).number("d", optimizer.clipThreshold);
  to.integer("ns_steps", optimizer.newtonSchulzSteps).word("form", toString(optimizer.form));
  to.word("bias_correction", toString(optimizer.biasCorrection)).texts("no_decay", optimizer.noDecay);
  if (optimizer.amsgrad) to.boolean("amsgrad", true);
  to.number("alpha", optimizer.alpha).boolean("centered", optimizer.centered);
  to.number("momentum_decay", optimizer.momentumDecay);
  if (optimizer.decoupledDecay) to.boolean("decoupled_weight_decay", true);
  to.number("rho", optimizer.rho);
  if (optimizer.newtonSchulzType != NewtonSchulzType::Parameter)
    to.word("ns_dtype", toString(optimizer.newtonSchulzType));
  if (optimizer.stateType != StateType::Parameter) to.word("state_dtype", toString(optimizer.stateType));
  if (optimizer.layerDecay) to.number("layer_decay", *optimizer.layerDecay);
  if (!optimizer.groups.empty()) {
    to.out << YAML::Key << "groups" << YAML::Value << YAML::BeginSeq;
    for (const OptimizerGroup &group : optimizer.groups) writeGroup(to, group);
    to.out << YAML::EndSeq;
  }
}

void writeInitRule(MapWriter &to, const InitRule &rule) {
  to.of("init", rule.kind, [&] {
    to.word("kind", rule.kind).number("mean", rule.mean).number("std", rule.std).number("low", rule.low);
    to.number("high", rule.high).number("value", rule.value).number("gain", rule.gain);
  });
}

void writeInit(MapWriter &to, const Init &init) {
  if (!init.checkpoint.empty())
    to.word("kind", "safetensors")
        .text("path", init.checkpoint)
        .text("prefix", init.prefix)
        .word("names", init.fileNames ? "file" : "pytorch")
        .word("missing", toString(init.missing));
  else if (init.fromModel)
    to.word("kind", "from_model");
  else
    writeInitRule(to, init.base);
  if (!init.optimizer.empty()) to.text("optimizer", init.optimizer);
  to.out << YAML::Key << "rules" << YAML::Value << YAML::BeginSeq;
  for (const InitRule &rule : init.rules) {
    to.out << YAML::BeginMap;
    to.text("match", rule.match);
    writeInitRule(to, rule);
    to.out << YAML::EndMap;
  }
  to.out << YAML::EndSeq;
}

void writeAugment(MapWriter &to, const runtime::Augment &augment) {
  if (augment.resizedCrop)
    to.map("random_resized_crop",
           [&] { to.numbers("scale", augment.resizedCrop->scale).numbers("ratio", augment.resizedCrop->ratio); });
  if (augment.cropPadding > 0) to.integer("crop_padding", augment.cropPadding);
  to.number("flip", augment.flip);
  to.map("color_jitter", [&] {
    to.number("brightness", augment.brightness).number("contrast", augment.contrast);
    to.number("saturation", augment.saturation).number("hue", augment.hue);
  });
}

void writeData(MapWriter &to, const Data &data, bool isSource);

void writeSources(MapWriter &to, const std::vector<Data> &sources) {
  to.out << YAML::Key << "sources" << YAML::Value << YAML::BeginSeq;
  for (const Data &source : sources) {
    to.out << YAML::BeginMap;
    to.number("weight", source.weight);
    writeData(to, source, true);
    to.out << YAML::EndMap;
  }
  to.out << YAML::EndSeq;
}

void writeData(MapWriter &to, const Data &data, bool isSource = false) {
  to.word("kind", toString(data.kind));
  if (data.kind == DataKind::Mixture) {
    to.boolean("shuffle", data.shuffle);
    return writeSources(to, data.sources);
  }
  if (data.paths.size() == 1) to.text("path", data.paths.front());
  if (data.paths.size() > 1) to.texts("path", data.paths);
  if (data.block > 0) to.integer("block", data.block);
  to.number("train_split", data.trainSplit).integer("truncate", data.truncate);
  if (!isSource) to.boolean("shuffle", data.shuffle).word("last_batch", toString(data.lastBatch));
  if (!data.dtype.empty()) to.word("dtype", data.dtype);
  if (data.samples > 0) to.integer("samples", data.samples);
  if (data.size > 0) to.integer("size", data.size);
  for (auto [key, values] : {std::pair("mean", &data.mean), std::pair("std", &data.std)})
    if (!values->empty()) to.numbers(key, *values);
  if (!data.fields.empty())
    to.map("fields", [&] {
      for (const auto &[field, array] : data.fields) to.text(field.c_str(), array);
    });
  if (!data.fill.empty())
    to.map("fill", [&] {
      for (const auto &[field, word] : data.fill) to.text(field.c_str(), word);
    });
  if (data.augment) to.map("augment", [&] { writeAugment(to, *data.augment); });
  for (auto [key, value] : {std::pair("mixup", data.mixup), std::pair("cutmix", data.cutmix)})
    if (value > 0) to.number(key, value);
  if (data.lengths.empty()) return;
  to.integers("lengths", data.lengths).texts("length_dims", data.lengthDims).boolean("pack", data.pack);
  to.boolean("causal", data.causal.value_or(data.kind == DataKind::Tokens));
  if (data.separator) to.integer("separator", *data.separator);
  if (!data.pad.empty())
    to.map("pad", [&] {
      for (const auto &[field, value] : data.pad) to.number(field.c_str(), value);
    });
}

// `isForRuntime`: also what follows from the losses.
void writeEval(MapWriter &to, const Eval &eval, const std::vector<Loss> &losses, bool isForRuntime) {
  to.integer("every", eval.every).integer("batches", eval.batches);
  if (!eval.metrics.empty()) {
    to.out << YAML::Key << "metrics" << YAML::Value << YAML::BeginSeq;
    for (const Metric &metric : eval.metrics) {
      to.out << YAML::BeginMap;
      to.word("kind", toString(metric)).text("name", metric.name);
      if (!losses.front().name.empty()) to.text("loss", losses[metric.loss].name);
      if (isForRuntime && metric.isBinary) to.boolean("binary", true);
      if (metric.output) to.text("output", *metric.output);
      if (metric.labels) to.text("labels", *metric.labels);
      to.out << YAML::EndMap;
    }
    to.out << YAML::EndSeq;
  }
  if (eval.monitor != "loss") to.text("monitor", eval.monitor);
  if (eval.patience > 0) to.integer("patience", eval.patience).number("min_delta", eval.minDelta);
}

} // namespace

std::string Recipe::resolved() const {
  MapWriter to;
  to.map("dims", [&] {
    for (const auto &[name, size] : dims) to.integer(name, size);
  });
  if (!ramp.empty()) {
    to.out << YAML::Key << "ramp" << YAML::Value << YAML::BeginSeq;
    for (const RampStage &stage : ramp) {
      to.out << YAML::BeginMap;
      to.integer("until", stage.until);
      for (const auto &[name, size] : stage.dims) to.integer(name, size);
      to.out << YAML::EndMap;
    }
    to.out << YAML::EndSeq;
  }
  writeLosses(to, *this);
  to.map("optimizer", [&] { to.of("optimizer", toString(optimizer.kind), [&] { writeOptimizer(to, optimizer); }); });
  if (clipNorm) to.number("clip_norm", *clipNorm);
  if (clipValue) to.number("clip_value", *clipValue);
  if (!clipNorms.empty()) {
    to.out << YAML::Key << "clip_norms" << YAML::Value << YAML::BeginSeq;
    for (const ClipGroup &group : clipNorms) {
      to.out << YAML::BeginMap;
      to.texts("match", group.match).number("norm", group.norm);
      to.out << YAML::EndMap;
    }
    to.out << YAML::EndSeq;
  }
  if (skipOutliers)
    to.map("skip_outliers", [&] {
      to.number("factor", skipOutliers->factor).number("decay", skipOutliers->decay);
      to.integer("warmup", skipOutliers->warmup);
    });
  to.word("precision", toString(precision));
  if (precision == Precision::Fp16)
    to.map("loss_scale", [&] {
      to.number("init", lossScale.init).number("growth", lossScale.growth).number("backoff", lossScale.backoff);
      to.integer("interval", lossScale.interval);
    });
  if (precision == Precision::Fp8)
    to.map("fp8", [&] {
      to.word("scaling", toString(fp8.scaling));
      if (fp8.scaling == Scaling::Delayed) to.integer("history", fp8.history);
      to.integer("margin", fp8.margin);
      if (fp8.keep) to.texts("keep", *fp8.keep);
    });
  if (trainableGiven) to.texts("trainable", trainable);
  if (!frozen.empty()) to.texts("frozen", frozen);
  if (!roles.empty())
    to.map("roles", [&] {
      for (const auto &[name, role] : roles)
        to.out << YAML::Key << YAML::DoubleQuoted << name << YAML::Value << toString(role);
    });
  if (!frozenRows.empty())
    to.map("frozen_rows", [&] {
      for (const FrozenRows &frozen : frozenRows)
        to.out << YAML::Key << YAML::DoubleQuoted << frozen.match << YAML::Value << YAML::Flow << frozen.rows;
    });
  if (!gradNorms.empty())
    to.map("grad_norms", [&] {
      for (const NormGroup &group : gradNorms)
        to.out << YAML::Key << group.name << YAML::Value << YAML::Flow << group.match;
    });
  to.word("batch_norm", toString(batchNorm)).word("attention", toString(attention));
  to.word("epilogues", toString(epilogues)).word("ties", toString(ties));
  if (dropout.kind == Dropout::Kind::Rate)
    to.number("dropout", dropout.rate);
  else
    to.word("dropout", dropout.kind == Dropout::Kind::Off ? "off" : "as_exported");
  to.map("init", [&] { writeInit(to, init); });
  if (lora)
    to.map("lora", [&] {
      to.texts("match", lora->match).integer("rank", lora->rank);
      to.number("alpha", lora->alpha).number("dropout", lora->dropout);
    });
  to.integer("seed", static_cast<int64_t>(seed));
  if (data) to.map("data", [&] { writeData(to, *data); });
  if (ema) to.map("ema", [&] { to.number("decay", ema->decay).integer("every", ema->every); });
  if (eval) to.map("eval", [&] { writeEval(to, *eval, losses, false); });
  return to.finish();
}

std::string Recipe::dataYaml() const {
  if (!data) return "";
  MapWriter to;
  writeData(to, *data);
  return to.finish();
}

std::string Recipe::evalYaml() const {
  if (!eval) return "";
  MapWriter to;
  writeEval(to, *eval, losses, true);
  return to.finish();
}

} // namespace cleave::recipe
