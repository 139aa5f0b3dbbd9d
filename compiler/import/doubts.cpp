#include "compiler/import/doubts.h"
#include "runtime/base/names/first_few.h"
#include <algorithm>
#include <map>

namespace cleave::import_ {
namespace {

constexpr size_t namesShown = 4;

// The recipe's line that takes what was concluded.
std::string remedy(const std::vector<const Doubt *> &all) {
  const std::string &settled = all.front()->settled;
  std::vector<std::string> entries;
  for (const Doubt *doubt : all)
    entries.push_back(settled == "buffer" || settled == "parameter" ? fmt::format("\"{}\": {}", doubt->name, settled)
                      : settled == "computed"                       ? fmt::format("\"{}\": parameter", doubt->name)
                                                                    : fmt::format("\"{}\"", doubt->name));
  const bool isCut = entries.size() > namesShown;
  if (isCut) entries.resize(namesShown), entries.push_back("...");
  const std::string list = fmt::format("{}", fmt::join(entries, ", "));
  const std::string again = "export with cleave.export, or torch.onnx.export(..., optimize=False)";
  if (settled == "buffer" || settled == "parameter")
    return fmt::format("the recipe's `roles: {{{}}}` says what {} (parameter, buffer or constant)", list,
                       all.size() == 1 ? "it is" : "they are");
  if (settled == "computed") return fmt::format("`roles: {{{}}}` accepts it; else {}", list, again);
  if (settled == "frozen") return fmt::format("`frozen: [{}]` accepts it; else {}", list, again);
  if (settled == "ties") return "the recipe's `ties: as_exported` keeps one, `ties: none` makes one for each reader";
  if (settled == "batch") return fmt::format("export with cleave.export(..., batch={})", all.front()->name);
  return settled == "accept" ? "only --accept-doubts takes it" : again;
}

} // namespace

std::vector<DoubtsOfKind> byKind(const std::vector<Doubt> &doubts) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const Doubt *>> kinds;
  for (const Doubt &doubt : doubts) {
    std::vector<const Doubt *> &all = kinds[doubt.kind + doubt.settled];
    if (all.empty()) order.push_back(doubt.kind + doubt.settled);
    if (std::ranges::find(all, doubt.name, &Doubt::name) == all.end()) all.push_back(&doubt);
  }
  std::vector<DoubtsOfKind> told;
  for (const std::string &kind : order) {
    const std::vector<const Doubt *> &all = kinds.at(kind);
    std::vector<std::string> names;
    for (const Doubt *doubt : all) names.push_back(doubt->name);
    told.push_back(
        {fmt::format("{}: {}; {}", names::firstFew(names::quoted(names), namesShown), all.front()->kind, remedy(all)),
         names});
  }
  return told;
}

} // namespace cleave::import_
