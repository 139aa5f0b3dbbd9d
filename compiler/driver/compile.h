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

// One of the fastest splits that the search has found.
struct Candidate {
  report::TriedSplit tried;          // with a reason where it was not compiled, or its plan does not fit
  std::optional<Compiled> compiled;  // no report tells of the others yet
  std::vector<std::string> warnings; // of its passes, not told yet
};

// Chooses the split, or prices the given one. Reads no weights and generates no code.
Result<report::Report> estimate(const CompileRequest &request);

// Of several splits (SearchOptions::refine) the one whose step is simulated fastest.
Result<Compiled> compile(const CompileRequest &request);

// Those splits, the search's choice first. Error: that of the choice, where none can be compiled.
Result<std::vector<Candidate>> compileBest(const CompileRequest &request);
// The one with the least time that fits, the first of equals; where none has one, the first that was compiled.
size_t fastest(const std::vector<Candidate> &candidates, double report::TriedSplit::*seconds);
// That candidate, with what became of the others in its report.
Compiled keep(const CompileRequest &request, std::vector<Candidate> candidates, size_t kept);

// The contents of a model. `dims` binds symbolic dimensions for the FLOP count (unbound ones count as 1).
Result<import_::Inspection> inspect(const std::string &model, const std::map<std::string, int64_t> &dims);

// The table op x facet of the core operators, made from the registered ops.
std::string operatorTable();

} // namespace cleave
