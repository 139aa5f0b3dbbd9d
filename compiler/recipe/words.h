// The enums of a recipe, each with its words, which the reader, the writer and messages share. They stand in the
// enum's order.
//
//     toString(OptimizerKind::AdamW) == "adamw", wordsOf(OptimizerKind()).front() == "sgd"
#pragma once
#include <array>
#include <string>

namespace cleave::recipe {

enum class LossKind {
  SoftmaxCrossEntropy,
  Nll,
  MultiMargin,
  Bce,
  BceWithLogits,
  Mse,
  L1,
  Huber,
  KlDiv,
  HingeEmbedding,
  CosineEmbedding,
  MarginRanking,
  Triplet,
  Ctc,
  Output
};
constexpr auto wordsOf(LossKind) {
  return std::to_array({"softmax_cross_entropy", "nll", "multi_margin", "bce", "bce_with_logits", "mse", "l1", "huber",
                        "kl_div", "hinge_embedding", "cosine_embedding", "margin_ranking", "triplet", "ctc", "output"});
}

enum class OptimizerKind {
  Sgd,
  Adam,
  AdamW,
  Adagrad,
  Lamb,
  Lion,
  Adafactor,
  Muon,
  RmsProp,
  NAdam,
  RAdam,
  Adamax,
  Adadelta
};
constexpr auto wordsOf(OptimizerKind) {
  return std::to_array({"sgd", "adam", "adamw", "adagrad", "lamb", "lion", "adafactor", "muon", "rmsprop", "nadam",
                        "radam", "adamax", "adadelta"});
}

enum class StateType { Parameter, Bf16, Fp8 };
constexpr auto wordsOf(StateType) { return std::to_array({"parameter", "bf16", "fp8"}); }

enum class NewtonSchulzType { Parameter, Bf16 };
constexpr auto wordsOf(NewtonSchulzType) { return std::to_array({"parameter", "bf16"}); }

enum class Reduction { Mean, Sum, BatchMean };
constexpr auto wordsOf(Reduction) { return std::to_array({"mean", "sum", "batchmean"}); }

enum class Precision { Fp32, Tf32, Bf16, Fp16, Fp8 };
constexpr auto wordsOf(Precision) { return std::to_array({"fp32", "tf32", "bf16", "fp16", "fp8"}); }

enum class Scaling { Delayed, Current };
constexpr auto wordsOf(Scaling) { return std::to_array({"delayed", "current"}); }

enum class BatchNorm { AsExported, Training, Frozen };
constexpr auto wordsOf(BatchNorm) { return std::to_array({"as_exported", "training", "frozen"}); }

enum class Attention { Auto, Library, Written };
constexpr auto wordsOf(Attention) { return std::to_array({"auto", "library", "written"}); }

enum class Epilogues { Library, Written };
constexpr auto wordsOf(Epilogues) { return std::to_array({"library", "written"}); }

enum class Ties { Auto, AsExported, None };
constexpr auto wordsOf(Ties) { return std::to_array({"auto", "as_exported", "none"}); }

enum class TensorRole { Parameter, Buffer, Constant };
constexpr auto wordsOf(TensorRole) { return std::to_array({"parameter", "buffer", "constant"}); }

// A checkpoint's tensors are called and lie as in PyTorch, or as in the .onnx file.
enum class TensorNames { Pytorch, File };
constexpr auto wordsOf(TensorNames) { return std::to_array({"pytorch", "file"}); }

// Parameters that a checkpoint has not: an error, or as the model has them.
enum class MissingWeights { Error, Keep };
constexpr auto wordsOf(MissingWeights) { return std::to_array({"error", "keep"}); }

enum class ScheduleKind { Constant, Linear, Cosine, Step, Exponential, Polynomial, CosineRestarts, Wsd, OneCycle };
constexpr auto wordsOf(ScheduleKind) {
  return std::to_array(
      {"constant", "linear", "cosine", "step", "exponential", "polynomial", "cosine_restarts", "wsd", "one_cycle"});
}

enum class Anneal { Linear, Cosine, Sqrt };
constexpr auto wordsOf(Anneal) { return std::to_array({"linear", "cosine", "sqrt"}); }

// How adam and adamw are written: where eps is added, and when adamw's weight decay is applied.
//     pytorch  param (1 - lr wd) - lr m / (1 - b1^t) / (sqrt(v) / sqrt(1 - b2^t) + eps)
//     onnx     (param - lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps)) (1 - lr wd)
// The second is Kingma and Ba's "epsilon hat", and what ONNX's Adam, onnxruntime-training and transformers.AdamW do.
enum class AdamForm { Pytorch, Onnx };
constexpr auto wordsOf(AdamForm) { return std::to_array({"pytorch", "onnx"}); }

// The t of 1 - b^t: updates with this one; updates before it, none of which is corrected (ONNX's Adam with a T that
// begins at 0); no correction at all.
enum class BiasCorrection { FromOne, FromZero, None };
constexpr auto wordsOf(BiasCorrection) { return std::to_array({"from_one", "from_zero", "none"}); }

enum class MetricKind { Accuracy, TopK, F1, Confusion, MeanAbsoluteError, Perplexity, Mean };
constexpr auto wordsOf(MetricKind) {
  return std::to_array({"accuracy", "top_5", "f1", "confusion", "mae", "perplexity", "mean"});
}

enum class DataKind { Arrays, Tokens, Chars, Cifar10, Images, Mixture, Synthetic };
constexpr auto wordsOf(DataKind) {
  return std::to_array({"arrays", "tokens", "chars", "cifar10", "images", "mixture", "synthetic"});
}

enum class LastBatch { Repeat, Drop, Smaller }; // of an epoch whose samples do not fill it
constexpr auto wordsOf(LastBatch) { return std::to_array({"repeat", "drop", "smaller"}); }

template <typename Kind>
concept HasWords = requires(Kind kind) { wordsOf(kind).size(); };
template <HasWords Kind> std::string toString(Kind kind) { return wordsOf(kind)[static_cast<size_t>(kind)]; }

} // namespace cleave::recipe
