#include "runtime/engine/device/cuda/product_choices.h"
#include "runtime/base/atomic_file.h"
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>

namespace cleave::runtime::cuda {
namespace {

constexpr const char *header = "cleave: algorithms of cuBLASLt, version 1";

// KEY <tab> eight words of 16 hexadecimal digits <tab> workspace, bytes <tab> microseconds
bool parseLine(std::string_view line, ProductChoices &choices) {
  size_t first = line.find('\t'), second = line.find('\t', first + 1), third = line.find('\t', second + 1);
  if (third == std::string_view::npos || first == 0 || second - first - 1 != 128) return false;
  ProductChoice choice;
  auto number = [&](std::string_view text, auto &value, auto... base) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
    return error == std::errc() && end == text.data() + text.size();
  };
  for (size_t i = 0; i < 8; ++i)
    if (!number(line.substr(first + 1 + 16 * i, 16), choice.algorithm.data[i], 16)) return false;
  if (!number(line.substr(second + 1, third - second - 1), choice.workspaceBytes)) return false;
  if (!number(line.substr(third + 1), choice.microseconds)) return false;
  return choices.emplace(line.substr(0, first), choice).second;
}

} // namespace

std::string choicesPath(const std::string &gpu, size_t libraryVersion) {
  std::filesystem::path folder;
  if (const char *cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    folder = cache;
  else if (const char *home = std::getenv("HOME"); home && *home)
    folder = std::filesystem::path(home) / ".cache";
  else
    return "";
  std::string name = gpu;
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '-';
  return folder / "cleave" / fmt::format("cublaslt-{}-{}.txt", libraryVersion, name);
}

Result<ProductChoices> readChoices(const std::string &path) {
  ProductChoices choices;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return choices;
  std::ifstream file(path);
  auto damaged = [&](size_t number) {
    return inputError(fmt::format("{}:{}: not what `cleave run` writes there", path, number));
  };
  std::string line;
  if (!std::getline(file, line) || line != header) return damaged(1);
  for (size_t number = 2; std::getline(file, line); ++number) {
    if (line == fmt::format("end {}", choices.size())) return choices; // the last line: all is there
    if (!parseLine(line, choices)) return damaged(number);
  }
  return damaged(choices.size() + 2);
}

Status writeChoices(const std::string &path, const ProductChoices &choices) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  std::string text = fmt::format("{}\n", header);
  for (const auto &[key, choice] : choices) {
    text += key + '\t';
    for (uint64_t word : choice.algorithm.data) text += fmt::format("{:016x}", word);
    text += fmt::format("\t{}\t{:.3f}\n", choice.workspaceBytes, choice.microseconds);
  }
  text += fmt::format("end {}\n", choices.size());
  return writeFileAtomically(text, path);
}

} // namespace cleave::runtime::cuda
