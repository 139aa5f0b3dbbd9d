#include "compiler/import/import.h"
#include "compiler/import/graph_builder.h"
#include "compiler/import/model_tables.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "runtime/base/digest.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;

namespace cleave::import_ {
namespace {

ArrayAttr strings(Builder &builder, const std::vector<std::string> &values) {
  llvm::SmallVector<Attribute> attributes;
  for (const std::string &value : values) attributes.push_back(builder.getStringAttr(value));
  return builder.getArrayAttr(attributes);
}

const char *textOf(Source source) {
  switch (source) {
  case Source::Statement:
    return "read from the module's statement";
  case Source::Metadata:
    return "read from what the exporter says";
  case Source::Rules:
    return "read without a statement";
  }
  return "";
}

// Of what the graph computes: nodes with their attributes, and the names and shapes of what they read.
std::string digestOf(const ::onnx::ModelProto &model) {
  runtime::Digest digest;
  auto addNodes = [&](const auto &nodes) {
    for (const ::onnx::NodeProto &node : nodes) {
      digest.add(fmt::format("{} {} {} ({}) ({})", node.domain(), node.op_type(), node.name(),
                             fmt::join(node.input(), ","), fmt::join(node.output(), ",")));
      for (const ::onnx::AttributeProto &attribute : node.attribute()) digest.add(attribute.SerializeAsString());
    }
  };
  auto addTypes = [&](const auto &values) {
    for (const ::onnx::ValueInfoProto &value : values) digest.add(value.name()).add(value.type().SerializeAsString());
  };
  addNodes(model.graph().node());
  addTypes(model.graph().input());
  addTypes(model.graph().output());
  for (const ::onnx::TensorProto &tensor : model.graph().initializer())
    digest.add(fmt::format("{} {} {}", tensor.name(), tensor.data_type(), fmt::join(tensor.dims(), ",")));
  for (const ::onnx::FunctionProto &function : model.functions()) {
    digest.add(function.domain()).add(function.name());
    addNodes(function.node());
  }
  return runtime::hexOf(digest.finish().substr(0, 16));
}

Status describe(ModuleOp module, const ModelTables &tables) {
  const ModelFile &model = tables.model;
  const ParameterTable &table = tables.parameters;
  Builder builder(module.getContext());
  std::vector<std::string> missing;
  for (const std::string &file : tables.store.missingFiles())
    missing.push_back(
        fmt::format("the weight file '{}' is missing: the model can be planned and compiled, not run", file));
  auto standard = model.opsets.find("");
  onnx::pathAttr.set(module, model.path);
  onnx::producerAttr.set(module, model.proto.producer_name() + " " + model.proto.producer_version());
  onnx::irVersionAttr.set(module, model.proto.ir_version());
  onnx::opsetAttr.set(module, standard == model.opsets.end() ? 0 : standard->second);
  onnx::tiesAttr.set(module, table.ties);
  onnx::sharingAttr.set(module, table.sharing);
  std::vector<std::string> notes = table.notes;
  notes.insert(notes.end(), tables.initial.notes.begin(), tables.initial.notes.end());
  onnx::notesAttr.set(module, notes);
  onnx::digestAttr.set(module, digestOf(model.proto));
  onnx::sourceAttr.set(module, textOf(table.source));
  llvm::SmallVector<Attribute> doubts;
  for (const DoubtsOfKind &kind : byKind(table.doubts))
    doubts.push_back(builder.getDictionaryAttr({builder.getNamedAttr("tensors", strings(builder, kind.tensors)),
                                                builder.getNamedAttr("text", builder.getStringAttr(kind.text))}));
  onnx::doubtsAttr.set(module, builder.getArrayAttr(doubts));
  llvm::SmallVector<Attribute> others;
  auto addOther = [&](const std::string &name, const std::string &kind, const std::string &why) {
    others.push_back(builder.getDictionaryAttr({builder.getNamedAttr("kind", builder.getStringAttr(kind)),
                                                builder.getNamedAttr("name", builder.getStringAttr(name)),
                                                builder.getNamedAttr("why", builder.getStringAttr(why))}));
  };
  for (const Parameter &parameter : table.parameters)
    if (parameter.role == Role::Constant) addOther(parameter.name, parameter.kind(), parameter.why);
  for (const std::string &key : table.absent) addOther(key, "absent", "the exporter lists it, and the file lacks it");
  for (const StateEntry &entry : table.state.entries)
    if (entry.source == StateEntry::Source::Parameter && table.parameters[entry.parameter].role == Role::Constant &&
        entry.key != table.parameters[entry.parameter].name)
      addOther(entry.key, table.parameters[entry.parameter].kind(), table.parameters[entry.parameter].why);
  onnx::otherTensorsAttr.set(module, builder.getArrayAttr(others));
  if (!tables.initial.folder.empty()) onnx::checkpointFolderAttr.set(module, tables.initial.folder);
  if (tables.optimizer) onnx::stepsBeforeAttr.set(module, tables.optimizer->steps);
  onnx::exportNotesAttr.set(module, table.state.notes);
  onnx::missingFilesAttr.set(module, missing);
  return Status::ok();
}

Status importInto(ModuleOp module, const std::string &path, const ImportOptions &options) {
  Result<std::unique_ptr<ModelTables>> read = readTables(path, options);
  if (!read) return read.status();
  ModelTables &tables = **read;
  CLEAVE_RETURN_IF_ERROR(buildModule(module, tables.model, tables.flat, tables.parameters, tables.initial,
                                     tables.optimizer, tables.store));
  return describe(module, tables);
}

} // namespace

FailureOr<OwningOpRef<ModuleOp>> importModel(MLIRContext &context, const std::string &path,
                                             const ImportOptions &options) {
  context.loadDialect<onnx::OnnxDialect, func::FuncDialect>();
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  if (Status status = importInto(*module, path, options); !status) {
    emitError(UnknownLoc::get(&context)) << status.message();
    return failure();
  }
  if (failed(verify(*module))) return failure();
  return module;
}

Result<std::optional<recipe::ModelTraining>> trainingOf(const std::string &path) {
  Result<ModelFile> model = openModel(path);
  if (!model) return model.status();
  return std::move(model->training);
}

Status completeRecipe(const std::string &path, recipe::Recipe &recipe, std::vector<std::string> &notes) {
  Result<std::optional<recipe::ModelTraining>> training = trainingOf(path);
  if (!training) return training.status();
  if (*training)
    CLEAVE_RETURN_IF_ERROR(recipe::takeFromModel(recipe, **training, notes));
  else if (!recipe.gives("loss"))
    return inputError(recipe.at("loss") +
                      ": the recipe needs a 'loss', such as {kind: softmax_cross_entropy, output: logits}");
  return recipe::checkOptimizer(recipe);
}

} // namespace cleave::import_
