#include "test/fuzz/target.h"
#include <cstdio>
#include <cstdlib>

namespace cleave::fuzz {

void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "\nWRONG: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

int refused(const Status &status) {
  require(!status.message().empty(), "refused without a word");
  return 0;
}

} // namespace cleave::fuzz
