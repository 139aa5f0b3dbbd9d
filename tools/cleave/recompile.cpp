#include "tools/cleave/recompile.h"
#include "compiler/driver/compile.h"
#include <algorithm>
#include <fmt/core.h>
#include <utility>

namespace cleave::tool {

Result<plan::Plan> recompile(const plan::Plan &plan, const Recompiling &how) {
  auto recipe = how.recipe.empty() ? recipe::parseRecipeText(plan.recipe_yaml(), "the plan's recipe")
                                   : recipe::parseRecipe(how.recipe, how.overrides);
  if (!recipe) return recipe.status();
  auto cluster = planner::parseClusterYaml(plan.cluster_yaml(), "the plan's cluster");
  if (!cluster) return cluster.status();
  const int64_t node = cluster->devicesPerNode,
                devices = how.devices > 0 ? how.devices : cluster->nodes * cluster->devicesPerNode;
  if (devices > node && devices % node != 0)
    return inputError(
        fmt::format("{} processes were started: on nodes of {} a multiple of {} is wanted", devices, node, node));
  cluster->nodes = std::max<int64_t>(1, devices / node);
  cluster->devicesPerNode = std::min(devices, node);
  CompileRequest request;
  request.model = plan.model_path(), request.recipe = *recipe, request.cluster = *cluster;
  request.recipeIsWhole = how.recipe.empty();
  request.resumed = how.resumed;
  request.acceptsDoubts = true;           // as when the training began
  request.annotations = false;            // they are for as many devices as there were
  request.split.allowRepeatedWork = true; // rather than end the training
  request.emulate = plan.has_cuda() && !plan.kernel_object().empty();
  auto compiled = compile(request);
  if (!compiled) return compiled.status();
  return std::move(compiled->plan);
}

} // namespace cleave::tool
