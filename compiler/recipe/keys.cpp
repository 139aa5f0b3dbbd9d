#include "compiler/recipe/keys.h"
#include "compiler/recipe/words.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>

namespace cleave::recipe {
namespace {

// clang-format off
constexpr Key all[] = {
  {"dims", "sizes of symbolic dimensions", ""},
  {"dims.*", "a dimension of this name. `batch` is the global batch, also for a model that was exported with a fixed one "
             "([models.md](models.md#where-samples-lie))", ""},
  {"ramp", "a list of maps: the first steps have [smaller batches or shorter samples](#ramps)", "none"},
  {"ramp.until", "the last step of a stage, counted from 1", "required"},
  {"ramp.*", "size of a dimension of `dims` in the steps of the stage: `batch`, or another one, whose samples are cut", "that of `dims`"},
  {"loss", "required, unless the [model says](models.md#models-that-say-how-they-train) how it trains. A list of such maps: their [sum](#several-losses)", ""},
  {"loss.kind", "`softmax_cross_entropy`, `nll`, `multi_margin`, `bce`, `bce_with_logits`, `mse`, `l1`, `huber`, `kl_div`, `hinge_embedding`, `cosine_embedding`, "
                "`margin_ranking`, `triplet`, `ctc`, each PyTorch's loss of that name, or `output`: the graph computes the loss", "required"},
  {"loss.name", "of one in a list: its metric is `loss.NAME`", "the kind"},
  {"loss.scale", "of one in a list: what it counts in the sum", "1"},
  {"loss.output", "the graph output that the loss reads; `cosine_embedding` and `margin_ranking` read a list of two, `triplet` of three: anchor, positive, negative", "the only one"},
  {"loss.labels", "the new input: its name, or a map of `name`, `dtype` and `shape`", "`labels`",
   "softmax_cross_entropy nll multi_margin bce bce_with_logits mse l1 huber kl_div hinge_embedding cosine_embedding margin_ranking ctc output"},
  {"loss.labels.name", "the input's name; several losses may share it", "`labels`"},
  {"loss.labels.dtype", "`int64`, `int32`, `float32`, `float64`", "follows from the loss"},
  {"loss.labels.shape", "a list of sizes and of names that `dims` binds; `ctc` needs it: [batch, longest target]", "follows from the loss"},
  {"loss.labels.output", "a graph output in place of an input, such as a teacher's; it gets no gradient", "none"},
  {"loss.ignore_index", "label that does not count; `null`: none", "-100", "softmax_cross_entropy nll"},
  {"loss.label_smoothing", "as in PyTorch, 0 to 1", "0", "softmax_cross_entropy"},
  {"loss.reduction", "`mean`, `sum`; `kl_div` also `batchmean`: over the batch", "`mean`"},
  {"loss.axis", "axis of the classes", "-1", "softmax_cross_entropy nll multi_margin"},
  {"loss.delta", "where the square ends", "1", "huber"},
  {"loss.weight", "a weight for each class. A mean divides by the weights of the labels, as in PyTorch (`multi_margin`: by the batch)", "1 each", "softmax_cross_entropy nll multi_margin"},
  {"loss.pos_weight", "what positives count, one number or one for each entry of the last dimension", "1", "bce_with_logits"},
  {"loss.z_loss", "adds this times (log Σ eˣ)² of each label, which keeps logits small", "0", "softmax_cross_entropy"},
  {"loss.log_target", "`true`: labels are logarithms, as the output is", "`false`", "kl_div"},
  {"loss.margin", "as in PyTorch", "0; `hinge_embedding`, `multi_margin`, `triplet` 1", "hinge_embedding cosine_embedding margin_ranking multi_margin triplet"},
  {"loss.p", "norm of the distance, or power of each term: 1 or 2", "2; `multi_margin` 1", "triplet multi_margin"},
  {"loss.eps", "added to each difference of two embeddings", "1e-6", "triplet"},
  {"loss.swap", "`true`: the positive's distance to the negative counts where it is smaller", "`false`", "triplet"},
  {"loss.blank", "class of the blank", "0", "ctc"},
  {"loss.zero_infinity", "`true`: a target that is too long for its input counts 0, without gradient, not infinity", "`false`", "ctc"},
  {"loss.input_lengths", "name of the input with the steps that count of each sample", "`input_lengths`", "ctc"},
  {"loss.target_lengths", "name of the input with the labels of each sample", "`target_lengths`", "ctc"},
  {"optimizer", "how parameters are updated", "`adamw`"},
  {"optimizer.kind", "`sgd`, `adam`, `adamw`, `adagrad`, `lamb`, `lion`, `adafactor`, `muon`, `rmsprop`, `nadam`, `radam`, `adamax`, `adadelta`. Muon trains the weights of products; other "
                     "parameters train with `adamw` at the same rate", "`adamw`"},
  {"optimizer.lr", "a number, or a [schedule](#learning-rate)", "1e-3"},
  {"optimizer.lr.kind", "`constant`, `linear`, `cosine`, `step`, `exponential`, `polynomial`, `cosine_restarts`, `wsd`, `one_cycle`", "required"},
  {"optimizer.lr.peak", "the highest rate", "required"},
  {"optimizer.lr.min", "the lowest rate after the peak", "0; `one_cycle` start / 10,000", "linear cosine polynomial cosine_restarts wsd one_cycle"},
  {"optimizer.lr.start", "the rate of the first step, where the warmup or the cycle begins", "peak / `warmup_steps`; `one_cycle` peak / 25"},
  {"optimizer.lr.warmup_steps", "steps in which the rate rises to `peak`, or a share of `total_steps`, such as `3%`", "0", "constant linear cosine step exponential polynomial cosine_restarts wsd"},
  {"optimizer.lr.total_steps", "the step at which the rate is `min`, and what `warmup_steps` may be a share of, whatever the kind", "required there", "linear cosine polynomial wsd one_cycle"},
  {"optimizer.lr.milestones", "steps after which the rate falls", "required there", "step"},
  {"optimizer.lr.gamma", "what each milestone of `step`, or each step of `exponential`, multiplies the rate by", "0.1; required for `exponential`", "step exponential"},
  {"optimizer.lr.power", "of the share of steps that are left", "1", "polynomial"},
  {"optimizer.lr.period", "steps until the first restart", "required there", "cosine_restarts"},
  {"optimizer.lr.period_factor", "how many times as long each period is as the one before", "1", "cosine_restarts"},
  {"optimizer.lr.decay_steps", "the last steps, in which the rate falls to `min`, or a share of `total_steps`", "required there", "wsd"},
  {"optimizer.lr.anneal", "how the rate falls: `cosine`, `linear`, `sqrt` (only `wsd`)", "`cosine`", "wsd one_cycle"},
  {"optimizer.lr.warmup_share", "the share of steps in which the rate rises", "0.3", "one_cycle"},
  {"optimizer.betas", "two decays, of the first and the second moment", "as in PyTorch", "adam adamw lamb lion muon nadam radam adamax"},
  {"optimizer.eps", "added to the root of the second moment", "1e-8; `adagrad` 1e-10, `lamb` 1e-6, `adafactor` 2⁻²³, `adadelta` 1e-6", "adam adamw adagrad lamb adafactor muon rmsprop nadam radam adamax adadelta"},
  {"optimizer.weight_decay", "as in PyTorch", "0; `adamw` 0.01, `muon` 0.1"},
  {"optimizer.momentum", "as in PyTorch", "0; `muon` 0.95", "sgd muon rmsprop"},
  {"optimizer.dampening", "as in PyTorch", "0", "sgd"},
  {"optimizer.nesterov", "`true`, `false`", "`false`; `muon` `true`", "sgd muon"},
  {"optimizer.initial_accumulator", "as in PyTorch", "0", "adagrad"},
  {"optimizer.lr_decay", "as in PyTorch", "0", "adagrad"},
  {"optimizer.eps2", "smallest size of a parameter that steps are relative to", "1e-3", "adafactor"},
  {"optimizer.beta2_decay", "decay of the second moment", "-0.8", "adafactor"},
  {"optimizer.d", "largest root mean square of an update", "1", "adafactor"},
  {"optimizer.ns_steps", "Newton-Schulz steps", "5", "muon"},
  {"optimizer.ns_dtype", "type of their products: `bf16`, as in PyTorch's class, or the `parameter`'s", "`parameter`", "muon"},
  {"optimizer.form", "`pytorch`, or `onnx`, which adds eps before the bias correction of the second moment and decays after "
                     "the update (ONNX's Adam, onnxruntime-training, `transformers.AdamW`)", "`pytorch`", "adam adamw muon"},
  {"optimizer.bias_correction", "t in 1 - beta^t counts this update (`from_one`) or only those before (`from_zero`); "
                                "`none`: no correction", "`from_one`", "adam adamw muon"},
  {"optimizer.no_decay", "[globs](#globs) of parameters without weight decay", "none"},
  {"optimizer.amsgrad", "as in PyTorch", "`false`", "adam adamw"},
  {"optimizer.alpha", "decay of the mean of squares", "0.99", "rmsprop"},
  {"optimizer.centered", "as in PyTorch", "`false`", "rmsprop"},
  {"optimizer.momentum_decay", "as in PyTorch", "4e-3", "nadam"},
  {"optimizer.decoupled_weight_decay", "as in PyTorch", "`false`", "nadam radam"},
  {"optimizer.rho", "as in PyTorch", "0.9", "adadelta"},
  {"optimizer.state_dtype", "`bf16` or `fp8`: momenta take two bytes a number or one ([8-bit Adam](../guide/optimizers-and-losses.md#optimizer-state-in-8-bits)). Means of squares stay, and updates are computed, in the parameter's type", "`parameter`: the parameter's type", "sgd adam adamw lamb lion muon rmsprop nadam radam adamax"},
  {"optimizer.layer_decay", "each layer's rate is that of the layer after it times this ([below](#parameter-groups))", "none"},
  {"optimizer.groups", "a list of maps: [parameter groups](#parameter-groups) with numbers of their own; the first that fits counts", "none"},
  {"optimizer.groups.match", "[globs](#globs)", "required"},
  {"optimizer.groups.lr", "the group's highest rate, whose schedule is the optimizer's, or `{scale: 0.1}` of it", "the optimizer's"},
  {"optimizer.groups.lr.scale", "what all rates of the schedule are multiplied by", "1"},
  {"optimizer.groups.kind", "`adamw`, where the optimizer is `muon`", "the optimizer's"},
  {"optimizer.groups.betas", "as of `optimizer`", "the optimizer's"},
  {"optimizer.groups.eps", "as of `optimizer`", "the optimizer's"},
  {"optimizer.groups.weight_decay", "as of `optimizer`; it counts for parameters of `no_decay`, too", "the optimizer's"},
  {"optimizer.groups.momentum", "as of `optimizer`", "the optimizer's"},
  {"clip_value", "each element of the gradients is clipped to ± this, as by clip_grad_value_; in place of `clip_norm`", "no clipping"},
  {"clip_norm", "largest global L2 norm of the gradients", "no clipping"},
  {"clip_norms", "a list of maps: groups of parameters whose gradients are clipped by their own L2 norm; the first that fits counts, and all others share `clip_norm`", "none"},
  {"clip_norms.match", "[globs](#globs)", "required"},
  {"clip_norms.norm", "largest L2 norm of the group's gradients", "required"},
  {"skip_outliers", "steps with an unusual gradient norm [change nothing](#outliers)", "none"},
  {"skip_outliers.factor", "a norm above this times its running mean is unusual", "5"},
  {"skip_outliers.decay", "what a step leaves of the mean", "0.99"},
  {"skip_outliers.warmup", "steps, from the first, that are not skipped", "100"},
  {"precision", "`fp32`, `tf32`, `bf16`, `fp16`, `fp8` ([precision.md](precision.md))", "`fp32`"},
  {"loss_scale", "`fp16`: the scale of the loss, as torch's GradScaler adapts it", ""},
  {"loss_scale.init", "scale of the first step", "65536"},
  {"loss_scale.growth", "what it grows by", "2"},
  {"loss_scale.backoff", "what an overflow multiplies it by", "0.5"},
  {"loss_scale.interval", "finite steps in a row after which it grows", "2000"},
  {"fp8", "`fp8`: how tensors are scaled ([precision.md](precision.md#fp8))", ""},
  {"fp8.scaling", "`delayed`: by the largest values of the steps before; `current`: by the tensor's own", "`delayed`"},
  {"fp8.history", "`delayed`: steps that count", "16"},
  {"fp8.margin", "halvings of every scale, at most 8", "0"},
  {"fp8.keep", "[globs](#globs) of weights whose products stay in bf16", "the weights of the last products"},
  {"trainable", "[globs](#globs); all other parameters are frozen; `!glob` freezes", "`[\"*\"]`"},
  {"frozen", "[globs](#globs) of parameters that do not train, whatever `trainable` says", "none"},
  {"roles", "what tensors are that the file does not tell: `{mean: buffer, scale: parameter}` "
            "([models.md](models.md#doubts))", "none"},
  {"roles.*", "`parameter`, `buffer` or `constant`", ""},
  {"frozen_rows", "rows without gradient: `{\"*embed*\": [0]}` is PyTorch's `padding_idx=0`", "none"},
  {"frozen_rows.*", "rows of the parameters that this glob names", ""},
  {"grad_norms", "gradients' norms by group, beside the one of all: `{attention: [\"*attn*\"]}` adds `grad_norm.attention` to the "
                 "metrics", "none"},
  {"grad_norms.*", "[globs](#globs) of the parameters of a group of this name", ""},
  {"batch_norm", "`as_exported`, `training` (statistics of the global batch), `frozen` (running statistics)", "`as_exported`"},
  {"attention", "on GPUs in 16 bits: `library` (cuDNN), `written` (products and a softmax), `auto` (the library where every supported version "
                "can)", "`auto`"},
  {"epilogues", "on GPUs: `library` puts biases, tanh GELU and their gradients into the matrix products; `written` keeps kernels of their own",
                "`library`"},
  {"ties", "which equal initializers are one parameter: `auto`, `as_exported`, `none` ([models.md](models.md#tied-parameters))", "`auto`"},
  {"dropout", "`as_exported`, one rate for all, or `off`", "`as_exported`"},
  {"init", "`from_model`, or a map: [weights from elsewhere](#weights-from-elsewhere), or numbers for graphs without weights",
           "`from_model`"},
  {"init.kind", "`from_model`, `safetensors`, `normal`, `uniform`, `constant`, `zeros`, `ones`, `xavier_uniform`, `xavier_normal`, `kaiming_uniform`, "
                "`kaiming_normal`", "required"},
  {"init.mean", "mean", "0", "normal"},
  {"init.std", "standard deviation", "0.02", "normal"},
  {"init.low", "lowest number", "0", "uniform"},
  {"init.high", "highest number", "1", "uniform"},
  {"init.value", "the number", "0", "constant"},
  {"init.gain", "as in PyTorch", "1", "xavier_uniform xavier_normal kaiming_uniform kaiming_normal"},
  {"init.path", "a `.safetensors` file, a `.safetensors.index.json`, or the folder of either; relative to the recipe's "
                "folder", "required there", "safetensors"},
  {"init.optimizer", "the folder of an optimizer's state and steps, by `cleave export --optimizer` or `cleave.save_optimizer`, with which a training goes on", "none"},
  {"init.prefix", "what the checkpoint's names begin with and the model's do not", "found, as `model.`", "safetensors"},
  {"init.names", "`pytorch`, or `file`: tensors are called and lie as in the `.onnx` file", "`pytorch`", "safetensors"},
  {"init.missing", "weights that the checkpoint lacks are an `error`, or `keep` the model's values", "`error`", "safetensors"},
  {"init.rules", "a list of maps: the first whose glob fits comes before `init.kind`", "none"},
  {"init.rules.match", "a [glob](#globs)", "required"},
  {"init.rules.*", "`kind` and its numbers, as of `init`, for these parameters", ""},
  {"lora", "[adapters](#low-rank-adapters) beside weights, which alone train", "none"},
  {"lora.match", "[globs](#globs): each names a weight that MatMul or Gemm multiplies by, and nothing else reads", "required"},
  {"lora.rank", "columns of A and rows of B; at most the smaller side of W", "8"},
  {"lora.alpha", "the adapter's product is multiplied by alpha / rank", "`lora.rank`"},
  {"lora.dropout", "rate before A; `dropout` does not change it", "0"},
  {"seed", "seed of shuffling, dropout and initial weights", "0"},
  {"data", "samples ([below](#data))", "given by `run --data`"},
  {"data.kind", "`arrays`, `chars`, `tokens`, `cifar10`, `images`, `mixture`, `synthetic`", "required"},
  {"data.path", "a file, a folder or a glob, or a list of them ([below](#files)); relative to the recipe's folder; in Python also a URL, [fetched](../guide/object-stores.md)", "required, but for `mixture` and `synthetic`"},
  {"data.block", "`chars`, `tokens`: length of a sample", "the model's input"},
  {"data.train_split", "this leading part trains, and the rest evaluates", "1"},
  {"data.truncate", "`chars`, `tokens`: use so many symbols only; 0: all", "0"},
  {"data.shuffle", "`true`, `false`", "`true`"},
  {"data.last_batch", "samples that fill no batch: `repeat` fills it with the epoch's first ones, `drop` leaves them out, `smaller` trains on them alone ([below](#data))", "`repeat`"},
  {"data.dtype", "`tokens`: `uint16`, `uint32`, `int32`, `int64`", "as the file says, else `uint16`"},
  {"data.samples", "`synthetic`: samples of an epoch", "1,024 batches"},
  {"data.size", "`images`: length of the shorter side before the middle is cut out", "as small as covers the model's input"},
  {"data.mean", "`images`: one number, or one a channel", "0"},
  {"data.std", "`images`: likewise", "1"},
  {"data.fields", "`arrays`: which array an input takes, where their names differ", "the input's name"},
  {"data.fields.*", "name of the array for this input", ""},
  {"data.fill", "`arrays`, `chars`, `tokens`: what inputs take that the data does not have ([below](#inputs-without-data))", "by name"},
  {"data.fill.*", "`tokens`, `ones`, `zeros`, `positions`, `segments` or `mask`", ""},
  {"data.lengths", "`arrays`, `tokens`, `synthetic`: lengths of sequences, such as `[128, 256, 512]`; a step has the least that its longest sample fits in ([below](#lengths))", "the model's one"},
  {"data.length_dims", "the dimensions of `dims` that are a sequence's length", "those with the size of the longest, but for the batch"},
  {"data.pack", "`true`: samples stand side by side in rows of the longest length", "`false`"},
  {"data.causal", "`true`: in a mask of [positions, positions] a position sees those before it only", "`tokens`: `true`, `arrays`: `false`"},
  {"data.separator", "`tokens` of several lengths: the token that ends a sample", "required, but for files with an `.idx`"},
  {"data.pad", "what stands behind a sample's end, by input", "0; for labels a number that the loss ignores"},
  {"data.pad.*", "the number for this input", ""},
  {"data.augment", "`images`, `cifar10`, `arrays` of `uint8` images: what is changed at random in images that train ([below](#augmentation))", "none"},
  {"data.augment.random_resized_crop", "cuts out a part and scales it to the model's size, in place of scaling and cutting out the middle; `{}`: with torchvision's numbers", "none"},
  {"data.augment.random_resized_crop.scale", "the part of the image's area, from and to", "`[0.08, 1]`"},
  {"data.augment.random_resized_crop.ratio", "width to height, from and to", "`[0.75, 1.3333333333333333]`"},
  {"data.augment.crop_padding", "black pixels around the image, out of which the model's size is cut", "none"},
  {"data.augment.flip", "the chance that left and right are exchanged", "0"},
  {"data.augment.color_jitter", "changes of colour, as of torchvision's ColorJitter, in a random order", "none"},
  {"data.augment.color_jitter.brightness", "b: a factor from max(0, 1 - b) to 1 + b", "0"},
  {"data.augment.color_jitter.contrast", "likewise", "0"},
  {"data.augment.color_jitter.saturation", "likewise", "0"},
  {"data.augment.color_jitter.hue", "h, at most 0.5: a turn of the hue from -h to h", "0"},
  {"data.mixup", "`images`, `cifar10`, `arrays`: alpha of [mixup](#augmentation)", "none"},
  {"data.cutmix", "likewise, of CutMix; with both, each batch has one of them", "none"},
  {"data.sources", "`mixture`: a list of `data` maps, each with a `weight` ([below](#mixtures))", "required there"},
  {"data.sources.weight", "the source's part of the samples, to the sum of all weights", "1"},
  {"data.sources.*", "`kind` and its keys, as of `data`", ""},
  {"ema", "a moving average of the weights, as torch's AveragedModel keeps it: evaluated, and written by `cleave export --ema`", "none"},
  {"ema.decay", "the part of the average that stays", "0.999"},
  {"ema.every", "steps from one average to the next", "1"},
  {"eval", "evaluation on the samples that `data.train_split` keeps back", "none"},
  {"eval.every", "steps between two evaluations; 0: none", "0"},
  {"eval.batches", "batches of one evaluation", "10"},
  {"eval.metrics", "a list of what is measured beside the loss ([below](#evaluation))", "none"},
  {"eval.metrics.kind", "`accuracy`, `top_K` (as `top_5`), `f1`, `confusion`, `mae`, `perplexity`, or `mean` of an output", "required"},
  {"eval.metrics.name", "its name in the metrics: `eval_NAME`", "the kind; of `mean` the output"},
  {"eval.metrics.loss", "of several losses the one whose output and labels it compares", "required there"},
  {"eval.metrics.output", "the graph output that it reads", "the loss's"},
  {"eval.metrics.labels", "the model's input that it compares the output with", "the loss's labels"},
  {"eval.monitor", "`loss`, or the metric by which `run --keep-best` and `patience` judge", "`loss`"},
  {"eval.patience", "evaluations in a row without a better one, after which the run ends (early stopping); 0: never", "0"},
  {"eval.min_delta", "how much better one has to be", "0"},
};
// clang-format on

} // namespace

std::span<const Key> keys() { return all; }

bool isKey(const std::string &path) {
  return std::ranges::any_of(all, [&](const Key &key) {
    std::string_view known = key.path;
    return path == known || (known.ends_with(".*") && path.starts_with(known.substr(0, known.size() - 1)));
  });
}

std::vector<std::string> kindsOf(const Key &key) {
  std::istringstream words(key.kinds);
  return {std::istream_iterator<std::string>(words), {}};
}

std::string useFault(const std::string &path, const std::string &kind) {
  std::string owner = path; // optimizer.groups.eps is as optimizer.eps, init.rules.std as init.std
  for (std::string_view list : {".groups.", ".rules."})
    if (const size_t at = owner.find(list); at != std::string::npos) owner.erase(at, list.size() - 1);
  for (const Key &key : all) {
    if (owner != key.path || *key.kinds == '\0') continue;
    const std::vector<std::string> kinds = kindsOf(key);
    if (std::ranges::find(kinds, kind) != kinds.end()) return "";
    return fmt::format("'{}' is for {}, this is {}; leave it out", path, fmt::join(kinds, ", "), kind);
  }
  return "";
}

namespace {

template <typename Kind> std::vector<std::string> wordsOf() {
  std::vector<std::string> all;
  for (const Word<Kind> &entry : words<Kind>()) all.emplace_back(entry.word);
  return all;
}

// "`sgd`, `muon`: ", or by what is left out where that is shorter; "" where all kinds use the key.
std::string documentKinds(const Key &key) {
  if (*key.kinds == '\0') return "";
  const std::string_view path = key.path;
  const std::vector<std::string> kinds = kindsOf(key),
                                 known = path.starts_with("loss.")           ? wordsOf<LossKind>()
                                         : path.starts_with("optimizer.lr.") ? wordsOf<ScheduleKind>()
                                         : path.starts_with("optimizer.")    ? wordsOf<OptimizerKind>()
                                                                             : kinds;
  std::vector<std::string> used, others;
  for (const std::string &word : known)
    (std::ranges::find(kinds, word) != kinds.end() ? used : others).push_back(fmt::format("`{}`", word));
  return others.size() < used.size() && !others.empty() ? fmt::format("all but {}: ", fmt::join(others, ", "))
                                                        : fmt::format("{}: ", fmt::join(used, ", "));
}

} // namespace

std::string documentKeys() {
  std::string text = "| key | meaning | where it is left out |\n|---|---|---|\n";
  for (const Key &key : all)
    text += fmt::format("| `{}` | {}{} | {} |\n", key.path, documentKinds(key), key.meaning, key.fallback);
  return text;
}

} // namespace cleave::recipe
