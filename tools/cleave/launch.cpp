// cleave launch X.plan: the job that starts one process a rank, for Slurm, Kubernetes, torchrun or mpirun.
#include "compiler/cluster/cluster.h"
#include "runtime/plan/plan_file.h"
#include "tools/cleave/commands.h"
#include "tools/cleave/shell.h"
#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <memory>

namespace cleave::tool {
namespace {

struct LaunchOptions {
  std::string plan, output, name, snapshots = "snapshots", image = "cleave", claim = "shared", mount = "/shared";
  std::vector<std::string> more; // options of `cleave run`
  bool slurm = false, kubernetes = false, torchrun = false, mpirun = false;
};

// The facts that the launchers have to know.
struct Job {
  std::string name, plan, options;
  int64_t nodes = 1, ranksOfNode = 1;
  bool gpus = false;
  int64_t ranks() const { return nodes * ranksOfNode; }
};

// A word of a shell command, with quotes where it needs them.
std::string shellWord(const std::string &word) {
  const bool isPlain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-./=:,+@%").find(char(c)) != std::string_view::npos;
  });
  return isPlain ? word : singleQuoted(word);
}

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

std::string slurmJob(const Job &job) {
  return fmt::format(R"(#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={ranks}
{gpus}#SBATCH --signal=TERM@120
#SBATCH --requeue --open-mode=append
# #SBATCH --time=24:00:00 --partition=... --account=...
# All nodes see the plan, the weights, the data and the snapshots under the same names.
export CLEAVE_SECRET=$(openssl rand -hex 16)
srun --kill-on-bad-exit=1 cleave run {plan} {options}
status=$?
# 75: a signal, such as two minutes before the end of the time, ended the run after a snapshot. It goes on in a new job.
if [ $status -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $status
)",
                     fmt::arg("name", job.name), fmt::arg("nodes", job.nodes), fmt::arg("ranks", job.ranksOfNode),
                     fmt::arg("gpus", job.gpus ? fmt::format("#SBATCH --gpus-per-node={}\n", job.ranksOfNode) : ""),
                     fmt::arg("plan", job.plan), fmt::arg("options", job.options));
}

// One pod a node. Its shell starts the node's ranks, passes a signal on to them, and ends with the first status that is
// neither 0 nor 75, else with 75, else with 0.
std::string kubernetesJob(const Job &job, const LaunchOptions &options) {
  return fmt::format(R"(# kubectl create secret generic {name} --from-literal=secret=$(openssl rand -hex 16)
# The pods know no plan of yours: sign it (cleave compile --sign KEY) and add -- --trust KEYFILE, or add -- --trust-code.
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  clusterIP: None
  publishNotReadyAddresses: true  # ranks look for the first pod before it is ready
  selector: {{job-name: {name}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  completions: {nodes}
  parallelism: {nodes}
  completionMode: Indexed
  backoffLimit: {retries}
  podFailurePolicy:
    rules:
    - action: Ignore  # 75: a signal ended the run after a snapshot; a new pod goes on
      onExitCodes: {{operator: In, values: [75]}}
  template:
    spec:
      subdomain: {name}
      restartPolicy: Never
      terminationGracePeriodSeconds: 120
      containers:
      - name: ranks
        image: {image}
        command:
        - bash
        - -c
        - |
          trap 'kill -TERM $ranks' TERM
          for i in $(seq 0 {last}); do
            RANK=$((JOB_COMPLETION_INDEX * {ranks} + i)) LOCAL_RANK=$i cleave run {plan} {options} &
            ranks="$ranks $!"
          done
          status=0
          for rank in $ranks; do
            wait $rank; one=$?
            while [ $one -gt 128 ] && kill -0 $rank 2>/dev/null; do wait $rank; one=$?; done  # a signal ended the wait
            if [ $one -ne 0 ] && {{ [ $status -eq 0 ] || [ $status -eq 75 ]; }}; then status=$one; fi
          done
          exit $status
        env:
        - {{name: WORLD_SIZE, value: "{all}"}}
        - {{name: LOCAL_WORLD_SIZE, value: "{ranks}"}}
        - {{name: MASTER_ADDR, value: {name}-0.{name}}}
        - {{name: MASTER_PORT, value: "29500"}}
        - {{name: CLEAVE_SECRET, valueFrom: {{secretKeyRef: {{name: {name}, key: secret}}}}}}
{gpus}        volumeMounts:
        - {{name: shared, mountPath: {mount}}}
        - {{name: memory, mountPath: /dev/shm}}
      volumes:
      - {{name: shared, persistentVolumeClaim: {{claimName: {claim}}}}}
      - {{name: memory, emptyDir: {{medium: Memory}}}}
)",
                     fmt::arg("name", job.name), fmt::arg("nodes", job.nodes), fmt::arg("retries", 3 * job.nodes),
                     fmt::arg("image", options.image), fmt::arg("last", job.ranksOfNode - 1),
                     fmt::arg("ranks", job.ranksOfNode), fmt::arg("all", job.ranks()), fmt::arg("plan", job.plan),
                     fmt::arg("options", job.options), fmt::arg("mount", options.mount),
                     fmt::arg("claim", options.claim),
                     fmt::arg("gpus", job.gpus ? fmt::format("        resources: {{limits: {{nvidia.com/gpu: {}}}}}\n",
                                                             job.ranksOfNode)
                                               : ""));
}

std::string torchrunJob(const Job &job) {
  const std::string command =
      fmt::format("--nproc_per_node {} --no-python cleave run {} {}", job.ranksOfNode, job.plan, job.options);
  if (job.nodes == 1) return fmt::format("#!/bin/bash\nexec torchrun --standalone {}\n", command);
  return fmt::format(R"(#!/bin/bash
# On each of the {nodes} nodes, with the name of the first one and the same secret (openssl rand -hex 16).
: "${{MASTER_ADDR:?the name of the first node}}" "${{CLEAVE_SECRET:?the secret of all ranks}}"
exec torchrun --nnodes {nodes} --rdzv_backend c10d --rdzv_endpoint "$MASTER_ADDR:29400" {command}
)",
                     fmt::arg("nodes", job.nodes), fmt::arg("command", command));
}

