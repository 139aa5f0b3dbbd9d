// cleave estimate, cleave compile: choose the split (or price the given one); compile also writes the plan.
#include "compiler/report/comparison.h"
#include "runtime/base/atomic_file.h"
#include "runtime/check/proof/prove.h"
#include "runtime/check/verify/compare.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/verify/verify.h"
#include "runtime/train/data/files.h"
#include "runtime/train/data/lengths.h"
#include "runtime/train/data/settings.h"
#include "runtime/train/step_data.h"
#include "tools/cleave/compile_options.h"
#include <algorithm>
#include <fmt/core.h>
#include <memory>
#include <set>

namespace cleave::tool {
namespace {

struct EstimateOptions {
  RequestOptions request;
  std::vector<std::string> moreClusters;
  std::string output;
  bool json = false;
};

// The same model on several clusters, a row each.
class Comparison {
public:
  explicit Comparison(const EstimateOptions &options) : options(options) {}

  int run() {
    std::vector<std::string> clusters = options.moreClusters;
    clusters.insert(clusters.begin(), options.request.split.cluster);
    for (const std::string &cluster : clusters)
      if (Status priced = add(cluster); !priced) return fail(priced);
    Status written =
        writeText(options.output, options.json ? report::comparisonJson(results) : report::comparisonText(results));
    return written ? 0 : fail(written);
  }

private:
  // Where no plan fits, the row says so; any other fault ends the comparison.
  Status add(const std::string &cluster) {
    RequestOptions one = options.request;
    one.split.cluster = cluster;
    auto request = one.request();
    if (!request) return request.status();
    request->warn = [&, warn = request->warn](const std::string &text) {
      if (told.insert(text).second) warn(text);
    };
    auto report = estimate(*request);
    if (!report && report.status().exitStatus() != int(ErrorKind::NoFit)) return report.status();
    report::ClusterResult &result = results.emplace_back();
    result = {cluster, request->cluster.numDevices(), std::nullopt, report ? "" : report.status().message()};
    if (report) result.report = withOrigin(std::move(*report), request->recipe.resolved());
    return Status::ok();
  }

