#include "compiler/padding/dimension_classes.h"
#include "compiler/padding/padding.h"
#include "compiler/training/step_function.h"
#include "dialects/onnx/attributes.h"
#include "dialects/onnx/formula.h"
#include "dialects/onnx/kinds.h"
#include "dialects/onnx/result_shape.h"
#include "llvm/ADT/MapVector.h"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <numeric>

using namespace mlir;
using cleave::dist::Factor;
using cleave::dist::Reduction;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;

namespace cleave::padding {
#define GEN_PASS_DEF_PADDIMENSIONS
#include "compiler/padding/Passes.h.inc"

namespace {

using Class = DimensionClasses::Class;
using Classes = DimensionClasses::Classes;
using Place = std::pair<int64_t, Class>; // a dimension of a tensor, and a class in it

// What a tensor holds at the padded entries of a class. All but the last pass through what keeps zeros, and a product
// is zero there if one operand is.
enum class Fill {
  Any,             // finite
  ZeroOfParameter, // as long as no gradient comes there: a parameter, and what is computed from it alone
  Zero,            // for good: no gradient passes from there to a parameter
  Lowest           // minus infinity, or the lowest integer: e^x is zero, and so is its gradient
};

bool isZero(Fill fill) { return fill == Fill::Zero || fill == Fill::ZeroOfParameter; }

// Of a sum, if all of its terms are zero there.
Fill sumOf(ArrayRef<Fill> terms) {
  if (!llvm::all_of(terms, isZero)) return Fill::Any;
  return llvm::is_contained(terms, Fill::ZeroOfParameter) ? Fill::ZeroOfParameter : Fill::Zero;
}
Fill productOf(ArrayRef<Fill> factors) {
  for (Fill zero : {Fill::Zero, Fill::ZeroOfParameter})
    if (llvm::is_contained(factors, zero)) return zero;
  return Fill::Any;
}

double lowestOf(Type element) {
  if (auto floating = dyn_cast<FloatType>(element))
    return llvm::APFloat::getLargest(floating.getFloatSemantics(), /*Negative=*/true).convertToDouble();
  const bool isSigned = !element.isInteger(1) && !element.isUnsignedInteger();
  return isSigned ? -std::ldexp(1.0, int(element.getIntOrFloatBitWidth()) - 1) : 0;
}
// Above what is there: of 64 bits a number that a double has.
double highestOf(Type element) {
  if (isa<FloatType>(element)) return -lowestOf(element);
  if (element.isInteger(64)) return std::ldexp(1.0, 62);
  return element.isInteger(1) ? 1 : -lowestOf(element) - 1;
}

// The value before views of it, and before changes of padded entries.
Value beneath(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (isa<onnx::WhereOp>(op))
      value = op->getOperand(1);
    else if (onnx::isView(op))
      value = op->getOperand(0);
    else
      break;
  }
  return value;
}
bool isPositive(Value value) { return onnx::repeatedNumber(value).value_or(0) > 0; }
// Above zero, whatever the entries are: a sum of exponentials, a square with an epsilon.
bool isAboveZero(Value value) {
  value = beneath(value);
  if (isPositive(value)) return true;
  Operation *op = value.getDefiningOp();
  if (auto sum = dyn_cast_if_present<onnx::ReduceSumOp>(op))
    return isa_and_present<onnx::ExpOp>(beneath(sum.getX()).getDefiningOp());
  return isa_and_present<onnx::AddOp, onnx::MaxOp>(op) && llvm::any_of(op->getOperands(), isPositive);
}
// x - max x
bool isBelowZero(Value value) {
  auto difference = beneath(value).getDefiningOp<onnx::SubOp>();
  return difference && beneath(difference.getB()).getDefiningOp<onnx::ReduceMaxOp>();
}

class Padder {
public:
  Padder(ModuleOp module, func::FuncOp model, const PadDimensionsOptions &options)
      : symbols(module), model(model), classes(model), builder(module.getContext()),
        f(builder, NameLoc::get(builder.getStringAttr("padding"))) {
    for (Operation &op : model.front())
      for (Value operand : op.getOperands())
        if (auto read = onnx::isHeavy(&op) ? beneath(operand).getDefiningOp<onnx::ReadOp>() : onnx::ReadOp())
          choose(read.getValue(), options.multiple, options.most, read.getParam());
    for (Value argument : model.getArguments()) choose(argument, options.multipleOfInputs, options.most, "");
  }
  bool isEmpty() const { return padded.empty(); }

