#include "compiler/recipe/glob.h"
#include "compiler/recipe/keys.h"
#include "compiler/recipe/model_training.h"
#include "compiler/recipe/ranges.h"
#include "compiler/recipe/schedule.h"
#include "compiler/recipe/words.h"
#include "runtime/plan/lr_schedule.h"
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <tuple>

namespace cleave::recipe {
namespace {

using testing::HasSubstr;

// The example of docs/reference/recipe.md, word for word.
const char *example = R"(dims: {batch: 32}              # binds symbolic dimensions; batch is the global batch
loss:
  kind: softmax_cross_entropy
  output: logits
  labels: {name: labels}
  ignore_index: -100
  label_smoothing: 0.0
  reduction: mean
  axis: -1
optimizer:
  kind: adamw
  lr: 3.0e-4
  betas: [0.9, 0.95]
  eps: 1.0e-8
  weight_decay: 0.1
  no_decay: ["*.bias", "*ln*"]
clip_norm: 1.0
precision: fp32
trainable: ["*"]
batch_norm: as_exported
ties: auto
dropout: as_exported
init: {kind: from_model}
seed: 0
data: {kind: chars, path: input.txt, block: 128, train_split: 0.9}
eval: {every: 100, batches: 10}
)";

Recipe parsed(const std::string &text, const std::vector<std::string> &overrides = {}) {
  Result<Recipe> recipe = parseRecipeText(text, "r.yaml", overrides);
  EXPECT_TRUE(recipe.isOk()) << recipe.status().message();
  return recipe ? *recipe : Recipe();
}
std::string fault(const std::string &text, const std::vector<std::string> &overrides = {}) {
  Result<Recipe> recipe = parseRecipeText(text, "r.yaml", overrides);
  EXPECT_FALSE(recipe.isOk());
  return recipe.status().message();
}
std::string withLoss(const std::string &rest) { return "loss: {kind: mse}\n" + rest; }

TEST(Recipe, ReadsTheExampleOfTheInterface) {
  Recipe recipe = parsed(example);
  EXPECT_EQ(recipe.dims.at("batch"), 32);
  EXPECT_EQ(recipe.losses[0].kind, LossKind::SoftmaxCrossEntropy);
  EXPECT_EQ(recipe.losses[0].outputs, std::vector<std::string>{"logits"});
  EXPECT_EQ(recipe.losses[0].ignoreIndex, -100);
  EXPECT_EQ(recipe.optimizer.kind, OptimizerKind::AdamW);
  EXPECT_DOUBLE_EQ(recipe.optimizer.lr.peak, 3e-4);
  EXPECT_DOUBLE_EQ(recipe.optimizer.beta2, 0.95);
  EXPECT_THAT(recipe.optimizer.noDecay, testing::ElementsAre("*.bias", "*ln*"));
  EXPECT_EQ(recipe.clipNorm, 1.0);
  EXPECT_EQ(recipe.data->kind, DataKind::Chars);
  EXPECT_EQ(recipe.data->block, 128);
  EXPECT_EQ(recipe.eval->every, 100);
  EXPECT_EQ(recipe.at("optimizer.no_decay"), "r.yaml:16");
}

TEST(Recipe, ResolvedTextParsesToTheSame) {
  for (const std::string &text :
       {std::string(example),
        withLoss("dims: {batch: 8, seq: 8}\ndata: {kind: tokens, path: /x, lengths: [8, 4], pack: true, separator: 3, "
                 "causal: false, pad: {ids: 2}}"),
        withLoss("dims: {batch: 8, seq: 8}\nramp: [{until: 10, batch: 2}, {until: 20, seq: 4, batch: 8}]"),
        withLoss("data: {kind: mixture, sources: [{kind: cifar10, path: /x, augment: {flip: 0.5}}]}"),
        withLoss("data: {kind: arrays, path: /x, fill: {position_ids: positions, speaker: zeros}}"),
        withLoss("data: {kind: mixture, shuffle: false, sources: [{kind: tokens, path: [/x, /y], weight: 0.7}, {kind: "
                 "arrays, path: /z, fields: {a: b}, train_split: 0.5}]}"),
        withLoss(
            "data: {kind: images, path: /x, last_batch: drop, mixup: 0.2, cutmix: 1, augment: {flip: 0.5, "
            "random_resized_crop: {scale: [0.35, 1]}, color_jitter: {brightness: 0.4, contrast: 0.3, saturation: 0.2, "
            "hue: 0.1}}}"),
        withLoss("data: {kind: cifar10, path: /x, augment: {crop_padding: 4, flip: 0.5}}"),
        withLoss("data: {kind: tokens, path: [/x, \"/y/*.bin\"]}"),
        withLoss("data: {kind: images, path: /x, size: 256, mean: [0.5, 0.25, 0.1], std: [0.2]}"),
        withLoss(
            "dropout: 0.1\ntrainable: [a, 'b*']\ninit: {kind: normal, std: 0.02, rules: [{match: '*.bias', kind: "
            "zeros}]}\n"
            "optimizer: {kind: sgd, lr: {kind: step, peak: 0.1, milestones: [3, 5], gamma: 0.5}, momentum: 0.9}\n"),
        withLoss("lora: {match: ['*q_proj*', v], rank: 4, alpha: 2.5, dropout: 0.05}"),
        withLoss("clip_norm: 1\nclip_norms: [{match: ['*embed*'], norm: 0.5}]\nskip_outliers: {factor: 4, warmup: 9}"),
        std::string(
            "loss: [{kind: triplet, output: [a, p, n], swap: true, scale: -2, name: t-1}, {kind: kl_div, output: q, "
            "labels: {output: teacher}, log_target: true}, {kind: ctc, output: l, labels: {name: t, shape: [batch, "
            "9]}, blank: 3, zero_infinity: true, input_lengths: il}]"),
        std::string("loss: [{kind: multi_margin, p: 2, weight: [1, 2]}]"),
        withLoss("init: {kind: safetensors, path: /hub, prefix: model., names: file, missing: keep, rules: [{match: "
                 "head, kind: zeros}]}")}) {
    Recipe recipe = parsed(text);
    Recipe again = parsed(recipe.resolved());
    EXPECT_EQ(again.resolved(), recipe.resolved());
    ASSERT_EQ(again.losses.size(), recipe.losses.size());
    for (size_t i = 0; i < recipe.losses.size(); ++i) {
      auto all = [](const Loss &loss) {
        return std::tie(loss.name, loss.scale, loss.outputs, loss.labels.name, loss.labels.output, loss.logTarget,
                        loss.margin, loss.p, loss.eps, loss.swap, loss.blank, loss.zeroInfinity, loss.inputLengths);
      };
      EXPECT_EQ(all(again.losses[i]), all(recipe.losses[i]));
    }
    ASSERT_EQ(again.ramp.size(), recipe.ramp.size());
    for (size_t i = 0; i < recipe.ramp.size(); ++i)
      EXPECT_EQ(std::tie(again.ramp[i].until, again.ramp[i].dims), std::tie(recipe.ramp[i].until, recipe.ramp[i].dims));
    EXPECT_EQ(again.clipNorms.size(), recipe.clipNorms.size());
    EXPECT_EQ(again.skipOutliers.has_value(), recipe.skipOutliers.has_value());
    EXPECT_EQ(again.trainable, recipe.trainable);
    EXPECT_EQ(again.optimizer.lr.milestones, recipe.optimizer.lr.milestones);
    EXPECT_EQ(again.optimizer.beta2, recipe.optimizer.beta2);
    EXPECT_EQ(again.init.rules.size(), recipe.init.rules.size());
    EXPECT_EQ(again.init.checkpoint, recipe.init.checkpoint);
    EXPECT_EQ(again.dropout.rate, recipe.dropout.rate);
    ASSERT_EQ(again.lora.has_value(), recipe.lora.has_value());
    if (recipe.lora)
      EXPECT_EQ(std::tie(again.lora->match, again.lora->rank, again.lora->alpha, again.lora->dropout),
                std::tie(recipe.lora->match, recipe.lora->rank, recipe.lora->alpha, recipe.lora->dropout));
  }
}

TEST(Recipe, AdaptersAreScaledByOneUnlessTold) {
  EXPECT_EQ(parsed(withLoss("lora: {match: [q], rank: 4}")).lora->alpha, 4);
  EXPECT_EQ(parsed(withLoss("lora: {match: [q]}")).lora->rank, 8);
}

TEST(Recipe, JsonIsARecipeToo) {
  Recipe recipe =
      parsed("{\"loss\": {\"kind\": \"bce\"}, \"optimizer\": {\"kind\": \"adam\", \"eps\": 1e-08, \"lr\": 1e-05}}");
  EXPECT_DOUBLE_EQ(recipe.optimizer.eps, 1e-8);
  EXPECT_DOUBLE_EQ(recipe.optimizer.weightDecay, 0.0);
  EXPECT_FALSE(recipe.losses[0].ignoreIndex.has_value());
}

TEST(Recipe, FaultsSayLineAndRemedy) {
  EXPECT_THAT(fault(withLoss("optimizer:\n  weight_dekay: 1")),
              HasSubstr("r.yaml:3: unknown key 'optimizer.weight_dekay'; did you mean 'weight_decay'?"));
  EXPECT_THAT(fault("loss: {kind: softmax_crossentropy}"), HasSubstr("did you mean 'softmax_cross_entropy'?"));
  EXPECT_THAT(fault(withLoss("optimizer: {lr: fast}")),
              HasSubstr("r.yaml:2: 'optimizer.lr' must be a number, is 'fast'"));
  EXPECT_THAT(fault(withLoss("dims: {batch: 0}")),
              HasSubstr("'dims.batch' must be at least 1 and at most 1099511627776, is 0"));
  EXPECT_THAT(fault(withLoss("dims: {batch: 2.5}")), HasSubstr("must be a whole number"));
  EXPECT_THAT(fault(withLoss("dims: {batch: }")), HasSubstr("r.yaml:2: 'dims.batch' needs a size"));
  EXPECT_THAT(fault(withLoss("dims: {batch: 9223372036854775807}")),
              HasSubstr("at most 1099511627776, is 9223372036854775807"));
  EXPECT_THAT(fault(withLoss("trainable: '*'")), HasSubstr("must be a list"));
  EXPECT_THAT(fault(withLoss("clip_norm: -1")), HasSubstr("must be above 0"));
  EXPECT_THAT(fault(withLoss("optimizer: {betas: [0.9, 1.0]}")), HasSubstr("one is '1.0'"));
  EXPECT_THAT(fault(withLoss("seed: 1\nseed: 2")), HasSubstr("r.yaml:3: the key 'seed' is there twice"));
  EXPECT_THAT(fault(withLoss("data: {kind: chars}")), HasSubstr("needs a 'path'"));
  const std::string lengths = "dims: {batch: 8, seq: 8}\ndata: {kind: arrays, path: x, lengths: [8, 4]";
  EXPECT_THAT(fault(withLoss("data: {kind: arrays, path: x, pack: true}")),
              HasSubstr("'data.pack' is for samples of several 'lengths'"));
  const std::string sizes = "dims: {batch: 8, seq: 8}\nramp: ";
  EXPECT_THAT(fault(withLoss(sizes + "{until: 3, batch: 4}")), HasSubstr("'ramp' must be a list of maps"));
  EXPECT_THAT(fault(withLoss(sizes + "[{batch: 4}]")), HasSubstr("'ramp.until' must be the stage's last step"));
  EXPECT_THAT(fault(withLoss(sizes + "[{until: 3, batch: 2}, {until: 3, batch: 4}]")),
              HasSubstr("and after that of the stage before"));
  EXPECT_THAT(fault(withLoss(sizes + "[{until: 3, batch: 9}]")), HasSubstr("'ramp.batch' must be"));
  EXPECT_THAT(fault(withLoss(sizes + "[{until: 3, sequence: 4}]")),
              HasSubstr("'ramp.sequence' grows to 'dims.sequence': give that, too"));
  EXPECT_THAT(fault(withLoss(sizes + "[{until: 3}]")), HasSubstr("a stage of 'ramp' needs a dimension"));
  EXPECT_THAT(fault(withLoss(sizes + "[{until: 3, batch: 4}]\ndata: {kind: arrays, path: x, lengths: [4, 8]}")),
              HasSubstr("would both choose a step's shape"));
  EXPECT_THAT(fault(withLoss(sizes + "[{until: 3, seq: 4}]\ndata: {kind: cifar10, path: x}")),
              HasSubstr("'ramp' of images takes 'batch' only"));
  EXPECT_THAT(fault(withLoss("dims: {seq: 9}\ndata: {kind: arrays, path: x, lengths: [8]}")),
              HasSubstr("'data.lengths' ends with 8, and no dimension of 'dims' is that long"));
  EXPECT_THAT(fault(withLoss(lengths + ", length_dims: [batch_of_docs]}")),
              HasSubstr("'dims.batch_of_docs' must be 8, the longest of 'data.lengths'"));
  EXPECT_THAT(fault(withLoss("dims: {seq: 8}\ndata: {kind: arrays, path: x, lengths: [0, 8]}")),
              HasSubstr("'data.lengths' must be 1 or more each"));
  EXPECT_THAT(fault(withLoss(lengths + ", separator: 3}")), HasSubstr("'data.separator' is for tokens"));
  EXPECT_THAT(fault(withLoss("data: {kind: images, path: [a, b]}")),
              HasSubstr("'data' of kind images is in one folder, and 'path' lists 2"));
  const std::string faults[][2] = {
      {"{kind: chars, path: x, drop_last: true}",
       "unknown key 'data.drop_last'; the key is data.last_batch: drop, or smaller"},
      {"{kind: chars, path: x, last_batch: small}", "'data.last_batch' cannot be 'small'"},
      {"{kind: mixture}", "'data' of kind mixture needs 'sources'"},
      {"{kind: mixture, sources: []}", "'data' of kind mixture needs 'sources'"},
      {"{kind: mixture, path: x, sources: [{kind: tokens, path: x}]}", "unknown key 'data.path'"},
      {"{kind: mixture, last_batch: drop, sources: [{kind: tokens, path: x}]}", "unknown key 'data.last_batch'"},
      {"{kind: tokens, path: x, sources: []}", "'data.sources' are of kind mixture, this is tokens"},
      {"{kind: mixture, sources: [{kind: tokens}]}", "needs a 'path'"},
      {"{kind: mixture, sources: [{kind: tokens, path: x, weight: 0}]}", "'data.sources.weight' must be"},
      {"{kind: mixture, sources: [{kind: tokens, path: x, weigth: 1}]}", "did you mean 'weight'?"},
      {"{kind: mixture, sources: [{kind: tokens, path: x, shuffle: true}]}", "'shuffle' is not for one source"},
      {"{kind: mixture, sources: [{kind: chars, path: x}]}", "is tokens, arrays, cifar10 or synthetic, not chars"},
      {"{kind: mixture, sources: [{kind: mixture, sources: [{kind: tokens, path: x}]}]}", "not mixture"},
      {"{kind: tokens, path: x, augment: {flip: 0.5}}",
       "'data.augment' is for images, cifar10 and arrays of images, this is "
       "tokens"},
      {"{kind: tokens, path: x, mixup: 0.5}", "'data.mixup' is for images, cifar10, and arrays of one length"},
      {"{kind: images, path: x, cutmix: 0}", "'data.cutmix' must be above 0"},
      {"{kind: images, path: x, augment: {random_resized_crop: {scale: [1]}}}", "must list two numbers"},
      {"{kind: images, path: x, augment: {random_resized_crop: {ratio: [2, 1]}}}", "the lower one first"},
      {"{kind: images, path: x, size: 9, augment: {random_resized_crop: {}}}", "leave it out"},
      {"{kind: images, path: x, augment: {crop_padding: 4, random_resized_crop: {}}}", "leave one out"},
      {"{kind: images, path: x, augment: {color_jitter: {hue: 0.6}}}", "'data.augment.color_jitter.hue' must be"},
      {"{kind: images, path: x, augment: {flips: 0.6}}", "did you mean 'flip'?"}};
  for (const auto &[text, message] : faults) EXPECT_THAT(fault(withLoss("data: " + text)), HasSubstr(message)) << text;
  EXPECT_THAT(fault(withLoss("data: {kind: chars, path: []}")), HasSubstr("needs a 'path'"));
  EXPECT_THAT(fault(withLoss("dims: {seq: 8}\ndata: {kind: chars, path: x, lengths: [8]}")),
              HasSubstr("'data.lengths' is for arrays, tokens and synthetic data, this is chars"));
  EXPECT_THAT(fault(withLoss("data: {kind: arrays, path: x, fill: {a: position}}")), HasSubstr("did you mean"));
  EXPECT_THAT(fault(withLoss("data: {kind: images, path: x, fill: {a: ones}}")),
              HasSubstr("'data.fill' is for arrays, tokens and chars, this is images"));
  EXPECT_THAT(fault(withLoss("data: {kind: images, path: x, std: [0]}")),
              HasSubstr("'data.std' must list numbers above 0, one is '0'"));
  EXPECT_THAT(fault(withLoss("data: {kind: images, path: x, mean: 0.5}")), HasSubstr("must be a list"));
  EXPECT_THAT(fault(withLoss("data: {kind: images, path: x, mean: [nan]}")), HasSubstr("one is 'nan'"));
  EXPECT_THAT(fault(withLoss("init: {kind: safetensors}")), HasSubstr("r.yaml:2: 'init' of kind safetensors needs a"));
  EXPECT_THAT(fault(withLoss("init: {kind: zeros, path: x}")),
              HasSubstr("'init.path' is for safetensors, this is zeros"));
  EXPECT_THAT(fault(withLoss("lora: {rank: 4}")), HasSubstr("r.yaml:2: 'lora' needs 'match'"));
  EXPECT_THAT(fault(withLoss("lora: {match: [q], rank: 0}")), HasSubstr("'lora.rank' must be at least 1, is 0"));
  EXPECT_THAT(fault(withLoss("lora: {match: [q], dropout: 1}")),
              HasSubstr("'lora.dropout' must be at least 0 and below 1"));
  EXPECT_THAT(fault(withLoss("lora: {match: [q], rnak: 4}")), HasSubstr("did you mean 'rank'?"));
  EXPECT_THAT(fault("{\"loss\": {\"kind\": \"mse\"}}\nclip_norm: 1\n"),
              HasSubstr("r.yaml:2: more stands behind the end of the recipe"));
  EXPECT_THAT(fault("loss: {kind: mse}\n---\nclip_norm: 1\n"), HasSubstr("more stands behind the end"));
  EXPECT_THAT(fault(",dims: {batch: }\nloss: {kind: mse}\n"), HasSubstr("r.yaml"));
  EXPECT_THAT(fault(withLoss("dropout: often")), HasSubstr("'dropout' cannot be 'often'"));
  EXPECT_THAT(fault(withLoss("optimizer: {lr: {kind: cosine, peak: 1, warmup_steps: 9}}")), HasSubstr("total_steps"));
  EXPECT_THAT(fault(withLoss("optimizer: [1")), HasSubstr("is not YAML"));
  EXPECT_THAT(fault("- 1"), HasSubstr("must be a map"));
  EXPECT_THAT(fault("loss: 3"), HasSubstr("'loss' must be a map"));
}

TEST(Recipe, OverridesReplaceAndAdd) {
  Recipe recipe = parsed(
      example, {"optimizer.lr=1e-2", "dims.batch=64", "dims.seq.len=7", "trainable=[\"*.bias\"]", "eval.batches=3"});
  EXPECT_DOUBLE_EQ(recipe.optimizer.lr.peak, 1e-2);
  EXPECT_EQ(recipe.dims.at("batch"), 64);
  EXPECT_EQ(recipe.dims.at("seq.len"), 7);
  EXPECT_THAT(recipe.trainable, testing::ElementsAre("*.bias"));
  EXPECT_EQ(recipe.eval->batches, 3);
  EXPECT_EQ(recipe.eval->every, 100);
  EXPECT_EQ(parsed("loss: {kind: mse}", {"optimizer.lr.kind=constant", "optimizer.lr.peak=2"}).optimizer.lr.peak, 2);
  EXPECT_THAT(fault(example, {"optimizer.lr=quick"}),
              HasSubstr("--set optimizer.lr=quick: 'optimizer.lr' must be a number"));
  EXPECT_THAT(fault(example, {"optimizer.beta=1"}), HasSubstr("--set optimizer.beta=1: unknown key"));
  EXPECT_THAT(fault(example, {"nonsense"}), HasSubstr("must be KEY=VALUE"));
  EXPECT_THAT(fault(example, {"clip_norm.x=1"}), HasSubstr("--set clip_norm.x=1"));
}

// What torch 2.x's lr_scheduler of that name gives, and transformers' get_wsd_schedule (a ratio of 0.2).
TEST(Recipe, SchedulesAreThoseOfPyTorch) {
  const std::vector<std::pair<std::string, std::vector<double>>> cases = {
      {"{kind: exponential, peak: 0.5, gamma: 0.9}", {0.5, 0.45, 0.405, 0.3645, 0.32805}},
      {"{kind: polynomial, peak: 0.5, total_steps: 10, power: 2}",
       {0.5, 0.405, 0.32, 0.245, 0.18, 0.125, 0.08, 0.045, 0.02, 0.005, 0, 0}},
      {"{kind: cosine_restarts, peak: 0.5, min: 0.1, period: 4, period_factor: 2}",
       {0.5, 0.44142135623730949, 0.3, 0.15857864376269051, 0.5, 0.48477590650225733, 0.44142135623730949,
        0.37653668647301797, 0.3, 0.22346331352698207, 0.15857864376269051, 0.11522409349774265, 0.5,
        0.49615705608064609, 0.48477590650225733}},
      {"{kind: one_cycle, peak: 0.5, total_steps: 15}",
       {0.02, 0.11036244755390395, 0.31340502414951543, 0.47623252829658058, 0.49720771772545586, 0.47524231600673683,
        0.43326323490558472, 0.3750005, 0.30563101096814466, 0.23131855133348753, 0.15866610924942562,
        0.094129173025118487, 0.043442132659775645, 0.01110875412627059, 2e-06}},
      {"{kind: one_cycle, peak: 0.5, total_steps: 15, warmup_share: 0.25, anneal: linear}",
       {0.02, 0.19454545454545452, 0.36909090909090908, 0.48888893333333333, 0.44444466666666665, 0.4000004,
        0.35555613333333336, 0.31111186666666668, 0.2666676, 0.22222333333333333}},
      {"{kind: wsd, peak: 0.5, min: 0.1, start: 0.1, total_steps: 14, warmup_steps: 3, decay_steps: 5}",
       {0.1, 0.23333333333333334, 0.3666666666666667, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.46180339887498956,
        0.36180339887498947, 0.23819660112501054, 0.13819660112501053, 0.1, 0.1}},
      {"{kind: wsd, peak: 0.5, min: 0.1, start: 0.1, total_steps: 14, warmup_steps: 3, decay_steps: 5, anneal: linear}",
       {0.1, 0.23333333333333334, 0.3666666666666667, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.42, 0.34, 0.26, 0.18, 0.1}},
      {"{kind: wsd, peak: 0.5, min: 0.1, total_steps: 14, decay_steps: 5, anneal: sqrt}",
       {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.32111456180001685, 0.24701778718652967, 0.19016133230340665,
        0.14222912360003367, 0.1}}};
  for (const auto &[text, rates] : cases) {
    Result<Recipe> recipe = parseRecipeText("loss: {kind: mse}\noptimizer: {kind: sgd, lr: " + text + "}\n");
    ASSERT_TRUE(recipe) << recipe.status().message();
    Result<Recipe> again = parseRecipeText(recipe->resolved());
    ASSERT_TRUE(again) << again.status().message();
    for (size_t step = 0; step < rates.size(); ++step)
      for (const Recipe *one : {&*recipe, &*again})
        EXPECT_NEAR(runtime::learningRate(planned(one->optimizer.lr), int64_t(step)), rates[step], 1e-15)
            << text << " " << step;
  }
}

TEST(Recipe, StepsOfAScheduleMayBeShares) {
  auto lr = [](const std::string &text) {
    return parseRecipeText("loss: {kind: mse}\noptimizer:\n  lr: {kind: wsd, peak: 1, total_steps: 1000, " + text +
                           "}\n");
  };
  Result<Recipe> recipe = lr("warmup_steps: 2.5%, decay_steps: 20%");
  ASSERT_TRUE(recipe) << recipe.status().message();
  EXPECT_EQ(recipe->optimizer.lr.warmupSteps, 25);
  EXPECT_EQ(recipe->optimizer.lr.decaySteps, 200);
  EXPECT_THAT(lr("decay_steps: 120%").status().message(),
              HasSubstr("recipe:3: 'optimizer.lr.decay_steps' must be a number of steps or a share from 0% to 100%"));
  EXPECT_THAT(lr("decay_steps: 90%, warmup_steps: 20%").status().message(),
              HasSubstr("must be more than warmup_steps"));
  EXPECT_THAT(lr("decay_steps: 10, power: 2").status().message(),
              HasSubstr("'optimizer.lr.power' is for polynomial, this is wsd"));
}

TEST(Recipe, MetricsAreWordsOrMaps) {
  auto read = [](const std::string &eval, const std::string &loss = "softmax_cross_entropy") {
    return parseRecipeText("loss: {kind: " + loss + "}\neval:\n  {" + eval + "}\n");
  };
  Result<Recipe> recipe = read("every: 5, metrics: [accuracy, top_5, {kind: f1, output: y, labels: t, name: own}, "
                               "{kind: mean, output: y}], monitor: top_5, patience: 2, min_delta: 0.5");
  ASSERT_TRUE(recipe) << recipe.status().message();
  std::vector<std::string> names;
  for (const Metric &metric : recipe->eval->metrics) names.push_back(metric.name);
  EXPECT_THAT(names, testing::ElementsAre("accuracy", "top_5", "own", "y"));
  EXPECT_EQ(recipe->eval->metrics[1].k, 5);
  EXPECT_EQ(parsed(recipe->resolved()).resolved(), recipe->resolved());
  const std::vector<std::array<std::string, 3>> faults = {
      {"metrics: [acuracy]", "softmax_cross_entropy", "recipe:3: 'eval.metrics.kind' cannot be 'acuracy'"},
      {"metrics: accuracy", "softmax_cross_entropy", "must be a list"},
      {"metrics: [top_0]", "softmax_cross_entropy", "must be top_K with a number"},
      {"metrics: [accuracy]", "mse", "needs labels that are classes; the loss is mse"},
      {"metrics: [mae]", "softmax_cross_entropy", "compares numbers, and labels are classes"},
      {"metrics: [top_2]", "bce", "needs labels that are classes; the loss is bce"},
      {"metrics: [perplexity]", "mse", "is the exponential of a cross-entropy"},
      {"metrics: [perplexity]", "softmax_cross_entropy, label_smoothing: 0.1", "without label_smoothing"},
      {"metrics: [mean]", "mse", "needs an 'output' of the graph"},
      {"metrics: [accuracy]", "output", "needs 'output' and 'labels'"},
      {"metrics: [accuracy, accuracy]", "softmax_cross_entropy", "two of 'eval.metrics' are called 'accuracy'"},
      {"metrics: [accuracy], monitor: f1", "softmax_cross_entropy", "must be loss or one of 'eval.metrics', is 'f1'"},
      {"metrics: [confusion], monitor: confusion", "softmax_cross_entropy",
       "cannot judge by a metric of kind confusion"},
      {"patience: 3", "softmax_cross_entropy", "needs evaluations"},
  };
  for (const auto &[eval, loss, message] : faults)
    EXPECT_THAT(read(eval, loss).status().message(), HasSubstr(message)) << eval;
}

TEST(Recipe, SchedulesFollowTheirFormulas) {
  Schedule schedule;
  auto rate = [&](int64_t step) { return runtime::learningRate(planned(schedule), step - 1); };
  schedule.kind = ScheduleKind::Cosine;
  schedule.peak = 1.0;
  schedule.min = 0.1;
  schedule.warmupSteps = 2;
  schedule.totalSteps = 10;
  EXPECT_DOUBLE_EQ(rate(1), 0.5);
  EXPECT_DOUBLE_EQ(rate(2), 1.0);
  EXPECT_DOUBLE_EQ(rate(3), 1.0);
  EXPECT_DOUBLE_EQ(rate(7), 0.55); // half way
  EXPECT_DOUBLE_EQ(rate(11), 0.1);
  EXPECT_DOUBLE_EQ(rate(500), 0.1);
  schedule.kind = ScheduleKind::Linear;
  EXPECT_DOUBLE_EQ(rate(5), 1.0 - 0.9 * 2 / 8);
  schedule = Schedule();
  schedule.kind = ScheduleKind::Step;
  schedule.peak = 1.0;
  schedule.milestones = {2, 4};
  EXPECT_DOUBLE_EQ(rate(2), 1.0);
  EXPECT_DOUBLE_EQ(rate(3), 0.1);
  EXPECT_NEAR(rate(5), 0.01, 1e-17);
}

// A name that a model's file gives is no glob, and no node's.
TEST(Glob, ExactNamesAreThoseOfParameters) {
  const ParameterPatterns patterns({"*.bias", exactly("w*"), "node", exactly("node"), exactly("=x")});
  EXPECT_EQ(patterns.match({"w*", {"node"}, {}}), 1u);
  EXPECT_EQ(patterns.match({"w1", {}, {}}), std::nullopt);
  EXPECT_EQ(patterns.match({"w1", {"w*"}, {}}), std::nullopt);
  EXPECT_EQ(patterns.match({"w1", {"node"}, {}}), 2u);
  EXPECT_EQ(patterns.match({"w1", {"a.bias", "node"}, {}}), 0u);
  EXPECT_EQ(patterns.match({"w1", {}, {"w*"}}), 1u);
  EXPECT_EQ(patterns.match({"node", {}, {}}), 2u);
  EXPECT_EQ(patterns.match({"=x", {}, {}}), 4u);
  EXPECT_EQ(patterns.match({"x", {}, {}}), std::nullopt);
  Recipe recipe = parsed(withLoss("trainable: ['=w*', '=node']"));
  EXPECT_EQ(parsed(recipe.resolved()).trainable, recipe.trainable);
  EXPECT_TRUE(checkGlobs(recipe, {{"w*", {}, {}}, {"a", {}, {"node"}}}));
  EXPECT_THAT(checkGlobs(recipe, {{"w1", {}, {}}, {"a", {"node"}, {}}}).message(),
              HasSubstr("no parameter matches '=w*' of 'trainable'; the nearest name is '=w1'"));
}

// 200,000 names against as many: by pairs that would be 4e10 comparisons.
TEST(Glob, ManyExactNamesAreLookedUp) {
  std::vector<std::string> names;
  for (int i = 0; i < 200'000; ++i) names.push_back("layer." + std::to_string(i) + ".weight");
  const ParameterPatterns patterns(exactly(names));
  for (size_t i = 0; i < names.size(); ++i) ASSERT_EQ(patterns.match({names[i], {"node"}, {}}), i);
}

TEST(Glob, OnesThatFitMergedParametersAreTold) {
  std::vector<ParameterNames> names = {{"b", {"node_a"}, {}}, {"b#2", {"node_y"}, {}}, {"w", {"node_w"}, {}}};
  std::vector<std::string> warnings =
      warnOfMergedNames(parsed(withLoss("trainable: ['*']\noptimizer: {no_decay: ['b*', w]}")), names);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("'b*' of 'no_decay' matches 2 parameters of several layers, which the exporter "
                                     "merged into 'b': those of node_a, node_y"));
}

TEST(Glob, GroupsThatOthersCoverAreNamed) {
  auto check = [](const std::string &second) {
    return checkUpdateGlobs(parsed(withLoss("optimizer:\n  groups:\n    - {match: ['*.bias'], weight_decay: 0}\n    - "
                                            "{match: " +
                                            second + ", lr: 1}")),
                            {{"fc.weight", {}, {}}, {"fc.bias", {}, {}}, {"head.bias", {}, {}}});
  };
  EXPECT_TRUE(check("['fc.*']").isOk());
  EXPECT_THAT(check("[fc.bias, 'head*']").message(),
              HasSubstr("r.yaml:5: all parameters of this group of 'optimizer.groups' ('fc.bias', 'head*') belong to"));
}

TEST(Recipe, KeysWithoutUseAreNamed) {
  auto loss = [](const std::string &text) { return fault("loss:\n  " + text); };
  EXPECT_THAT(loss("kind: mse\n  delta: 2"), HasSubstr("r.yaml:3: 'loss.delta' is for huber, this is mse"));
  EXPECT_THAT(loss("kind: l1\n  axis: 1"),
              HasSubstr("'loss.axis' is for softmax_cross_entropy, nll, multi_margin, this is l1"));
  EXPECT_THAT(loss("kind: bce\n  ignore_index: 0"), HasSubstr("'loss.ignore_index' is for"));
  EXPECT_THAT(loss("kind: nll\n  label_smoothing: 0.1"), HasSubstr("is for softmax_cross_entropy, this is nll"));
  EXPECT_THAT(loss("kind: softmax_cross_entropy\n  ignore_index: 0\n  labels: {dtype: float32}"),
              HasSubstr("r.yaml:3: 'loss.ignore_index' is a class, and these labels are probabilities"));
  EXPECT_THAT(loss("kind: output\n  labels: {dtype: int64}"), HasSubstr("of kind output is the name"));
  parsed("loss: {kind: mse, ignore_index: null, delta: }");
  auto optimizer = [](const std::string &text) { return fault(withLoss("optimizer:\n  kind: " + text)); };
  EXPECT_THAT(optimizer("adamw\n  momentum: 0.9"),
              HasSubstr("r.yaml:4: 'optimizer.momentum' is for sgd, muon, rmsprop, this is adamw; leave it out"));
  EXPECT_THAT(optimizer("nadam\n  form: onnx"), HasSubstr("'optimizer.form' is for adam, adamw, muon, this is nadam"));
  EXPECT_THAT(optimizer("radam\n  bias_correction: none"), HasSubstr("this is radam"));
  EXPECT_THAT(optimizer("rmsprop\n  nesterov: true"), HasSubstr("is for sgd, muon, this is rmsprop"));
  EXPECT_THAT(optimizer("rmsprop\n  betas: [0.9, 0.9]"), HasSubstr("'optimizer.betas' is for"));
  EXPECT_THAT(optimizer("adagrad\n  state_dtype: bf16"), HasSubstr("'optimizer.state_dtype' is for"));
  EXPECT_THAT(optimizer("sgd\n  dampening: 0.1"), HasSubstr("'momentum' is 0"));
  EXPECT_THAT(optimizer("rmsprop\n  state_dtype: bf16"), HasSubstr("'momentum' is 0"));
  EXPECT_THAT(optimizer("sgd\n  state_dtype: fp8"), HasSubstr("'momentum' is 0"));
  EXPECT_THAT(optimizer("adamw\n  state_dtype: int8"), HasSubstr("r.yaml:4: 'optimizer.state_dtype'"));
  EXPECT_THAT(optimizer("muon\n  ns_dtype: fp8"), HasSubstr("r.yaml:4: 'optimizer.ns_dtype'"));
  parsed(withLoss("optimizer: {kind: sgd, state_dtype: bf16, groups: [{match: [a], momentum: 0.9}]}"));
  EXPECT_THAT(optimizer("adamw\n  groups:\n    - {match: [a], momentum: 0.5}"),
              HasSubstr("r.yaml:5: 'optimizer.groups.momentum' is for sgd, muon, rmsprop, this is adamw"));
  EXPECT_THAT(optimizer("muon\n  groups: [{match: [a], kind: adamw, momentum: 0.5}]"), HasSubstr("this is adamw"));
  EXPECT_THAT(
      optimizer("sgd\n  lr: {kind: exponential, peak: 1, gamma: 0.9, min: 0.1}"),
      HasSubstr("'optimizer.lr.min' is for linear, cosine, polynomial, cosine_restarts, wsd, one_cycle, this is "
                "exponential"));
  EXPECT_THAT(optimizer("sgd\n  lr: {kind: constant, peak: 1, total_steps: 9}"),
              HasSubstr("'optimizer.lr.total_steps'"));
  EXPECT_THAT(optimizer("sgd\n  lr: {kind: constant, peak: 1, start: 0.1}"),
              HasSubstr("'optimizer.lr.start' is where"));
  EXPECT_EQ(parsed(withLoss("optimizer: {kind: sgd, lr: {kind: constant, peak: 1, total_steps: 50, warmup_steps: 4%}}"))
                .optimizer.lr.warmupSteps,
            2);
  EXPECT_THAT(
      fault(withLoss("init: {kind: zeros, rules: [{match: b, kind: normal, gain: 2}]}")),
      HasSubstr("'init.rules.gain' is for xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal, this is "
                "normal"));
  EXPECT_THAT(fault(withLoss("init: {kind: from_model, prefix: a}")), HasSubstr("'init.prefix' is for safetensors"));
  // Without a kind the model may have one, and the check comes later.
  EXPECT_THAT(checkOptimizer(parsed(withLoss("optimizer: {momentum: 0.9}"))).message(),
              HasSubstr("r.yaml:2: 'optimizer.momentum' is for sgd, muon, rmsprop, this is adamw"));
}

TEST(Recipe, LossesOfAListHaveNames) {
  Recipe recipe = parsed("loss: [{kind: mse, output: a}, {kind: l1, output: b, name: edge, scale: 0.5}]");
  EXPECT_TRUE(recipe.sumsLosses());
  EXPECT_EQ(recipe.losses[0].name, "mse");
  EXPECT_EQ(recipe.losses[1].name, "edge");
  EXPECT_FALSE(parsed("loss: {kind: mse}").sumsLosses());
  EXPECT_THAT(fault("loss:\n  - {kind: mse}\n  - {kind: mse}"), HasSubstr("r.yaml:3: two losses are called 'mse'"));
  EXPECT_THAT(fault("loss:\n  - {kind: mse}\n  - {kind: mse, delta: 2}"),
              HasSubstr("r.yaml:3: 'loss.delta' is for huber, this is mse"));
  EXPECT_THAT(fault("loss: {kind: mse, scale: 2}"), HasSubstr("'loss.scale' is of one in a list of losses"));
  EXPECT_THAT(fault("loss: [{kind: mse, name: 'a b'}]"), HasSubstr("'loss.name' is of letters, digits"));
  EXPECT_THAT(fault("loss: [{kind: output, output: a, name: a}, {kind: output, output: b}]"),
              HasSubstr("one loss of a list may be of kind output"));
  EXPECT_THAT(fault("loss: []"), HasSubstr("'loss' lists none"));
  EXPECT_THAT(fault("loss: {kind: triplet, output: [a, b]}"), HasSubstr("'output: [ANCHOR, POSITIVE, NEGATIVE]'"));
  EXPECT_THAT(fault("loss: {kind: mse, output: [a, b]}"), HasSubstr("of kind mse reads one 'output'"));
  EXPECT_THAT(fault("loss: {kind: triplet, output: [a, b, c], labels: t}"), HasSubstr("'loss.labels' is for"));
  EXPECT_THAT(fault("loss: {kind: ctc}"), HasSubstr("needs the shape of its targets"));
  EXPECT_THAT(fault("loss: {kind: mse, labels: {output: t, dtype: float32}}"), HasSubstr("these labels are an output"));
  EXPECT_THAT(fault("loss: {kind: TripletMarginLoss}"), HasSubstr("PyTorch's TripletMarginLoss is triplet"));
  EXPECT_THAT(fault(withLoss("clip_norms: [{match: [a]}]")), HasSubstr("needs 'norm'"));
  EXPECT_THAT(fault(withLoss("clip_norms: [{norm: 1}]")), HasSubstr("needs 'match'"));
  EXPECT_THAT(fault(withLoss("skip_outliers: {factor: 1}")), HasSubstr("'skip_outliers.factor' must be above 1"));
}

// Every kind that the table of keys names is one.
TEST(Recipe, KindsOfKeysAreWords) {
  auto isOne = [](const auto &words, const std::string &kind) {
    return std::ranges::find(words, kind) != words.end();
  };
  for (const KeyRow &key : keys())
    for (const std::string &kind : splitWords(key.kinds)) {
      const std::string &path = key.path;
      EXPECT_TRUE(path.starts_with("loss.")           ? isOne(wordsOf(LossKind()), kind)
                  : path.starts_with("optimizer.lr.") ? isOne(wordsOf(ScheduleKind()), kind)
                  : path.starts_with("optimizer.")    ? isOne(wordsOf(OptimizerKind()), kind)
                                                      : path.starts_with("init."))
          << path << " " << kind;
    }
}

TEST(Glob, OnesThatMatchNothingAreNamed) {
  std::vector<ParameterNames> names = {{"fc.weight", {"node_linear"}, {}}, {"fc.bias", {"node_linear"}, {"tied"}}};
  EXPECT_TRUE(checkGlobs(parsed(withLoss("trainable: ['*_linear']")), names).isOk());
  EXPECT_TRUE(checkUpdateGlobs(parsed(withLoss("optimizer: {no_decay: ['*.bias']}")), names).isOk());
  Status status = checkUpdateGlobs(parsed(withLoss("optimizer:\n  no_decay: ['*.bais']")), names);
  EXPECT_THAT(status.message(), HasSubstr("r.yaml:3"));
  EXPECT_THAT(status.message(), HasSubstr("'*.bais' of 'no_decay'"));
  EXPECT_FALSE(checkGlobs(parsed(withLoss("trainable: [fc.wieght]")), names).isOk());
  EXPECT_TRUE(checkGlobs(parsed(withLoss("trainable: [tied]")), names).isOk());
}

TEST(Recipe, TakesFromTheModelWhatItLeavesOpen) {
  ModelTraining model;
  model.source = "the artifacts";
  model.loss = "l";
  model.trained = {"w"};
  model.optimizer.emplace();
  model.optimizer->eps = 1e-6;
  model.optimizer->form = AdamForm::Onnx;
  model.clipNorm = 2;
  std::vector<std::string> notes;
  Recipe recipe = parsed("optimizer: {lr: 0.5, betas: [0.5, 0.6]}");
  ASSERT_TRUE(takeFromModel(recipe, model, notes).isOk());
  EXPECT_TRUE(recipe.losses[0].kind == LossKind::Output && recipe.losses[0].outputs == std::vector<std::string>{"l"});
  EXPECT_THAT(recipe.trainable, testing::ElementsAre(exactly("w")));
  EXPECT_TRUE(recipe.optimizer.lr.peak == 0.5 && recipe.optimizer.beta2 == 0.6 && recipe.optimizer.eps == 1e-6);
  EXPECT_EQ(recipe.optimizer.form, AdamForm::Onnx);
  EXPECT_EQ(recipe.optimizer.weightDecay, 0);
  EXPECT_EQ(recipe.clipNorm, 2.0);
  EXPECT_EQ(recipe.ties, Ties::AsExported);
  EXPECT_THAT(notes, testing::Contains(HasSubstr("form onnx), at the recipe's lr")));
  EXPECT_EQ(parsed(recipe.resolved()).resolved(), recipe.resolved());

  recipe = parsed("loss: {kind: mse}\noptimizer: {kind: sgd}\ntrainable: [a]\nclip_norm: 1\nties: none");
  ASSERT_TRUE(takeFromModel(recipe, model, notes).isOk());
  EXPECT_TRUE(recipe.losses[0].kind == LossKind::Mse && recipe.optimizer.kind == OptimizerKind::Sgd);
  EXPECT_EQ(recipe.optimizer.form, AdamForm::Pytorch);
  EXPECT_THAT(recipe.trainable, testing::ElementsAre("a"));
  EXPECT_TRUE(recipe.clipNorm == 1.0 && recipe.ties == Ties::None);
  model.optimizer.reset();
  model.optimizerFault = "o.onnx: node 'n' is strange";
  ASSERT_TRUE(takeFromModel(recipe, model, notes).isOk());
  recipe = parsed("optimizer: {lr: 0.5}");
  EXPECT_THAT(takeFromModel(recipe, model, notes).message(), HasSubstr("node 'n' is strange; give the recipe"));
}

// (1 - 0.01) a step at any rate: w (1 - lr weight_decay).
TEST(Recipe, DecayOfAStepDoesNotFollowTheRate) {
  ModelTraining model;
  model.source = "training_info";
  model.optimizer.emplace().kind = OptimizerKind::AdamW;
  model.optimizer->lr.peak = 0.05;
  model.givesRate = true;
  model.stepDecay = 0.01;
  std::vector<std::string> notes;
  for (const auto &[text, decay] : std::vector<std::pair<std::string, double>>{
           {"{}", 0.2},
           {"optimizer: {lr: 0.1}", 0.1},
           {"optimizer: {lr: 0.1, weight_decay: 3}", 3},
           {"optimizer: {lr: {kind: constant, peak: 2}}", 0.005},
           {"optimizer: {weight_decay: 0.3, lr: {kind: cosine, peak: 1, total_steps: 9}}", 0.3}}) {
    Recipe recipe = parsed(text);
    ASSERT_TRUE(takeFromModel(recipe, model, notes).isOk());
    EXPECT_DOUBLE_EQ(recipe.optimizer.weightDecay, decay) << text;
  }
  for (const char *text : {"optimizer: {lr: {kind: cosine, peak: 1, total_steps: 9}}", "optimizer: {lr: 0}",
                           "optimizer: {lr: {kind: constant, peak: 1, warmup_steps: 3}}"}) {
    Recipe recipe = parsed(text);
    EXPECT_THAT(takeFromModel(recipe, model, notes).message(),
                testing::AllOf(HasSubstr("r.yaml:1: training_info multiplies parameters by 1 - 0.01 in each step"),
                               HasSubstr("optimizer.weight_decay")));
  }
  EXPECT_THAT(whatItSays(model), testing::Contains(HasSubstr("a step multiplies what decays by 1 - 0.01")));
}

TEST(Recipe, OutputsAreChecked) {
  EXPECT_TRUE(checkOutput(parsed(withLoss("")), {"y"}).isOk());
  EXPECT_THAT(checkOutput(parsed(withLoss("")), {"y", "z"}).message(), HasSubstr("2 outputs"));
  EXPECT_THAT(checkOutput(parsed("loss: {kind: mse, output: q}"), {"y", "z"}).message(),
              HasSubstr("no output 'q'; it has: y, z"));
}

template <typename Kind> void expectTableIsWhole(Kind last) {
  const auto words = wordsOf(last);
  EXPECT_EQ(words.size(), static_cast<size_t>(last) + 1);
  EXPECT_EQ(std::set<std::string>(words.begin(), words.end()).size(), words.size());
}

TEST(Words, EveryValueHasOneWord) {
  expectTableIsWhole(LossKind::Output);
  expectTableIsWhole(OptimizerKind::Adadelta);
  expectTableIsWhole(StateType::Fp8);
  expectTableIsWhole(NewtonSchulzType::Bf16);
  expectTableIsWhole(Anneal::Sqrt);
  expectTableIsWhole(Reduction::BatchMean);
  expectTableIsWhole(Precision::Fp8);
  expectTableIsWhole(Scaling::Current);
  expectTableIsWhole(BatchNorm::Frozen);
  expectTableIsWhole(Attention::Written);
  expectTableIsWhole(Epilogues::Written);
  expectTableIsWhole(Ties::None);
  expectTableIsWhole(TensorRole::Constant);
  expectTableIsWhole(MissingWeights::Keep);
  expectTableIsWhole(ScheduleKind::OneCycle);
  expectTableIsWhole(AdamForm::Onnx);
  expectTableIsWhole(BiasCorrection::None);
  expectTableIsWhole(MetricKind::Mean);
  expectTableIsWhole(DataKind::Synthetic);
  expectTableIsWhole(LastBatch::Smaller);
  // They stand in the enum's order.
  EXPECT_EQ(toString(LossKind::KlDiv), "kl_div");
  EXPECT_EQ(toString(OptimizerKind::RmsProp), "rmsprop");
  EXPECT_EQ(toString(ScheduleKind::CosineRestarts), "cosine_restarts");
  EXPECT_EQ(toString(MetricKind::MeanAbsoluteError), "mae");
}

// A row of the table is read.
TEST(Recipe, EveryKeyOfTheTableIsRead) {
  for (const KeyRow &key : keys()) {
    const std::string &path = key.path;
    if (path.ends_with("*") || path.starts_with("init.rules.")) continue;
    // All maps above it have what they need; the key itself is empty, and so left out.
    const std::string text = "loss: {kind: mse}\noptimizer: {lr: {kind: constant, peak: 1}}\nprecision: fp16\n";
    auto recipe = parseRecipeText(text, "r.yaml",
                                  {"loss_scale.init=1", "init.kind=zeros", "data.kind=synthetic", path + "=null"});
    if (!recipe) EXPECT_THAT(recipe.status().message(), testing::Not(HasSubstr("unknown key"))) << path;
  }
}

TEST(Recipe, Fp8) {
  auto plain = parseRecipeText("loss: {kind: mse}\nprecision: fp8\n");
  ASSERT_TRUE(plain) << plain.status().message();
  EXPECT_EQ(plain->fp8.scaling, Scaling::Delayed);
  EXPECT_EQ(plain->fp8.history, 16);
  EXPECT_EQ(plain->fp8.margin, 0);
  EXPECT_FALSE(plain->fp8.keep);
  EXPECT_STREQ(lowElement(plain->precision), "bf16");
  auto given = parseRecipeText("loss: {kind: mse}\nprecision: fp8\n"
                               "fp8: {scaling: delayed, history: 1024, margin: 1, keep: [\"*head*\"]}\n");
  ASSERT_TRUE(given) << given.status().message();
  auto again = parseRecipeText(given->resolved());
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(again->fp8.history, 1024);
  EXPECT_EQ(again->fp8.margin, 1);
  EXPECT_EQ(again->fp8.keep, std::vector<std::string>{"*head*"});
  auto current = parseRecipeText("loss: {kind: mse}\nprecision: fp8\nfp8: {scaling: current}\n");
  ASSERT_TRUE(current) << current.status().message();
  EXPECT_EQ(parseRecipeText(current->resolved())->fp8.scaling, Scaling::Current);

  auto refused = [](const std::string &text) {
    auto recipe = parseRecipeText("loss: {kind: mse}\n" + text, "r.yaml");
    return recipe ? std::string() : recipe.status().message();
  };
  EXPECT_THAT(refused("precision: bf16\nfp8: {margin: 1}\n"),
              HasSubstr("r.yaml:3: 'fp8' is for precision fp8, this recipe's is bf16"));
  EXPECT_THAT(refused("precision: fp8\nfp8: {scaling: blockwise}\n"), HasSubstr("r.yaml:3: "));
  EXPECT_THAT(refused("precision: fp8\nfp8: {history: 0}\n"), HasSubstr("at least 1"));
  EXPECT_THAT(refused("precision: fp8\nfp8: {margin: 9}\n"),
              HasSubstr("r.yaml:3: 'fp8.margin' must be at least 0 and at most 8, is 9"));
  EXPECT_THAT(refused("precision: fp8\nfp8: {scaling: current, history: 4}\n"),
              HasSubstr("'history' is for scaling delayed"));
  EXPECT_THAT(refused("precision: fp8\nfp8: {margins: 1}\n"), HasSubstr("did you mean 'margin'"));
  EXPECT_THAT(refused("precision: fp4\n"), HasSubstr("fp8"));
}

} // namespace
} // namespace cleave::recipe
