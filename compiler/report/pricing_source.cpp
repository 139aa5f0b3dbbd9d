#include "compiler/report/pricing_source.h"
#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace cleave::report {
namespace {

constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
// Between the cluster's text and the problem's.
constexpr char separator = '\0';

// Base64 (RFC 4648), without padding.
std::string encode(const std::string &bytes) {
  std::string text;
  uint32_t pending = 0;
  int bits = 0;
  for (unsigned char byte : bytes) {
    pending = pending << 8 | byte;
    for (bits += 8; bits >= 6; bits -= 6) text += digits[pending >> (bits - 6) & 63];
  }
  if (bits > 0) text += digits[pending << (6 - bits) & 63];
  return text;
}

bool decode(const std::string &text, std::string &bytes) {
  uint32_t pending = 0;
  int bits = 0;
  for (char digit : text) {
    const char *found = std::char_traits<char>::find(digits, 64, digit);
    if (!found) return false;
    pending = pending << 6 | uint32_t(found - digits);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += char(pending >> bits & 255);
  }
  return true;
}

} // namespace

std::string packSource(const planner::Problem &problem, const planner::Cluster &cluster) {
  std::string plain = cluster.yaml() + separator + problem.text(), packed;
  {
    google::protobuf::io::StringOutputStream file(&packed);
    google::protobuf::io::GzipOutputStream zip(&file);
    void *buffer = nullptr;
    int size = 0;
    for (size_t written = 0; written < plain.size() && zip.Next(&buffer, &size);) {
      size_t count = std::min(size_t(size), plain.size() - written);
      plain.copy(static_cast<char *>(buffer), count, written);
      written += count;
      if (count < size_t(size)) zip.BackUp(int(size_t(size) - count));
    }
    zip.Close();
  }
  return encode(packed);
}

Result<PricingSource> unpackSource(const std::string &packed) {
  const Status damaged = inputError("the report does not say what it was made from: write it again with this version");
  std::string bytes, plain;
  if (packed.empty() || !decode(packed, bytes)) return damaged;
  google::protobuf::io::ArrayInputStream file(bytes.data(), int(bytes.size()));
  google::protobuf::io::GzipInputStream zip(&file);
  const void *data = nullptr;
  for (int size = 0; zip.Next(&data, &size);) plain.append(static_cast<const char *>(data), size_t(size));
  size_t end = plain.find(separator);
  if (end == std::string::npos) return damaged;
  Result<planner::Cluster> cluster = planner::parseClusterYaml(plain.substr(0, end), "the report's cluster");
  if (!cluster) return cluster.status();
  Result<planner::Problem> problem = planner::Problem::parse(plain.substr(end + 1), "the report's problem");
  if (!problem) return problem.status();
  return PricingSource{std::move(*problem), std::move(*cluster)};
}

planner::DisplayNames displayNames(const std::string &packed) {
  Result<PricingSource> source = unpackSource(packed);
  return planner::DisplayNames(source ? source->problem : planner::Problem());
}

} // namespace cleave::report
