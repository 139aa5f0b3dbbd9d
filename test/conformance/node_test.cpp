#include "test/conformance/node_test.h"
#include "compiler/driver/pass_list.h"
#include "compiler/import/import.h"
#include "compiler/normalize/constants.h"
#include "compiler/normalize/function_bodies.h"
#include "compiler/normalize/narrow_types.h"
#include "compiler/normalize/normalize.h"
#include "mlir/Pass/PassManager.h"
#include "onnx/onnx_pb.h"
#include <cmath>
#include <fmt/format.h>
#include <fstream>

using namespace mlir;
namespace cleave::conformance {
namespace {

std::string oneLine(std::string text) {
  for (char &c : text)
    if (c == '\n') c = ' ';
  return text;
}

// True when equal within what ONNX's own runner allows (relative 1e-3, for 16 bits their precision).
bool agrees(const HostTensor &got, const HostTensor &wanted, std::string &why) {
  if (got.dtype != wanted.dtype || got.shape != wanted.shape) {
    why = "the output has another type";
    return false;
  }
  std::vector<double> a = got.reals(), b = wanted.reals();
  double relative = !runtime::isFloat(got.dtype) ? 0
                    : got.dtype == plan::BF16    ? 2e-2
                    : got.dtype == plan::F16     ? 4e-3
                                                 : 1e-3;
  double absolute = got.dtype == plan::BF16       ? 1e-2
                    : got.dtype == plan::F16      ? 1e-3
                    : runtime::isFloat(got.dtype) ? 1e-6
                                                  : 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i] || std::fabs(a[i] - b[i]) <= absolute + relative * std::fabs(b[i])) continue;
    why = fmt::format("element {} is {}, not {}", i, a[i], b[i]);
    return false;
  }
  return true;
}

// Nothing is computed: its results are constants or its arguments.
bool isTrivial(func::FuncOp model) {
  return llvm::all_of(model.getBody().front(), llvm::IsaPred<onnx::ConstantOp, func::ReturnOp>);
}

} // namespace

Result<std::vector<HostTensor>> evaluateByReference(func::FuncOp model, const std::vector<HostTensor> &arguments) {
  llvm::DenseMap<Value, HostTensor> values;
  for (BlockArgument argument : model.getArguments()) { // behind the model's own are the host's: the key of a dropout
    size_t number = argument.getArgNumber();
    runtime::TensorType type = normalize::tensorTypeOf(argument.getType());
    values[argument] = number < arguments.size() ? arguments[number] : HostTensor::zeros(type.dtype, type.shape);
  }
  for (Operation &op : model.getBody().front().without_terminator()) {
    if (auto constant = dyn_cast<onnx::ConstantOp>(op)) {
      values[constant.getResult()] = normalize::toHostTensor(constant.getValue());
      continue;
    }
    SmallVector<HostTensor> operands;
    for (Value operand : op.getOperands()) operands.push_back(values[operand]);
    auto result = normalize::evaluateOp(&op, operands);
    if (!result) return result.status();
    values[op.getResult(0)] = std::move(*result);
  }
  std::vector<HostTensor> results;
  for (Value result : model.getBody().front().getTerminator()->getOperands()) results.push_back(values[result]);
  return results;
}

NodeTest::NodeTest(std::filesystem::path folder) : folder(std::move(folder)) {
  context.loadDialect<onnx::OnnxDialect, func::FuncDialect>();
  context.disableMultithreading();
  context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
    if (error.empty() && diagnostic.getSeverity() == DiagnosticSeverity::Error) error = diagnostic.str();
    return success();
  });
}

Outcome NodeTest::run(const Evaluate &evaluate) {
  Outcome last;
  for (Fixed fixed : {Fixed::Nothing, Fixed::LaterIntegers, Fixed::Integers, Fixed::Later, Fixed::Everything}) {
    error.clear();
    notKnown = false;
    last = attempt(fixed, evaluate);
    if (!notKnown) return last;
  }
  return last;
}

Outcome NodeTest::refused(const std::string &what) const {
  return {Outcome::Kind::Refused, oneLine(error.empty() ? what : error)};
}

// None for sequences, optionals and unsupported element types.
DenseElementsAttr NodeTest::readTensor(const std::string &name) {
  std::ifstream stream(folder / "test_data_set_0" / name, std::ios::binary);
  ::onnx::TensorProto proto;
  OpBuilder builder(&context);
  if (!proto.ParseFromIstream(&stream)) return {};
  return normalize::tensorAttribute(builder, proto);
}

Outcome NodeTest::attempt(Fixed fixed, const Evaluate &evaluate) {
  auto module = import_::importModel(context, (folder / "model.onnx").string(), {});
  if (failed(module)) return refused("import failed");
  auto model = (*module)->lookupSymbol<func::FuncOp>("model");
  OpBuilder builder = OpBuilder::atBlockBegin(&model.getBody().front());
  std::vector<HostTensor> inputs;
  for (BlockArgument argument : model.getArguments()) {
    DenseElementsAttr value = readTensor(fmt::format("input_{}.pb", argument.getArgNumber()));
    if (!value) return refused("an input is no tensor of a supported element type");
    inputs.push_back(normalize::toHostTensor(normalize::inCarrier(value)));
    argument.setType(value.getType());
    bool isInteger = !runtime::isFloat(inputs.back().dtype), isLater = argument.getArgNumber() > 0;
    bool isConstant = fixed == Fixed::Everything || (fixed == Fixed::Later && isLater) ||
                      (fixed == Fixed::Integers && isInteger) ||
                      (fixed == Fixed::LaterIntegers && isInteger && isLater);
    if (isConstant) argument.replaceAllUsesWith(onnx::ConstantOp::create(builder, builder.getUnknownLoc(), value));
  }
  model.setType(FunctionType::get(&context, model.getBody().getArgumentTypes(), model.getResultTypes()));
  PassManager passes(&context);
  addNormalizePasses(passes, {});
  if (failed(passes.run(**module))) {
    notKnown = error.find("must be known") != std::string::npos;
    return refused("");
  }
  return compare(model, inputs, evaluate);
}

Outcome NodeTest::compare(func::FuncOp model, const std::vector<HostTensor> &inputs, const Evaluate &evaluate) {
  for (Operation &op : model.getBody().front())
    if (isa<onnx::ReadOp, onnx::WriteOp>(op)) return refused("has a parameter");
  bool trivial = isTrivial(model);
  auto outputs = evaluate(model, inputs);
  if (!outputs && outputs.status().exitStatus() == static_cast<int>(ErrorKind::Input))
    return refused(outputs.status().message());
  if (!outputs) return {Outcome::Kind::Wrong, oneLine(outputs.status().message())};
  for (auto [i, output] : llvm::enumerate(*outputs)) {
    DenseElementsAttr wanted = readTensor(fmt::format("output_{}.pb", i));
    if (!wanted) return refused("an output is no tensor of a supported element type");
    std::string why;
    if (!agrees(output, normalize::toHostTensor(normalize::inCarrier(wanted)), why))
      return {Outcome::Kind::Wrong, fmt::format("output {}: {}", i, why)};
  }
  return {Outcome::Kind::Passed, "", trivial};
}

} // namespace cleave::conformance
