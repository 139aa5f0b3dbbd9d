#include "runtime/base/sharding/collective.h"
#include <algorithm>
#include <array>

namespace cleave::dist {
namespace {

constexpr std::array collectiveNames{"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                     "broadcast",  "shift",          "own_part"};
constexpr std::array reductionNames{"sum", "max", "min"};

template <typename Kind> std::optional<Kind> named(const auto &names, std::string_view name) {
  const auto found = std::ranges::find(names, name, [](const char *one) { return std::string_view(one); });
  return found == names.end() ? std::nullopt : std::optional(static_cast<Kind>(found - names.begin()));
}

} // namespace

const char *name(Collective kind) { return collectiveNames.at(static_cast<size_t>(kind)); }
std::optional<Collective> collectiveNamed(std::string_view name) { return named<Collective>(collectiveNames, name); }
const char *name(Reduction reduction) { return reductionNames.at(static_cast<size_t>(reduction)); }
std::optional<Reduction> reductionNamed(std::string_view name) { return named<Reduction>(reductionNames, name); }

} // namespace cleave::dist
