#include "compiler/import/exporter_statements.h"
#include <sstream>

namespace cleave::import_ {
namespace {

using Kind = ExporterStatement::Kind;

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

// The signature's lines: "p_fc_weight: PARAMETER target='fc.weight'". Outputs name targets too, which they change.
void readSignature(const std::string &signature, ExporterStatements &statements) {
  std::istringstream lines(signature);
  for (std::string line; std::getline(lines, line) && line != "# outputs";) {
    size_t kind = line.find(": "), target = line.find(" target=");
    if (kind == std::string::npos || target == std::string::npos || target < kind) continue;
    bool isParameter = line.compare(kind + 2, target - kind - 2, "PARAMETER") == 0;
    for (const std::string &name : stringsOf(line.substr(target)))
      statements[name].kind = isParameter ? Kind::Parameter : Kind::Buffer;
  }
}

} // namespace

// ['', 'layers', 'layers.1', 'layers.1.linear1', 'linear_6']: modules, and last the operation.
std::string statedModule(const ::onnx::NodeProto &node) {
  for (const ::onnx::StringStringEntryProto &entry : node.metadata_props()) {
    if (entry.key() != "pkg.torch.onnx.name_scopes") continue;
    std::vector<std::string> scopes = stringsOf(entry.value());
    return scopes.size() < 2 ? "" : scopes[scopes.size() - 2];
  }
  return "";
}

ExporterStatements exporterStatements(const ::onnx::GraphProto &graph) {
  ExporterStatements statements;
  for (const ::onnx::StringStringEntryProto &entry : graph.metadata_props())
    if (entry.key() == "pkg.torch.export.ExportedProgram.graph_signature") readSignature(entry.value(), statements);
  const bool isSigned = !statements.empty();
  std::vector<std::string> folded;
  for (const ::onnx::ValueInfoProto &value : graph.value_info())
    for (const ::onnx::StringStringEntryProto &entry : value.metadata_props()) {
      if (entry.key() != "pkg.onnxscript.optimizer.folded_from") continue;
      statements[value.name()].foldedFrom = stringsOf(entry.value());
      folded.push_back(value.name());
    }
  if (!isSigned) return statements;
  for (const std::string &name : folded) {
    ExporterStatement &statement = statements[name];
    for (const std::string &origin : statement.foldedFrom)
      if (auto found = statements.find(origin); found != statements.end() && found->second.kind == Kind::Parameter)
        statement.parameters.push_back(origin);
    if (statement.parameters.empty() && statement.kind == Kind::None) statement.kind = Kind::Buffer;
  }
  return statements;
}

} // namespace cleave::import_
