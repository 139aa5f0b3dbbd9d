#include "test/unit/partition/random_program.h"
#include "compiler/partition/layouts.h"
#include <numeric>

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
namespace {

using Shape = SmallVector<int64_t>;

class Generator {
public:
  Generator(MLIRContext &context, const ProgramOptions &options, std::mt19937 &random)
      : options(options), random(random), builder(&context), loc(NameLoc::get(builder.getStringAttr("program"))),
        real(builder.getF32Type()) {}

  OwningOpRef<ModuleOp> run() {
    OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
    dist::meshAttr.set(*module, MeshAttr::get(builder.getContext(), options.mesh));
    dist::zeroAxesAttr.set(*module, AxesAttr::get(builder.getContext(), someAxes()));
    dist::batchAxesAttr.set(*module, AxesAttr::get(builder.getContext(), someAxes()));
    moduleBody = module->getBody();
    for (int i = 0; i < 4; ++i) addParameter(randomShape());
    builder.setInsertionPointToEnd(moduleBody);

    SmallVector<Type> arguments;
    for (int i = 0; i < 3; ++i) arguments.push_back(RankedTensorType::get(randomShape(), real));
    arguments.push_back(RankedTensorType::get({4}, builder.getI64Type()));
    arguments.push_back(RankedTensorType::get({2, 6}, builder.getI64Type()));
    arguments.push_back(RankedTensorType::get({2}, builder.getI64Type()));
    function = func::FuncOp::create(builder, loc, "final", builder.getFunctionType(arguments, {}));
    Block *body = function.addEntryBlock();
    for (BlockArgument argument : body->getArguments()) {
      if (isReal(argument)) values.push_back(argument);
      unsigned number = argument.getArgNumber();
      if (number == 5)
        onnx::hostAttr.setArg(function, number, "step");
      else if (chance(0.4))
        dist::layoutAttr.setArg(function, number,
                                ShardingAttr::get(builder.getContext(), randomLayout(shapeOf(argument))));
    }
    indices = {body->getArgument(3), body->getArgument(4)};
    key = body->getArgument(5);
    builder.setInsertionPointToEnd(body);
    for (auto param : moduleBody->getOps<onnx::ParamOp>()) values.push_back(read(param));

    for (int i = 0; i < options.operations; ++i) {
      phase = i < options.operations / 2       ? Phase::Forward
              : i < options.operations * 3 / 4 ? Phase::Backward
                                               : Phase::Update;
      addOperation();
    }
    phase = Phase::Update;
    finish();
    return module;
  }

private:
  // --- random choices
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random); }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random) < p; }
  template <typename T> T oneOf(ArrayRef<T> items) { return items[below(static_cast<int64_t>(items.size()))]; }

  Shape randomShape() {
    Shape shape;
    for (int64_t rank = 1 + below(3); rank > 0; --rank) shape.push_back(oneOf<int64_t>({2, 4, 4, 6, 8, 3, 12}));
    return shape;
  }
  Axes someAxes() {
    Axes axes;
    for (const MeshAxis &axis : options.mesh.axes)
      if (chance(0.5)) axes.push_back(axis.name);
    return axes;
  }
  Axes shuffledAxes() {
    Axes axes;
    for (const MeshAxis &axis : options.mesh.axes) axes.push_back(axis.name);
    std::shuffle(axes.begin(), axes.end(), random);
    return axes;
  }
  Sharding randomLayout(ArrayRef<int64_t> shape) {
    Sharding layout = Sharding::replicated(shape.size());
    for (const std::string &axis : shuffledAxes())
      if (!shape.empty() && chance(0.7)) layout.dims[below(static_cast<int64_t>(shape.size()))].push_back(axis);
    return fitted(options.mesh, layout, shape);
  }
  Value pick() {
    // Recent values more often, so that chains grow.
    size_t recent = std::min<size_t>(values.size(), 6);
    return chance(0.6) ? values[values.size() - 1 - below(static_cast<int64_t>(recent))] : oneOf<Value>(values);
  }
  Value pickLike(Value like) {
    SmallVector<Value> fitting;
    for (Value value : values)
      if (value.getType() == like.getType()) fitting.push_back(value);
    Value chosen = fitting.empty() ? like : oneOf<Value>(fitting);
    return chance(0.25) ? partialSum(chosen) : chosen;
  }
  bool isReal(Value value) { return cast<RankedTensorType>(value.getType()).getElementType() == real; }
  static int64_t count(ArrayRef<int64_t> shape) {
    int64_t n = 1;
    for (int64_t size : shape) n *= size;
    return n;
  }

  // --- building
  template <typename Op, typename... Args> Value make(Args &&...args) {
    auto op = Op::create(builder, loc, std::forward<Args>(args)...);
    decorate(op);
    return op->getResult(0);
  }
  void decorate(Operation *op) {
    place::setPhase(op, phase);
    if (phase != Phase::Forward || !options.decided || chance(0.3)) return;
    FactorRule rule = cast<onnx::FactorRuleOpInterface>(op).getFactorRule();
    FactorSharding split(rule.factors.size());
    for (const std::string &axis : shuffledAxes())
      if (!split.empty() && chance(0.8)) split[below(static_cast<int64_t>(split.size()))].push_back(axis);
    dist::factorsAttr.set(op, FactorsAttr::get(builder.getContext(), split, chance(0.5) ? someAxes() : Axes()));
  }
  onnx::ParamOp addParameter(Shape shape) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(moduleBody);
    std::string name = "p" + std::to_string(parameters++);
    auto type = RankedTensorType::get(shape, real);
    OperationState state(loc, onnx::ParamOp::getOperationName());
    state.addAttribute("sym_name", builder.getStringAttr(name));
    state.addAttribute("type", TypeAttr::get(type));
    state.addAttribute("role", builder.getStringAttr("parameter"));
    state.addAttribute("trainable", builder.getBoolAttr(true));
    Sharding home = randomLayout(shape);
    state.addAttribute("sharding", ShardingAttr::get(builder.getContext(), home));
    auto param = cast<onnx::ParamOp>(builder.create(state));
    if (chance(0.5)) dist::updateShardingAttr.set(param, ShardingAttr::get(builder.getContext(), randomLayout(shape)));
    return param;
  }
  Value read(onnx::ParamOp param) {
    auto op = onnx::ReadOp::create(builder, loc, param.getType(), param.getSymName());
    return op.getValue();
  }
  Value constant(Shape shape, bool splat) {
    auto type = RankedTensorType::get(shape, real);
    SmallVector<float> numbers(splat ? 1 : count(shape));
    for (float &number : numbers) number = static_cast<float>(below(200)) / 100 - 1;
    if (splat && chance(0.3)) numbers[0] = 0;
    return make<onnx::ConstantOp>(DenseElementsAttr::get(type, ArrayRef<float>(numbers)));
  }

  void addOperation() {
    Value result = build(static_cast<int>(below(25)));
    if (result && isReal(result) && count(shapeOf(result)) <= 6000) values.push_back(result);
  }

  // `like` plus a random number, as the sum along a new dimension that an axis splits: a partial sum that has one use.
  Value partialSum(Value like) {
    Shape shape = shapeOf(like), wide = shape;
    if (options.mesh.axes.empty() || count(shape) > 500) return like;
    const MeshAxis &axis = options.mesh.axes[below(static_cast<int64_t>(options.mesh.axes.size()))];
    wide.insert(wide.begin(), 2 * axis.size);
    SmallVector<int64_t> dims;
    for (size_t d = 1; d < wide.size(); ++d) dims.push_back(static_cast<int64_t>(d));
    auto type = TypeAttr::get(RankedTensorType::get(wide, real));
    Value noise =
        make<onnx::RandomUniformOp>(key, type, builder.getI64IntegerAttr(below(9)), DenseI64ArrayAttr(), ArrayAttr());
    Value sum = make<onnx::AddOp>(make<onnx::BroadcastOp>(like, wide, dims), noise);
    Value result = make<onnx::ReduceSumOp>(sum, SmallVector<int64_t>{0});
    FactorSharding split(wide.size());
    split[0] = {axis.name};
    dist::factorsAttr.set(result.getDefiningOp(), FactorsAttr::get(builder.getContext(), split));
    return result;
  }

  Value build(int kind) {
    Value x = pick();
    if (chance(0.35)) x = partialSum(x);
    Shape shape = shapeOf(x);
    int64_t rank = static_cast<int64_t>(shape.size());
    int64_t dim = rank ? below(rank) : 0;
    switch (kind) {
    case 0:
      return oneOfUnary(x);
    case 1:
    case 2:
      return oneOfBinary(x, pickLike(x));
    case 3:
      return make<onnx::SumOp>(ValueRange{x, pickLike(x), pickLike(x)});
    case 4: {
      SmallVector<int64_t> perm(rank);
      std::iota(perm.begin(), perm.end(), 0);
      std::shuffle(perm.begin(), perm.end(), random);
      return make<onnx::TransposeOp>(x, perm);
    }
    case 5:
      return make<onnx::ReshapeOp>(x, reshaped(shape));
    case 6: {
      if (count(shape) > 500) return {};
      Shape wide = shape;
      int64_t at = below(rank + 1);
      wide.insert(wide.begin() + at, oneOf<int64_t>({2, 4, 8}));
      SmallVector<int64_t> dims;
      for (int64_t d = 0; d < rank + 1; ++d)
        if (d != at) dims.push_back(d);
      return make<onnx::BroadcastOp>(x, wide, dims);
    }
    case 7: {
      if (!rank || shape[dim] < 3) return {};
      SmallVector<int64_t> starts(rank, 0), sizes(shape), steps(rank, 1);
      starts[dim] = below(2);
      steps[dim] = 1 + below(2);
      sizes[dim] = (shape[dim] - starts[dim] + steps[dim] - 1) / steps[dim];
      return make<onnx::SliceOp>(x, starts, sizes, steps);
    }
    case 8: {
      if (!rank) return {};
      SmallVector<int64_t> low(rank, 0), high(rank, 0), interior(rank, 0);
      low[dim] = below(3);
      high[dim] = 1 + below(2);
      interior[dim] = below(2);
      return make<onnx::PadOp>(x, low, high, interior, APFloat(chance(0.5) ? 0.0 : 0.5));
    }
    case 9:
      return rank ? make<onnx::ConcatOp>(ValueRange{x, pickLike(x)}, dim) : Value();
    case 10:
    case 11:
      return rank ? make<onnx::ReduceSumOp>(x, someDims(rank)) : Value();
    case 12:
      return rank ? make<onnx::ReduceMaxOp>(x, someDims(rank)) : Value();
    case 13:
      return rank ? make<onnx::ReduceMinOp>(x, someDims(rank)) : Value();
    case 14:
    case 15:
    case 16:
      return contract(x, chance(0.3) ? partialSum(pick()) : pick());
    case 17:
      return rank && shape[dim] > 1 ? make<onnx::GatherOp>(x, oneOf<Value>(indices), dim, ArrayAttr(), IntegerAttr())
                                    : Value();
    case 18:
      return rank && shape[dim] > 1 ? scatter(x, dim) : Value();
    case 19:
      return rank ? cumulative(x, dim) : Value();
    case 20:
      return constant(shape, chance(0.5));
    case 24:
      return rank > 1 && shape[dim] > 1 && shape[dim] <= 8 ? grouped(x, dim) : Value();
    case 21: {
      if (!rank) return {};
      auto type = TypeAttr::get(x.getType());
      if (chance(0.5)) return make<onnx::IotaOp>(type, builder.getI64IntegerAttr(dim), ArrayAttr());
      return make<onnx::RandomUniformOp>(key, type, builder.getI64IntegerAttr(below(5)), DenseI64ArrayAttr(),
                                         ArrayAttr());
    }
    case 22: {
      // Compared with constants only: equal values must be equal however they were summed.
      Value condition = make<onnx::LessOp>(constant(shape, false), constant(shape, true));
      Value other = chance(0.5) ? constant(shape, true) : pickLike(x);
      return chance(0.5) ? make<onnx::WhereOp>(condition, x, other) : make<onnx::WhereOp>(condition, other, x);
    }
    default:
      return image(x);
    }
  }

  Value oneOfUnary(Value x) {
    switch (below(7)) {
    case 0:
      return make<onnx::NegOp>(x);
    case 1:
      return make<onnx::TanhOp>(x);
    case 2:
      return make<onnx::SigmoidOp>(x);
    case 3:
      return make<onnx::ReluOp>(x);
    case 4:
      return make<onnx::AbsOp>(x);
    case 5:
      return make<onnx::StopGradientOp>(x);
    default:
      return make<onnx::SinOp>(x);
    }
  }
  Value oneOfBinary(Value a, Value b) {
    switch (below(6)) {
    case 0:
    case 1:
      return make<onnx::AddOp>(a, b);
    case 2:
      return make<onnx::SubOp>(a, b);
    case 3:
      return make<onnx::MulOp>(a, b);
    case 4:
      return make<onnx::MaxOp>(a, b);
    default: {
      // Never near zero, as a partial sum neither: what partialSum adds is positive.
      Value divisor = make<onnx::AddOp>(make<onnx::AbsOp>(b), one(b));
      return make<onnx::DivOp>(a, chance(0.4) ? partialSum(divisor) : divisor);
    }
    }
  }
  Value one(Value like) {
    return make<onnx::ConstantOp>(DenseElementsAttr::get(cast<RankedTensorType>(like.getType()), 1.0f));
  }
  Shape reshaped(Shape shape) {
    int64_t rank = static_cast<int64_t>(shape.size());
    if (rank >= 2 && chance(0.4)) { // merge two neighbours
      int64_t at = below(rank - 1);
      shape[at] *= shape[at + 1];
      shape.erase(shape.begin() + at + 1);
    } else if (rank && chance(0.6)) { // split one
      int64_t at = below(rank);
      for (int64_t factor : {2, 3, 4})
        if (shape[at] % factor == 0 && chance(0.6)) {
          shape[at] /= factor;
          shape.insert(shape.begin() + at, factor);
          break;
        }
    } else { // anything with the same number of elements
      int64_t total = count(shape);
      shape.clear();
      for (int64_t factor : {4, 3, 2})
        if (total % factor == 0 && total > 1) {
          shape.push_back(factor);
          total /= factor;
        }
      shape.push_back(total);
      std::shuffle(shape.begin(), shape.end(), random);
    }
    return shape;
  }
  SmallVector<int64_t> someDims(int64_t rank) {
    SmallVector<int64_t> dims;
    for (int64_t d = 0; d < rank; ++d)
      if (chance(0.5)) dims.push_back(d);
    if (dims.empty()) dims.push_back(below(rank));
    return dims;
  }
  Value contract(Value lhs, Value rhs) {
    Shape a = shapeOf(lhs), b = shapeOf(rhs);
    SmallVector<int64_t> lhsLetters, rhsLetters, result;
    Shape sizes;
    int64_t next = 0, elements = 1;
    for (size_t d = 0; d < a.size(); ++d) lhsLetters.push_back(next++);
    SmallVector<bool> shared(a.size(), false);
    for (int64_t size : b) {
      int64_t letter = -1;
      for (size_t d = 0; d < a.size() && letter < 0; ++d)
        if (a[d] == size && !shared[d] && chance(0.7)) {
          letter = static_cast<int64_t>(d);
          shared[d] = true;
        }
      if (letter < 0 || !chance(0.4)) {
        if (letter < 0)
          letter = next++;
        else {
          rhsLetters.push_back(letter);
          continue;
        } // contracted
      }
      rhsLetters.push_back(letter);
      result.push_back(letter);
      elements *= size;
    }
    for (size_t d = 0; d < a.size(); ++d)
      if (!shared[d]) {
        result.push_back(static_cast<int64_t>(d));
        elements *= a[d];
      }
    if (elements > 2000 || result.size() > 4) return {};
    std::shuffle(result.begin(), result.end(), random);
    return make<onnx::ContractOp>(lhs, rhs, lhsLetters, rhsLetters, result);
  }
  // Rows looked up along a dimension, times the matrices of as many groups as that has entries; or the sums of products
  // of such rows over each group.
  Value grouped(Value x, int64_t dim) {
    Value index = oneOf<Value>(indices);
    const int64_t group = 20, column = 21, groups = shapeOf(x)[dim];
    Value lhs = make<onnx::GatherOp>(x, index, dim, ArrayAttr(), IntegerAttr());
    const int64_t lookups = static_cast<int64_t>(shapeOf(index).size());
    SmallVector<int64_t> lhsLetters, rows, summed;
    Shape matrix{groups};
    for (int64_t d = 0, rank = static_cast<int64_t>(shapeOf(lhs).size()); d < rank; ++d) {
      lhsLetters.push_back(d);
      if (d >= dim && d < dim + lookups) {
        rows.push_back(d);
      } else {
        summed.push_back(d);
        matrix.push_back(shapeOf(lhs)[d]);
      }
    }
    matrix.push_back(4);
    if (count(matrix) > 2000 || count(shapeOf(lhs)) > 2000) return {};
    auto product = [&](Value rhs, SmallVector<int64_t> rhsLetters, SmallVector<int64_t> result) {
      std::shuffle(result.begin(), result.end(), random);
      return make<onnx::GroupedContractOp>(lhs, rhs, index, lhsLetters, rhsLetters, rows, result, group, groups,
                                           ArrayAttr(), IntegerAttr());
    };
    SmallVector<int64_t> matrixLetters{group}, rowLetters(rows);
    matrixLetters.append(summed);
    for (auto *letters : {&matrixLetters, &rowLetters}) letters->push_back(column);
    Value y = product(constant(matrix, false), matrixLetters, rowLetters);
    if (chance(0.5)) return y;
    SmallVector<int64_t> order; // of the letters in y
    for (int64_t letter : cast<onnx::GroupedContractOp>(y.getDefiningOp()).getResultIndices()) order.push_back(letter);
    return product(chance(0.5) ? y : make<onnx::SinOp>(y), order, matrixLetters);
  }
  Value scatter(Value x, int64_t dim) {
    Value index = oneOf<Value>(indices);
    Value updates = make<onnx::GatherOp>(x, index, dim, ArrayAttr(), IntegerAttr());
    if (chance(0.5)) updates = make<onnx::SinOp>(updates);
    int64_t rows = shapeOf(x)[dim];
    return make<onnx::ScatterAddOp>(index, updates, dim, rows, ArrayAttr(), IntegerAttr());
  }
  Value cumulative(Value x, int64_t dim) {
    UnitAttr yes = builder.getUnitAttr(), no;
    return make<onnx::CumSumOp>(x, builder.getI64IntegerAttr(dim), chance(0.5) ? yes : no, chance(0.5) ? yes : no);
  }

  // Convolutions and pools on a value viewed as [N, C, H, W].
  Value image(Value x) {
    int64_t total = count(shapeOf(x));
    if (total % 16 != 0 || total > 2000) return {};
    int64_t n = oneOf<int64_t>({2, 4}), c = total % (n * 16) == 0 ? 4 : 2;
    if (total % (n * c * 2) != 0) return {};
    Shape shape = {n, c, 2, total / (n * c * 2)};
    Value image = make<onnx::ReshapeOp>(x, shape);
    auto dense = [&](std::initializer_list<int64_t> list) { return builder.getDenseI64ArrayAttr(list); };
    DenseI64ArrayAttr ones = dense({1, 1}), zeros = dense({0, 0}), twos = dense({2, 2});
    if (below(2) == 0) {
      int64_t groups = oneOf<int64_t>({1, 2, c});
      Value w = constant({groups * oneOf<int64_t>({1, 2, 4}), c / groups, 3, 1}, false);
      auto begin = dense({1, 0}), end = dense({1, 0});
      auto g = builder.getI64IntegerAttr(groups);
      Value y = make<onnx::ConvOp>(image, w, ones, begin, end, ones, g);
      Value dy = chance(0.5) ? y : make<onnx::SinOp>(y);
      switch (below(3)) {
      case 0:
        return y;
      case 1:
        return make<onnx::ConvGradInputOp>(dy, w, builder.getDenseI64ArrayAttr(shape), ones, begin, end, ones, g);
      default:
        return make<onnx::ConvGradWeightOp>(image, dy, builder.getDenseI64ArrayAttr(shapeOf(w)), ones, begin, end, ones,
                                            g);
      }
    }
    if (shape[3] < 2) return {};
    auto include = builder.getBoolAttr(true);
    // Distinct values: a maximum must not be a tie that rounding decides.
    if (chance(0.5)) {
      Value y = make<onnx::AveragePoolOp>(image, twos, ones, zeros, zeros, ones, include);
      return chance(0.5) ? y
                         : make<onnx::AveragePoolGradOp>(y, builder.getDenseI64ArrayAttr(shape), twos, ones, zeros,
                                                         zeros, ones, include);
    }
    Value distinct = make<onnx::ReshapeOp>(function.getArgument(0), Shape(shapeOf(function.getArgument(0))));
    if (count(shapeOf(distinct)) != total) return make<onnx::MaxPoolOp>(image, twos, ones, zeros, zeros, ones);
    Value source = make<onnx::ReshapeOp>(distinct, shape);
    Value y = make<onnx::MaxPoolOp>(source, twos, ones, zeros, zeros, ones);
    return make<onnx::MaxPoolGradOp>(source, y, twos, ones, zeros, zeros, ones);
  }

  // Every parameter is written once from a value of its shape; two values are returned.
  void finish() {
    for (auto param : moduleBody->getOps<onnx::ParamOp>()) {
      Value value;
      for (Value candidate : llvm::reverse(values))
        if (candidate.getType() == param.getType()) {
          value = candidate;
          break;
        }
      Value old = read(param);
      if (chance(0.7)) value = make<onnx::SubOp>(old, make<onnx::MulOp>(value, constant(shapeOf(value), true)));
      auto write = onnx::WriteOp::create(builder, loc, param.getSymName(), value);
      place::setPhase(write, phase);
    }
    // Every value that nothing reads is returned: what is computed is also compared.
    SmallVector<Value> results = {values.back(), pick(), pick()};
    for (Value value : values)
      if (value.use_empty() && value != values.back()) results.push_back(value);
    func::ReturnOp::create(builder, loc, results);
    SmallVector<Type> types;
    for (Value result : results) types.push_back(result.getType());
    function.setType(builder.getFunctionType(function.getArgumentTypes(), types));
  }

  const ProgramOptions &options;
  std::mt19937 &random;
  OpBuilder builder;
  Location loc;
  Type real;
  Block *moduleBody = nullptr;
  func::FuncOp function;
  std::vector<Value> values;
  SmallVector<Value> indices;
  Value key;
  Phase phase = Phase::Forward;
  int parameters = 0;
};

} // namespace

OwningOpRef<ModuleOp> randomProgram(MLIRContext &context, const ProgramOptions &options, std::mt19937 &random) {
  return Generator(context, options, random).run();
}

} // namespace cleave::partition
