#include "compiler/training/adapters.h"
#include "compiler/training/initial_values.h"
#include "compiler/training/parameter_names.h"
#include "compiler/training/training.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "runtime/base/names/first_few.h"
#include "runtime/base/names/module_scope.h"
#include <cmath>

using namespace mlir;
namespace cleave::training {
#define GEN_PASS_DEF_ADDADAPTERS
#include "compiler/training/Passes.h.inc"

namespace {

// How the nodes of a graph read one parameter.
struct WeightUses {
  SmallVector<onnx::NodeOp> products;
  std::optional<bool> isInputMajor; // none: no product, or both ways
  bool isQuantized = false;
  bool isMixed = false; // some products read it the other way round
  Type element;
  SmallVector<int64_t> shape;    // of the matrix; its reader gives it where the parameter is packed into bytes
  onnx::NodeOp otherReader;      // neither a product nor an operation that `recordUses` passes through
  bool isOnlyScaleOrBias = true; // it is read as a scale, zero point or bias alone
};

int64_t integer(onnx::NodeOp node, StringRef name, int64_t missing) {
  auto value = dyn_cast_or_null<IntegerAttr>(node.getOnnxAttributes().get(name));
  return value ? value.getInt() : missing;
}

Type elementOf(Value value) {
  auto type = dyn_cast<ShapedType>(value.getType());
  return type ? type.getElementType() : Type();
}

bool isMatrixTranspose(onnx::NodeOp node) {
  auto perm = dyn_cast_or_null<DenseI64ArrayAttr>(node.getOnnxAttributes().get("perm"));
  return !perm || perm.asArrayRef() == ArrayRef<int64_t>({1, 0});
}

// Records the products that read the parameter `value`, also through transposes and dequantization. `isTransposed`: an
// odd number of transposes lies between; `element`: the type of its elements there.
void recordUses(Value value, bool isTransposed, Type element, WeightUses &uses) {
  for (OpOperand &operand : value.getUses()) {
    auto node = dyn_cast<onnx::NodeOp>(operand.getOwner());
    if (!node) continue; // the function returns it
    const StringRef op = node.getOpType();
    const unsigned index = operand.getOperandNumber();
    auto addProduct = [&](bool isInputMajor, Type productElement) {
      uses.isMixed |= uses.isInputMajor.value_or(isInputMajor) != isInputMajor;
      uses.isInputMajor = isInputMajor;
      uses.element = productElement;
      uses.products.push_back(node);
    };
    if (op == "Shape" || op == "Size") continue;
    if ((op == "DequantizeLinear" && index > 0) || (op == "MatMulNBits" && index > 1) || (op == "Gemm" && index == 2))
      continue;
    uses.isOnlyScaleOrBias = false;
    if (op == "MatMul" && index == 1) {
      addProduct(!isTransposed, element);
    } else if (op == "Gemm" && index == 1 && !integer(node, "transA", 0)) {
      addProduct((integer(node, "transB", 0) != 0) == isTransposed, element);
    } else if (op == "MatMulNBits" && index == 1) {
      uses.isQuantized = true;
      uses.shape = {integer(node, "N", 0), integer(node, "K", 0)};
      addProduct(false, elementOf(node.getInputs()[2])); // the scales' type
    } else if (op == "Transpose" && isMatrixTranspose(node)) {
      recordUses(node.getOutputs()[0], !isTransposed, element, uses);
    } else if (op == "Elements") {
      uses.shape = llvm::to_vector(cast<ShapedType>(node.getOutputs()[0].getType()).getShape());
      recordUses(node.getOutputs()[0], isTransposed, elementOf(node.getOutputs()[0]), uses);
    } else if (op == "Identity") {
      recordUses(node.getOutputs()[0], isTransposed, element, uses);
    } else if (op == "DequantizeLinear") {
      uses.isQuantized = true;
      recordUses(node.getOutputs()[0], isTransposed, elementOf(node.getInputs()[1]), uses);
    } else {
      uses.otherReader = node;
    }
  }
}

// "h.0.q_proj" of "h.0.q_proj.weight" and of what quantizing tools call it, "h.0.q_proj.weight_quantized" or
// "h.0.q_proj.weight_Q4". A weight without such a name goes by the module of its product, or by the name that it has.
std::string moduleOf(onnx::ParamOp weight, onnx::NodeOp product) {
  std::string key = weight.getSymName().str();
  if (const std::vector<std::string> keys = onnx::stateKeysAttr.of(weight); !keys.empty()) key = keys[0];
  constexpr std::string_view leaf = ".weight";
  const size_t at = key.rfind(leaf), end = at + leaf.size();
  if (at != std::string::npos && (end == key.size() || key[end] == '_')) return key.substr(0, at);
  const std::string module = names::moduleOf(product.getNodeName().str());
  return module.empty() || onnx::stateKeysAttr.isOn(weight) ? key : module;
}

class AdapterFinder {
public:
  AdapterFinder(ModuleOp module, const recipe::Recipe &recipe) : module(module), recipe(recipe), lora(*recipe.lora) {
    module.walk([&](onnx::ReadOp read) {
      auto [uses, isFirst] = usesOf.try_emplace(read.getParamAttr().getAttr());
      auto type = cast<ShapedType>(read.getType());
      uses->second.shape = llvm::to_vector(type.getShape());
      recordUses(read.getValue(), false, type.getElementType(), uses->second);
    });
  }