  void run() {
    Block &body = model.front();
    SmallVector<Operation *> all;
    for (Operation &op : body) all.push_back(&op);
    builder.setInsertionPointToStart(&body);
    place::Stamp stamp(place::Phase::Forward);
    builder.setListener(&stamp);
    for (BlockArgument argument : model.getArguments()) padArgument(argument);
    for (Operation *op : all) {
      builder.setInsertionPoint(op);
      if (auto read = dyn_cast<onnx::ReadOp>(op))
        padParameter(read);
      else if (auto constant = dyn_cast<onnx::ConstantOp>(op))
        padConstant(constant);
      else if (op->hasTrait<OpTrait::IsTerminator>())
        cutResults(op);
      else if (classes.hasRule(op))
        pad(op);
    }
  }

  // "61 to 64 entries (embed.weight), 3 to 4 (attend.0.weight and 4 more)"
  std::string text() const {
    llvm::MapVector<std::pair<int64_t, int64_t>, std::pair<std::string, int>> alike; // its first parameter, and others
    for (auto [one, size] : padded) {
      auto &[first, more] = alike[{classes.size(one), size}];
      const auto name = nameOf.find(one);
      if (name == nameOf.end()) continue;
      first.empty() ? void(first = name->second) : void(++more);
    }
    std::vector<std::string> parts;
    for (const auto &[sizes, names] : alike) {
      const auto &[first, more] = names;
      parts.push_back(fmt::format("{} to {}{}", sizes.first, sizes.second, parts.empty() ? " entries" : ""));
      if (!first.empty()) parts.back() += fmt::format(" ({}{})", first, more ? fmt::format(" and {} more", more) : "");
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }

private:
  SymbolTable symbols;
  func::FuncOp model;
  DimensionClasses classes;
  OpBuilder builder;
  Formula f;
  llvm::MapVector<Class, int64_t> padded; // the sizes they get
  DenseMap<std::pair<Value, Place>, Fill> fills;
  DenseMap<Class, std::string> nameOf; // a parameter that has it

  // Of an input without a name: each of the blocks of a ring, half as many as `multiple`, keeps an entry that counts.
  void choose(Value value, int64_t multiple, double most, StringRef name) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    for (int64_t dim = 0; type && dim < type.getRank(); ++dim)
      for (Class one : classes.of(value, dim)) {
        const int64_t size = paddedSize(classes.size(one), multiple, most);
        if (classes.isFixed(one) || size == classes.size(one)) continue;
        if (name.empty() && (size - classes.size(one)) * multiple >= 2 * size) continue;
        padded.insert({one, size});
        if (!name.empty()) nameOf.try_emplace(one, name.str());
      }
  }

  Classes paddedOf(ArrayRef<Class> all) const {
    return Classes(llvm::make_filter_range(all, [&](Class one) { return padded.contains(one); }));
  }
  // Those of all of its dimensions.
  Classes paddedOf(Value value) const {
    Classes all;
    for (int64_t dim = 0; dim < tensorType(value).getRank(); ++dim)
      for (Class one : paddedOf(classes.of(value, dim)))
        if (!llvm::is_contained(all, one)) all.push_back(one);
    return all;
  }
  int64_t sizeOf(Class one) const {
    auto known = padded.find(one);
    return known == padded.end() ? classes.size(one) : known->second;
  }
  SmallVector<int64_t> shapeOf(ArrayRef<Class> all) const {
    SmallVector<int64_t> sizes;
    for (Class one : all) sizes.push_back(sizeOf(one));
    return sizes;
  }
  // Of a dimension with these classes, with padding and without.
  int64_t entries(ArrayRef<Class> all) const {
    return std::accumulate(all.begin(), all.end(), int64_t{1}, [&](int64_t n, Class one) { return n * sizeOf(one); });
  }
  int64_t realEntries(ArrayRef<Class> all) const {
    return std::accumulate(all.begin(), all.end(), int64_t{1},
                           [&](int64_t n, Class one) { return n * classes.size(one); });
  }
  SmallVector<int64_t> paddedShape(Value value) const {
    SmallVector<int64_t> shape;
    for (int64_t dim = 0; dim < tensorType(value).getRank(); ++dim) shape.push_back(entries(classes.of(value, dim)));
    return shape;
  }

