// The recipe: how a person says a model is trained (the YAML of docs/reference/recipe.md). Read once, checked
// completely, then passed around as one plain struct; nothing later looks at YAML again. MLIR-free.
//
//     Result<Recipe> recipe = parseRecipe("gpt.yaml", {"optimizer.lr=1e-3", "dims.batch=64"});
//     recipe->optimizer.kind == OptimizerKind::AdamW, recipe->dims.at("batch") == 64
//
// Every fault is an input error (exit status 1) that begins with "FILE:LINE: " and says what to write instead:
//     gpt.yaml:7: unknown key 'optimizer.weight_dekay'; did you mean 'weight_decay'?
#pragma once
#include "compiler/recipe/words.h"
#include "runtime/base/status.h"
#include "runtime/plan/augment.h"
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cleave::recipe {

struct Labels {
  std::string name = "labels";      // the new model input
  std::optional<std::string> dtype; // "int64", "float32"; absent: follows from the loss
  // Absent: follows from the loss. An entry is a number or the name of a dimension bound by `dims`.
  std::optional<std::vector<std::string>> shape;
  std::optional<std::string> output; // of the graph, in place of an input: a teacher's, which gets no gradient
};

struct Loss {
  LossKind kind = LossKind::SoftmaxCrossEntropy;
  std::string name;   // of several, or of one with a `scale`, in the metrics; "": a loss alone
  double scale = 1.0; // in the sum
  std::vector<std::string>
      outputs; // of the graph, key `output`: one, or as many as the kind reads; empty: the only one
  Labels labels;
  std::optional<int64_t> ignoreIndex;
  double labelSmoothing = 0.0;
  Reduction reduction = Reduction::Mean;
  int64_t axis = -1;             // class axis of softmax_cross_entropy, nll and multi_margin
  double huberDelta = 1.0;       // key `delta`
  std::vector<double> weight;    // softmax_cross_entropy, nll, multi_margin: of each class
  std::vector<double> posWeight; // bce_with_logits: of positives, one or one for each entry of the last dimension
  double zLoss = 0;              // softmax_cross_entropy: of log(sum e^x)^2
  bool logTarget = false;        // kl_div: labels are logarithms
  double margin = 0;             // of embeddings, ranks and classes; 1 for hinge_embedding, multi_margin and triplet
  int64_t p = 2;                 // triplet: the distance's norm; multi_margin (1 unless given): the power of a term
  double eps = 1.0e-6;           // triplet: added to differences
  bool swap = false;             // triplet
  int64_t blank = 0;             // ctc: the class
  bool zeroInfinity = false;     // ctc
  std::string inputLengths = "input_lengths", targetLengths = "target_lengths"; // ctc: further inputs
  std::string where;                                                            // "gpt.yaml:3"
};

// How many outputs of the graph a loss of the kind reads.
size_t outputsOf(LossKind kind);

// The learning rate; runtime/plan/lr_schedule.h has the formulas.
struct Schedule {
  ScheduleKind kind = ScheduleKind::Constant;
  double peak = 1.0e-3;
  double min = 0.0;
  std::optional<double> start; // of the warmup; absent: the peak over warmup_steps
  int64_t warmupSteps = 0;
  int64_t totalSteps = 0;
  std::vector<int64_t> milestones;
  double gamma = 0.1;
  double power = 1.0;             // polynomial
  int64_t period = 0;             // cosine_restarts: steps until the first restart
  int64_t periodFactor = 1;       // cosine_restarts: by which each period is longer than the one before
  int64_t decaySteps = 0;         // wsd: the last ones
  Anneal anneal = Anneal::Cosine; // wsd, one_cycle: how the rate falls
  double warmupShare = 0.3;       // one_cycle: of the steps
};

// Parameters that train with other numbers than the optimizer's. The first group whose glob fits a parameter counts.
struct OptimizerGroup {
  std::vector<std::string> match; // globs
  std::optional<OptimizerKind> kind;
  double rateScale = 1; // of the learning rate, in every step; key `lr`: a rate over the peak, or {scale: ...}
  std::optional<double> beta1, beta2, eps, weightDecay, momentum;
  std::string where;
};

struct Optimizer {
  OptimizerKind kind = OptimizerKind::AdamW;
  Schedule lr;
  double beta1 = 0.9, beta2 = 0.999; // lion: 0.9, 0.99 unless given
  double eps = 1.0e-8;               // adagrad: 1e-10, lamb: 1e-6, adafactor: 2^-23 unless given
  double weightDecay = 0.0;          // adamw: 0.01, muon: 0.1 unless given
  double momentum = 0.0;             // muon: 0.95 unless given
  double dampening = 0.0;
  bool nesterov = false;           // muon: true unless given
  double eps2 = 1.0e-3;            // adafactor: the least size of a parameter that steps are relative to
  double beta2Decay = -0.8;        // adafactor
  double clipThreshold = 1.0;      // adafactor, key `d`: the largest root mean square of an update
  double initialAccumulator = 0.0; // adagrad
  double lrDecay = 0.0;            // adagrad
  int64_t newtonSchulzSteps = 5;   // muon, key `ns_steps`
  NewtonSchulzType newtonSchulzType = NewtonSchulzType::Parameter; // muon, key `ns_dtype`: of its products
  AdamForm form = AdamForm::Pytorch;                               // adam, adamw
  BiasCorrection biasCorrection = BiasCorrection::FromOne;
  bool amsgrad = false;                       // adam, adamw
  double alpha = 0.99;                        // rmsprop
  bool centered = false;                      // rmsprop
  double momentumDecay = 4.0e-3;              // nadam
  bool decoupledDecay = false;                // nadam, radam: weight decay of the parameter, not of the gradient
  double rho = 0.9;                           // adadelta
  StateType stateType = StateType::Parameter; // key `state_dtype`
  std::vector<OptimizerGroup> groups;
  std::optional<double> layerDecay; // of the learning rate, from each layer to the one before it
  std::vector<std::string> noDecay; // globs over parameter names or the names of nodes that use them
  std::string where;
};

// How a parameter without weights begins. The first rule whose glob fits wins; else `kind` itself.
struct InitRule {
  std::string match; // glob; "*" for the default
  std::string kind;  // normal | uniform | constant | zeros | ones | xavier_uniform | xavier_normal |
                     // kaiming_uniform | kaiming_normal
  double mean = 0.0, std = 0.02, low = 0.0, high = 1.0, value = 0.0, gain = 1.0;
};
struct Init {
  bool fromModel = true;                                // or from a checkpoint
  InitRule base = {.match = "*", .kind = "from_model"}; // kind: a distribution, unless fromModel
  std::string checkpoint; // kind safetensors, key `path`, absolute: a file, an index of files, or a folder; "": none
  std::string optimizer;  // absolute: a folder of optimizer state, with which a training goes on; "": none
  std::string prefix;     // that the checkpoint's names have and the model's have not
  TensorNames names = TensorNames::Pytorch;
  MissingWeights missing = MissingWeights::Error;
  std::vector<InitRule> rules;
};

// Low-rank adapters beside products: y = x W becomes y + alpha / rank (dropout(x) A) B, and only A and B train.
struct Lora {
  std::vector<std::string> match; // globs over weights
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
};

// Rows of a parameter (entries of its first dimension) whose gradient is 0.
struct FrozenRows {
  std::string match; // glob
  std::vector<int64_t> rows;
};

// Parameters whose gradients are clipped to a norm of their own, in place of clip_norm.
struct ClipGroup {
  std::vector<std::string> match; // globs
  double norm = 1;
  std::string where;
};

// Steps whose gradients' norm is above `factor` times its running mean change nothing.
struct SkipOutliers {
  double factor = 5;
  double decay = 0.99;  // of the running mean, a step
  int64_t warmup = 100; // steps that only feed the mean
};

// Parameters whose gradients' norm is told by itself, as the result "grad_norm.NAME".
struct NormGroup {
  std::string name;
  std::vector<std::string> match; // globs
};

struct Dropout {
  enum class Kind { AsExported, Rate, Off } kind = Kind::AsExported;
  double rate = 0.0; // of Kind::Rate
};

struct Data {
  DataKind kind = DataKind::Synthetic;
  // Files, folders and globs; absolute once parsed: relative paths start at the recipe's folder, else at the current
  // one.
  std::vector<std::string> paths;
  int64_t block = 0; // chars, tokens: sequence length; 0: from the model's input
  double trainSplit =
      1.0;              // chars, tokens, arrays, images (of each class): this leading part trains, the rest evaluates
  int64_t truncate = 0; // chars, tokens: use only this many symbols; 0: all
  bool shuffle = true;
  LastBatch lastBatch = LastBatch::Repeat;
  std::string dtype;                         // tokens: uint16 | uint32 | int32 | int64; empty: uint16
  int64_t size = 0;                          // images: what the shorter side becomes; 0: the model's size
  std::vector<double> mean, std;             // images: of one channel or of each; empty: 0 and 1
  int64_t samples = 0;                       // synthetic: samples an epoch; 0: 1024 batches' worth
  std::map<std::string, std::string> fields; // input or label name -> array name, where they differ
  std::map<std::string, std::string> fill;   // input name -> what it takes, where the data does not have it
  std::vector<int64_t> lengths;              // of the sequences that a step may have, ascending; empty: one
  std::vector<std::string> lengthDims;       // symbolic dimensions that are as long; filled when the recipe is read
  bool pack = false;                         // of lengths: samples share a row
  std::optional<bool> causal;                // of lengths: whether a mask that is made is; none: of tokens it is
  std::optional<int64_t> separator;          // tokens: the token that ends a sample, where they have several lengths
  std::map<std::string, double> pad;         // of lengths: input or label name -> what stands behind a sample's end
  std::optional<runtime::Augment> augment;   // images, cifar10, arrays of images
  double mixup = 0, cutmix = 0;              // the alpha of each; 0: none
  std::vector<Data> sources;                 // of a mixture
  double weight = 1;                         // of a source
  bool isSource = false;                     // of a mixture
  std::string where;

  // Those of its sources, too.
  void addPaths(std::vector<std::string> &all) const {
    all.insert(all.end(), paths.begin(), paths.end());
    for (const Data &source : sources) source.addPaths(all);
  }
};

// A moving average of the weights, which the evaluation reads.
struct Ema {
  double decay = 0.999;
  int64_t every = 1; // steps
};

// What an evaluation measures beside the loss: its kind is told by `name`, or by `kind` where it has a name of its own.
struct Metric {
  MetricKind kind = MetricKind::Accuracy;
  int64_t k = 1;                     // top_k
  std::string name;                  // eval_NAME of the metrics
  size_t loss = 0;                   // of several losses the one that it is of
  bool isBinary = false;             // labels are 0 or 1, not classes
  std::optional<std::string> output; // of the graph; absent: the loss's
  std::optional<std::string> labels; // an input of the model; absent: the loss's labels
  std::string where;
};

struct Eval {
  int64_t every = 0; // steps; 0: no evaluation
  int64_t batches = 10;
  std::vector<Metric> metrics;
  std::string monitor = "loss"; // or the name of a metric: by it a snapshot is the best one, and a run ends early
  int64_t patience = 0;         // evaluations in a row without a better one, after which the run ends; 0: never
  double minDelta = 0;          // by so much better
};

// The loss scale of a training in fp16: as torch.amp.GradScaler adapts it.
struct LossScale {
  double init = 65536, growth = 2, backoff = 0.5;
  int64_t interval = 2000; // finite steps in a row after which it grows
};

// How a training in fp8 chooses the scale of a tensor: the largest number of the type over 2^margin times the largest
// absolute value (amax) of this tensor, now or in the steps before.
struct Fp8 {
  Scaling scaling = Scaling::Delayed;
  int64_t history = 16; // delayed: steps whose amax counts
  int64_t margin = 0;   // halvings of the scale, at most 8: they leave 10 of the 18 powers of two of e4m3
  std::optional<std::vector<std::string>> keep; // globs of weights whose products stay in bf16; absent: the last ones
};

// The first steps of a training, with smaller dimensions than the recipe's.
struct RampStage {
  int64_t until = 0; // its last step, counted from 1
  std::map<std::string, int64_t> dims;
  std::string where;
};

struct Recipe {
  std::map<std::string, int64_t> dims; // symbolic dimensions; "batch" is the global batch
  std::vector<RampStage> ramp;         // one after the other; empty: none
  // At least one; their sum is trained. Of a recipe without one, where the model says it: see model_training.h.
  std::vector<Loss> losses = {Loss()};
  Optimizer optimizer;
  std::optional<double> clipNorm, clipValue; // of all gradients together; of each of their elements
  std::vector<ClipGroup> clipNorms;          // the first that fits a parameter counts; others share clipNorm
  std::optional<SkipOutliers> skipOutliers;
  Precision precision = Precision::Fp32;
  LossScale lossScale;
  Fp8 fp8;
  std::vector<std::string> trainable = {"*"}; // globs; the others are frozen
  bool trainableGiven = false;                // the recipe names them: then a glob may also name a small constant
  std::vector<std::string> frozen;            // globs; they win over `trainable`, whose "!glob" are here
  std::map<std::string, TensorRole> roles;    // what single tensors are
  std::vector<FrozenRows> frozenRows;
  BatchNorm batchNorm = BatchNorm::AsExported;
  Attention attention = Attention::Auto;    // on GPUs in 16 bits: by a library, or written out as the exporter did
  Epilogues epilogues = Epilogues::Library; // on GPUs: bias, activation and bias gradients of products, likewise
  bool deterministic = false;               // on GPUs: every run gives the same bits, in calls of libraries too
  Ties ties = Ties::Auto;
  Dropout dropout;
  Init init;
  std::optional<Lora> lora;
  std::vector<NormGroup> gradNorms;
  int64_t seed = 0;
  std::optional<Data> data; // absent: `cleave run` asks for --data
  std::optional<Ema> ema;
  std::optional<Eval> eval;
  std::string file;                         // as given; "recipe" from text
  std::set<std::string> given;              // dotted keys that have a value
  std::map<std::string, std::string> lines; // dotted key -> "gpt.yaml:7" or "--set lr=1"

  // Are losses added up, and each told by itself?
  bool sumsLosses() const { return !losses.front().name.empty(); }
  // Frozen weights are parameters, however small: their values come from a checkpoint, or adapters stand beside them.
  bool keepsFrozenWeights() const { return lora || !init.checkpoint.empty(); }
  bool gives(const std::string &key) const { return given.count(key) != 0; } // as a dotted key, with a value
  // Where a key was written, for messages: "gpt.yaml:7"; for a key that is not there, where its map was, or the file.
  std::string at(const std::string &key) const;

  // The whole recipe with defaults filled in, as YAML (goes into the plan; parses to an equal recipe).
  std::string resolved() const;
  // The `data` and `eval` maps alone (Training.data_yaml, Training.eval_yaml); "" if absent.
  std::string dataYaml() const;
  std::string evalYaml() const;
};

// `overrides` are KEY=VALUE with dotted keys ("optimizer.lr=1e-3", "trainable=[\"*.bias\"]"); values are YAML.
Result<Recipe> parseRecipe(const std::string &path, const std::vector<std::string> &overrides = {});
// `name` stands for the file in messages.
Result<Recipe> parseRecipeText(const std::string &text, const std::string &name = "recipe",
                               const std::vector<std::string> &overrides = {});

// A key of `optimizer` or of its groups that the optimizer's kind, or another key beside it, has no use for is an
// error. A recipe without `optimizer.kind` is checked when the model has said its own.
Status checkOptimizer(const Recipe &recipe);

// The outputs that losses name must be among `outputs`; without a name there must be one.
Status checkOutput(const Recipe &recipe, const std::vector<std::string> &outputs);

// The element type that products are computed on: "bf16" or "f16"; "" where it is fp32. In fp8 it is that of
// all products but those of weights: "bf16".
const char *lowElement(Precision kind);
// May a library compute attention as one operation, where the device has one? cuDNN has it in 16 bits.
bool allowsLibraryAttention(const Recipe &recipe);
std::string toString(const Metric &metric); // its kind: "accuracy", "top_5"

} // namespace cleave::recipe
