// cleave probe -o cluster.yaml: measure this machine as the runtime uses it, its GPUs where there are any, and write
// the cluster file for it.
#include "compiler/calibrate/machine_cluster.h"
#include "compiler/trials/gpu_trials.h"
#include "compiler/trials/trial_kernels.h"
#include "runtime/engine/probe/figures_json.h"
#include "runtime/engine/probe/idle_cores.h"
#include "runtime/engine/probe/machine.h"
#include "tools/cleave/commands.h"
#include <fmt/core.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace cleave::tool {
namespace {

struct ProbeOptions {
  std::string output;
  int64_t devices = 0; // 0: one, or all GPUs
  bool cpu = false, json = false;
};

using Say = std::function<void(const std::string &)>;

// The cluster file's content, and the figures behind it.
struct Probed {
  planner::Cluster cluster;
  nlohmann::ordered_json figures;
};

Result<Probed> probeCpu(int64_t devices, const Say &say) {
  auto kernels = trialKernels(devices, runtime::farBytes(devices));
  if (!kernels) return kernels.status();
  auto figures = runtime::MachineProbe{devices, std::move(*kernels), say}.measure();
  if (!figures) return figures.status();
  return Probed{planner::clusterOf(*figures), runtime::figuresJson(*figures)};
}

Result<Probed> probeGpus(const std::vector<runtime::GpuDescription> &gpus, int64_t devices, const Say &say) {
  if (devices > int64_t(gpus.size()))
    return Status(ErrorKind::Usage,
                  fmt::format("--devices {}: this machine has {} GPU{}; --cpu measures virtual devices of the CPU",
                              devices, gpus.size(), gpus.size() == 1 ? "" : "s"));
  for (const runtime::GpuDescription &gpu : gpus)
    if (gpu.capability != gpus.front().capability)
      say(fmt::format("note: {} is another kind; the file is for machines of {} alone", gpu.name, gpus.front().name));
  auto trials = gpuTrials(gpus.front(), devices);
  if (!trials) return trials.status();
  auto figures = runtime::GpuProbe{gpus.front(), devices, std::move(*trials), say}.measure();
  if (!figures) return figures.status();
  return Probed{planner::clusterOf(*figures), runtime::figuresJson(*figures)};
}

int runProbe(const ProbeOptions &options) {
  if (options.json && options.output == "-")
    return fail({ErrorKind::Usage, "--json and -o - both want standard output: give the cluster a file"});
  std::string measured;
  auto say = [&](const std::string &line) {
    measured += "# " + line + "\n";
    fmt::print(stderr, "{}\n", line);
  };
  std::vector<runtime::GpuDescription> gpus;
  if (!options.cpu) gpus = runtime::findGpus();
  int64_t devices = options.devices > 0 ? options.devices : std::max<int64_t>(1, int64_t(gpus.size()));
  if (gpus.empty() && !options.cpu) say("no GPU found: the CPU is measured");
  const runtime::IdleCores cores;
  Result<Probed> probed = gpus.empty() ? probeCpu(devices, say) : probeGpus(gpus, devices, say);
  if (!probed) return fail(probed.status());
  const double others = cores.busyWithOthers();
  if (const std::string warning = runtime::warningOfOthers(others); !warning.empty()) say("warning: " + warning);
  Status written = writeCluster(
      fmt::format("# Written by `cleave probe{} --devices {}`; docs/reference/cluster.md explains the keys. Measured, "
                  "with all devices active:\n{}",
                  options.cpu ? " --cpu" : "", devices, measured),
      probed->cluster, options.output);
  if (!written) return fail(written);
  if (options.json)
    written = writeJson(
        "-", {{"file", options.output}, {"busy_with_others", others}, {"figures", std::move(probed->figures)}});
  return written ? 0 : fail(written);
}

} // namespace

Status writeCluster(const std::string &comments, const planner::Cluster &cluster, const std::string &path) {
  const std::string text = comments + cluster.yaml();
  if (auto readBack = planner::parseClusterYaml(text, path); !readBack) return readBack.status();
  CLEAVE_RETURN_IF_ERROR(writeText(path, text));
  if (path != "-") fmt::print(stderr, "{}: give it to `cleave compile` and `cleave estimate` as --cluster\n", path);
  return Status::ok();
}

void addProbe(CLI::App &app, int &status) {
  auto *command = app.add_subcommand("probe", "Measure this machine and write its cluster file; takes some seconds");
  auto options = std::make_shared<ProbeOptions>();
  command->add_option("-o,--output", options->output, "the cluster file to write; - is standard output")->required();
  command
      ->add_option("--devices", options->devices,
                   "GPUs (default: all), or virtual devices that share the CPU (default: 1)")
      ->check(CLI::Range(1, 64));
  command->add_flag("--cpu", options->cpu, "measure the CPU although there are GPUs");
  command->add_flag("--json", options->json, "also print the measured figures for programs");
  command->callback([options, &status] { status = runProbe(*options); });
}

} // namespace cleave::tool
