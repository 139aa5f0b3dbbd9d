#include "runtime/base/file_kind.h"
#include <algorithm>
#include <cstdint>

namespace cleave::runtime {
namespace {

using namespace std::string_view_literals;

constexpr size_t headBytes = 4096; // enough for the names of an archive's first entries

std::string zipKind(std::string_view head) {
  if (head.find("data.pkl") != head.npos || head.find("/version") != head.npos)
    return "a PyTorch checkpoint: export the model with torch.onnx.export";
  if (head.find(".npy") != head.npos) return "NumPy's arrays (.npz)";
  return "a zip archive";
}

bool isSafetensors(std::string_view head) {
  if (head.size() < 9 || head[8] != '{') return false;
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | uint8_t(head[i]);
  return length < uint64_t(1) << 30;
}

bool isText(std::string_view head) {
  return !head.empty() && std::ranges::all_of(head, [](char c) {
    return uint8_t(c) >= 0x20 ? c != 0x7f : c == '\n' || c == '\r' || c == '\t';
  });
}

} // namespace

std::string fileKind(std::string_view bytes) {
  const std::string_view head = bytes.substr(0, headBytes);
  if (head.starts_with("CLEAVEPL")) return "a plan, which `cleave compile` wrote";
  if (head.starts_with("PK\3\4")) return zipKind(head);
  if (head.starts_with("\x93NUMPY")) return "a NumPy array (.npy)";
  if (head.starts_with("\x89HDF\r\n"sv)) return "an HDF5 file";
  if (head.starts_with("version https://git-lfs")) return "a pointer of Git LFS: `git lfs pull` brings the file itself";
  if (head.size() > 8 && head.substr(4, 4) == "TFL3") return "a TFLite model";
  if (head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5)
    return "a Python pickle, as PyTorch's old checkpoints are: export the model with torch.onnx.export";
  if (isSafetensors(head)) return "weights in a safetensors file, without the model";
  if (isText(head)) return "text";
  return "";
}

} // namespace cleave::runtime
