// Runs numbered cases in child processes, so that a crash, an abort or a hang of one is a result and not the end.
//
//   return fuzz::main(argc, argv, "operators", [](uint64_t seed) -> std::string {
//     ...                         // make the input of this seed, feed it
//     return "";                  // fine; else what is wrong
//   });
//
// The program's options: --cases N, --first SEED, --jobs N, --keep FOLDER (inputs of failing cases), --seconds N (stop
// then). A case fails if it returns a text, throws, ends by a signal, takes more than 10 s or more than 4 GiB.
#pragma once
#include <cstdint>
#include <functional>
#include <random>
#include <string>

namespace cleave::fuzz {

// One case's random numbers: the same for a seed on every machine.
class Chance {
public:
  explicit Chance(uint64_t seed) : engine(seed) {}
  uint64_t below(uint64_t count) { return count ? engine() % count : 0; }
  bool once(uint64_t in) { return below(in) == 0; } // true once in so many times
  template <typename List> auto pick(const List &list) { return *(std::begin(list) + below(std::size(list))); }

private:
  std::mt19937_64 engine;
};

// The input of the case that runs, kept in the folder of --keep if the case fails.
void setInput(const std::string &bytes);

// Counts the case as one whose input was taken: a generator whose input is always refused tests little.
void countTaken();

// The path of a file that holds the bytes, in memory; it is this process's only.
std::string fileOf(const std::string &bytes);

int main(int argc, char **argv, const std::string &name, const std::function<std::string(uint64_t seed)> &run);

} // namespace cleave::fuzz
