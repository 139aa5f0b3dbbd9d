#include "compiler/recipe/model_training.h"
#include "compiler/recipe/glob.h"
#include "compiler/recipe/schema.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::recipe {
namespace {

// The model's optimizer with the values that the recipe gives.
Optimizer merged(const Recipe &recipe, Optimizer of) {
  for (const Key<Optimizer> &key : Schema<Optimizer>::of.keys)
    if (key.field.copy && recipe.gives(std::string("optimizer.") + key.name)) key.field.copy(of, recipe.optimizer);
  of.where = recipe.optimizer.where;
  return of;
}

// The note on the model's training, for `cleave inspect` and where a recipe takes it.
std::string from(const ModelTraining &model, const std::string &what) {
  return fmt::format("from {}: {}", model.source, what);
}
std::string lossNote(const ModelTraining &model) {
  return from(model, fmt::format("the loss is the graph's output '{}'", model.loss));
}
std::string trainedNote(const ModelTraining &model) {
  return from(model, fmt::format("{} parameters train", model.trained.size()));
}
std::string optimizerNote(const ModelTraining &model, const Optimizer &optimizer, const std::string &more = "") {
  return from(model, fmt::format("the optimizer is {}{}", describe(optimizer), more));
}
std::string clipNote(const ModelTraining &model) {
  return from(model, fmt::format("gradients are clipped to the norm {}", *model.clipNorm));
}

void takeLoss(Recipe &recipe, const ModelTraining &model, std::vector<std::string> &notes) {
  if (recipe.gives("loss")) {
    if (recipe.losses.front().kind != LossKind::Output)
      notes.push_back(fmt::format("the recipe's loss is used, not that of {}", model.source));
    return;
  }
  Loss &loss = recipe.losses.front();
  loss.kind = LossKind::Output;
  loss.outputs = {model.loss};
  if (model.labels) loss.labels.name = *model.labels;
  notes.push_back(lossNote(model));
}

// The weight decay that takes `stepDecay` off at the recipe's learning rate; parameters decay by lr weight_decay.
Status keepStepDecay(Recipe &recipe, const ModelTraining &model) {
  if (model.stepDecay == 0 || recipe.gives("optimizer.weight_decay")) return Status::ok();
  const Schedule &lr = recipe.optimizer.lr;
  bool isConstant = lr.kind == ScheduleKind::Constant && lr.warmupSteps == 0 && lr.peak > 0;
  if (!isConstant)
    return inputError(fmt::format("{}: {} multiplies parameters by 1 - {} in each step, whatever the learning rate "
                                  "(norm_coefficient_post); with a rate that changes or is 0, give the recipe an "
                                  "`optimizer.weight_decay` (parameters are multiplied by 1 - lr weight_decay)",
                                  recipe.at("optimizer.lr"), model.source, model.stepDecay));
  recipe.optimizer.weightDecay = model.stepDecay / lr.peak;
  return Status::ok();
}

Status takeOptimizer(Recipe &recipe, const ModelTraining &model, std::vector<std::string> &notes) {
  if (recipe.gives("optimizer.kind")) {
    notes.push_back(fmt::format("the recipe's optimizer is used, not that of {}", model.source));
    return Status::ok();
  }
  if (!model.optimizer)
    return inputError(fmt::format("{}; give the recipe an `optimizer` with its kind", model.optimizerFault));
  if (recipe.gives("optimizer.groups.lr") && !recipe.gives("optimizer.lr"))
    return inputError(fmt::format("{}: give 'optimizer.lr', which the groups' rates are multiples of",
                                  recipe.at("optimizer.groups")));
  recipe.optimizer = merged(recipe, *model.optimizer);
  CLEAVE_RETURN_IF_ERROR(keepStepDecay(recipe, model));
  const double rate = recipe.optimizer.lr.peak;
  notes.push_back(optimizerNote(model, recipe.optimizer,
                                recipe.gives("optimizer.lr") ? ", at the recipe's lr"
                                : model.givesRate ? fmt::format(" with lr {}", rate)
                                                  : fmt::format("; nothing gives its lr, {} is taken", rate)));
  return Status::ok();
}

} // namespace

std::string describe(const Optimizer &optimizer) {
  std::vector<std::string> values;
  auto number = [&](const char *key, double value) { values.push_back(fmt::format("{} {:.7g}", key, value)); };
  switch (optimizer.kind) {
  case OptimizerKind::Sgd:
    if (optimizer.momentum != 0) number("momentum", optimizer.momentum);
    if (optimizer.dampening != 0) number("dampening", optimizer.dampening);
    if (optimizer.nesterov) values.emplace_back("nesterov");
    break;
  case OptimizerKind::Adagrad:
    number("eps", optimizer.eps);
    if (optimizer.lrDecay != 0) number("lr_decay", optimizer.lrDecay);
    if (optimizer.initialAccumulator != 0) number("initial_accumulator", optimizer.initialAccumulator);
    break;
  default:
    values.push_back(fmt::format("betas {:.7g}, {:.7g}", optimizer.beta1, optimizer.beta2));
    number("eps", optimizer.eps);
    if (optimizer.form != AdamForm::Pytorch) values.push_back("form " + toString(optimizer.form));
    if (optimizer.biasCorrection != BiasCorrection::FromOne)
      values.push_back("bias_correction " + toString(optimizer.biasCorrection));
  }
  if (optimizer.weightDecay != 0) number("weight_decay", optimizer.weightDecay);
  std::string kind = toString(optimizer.kind);
  return values.empty() ? kind : fmt::format("{} ({})", kind, fmt::join(values, ", "));
}

std::vector<std::string> whatItSays(const ModelTraining &model) {
  if (!model.fault.empty()) return {model.fault};
  std::vector<std::string> notes = {lossNote(model), trainedNote(model)};
  std::string decay =
      model.stepDecay == 0 ? "" : fmt::format("; a step multiplies what decays by 1 - {}", model.stepDecay);
  notes.push_back(model.optimizer ? optimizerNote(model, *model.optimizer, decay) : model.optimizerFault);
  if (model.clipNorm) notes.push_back(clipNote(model));
  notes.insert(notes.end(), model.notes.begin(), model.notes.end());
  return notes;
}

double shortest(float value) { return std::stod(fmt::format("{}", value)); }

Status takeFromModel(Recipe &recipe, const ModelTraining &model, std::vector<std::string> &notes) {
  if (!model.fault.empty()) {
    if (!recipe.gives("loss") || !recipe.gives("optimizer.kind"))
      return inputError(model.fault + "; give the recipe a `loss` and an `optimizer` with its kind");
    notes.push_back(fmt::format("{} is not used: {}", model.source, model.fault));
    return Status::ok();
  }
  takeLoss(recipe, model, notes);
  if (!recipe.trainableGiven) {
    recipe.trainable = exactly(model.trained);
    recipe.trainableGiven = true;
    notes.push_back(trainedNote(model));
  }
  if (!recipe.gives("ties")) recipe.ties = Ties::AsExported;
  CLEAVE_RETURN_IF_ERROR(takeOptimizer(recipe, model, notes));
  if (!recipe.gives("clip_norm") && model.clipNorm) {
    recipe.clipNorm = model.clipNorm;
    notes.push_back(clipNote(model));
  }
  if (!recipe.gives("init") && !model.initial.empty()) {
    recipe.init.rules = model.initial;
    notes.push_back(from(model, fmt::format("{} parameters whose weights are missing begin as its initialization says",
                                            model.initial.size())));
  }
  notes.insert(notes.end(), model.notes.begin(), model.notes.end());
  return Status::ok();
}

} // namespace cleave::recipe
