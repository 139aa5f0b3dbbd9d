#include "compiler/cluster/cluster.h"
#include "compiler/cluster/device_presets.h"
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

constexpr double mib = 1024.0 * 1024;

// Reads a mapping strictly: every key must be asked for, every value have its type.
class Reader {
public:
  Reader(const YAML::Node &node, std::string file, std::string where)
      : node(node), file(std::move(file)), where(std::move(where)) {}

  Status error(const YAML::Node &at, const std::string &message) const {
    YAML::Mark mark = at.Mark();
    if (mark.is_null()) mark = node.Mark();
    return inputError(fmt::format("{}:{}: {}", file, mark.line + 1, message));
  }
  Status expectKeys(const std::vector<std::string> &allowed) const {
    if (!node.IsMap()) return error(node, fmt::format("{} must be a mapping of keys to values", where));
    std::vector<std::string> seen;
    for (const auto &entry : node) {
      auto key = entry.first.as<std::string>("");
      if (std::find(allowed.begin(), allowed.end(), key) == allowed.end())
        return error(entry.first,
                     fmt::format("unknown key '{}' in {}; the keys are {}", key, where, fmt::join(allowed, ", ")));
      if (std::find(seen.begin(), seen.end(), key) != seen.end())
        return error(entry.first, fmt::format("key '{}' appears twice in {}", key, where));
      seen.push_back(key);
    }
    return Status::ok();
  }
  // A finite number, at least `least`, (times scale) if the key is there.
  Status number(const char *key, double scale, double least, double &value, bool required) const {
    YAML::Node entry = node[key];
    if (!entry) return required ? error(node, fmt::format("{} lacks '{}'", where, key)) : Status::ok();
    double parsed = 0;
    if (!entry.IsScalar() || !YAML::convert<double>::decode(entry, parsed) || !std::isfinite(parsed))
      return error(entry, fmt::format("'{}' of {} must be a number", key, where));
    if (parsed < least || (least == 0 && parsed < 0))
      return error(entry, fmt::format("'{}' of {} is {}; it must be at least {}", key, where, parsed, least));
    value = parsed * scale;
    return Status::ok();
  }
  Status integer(const char *key, int64_t &value) const {
    YAML::Node entry = node[key];
    if (!entry) return error(node, fmt::format("{} lacks '{}'", where, key));
    int64_t parsed = 0;
    if (!entry.IsScalar() || !YAML::convert<int64_t>::decode(entry, parsed) || parsed < 1)
      return error(entry, fmt::format("'{}' of {} must be a whole number, 1 or more", key, where));
    if (parsed > (int64_t(1) << 24)) return error(entry, fmt::format("'{}' of {} is too large", key, where));
    value = parsed;
    return Status::ok();
  }
  YAML::Node child(const char *key) const { return node[key]; }

private:
  YAML::Node node;
  std::string file, where;
};

Status readCaches(const YAML::Node &levels, const Reader &device, const std::string &file,
                  std::vector<CacheLevel> &caches) {
  if (!levels) return Status::ok();
  if (!levels.IsSequence())
    return device.error(levels, "'caches' of device is a list, such as [{mib: 1, gbps: 160}, {mib: 16, gbps: 60}]");
  for (const YAML::Node &entry : levels) {
    Reader reader(entry, file, "caches");
    CacheLevel level;
    CLEAVE_RETURN_IF_ERROR(reader.expectKeys({"mib", "gbps"}));
    CLEAVE_RETURN_IF_ERROR(reader.number("mib", mib, 1e-6, level.bytes, true));
    CLEAVE_RETURN_IF_ERROR(reader.number("gbps", 1e9, 1e-6, level.bandwidth, true));
    if (!caches.empty() && level.bytes <= caches.back().bytes)
      return reader.error(entry, "'caches' of device must go from small to large");
    caches.push_back(level);
  }
  return Status::ok();
}

