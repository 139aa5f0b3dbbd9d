// ONNX's own node tests: each model is imported and normalized as any model is, its core ops are evaluated by the
// reference evaluator, and the outputs are compared with the recorded ones.
//
//   conformance NODE_FOLDER EXPECTATIONS [FILTER]        NODE_FOLDER/test_add/{model.onnx,test_data_set_0/*.pb}
//
// Expectations name the tests that do not pass: `skip GLOB  why` for what Cleave does not do, `fail NAME  why` for what
// it does wrong. Every other test must pass, and a test that is named and passes is an error too: the file must be
// true. Operands that must be known when a model is compiled (a Reshape's shape) are inputs in these tests: where the
// test does not normalize with all of its inputs as arguments, it is tried again with its integers, then all, as
// constants.
#include "compiler/import/import.h"
#include "compiler/normalize/constants.h"
#include "compiler/normalize/function_bodies.h"
#include "compiler/normalize/normalize.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "onnx/onnx_pb.h"
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fnmatch.h>
#include <fstream>
#include <set>

using namespace mlir;
using cleave::runtime::HostTensor;
namespace fs = std::filesystem;
namespace normalize = cleave::normalize;
namespace runtime = cleave::runtime;
namespace plan = cleave::plan;

namespace {

enum class Fixed { Nothing, Integers, Everything };

struct Outcome {
  bool passed = false;
  std::string why;
};

std::string oneLine(std::string text) {
  for (char &c : text)
    if (c == '\n') c = ' ';
  return text;
}

// The tensor of a .pb file; none for sequences, optionals and unsupported element types.
DenseElementsAttr readTensor(OpBuilder &builder, const fs::path &file) {
  std::ifstream stream(file, std::ios::binary);
  ::onnx::TensorProto proto;
  if (!proto.ParseFromIstream(&stream)) return {};
  return normalize::tensorAttribute(builder, proto);
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
    why = "element " + std::to_string(i) + " is " + std::to_string(a[i]) + ", not " + std::to_string(b[i]);
    return false;
  }
  return true;
}

class NodeTest {
public:
  explicit NodeTest(fs::path folder) : folder(std::move(folder)) {
    context.loadDialect<cleave::onnx::OnnxDialect, func::FuncDialect>();
    context.disableMultithreading();
    context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
      if (error.empty() && diagnostic.getSeverity() == DiagnosticSeverity::Error) error = diagnostic.str();
      return success();
    });
  }

  Outcome run() {
    Outcome last;
    for (Fixed fixed : {Fixed::Nothing, Fixed::Integers, Fixed::Everything}) {
      error.clear();
      last = attempt(fixed);
      if (last.passed || !notKnown) return last;
    }
    return last;
  }