  FailureOr<std::vector<Adapter>> run() {
    std::vector<recipe::ParameterPatterns> patterns;
    for (const std::string &glob : lora.match) patterns.emplace_back(std::vector<std::string>{glob});
    std::vector<size_t> found(patterns.size(), 0);
    std::vector<Adapter> adapters;
    for (auto param : module.getOps<onnx::ParamOp>()) {
      bool isMatched = false;
      for (auto [pattern, count] : llvm::zip_equal(patterns, found)) {
        if (!pattern.match(namesOf(param->getAttrDictionary()))) continue;
        if (!isMatched && !isProductsWeight(param)) break;
        isMatched = true;
        ++count;
      }
      if (isMatched && failed(add(param, adapters))) return failure();
    }
    if (!others.empty())
      return module.emitError() << recipe.at("lora.match") << ": adapters stand beside weights of MatMul and Gemm, and "
                                << "these matrices are not only that: " << names::firstFew(others, 6)
                                << "; name others in 'lora.match'";
    for (auto [glob, count] : llvm::zip_equal(lora.match, found))
      if (count == 0)
        return module.emitError() << recipe.at("lora.match") << ": '" << glob << "' of 'lora.match' names no weight "
                                  << "of a MatMul or Gemm; `cleave inspect` lists what it does name";
    return adapters;
  }

private:
  // A bias or a scale beside the weight is passed over in silence.
  bool isProductsWeight(onnx::ParamOp param) {
    const WeightUses &uses = usesOf[param.getSymNameAttr()];
    if (param.getRole() != "parameter" || uses.isOnlyScaleOrBias || uses.shape.size() < 2) return false;
    if (!uses.products.empty() && !uses.otherReader && !uses.isMixed && uses.shape.size() == 2) return true;
    std::string text = ("'" + param.getSymName() + "'").str();
    if (onnx::NodeOp other = uses.otherReader)
      text += (", which " + other.getOpType() + " '" + other.getNodeName() + "' reads").str();
    others.push_back(text);
    return false;
  }

  LogicalResult add(onnx::ParamOp param, std::vector<Adapter> &adapters) {
    WeightUses &uses = usesOf[param.getSymNameAttr()];
    Adapter adapter;
    adapter.weight = param;
    adapter.module = moduleOf(param, uses.products.front());
    adapter.a = adapter.module + ".lora_A.weight";
    adapter.b = adapter.module + ".lora_B.weight";
    adapter.isInputMajor = *uses.isInputMajor;
    adapter.isQuantized = uses.isQuantized;
    adapter.element = uses.element;
    adapter.in = uses.shape[adapter.isInputMajor ? 0 : 1];
    adapter.out = uses.shape[adapter.isInputMajor ? 1 : 0];
    adapter.products = uses.products;
    if (lora.rank > std::min(adapter.in, adapter.out))
      return param.emitError() << recipe.at("lora.rank") << ": 'lora.rank' is " << lora.rank << ", and '"
                               << param.getSymName() << "' has " << adapter.in << " inputs and " << adapter.out
                               << " outputs: the rank must be at most " << std::min(adapter.in, adapter.out);
    adapters.push_back(std::move(adapter));
    return success();
  }

