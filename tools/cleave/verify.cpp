// cleave verify X.plan: static checks, then the plan's numbers against the unpartitioned reference.
#include "runtime/plan/verify/verify.h"
#include "runtime/check/proof/prove.h"
#include "runtime/check/verify/compare.h"
#include "runtime/engine/executor/dry_run.h"
#include "runtime/plan/plan_file.h"
#include "tools/cleave/commands.h"
#include "tools/cleave/terminal_line.h"
#include <fmt/core.h>
#include <memory>

namespace cleave::tool {
namespace {

struct VerifyOptions {
  std::string plan;
  TrustOptions trust;
  runtime::CompareOptions compare;
  bool onlyStatic = false, proves = false, details = false, json = false;
};

int runProof(const VerifyOptions &options) {
  auto plan = runtime::readPlanFile(options.plan);
  if (!plan) return fail(plan.status());
  auto proof = proof::prove(*plan);
  if (!proof) return fail(inputError(options.plan + ": " + proof.status().message()));
  Status written = writeText("-", options.json ? proof->json() : proof->text(options.details));
  if (!written) return fail(written);
  return proof->outcome == proof::Proof::Proved ? 0 : static_cast<int>(ErrorKind::RunFailed);
}

int runVerify(const VerifyOptions &options) {
  if (options.proves) return runProof(options);
  auto plan = options.onlyStatic ? runtime::readPlanFile(options.plan) : options.trust.read(options.plan);
  if (!plan) return fail(plan.status());
  Status valid = options.onlyStatic ? runtime::dryRun(*plan) : runtime::verifyPlan(*plan);
  if (!valid) return fail(inputError(options.plan + ": " + valid.message()));
  if (!options.json)
    print(stdout, fmt::format("{}: static checks passed: buffers, events, order of collectives, transfers{}\n",
                              options.plan, options.onlyStatic ? ", dry run of a step" : ""));
  if (options.onlyStatic) {
    if (options.json) fmt::print("{{\"static\": true}}\n");
    return 0;
  }
  TerminalLine line;
  runtime::CompareOptions compare = options.compare;
  compare.progress = [&](const runtime::CompareProgress &progress) {
    line.tell([&] {
      return fmt::format("cleave: step {} of {}, microbatch {}: the unsplit model in double precision, {:.0f} %",
                         progress.step, progress.steps, progress.microbatch + 1, 100 * progress.done);
    });
  };
  auto seen = runtime::comparePlan(*plan, compare);
  if (!seen) return fail(seen.status());
  Status written = writeText("-", options.json ? seen->json() : seen->text());
  if (!written) return fail(written);
  return seen->agrees() ? 0 : static_cast<int>(ErrorKind::RunFailed);
}

} // namespace

void addVerify(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("verify", "Prove that a plan computes what the unsplit model computes");
  auto options = std::make_shared<VerifyOptions>();
  command->add_option("plan", options->plan, "the compiled plan")->required();
  command->add_flag("--static", options->onlyStatic, "only checks that run nothing of the plan");
  command->add_flag("--proof", options->proves,
                    "prove it for all weights and data, on symbols: nothing of the plan runs");
  command->add_flag("--details", options->details, "with --proof: the formulas of what is not proved in full");
  command->add_option("--steps", options->compare.steps, "training steps to compare (default 2; of pipedream-2bw 3)")
      ->check(positiveNumber);
  command->add_option("--model", options->compare.model, "the .onnx file, if it moved since compiling");
  command->add_flag("--check-weights", options->compare.checkWeights,
                    "compare all of the weight files, not samples, with those of compile time");
  options->trust.add(*command);
  command->add_flag("--json", options->json, "for programs");
  command->callback([options, &status] { status = runVerify(*options); });
}

} // namespace cleave::tool
