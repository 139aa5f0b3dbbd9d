// cleave estimate, cleave compile: choose the split (or price the given one); compile also writes the plan.
#include "runtime/plan/plan_file.h"
#include "runtime/plan/verify.h"
#include "tools/cleave/commands.h"
#include <algorithm>
#include <fmt/core.h>
#include <memory>

namespace cleave::tool {
namespace {

struct CompileOptions {
  RequestOptions request;
  std::string output, cpu;
  bool json = false, emulate = false;
};

int runEstimate(const CompileOptions &options) {
  auto request = options.request.request();
  if (!request) return fail(request.status());
  auto report = estimate(*request);
  if (!report) return fail(report.status());
  Status written = writeText(options.output, options.json ? report::renderJson(*report) : report::renderText(*report));
  return written ? 0 : fail(written);
}

// To standard output where it is called "-".
Status writePlan(const plan::Plan &plan, const std::string &output) {
  if (output != "-") return runtime::writePlanFile(plan, output);
  Result<std::string> bytes = runtime::encodePlan(plan);
  return bytes ? writeText(output, *bytes) : bytes.status();
}

int runCompile(const CompileOptions &options) {
  if (options.json && options.output == "-")
    return fail({ErrorKind::Usage, "--json and -o - both want standard output: give the plan a file"});
  auto request = options.request.request();
  if (!request) return fail(request.status());
  request->emulate = options.emulate;
  if (!options.cpu.empty()) request->cluster.device.cpu = options.cpu;
  std::vector<std::string> told;
  request->warn = [&told, warn = request->warn](const std::string &text) {
    warn(text);
    told.push_back(text);
  };
  auto compiled = compile(*request);
  if (!compiled) return fail(compiled.status());
  // What the runtime would refuse is not written.
  if (Status sound = runtime::verifyPlan(compiled->plan); !sound) return fail(sound);
  Status written = writePlan(compiled->plan, options.output);
  if (!written) return fail(written);
  std::FILE *beside = options.output == "-" ? stderr : stdout;
  if (options.json)
    written = writeText("-", report::renderJson(compiled->report));
  else
    fmt::print(beside, "{}: {} for {} devices, predicted {:.3g} ms a step, {:.1f} MiB a device{}\n", options.output,
               compiled->report.mesh.str(), compiled->report.mesh.numDevices(),
               1e3 * compiled->report.predicted.stepSeconds, compiled->report.predicted.memory.total() / 1048576.0,
               options.output == "-" ? "" : fmt::format("; `cleave report {}` says why", options.output));
  for (const std::string &note : compiled->report.notes)
    if (!options.json && std::ranges::find(told, note) == told.end()) fmt::print(beside, "note: {}\n", note);
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
  command->add_flag("--json", options->json, "the report for programs");
  command->add_option("-o,--output", options->output, "file (default: standard output)");
  command->callback([options, &status] { status = runEstimate(*options); });
}

void addCompile(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("compile", "Choose the split and write the plan");
  auto options = std::make_shared<CompileOptions>();
  options->request.add(*command);
  command->add_option("-o,--output", options->output, "the plan to write")->required();
  command
      ->add_option("--cpu", options->cpu,
                   "whose instructions kernels for CPUs may use: native (this machine), x86-64-v2, x86-64-v3, "
                   "x86-64-v4, or a name such as znver4 (default: the cluster file's `cpu`, else native)")
      ->envname("CLEAVE_CPU");
  command->add_flag("--json", options->json, "print the report for programs");
  command->add_flag("--emulate", options->emulate,
                    "of a plan for GPUs: `cleave run` and `verify` execute its kernels on this CPU, thread by thread");
  command->callback([options, &status] { status = runCompile(*options); });
}

} // namespace cleave::tool