std::string mpirunJob(const Job &job) {
  return fmt::format(R"(#!/bin/bash
# Open MPI; --hostfile names the {nodes} node(s) where there is more than one.
exec mpirun -n {all} --map-by ppr:{ranks}:node cleave run {plan} {options}
)",
                     fmt::arg("nodes", job.nodes), fmt::arg("all", job.ranks()), fmt::arg("ranks", job.ranksOfNode),
                     fmt::arg("plan", job.plan), fmt::arg("options", job.options));
}

Status launch(const LaunchOptions &options) {
  auto plan = runtime::readPlanFile(options.plan);
  if (!plan) return plan.status();
  auto cluster = planner::parseClusterYaml(plan->cluster_yaml(), options.plan + "'s cluster");
  if (!cluster) return cluster.status();
  const std::filesystem::path path = options.plan;
  Job job{.name = jobName(options.name.empty() ? path.stem().string() : options.name),
          .plan = shellWord(options.kubernetes ? options.mount + "/" + path.filename().string() : options.plan),
          .options = "",
          .nodes = cluster->nodes,
          .ranksOfNode = cluster->devicesPerNode,
          .gpus = !cluster->device.isCpu()};
  std::string snapshots = options.snapshots;
  if (options.kubernetes && !snapshots.starts_with('/')) snapshots = options.mount + "/" + snapshots;
  std::vector<std::string> words = {"--snapshot", shellWord(snapshots), "--resume"};
  auto given = [&](const std::string &flag) {
    return std::ranges::any_of(options.more, [&](const std::string &word) { return word.starts_with(flag); });
  };
  if (!given("--snapshot-every")) words.insert(words.end(), {"--snapshot-every", "100"});
  for (const std::string &word : options.more) words.push_back(shellWord(word));
  job.options = fmt::format("{}", fmt::join(words, " "));
  return writeText(options.output, options.slurm        ? slurmJob(job)
                                   : options.kubernetes ? kubernetesJob(job, options)
                                   : options.torchrun   ? torchrunJob(job)
                                                        : mpirunJob(job));
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
  command->add_option("run", options->more, "behind --: options for `cleave run`");
  command->callback([options, &status] {
    Status done = launch(*options);
    status = done ? 0 : fail(done);
  });
}

} // namespace cleave::tool
