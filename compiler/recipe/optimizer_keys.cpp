#include "compiler/recipe/keys.h"
#include "compiler/recipe/recipe.h"
#include <fmt/format.h>

namespace cleave::recipe {
namespace {

Status checkGroup(const OptimizerGroup &group, const std::string &kind) {
  for (auto [key, value] : {std::pair("betas", &group.beta1), std::pair("eps", &group.eps),
                            std::pair("weight_decay", &group.weightDecay), std::pair("momentum", &group.momentum)})
    if (*value)
      if (std::string fault = useFault(std::string("optimizer.groups.") + key, kind); !fault.empty())
        return inputError(fmt::format("{}: {}", group.where, fault));
  return Status::ok();
}

} // namespace

Status checkOptimizer(const Recipe &recipe) {
  const Optimizer &optimizer = recipe.optimizer;
  const std::string prefix = "optimizer.";
  auto fail = [&](const std::string &key, const std::string &message) {
    return inputError(fmt::format("{}: {}", recipe.at(prefix + key), message));
  };
  for (const std::string &path : recipe.given) {
    if (!path.starts_with(prefix) || path.find('.', prefix.size()) != std::string::npos) continue;
    if (std::string fault = useFault(path, toString(optimizer.kind)); !fault.empty())
      return fail(path.substr(prefix.size()), fault);
  }
  for (const OptimizerGroup &group : optimizer.groups)
    CLEAVE_RETURN_IF_ERROR(checkGroup(group, toString(group.kind.value_or(optimizer.kind))));
  bool hasMomentum = optimizer.momentum != 0;
  for (const OptimizerGroup &group : optimizer.groups) hasMomentum = hasMomentum || group.momentum.value_or(0) != 0;
  const bool isPlain =
      !hasMomentum && (optimizer.kind == OptimizerKind::Sgd || optimizer.kind == OptimizerKind::RmsProp);
  if (isPlain && optimizer.stateType != StateType::Parameter)
    return fail("state_dtype", "'optimizer.state_dtype' is the type of momenta, and 'momentum' is 0; leave it out");
  if (isPlain && optimizer.dampening != 0)
    return fail("dampening", "'optimizer.dampening' is of the momentum, and 'momentum' is 0; leave it out");
  if (optimizer.amsgrad && optimizer.form == AdamForm::Onnx)
    return fail("amsgrad", "'optimizer.amsgrad' is for form pytorch");
  if (optimizer.kind == OptimizerKind::Sgd && optimizer.nesterov &&
      (optimizer.momentum == 0 || optimizer.dampening != 0))
    return fail("nesterov", "'optimizer.nesterov' needs a momentum above 0 and no dampening");
  return Status::ok();
}

} // namespace cleave::recipe
