// Trained weights back into the ecosystem.
//
//   ExportRequest request{.snapshot = "snapshots", .output = "out/model.safetensors"};
//   exportSnapshot(request)     out/model.safetensors: the state_dict of the PyTorch model, for load_state_dict
//                               or, above shardBytes, out/model-00001-of-00003.safetensors, ... and
//                               out/model.safetensors.index.json, as Hugging Face has them
//   request.output = "trained.onnx"   the model it came from, with the trained initializers
//   request.output = "adapter"        of a training with the recipe's `lora`: a folder as PEFT saves it,
//                                     adapter_config.json and adapter_model.safetensors
//   request.optimizer = true          a folder as the recipe's `init: {optimizer: ...}` takes it
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <string>
#include <vector>

namespace cleave {

struct ExportRequest {
  std::string snapshot;                    // one, or a folder of them (then the newest whole one)
  std::string output;                      // *.safetensors, *.onnx, or a folder for adapters
  std::string model;                       // the .onnx file it was trained from, if it moved; "": where it was
  std::string base;                        // the original checkpoint, a .safetensors file or an index of them; "": none
  std::string stripPrefix;                 // taken from the front of names
  plan::DType dtype = plan::DTYPE_INVALID; // of floats; DTYPE_INVALID: as trained
  int64_t shardBytes = int64_t(5) * 1000000000; // of one safetensors file, its header apart
  bool fileNames = false;                       // the .onnx file's names and shapes instead of PyTorch's
  bool optimizer = false;                       // the optimizer's state, into a folder (write_optimizer.h)
  bool ema = false;                             // the moving averages of the weights
  bool merge = false;                           // adapters are added to the weights that they stand beside
  bool tiedCopies = true;                       // every name of a tied weight, as load_state_dict(strict=True) wants
};

struct Exported {
  std::vector<std::string> files = {};
  int64_t tensors = 0; // in the files together; of an .onnx file those that the training changed
  int64_t step = 0;    // of the snapshot
};

// `notes` says what the result lacks. Memory: that of the largest tensor that has to be turned; of
// others 64 MiB. Errors: no whole snapshot there, another extension, a model that is not the snapshot's, a base with
// other shapes, a full disk (an existing output is left as it was).
Result<Exported> exportSnapshot(const ExportRequest &request, std::vector<std::string> &notes);

} // namespace cleave
