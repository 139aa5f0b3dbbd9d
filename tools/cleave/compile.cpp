// cleave estimate, cleave compile: choose the split (or price the given one); compile also writes the plan.
#include "compiler/report/comparison.h"
#include "runtime/base/atomic_file.h"
#include "runtime/check/proof/prove.h"
#include "runtime/check/verify/compare.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/trust.h"
#include "runtime/plan/verify/verify.h"
#include "runtime/train/data/files.h"
#include "runtime/train/data/lengths.h"
#include "runtime/train/data/settings.h"
#include "runtime/train/step_data.h"
#include "tools/cleave/commands.h"
#include <algorithm>
#include <fmt/core.h>
#include <memory>
#include <optional>
#include <set>

namespace cleave::tool {
namespace {

struct CompileOptions {
  RequestOptions request;
  std::vector<std::string> moreClusters; // of estimate
  std::string output, cpu, signingKey;
  bool json = false, emulate = false, checkWeights = false;
  bool proves = true, mustProve = false, verifies = false;
  bool acceptsDoubts = false;
  int64_t refine = 1;
  std::string importCheck;
};

// The same model on several clusters, a row each.
class Comparison {
public:
  explicit Comparison(const CompileOptions &options) : options(options) {}

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

  const CompileOptions &options;
  std::vector<report::ClusterResult> results;
  std::set<std::string> told; // warnings
};

int runEstimate(const CompileOptions &options) {
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

int runCompile(const CompileOptions &options) {
  if (options.json && options.output == "-")
    return fail({ErrorKind::Usage, "--json and -o - both want standard output: give the plan a file"});
  std::optional<runtime::SecretKey> key;
  if (!options.signingKey.empty()) {
    auto read = runtime::readSecretKey(options.signingKey);
    if (!read) return fail(read.status());
    key = *read;
  }
  auto request = options.request.request();
  if (!request) return fail(request.status());
  request->emulate = options.emulate;
  request->checkWeights = options.checkWeights;
  request->acceptsDoubts = options.acceptsDoubts;
  request->importCheck = options.importCheck;
  request->search.refine = options.refine;
  if (!options.cpu.empty()) request->cluster.device.cpu = options.cpu;
  std::vector<std::string> told;
  request->warn = [&told, warn = request->warn](const std::string &text) {
    warn(text);
    told.push_back(text);
  };
  auto compiled = compile(*request);
  if (!compiled) return fail(compiled.status());
  compiled->report = withOrigin(std::move(compiled->report), request->recipe.resolved());
  if (Status sound = check(compiled->plan, options, compiled->report.proof); !sound) return fail(sound);
  if (Result<std::string> filled = checkData(compiled->plan); !filled)
    request->warn(fmt::format("`cleave run` will refuse the recipe's data: {}", filled.status().message()));
  else if (!filled->empty())
    compiled->report.notes.push_back("inputs that the data does not have: " + *filled);
  compiled->plan.set_report_json(report::renderJson(compiled->report));
  Status written = writePlan(compiled->plan, options.output, key);
  if (!written) return fail(written);
  std::FILE *beside = options.output == "-" ? stderr : stdout;
  const int64_t devices = compiled->report.mesh.numDevices();
  if (options.json)
    written = writeText("-", report::renderJson(compiled->report));
  else
    print(beside,
          fmt::format("{}: {} for {}, predicted {} a step, {} a device{}\n", options.output,
                      compiled->report.mesh.str(), devices == 1 ? "1 device" : fmt::format("{} devices", devices),
                      report::formatSeconds(compiled->report.predicted.stepSeconds),
                      report::formatBytes(compiled->report.predicted.memory.total()),
                      options.output == "-" ? "" : fmt::format("; `cleave report {}` says why", options.output)));
  if (!compiled->report.tried.empty() && !options.json) print(beside, report::triedText(compiled->report) + "\n");
  if (const auto &proof = compiled->report.proof; proof && !options.json)
    print(beside, report::proofText(*proof) + "\n");
  for (const std::string &note : compiled->report.notes)
    if (!options.json && std::ranges::find(told, note) == told.end()) print(beside, fmt::format("note: {}\n", note));
  if (const plan::Plan &plan = compiled->plan; !options.json && plan.has_cuda())
    fmt::print(beside, "{} GPU kernels for {}, {}\n", plan.kernels_size(), plan.cuda().target(),
               plan.cuda().cubin().empty() ? "as PTX: no ptxas was found, the driver will assemble them"
                                           : "assembled by ptxas");
  return written ? 0 : fail(written);
}

} // namespace

void addEstimate(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("estimate", "Choose the split, or price the given one, without compiling");
  auto options = std::make_shared<CompileOptions>();
  options->request.add(*command);
  command->add_option("clusters", options->moreClusters,
                      "more clusters, compared in a table: --cluster h100-80g:8x{1,2,4} in a shell");
  command->add_flag("--json", options->json, "the report for programs; a list of them for several clusters");
  command->add_option("-o,--output", options->output, "file (default: standard output)");
  command->callback([options, &status] { status = runEstimate(*options); });
}

void addCompile(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("compile", "Choose the split and write the plan");
  auto options = std::make_shared<CompileOptions>();
  options->request.add(*command);
  command->add_option("-o,--output", options->output, "the plan to write")->required();
  command
      ->add_option("--refine", options->refine,
                   "compile the K fastest splits of the search, and keep the one whose step is simulated fastest")
      ->check(positiveNumber)
      ->capture_default_str();
  command
      ->add_option("--cpu", options->cpu,
                   "CPU whose instructions kernels may use: native (this machine), x86-64-v2, x86-64-v3, "
                   "x86-64-v4, or a name such as znver4 (default: the cluster file's `cpu`, else native)")
      ->envname("CLEAVE_CPU");
  command->add_option("--sign", options->signingKey,
                      "secret key of `cleave keygen`: `cleave run --trust` takes the plan elsewhere");
  command->add_flag("--check-weights", options->checkWeights,
                    "the plan holds digests of all of the weight files, not of samples: for `run --check-weights`");
  command
      ->add_flag("--proof", options->mustProve,
                 "prove that the plan computes the unsplit step, however long it takes; else only where it is quick")
      ->excludes(command->add_flag("!--no-proof", options->proves, "do not try to prove it"));
  command->add_flag("--verify", options->verifies,
                    "where it is not proved, run steps of it beside the unsplit model, as `cleave verify` does");
  command->add_flag("--accept-doubts", options->acceptsDoubts,
                    "take what the model's file does not tell as import concludes it, instead of ending");
  command->add_option("--import-check", options->importCheck,
                      "what a check beside the PyTorch module found, for the report: cleave.compile says it");
  command->add_flag("--json", options->json, "print the report for programs");
  command->add_flag("--emulate", options->emulate,
                    "of a plan for GPUs: `cleave run` and `verify` execute its kernels on this CPU, thread by thread");
  command->callback([options, &status] { status = runCompile(*options); });
}

} // namespace cleave::tool
