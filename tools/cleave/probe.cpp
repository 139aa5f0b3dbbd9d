// cleave probe -o cluster.yaml: measure this machine as the runtime uses it, and write the cluster file for it.
#include "compiler/planner/machine_cluster.h"
#include "compiler/trial_kernels.h"
#include "runtime/probe/machine.h"
#include "tools/cleave/commands.h"
#include <fmt/core.h>
#include <memory>

namespace cleave::tool {
namespace {

struct Options {
  std::string output;
  int64_t devices = 1;
};

int run(const Options &options) {
  runtime::MachineProbe probe;
  probe.devices = options.devices;
  std::string measured;
  probe.say = [&](const std::string &line) {
    measured += "# " + line + "\n";
    fmt::print(stderr, "{}\n", line);
  };
  auto kernels = trialKernels(options.devices);
  if (!kernels) return fail(kernels.status());
  probe.kernels = std::move(*kernels);
  auto figures = probe.measure();
  if (!figures) return fail(figures.status());
  std::string text =
      fmt::format("# Written by `cleave probe --devices {}`; docs/cluster.md explains the keys. Measured, "
                  "with all devices active:\n{}{}",
                  options.devices, measured, planner::clusterOf(*figures).yaml());
  auto readBack = planner::parseClusterYaml(text, options.output);
  if (!readBack) return fail(readBack.status());
  Status written = writeText(options.output, text);
  if (!written) return fail(written);
  if (options.output != "-")
    fmt::print(stderr, "{}: give it to `cleave compile` and `cleave estimate` as --cluster\n", options.output);
  return 0;
}

} // namespace

void addProbe(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("probe", "Measure this machine and write its cluster file; takes some seconds");
  auto options = std::make_shared<Options>();
  command->add_option("-o,--output", options->output, "the cluster file to write; - is standard output")->required();
  command->add_option("--devices", options->devices, "virtual devices that share the machine (default: 1)")
      ->check(CLI::Range(1, 64));
  command->callback([options, &status] { status = run(*options); });
}

} // namespace cleave::tool