private:
  Outcome attempt(Fixed fixed) {
    notKnown = false;
    auto module = cleave::import_::importModel(context, (folder / "model.onnx").string(), {});
    if (failed(module)) return {false, error.empty() ? "import failed" : error};
    auto function = (*module)->lookupSymbol<func::FuncOp>("model");
    OpBuilder builder = OpBuilder::atBlockBegin(&function.getBody().front());
    std::vector<HostTensor> inputs;
    normalize::NormalizeOptions options;
    for (BlockArgument argument : function.getArguments()) {
      fs::path file = folder / "test_data_set_0" / ("input_" + std::to_string(argument.getArgNumber()) + ".pb");
      DenseElementsAttr value = readTensor(builder, file);
      if (!value) return {false, "an input is no tensor of a supported element type"};
      inputs.push_back(normalize::toHostTensor(value));
      argument.setType(value.getType());
      bool isConstant =
          fixed == Fixed::Everything || (fixed == Fixed::Integers && !runtime::isFloat(inputs.back().dtype));
      if (isConstant)
        argument.replaceAllUsesWith(cleave::onnx::ConstantOp::create(builder, builder.getUnknownLoc(), value));
    }
    function.setType(FunctionType::get(&context, function.getBody().getArgumentTypes(), function.getResultTypes()));
    PassManager passes(&context);
    normalize::buildNormalizePipeline(passes, options);
    if (failed(passes.run(**module))) {
      notKnown = error.find("must be known") != std::string::npos;
      return {false, error};
    }
    return compare(function, std::move(inputs), builder);
  }

  Outcome compare(func::FuncOp function, std::vector<HostTensor> inputs, OpBuilder &builder) {
    llvm::DenseMap<Value, HostTensor> values;
    for (auto [argument, tensor] : llvm::zip(function.getArguments(), inputs)) values[argument] = std::move(tensor);
    for (Operation &op : function.getBody().front()) {
      if (isa<func::ReturnOp>(op)) break;
      if (isa<cleave::onnx::ReadOp, cleave::onnx::WriteOp>(op)) return {false, "has a parameter"};
      if (auto constant = dyn_cast<cleave::onnx::ConstantOp>(op)) {
        values[constant.getResult()] = normalize::toHostTensor(constant.getValue());
        continue;
      }
      SmallVector<HostTensor> operands;
      for (Value operand : op.getOperands()) operands.push_back(values[operand]);
      auto result = normalize::evaluateOp(&op, operands);
      if (!result) return {false, result.status().message()};
      values[op.getResult(0)] = std::move(*result);
    }
    Operation *end = function.getBody().front().getTerminator();
    for (auto [i, output] : llvm::enumerate(end->getOperands())) {
      DenseElementsAttr wanted =
          readTensor(builder, folder / "test_data_set_0" / ("output_" + std::to_string(i) + ".pb"));
      if (!wanted) return {false, "an output is no tensor of a supported element type"};
      std::string why;
      if (!agrees(values[output], normalize::toHostTensor(wanted), why))
        return {false, "output " + std::to_string(i) + ": " + why};
    }
    return {true, ""};
  }

  fs::path folder;
  MLIRContext context;
  std::string error;
  bool notKnown = false;
};

struct Expectation {
  std::string kind, pattern, why;
  int line = 0, matches = 0;
};

std::vector<Expectation> readExpectations(const std::string &path) {
  std::vector<Expectation> result;
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Expectation e;
    words >> e.kind >> e.pattern;
    std::getline(words >> std::ws, e.why);
    e.line = number;
    result.push_back(e);
  }
  return result;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: conformance NODE_FOLDER EXPECTATIONS [FILTER]\n"), 2;
  std::vector<Expectation> expectations = readExpectations(argv[2]);
  bool all = argc < 4;
  int passed = 0, failed = 0, skipped = 0;
  std::set<fs::path> folders;
  for (const auto &entry : fs::directory_iterator(argv[1]))
    if (fs::exists(entry.path() / "model.onnx")) folders.insert(entry.path());
  for (const fs::path &folder : folders) {
    std::string name = folder.filename().string();
    if (!all && fnmatch(argv[3], name.c_str(), 0) != 0) continue;
    Outcome outcome = NodeTest(folder).run();
    Expectation *expected = nullptr;
    for (Expectation &e : expectations)
      if (!expected && fnmatch(e.pattern.c_str(), name.c_str(), 0) == 0) expected = &e;
    if (expected) ++expected->matches;
    if (outcome.passed && !expected) {
      ++passed;
    } else if (outcome.passed) {
      ++failed;
      std::printf("DRIFT %s passes; take it out of line %d\n", name.c_str(), expected->line);
    } else if (expected) {
      ++skipped;
    } else {
      ++failed;
      std::printf("FAIL %s  %s\n", name.c_str(), oneLine(outcome.why).c_str());
    }
  }
  for (const Expectation &e : expectations)
    if (all && e.matches == 0) {
      ++failed;
      std::printf("DRIFT line %d: no test is named %s\n", e.line, e.pattern.c_str());
    }
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed != 0;
}
