#include "compiler/import/exporter_statements.h"

namespace cleave::import_ {
namespace {

// The strings of a Python list: ['a', "b's"].
std::vector<std::string> stringsOf(const std::string &list) {
  std::vector<std::string> strings;
  for (size_t at = list.find_first_of("'\""); at != std::string::npos; at = list.find_first_of("'\"", at)) {
    size_t end = list.find(list[at], at + 1);
    if (end == std::string::npos) break;
    strings.push_back(list.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return strings;
}

} // namespace

ExporterStatements exporterStatements(const ::onnx::GraphProto &graph) {
  ExporterStatements statements;
  for (const ::onnx::ValueInfoProto &value : graph.value_info())
    for (const ::onnx::StringStringEntryProto &entry : value.metadata_props()) {
      if (entry.key() == "pkg.torch.export.graph_signature.InputSpec.kind")
        statements[value.name()].kind =
            entry.value() == "PARAMETER" ? ExporterStatement::Kind::Parameter : ExporterStatement::Kind::Buffer;
      if (entry.key() == "pkg.onnxscript.optimizer.folded_from")
        statements[value.name()].foldedFrom = stringsOf(entry.value());
    }
  return statements;
}

} // namespace cleave::import_