Status readDevice(const YAML::Node &node, const std::string &file, Device &device) {
  Reader reader(node, file, "device");
  CLEAVE_RETURN_IF_ERROR(reader.expectKeys({"kind",
                                            "cpu",
                                            "memory_gib",
                                            "tflops",
                                            "memory_gbps",
                                            "launch_us",
                                            "dispatch_us",
                                            "overlap",
                                            "compute_efficiency",
                                            "bandwidth_efficiency",
                                            "solo_launch_us",
                                            "half_rate_dimension",
                                            "kernel_traffic",
                                            "score_traffic",
                                            "update_traffic",
                                            "gradient_overlap",
                                            "tensor_overlap",
                                            "fused_attention",
                                            "caches",
                                            "cache_hold_ms",
                                            "core_share",
                                            "batched_efficiency",
                                            "batch_start_ns",
                                            "expert_start_us",
                                            "product_start_us",
                                            "product_read_ps",
                                            "product_traffic",
                                            "product_write_traffic",
                                            "convolution",
                                            "element_ps"}));
  YAML::Node kind = reader.child("kind");
  if (!kind || !kind.IsScalar()) return reader.error(kind ? kind : node, "device needs a 'kind', such as a100-80g");
  device.kind = kind.as<std::string>();
  std::optional<Device> preset = devicePreset(device.kind);
  if (preset) {
    device = *preset;
    device.tensorOverlap = device.gradientOverlap = device.soloLaunchSeconds =
        -1; // they follow from what the file says of others
  }
  if (YAML::Node cpu = reader.child("cpu")) {
    if (!cpu.IsScalar() || cpu.as<std::string>().empty())
      return reader.error(cpu, "'cpu' of device is a name, such as native, x86-64-v3 or znver4");
    device.cpu = cpu.as<std::string>();
  }
  bool required = !preset; // a known kind may leave out what its data sheet says
  CLEAVE_RETURN_IF_ERROR(reader.number("memory_gib", gib, 1e-6, device.memoryBytes, required));
  CLEAVE_RETURN_IF_ERROR(reader.number("memory_gbps", 1e9, 1e-6, device.memoryBandwidth, required));
  CLEAVE_RETURN_IF_ERROR(reader.number("launch_us", 1e-6, 0, device.launchSeconds, false));
  CLEAVE_RETURN_IF_ERROR(reader.number("solo_launch_us", 1e-6, 0, device.soloLaunchSeconds, false));
  CLEAVE_RETURN_IF_ERROR(readCaches(reader.child("caches"), reader, file, device.caches));
  CLEAVE_RETURN_IF_ERROR(reader.number("cache_hold_ms", 1e-3, 0, device.cacheHoldSeconds, false));
  CLEAVE_RETURN_IF_ERROR(reader.number("dispatch_us", 1e-6, 0, device.dispatchSeconds, false));
  CLEAVE_RETURN_IF_ERROR(reader.number("half_rate_dimension", 1, 0, device.halfRateDimension, false));
  CLEAVE_RETURN_IF_ERROR(reader.number("kernel_traffic", 1, 1e-3, device.kernelTraffic, false));
  CLEAVE_RETURN_IF_ERROR(reader.number("batch_start_ns", 1e-9, 0, device.batchStartSeconds, false));
  CLEAVE_RETURN_IF_ERROR(reader.number("expert_start_us", 1e-6, 0, device.expertStartSeconds, false));
  CLEAVE_RETURN_IF_ERROR(reader.number("product_start_us", 1e-6, 0, device.productStartSeconds, false));
  CLEAVE_RETURN_IF_ERROR(reader.number("product_read_ps", 1e-12, 0, device.productReadSeconds, false));
  CLEAVE_RETURN_IF_ERROR(reader.number("product_traffic", 1, 1e-3, device.productTraffic, false));
  CLEAVE_RETURN_IF_ERROR(reader.number("product_write_traffic", 1, 0, device.productWriteTraffic, false));
  if (YAML::Node law = reader.child("convolution")) {
    Reader lawReader(law, file, "convolution");
    ConvolutionLaw &convolutions = device.convolutions;
    CLEAVE_RETURN_IF_ERROR(lawReader.expectKeys({"block", "efficiency", "start_us", "order_ps"}));
    CLEAVE_RETURN_IF_ERROR(lawReader.number("block", 1, 1, convolutions.block, true));
    CLEAVE_RETURN_IF_ERROR(lawReader.number("efficiency", 1, 1e-3, convolutions.efficiency, true));
    CLEAVE_RETURN_IF_ERROR(lawReader.number("start_us", 1e-6, 0, convolutions.startSeconds, false));
    CLEAVE_RETURN_IF_ERROR(lawReader.number("order_ps", 1e-12, 0, convolutions.orderSeconds, false));
  }
  if (YAML::Node works = reader.child("element_ps")) {
    Reader workReader(works, file, "element_ps");
    CLEAVE_RETURN_IF_ERROR(workReader.expectKeys({elementWorkNames + 1, elementWorkNames + elementWorks}));
    for (size_t work = 1; work < elementWorks; ++work)
      CLEAVE_RETURN_IF_ERROR(workReader.number(elementWorkNames[work], 1e-12, 0, device.elementSeconds[work], false));
  }
  if (YAML::Node fused = reader.child("fused_attention");
      fused && !YAML::convert<bool>::decode(fused, device.fusedAttention))
    return reader.error(fused, "'fused_attention' of device must be true or false");
  CLEAVE_RETURN_IF_ERROR(reader.number("score_traffic", 1, 1e-3, device.scoreTraffic, false));
  CLEAVE_RETURN_IF_ERROR(reader.number("update_traffic", 1, 1e-3, device.updateTraffic, false));
  for (auto [key, value] : {std::pair{"overlap", &device.overlap},
                            {"gradient_overlap", &device.gradientOverlap},
                            {"tensor_overlap", &device.tensorOverlap},
                            {"compute_efficiency", &device.computeEfficiency},
                            {"core_share", &device.coreShare},
                            {"batched_efficiency", &device.batchedEfficiency},
                            {"bandwidth_efficiency", &device.bandwidthEfficiency}}) {
    CLEAVE_RETURN_IF_ERROR(reader.number(key, 1, 0, *value, false));
    if (*value > 1) return reader.error(reader.child(key), fmt::format("'{}' of device is a part of 1", key));
  }
  for (auto [key, value] : {std::pair{"core_share", device.coreShare},
                            {"compute_efficiency", device.computeEfficiency},
                            {"bandwidth_efficiency", device.bandwidthEfficiency},
                            {"batched_efficiency", device.batchedEfficiency}})
    if (value == 0 && reader.child(key))
      return reader.error(reader.child(key), fmt::format("'{}' of device must not be 0", key));
  YAML::Node rates = reader.child("tflops");
  if (!rates && required) return reader.error(node, "device lacks 'tflops', such as {fp32: 19.5, bf16: 312}");
  if (rates) {
    Reader rateReader(rates, file, "tflops");
    CLEAVE_RETURN_IF_ERROR(rateReader.expectKeys({"fp64", "fp32", "tf32", "bf16", "fp16", "fp8"}));
    for (const auto &entry : rates) {
      auto precision = entry.first.as<std::string>();
      CLEAVE_RETURN_IF_ERROR(rateReader.number(precision.c_str(), 1e12, 1e-9, device.flops[precision], true));
    }
    if (!device.flops.count("fp32")) return rateReader.error(rates, "tflops needs at least 'fp32'");
  }
  fillDefaults(device);
  return Status::ok();
}

