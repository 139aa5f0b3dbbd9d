// Reads, writes and documents what the tables of cluster_fields.cpp list.
#include "compiler/cluster/cluster_fields.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <yaml-cpp/yaml.h>

namespace cleave::planner {
namespace {

template <class... Ts> struct Visitor : Ts... {
  using Ts::operator()...;
};

std::string_view keyOf(std::string_view path) { return path.substr(path.rfind('.') + 1); }
std::span<const Field<CacheLevel>> fieldsOf(const CacheLevel &) { return cacheFields(); }
std::span<const Field<NetworkLevel>> fieldsOf(const NetworkLevel &) { return networkLevelFields(); }

// One mapping after the other, in the file's order.
class Reader {
public:
  explicit Reader(ReadKeys &keys) : keys(keys) {}

  // `prefix`: the path of the mapping, with a dot behind it.
  template <class Owner>
  Status mapping(const YAML::Node &node, std::span<const Field<Owner>> fields, const std::string &prefix,
                 const std::string &where, Owner &owner) {
    if (!node.IsMap()) return error(node, fmt::format("{} must be a mapping of keys to values", where));
    std::vector<std::string> seen;
    for (const auto &entry : node) {
      const std::string key = entry.first.as<std::string>(""), path = prefix + key;
      if (std::ranges::find(seen, key) != seen.end())
        return error(entry.first, fmt::format("key '{}' appears twice in {}", key, where));
      seen.push_back(key);
      auto field = std::ranges::find_if(fields, [&](const Field<Owner> &f) { return path == f.path; });
      auto isInside = [&](const Field<Owner> &f) { return std::string_view(f.path).starts_with(path + "."); };
      if (field != fields.end()) {
        keys.told.push_back(path);
        CLEAVE_RETURN_IF_ERROR(value(entry.second, *field, where, owner));
      } else if (!key.empty() && std::ranges::any_of(fields, isInside)) {
        CLEAVE_RETURN_IF_ERROR(mapping(entry.second, fields, path + ".", path, owner));
      } else {
        return error(entry.first, fmt::format("unknown key '{}' in {}; the keys are {}", key, where,
                                              fmt::join(keysOf(fields, prefix), ", ")));
      }
    }
    return Status::ok();
  }

private:
  Status error(const YAML::Node &at, const std::string &message) const { return errorAt(at, keys.file, message); }

  template <class Owner>
  static std::vector<std::string> keysOf(std::span<const Field<Owner>> fields, std::string_view prefix) {
    std::vector<std::string> names;
    for (const Field<Owner> &field : fields) {
      std::string_view path = field.path;
      if (!path.starts_with(prefix)) continue;
      path.remove_prefix(prefix.size());
      std::string name(path.substr(0, path.find('.')));
      if (names.empty() || names.back() != name) names.push_back(name);
    }
    return names;
  }

  template <class Owner>
  Status value(const YAML::Node &entry, const Field<Owner> &field, const std::string &where, Owner &owner) {
    const std::string name = fmt::format("'{}' of {}", keyOf(field.path), where);
    auto isScalar = [&](auto &into) {
      return entry.IsScalar() && YAML::convert<std::decay_t<decltype(into)>>::decode(entry, into);
    };
    auto number = [&](double &into) {
      double told = 0;
      if (!isScalar(told) || !std::isfinite(told)) return error(entry, name + " must be a number");
      if (told < field.least || told > field.most)
        return error(entry,
                     field.most == unbounded
                         ? fmt::format("{} is {}; it must be at least {}", name, told, field.least)
                         : fmt::format("{} is {}; it must be from {} to {}", name, told, field.least, field.most));
      into = told * field.scale;
      return Status::ok();
    };
    return std::visit(
        Visitor{
            [&](double *into) { return number(*into); },
            [&](const Rate &rate) { return number(rate.rates[rate.precision]); },
            [&](int64_t *into) {
              if (!isScalar(*into) || double(*into) < field.least || double(*into) > field.most)
                return error(entry,
                             fmt::format("{} must be a whole number from {} to {:.0f}", name, field.least, field.most));
              return Status::ok();
            },
            [&](bool *into) { return isScalar(*into) ? Status::ok() : error(entry, name + " must be true or false"); },
            [&](std::string *into) {
              return isScalar(*into) && !into->empty() ? Status::ok() : error(entry, name + " is a name");
            },
            [&](Link::Topology *into) {
              const std::string told = entry.IsScalar() ? entry.as<std::string>() : "";
              *into = told == "memory" ? Link::Topology::Memory : Link::Topology::Switch;
              if (told == "memory" || told == "switch") return Status::ok();
              return error(entry, name + " is 'switch' or 'memory' (devices of one process)");
            },
            [&](auto *list) {
              list->clear();
              if (!entry.IsSequence()) return error(entry, fmt::format("{} is a {}", name, field.unit));
              for (const YAML::Node &item : entry) {
                auto &level = list->emplace_back();
                const size_t before = keys.told.size();
                CLEAVE_RETURN_IF_ERROR(mapping(item, fieldsOf(level), "", std::string(keyOf(field.path)), level));
                for (const auto &of : fieldsOf(level))
                  if (of.needed == Needed::Always &&
                      std::find(keys.told.begin() + ptrdiff_t(before), keys.told.end(), of.path) == keys.told.end())
                    return error(item, fmt::format("{} lacks '{}'", keyOf(field.path), of.path));
                keys.told.resize(before);
              }
              return Status::ok();
            }},
        field.place(owner));
  }

