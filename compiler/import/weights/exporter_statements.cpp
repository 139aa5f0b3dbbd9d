#include "compiler/import/weights/exporter_statements.h"
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

struct SignatureLine {
  std::string placeholder, kind, target, rest; // rest: " persistent=True"
};

// The signature's lines: "p_fc_weight: PARAMETER target='fc.weight'". Outputs name targets too, which they change.
std::vector<SignatureLine> signatureOf(const ::onnx::GraphProto &graph) {
  std::vector<SignatureLine> signature;
  for (const ::onnx::StringStringEntryProto &entry : graph.metadata_props()) {
    if (entry.key() != "pkg.torch.export.ExportedProgram.graph_signature") continue;
    std::istringstream lines(entry.value());
    for (std::string line; std::getline(lines, line) && line != "# outputs";) {
      size_t kind = line.find(": "), target = line.find(" target=");
      if (kind == std::string::npos || target == std::string::npos || target < kind) continue;
      std::vector<std::string> names = stringsOf(line.substr(target));
      if (names.size() != 1) continue;
      signature.push_back({line.substr(0, kind), line.substr(kind + 2, target - kind - 2), names.front(),
                           line.substr(line.find_last_of("'\"") + 1)});
    }
  }
  return signature;
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

std::vector<ListedTensor> listedTensors(const ::onnx::GraphProto &graph) {
  std::vector<ListedTensor> listed;
  for (const SignatureLine &line : signatureOf(graph))
    if (line.kind == "PARAMETER" || (line.kind == "BUFFER" && line.rest != " persistent=False"))
      listed.push_back({line.target, line.placeholder});
  return listed;
}

StatedOperation statedOperation(const ::onnx::NodeProto &node) {
  StatedOperation operation;
  for (const ::onnx::StringStringEntryProto &entry : node.metadata_props()) {
    if (entry.key() != "pkg.torch.onnx.fx_node") continue;
    const std::string &text = entry.value();
    constexpr std::string_view target = "[target=torch.ops.", arguments = "](args = (";
    const size_t from = text.find(target), to = text.find(arguments);
    if (from == std::string::npos || to == std::string::npos || to < from) continue;
    operation.target = text.substr(from + target.size(), to - from - target.size());
    int depth = 0;
    std::string argument;
    for (size_t at = to + arguments.size(); at < text.size() && depth >= 0; ++at) {
      const char c = text[at];
      depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
      if ((depth == 0 && c == ',') || depth < 0) {
        if (!argument.empty()) operation.arguments.push_back(argument);
        argument.clear();
      } else if (c != '%' && (c != ' ' || depth > 0)) {
        argument += c;
      }
    }
  }
  return operation;
}

ExporterStatements exporterStatements(const ::onnx::GraphProto &graph) {
  ExporterStatements statements;
  for (const SignatureLine &line : signatureOf(graph))
    statements[line.target].kind = line.kind == "PARAMETER" ? Kind::Parameter : Kind::Buffer;
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
