#include "runtime/train/event_file.h"
#include "runtime/train/metric_values.h"
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <unistd.h>

namespace cleave::runtime {
namespace {

// Fields of tensorflow.Event, Summary, Summary.Value and SessionLog.
namespace field {
constexpr uint32_t wallTime = 1, step = 2, fileVersion = 3, summary = 5, sessionLog = 7; // Event
constexpr uint32_t value = 1, tag = 1, simpleValue = 2, status = 1;
constexpr uint64_t statusStart = 1;
} // namespace field

class ProtoWriter {
public:
  ProtoWriter &number(uint32_t field, uint64_t value) { return key(field, 0), stream.WriteVarint64(value), *this; }
  ProtoWriter &real(uint32_t field, double value) {
    return key(field, 1), stream.WriteLittleEndian64(std::bit_cast<uint64_t>(value)), *this;
  }
  ProtoWriter &real(uint32_t field, float value) {
    return key(field, 5), stream.WriteLittleEndian32(std::bit_cast<uint32_t>(value)), *this;
  }
  ProtoWriter &bytes(uint32_t field, const std::string &value) {
    return key(field, 2), stream.WriteVarint64(value.size()), stream.WriteString(value), *this;
  }
  std::string take() {
    stream.Trim();
    return std::move(text);
  }

private:
  void key(uint32_t field, uint32_t wireType) { stream.WriteTag(field << 3 | wireType); }
  std::string text;
  google::protobuf::io::StringOutputStream sink{&text};
  google::protobuf::io::CodedOutputStream stream{&sink};
};

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; }

std::string littleEndian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += char(value >> (8 * i));
  return out;
}

} // namespace

uint32_t crc32c(const void *data, size_t bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t crc = byte;
      for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
      made[byte] = crc;
    }
    return made;
  }();
  uint32_t crc = ~0u;
  for (const auto *at = static_cast<const uint8_t *>(data), *end = at + bytes; at != end; ++at)
    crc = table[(crc ^ *at) & 0xff] ^ crc >> 8;
  return ~crc;
}

EventFile::~EventFile() { close(); }

void EventFile::close() {
  if (file) std::fclose(file);
  file = nullptr;
}

Status EventFile::open(const std::string &folder, int64_t stepsDone) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  path = fmt::format("{}/events.out.tfevents.{:.0f}.{}.{}", folder, now(), host, ::getpid());
  file = std::fopen(path.c_str(), "wb");
  if (!file) return inputError(fmt::format("cannot write events to {}: {}", path, std::strerror(errno)));
  CLEAVE_RETURN_IF_ERROR(
      record(ProtoWriter().real(field::wallTime, now()).bytes(field::fileVersion, "brain.Event:2").take()));
  // The session that begins here takes the place of one that went further.
  return record(ProtoWriter()
                    .real(field::wallTime, now())
                    .number(field::step, uint64_t(stepsDone + 1))
                    .bytes(field::sessionLog, ProtoWriter().number(field::status, field::statusStart).take())
                    .take());
}

Status EventFile::write(const StepMetrics &metrics) {
  if (!file) return Status::ok();
  std::string summary;
  for (const auto &[name, meaning, value] : metricValues(metrics)) {
    if (name == "step" || !value.is_number() || !std::isfinite(value.get<double>())) continue;
    const std::string one = ProtoWriter().bytes(field::tag, name).real(field::simpleValue, value.get<float>()).take();
    summary += ProtoWriter().bytes(field::value, one).take();
  }
  return record(ProtoWriter()
                    .real(field::wallTime, now())
                    .number(field::step, uint64_t(metrics.step))
                    .bytes(field::summary, summary)
                    .take());
}

Status EventFile::record(const std::string &event) {
  const std::string length = littleEndian(event.size(), 8);
  const std::string whole = length + littleEndian(masked(crc32c(length.data(), length.size())), 4) + event +
                            littleEndian(masked(crc32c(event.data(), event.size())), 4);
  if (std::fwrite(whole.data(), 1, whole.size(), file) == whole.size() && std::fflush(file) == 0) return Status::ok();
  return runError(fmt::format("cannot write events to {}: {}", path, std::strerror(errno)));
}

} // namespace cleave::runtime