// `sharedBy`: devices that share one; null of links that nobody shares.
Status readLink(const YAML::Node &links, const char *key, const std::string &file, Link &link,
                int64_t *sharedBy = nullptr) {
  YAML::Node node = links[key];
  if (!node) return Status::ok();
  Reader reader(node, file, fmt::format("links.{}", key));
  std::vector<std::string> keys = {"gbps", "latency_us", "topology", "cache_read_gbps"};
  if (sharedBy) keys.insert(keys.end(), {"shared_by", "levels"});
  CLEAVE_RETURN_IF_ERROR(reader.expectKeys(keys));
  CLEAVE_RETURN_IF_ERROR(reader.number("gbps", 1e9 / 8, 1e-6, link.bandwidth, true));
  CLEAVE_RETURN_IF_ERROR(reader.number("latency_us", 1e-6, 0, link.latency, false));
  CLEAVE_RETURN_IF_ERROR(reader.number("cache_read_gbps", 1e9 / 8, 0, link.cacheBandwidth, false));
  if (YAML::Node topology = reader.child("topology")) {
    std::string kind = topology.IsScalar() ? topology.as<std::string>() : "";
    if (kind != "switch" && kind != "memory")
      return reader.error(topology, "'topology' is 'switch' or 'memory' (devices of one process)");
    link.topology = kind == "memory" ? Link::Topology::Memory : Link::Topology::Switch;
  }
  return sharedBy && reader.child("shared_by") ? reader.integer("shared_by", *sharedBy) : Status::ok();
}

