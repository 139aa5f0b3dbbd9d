// The place behind the end of a YAML document: YAML::Load reads the first one, and says nothing of more.
//
//   lineBehindFirst("{a: 1}\nb: 2\n")     1, counted from 0
//   lineBehindFirst("a: 1\nb: 2\n")       none
#pragma once
#include <optional>
#include <sstream>
#include <string>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

namespace cleave::names {

// Throws what YAML::Load throws.
inline std::optional<int> lineBehindFirst(const std::string &text) {
  struct Starts final : YAML::EventHandler {
    using Mark = YAML::Mark;
    void OnDocumentStart(const Mark &mark) override { line = mark.line; }
    void OnDocumentEnd() override {}
    void OnNull(const Mark &, YAML::anchor_t) override {}
    void OnAlias(const Mark &, YAML::anchor_t) override {}
    void OnScalar(const Mark &, const std::string &, YAML::anchor_t, const std::string &) override {}
    void OnSequenceStart(const Mark &, const std::string &, YAML::anchor_t, YAML::EmitterStyle::value) override {}
    void OnSequenceEnd() override {}
    void OnMapStart(const Mark &, const std::string &, YAML::anchor_t, YAML::EmitterStyle::value) override {}
    void OnMapEnd() override {}
    int line = 0;
  } starts;
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  if (!parser.HandleNextDocument(starts) || !parser.HandleNextDocument(starts)) return std::nullopt;
  return starts.line;
}

} // namespace cleave::names
