// The keys of a cluster file as tables, from which files are read and written and their documentation is made:
//
//   {"device.launch_us", "µs", 1e-6, 0, unbounded, Needed::Never, "the profile's", "fixed cost of a kernel", place}
#pragma once
#include "compiler/cluster/cluster.h"
#include <limits>
#include <span>
#include <variant>

namespace YAML {
class Node;
}

namespace cleave::planner {

struct Rate { // the peak at a precision, if it is told
  std::map<std::string, double> &rates;
  const char *precision;
};
// Where a value stands. Numbers are in SI units; below 0 they are not told.
using FieldPlace = std::variant<double *, int64_t *, bool *, std::string *, Link::Topology *, Rate,
                                std::vector<CacheLevel> *, std::vector<NetworkLevel> *>;

// When a field is needed: for kinds of device that no preset knows, in nodes of several devices (the link inside
// nodes), or between several nodes (the network).
enum class Needed : uint8_t { Never, Always, OfOwnKinds, InNodes, BetweenNodes };

inline constexpr double unbounded = std::numeric_limits<double>::infinity();

template <class Owner> struct Field {
  const char *path; // "device.launch_us": mappings and keys
  const char *unit;
  double scale;       // of a number in a file to SI units
  double least, most; // of a number in a file
  Needed needed;
  const char *standard; // what holds where it is left out
  const char *doc;
  FieldPlace (*place)(Owner &);
};

std::span<const Field<Cluster>> clusterFields();
std::span<const Field<CacheLevel>> cacheFields();
std::span<const Field<NetworkLevel>> networkLevelFields();

// Errors name `file` and line. `told`: the paths that are there, which clusterFields() marks as needed or not.
struct ReadKeys {
  std::string file;
  std::vector<std::string> told;
};
Status readFields(const YAML::Node &root, ReadKeys &keys, Cluster &cluster);
// "FILE:LINE: message", of the node or of what it stands in.
Status errorAt(const YAML::Node &node, const std::string &file, const std::string &message);
// The text that readFields reads as the same cluster; fields that are not told are left out.
std::string writeFields(const Cluster &cluster);
// The table of docs/reference/cluster.md.
std::string documentFields();

} // namespace cleave::planner
