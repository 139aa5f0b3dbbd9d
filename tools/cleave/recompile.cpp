#include "tools/cleave/recompile.h"
#include "compiler/compile.h"
#include <algorithm>
#include <fmt/core.h>
#include <utility>

namespace cleave::tool {

Result<plan::Plan> recompileFor(const plan::Plan &plan, int64_t devices) {
  auto recipe = recipe::parseRecipeText(plan.recipe_yaml(), "the plan's recipe");
  if (!recipe) return recipe.status();
  auto cluster = planner::parseClusterYaml(plan.cluster_yaml(), "the plan's cluster");
  if (!cluster) return cluster.status();
  int64_t node = cluster->devicesPerNode;
  if (devices > node && devices % node != 0)
    return inputError(
        fmt::format("{} processes were started: on nodes of {} a multiple of {} is wanted", devices, node, node));
  cluster->nodes = std::max<int64_t>(1, devices / node);
  cluster->devicesPerNode = std::min(devices, node);
  CompileRequest request;
  request.model = plan.model_path(), request.recipe = *recipe, request.cluster = *cluster;
  request.recipeIsWhole = true;
  request.acceptsDoubts = true;           // as when the training began
  request.annotations = false;            // they are for as many devices as there were
  request.split.allowRepeatedWork = true; // rather than end the training
  request.emulate = plan.has_cuda() && !plan.kernel_object().empty();
  auto compiled = compile(request);
  if (!compiled) return compiled.status();
  return std::move(compiled->plan);
}

} // namespace cleave::tool