// Of the network, which has been read.
Status readLevels(const YAML::Node &network, const std::string &file, Cluster &cluster) {
  YAML::Node levels = network ? network["levels"] : YAML::Node();
  if (!levels || levels.IsNull()) return Status::ok();
  Reader above(network, file, "links.network");
  if (!levels.IsSequence() || levels.size() > mostNetworkLevels)
    return above.error(levels,
                       fmt::format("'levels' of links.network is a list of at most {}, from the lowest switches "
                                   "up, such as [{{nodes: 16, gbps: 66}}]",
                                   mostNetworkLevels));
  NetworkLevel below{1, cluster.network.bandwidth, cluster.network.latency};
  for (const YAML::Node &entry : levels) {
    Reader reader(entry, file, "levels");
    CLEAVE_RETURN_IF_ERROR(reader.expectKeys({"nodes", "gbps", "latency_us"}));
    NetworkLevel level = below;
    CLEAVE_RETURN_IF_ERROR(reader.integer("nodes", level.nodes));
    CLEAVE_RETURN_IF_ERROR(reader.number("gbps", 1e9 / 8, 1e-6, level.bandwidth, true));
    CLEAVE_RETURN_IF_ERROR(reader.number("latency_us", 1e-6, 0, level.latency, false));
    auto wrong = [&](const char *key, const std::string &what) {
      return reader.error(entry[key], fmt::format("'{}' of levels: {}", key, what));
    };
    if (level.nodes == below.nodes || level.nodes % below.nodes != 0)
      return wrong("nodes", fmt::format("a switch has the nodes of several below it, a multiple of {}", below.nodes));
    if (level.bandwidth > below.bandwidth)
      return wrong("gbps", "a device's share cannot be more than that of the level below");
    if (level.latency < below.latency) return wrong("latency_us", "it cannot be less than that of the level below");
    cluster.levels.push_back(below = level);
  }
  return Status::ok();
}

Status readHostLink(const YAML::Node &links, const std::string &file, Cluster &cluster) {
  YAML::Node node = links["host"];
  if (!node) return Status::ok();
  Reader reader(node, file, "links.host");
  CLEAVE_RETURN_IF_ERROR(reader.expectKeys({"gbps", "latency_us", "shared_by"}));
  CLEAVE_RETURN_IF_ERROR(reader.number("gbps", 1e9 / 8, 1e-6, cluster.host.bandwidth, true));
  CLEAVE_RETURN_IF_ERROR(reader.number("latency_us", 1e-6, 0, cluster.host.latency, false));
  cluster.hostSharedBy = 1;
  return reader.child("shared_by") ? reader.integer("shared_by", cluster.hostSharedBy) : Status::ok();
}

void setCards(Cluster &cluster) {
  cluster.networkSharedBy = cardSharedBy(cluster.device.kind, cluster.network, cluster.devicesPerNode);
}

// Those of the device's kind.
void setLinks(Cluster &cluster) {
  if (cluster.device.isCpu()) {
    cluster.node = cluster.network = cpuLink(cluster.devicesPerNode);
    cluster.host = cpuHostLink(cluster.devicesPerNode);
  } else {
    linkPreset(cluster.device.kind, cluster.node, cluster.network);
    hostPreset(cluster.device.kind, cluster);
    setCards(cluster);
  }
}

Result<Cluster> parsePreset(const std::string &text) {
  size_t colon = text.find(':');
  std::string kind = text.substr(0, colon), counts = text.substr(colon + 1);
  auto wrong = [&](const std::string &what) {
    return inputError(fmt::format(
        "cluster '{}': {}; presets are cpu:DEVICES and KIND:DEVICESxNODES (8x16 is 16 nodes of 8) with KIND one of {}",
        text, what, fmt::join(presetKinds(), ", ")));
  };
  auto count = [](const std::string &digits) -> int64_t {
    if (digits.empty() || digits.size() > 8 || digits.find_first_not_of("0123456789") != std::string::npos) return 0;
    return std::stoll(digits);
  };
  Cluster cluster;
  cluster.name = text;
  size_t times = counts.find('x');
  bool twoCounts = times != std::string::npos;
  cluster.devicesPerNode = count(counts.substr(0, times));
  cluster.nodes = twoCounts ? count(counts.substr(times + 1)) : 1;
  if (cluster.nodes < 1 || cluster.devicesPerNode < 1) return wrong("a count of devices is missing or not a number");
  if (cluster.nodes > mostDevices / cluster.devicesPerNode)
    return wrong(fmt::format("more than {} devices", mostDevices));
  if (kind == "cpu") {
    if (twoCounts) return wrong("cpu takes one count");
    int64_t cores = std::max(1u, std::thread::hardware_concurrency());
    double memory = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGE_SIZE));
    cluster.device = cpuDevice(cluster.devicesPerNode, cores, memory);
    setLinks(cluster);
    return cluster;
  }
  std::optional<Device> device = devicePreset(kind);
  if (!device) return wrong(fmt::format("no device kind '{}'", kind));
  cluster.device = *device;
  setLinks(cluster);
  return cluster;
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
  if (found == flops.end()) found = flops.find("fp32");
  return found == flops.end() ? 0 : found->second;
}