  SmallVector<Place> placesOf(Value value) const {
    SmallVector<Place> places;
    for (int64_t dim = 0; dim < tensorType(value).getRank(); ++dim)
      for (Class one : paddedOf(classes.of(value, dim))) places.push_back({dim, one});
    return places;
  }
  // Of a factor of the operation in one of its tensors; none: the tensor does not have it.
  static std::optional<int64_t> dimOf(const dist::TensorFactors &tensor, int64_t factor) {
    for (auto [dim, own] : llvm::enumerate(tensor))
      if (llvm::is_contained(own, factor)) return int64_t(dim);
    return std::nullopt;
  }

  Fill fillOf(Value value, Place place) const {
    auto known = fills.find({value, place});
    return known == fills.end() ? Fill::Any : known->second;
  }
  void setFill(Value value, Fill fill) {
    for (Place place : placesOf(value)) fills[{value, place}] = fill;
  }

  // ---- where tensors come from

  void padArgument(BlockArgument argument) {
    if (!isa<RankedTensorType>(argument.getType()) || paddedOf(argument).empty()) return;
    const SmallVector<int64_t> shape = paddedShape(argument);
    const SmallVector<int64_t> none(shape.size(), 0);
    SmallVector<int64_t> more;
    for (auto [to, from] : llvm::zip_equal(shape, tensorType(argument).getShape())) more.push_back(to - from);
    Value whole = f.make<onnx::PadOp>(argument, none, more, none, APFloat(0.0));
    classes.setLike(whole, argument);
    setFill(whole, Fill::Zero);
    argument.replaceAllUsesExcept(whole, whole.getDefiningOp());
  }

  void padParameter(onnx::ReadOp read) {
    Value value = read.getValue();
    if (paddedOf(value).empty()) return;
    auto param = symbols.lookup<onnx::ParamOp>(read.getParam());
    auto stored = cast<RankedTensorType>(param.getType());
    const SmallVector<int64_t> shape = paddedShape(value);
    if (!onnx::storedShapeAttr.isOn(param)) {
      onnx::storedShapeAttr.set(param, SmallVector<int64_t>(stored.getShape()));
      param.setType(stored.clone(shape));
    }
    value.setType(stored.clone(shape));
    setFill(value, Fill::ZeroOfParameter);
  }

  void padConstant(onnx::ConstantOp constant) {
    Value value = constant.getY();
    if (paddedOf(value).empty()) return;
    auto data = cast<DenseElementsAttr>(constant.getValue());
    const SmallVector<int64_t> shape = paddedShape(value);
    if (data.isSplat()) {
      constant.setValueAttr(data.resizeSplat(tensorType(value).clone(shape)));
      value.setType(constant.getValue().getType());
      setFill(value, fillOfNumber(value));
      return;
    }
    // Its dimensions taken apart, the parts padded, and joined again.
    SmallVector<int64_t> parts, more;
    for (int64_t dim = 0; dim < tensorType(value).getRank(); ++dim)
      for (Class one : classes.of(value, dim)) {
        parts.push_back(classes.size(one));
        more.push_back(sizeOf(one) - classes.size(one));
      }
    builder.setInsertionPointAfter(constant);
    const SmallVector<int64_t> none(parts.size(), 0);
    Value apart = f.make<onnx::ReshapeOp>(value, parts);
    Value whole = f.make<onnx::PadOp>(apart, none, more, none, APFloat(0.0));
    Value joined = f.make<onnx::ReshapeOp>(whole, shape);
    classes.setLike(joined, value);
    setFill(joined, Fill::Zero);
    value.replaceAllUsesExcept(joined, apart.getDefiningOp());
  }

  static Fill fillOfNumber(Value value) { return onnx::repeatedNumber(value) == 0.0 ? Fill::Zero : Fill::Any; }

  // ---- operations

