// The jobs that `cleave launch` writes: a script or a file for each launcher, which starts one process a rank.
//
//   Job job{Launcher::Slurm, "gpt", "cleave run gpt.plan", 2, 8};
//   jobText(job)          "#!/bin/bash\n#SBATCH --job-name=gpt\n..."
//   variablesOf(job, 9)   SLURM_PROCID=9, SLURM_STEP_NUM_TASKS=16, SLURM_LOCALID=1, SLURM_NODEID=1
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cleave::tool {

enum class Launcher : uint8_t { Slurm, Kubernetes, Torchrun, Mpirun };

struct Job {
  Launcher launcher = Launcher::Slurm;
  std::string name;    // letters, digits and dashes
  std::string command; // of each rank, as a shell takes it
  int64_t nodes = 1, ranksOfNode = 1;
  bool gpus = false;
  std::string image, claim, mount; // of Kubernetes

  int64_t ranks() const { return nodes * ranksOfNode; }
};

std::string jobText(const Job &job);
const char *nameOf(Launcher launcher);  // the flag's: "k8s"
const char *startOf(Launcher launcher); // what takes the file: "kubectl apply -f"

// Variables of a rank's environment that are known before the start, and that tell it its place.
using Variable = std::pair<std::string, std::string>;
std::vector<Variable> variablesOf(const Job &job, int64_t rank);

} // namespace cleave::tool