  ModuleOp module;
  const recipe::Recipe &recipe;
  const recipe::Lora &lora;
  llvm::DenseMap<StringAttr, WeightUses> usesOf;
  std::vector<std::string> others;
};

class AddAdapters : public impl::AddAdaptersBase<AddAdapters> {
public:
  using Base::Base;
  void runOnOperation() override {
    if (!recipe.lora) return;
    FailureOr<std::vector<Adapter>> adapters = findAdapters(getOperation(), recipe);
    if (failed(adapters)) return signalPassFailure();
    if (!recipe.trainableGiven)
      for (auto param : getOperation().getOps<onnx::ParamOp>()) param.setTrainable(false);
    SymbolTable symbols(getOperation());
    for (Adapter &adapter : *adapters) {
      adapter.weight.setTrainable(false);
      for (const std::string &name : {adapter.a, adapter.b})
        if (symbols.lookup(name)) {
          adapter.weight.emitError() << recipe.at("lora") << ": the model has a '" << name << "' of its own";
          return signalPassFailure();
        }
      onnx::ParamOp a = addParam(adapter, adapter.a, {adapter.in, recipe.lora->rank});
      onnx::ParamOp b = addParam(adapter, adapter.b, {recipe.lora->rank, adapter.out});
      const double bound = 1 / std::sqrt(static_cast<double>(adapter.in));
      drawUniform(a, -bound, bound);
      fill(b, 0);
      for (onnx::NodeOp product : adapter.products) addTo(product, a, b, adapter.element);
    }
  }

private:
  onnx::ParamOp addParam(const Adapter &adapter, const std::string &name, ArrayRef<int64_t> shape) {
    OpBuilder builder(adapter.weight);
    std::vector<std::string> nodes;
    for (onnx::NodeOp product : adapter.products) nodes.push_back(product.getNodeName().str());
    OperationState state(NameLoc::get(builder.getStringAttr(name)), onnx::ParamOp::getOperationName());
    state.addAttribute("sym_name", builder.getStringAttr(name));
    state.addAttribute("type", TypeAttr::get(RankedTensorType::get(shape, adapter.element)));
    state.addAttribute("role", builder.getStringAttr("parameter"));
    state.addAttribute("trainable", builder.getBoolAttr(true));
    state.addAttribute("used_by", builder.getStringAttr(nodes.front()));
    auto param = cast<onnx::ParamOp>(builder.create(state));
    onnx::nodesAttr.set(param, nodes);
    onnx::whyAttr.set(param, "adapter");
    return param;
  }

  void addTo(onnx::NodeOp product, onnx::ParamOp a, onnx::ParamOp b, Type element) {
    OpBuilder builder(product);
    builder.setInsertionPointAfter(product);
    const Location loc = product.getLoc();
    const Type unknown = UnrankedTensorType::get(builder.getIndexType());
    auto constant = [&](Type type, Attribute value) -> Value {
      auto attribute = DenseElementsAttr::get(RankedTensorType::get({}, type), value);
      return onnx::ConstantOp::create(builder, loc, attribute.getType(), attribute).getY();
    };
    auto make = [&](StringRef op, int64_t version, StringRef suffix, ValueRange inputs, Type type) {
      return onnx::NodeOp::create(builder, loc, TypeRange{type}, inputs, op, "", version,
                                  (product.getNodeName() + suffix).str(), builder.getDictionaryAttr({}), 0);
    };
    auto read = [&](onnx::ParamOp param) -> Value {
      return onnx::ReadOp::create(builder, loc, param.getType(), FlatSymbolRefAttr::get(param.getSymNameAttr()))
          .getValue();
    };
    Value x = product.getInputs()[0];
    if (recipe.lora->dropout > 0) {
      Value ratio = constant(builder.getF32Type(), builder.getF32FloatAttr(static_cast<float>(recipe.lora->dropout)));
      Value isTraining = constant(builder.getI1Type(), builder.getBoolAttr(true));
      auto drop = make("Dropout", 13, "/lora_dropout", {x, ratio, isTraining}, unknown);
      onnx::adapterDropoutAttr.set(drop);
      x = drop.getOutputs()[0];
    }
    Value inner = make("MatMul", 13, "/lora_A", {x, read(a)}, unknown).getOutputs()[0];
    Value outer = make("MatMul", 13, "/lora_B", {inner, read(b)}, unknown).getOutputs()[0];
    // A Gemm's alpha multiplies the adapter too, as it would once they are added.
    auto alpha = dyn_cast_or_null<FloatAttr>(product.getOnnxAttributes().get("alpha"));
    const double scale =
        recipe.lora->alpha / static_cast<double>(recipe.lora->rank) * (alpha ? alpha.getValueAsDouble() : 1.0);
    Value factor = constant(element, builder.getFloatAttr(element, scale));
    Value scaled = make("Mul", 14, "/lora_scale", {outer, factor}, unknown).getOutputs()[0];
    Value whole = product.getOutputs()[0];
    auto sum = make("Add", 14, "/lora", {whole, scaled}, whole.getType());
    whole.replaceAllUsesExcept(sum.getOutputs()[0], sum);
  }
};

} // namespace

FailureOr<std::vector<Adapter>> findAdapters(ModuleOp module, const recipe::Recipe &recipe) {
  return AdapterFinder(module, recipe).run();
}

} // namespace cleave::training
