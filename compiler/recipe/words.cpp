#include "compiler/recipe/words.h"

namespace cleave::recipe {

template <> std::span<const Word<LossKind>> words() {
  static constexpr Word<LossKind> table[] = {{LossKind::SoftmaxCrossEntropy, "softmax_cross_entropy"},
                                             {LossKind::Nll, "nll"},
                                             {LossKind::MultiMargin, "multi_margin"},
                                             {LossKind::Bce, "bce"},
                                             {LossKind::BceWithLogits, "bce_with_logits"},
                                             {LossKind::Mse, "mse"},
                                             {LossKind::L1, "l1"},
                                             {LossKind::Huber, "huber"},
                                             {LossKind::KlDiv, "kl_div"},
                                             {LossKind::HingeEmbedding, "hinge_embedding"},
                                             {LossKind::CosineEmbedding, "cosine_embedding"},
                                             {LossKind::MarginRanking, "margin_ranking"},
                                             {LossKind::Triplet, "triplet"},
                                             {LossKind::Ctc, "ctc"},
                                             {LossKind::Output, "output"}};
  return table;
}
template <> std::span<const Word<OptimizerKind>> words() {
  static constexpr Word<OptimizerKind> table[] = {{OptimizerKind::Sgd, "sgd"},
                                                  {OptimizerKind::Adam, "adam"},
                                                  {OptimizerKind::AdamW, "adamw"},
                                                  {OptimizerKind::Adagrad, "adagrad"},
                                                  {OptimizerKind::Lamb, "lamb"},
                                                  {OptimizerKind::Lion, "lion"},
                                                  {OptimizerKind::Adafactor, "adafactor"},
                                                  {OptimizerKind::Muon, "muon"},
                                                  {OptimizerKind::RmsProp, "rmsprop"},
                                                  {OptimizerKind::NAdam, "nadam"},
                                                  {OptimizerKind::RAdam, "radam"},
                                                  {OptimizerKind::Adamax, "adamax"},
                                                  {OptimizerKind::Adadelta, "adadelta"}};
  return table;
}
template <> std::span<const Word<StateType>> words() {
  static constexpr Word<StateType> table[] = {
      {StateType::Parameter, "parameter"}, {StateType::Bf16, "bf16"}, {StateType::Fp8, "fp8"}};
  return table;
}
template <> std::span<const Word<NewtonSchulzType>> words() {
  static constexpr Word<NewtonSchulzType> table[] = {{NewtonSchulzType::Parameter, "parameter"},
                                                     {NewtonSchulzType::Bf16, "bf16"}};
  return table;
}
template <> std::span<const Word<Reduction>> words() {
  static constexpr Word<Reduction> table[] = {
      {Reduction::Mean, "mean"}, {Reduction::Sum, "sum"}, {Reduction::BatchMean, "batchmean"}};
  return table;
}
template <> std::span<const Word<Precision>> words() {
  static constexpr Word<Precision> table[] = {{Precision::Fp32, "fp32"},
                                              {Precision::Tf32, "tf32"},
                                              {Precision::Bf16, "bf16"},
                                              {Precision::Fp16, "fp16"},
                                              {Precision::Fp8, "fp8"}};
  return table;
}
template <> std::span<const Word<Scaling>> words() {
  static constexpr Word<Scaling> table[] = {{Scaling::Delayed, "delayed"}, {Scaling::Current, "current"}};
  return table;
}
template <> std::span<const Word<BatchNorm>> words() {
  static constexpr Word<BatchNorm> table[] = {
      {BatchNorm::AsExported, "as_exported"}, {BatchNorm::Training, "training"}, {BatchNorm::Frozen, "frozen"}};
  return table;
}
template <> std::span<const Word<Attention>> words() {
  static constexpr Word<Attention> table[] = {
      {Attention::Auto, "auto"}, {Attention::Library, "library"}, {Attention::Written, "written"}};
  return table;
}
template <> std::span<const Word<Epilogues>> words() {
  static constexpr Word<Epilogues> table[] = {{Epilogues::Library, "library"}, {Epilogues::Written, "written"}};
  return table;
}
template <> std::span<const Word<TensorRole>> words() {
  static constexpr Word<TensorRole> table[] = {
      {TensorRole::Parameter, "parameter"}, {TensorRole::Buffer, "buffer"}, {TensorRole::Constant, "constant"}};
  return table;
}
template <> std::span<const Word<Ties>> words() {
  static constexpr Word<Ties> table[] = {{Ties::Auto, "auto"}, {Ties::AsExported, "as_exported"}, {Ties::None, "none"}};
  return table;
}
template <> std::span<const Word<Init::Missing>> words() {
  static constexpr Word<Init::Missing> table[] = {{Init::Missing::Error, "error"}, {Init::Missing::Keep, "keep"}};
  return table;
}
template <> std::span<const Word<AdamForm>> words() {
  static constexpr Word<AdamForm> table[] = {{AdamForm::Pytorch, "pytorch"}, {AdamForm::Onnx, "onnx"}};
  return table;
}
template <> std::span<const Word<BiasCorrection>> words() {
  static constexpr Word<BiasCorrection> table[] = {
      {BiasCorrection::FromOne, "from_one"}, {BiasCorrection::FromZero, "from_zero"}, {BiasCorrection::None, "none"}};
  return table;
}
template <> std::span<const Word<ScheduleKind>> words() {
  static constexpr Word<ScheduleKind> table[] = {{ScheduleKind::Constant, "constant"},
                                                 {ScheduleKind::Linear, "linear"},
                                                 {ScheduleKind::Cosine, "cosine"},
                                                 {ScheduleKind::Step, "step"},
                                                 {ScheduleKind::Exponential, "exponential"},
                                                 {ScheduleKind::Polynomial, "polynomial"},
                                                 {ScheduleKind::CosineRestarts, "cosine_restarts"},
                                                 {ScheduleKind::Wsd, "wsd"},
                                                 {ScheduleKind::OneCycle, "one_cycle"}};
  return table;
}
template <> std::span<const Word<Anneal>> words() {
  static constexpr Word<Anneal> table[] = {
      {Anneal::Linear, "linear"}, {Anneal::Cosine, "cosine"}, {Anneal::Sqrt, "sqrt"}};
  return table;
}
template <> std::span<const Word<MetricKind>> words() {
  static constexpr Word<MetricKind> table[] = {{MetricKind::Accuracy, "accuracy"},
                                               {MetricKind::TopK, "top_5"},
                                               {MetricKind::F1, "f1"},
                                               {MetricKind::Confusion, "confusion"},
                                               {MetricKind::MeanAbsoluteError, "mae"},
                                               {MetricKind::Perplexity, "perplexity"},
                                               {MetricKind::Mean, "mean"}};
  return table;
}
template <> std::span<const Word<LastBatch>> words() {
  static constexpr Word<LastBatch> table[] = {
      {LastBatch::Repeat, "repeat"}, {LastBatch::Drop, "drop"}, {LastBatch::Smaller, "smaller"}};
  return table;
}
template <> std::span<const Word<DataKind>> words() {
  static constexpr Word<DataKind> table[] = {{DataKind::Arrays, "arrays"},      {DataKind::Tokens, "tokens"},
                                             {DataKind::Chars, "chars"},        {DataKind::Cifar10, "cifar10"},
                                             {DataKind::Images, "images"},      {DataKind::Mixture, "mixture"},
                                             {DataKind::Synthetic, "synthetic"}};
  return table;
}

namespace {
template <typename Kind> std::string wordOf(Kind kind) {
  for (const Word<Kind> &entry : words<Kind>())
    if (entry.kind == kind) return entry.word;
  return "?";
}
} // namespace

size_t outputsOf(LossKind kind) {
  if (kind == LossKind::Triplet) return 3;
  return kind == LossKind::CosineEmbedding || kind == LossKind::MarginRanking ? 2 : 1;
}
std::string toString(LossKind kind) { return wordOf(kind); }
std::string toString(OptimizerKind kind) { return wordOf(kind); }
std::string toString(StateType kind) { return wordOf(kind); }
std::string toString(NewtonSchulzType kind) { return wordOf(kind); }
std::string toString(Reduction kind) { return wordOf(kind); }
std::string toString(Precision kind) { return wordOf(kind); }
const char *lowElement(Precision kind) {
  const bool isBrain = kind == Precision::Bf16 || kind == Precision::Fp8;
  return isBrain ? "bf16" : kind == Precision::Fp16 ? "f16" : "";
}
bool allowsLibraryAttention(const Recipe &recipe) {
  return recipe.attention != Attention::Written && *lowElement(recipe.precision) != '\0';
}
std::string toString(Scaling kind) { return wordOf(kind); }
std::string toString(BatchNorm kind) { return wordOf(kind); }
std::string toString(Attention kind) { return wordOf(kind); }
std::string toString(Epilogues kind) { return wordOf(kind); }
std::string toString(Ties kind) { return wordOf(kind); }
std::string toString(TensorRole kind) { return wordOf(kind); }
std::string toString(Init::Missing kind) { return wordOf(kind); }
std::string toString(AdamForm kind) { return wordOf(kind); }
std::string toString(BiasCorrection kind) { return wordOf(kind); }
std::string toString(ScheduleKind kind) { return wordOf(kind); }
std::string toString(Anneal kind) { return wordOf(kind); }
std::string toString(DataKind kind) { return wordOf(kind); }
std::string toString(const Metric &metric) {
  return metric.kind == MetricKind::TopK ? "top_" + std::to_string(metric.k) : wordOf(metric.kind);
}
std::string toString(LastBatch kind) { return wordOf(kind); }

} // namespace cleave::recipe
