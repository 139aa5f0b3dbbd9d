#include "compiler/cluster/cluster.h"
#include "compiler/cluster/cluster_fields.h"
#include "compiler/cluster/device_presets.h"
#include "runtime/base/names/yaml_end.h"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <sstream>
#include <thread>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

namespace cleave::planner {
namespace {

// A number that was meant otherwise; and the ways to lay meshes over devices grow with it.
constexpr int64_t mostDevices = int64_t(1) << 24;

Result<Cluster> parsePreset(const std::string &text) {
  const size_t colon = text.find(':'), comma = std::min(text.find(','), text.size());
  const std::string word = text.substr(0, colon), counts = text.substr(colon + 1, comma - std::min(comma, colon + 1)),
                    more = text.substr(comma);
  auto wrong = [&](const std::string &what) {
    return inputError(fmt::format("cluster '{}': {}; {}", text, what, presetSyntax()));
  };
  auto count = [](const std::string &digits) -> int64_t {
    if (digits.empty() || digits.size() > 8 || digits.find_first_not_of("0123456789") != std::string::npos) return 0;
    return std::stoll(digits);
  };
  const Result<std::string> meant = presetMeant(word);
  if (!meant) return wrong(meant.status().message());
  const std::string kind = *meant;
  const size_t times = counts.find('x');
  const bool twoCounts = times != std::string::npos;
  const int64_t devices = count(counts.substr(0, times)), nodes = twoCounts ? count(counts.substr(times + 1)) : 1;
  if (nodes < 1 || devices < 1) return wrong("a count of devices is missing or not a number");
  if (nodes > mostDevices / devices) return wrong(fmt::format("more than {} devices", mostDevices));
  const std::string flag = ",software=", software = more.starts_with(flag) ? more.substr(flag.size()) : "cleave";
  if (!more.empty() && !more.starts_with(flag))
    return wrong("only ',software=PROFILE' can follow the number of devices");
  if (Status known = checkSoftware(kind, software); !known) return wrong(known.message());
  Cluster cluster = standardCluster(kind, software, nodes, devices);
  cluster.name = kind + text.substr(colon, comma - colon);
  if (kind == "cpu") {
    if (twoCounts) return wrong("cpu takes one count");
    const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
    cluster.device = cpuDevice(devices, cores, double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGE_SIZE)));
  }
  fillIn(cluster);
  return cluster;
}

// Checks that no table states: keys that are needed, and values that do not go together. `at`: where a path leads to.
Status checkFile(const ReadKeys &keys, const Cluster &cluster, const auto &at) {
  const bool isOwn = !isPreset(cluster.device.kind), isUnknown = isOwn && !cluster.device.isCpu();
  for (const Field<Cluster> &field : clusterFields()) {
    const bool isNeeded = field.needed == Needed::Always || (field.needed == Needed::OfOwnKinds && isOwn) ||
                          (field.needed == Needed::InNodes && isUnknown && cluster.devicesPerNode > 1) ||
                          (field.needed == Needed::BetweenNodes && isUnknown && cluster.nodes > 1);
    if (isNeeded && std::ranges::find(keys.told, field.path) == keys.told.end())
      return errorAt(at(field.path), keys.file,
                     fmt::format("the cluster lacks '{}'{}", field.path,
                                 field.needed != Needed::Always && isUnknown
                                     ? fmt::format("; kind '{}' is none of {}, whose figures are known",
                                                   cluster.device.kind, fmt::join(presetKinds(), ", "))
                                     : ""));
  }
  if (cluster.nodes > mostDevices / cluster.devicesPerNode)
    return errorAt(at("devices_per_node"), keys.file, fmt::format("the cluster has more than {} devices", mostDevices));
  if (Status known = checkSoftware(cluster.device.kind, cluster.software); !known)
    return errorAt(at("software"), keys.file, known.message());
  if (cluster.device.fusedRow > 0 && cluster.device.fusedRow < 1)
    return errorAt(at("device.fused_row"), keys.file, "'fused_row' of device must be 0 or at least 1");
  for (size_t i = 1; i < cluster.device.caches.size(); ++i)
    if (cluster.device.caches[i].bytes <= cluster.device.caches[i - 1].bytes)
      return errorAt(at("device.caches"), keys.file, "'caches' of device must go from small to large");
  return Status::ok();
}

