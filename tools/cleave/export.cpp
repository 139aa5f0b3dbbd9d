// cleave export SNAPSHOT -o model.onnx|model.safetensors: trained weights back into the ecosystem.
#include "compiler/export_snapshot.h"
#include "tools/cleave/commands.h"
#include <fmt/core.h>
#include <memory>

namespace cleave::tool {

void addExport(CLI::App &app, int &status) {
  struct Options {
    std::string snapshot, output, model;
  };
  auto *command = app.add_subcommand("export", "Write a snapshot's weights as safetensors, or into the ONNX model");
  auto options = std::make_shared<Options>();
  command->add_option("snapshot", options->snapshot, "a snapshot, or a folder of them (then the newest)")->required();
  command->add_option("-o,--output", options->output, "model.onnx or model.safetensors")->required();
  command->add_option("--model", options->model, "the .onnx file it was trained from, if it moved");
  command->callback([options, &status] {
    Status written = exportSnapshot(options->snapshot, options->output, options->model);
    if (!written) {
      status = fail(written);
      return;
    }
    fmt::print("{}\n", options->output);
    status = 0;
  });
}

} // namespace cleave::tool
