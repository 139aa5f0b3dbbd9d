// The compiler as one call, free of MLIR in its interface: what the command line and other programs use.
//
//   CompileRequest request{.model = "gpt.onnx", .recipe = *recipe, .cluster = *cluster, .split = {.zero = "3"}};
//   Result<Compiled> compiled = compile(request);      // compiled->plan, compiled->report
//
// Diagnostics of the passes become the message of the Status: every one of them, with the ONNX node it is about.
#pragma once
#include "compiler/import/inspect.h"
#include "compiler/planner/cluster.h"
#include "compiler/planner/constraints.h"
#include "compiler/planner/search.h"
#include "compiler/recipe/recipe.h"
#include "compiler/report/report.h"
#include "plan/plan.pb.h"
#include "runtime/status.h"
#include <functional>
#include <map>
#include <string>

namespace cleave {

struct CompileRequest {
  std::string model; // path of the .onnx file
  recipe::Recipe recipe;
  planner::Cluster cluster;
  planner::SplitFlags split;
  std::string problemFile; // not empty: the planner's problem is written there, as text
  bool emulate = false;    // of a GPU's plan: also a form of its kernels that `cleave run` executes on this CPU
  std::string irFolder;    // not empty: the module is written there after each phase
  // Called with what the passes warn of (parameters that no gradient reaches); the report notes it too.
  std::function<void(const std::string &)> warn = [](const std::string &) {};
  planner::SearchOptions search = {}; // `executableOnly` is estimate()'s and compile()'s own
};

struct Compiled {
  plan::Plan plan;
  report::Report report;
};

// Chooses the split, or prices the given one. Reads no weights and generates no code. Considers splits that compile()
// cannot build yet, unless executableOnly.
Result<report::Report> estimate(const CompileRequest &request, bool executableOnly = false);

Result<Compiled> compile(const CompileRequest &request);

// What is in a model. `dims` binds symbolic dimensions for the FLOP count (unbound ones count as 1).
Result<import_::Inspection> inspect(const std::string &model, const std::map<std::string, int64_t> &dims);

// The table op x facet of the core operators, made from the registered ops.
std::string operatorTable();

} // namespace cleave
