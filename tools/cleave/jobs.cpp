#include "tools/cleave/jobs.h"
#include <fmt/core.h>

namespace cleave::tool {
namespace {

constexpr int podPort = 29500;

// Where the first pod is found: its own name under that of the service.
std::string podAddress(const Job &job) { return fmt::format("{0}-0.{0}", job.name); }

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
srun --kill-on-bad-exit=1 {command}
status=$?
# 75: a signal, such as two minutes before the end of the time, ended the run after a snapshot. It goes on in a new job.
if [ $status -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $status
)",
                     fmt::arg("name", job.name), fmt::arg("nodes", job.nodes), fmt::arg("ranks", job.ranksOfNode),
                     fmt::arg("gpus", job.gpus ? fmt::format("#SBATCH --gpus-per-node={}\n", job.ranksOfNode) : ""),
                     fmt::arg("command", job.command));
}

// One pod a node. Its shell starts the node's ranks, passes a signal on to them, and ends with the first status that is
// neither 0 nor 75, else with 75, else with 0.
std::string kubernetesJob(const Job &job) {
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
            RANK=$((JOB_COMPLETION_INDEX * {ranks} + i)) LOCAL_RANK=$i {command} &
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
        - {{name: MASTER_ADDR, value: {address}}}
        - {{name: MASTER_PORT, value: "{port}"}}
        - {{name: CLEAVE_SECRET, valueFrom: {{secretKeyRef: {{name: {name}, key: secret}}}}}}
{gpus}        volumeMounts:
        - {{name: shared, mountPath: {mount}}}
        - {{name: memory, mountPath: /dev/shm}}
      volumes:
      - {{name: shared, persistentVolumeClaim: {{claimName: {claim}}}}}
      - {{name: memory, emptyDir: {{medium: Memory}}}}
)",
                     fmt::arg("name", job.name), fmt::arg("nodes", job.nodes), fmt::arg("retries", 3 * job.nodes),
                     fmt::arg("image", job.image), fmt::arg("last", job.ranksOfNode - 1),
                     fmt::arg("ranks", job.ranksOfNode), fmt::arg("all", job.ranks()), fmt::arg("command", job.command),
                     fmt::arg("address", podAddress(job)), fmt::arg("port", podPort), fmt::arg("mount", job.mount),
                     fmt::arg("claim", job.claim),
                     fmt::arg("gpus", job.gpus ? fmt::format("        resources: {{limits: {{nvidia.com/gpu: {}}}}}\n",
                                                             job.ranksOfNode)
                                               : ""));
}

std::string torchrunJob(const Job &job) {
  const std::string command = fmt::format("--nproc_per_node {} --no-python {}", job.ranksOfNode, job.command);
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
exec mpirun -n {all} --map-by ppr:{ranks}:node {command}
)",
                     fmt::arg("nodes", job.nodes), fmt::arg("all", job.ranks()), fmt::arg("ranks", job.ranksOfNode),
                     fmt::arg("command", job.command));
}

} // namespace

std::string jobText(const Job &job) {
  switch (job.launcher) {
  case Launcher::Slurm:
    return slurmJob(job);
  case Launcher::Kubernetes:
    return kubernetesJob(job);
  case Launcher::Torchrun:
    return torchrunJob(job);
  case Launcher::Mpirun:
    return mpirunJob(job);
  }
  return {};
}

const char *nameOf(Launcher launcher) {
  switch (launcher) {
  case Launcher::Slurm:
    return "slurm";
  case Launcher::Kubernetes:
    return "k8s";
  case Launcher::Torchrun:
    return "torchrun";
  case Launcher::Mpirun:
    return "mpirun";
  }
  return "";
}

const char *startOf(Launcher launcher) {
  switch (launcher) {
  case Launcher::Slurm:
    return "sbatch";
  case Launcher::Kubernetes:
    return "kubectl apply -f";
  case Launcher::Torchrun:
  case Launcher::Mpirun:
    return "bash";
  }
  return "";
}

std::vector<Variable> variablesOf(const Job &job, int64_t rank) {
  const std::string all = std::to_string(job.ranks()), one = std::to_string(rank),
                    ofNode = std::to_string(job.ranksOfNode), local = std::to_string(rank % job.ranksOfNode),
                    node = std::to_string(rank / job.ranksOfNode);
  const std::vector<Variable> torch = {
      {"RANK", one}, {"WORLD_SIZE", all}, {"LOCAL_RANK", local}, {"LOCAL_WORLD_SIZE", ofNode}};
  switch (job.launcher) {
  case Launcher::Slurm:
    return {{"SLURM_PROCID", one}, {"SLURM_STEP_NUM_TASKS", all}, {"SLURM_LOCALID", local}, {"SLURM_NODEID", node}};
  case Launcher::Mpirun:
    return {{"OMPI_COMM_WORLD_RANK", one},
            {"OMPI_COMM_WORLD_SIZE", all},
            {"OMPI_COMM_WORLD_LOCAL_RANK", local},
            {"OMPI_COMM_WORLD_LOCAL_SIZE", ofNode}};
  case Launcher::Torchrun:
    return torch;
  case Launcher::Kubernetes: {
    std::vector<Variable> variables = torch;
    variables.push_back({"MASTER_ADDR", podAddress(job)});
    variables.push_back({"MASTER_PORT", std::to_string(podPort)});
    return variables;
  }
  }
  return {};
}

} // namespace cleave::tool