  const EstimateOptions &options;
  std::vector<report::ClusterResult> results;
  std::set<std::string> told; // warnings
};

int runEstimate(const EstimateOptions &options) {
  if (!options.moreClusters.empty()) return Comparison(options).run();
  auto request = options.request.request();
  if (!request) return fail(request.status());
  auto report = estimate(*request);
  request->search.progress = nullptr; // its line is cleared
  if (!report) return fail(report.status());
  *report = withOrigin(std::move(*report), request->recipe.resolved());
  Status written = writeText(options.output,
                             options.json ? report::renderJson(*report) : report::renderText(*report, terminalWidth()));
  return written ? 0 : fail(written);
}

// To standard output where it is called "-"; signed where a key is given. This user trusts it from then on.
Status writePlan(const plan::Plan &plan, const std::string &output, const std::optional<runtime::SecretKey> &key) {
  Result<std::string> bytes = runtime::encodePlan(plan);
  if (!bytes) return bytes.status();
  if (key) runtime::signPlan(*bytes, *key);
  if (output != "-")
    CLEAVE_RETURN_IF_ERROR(runtime::writeFileAtomically(*bytes, output));
  else if (std::fwrite(bytes->data(), 1, bytes->size(), stdout) != bytes->size() || std::fflush(stdout) != 0)
    return inputError("cannot write to standard output");
  if (Status trusted = runtime::trustPlan(*bytes); !trusted && !key)
    print(stderr, fmt::format("note: `cleave run` will ask for --trust-code: {}\n", trusted.message()));
  return Status::ok();
}

// The inputs that the recipe's data does not have and Cleave fills; or why `cleave run` would refuse the data. Data
// that is not here, or that the recipe does not name, is not looked at: the run may be elsewhere. Nor are large files,
// which take long to look through.
Result<std::string> checkData(const plan::Plan &plan) {
  const std::string &yaml = plan.training().data_yaml();
  if (yaml.empty()) return std::string();
  auto settings = runtime::parseDataSettings(yaml);
  if (!settings) return settings.status();
  constexpr uintmax_t large = uintmax_t(1) << 30; // bytes
  const std::vector<std::string> paths = runtime::allPaths(*settings);
  auto bytes = runtime::fileBytes(paths);
  if (!bytes) return bytes.status();
  if (paths.empty() || !*bytes || **bytes > large) return std::string();
  auto fields = runtime::fieldsOf(plan);
  if (!fields) return fields.status();
  auto opened = runtime::openData(yaml, fields->back());
  if (!opened) return opened.status();
  auto rules = runtime::readEvaluationRules(plan.training());
  if (!rules) return rules.status();
  if (Status heldOut = runtime::checkHeldOut(*rules, *opened); !heldOut) return heldOut;
  return opened->filled;
}

Status prove(const plan::Plan &plan, size_t mostExpressions, std::optional<report::ReportedProof> &told) {
  auto proof = proof::prove(plan, mostExpressions);
  if (!proof) return proof.status();
  if (proof->outcome == proof::Proof::Refuted)
    return runError("a fault of cleave: the plan does not compute the model\n" + proof->text());
  told = {proof->outcome == proof::Proof::Proved, proof->roundsElsewhere, proof->firstGap()};
  return Status::ok();
}

Status runBeside(const plan::Plan &plan, std::optional<report::ReportedProof> &told) {
  auto seen = runtime::comparePlan(plan, {});
  if (!seen) return seen.status();
  if (!seen->agrees()) return runError("a fault of cleave: the plan does not compute the model\n" + seen->text());
  if (!told) told.emplace();
  told->verifiedSteps = static_cast<int64_t>(seen->steps.size());
  return Status::ok();
}

// The plan as it will be written, checked: one that the runtime would refuse, or that computes something else, is an
// error, and so is one that is not proved where that is asked for.
Status check(const plan::Plan &plan, const CompileOptions &options, std::optional<report::ReportedProof> &told) {
  if (!options.proves) {
    CLEAVE_RETURN_IF_ERROR(runtime::verifyPlan(plan));
  } else {
    CLEAVE_RETURN_IF_ERROR(prove(plan, options.mustProve ? proof::mostExpressions : proof::fewExpressions, told));
    if (options.mustProve && !told->isProved) return runError(report::proofText(*told));
  }
  if (options.verifies && !(told && told->isProved)) return runBeside(plan, told);
  return Status::ok();
}

Status compile_(const CompileOptions &options) {
  PlanMaker maker(options);
  CLEAVE_ASSIGN_OR_RETURN(const CompileRequest request, maker.request());
  CLEAVE_ASSIGN_OR_RETURN(Compiled compiled, compile(request));
  return maker.finish(std::move(compiled), request);
}

} // namespace

Result<CompileRequest> PlanMaker::request() {
  if (options.json && options.output == "-")
    return Status(ErrorKind::Usage, "--json and -o - both want standard output: give the plan a file");
  if (!options.signingKey.empty()) {
    CLEAVE_ASSIGN_OR_RETURN(key, runtime::readSecretKey(options.signingKey));
  }
  CLEAVE_ASSIGN_OR_RETURN(CompileRequest request, options.request.request());
  request.emulate = options.emulate;
  request.checkWeights = options.checkWeights;
  request.acceptsDoubts = options.acceptsDoubts;
  request.importCheck = options.importCheck;
  request.search.refine = options.refine;
  if (!options.cpu.empty()) request.cluster.device.cpu = options.cpu;
  request.warn = [this, warn = request.warn](const std::string &text) {
    warn(text);
    told.push_back(text);
  };
  return request;
}

Status PlanMaker::finish(Compiled compiled, const CompileRequest &request) const {
  report::Report &report = compiled.report;
  report = withOrigin(std::move(report), request.recipe.resolved());
  CLEAVE_RETURN_IF_ERROR(check(compiled.plan, options, report.proof));
  if (Result<std::string> filled = checkData(compiled.plan); !filled)
    request.warn(fmt::format("`cleave run` will refuse the recipe's data: {}", filled.status().message()));
  else if (!filled->empty())
    report.notes.push_back("inputs that the data does not have: " + *filled);
  compiled.plan.set_report_json(report::renderJson(report));
  CLEAVE_RETURN_IF_ERROR(writePlan(compiled.plan, options.output, key));
  if (options.json) return writeText("-", report::renderJson(report));
  const int64_t devices = report.mesh.numDevices();
  print(beside(),
        fmt::format("{}: {} for {}, predicted {} a step, {} a device{}\n", options.output, report.mesh.str(),
                    devices == 1 ? "1 device" : fmt::format("{} devices", devices),
                    report::formatSeconds(report.predicted.stepSeconds),
                    report::formatBytes(report.predicted.memory.total()),
                    options.output == "-" ? "" : fmt::format("; `cleave report {}` says why", options.output)));
  if (!report.tried.empty()) print(beside(), report::triedText(report) + "\n");
  if (report.proof) print(beside(), report::proofText(*report.proof) + "\n");
  for (const std::string &note : report.notes)
    if (std::ranges::find(told, note) == told.end()) print(beside(), fmt::format("note: {}\n", note));
  if (const plan::Plan &plan = compiled.plan; plan.has_cuda())
    fmt::print(beside(), "{} GPU kernels for {}, {}\n", plan.kernels_size(), plan.cuda().target(),
               plan.cuda().cubin().empty() ? "as PTX: no ptxas was found, the driver will assemble them"
                                           : "assembled by ptxas");
  return Status::ok();
}

void addEstimate(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("estimate", "Choose the split, or price the given one, without compiling");
  auto options = std::make_shared<EstimateOptions>();
  options->request.add(*command);
  command->add_option("clusters", options->moreClusters,
                      "more clusters, compared in a table: --cluster h100-80g:8x{1,2,4} in a shell");
  command->add_flag("--json", options->json, "the report for programs; a list of them for several clusters");
  command->add_option("-o,--output", options->output, "file (default: standard output)");
  command->callback([options, &status] { status = runEstimate(*options); });
}

void CompileOptions::add(CLI::App &command) {
  request.add(command);
  command.add_option("-o,--output", output, "the plan to write")->required();
  command
      .add_option("--cpu", cpu,
                  "CPU whose instructions kernels may use: native (this machine), x86-64-v2, x86-64-v3, "
                  "x86-64-v4, or a name such as znver4 (default: the cluster file's `cpu`, else native)")
      ->envname("CLEAVE_CPU");
  command.add_option("--sign", signingKey,
                     "secret key of `cleave keygen`: `cleave run --trust` takes the plan elsewhere");
  command.add_flag("--check-weights", checkWeights,
                   "the plan holds digests of all of the weight files, not of samples: for `run --check-weights`");
  command
      .add_flag("--proof", mustProve,
                "prove that the plan computes the unsplit step, however long it takes; else only where it is quick")
      ->excludes(command.add_flag("!--no-proof", proves, "do not try to prove it"));
  command.add_flag("--verify", verifies,
                   "where it is not proved, run steps of it beside the unsplit model, as `cleave verify` does");
  command.add_flag("--accept-doubts", acceptsDoubts,
                   "take what the model's file does not tell as import concludes it, instead of ending");
  command.add_flag("--json", json, "print the report for programs");
}

void addCompile(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("compile", "Choose the split and write the plan");
  auto options = std::make_shared<CompileOptions>();
  options->add(*command);
  command
      ->add_option("--refine", options->refine,
                   "compile the so many fastest splits of the search, and keep the one whose step is simulated fastest")
      ->check(positiveNumber)
      ->capture_default_str();
  command->add_option("--import-check", options->importCheck,
                      "what a check beside the PyTorch module found, for the report: cleave.compile says it");
  command->add_flag("--emulate", options->emulate,
                    "of a plan for GPUs: `cleave run` and `verify` execute its kernels on this CPU, thread by thread");
  command->callback([options, &status] {
    const Status done = compile_(*options);
    status = done ? 0 : fail(done);
  });
}

} // namespace cleave::tool
