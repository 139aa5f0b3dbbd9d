// cleave launch X.plan: the job that starts one process a rank, for Slurm, Kubernetes, torchrun or mpirun.
#include "compiler/cluster/cluster.h"
#include "runtime/base/names/shell_word.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/plan_file.h"
#include "tools/cleave/commands.h"
#include "tools/cleave/jobs.h"
#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace cleave::tool {
namespace {

struct LaunchOptions {
  std::string plan, output, name, snapshots = "snapshots", image = "cleave", claim = "shared", mount = "/shared";
  std::vector<std::string> more; // options of `cleave run`
  bool slurm = false, kubernetes = false, torchrun = false, mpirun = false, dryRun = false, json = false;
};

// A name for a job and a host: lower case letters, digits and dashes (RFC 1123), at most 40 of them.
std::string jobName(const std::string &text) {
  std::string name;
  for (unsigned char c : text)
    if (std::isalnum(c))
      name += char(std::tolower(c));
    else if (!name.empty() && !name.ends_with('-'))
      name += '-';
  name = name.substr(0, 40);
  while (name.ends_with('-')) name.pop_back();
  return name.empty() || std::isdigit(uint8_t(name[0])) ? "run-" + name : name;
}

// "dp=0,tp=1"
std::string placeOf(const dist::Mesh &mesh, int64_t rank) {
  const std::vector<int64_t> coordinate = mesh.coordinate(rank);
  std::string text;
  for (size_t axis = 0; axis < coordinate.size(); ++axis)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", mesh.axes[axis].name, coordinate[axis]);
  return text;
}

Result<Job> jobOf(const LaunchOptions &options, const plan::Plan &plan) {
  auto cluster = planner::parseClusterYaml(plan.cluster_yaml(), options.plan + "'s cluster");
  if (!cluster) return cluster.status();
  const bool isPod = options.kubernetes;
  const std::filesystem::path path = options.plan;
  Job job{.launcher = options.slurm      ? Launcher::Slurm
                      : isPod            ? Launcher::Kubernetes
                      : options.torchrun ? Launcher::Torchrun
                                         : Launcher::Mpirun,
          .name = jobName(options.name.empty() ? path.stem().string() : options.name),
          .command = "",
          .nodes = cluster->nodes,
          .ranksOfNode = cluster->devicesPerNode,
          .gpus = !cluster->device.isCpu(),
          .image = options.image,
          .claim = options.claim,
          .mount = options.mount};
  const bool isMounted = isPod && !options.snapshots.starts_with('/');
  std::vector<std::string> words = {"cleave",
                                    "run",
                                    isPod ? options.mount + "/" + path.filename().string() : options.plan,
                                    "--snapshot",
                                    isMounted ? options.mount + "/" + options.snapshots : options.snapshots,
                                    "--resume"};
  auto given = [&](const std::string &flag) {
    return std::ranges::any_of(options.more, [&](const std::string &word) { return word.starts_with(flag); });
  };
  if (!given("--snapshot-every")) words.insert(words.end(), {"--snapshot-every", "100"});
  words.insert(words.end(), options.more.begin(), options.more.end());
  for (const std::string &word : words) job.command += (job.command.empty() ? "" : " ") + names::shellWord(word);
  return job;
}

bool isFile(const std::string &output) { return !output.empty() && output != "-"; }

// The processes of the job as a shell's lines, each below its place in cluster and mesh.
std::string rehearsal(const Job &job, const dist::Mesh &mesh, const std::string &output) {
  std::string text = fmt::format("# {} for {}: {} {} with {} ranks each. Nothing is written or started.\n", job.name,
                                 nameOf(job.launcher), job.nodes, job.nodes == 1 ? "node" : "nodes", job.ranksOfNode);
  if (isFile(output))
    text += fmt::format("# {} would have {} lines, for: {} {}\n", output, std::ranges::count(jobText(job), '\n'),
                        startOf(job.launcher), names::shellWord(output));
  for (int64_t rank = 0; rank < job.ranks(); ++rank) {
    text += fmt::format("# rank {} on node {}: {}\n", rank, rank / job.ranksOfNode, placeOf(mesh, rank));
    for (const auto &[name, value] : variablesOf(job, rank)) text += fmt::format("{}={} ", name, value);
    text += job.command + "\n";
  }
  return text;
}

nlohmann::ordered_json asJson(const Job &job, const dist::Mesh &mesh, const LaunchOptions &options) {
  using Json = nlohmann::ordered_json;
  Json json = {{"launcher", nameOf(job.launcher)},
               {"name", job.name},
               {"nodes", job.nodes},
               {"ranks_per_node", job.ranksOfNode},
               {"ranks", job.ranks()},
               {"gpus_per_node", job.gpus ? job.ranksOfNode : 0},
               {"file", nullptr},
               {"start", nullptr},
               {"written", isFile(options.output) && !options.dryRun},
               {"job", jobText(job)},
               {"command", job.command},
               {"processes", Json::array()}};
  if (isFile(options.output)) {
    json["file"] = options.output;
    json["start"] = fmt::format("{} {}", startOf(job.launcher), names::shellWord(options.output));
  }
  for (int64_t rank = 0; rank < job.ranks(); ++rank) {
    Json process = {{"rank", rank},
                    {"node", rank / job.ranksOfNode},
                    {"coordinate", Json::object()},
                    {"environment", Json::object()}};
    const std::vector<int64_t> coordinate = mesh.coordinate(rank);
    for (size_t axis = 0; axis < coordinate.size(); ++axis)
      process["coordinate"][mesh.axes[axis].name] = coordinate[axis];
    for (const auto &[name, value] : variablesOf(job, rank)) process["environment"][name] = value;
    json["processes"].push_back(std::move(process));
  }
  return json;
}

Status launch(const LaunchOptions &options) {
  auto plan = runtime::readPlanFile(options.plan);
  if (!plan) return plan.status();
  auto mesh = runtime::meshOf(plan->mesh());
  if (!mesh) return mesh.status();
  auto job = jobOf(options, *plan);
  if (!job) return job.status();
  if (!options.dryRun && (isFile(options.output) || !options.json))
    CLEAVE_RETURN_IF_ERROR(writeText(options.output, jobText(*job)));
  if (options.json) return writeJson("-", asJson(*job, *mesh, options));
  return options.dryRun ? writeText("-", rehearsal(*job, *mesh, options.output)) : Status::ok();
}

} // namespace

