#include "runtime/train/trainer.h"
#include "tools/cleave/commands.h"

namespace cleave::tool {

void addProcessOptions(CLI::App &command, runtime::TrainOptions &train) {
  command
      .add_option("--step-timeout", train.limits.step.seconds,
                   "seconds after which the run ends because a rank that others wait for is stopped or makes no "
                   "progress, which is named; on GPUs: that a step may take")
      ->check(positiveNumber)
      ->capture_default_str();
  command.add_option("--secret-file", train.network.secretFile,
                      "file with the secret of all ranks over TCP (default: CLEAVE_SECRET)");
  command.add_option(
      "--interface", train.network.interface,
      "network interface, or its address, of this rank over TCP (default: the one that reaches rank 0)");
  command.add_flag("--insecure-network", train.network.isInsecure,
                    "meet beyond this host without a secret: nobody else may be on the network");
  command
      .add_option("--meeting-timeout", train.limits.meeting.seconds,
                   "seconds in which all ranks over TCP have to arrive")
      ->check(positiveNumber)
      ->capture_default_str();
  command
      .add_option("--preparation-timeout", train.limits.preparation.seconds,
                   "seconds that ranks wait for one that reads data or a snapshot, or chooses algorithms")
      ->check(positiveNumber)
      ->capture_default_str();
  command.add_option("--model", train.model, "the .onnx file or folder of artifacts, if it moved since compiling");
  command.add_flag("--check-weights", train.checkWeights,
                    "compare all of the weight files, not samples, with those of compile time");
  command
      .add_option(
          "--threads", train.threads,
          "threads a device (default: OMP_NUM_THREADS, else the cores and the CPU quota, divided by the devices)")
      ->check(positiveNumber);
}

} // namespace cleave::tool