  void pad(Operation *op) {
    prepare(op);
    if (auto random = dyn_cast<onnx::RandomUniformOp>(op); random && !paddedOf(random.getY()).empty())
      random.setGlobalShape(SmallVector<int64_t>(tensorType(random.getY()).getShape())); // numbers go by it
    if (auto gather = dyn_cast<onnx::GatherOp>(op)) setRows(gather, classes.of(gather.getTable(), gather.getAxis()));
    if (auto scatter = dyn_cast<onnx::ScatterAddOp>(op))
      setRows(scatter, classes.of(scatter.getY(), scatter.getAxis()));
    if (auto product = dyn_cast<onnx::GroupedContractOp>(op)) {
      const Classes groups = classes.ofFactor(op, groupFactor(product));
      if (!paddedOf(groups).empty()) product.setGlobalGroups(product.getGroupCount());
      product.setGroupCount(entries(groups));
    }
    for (OpResult result : op->getResults()) {
      if (paddedOf(result).empty()) continue;
      const SmallVector<int64_t> shape = paddedShape(result);
      if (result.getResultNumber() == 0) onnx::setResultShape(op, shape);
      result.setType(tensorType(result).clone(shape));
      for (auto [dim, factors] : llvm::enumerate(classes.ruleOf(op).results[result.getResultNumber()]))
        for (int64_t factor : factors)
          for (Class one : paddedOf(classes.ofFactor(op, factor)))
            fills[{result, Place(dim, one)}] = fillAfter(op, factor, one);
    }
  }
  template <typename Op> void setRows(Op op, const Classes &rows) {
    if (paddedOf(rows).empty()) return;
    op.setGlobalRows(realEntries(rows));
  }
  int64_t groupFactor(onnx::GroupedContractOp op) const {
    const dist::FactorRule &rule = classes.ruleOf(op);
    const auto &tensor = op.sumsRows() ? rule.results[0] : rule.operands[1];
    ArrayRef<int64_t> indices = op.sumsRows() ? op.getResultIndices() : op.getRhsIndices();
    return tensor[size_t(llvm::find(indices, int64_t(op.getGroupIndex())) - indices.begin())].front();
  }

  // Where a factor is reduced, the operands get its neutral element at padded entries; what has no number for all
  // operands gets one that it has.
  void prepare(Operation *op) {
    const dist::FactorRule &rule = classes.ruleOf(op);
    for (auto [number, factor] : llvm::enumerate(rule.factors)) {
      if (factor.kind != Factor::Reduced || isLookedUp(op, int64_t(number))) continue;
      for (Class one : paddedOf(classes.ofFactor(op, int64_t(number)))) reduce(op, int64_t(number), one);
    }
    for (OpOperand &operand : op->getOpOperands())
      for (Place place : placesOf(operand.get()))
        if (fillOf(operand.get(), place) == Fill::Lowest && !keepsLowest(operand, place))
          put(operand, place, 0, Fill::Zero);
    auto give = [&](unsigned operand, double number, auto isSafe) {
      OpOperand &use = op->getOpOperand(operand);
      if (isSafe(use.get())) return;
      for (Place place : placesOf(use.get()))
        if (number != 0 || fillOf(use.get(), place) == Fill::Any)
          put(use, place, number, number == 0 ? Fill::Zero : Fill::Any);
    };
    if (isa<onnx::LogOp, onnx::SqrtOp, onnx::RsqrtOp, onnx::ReciprocalOp, onnx::PowOp>(op)) give(0, 1, isAboveZero);
    if (isa<onnx::DivOp, onnx::ModOp>(op)) give(1, 1, isAboveZero);
    if (isa<onnx::ExpOp>(op)) give(0, 0, isBelowZero);
    if (isa<onnx::Log1pOp>(op)) give(0, 0, [](Value) { return false; });
    const auto isInTable = [&](Value indices) { // there is a row 0
      return llvm::all_of(placesOf(indices), [&](Place place) { return fillOf(indices, place) == Fill::Zero; });
    };
    if (isa<onnx::GatherOp>(op)) give(1, 0, isInTable);
    if (isa<onnx::ScatterAddOp>(op)) give(0, 0, isInTable);
    if (isa<onnx::GroupedContractOp>(op)) give(2, 0, isInTable);
  }

  // The rows of a table are not summed, though a rule calls them so: one of them is taken.
  bool isLookedUp(Operation *op, int64_t factor) const {
    if (auto gather = dyn_cast<onnx::GatherOp>(op))
      return classes.ruleOf(op).operands[0][size_t(gather.getAxis())].front() == factor;
    auto product = dyn_cast<onnx::GroupedContractOp>(op);
    return product && groupFactor(product) == factor;
  }

