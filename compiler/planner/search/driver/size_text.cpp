#include "compiler/planner/search/driver/size_text.h"
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

double roundedUp(double bytes) {
  double unit = 1;
  while (bytes / unit >= 1000) unit *= 1024;
  const double step = unit / std::pow(10, digitsShown(bytes / unit));
  return std::ceil(bytes / step) * step;
}

} // namespace cleave::planner