  ReadKeys &keys;
};

template <class Owner> std::string mappingText(std::span<const Field<Owner>> fields, size_t skip, int depth, Owner &of);

// Nothing of what is not told.
std::optional<std::string> valueText(FieldPlace place, double scale) {
  auto number = [&](double value) { return fmt::format("{:.12g}", value / scale); };
  using Text = std::optional<std::string>;
  return std::visit(
      Visitor{[&](double *value) { return *value < 0 ? Text() : number(*value); },
              [&](const Rate &rate) {
                auto found = rate.rates.find(rate.precision);
                return found == rate.rates.end() ? Text() : number(found->second);
              },
              [&](int64_t *value) { return Text(fmt::format("{}", *value)); },
              [&](bool *value) { return Text(fmt::format("{}", *value)); },
              [&](std::string *value) {
                YAML::Emitter quoted;
                quoted << *value;
                return Text(quoted.c_str());
              },
              [&](Link::Topology *value) { return Text(*value == Link::Topology::Memory ? "memory" : "switch"); },
              [&](auto *list) {
                std::vector<std::string> items;
                for (auto &item : *list)
                  items.push_back(fmt::format("{{{}}}", mappingText(fieldsOf(item), 0, 2, item)));
                return Text(fmt::format("[{}]", fmt::join(items, ", ")));
              }},
      place);
}

// The text of fields whose paths agree in their first `skip` letters. Mappings stand in lines, those inside them in
// braces.
template <class Owner>
std::string mappingText(std::span<const Field<Owner>> fields, size_t skip, int depth, Owner &of) {
  std::vector<std::string> entries;
  for (size_t i = 0, next = 0; i < fields.size(); i = next) {
    const std::string_view path = fields[i].path, rest = path.substr(skip), key = rest.substr(0, rest.find('.'));
    const std::string_view inside = path.substr(0, skip + key.size() + 1);
    for (next = i + 1; next < fields.size() && std::string_view(fields[next].path).starts_with(inside);) ++next;
    if (key.size() < rest.size()) {
      const std::string text = mappingText(fields.subspan(i, next - i), inside.size(), depth + 1, of);
      if (!text.empty())
        entries.push_back(fmt::format(fmt::runtime(depth == 0 ? "{}:\n  {}" : "{}: {{{}}}"), key, text));
    } else if (auto text = valueText(fields[i].place(of), fields[i].scale)) {
      entries.push_back(fmt::format("{}: {}", key, *text));
    }
  }
  return fmt::format("{}", fmt::join(entries, depth == 0 ? "\n" : depth == 1 ? "\n  " : ", "));
}

std::string rangeText(const Field<Cluster> &field) {
  if (field.least == 0 && field.most == 0) return "";
  const std::string least = field.least > 0 && field.least < 1 ? "above 0" : fmt::format("from {} up", field.least);
  if (field.most == unbounded) return least;
  if (field.most > 1) return fmt::format("{} to 2²⁴", field.least);
  return field.least == 0 ? "0 to 1" : "above 0, to 1";
}

} // namespace

Status errorAt(const YAML::Node &node, const std::string &file, const std::string &message) {
  return inputError(fmt::format("{}:{}: {}", file, std::max(node.Mark().line, 0) + 1, message));
}

Status readFields(const YAML::Node &root, ReadKeys &keys, Cluster &cluster) {
  return Reader(keys).mapping(root, clusterFields(), "", "the cluster", cluster);
}

std::string writeFields(const Cluster &cluster) {
  Cluster copy = cluster; // places are of what can be written
  return mappingText(clusterFields(), 0, 0, copy) + "\n";
}

std::string documentFields() {
  std::string out = "| key | unit | range | meaning | where it is left out |\n|---|---|---|---|---|\n";
  for (const Field<Cluster> &field : clusterFields())
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", field.path, field.unit, rangeText(field),
                       *field.doc ? field.doc : "likewise",
                       field.needed == Needed::Always ? "must be there" : field.standard);
  return out;
}

} // namespace cleave::planner