  void reduce(Operation *op, int64_t factor, Class one) {
    SmallVector<std::pair<OpOperand *, Place>> having;
    for (auto [operand, dims] : llvm::zip_equal(op->getOpOperands(), classes.ruleOf(op).operands))
      if (auto dim = dimOf(dims, factor);
          dim && (onnx::isFloatTensor(operand.get()) || !isa<onnx::GroupedContractOp>(op)))
        having.push_back({&operand, Place(*dim, one)});
    auto of = [&](std::pair<OpOperand *, Place> operand) { return fillOf(operand.first->get(), operand.second); };
    if (isa<onnx::ReduceMaxOp, onnx::ReduceMinOp>(op)) {
      const bool isMax = isa<onnx::ReduceMaxOp>(op);
      OpOperand &x = *having.front().first;
      const Type element = tensorType(x.get()).getElementType();
      if (isMax && of(having.front()) == Fill::Lowest) return;
      Value before = x.get();
      // Below a mask's finite numbers, too: where one masks a whole row, a softmax still leaves padded entries out.
      const double lowest = isa<FloatType>(element) ? -std::numeric_limits<double>::infinity() : lowestOf(element);
      put(x, having.front().second, isMax ? lowest : highestOf(element), isMax ? Fill::Lowest : Fill::Any);
      // A softmax subtracts the maximum from the same numbers.
      if (isMax)
        before.replaceUsesWithIf(x.get(), [&](OpOperand &use) {
          return isa<onnx::SubOp>(use.getOwner()) && use.getOperandNumber() == 0 && op->isBeforeInBlock(use.getOwner());
        });
      return;
    }
    if (having.size() == 1) {
      if (of(having.front()) != Fill::Zero) put(*having.front().first, having.front().second, 0, Fill::Zero);
      return;
    }
    // A product. Zero for good in one operand is enough: its gradient does not pass, and the other's is made from it.
    if (llvm::any_of(having, [&](auto operand) { return of(operand) == Fill::Zero; })) return;
    if (llvm::all_of(having, [&](auto operand) { return of(operand) == Fill::ZeroOfParameter; })) return;
    for (auto operand : having)
      if (of(operand) != Fill::ZeroOfParameter) return put(*operand.first, operand.second, 0, Fill::Zero);
  }

  // `number` at the padded entries.
  void put(OpOperand &operand, Place place, double number, Fill fill) {
    Value value = operand.get();
    const auto [dim, one] = place;
    const Classes all = classes.of(value, dim);
    auto type = RankedTensorType::get(shapeOf(all), builder.getI64Type());
    Value index = f.make<onnx::IotaOp>(type, llvm::find(all, one) - all.begin(), ArrayAttr());
    Value isReal = f.make<onnx::LessOp>(index, f.like(index, double(classes.size(one))));
    if (all.size() > 1) isReal = f.make<onnx::ReshapeOp>(isReal, tensorType(value).getDimSize(dim));
    isReal = f.make<onnx::BroadcastOp>(isReal, tensorType(value).getShape(), dim);
    Value with = f.where(isReal, value, f.like(value, number));
    classes.setLike(with, value);
    for (Place other : placesOf(value)) {
      const Fill before = fillOf(value, other); // may not hold where both are padded
      fills[{with, other}] = before == fill || (isZero(before) && isZero(fill)) ? before : Fill::Any;
    }
    fills[{with, place}] = fill;
    operand.set(with);
  }

  // Whether what reads the lowest number stays finite, and its gradient zero.
  bool keepsLowest(OpOperand &operand, Place place) const {
    Operation *op = operand.getOwner();
    const unsigned number = operand.getOperandNumber();
    auto isLowest = [&](unsigned other) { return fillOf(op->getOperand(other), place) == Fill::Lowest; };
    if (isa<onnx::SubOp>(op)) return number == 0 && !isLowest(1);
    if (isa<onnx::AddOp>(op)) return !isLowest(1 - number);
    if (isa<onnx::WhereOp>(op)) return isLowest(1) && isLowest(2);
    return onnx::isView(op) || isa<onnx::ExpOp, onnx::ReduceMaxOp, onnx::CastOp, onnx::EqualOp, onnx::LessOp,
                                   onnx::GreaterOp, onnx::LessOrEqualOp, onnx::GreaterOrEqualOp>(op);
  }

