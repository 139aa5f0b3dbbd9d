#include "compiler/planner/search/driver/size_text.h"
#include "compiler/planner/search/space/search_space.h"
#include <cmath>
#include <fmt/format.h>

namespace cleave::planner {
namespace {

int digitsShown(double size) { return size >= 100 ? 0 : size >= 10 ? 1 : 2; }

} // namespace

std::string bytesText(double bytes) {
  const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit < 5; ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, digitsShown(bytes), units[unit]);
}

std::string whatIsShort(const MemoryBreakdown &memory, const Cluster &cluster) {
  const double limit = cluster.device.usableBytes(), room = cluster.hostMemoryBytes / double(cluster.devicesPerNode);
  if (memory.total() > limit)
    return fmt::format("needs {} on a device, {} can be used", bytesText(memory.total()), bytesText(limit));
  if (room > 0 && memory.host > room)
    return fmt::format("needs {} of the host's memory for each device, there are {}", bytesText(memory.host),
                       bytesText(room));
  return "";
}

double roundedUp(double bytes) {
  double unit = 1;
  while (bytes / unit >= 1000) unit *= 1024;
  const double step = unit / std::pow(10, digitsShown(bytes / unit));
  return std::ceil(bytes / step) * step;
}

} // namespace cleave::planner