Result<Cluster> parseClusterYaml(const std::string &text, const std::string &file) {
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception &failure) {
    return inputError(fmt::format("{}:{}: not YAML: {}", file, failure.mark.line + 1, failure.msg));
  }
  Cluster cluster;
  if (!root.IsMap())
    return inputError(
        fmt::format("{}:1: a cluster file is a mapping with nodes, devices_per_node, device, links", file));
  Reader reader(root, file, "the cluster");
  CLEAVE_RETURN_IF_ERROR(
      reader.expectKeys({"name", "nodes", "devices_per_node", "device", "links", "host_memory_gib"}));
  cluster.name = file;
  if (YAML::Node name = root["name"]) {
    if (!name.IsScalar()) return reader.error(name, "'name' must be a text");
    cluster.name = name.as<std::string>();
  }
  CLEAVE_RETURN_IF_ERROR(reader.integer("nodes", cluster.nodes));
  CLEAVE_RETURN_IF_ERROR(reader.integer("devices_per_node", cluster.devicesPerNode));
  if (cluster.nodes > mostDevices / cluster.devicesPerNode)
    return reader.error(root["devices_per_node"], fmt::format("the cluster has more than {} devices", mostDevices));
  if (!root["device"]) return reader.error(root, "the cluster lacks 'device'");
  CLEAVE_RETURN_IF_ERROR(readDevice(root["device"], file, cluster.device));
  setLinks(cluster);
  CLEAVE_RETURN_IF_ERROR(reader.number("host_memory_gib", gib, 0, cluster.hostMemoryBytes, false));
  YAML::Node links = root["links"];
  bool known = devicePreset(cluster.device.kind) || cluster.device.isCpu();
  if (!links) {
    if (!known && cluster.numDevices() > 1) return reader.error(root, "the cluster lacks 'links'");
    return cluster;
  }
  Reader linkReader(links, file, "links");
  CLEAVE_RETURN_IF_ERROR(linkReader.expectKeys({"node", "network", "host"}));
  if (!known && cluster.devicesPerNode > 1 && !links["node"]) return linkReader.error(links, "links lacks 'node'");
  if (!known && cluster.nodes > 1 && !links["network"]) return linkReader.error(links, "links lacks 'network'");
  CLEAVE_RETURN_IF_ERROR(readLink(links, "node", file, cluster.node));
  int64_t sharedBy = 0;
  CLEAVE_RETURN_IF_ERROR(readLink(links, "network", file, cluster.network, &sharedBy));
  setCards(cluster);
  if (sharedBy > 0) cluster.networkSharedBy = sharedBy;
  CLEAVE_RETURN_IF_ERROR(readLevels(links["network"], file, cluster));
  CLEAVE_RETURN_IF_ERROR(readHostLink(links, file, cluster));
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
  return inputError(fmt::format("cluster '{}': no such file, and not a preset; presets are cpu:DEVICES and "
                                "KIND:DEVICESxNODES (8x16 is 16 nodes of 8) with KIND one of {}",
                                presetOrPath, fmt::join(presetKinds(), ", ")));
}