void addLaunch(CLI::App &app, int &status) {
  auto *command =
      app.add_subcommand("launch", "Write the job that runs a plan: for Slurm, Kubernetes, torchrun or mpirun");
  auto options = std::make_shared<LaunchOptions>();
  command->add_option("plan", options->plan, "the compiled plan")->required();
  auto *launcher = command->add_option_group("launcher");
  launcher->add_flag("--slurm", options->slurm, "a script for sbatch");
  launcher->add_flag("--k8s", options->kubernetes, "a service and an indexed job for kubectl apply -f, one pod a node");
  launcher->add_flag("--torchrun", options->torchrun, "a script for each node");
  launcher->add_flag("--mpirun", options->mpirun, "a script");
  launcher->require_option(1);
  command->add_option("-o,--output", options->output, "file (default: standard output)");
  command->add_option("--name", options->name, "the job's name (default: the plan's)");
  command->add_option("--snapshot", options->snapshots, "folder of the snapshots that the job goes on from")
      ->capture_default_str();
  command->add_option("--image", options->image, "--k8s: the container's image")->capture_default_str();
  command->add_option("--claim", options->claim, "--k8s: the claim of the volume with plan, weights and data")
      ->capture_default_str();
  command->add_option("--mount", options->mount, "--k8s: where the volume is mounted")->capture_default_str();
  command->add_flag("--dry-run", options->dryRun,
                    "write and start nothing: print what each rank would be started with, and its place in the mesh");
  command->add_flag("--json", options->json, "for programs: the job, its file and its ranks");
  command->add_option("run", options->more, "behind --: options for `cleave run`");
  command->callback([options, &status] {
    Status done = launch(*options);
    status = done ? 0 : fail(done);
  });
}

} // namespace cleave::tool
