#include "runtime/plan/plan_file.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/digest.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/mapped_file.h"
#include "runtime/plan/message_faults.h"
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <zlib.h>

namespace cleave::runtime {
namespace {

constexpr char magic[8] = {'C', 'L', 'E', 'A', 'V', 'E', 'P', 'L'};
static_assert(std::endian::native == std::endian::little, "the header is read in place");

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t headerChecksum;
  uint64_t features;
  uint64_t payloadBytes;
  uint32_t payloadChecksum;
  uint32_t reserved;
};
static_assert(sizeof(Header) == planHeaderBytes);

uint32_t crc(const void *data, size_t bytes, uint32_t seed = 0) {
  uLong value = seed;
  const auto *at = static_cast<const Bytef *>(data);
  for (; bytes > 0;) { // zlib takes 32-bit lengths
    uInt part = static_cast<uInt>(std::min<size_t>(bytes, 1u << 30));
    value = crc32(value, at, part);
    at += part;
    bytes -= part;
  }
  return static_cast<uint32_t>(value);
}

uint32_t headerChecksum(const Header &header) {
  uint32_t value = crc(&header.features, sizeof(Header) - 16);
  return crc(&header, 12, value);
}

uint64_t requiredFeatures(const plan::Plan &plan) {
  uint64_t features = 0;
  if (plan.programs_size() > 1) features |= FeatureStages;
  for (const plan::Program &program : plan.programs())
    for (const plan::Fragment &fragment : program.fragments())
      for (const plan::Command &command : fragment.commands())
        if (command.has_transfer()) features |= FeatureStages;
  return features;
}

constexpr size_t trailerBytes = publicKeyBytes + signatureBytes;

std::string notAPlan(std::string_view bytes) {
  const bool mayBeOnnx = bytes.size() > 1 && bytes[0] == 8 && bytes[1] > 0 && bytes[1] < 32; // ModelProto.ir_version
  const std::string kind = mayBeOnnx ? "an ONNX model" : fileKind(bytes);
  return fmt::format("not a plan{} (it does not begin with CLEAVEPL); plans are written by `cleave compile -o X.plan`",
                     kind.empty() ? "" : " but " + kind);
}

} // namespace

Result<std::string> encodePlan(const plan::Plan &plan) {
  size_t bytes = plan.ByteSizeLong();
  if (bytes >= (size_t(1) << 31))
    return inputError(
        fmt::format("the plan has {} bytes; a plan file holds less than 2 GiB: keep weights out of it (large "
                    "constants should be parameters)",
                    bytes));
  if (auto fault = wrongTextIn(plan))
    return inputError(fmt::format("a plan holds UTF-8 text, and {}: rename it", *fault));
  std::string out(planHeaderBytes, '\0');
  if (!plan.AppendToString(&out)) return inputError("the plan cannot be serialized");
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.version = planFormatVersion;
  header.features = requiredFeatures(plan);
  header.payloadBytes = out.size() - planHeaderBytes;
  header.payloadChecksum = crc(out.data() + planHeaderBytes, header.payloadBytes);
  header.headerChecksum = headerChecksum(header);
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

Result<plan::Plan> decodePlan(std::string_view bytes, const std::string &name) {
  auto refuse = [&](const std::string &why) { return inputError(name + ": " + why); };
  if (bytes.empty()) return refuse("empty file, not a plan");
  if (bytes.substr(0, sizeof magic) != std::string_view(magic, sizeof magic).substr(0, bytes.size()))
    return refuse(notAPlan(bytes));
  if (bytes.size() < planHeaderBytes)
    return refuse(fmt::format("truncated: {} bytes, and the header alone has {}", bytes.size(), planHeaderBytes));
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.version > planFormatVersion) // before the checksum: a newer format may lay out its header otherwise
    return refuse(
        fmt::format("plan format {} is newer than this runtime's {}: use a newer cleave, or compile the plan again",
                    header.version, planFormatVersion));
  if (header.headerChecksum != headerChecksum(header)) return refuse("corrupt: the header's checksum does not match");
  if (header.version == 0) return refuse("corrupt: plan format 0 does not exist");
  if (uint64_t unknown = header.features & ~knownPlanFeatures)
    return refuse(
        fmt::format("it needs features this runtime does not have (bits {:#x}): use a newer cleave", unknown));
  const uint64_t trailer = header.features & FeatureSigned ? trailerBytes : 0;
  uint64_t payload = bytes.size() - planHeaderBytes;
  if (payload < trailer) return refuse("truncated: its signature is not whole");
  payload -= trailer;
  if (header.payloadBytes > payload)
    return refuse(fmt::format("truncated: {} of {} bytes are there", bytes.size(),
                              header.payloadBytes + planHeaderBytes + trailer));
  if (header.payloadBytes < payload)
    return refuse(fmt::format("corrupt: {} bytes follow the plan's end", payload - header.payloadBytes));
  const char *body = bytes.data() + planHeaderBytes;
  if (crc(body, payload) != header.payloadChecksum) return refuse("corrupt: the checksum does not match its contents");
  if (payload >= (uint64_t(1) << 31)) return refuse("a plan has less than 2 GiB");
  plan::Plan plan;
  if (!plan.ParseFromArray(body, static_cast<int>(payload))) return refuse("corrupt: not a valid plan message");
  if (auto message = unknownFieldIn(plan))
    return refuse(
        fmt::format("a newer cleave wrote it: {} has fields that this runtime does not know; use that cleave, "
                    "or compile the plan again",
                    *message));
  return plan;
}

void signPlan(std::string &encoded, const SecretKey &key) {
  const Signature made = sign(identityOf(encoded).digest, key);
  Header header;
  std::memcpy(&header, encoded.data(), sizeof header);
  header.features |= FeatureSigned;
  header.headerChecksum = headerChecksum(header);
  std::memcpy(encoded.data(), &header, sizeof header);
  encoded += made.key + made.bytes;
}

PlanIdentity identityOf(std::string_view bytes) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const size_t payload = header.payloadBytes;
  PlanIdentity known{Digest().add(bytes.substr(planHeaderBytes, payload)).finish(), {}};
  if (header.features & FeatureSigned)
    known.signature = Signature{std::string(bytes.substr(planHeaderBytes + payload, publicKeyBytes)),
                                std::string(bytes.substr(planHeaderBytes + payload + publicKeyBytes, signatureBytes))};
  return known;
}

Status writePlanFile(const plan::Plan &plan, const std::string &path) {
  CLEAVE_ASSIGN_OR_RETURN(std::string bytes, encodePlan(plan));
  return writeFileAtomically(bytes, path);
}

Result<plan::Plan> readPlanFile(const std::string &path) {
  CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(path));
  if (file->bytes().empty()) return inputError(path + ": empty file, not a plan");
  return decodePlan(file->bytes(), path);
}

} // namespace cleave::runtime