  // Of the operation's result where this factor is padded, from its operands'.
  Fill fillAfter(Operation *op, int64_t factor, Class one) const {
    SmallVector<Fill> of;
    for (auto [operand, dims] : llvm::zip_equal(op->getOperands(), classes.ruleOf(op).operands)) {
      const bool isFactor = !isa<onnx::GroupedContractOp>(op) || onnx::isFloatTensor(operand);
      if (auto dim = dimOf(dims, factor); dim && isFactor) of.push_back(fillOf(operand, Place(*dim, one)));
    }
    if (auto pad = dyn_cast<onnx::PadOp>(op); pad && !pad.getValue().isZero()) return Fill::Any;
    if (of.empty()) return isa<onnx::BroadcastOp>(op) ? fillOfNumber(op->getOperand(0)) : Fill::Any;
    if (isa<onnx::ScatterAddOp>(op)) return Fill::Any;
    if (isa<onnx::GatherOp>(op)) return dimOf(classes.ruleOf(op).operands[0], factor) ? of.front() : Fill::Any;
    if (onnx::isView(op)) return of.front();
    if (isa<onnx::CastOp>(op))
      return isZero(of.front()) || onnx::isFloatTensor(op->getOperand(0)) ? of.front() : Fill::Any;
    if (onnx::isHeavy(op) || isa<onnx::MulOp>(op)) return productOf(of);
    if (isa<onnx::ExpOp>(op)) return of.front() == Fill::Lowest ? Fill::Zero : Fill::Any;
    if (isa<onnx::DivOp>(op)) return isZero(of.front()) ? of.front() : Fill::Any;
    if (isa<onnx::ReduceMaxOp>(op)) return of.front();
    if (isa<onnx::SubOp, onnx::AddOp>(op) && llvm::is_contained(of, Fill::Lowest)) return Fill::Lowest;
    if (isa<onnx::WhereOp>(op)) {
      of.erase(of.begin()); // the condition
      return of.front() == of.back() ? of.front() : sumOf(of);
    }
    const bool keepsZero =
        isa<onnx::AddOp, onnx::SubOp, onnx::SumOp, onnx::MaxOp, onnx::MinOp, onnx::NegOp, onnx::AbsOp, onnx::SignOp,
            onnx::TanhOp, onnx::ErfOp, onnx::SinOp, onnx::FloorOp, onnx::CeilOp, onnx::RoundOp, onnx::ReluOp,
            onnx::ReduceSumOp, onnx::ReduceMinOp, onnx::ConcatOp, onnx::PadOp>(op);
    return keepsZero ? sumOf(of) : Fill::Any;
  }

  // The model's results are those of the sizes that it was exported with.
  void cutResults(Operation *end) {
    for (OpOperand &operand : end->getOpOperands()) {
      Value value = operand.get();
      if (paddedOf(value).empty()) continue;
      SmallVector<int64_t> sizes;
      for (int64_t dim = 0; dim < tensorType(value).getRank(); ++dim)
        sizes.push_back(realEntries(classes.of(value, dim)));
      operand.set(f.make<onnx::SliceOp>(value, SmallVector<int64_t>(sizes.size(), 0), sizes,
                                        SmallVector<int64_t>(sizes.size(), 1)));
    }
  }
};

struct PadDimensions : impl::PadDimensionsBase<PadDimensions> {
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp model = training::findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    if (multiple < 2 && multipleOfInputs < 2) return;
    takeApartConstants(model);
    Padder padder(getOperation(), model, {multiple, multipleOfInputs, most});
    if (padder.isEmpty()) return;
    onnx::paddingAttr.set(getOperation(), padder.text());
    padder.run();
  }

  // A constant that two operations read says nothing of them.
  static void takeApartConstants(func::FuncOp model) {
    for (Operation &op : llvm::make_early_inc_range(model.front())) {
      if (!isa<onnx::ConstantOp, onnx::IotaOp>(op)) continue;
      for (OpOperand &use : llvm::make_early_inc_range(llvm::drop_begin(op.getUses()))) {
        OpBuilder builder(&op);
        use.set(builder.clone(op)->getResult(0));
      }
    }
  }
};

} // namespace

int64_t paddedSize(int64_t size, int64_t multiple, double most) {
  for (int64_t whole = multiple; whole > 1 && size % whole; whole = whole % 2 ? 1 : whole / 2) {
    const int64_t larger = (size + whole - 1) / whole * whole;
    if (double(larger - size) <= most * double(size)) return larger;
  }
  return size;
}

} // namespace cleave::padding