std::string Cluster::yaml() const {
  std::string rates;
  for (const auto &[precision, rate] : device.flops)
    rates += fmt::format("{}{}: {}", rates.empty() ? "" : ", ", precision, rate / 1e12);
  std::string works;
  for (size_t work = 1; work < elementWorks; ++work)
    works += fmt::format("{}{}: {:.12g}", works.empty() ? "" : ", ", elementWorkNames[work],
                         device.elementSeconds[work] * 1e12);
  std::string caches;
  for (const CacheLevel &level : device.caches)
    caches += fmt::format("{}{{mib: {:.12g}, gbps: {:.12g}}}", caches.empty() ? "" : ", ", level.bytes / mib,
                          level.bandwidth / 1e9);
  const std::string hold =
      device.cacheHoldSeconds > 0 ? fmt::format("  cache_hold_ms: {:.12g}\n", device.cacheHoldSeconds * 1e3) : "";
  auto start = [](const char *key, double seconds) {
    return seconds >= 0 ? fmt::format("  {}: {:.12g}\n", key, seconds * 1e6) : "";
  };
  const std::string starts =
      start("expert_start_us", device.expertStartSeconds) + start("product_start_us", device.productStartSeconds);
  const ConvolutionLaw &law = device.convolutions;
  const std::string convolution =
      law.block > 0
          ? fmt::format(
                "  convolution: {{block: {:.12g}, efficiency: {:.12g}, start_us: {:.12g}, order_ps: {:.12g}}}\n",
                law.block, law.efficiency, law.startSeconds * 1e6, law.orderSeconds * 1e12)
          : "";
  std::string switches;
  for (const NetworkLevel &level : levels)
    switches += fmt::format("{}{{nodes: {}, gbps: {:.12g}, latency_us: {:.12g}}}", switches.empty() ? "" : ", ",
                            level.nodes, level.bandwidth * 8 / 1e9, level.latency * 1e6);
  if (!levels.empty()) switches = fmt::format(", levels: [{}]", switches);
  YAML::Emitter quoted;
  quoted << YAML::DoubleQuoted << name;
  auto link = [](const Link &of, const std::string &more = "") {
    return fmt::format(
        "{{gbps: {:.12g}, latency_us: {:.12g}, topology: {}{}{}}}", of.bandwidth * 8 / 1e9, of.latency * 1e6,
        of.topology == Link::Topology::Memory ? "memory" : "switch",
        of.cacheBandwidth > 0 ? fmt::format(", cache_read_gbps: {:.12g}", of.cacheBandwidth * 8 / 1e9) : "", more);
  };
  return fmt::format(
      "name: {}\nnodes: {}\ndevices_per_node: {}\n"
      "device:\n  kind: {}\n{}  memory_gib: {:.12g}\n  tflops: {{{}}}\n  memory_gbps: {:.12g}\n  launch_us: {:.12g}\n"
      "  solo_launch_us: {:.12g}\n  dispatch_us: {:.12g}\n  half_rate_dimension: {:.12g}\n  kernel_traffic: {:.12g}\n  "
      "score_traffic: {:.12g}\n"
      "  tensor_overlap: {:.12g}\n  fused_attention: {}\n"
      "  update_traffic: {:.12g}\n  overlap: {:.12g}\n  gradient_overlap: {:.12g}\n"
      "  compute_efficiency: {:.12g}\n  bandwidth_efficiency: {:.12g}\n  caches: [{}]\n{}"
      "  core_share: {:.12g}\n  batched_efficiency: {:.12g}\n  batch_start_ns: {:.12g}\n{}"
      "  product_read_ps: {:.12g}\n  product_traffic: {:.12g}\n  product_write_traffic: {:.12g}\n{}"
      "  element_ps: {{{}}}\n"
      "links:\n  node:    {}\n  network: {}\n  host:    {{gbps: {:.12g}, latency_us: {:.12g}, shared_by: {}}}\n"
      "host_memory_gib: {:.12g}\n",
      quoted.c_str(), nodes, devicesPerNode, device.kind,
      device.cpu == "native" ? "" : fmt::format("  cpu: {}\n", device.cpu), device.memoryBytes / gib, rates,
      device.memoryBandwidth / 1e9, device.launchSeconds * 1e6, device.soloLaunchSeconds * 1e6,
      device.dispatchSeconds * 1e6, device.halfRateDimension, device.kernelTraffic, device.scoreTraffic,
      device.tensorOverlap, device.fusedAttention, device.updateTraffic, device.overlap, device.gradientOverlap,
      device.computeEfficiency, device.bandwidthEfficiency, caches, hold, device.coreShare, device.batchedEfficiency,
      device.batchStartSeconds * 1e9, starts, device.productReadSeconds * 1e12, device.productTraffic,
      device.productWriteTraffic, convolution, works, link(node),
      link(network, fmt::format(", shared_by: {}{}", networkSharedBy, switches)), host.bandwidth * 8 / 1e9,
      host.latency * 1e6, hostSharedBy, hostMemoryBytes / gib);
}

} // namespace cleave::planner
