// The compiler as one call, free of MLIR in its interface: what the command line and other programs use.
//
//   CompileRequest request{.model = "gpt.onnx", .recipe = *recipe, .cluster = *cluster, .split = {.zero = "3"}};
//   Result<Compiled> compiled = compile(request);      // compiled->plan, compiled->report
//
// Diagnostics of the passes become the message of the Status: every one of them, with the ONNX node it is about.
#pragma once
#include "compiler/driver/compile_request.h"
#include "compiler/import/inspect.h"
#include "compiler/report/report.h"
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <map>
#include <string>

namespace cleave {

struct Compiled {
  plan::Plan plan;
  report::Report report;
};

// Chooses the split, or prices the given one. Reads no weights and generates no code.
Result<report::Report> estimate(const CompileRequest &request);

Result<Compiled> compile(const CompileRequest &request);

// The contents of a model. `dims` binds symbolic dimensions for the FLOP count (unbound ones count as 1).
Result<import_::Inspection> inspect(const std::string &model, const std::map<std::string, int64_t> &dims);

// The table op x facet of the core operators, made from the registered ops.
std::string operatorTable();

} // namespace cleave