// The levels of a network whose link is known. A latency that is not told is that of the level below.
Status finishLevels(Cluster &cluster, const std::string &file, const YAML::Node &node) {
  auto wrong = [&](const char *key, const std::string &what) {
    return errorAt(node, file, fmt::format("'{}' of levels: {}", key, what));
  };
  if (cluster.levels.size() > mostNetworkLevels)
    return wrong("nodes", fmt::format("there are at most {} levels", mostNetworkLevels));
  NetworkLevel below{1, cluster.network.bandwidth, cluster.network.latency};
  for (NetworkLevel &level : cluster.levels) {
    if (level.latency < 0) level.latency = below.latency;
    if (level.nodes == below.nodes || level.nodes % below.nodes != 0)
      return wrong("nodes", fmt::format("a switch has the nodes of several below it, a multiple of {}", below.nodes));
    if (level.bandwidth > below.bandwidth)
      return wrong("gbps", "a device's share cannot be more than that of the level below");
    if (level.latency < below.latency) return wrong("latency_us", "it cannot be less than that of the level below");
    below = level;
  }
  return Status::ok();
}

} // namespace

double Device::cacheBytes() const {
  double bytes = 0;
  for (const CacheLevel &level : caches)
    if (level.bandwidth > 1.25 * memoryBandwidth) bytes = level.bytes;
  return bytes;
}

double Device::secondsPerByte(double distance, double age) const {
  const double memory = 1 / (memoryBandwidth * bandwidthEfficiency);
  if (age > 0 && cacheHoldSeconds > 0) {
    const double near = secondsPerByte(distance);
    return near + std::max(0.0, memory - near) * -std::expm1(-age / cacheHoldSeconds);
  }
  for (size_t i = 0; i < caches.size(); ++i) {
    if (distance > caches[i].bytes) continue;
    const double here = 1 / caches[i].bandwidth;
    if (i == 0) return here;
    const double before = 1 / caches[i - 1].bandwidth;
    return before +
           (here - before) * std::log(distance / caches[i - 1].bytes) / std::log(caches[i].bytes / caches[i - 1].bytes);
  }
  return memory;
}

double Device::meanSecondsPerByte(double farthest, double oldest) const {
  constexpr int points = 16;
  double sum = 0;
  for (int i = 0; i < points; ++i) {
    const double part = (i + 0.5) / points;
    sum += secondsPerByte(part * farthest, part * oldest);
  }
  return sum / points;
}

double Device::flopsAt(const std::string &precision) const {
  auto found = flops.find(precision);
  if (found == flops.end() && precision == "fp8") found = flops.find("bf16");
  if (found == flops.end()) found = flops.find("fp32");
  return found == flops.end() ? 0 : found->second;
}

Result<Cluster> parseClusterYaml(const std::string &text, const std::string &file) {
  YAML::Node root;
  try {
    root = YAML::Load(text);
    if (auto line = names::lineBehindFirst(text))
      return inputError(fmt::format("{}:{}: more stands behind the end of the cluster", file, *line + 1));
  } catch (const YAML::Exception &failure) {
    return inputError(fmt::format("{}:{}: not YAML: {}", file, failure.mark.line + 1, failure.msg));
  }
  // Where a path leads to, or as far on its way as the file goes.
  auto at = [&](std::string_view path) {
    YAML::Node node = root;
    while (node.IsMap() && !path.empty()) {
      const size_t dot = std::min(path.find('.'), path.size());
      const YAML::Node inside = std::as_const(node)[std::string(path.substr(0, dot))];
      if (!inside) break;
      node.reset(inside);
      path.remove_prefix(std::min(dot + 1, path.size()));
    }
    return node;
  };
  ReadKeys keys{file, {}};
  Cluster told;
  CLEAVE_RETURN_IF_ERROR(readFields(root, keys, told));
  CLEAVE_RETURN_IF_ERROR(checkFile(keys, told, at));
  // Once more, over what is known of the kind.
  Cluster cluster = standardCluster(told.device.kind, told.software, told.nodes, told.devicesPerNode);
  cluster.name = file;
  CLEAVE_RETURN_IF_ERROR(readFields(root, keys, cluster));
  CLEAVE_RETURN_IF_ERROR(finishLevels(cluster, file, at("links.network.levels")));
  fillIn(cluster);
  return cluster;
}

Result<Cluster> parseCluster(const std::string &presetOrPath) {
  std::ifstream stream(presetOrPath);
  if (stream) {
    if (std::filesystem::is_directory(presetOrPath))
      return inputError(fmt::format("cluster '{}': is a folder; give the file inside it", presetOrPath));
    std::stringstream text;
    text << stream.rdbuf();
    return parseClusterYaml(text.str(), presetOrPath);
  }
  if (presetOrPath.find(':') != std::string::npos) return parsePreset(presetOrPath);
  if (const Result<std::string> kind = presetMeant(presetOrPath); kind)
    return inputError(fmt::format("cluster '{}': how many devices? '{}:8' is one node of 8; {}", presetOrPath, *kind,
                                  presetSyntax()));
  return inputError(fmt::format("cluster '{}': no such file, and not a preset; {}", presetOrPath, presetSyntax()));
}

std::string Cluster::yaml() const { return writeFields(*this); }

} // namespace cleave::planner
