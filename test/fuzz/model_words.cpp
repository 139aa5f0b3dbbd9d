#include "test/fuzz/model_words.h"
#include "onnx/defs/schema.h"
#include <set>

namespace cleave::fuzz {
namespace {

struct Words {
  std::vector<std::string> operators, attributes;
};

const Words &words() {
  static const Words all = [] {
    std::set<std::string> operators, attributes;
    for (const onnx::OpSchema &schema : onnx::OpSchemaRegistry::get_all_schemas_with_history()) {
      operators.insert(schema.Name());
      for (const auto &[name, attribute] : schema.attributes()) attributes.insert(name);
    }
    return Words{{operators.begin(), operators.end()}, {attributes.begin(), attributes.end()}};
  }();
  return all;
}

} // namespace

const MutatorOptions &modelChanges() {
  static const MutatorOptions changes{
      .word = [](const google::protobuf::FieldDescriptor &field, Chance &chance) -> std::string {
        if (field.name() == "op_type") return chance.pick(words().operators);
        if (field.full_name() == "onnx.AttributeProto.name") return chance.pick(words().attributes);
        return "";
      }};
  return changes;
}

} // namespace cleave::fuzz
