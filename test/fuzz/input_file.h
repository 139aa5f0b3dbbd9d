// Inputs where Cleave reads a path: files in memory, written again for each input.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::fuzz {

// The path of a file that holds the bytes, in memory; the next call writes it anew.
std::string fileOf(std::string_view bytes);

// A folder in memory, this process's only; it is removed at the end.
class InputFolder {
public:
  InputFolder();
  InputFolder(const InputFolder &) = delete;
  ~InputFolder();
  // Writes the file `name`, below a folder that is made if there is none.
  void write(const std::string &name, std::string_view bytes);
  void remove(const std::string &name);
  std::string path(const std::string &name = "") const { return folder + name; }

private:
  std::string folder; // ends in '/'
};

// Several files in one input: each but the last begins with its length, four bytes, little-endian. Where the lengths
// do not fit, the rest is the last file that gets any; there are always `count`.
std::vector<std::string> splitParts(std::span<const uint8_t> input, size_t count);
std::string joinParts(std::span<const std::string> parts);

} // namespace cleave::fuzz
