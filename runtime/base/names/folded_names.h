// Names that differ in one place as one name.
//
//     foldedNames({"h.0.mlp", "h.1.mlp", "h.2.mlp"})      // "h.0..2.mlp"
//     foldedNames({"h.0.mlp", "h.15.mlp", "h.30.mlp"})    // "h.0..30..15.mlp": every 15th
//     foldedNames({"wq", "wk"})                           // "w{q,k}"
#pragma once
#include <string>
#include <vector>

namespace cleave::names {

std::string foldedNames(const std::vector<std::string> &names);

} // namespace cleave::names
