#include "runtime/base/sharding/mesh.h"
#include <algorithm>

namespace cleave::dist {

bool hasPipelineAxis(const Axes &axes) { return std::ranges::any_of(axes, isPipelineAxis); }

int64_t Mesh::numDevices() const {
  int64_t count = 1;
  for (const MeshAxis &axis : axes) count *= axis.size;
  return count;
}

int64_t Mesh::axisSize(const std::string &name) const {
  for (const MeshAxis &axis : axes)
    if (axis.name == name) return axis.size;
  return 1;
}

int64_t Mesh::groupSize(const Axes &group) const {
  int64_t size = 1;
  for (const std::string &name : group) size *= axisSize(name);
  return size;
}

std::vector<int64_t> Mesh::coordinate(int64_t device) const {
  std::vector<int64_t> result(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    result[i] = device % axes[i].size;
    device /= axes[i].size;
  }
  return result;
}

int64_t Mesh::indexAlong(int64_t device, const Axes &group) const {
  std::vector<int64_t> position = coordinate(device);
  int64_t index = 0;
  for (const std::string &name : group)
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i].name == name) index = index * axes[i].size + position[i];
  return index;
}

std::vector<int64_t> Mesh::group(int64_t device, const Axes &group) const {
  std::vector<int64_t> position = coordinate(device);
  std::vector<int64_t> members(groupSize(group));
  for (size_t index = 0; index < members.size(); ++index) {
    std::vector<int64_t> member = position;
    int64_t rest = static_cast<int64_t>(index);
    for (size_t g = group.size(); g-- > 0;)
      for (size_t i = 0; i < axes.size(); ++i)
        if (axes[i].name == group[g]) {
          member[i] = rest % axes[i].size;
          rest /= axes[i].size;
        }
    int64_t number = 0;
    for (size_t i = 0; i < axes.size(); ++i) number = number * axes[i].size + member[i];
    members[index] = number;
  }
  return members;
}

std::string Mesh::str() const {
  std::string text;
  for (const MeshAxis &axis : axes) {
    if (!text.empty()) text += ',';
    text += axis.name + '=' + std::to_string(axis.size);
  }
  return text;
}

bool Mesh::parse(const std::string &text, Mesh &mesh, std::string &error) {
  Mesh result;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = std::min(text.find(',', begin), text.size());
    std::string item = text.substr(begin, end - begin);
    size_t equals = item.find('=');
    std::string name = item.substr(0, equals);
    std::string digits = equals == std::string::npos ? "" : item.substr(equals + 1);
    auto isNameCharacter = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
    if (name.empty() || !std::all_of(name.begin(), name.end(), isNameCharacter)) {
      error = "mesh '" + text + "': '" + item + "' has no axis name; write NAME=SIZE, e.g. dp=2,tp=4";
      return false;
    }
    bool number = !digits.empty() && digits.size() <= 9 &&
                  std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); });
    if (!number || std::stoll(digits) < 1) {
      error = "mesh '" + text + "': the size of axis '" + name + "' must be a whole number of at least 1, not '" +
              digits + "'";
      return false;
    }
    for (const MeshAxis &axis : result.axes)
      if (axis.name == name) {
        error = "mesh '" + text + "': axis '" + name + "' stands twice";
        return false;
      }
    result.axes.push_back({name, std::stoll(digits)});
    begin = end + 1;
    if (end + 1 == text.size()) {
      error = "mesh '" + text + "': ends in a comma";
      return false;
    }
  }
  mesh = std::move(result);
  return true;
}

} // namespace cleave::dist
