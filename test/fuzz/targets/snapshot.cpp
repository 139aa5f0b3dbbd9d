// Snapshots of two ranks: manifest.json and two safetensors files (the parts of an input, input_file.h). Read or
// refused with a word; every tensor of one that is read can be read whole, or is refused.
#include "runtime/train/state/snapshot.h"
#include "runtime/base/checksum.h"
#include "runtime/plan/dtype.h"
#include "test/fuzz/chance.h"
#include "test/fuzz/input_file.h"
#include "test/fuzz/target.h"
#include <cstring>
#include <nlohmann/json.hpp>

namespace {

using namespace cleave;
constexpr size_t files = 3;
constexpr int64_t mostBytes = 1 << 24; // of a tensor that is read

void readTensors(const runtime::Snapshot &snapshot) {
  for (const auto &[name, tensor] : snapshot.manifest().tensors) {
    const int64_t elements = runtime::elementCount(tensor.shape);
    if (elements < 0 || elements > mostBytes / runtime::byteSize(tensor.dtype)) continue;
    std::vector<std::byte> bytes(size_t(elements * runtime::byteSize(tensor.dtype)));
    runtime::Shard whole{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
    Status read = snapshot.read(name, tensor.dtype, tensor.shape, whole, bytes);
    if (!read) fuzz::refused(read);
  }
}

std::string checksumOf(std::string_view text) { return runtime::checksumOf(std::as_bytes(std::span(text))); }

// The manifest's checksums are made right, so that what was changed comes further than to them.
void mendChecksums(std::vector<std::string> &parts) {
  nlohmann::json manifest = nlohmann::json::parse(parts[0], nullptr, false);
  if (!manifest.is_object() || !manifest["files"].is_array()) return;
  for (size_t rank = 0; rank + 1 < files && rank < manifest["files"].size(); ++rank) {
    uint64_t length = 0;
    std::memcpy(&length, parts[rank + 1].data(), std::min<size_t>(8, parts[rank + 1].size()));
    const bool isWhole = parts[rank + 1].size() >= 8 && length <= parts[rank + 1].size() - 8;
    if (isWhole && manifest["files"][rank].is_object())
      manifest["files"][rank]["checksum"] = checksumOf(std::string_view(parts[rank + 1]).substr(0, 8 + length));
  }
  manifest.erase("checksum");
  manifest["checksum"] = checksumOf(manifest.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  parts[0] = manifest.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static fuzz::InputFolder folder;
  std::vector<std::string> parts = fuzz::splitParts({data, size}, files);
  mendChecksums(parts);
  folder.write("manifest.json", parts[0]);
  for (size_t rank = 0; rank + 1 < files; ++rank) folder.write(runtime::rankFileName(int64_t(rank)), parts[rank + 1]);
  if (auto file = runtime::SafetensorsFile::open(folder.path(runtime::rankFileName(0))); !file)
    fuzz::refused(file.status());
  auto snapshot = runtime::Snapshot::open(folder.path());
  if (!snapshot) return fuzz::refused(snapshot.status());
  readTensors(**snapshot);
  return 0;
}

// A file's size stands in the manifest: half of the changed files keep theirs.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  fuzz::Chance chance(uint64_t{seed});
  std::vector<std::string> parts = fuzz::splitParts({data, size}, files);
  std::string &part = parts[chance.below(files)];
  const size_t before = part.size();
  part.resize(before + 64);
  part.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t *>(part.data()), before, part.size()));
  if (&part != &parts[0] && chance.once(2)) part.resize(before, ' ');
  const std::string joined = fuzz::joinParts(parts);
  if (joined.size() > maxSize) return LLVMFuzzerMutate(data, size, maxSize);
  std::copy(joined.begin(), joined.end(), data);
  return joined.size();
}
