// Writes YAML in the order of the calls; numbers print so that they read back exactly.
//
//     MapWriter writer(recipe);
//     writer.write("eps", 1e-8);       // eps: 1e-08
//     writer.map("labels", [&] { writer.write("name", std::string("labels")); });
#pragma once
#include "compiler/recipe/ranges.h"
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

namespace cleave::recipe {

class MapWriter {
public:
  MapWriter(const Recipe &recipe, bool isForRuntime = false) : recipe(recipe), isForRuntime(isForRuntime) {
    out << YAML::BeginMap;
  }
  void write(const std::string &key, const std::string &value, const Rule &rule = {}) {
    if (*rule.words != '\0') return put(key, value);
    out << YAML::Key << key << YAML::Value << YAML::DoubleQuoted << value;
  }
  void write(const std::string &key, double value, const Rule & = {}) { put(key, fmt::format("{}", value)); }
  void write(const std::string &key, int64_t value, const Rule & = {}) { put(key, value); }
  void write(const std::string &key, bool value, const Rule & = {}) { put(key, value); }
  template <HasWords Kind> void write(const std::string &key, Kind value, const Rule & = {}) {
    put(key, toString(value));
  }
  void write(const std::string &key, const std::vector<std::string> &values, const Rule &rule = {}) {
    if (rule.takesOne && values.size() == 1) return write(key, values.front());
    put(key, YAML::BeginSeq, YAML::Flow);
    for (const std::string &value : values) out << YAML::DoubleQuoted << value;
    out << YAML::EndSeq;
  }
  void write(const std::string &key, const std::vector<double> &values, const Rule & = {}) {
    put(key, YAML::BeginSeq, YAML::Flow);
    for (double value : values) out << fmt::format("{}", value);
    out << YAML::EndSeq;
  }
  void write(const std::string &key, const std::vector<int64_t> &values, const Rule & = {}) {
    put(key, values, YAML::Flow);
  }
  void null(const std::string &key) { put(key, YAML::Null); }
  template <typename Body> void map(const std::string &key, Body body) {
    put(key, YAML::BeginMap);
    body();
    out << YAML::EndMap;
  }
  // A list of maps, whose keys `body` writes.
  template <typename T, typename Body> void list(const std::string &key, const std::vector<T> &entries, Body body) {
    put(key, YAML::BeginSeq);
    for (const T &entry : entries) {
      out << YAML::BeginMap;
      body(entry);
      out << YAML::EndMap;
    }
    out << YAML::EndSeq;
  }
  std::string finish() {
    out << YAML::EndMap;
    return std::string(out.c_str()) + "\n";
  }

  const Recipe &recipe;
  const bool isForRuntime; // also what follows from the losses

private:
  template <typename T> void put(const std::string &key, const T &value) {
    out << YAML::Key << key << YAML::Value << value;
  }
  template <typename T> void put(const std::string &key, const T &value, YAML::EMITTER_MANIP style) {
    out << YAML::Key << key << YAML::Value << style << value;
  }
  YAML::Emitter out;
};

} // namespace cleave::recipe
