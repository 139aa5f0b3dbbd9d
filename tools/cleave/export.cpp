// cleave export SNAPSHOT -o model.onnx|model.safetensors|FOLDER: trained weights back into the ecosystem. cleave
// export --annotate X.plan -o split.onnx: the model with the plan's split in ONNX's own terms.
#include "compiler/export/export.h"
#include "compiler/annotations/annotations.h"
#include "runtime/plan/plan_file.h"
#include "tools/cleave/commands.h"
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace cleave::tool {

namespace {

struct ExportOptions {
  ExportRequest request;
  std::string plan, dtype, names = "pytorch", tiedCopies = "all";
  bool json = false;
};

int runAnnotate(const ExportOptions &options) {
  const ExportRequest &request = options.request;
  if (!request.snapshot.empty())
    return fail(
        Status(ErrorKind::Usage, "export writes a snapshot's weights or, with --annotate, a plan's split: not both"));
  if (!request.output.ends_with(".onnx")) return fail(Status(ErrorKind::Usage, "--annotate writes a .onnx file"));
  auto plan = runtime::readPlanFile(options.plan);
  if (!plan) return fail(plan.status());
  Status written = annotations::writeSplit(*plan, request.model, request.output);
  if (written)
    written = options.json ? writeJson("-", {{"files", {request.output}}}) : writeText("-", request.output + "\n");
  return written ? 0 : fail(written);
}

int runExport(const ExportOptions &options) {
  if (!options.plan.empty()) return runAnnotate(options);
  ExportRequest request = options.request;
  if (request.snapshot.empty())
    return fail(Status(ErrorKind::Usage, "export wants a SNAPSHOT, or --annotate with a plan"));
  if (options.dtype == "fp32") request.dtype = plan::F32;
  if (options.dtype == "bf16") request.dtype = plan::BF16;
  if (options.dtype == "fp16") request.dtype = plan::F16;
  request.fileNames = options.names == "file";
  request.tiedCopies = options.tiedCopies == "all";
  std::vector<std::string> notes;
  auto exported = exportSnapshot(request, notes);
  for (const std::string &note : notes) print(stderr, fmt::format("note: {}\n", note));
  if (!exported) return fail(exported.status());
  Status written = options.json ? writeJson("-", {{"files", exported->files},
                                                  {"tensors", exported->tensors},
                                                  {"step", exported->step},
                                                  {"notes", notes}})
                                : writeText("-", fmt::format("{}\n", fmt::join(exported->files, "\n")));
  return written ? 0 : fail(written);
}

} // namespace

void addExport(CLI::App &app, int &status) {
  auto *command = app.add_subcommand(
      "export", "Write a snapshot's weights as PyTorch's state_dict, or into the ONNX model; or a plan's "
                "split into the model");
  auto options = std::make_shared<ExportOptions>();
  ExportRequest &request = options->request;
  command->add_option("snapshot", request.snapshot, "a snapshot, or a folder of them (then the newest)");
  command->add_option("-o,--output", request.output, "model.onnx, model.safetensors, or a folder for adapters")
      ->required();
  command->add_flag("--ema", request.ema, "the moving averages that the recipe's `ema` keeps, in place of the weights");
  command->add_flag("--optimizer", request.optimizer,
                    "the optimizer's state, into a folder: for the recipe's init.optimizer and for PyTorch");
  command->add_flag("--merge", request.merge, "add adapters to the weights that they stand beside");
  command->add_option("--model", request.model, "the .onnx file it was trained from, if it moved");
  command->add_option("--annotate", options->plan,
                      "a plan: write its model with its split as ONNX's device annotations, instead of a snapshot");
  command->add_option("--base", request.base,
                      "the original checkpoint (.safetensors or its index), for entries that the .onnx file lacks");
  command->add_option("--strip-prefix", request.stripPrefix,
                      "taken from the front of names: 'model.' of 'model.fc.weight'");
  command->add_option("--dtype", options->dtype, "of floats: fp32, bf16, fp16 (default: as trained)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  command
      ->add_option("--names", options->names,
                   "pytorch: the state_dict's names and shapes; file: those of the .onnx file")
      ->check(CLI::IsMember({"pytorch", "file"}))
      ->capture_default_str();
  command
      ->add_option(
          "--tied-copies", options->tiedCopies,
          "all: every name of a tied weight, as load_state_dict wants; one: the first, as save_pretrained does")
      ->check(CLI::IsMember({"all", "one"}))
      ->capture_default_str();
  command
      ->add_option("--shard-size", request.shardBytes,
                   "bytes of one file (default 5GB); above, model-00001-of-0000N and an index")
      ->transform(CLI::AsSizeValue(true))
      ->check(positiveNumber);
  command->add_flag("--json", options->json, "for programs: the files, their tensors, the snapshot's step");
  command->callback([options, &status] { status = runExport(*options); });
}

} // namespace cleave::tool
