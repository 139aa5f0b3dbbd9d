#include "compiler/attention/attention.h"
#include "compiler/attention/band_table.h"
#include "compiler/attention/sequence_layout.h"
#include "compiler/attention/softmax_pattern.h"
#include "dialects/onnx/formula.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <numeric>

using namespace mlir;
using cleave::onnx::tensorType;

namespace cleave::attention {
#define GEN_PASS_DEF_RAISEATTENTION
#include "compiler/attention/Passes.h.inc"

namespace {

// A score this low gives exp(..) = 0 beside every score that training reaches. `lowest`: what such scores become, which
// all 16-bit elements can hold.
constexpr double hidden = -1e4, lowest = -3e4;
// Every version of the library takes so many keys or a multiple; some want other numbers padded.
constexpr int64_t keysOfEveryVersion = 128;

bool isHidden(Value value) {
  std::optional<double> number = onnx::repeatedNumber(value);
  return number && *number <= hidden;
}

// x of x * number or x / number; null if `value` is neither.
Value unscaled(Value value, double &scale) {
  auto mul = value.getDefiningOp<onnx::MulOp>();
  auto div = value.getDefiningOp<onnx::DivOp>();
  if (div)
    if (auto number = onnx::repeatedNumber(div.getB())) return scale /= *number, div.getA();
  if (mul)
    for (auto [x, factor] : {std::pair{mul.getA(), mul.getB()}, std::pair{mul.getB(), mul.getA()}})
      if (auto number = onnx::repeatedNumber(factor)) return scale *= *number, x;
  return {};
}

// x of cap * tanh(x * factor); null if `value` is no such.
struct SoftCap {
  Value inner;
  double cap = 1, factor = 1;
};
SoftCap uncapped(Value value) {
  SoftCap found;
  Value part = unscaled(value, found.cap);
  auto tanh = part ? part.getDefiningOp<onnx::TanhOp>() : onnx::TanhOp();
  if (!tanh || !(found.cap > 0)) return {};
  found.inner = unscaled(tanh.getX(), found.factor);
  if (!found.inner) found.inner = tanh.getX();
  return found;
}

// Where the dimensions of batch, heads, positions and features are in a tensor; -1: it has none.
using Places = std::array<int64_t, 4>;

class NameCandidate {
public:
  NameCandidate(const Softmax &softmax, LibraryAttention limits, int64_t headWays, const DenseSet<Value> &trained)
      : softmax(softmax), limits(limits), headWays(headWays), trained(trained) {}

  bool match() {
    if (!softmax.probabilities.hasOneUse() || !peel(softmax.scores) || !matchScores() || !matchWeighing()) return false;
    if (!limits.takesBand(band, sizeAt(query, queryPlaces[1]), sizeAt(key, keyPlaces[1]), !masks.empty())) {
      masks.append(bands);
      bands.clear();
      band = {};
    }
    // On a ring masks are made of positions, as blocks of another mask would have to travel.
    if (limits.parts > 1 && (!masks.empty() || !(band.isCausal() || !band.isBounded()))) return false;
    return fits() && (!softCap || limits.takesSoftCap(band, !masks.empty()));
  }

  void build() {
    place::Stamp marker(place::phaseOf(final));
    OpBuilder builder(final, &marker);
    onnx::Formula f(builder, final.getLoc());
    Value q = canonical(f, unscaledMovement(builder, query), queryPlaces);
    Value k = unscaledMovement(builder, key), v = value;
    Value fewerK = beforeRepeating(k, keyPlaces[2]), fewerV = beforeRepeating(v, valuePlaces[2]);
    if (fewerK && fewerV && sizeAt(fewerK, keyPlaces[2]) == sizeAt(fewerV, valuePlaces[2]))
      k = dividing(f, k, fewerK, keyPlaces[2]), v = dividing(f, v, fewerV, valuePlaces[2]);
    k = canonical(f, k, keyPlaces);
    v = canonical(f, v, valuePlaces);
    Value bias;
    for (const Mask &mask : masks) {
      Value term = biasOf(f, mask);
      bias = bias ? added(f, bias, term) : term;
    }
    auto bound = [&](std::optional<int64_t> bound) {
      return bound ? builder.getI64IntegerAttr(*bound) : IntegerAttr();
    };
    // Products in fp32 are scaled by a number of fp32, by the library as by what it stands for.
    auto op = onnx::ScaledAttentionOp::create(
        builder, final.getLoc(), q, k, v, bias, builder.getF64FloatAttr(static_cast<float>(scale)), bound(band.left),
        bound(band.right), softCap ? builder.getF64FloatAttr(*softCap) : FloatAttr());
    // The planner knows the product of queries and keys: its split of batch and heads is this op's.
    place::nodeAttr.copy(product, op);
    place::decidedFactorsAttr.set(op, decidedFactors(builder, op));
    Value out = op.getOut();
    if (batchDims < 2) out = f.make<onnx::ReshapeOp>(out, withoutHeads(tensorType(out).getShape()));
    SmallVector<int64_t> perm(outPlaces.size());
    for (auto [from, to] : llvm::enumerate(outPlaces)) perm[to] = static_cast<int64_t>(from);
    if (!llvm::is_sorted(perm)) out = f.make<onnx::TransposeOp>(out, perm);
    final.getY().replaceAllUsesWith(out);
  }

private:
  struct Mask {
    Value value; // lies as the scores
    enum Kind { Added, SeenWhereTrue, SeenWhereFalse } kind;
  };

  // Scales and masks, down to the product.
  bool peel(Value x) {
    for (int depth = 0; depth < 8; ++depth) {
      if (auto contract = x.getDefiningOp<onnx::ContractOp>()) return product = contract, true;
      if (auto [inner, cap, factor] = uncapped(x); inner && scale == 1 && !softCap) {
        softCap = cap, scale = cap * factor;
        x = inner;
        continue;
      }
      if (masks.empty() && bands.empty())
        if (Value inner = unscaled(x, scale)) {
          x = inner;
          continue;
        }
      if (softCap && isa_and_present<onnx::AddOp, onnx::WhereOp>(x.getDefiningOp())) return false; // is capped, too
      if (auto add = x.getDefiningOp<onnx::AddOp>()) {
        bool left = leadsToProduct(add.getA());
        if (!left && !leadsToProduct(add.getB())) return false;
        if (!take({left ? add.getB() : add.getA(), Mask::Added})) return false;
        x = left ? add.getA() : add.getB();
      } else if (auto where = x.getDefiningOp<onnx::WhereOp>()) {
        bool left = isHidden(where.getB());
        if (!left && !isHidden(where.getA())) return false;
        if (!take({where.getCondition(), left ? Mask::SeenWhereTrue : Mask::SeenWhereFalse})) return false;
        x = left ? where.getA() : where.getB();
      } else if (Value inner = unscaled(x, scale)) {
        x = inner;
      } else {
        return false;
      }
    }
    return false;
  }
  static bool leadsToProduct(Value x) {
    double ignored = 1;
    for (int depth = 0; depth < 8; ++depth) {
      Operation *op = x.getDefiningOp();
      if (isa_and_present<onnx::ContractOp>(op)) return tensorType(x).getRank() > 2;
      if (Value inner = unscaled(x, ignored))
        x = inner;
      else if (auto tanh = dyn_cast_or_null<onnx::TanhOp>(op))
        x = tanh.getX();
      else if (auto where = dyn_cast_or_null<onnx::WhereOp>(op))
        x = isHidden(where.getB()) ? where.getA() : where.getB();
      else if (auto add = dyn_cast_or_null<onnx::AddOp>(op))
        return leadsToProduct(add.getA()) || leadsToProduct(add.getB());
      else
        return false;
    }
    return false;
  }

  // A table of positions, or one more mask.
  bool take(Mask mask) {
    if (dependsOnTrained(mask.value)) return false;
    auto table = bandOf(mask);
    (table ? bands : masks).push_back(mask);
    if (table) band = band.within(*table);
    return true;
  }
  // What a query sees, if the mask says just that.
  std::optional<runtime::AttentionBand> bandOf(const Mask &mask) const {
    const int64_t rank = tensorType(mask.value).getRank();
    auto table = softmax.axis == rank - 1 ? matchBandTable(mask.value, rank - 2, rank - 1) : std::nullopt;
    const double seen = mask.kind == Mask::SeenWhereTrue, hides = mask.kind == Mask::SeenWhereFalse;
    const bool isMask = table && (mask.kind == Mask::Added ? table->inside == 0 && table->outside <= hidden
                                                           : table->inside == seen && table->outside == hides);
    return isMask ? std::optional(table->band) : std::nullopt;
  }
  bool dependsOnTrained(Value from) const {
    SmallVector<Value> open{from};
    DenseSet<Value> seen;
    while (!open.empty()) {
      Value value = open.pop_back_val();
      if (!seen.insert(value).second) continue;
      if (trained.contains(value)) return true;
      if (Operation *op = value.getDefiningOp()) llvm::append_range(open, op->getOperands());
    }
    return false;
  }

  static int64_t placeOf(ArrayRef<int64_t> letters, int64_t letter) {
    auto found = llvm::find(letters, letter);
    return found == letters.end() ? -1 : found - letters.begin();
  }

  // The letters of the product of queries and keys: batch (one or two), one of queries, one of keys, one summed over.
  bool matchScores() {
    ArrayRef<int64_t> result = product.getResultIndices(), lhs = product.getLhsIndices(), rhs = product.getRhsIndices();
    int64_t keys = result[softmax.axis];
    bool keyIsRight = llvm::is_contained(rhs, keys);
    ArrayRef<int64_t> q = keyIsRight ? lhs : rhs, k = keyIsRight ? rhs : lhs;
    if (llvm::is_contained(q, keys)) return false;
    SmallVector<int64_t> batch, queries, summed;
    for (int64_t letter : q) {
      bool inKey = llvm::is_contained(k, letter), inResult = llvm::is_contained(result, letter);
      if (!inKey) queries.push_back(letter);
      if (inKey && !inResult) summed.push_back(letter);
    }
    for (int64_t letter : result)
      if (llvm::is_contained(q, letter) && llvm::is_contained(k, letter)) batch.push_back(letter);
    if (queries.size() != 1 || summed.size() != 1 || batch.empty() || batch.size() > 2) return false;
    if (k.size() != batch.size() + 2) return false;
    batchDims = batch.size();
    int64_t b = batch[0], h = batchDims == 2 ? batch[1] : -1;
    query = keyIsRight ? product.getLhs() : product.getRhs();
    key = keyIsRight ? product.getRhs() : product.getLhs();
    queryPlaces = {placeOf(q, b), placeOf(q, queries[0]), placeOf(q, h), placeOf(q, summed[0])};
    keyPlaces = {placeOf(k, b), placeOf(k, keys), placeOf(k, h), placeOf(k, summed[0])};
    scorePlaces = {placeOf(result, b), placeOf(result, h), placeOf(result, queries[0]), softmax.axis};
    return bands.empty() || scorePlaces[2] == static_cast<int64_t>(result.size()) - 2;
  }

  bool matchWeighing() {
    OpOperand &use = *softmax.probabilities.use_begin();
    final = dyn_cast<onnx::ContractOp>(use.getOwner());
    if (!final) return false;
    bool left = use.getOperandNumber() == 0;
    ArrayRef<int64_t> p = left ? final.getLhsIndices() : final.getRhsIndices();
    ArrayRef<int64_t> v = left ? final.getRhsIndices() : final.getLhsIndices(), out = final.getResultIndices();
    value = left ? final.getRhs() : final.getLhs();
    int64_t b = p[scorePlaces[0]], h = batchDims == 2 ? p[scorePlaces[1]] : -1;
    int64_t queries = p[scorePlaces[2]], keys = p[scorePlaces[3]], features = -1;
    for (int64_t letter : v)
      if (!llvm::is_contained(p, letter)) features = letter;
    valuePlaces = {placeOf(v, b), placeOf(v, keys), placeOf(v, h), placeOf(v, features)};
    bool whole = v.size() == batchDims + 2 && valuePlaces[0] >= 0 && valuePlaces[1] >= 0 && valuePlaces[3] >= 0 &&
                 (batchDims < 2 || valuePlaces[2] >= 0) && !llvm::is_contained(out, keys);
    if (!whole || out.size() != batchDims + 2) return false;
    outPlaces.clear();
    for (int64_t letter :
         batchDims == 2 ? SmallVector<int64_t>{b, queries, h, features} : SmallVector<int64_t>{b, queries, features})
      outPlaces.push_back(placeOf(out, letter));
    return !llvm::is_contained(outPlaces, -1);
  }

  static int64_t sizeAt(Value x, int64_t dim) { return dim < 0 ? 1 : tensorType(x).getDimSize(dim); }
  bool fits() const {
    return tensorType(query).getElementType().isF32() &&
           limits.takes(sizeAt(query, queryPlaces[1]), sizeAt(key, keyPlaces[1]), sizeAt(query, queryPlaces[3]),
                        sizeAt(value, valuePlaces[3]));
  }

  // The value without the number it is multiplied by, which goes into `scale`; what moves its elements is moved along.
  Value unscaledMovement(OpBuilder &builder, Value x) {
    if (Value inner = unscaled(x, scale)) return unscaledMovement(builder, inner);
    Operation *op = x.getDefiningOp();
    if (!isa_and_present<onnx::ReshapeOp, onnx::TransposeOp, onnx::BroadcastOp>(op)) return x;
    Value inner = unscaledMovement(builder, op->getOperand(0));
    if (inner == op->getOperand(0)) return x;
    IRMapping mapping;
    mapping.map(op->getOperand(0), inner);
    return builder.clone(*op, mapping)->getResult(0);
  }

  // Keys or values before they are repeated for several heads, with their dimensions in the same places.
  static Value beforeRepeating(Value x, int64_t heads) {
    auto reshape = x.getDefiningOp<onnx::ReshapeOp>();
    auto broadcast = reshape ? reshape.getX().getDefiningOp<onnx::BroadcastOp>() : onnx::BroadcastOp();
    if (heads < 0 || !broadcast || broadcast.getShape().size() != reshape.getShape().size() + 1) return {};
    SmallVector<int64_t> merged(broadcast.getShape()), dims;
    merged[heads] *= merged[heads + 1];
    merged.erase(merged.begin() + heads + 1);
    for (int64_t dim = 0; dim < static_cast<int64_t>(broadcast.getShape().size()); ++dim)
      if (dim != heads + 1) dims.push_back(dim);
    bool repeats = merged == SmallVector<int64_t>(reshape.getShape()) && broadcast.getDims() == ArrayRef(dims);
    return repeats ? broadcast.getX() : Value();
  }

  // `fewer` repeated, less often than `all`, until its heads divide over the devices that split those of the queries.
  Value dividing(onnx::Formula &f, Value all, Value fewer, int64_t heads) const {
    const int64_t number = sizeAt(fewer, heads), wanted = std::lcm(number, headWays);
    if (wanted == number) return fewer;
    if (sizeAt(all, heads) % wanted != 0) return all;
    SmallVector<int64_t> shape(tensorType(fewer).getShape()), dims;
    shape.insert(shape.begin() + heads + 1, wanted / number);
    for (int64_t dim = 0; dim < static_cast<int64_t>(shape.size()); ++dim)
      if (dim != heads + 1) dims.push_back(dim);
    Value repeated = f.make<onnx::BroadcastOp>(fewer, shape, dims);
    shape[heads] *= shape[heads + 1];
    shape.erase(shape.begin() + heads + 1);
    return f.make<onnx::ReshapeOp>(repeated, shape);
  }

  static SmallVector<int64_t> withoutHeads(ArrayRef<int64_t> shape) { return {shape[0], shape[1], shape[3]}; }
  // [batch, positions, heads, features]
  static Value canonical(onnx::Formula &f, Value x, const Places &places) {
    SmallVector<int64_t> perm;
    for (int64_t place : places)
      if (place >= 0) perm.push_back(place);
    if (!llvm::is_sorted(perm)) x = f.make<onnx::TransposeOp>(x, perm);
    auto shape = tensorType(x).getShape();
    if (shape.size() == 3) x = f.make<onnx::ReshapeOp>(x, SmallVector<int64_t>{shape[0], shape[1], 1, shape[2]});
    return x;
  }

  // [batch or 1, heads or 1, queries, keys]
  Value biasOf(onnx::Formula &f, const Mask &mask) {
    Value x = mask.value;
    SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(0, tensorType(x).getRank())); // of the scores
    if (auto broadcast = x.getDefiningOp<onnx::BroadcastOp>()) {
      x = broadcast.getX();
      dims.assign(broadcast.getDims().begin(), broadcast.getDims().end());
    }
    if (mask.kind != Mask::Added) {
      auto type = tensorType(x).clone(tensorType(softmax.scores).getElementType());
      bool seen = mask.kind == Mask::SeenWhereTrue;
      x = f.where(x, f.constant(type, seen ? 0 : lowest), f.constant(type, seen ? lowest : 0));
    } else {
      x = f.make<onnx::MaxOp>(x, f.like(x, lowest));
    }
    auto scores = tensorType(softmax.scores).getShape();
    SmallVector<int64_t> perm, shape, kept;
    for (auto [role, place] : llvm::enumerate(scorePlaces)) {
      auto found = llvm::find(dims, place);
      bool present = place >= 0 && found != dims.end();
      if (present) perm.push_back(found - dims.begin()), kept.push_back(static_cast<int64_t>(role));
      shape.push_back(place < 0 || (role < 2 && !present) ? 1 : scores[place]);
    }
    if (!llvm::is_sorted(perm)) x = f.make<onnx::TransposeOp>(x, perm);
    if (kept.size() == 4 && tensorType(x).getShape() == ArrayRef(shape)) return x;
    // One of size 1 counts as absent where the scores have more.
    SmallVector<int64_t> squeezed, places;
    for (auto [dim, role] : llvm::enumerate(kept)) {
      int64_t size = tensorType(x).getDimSize(static_cast<int64_t>(dim));
      if (size == 1 && shape[role] != 1) continue;
      squeezed.push_back(size);
      places.push_back(role);
    }
    if (squeezed.size() != kept.size()) x = f.make<onnx::ReshapeOp>(x, squeezed);
    return f.make<onnx::BroadcastOp>(x, shape, places);
  }
  static Value added(onnx::Formula &f, Value a, Value b) {
    SmallVector<int64_t> shape;
    for (auto [x, y] : llvm::zip_equal(tensorType(a).getShape(), tensorType(b).getShape()))
      shape.push_back(std::max(x, y));
    return f.add(widened(f, a, shape), widened(f, b, shape));
  }
  static Value widened(onnx::Formula &f, Value x, ArrayRef<int64_t> shape) {
    if (tensorType(x).getShape() == shape) return x;
    SmallVector<int64_t> own, dims;
    for (auto [dim, size] : llvm::enumerate(tensorType(x).getShape()))
      if (size == shape[dim]) own.push_back(size), dims.push_back(static_cast<int64_t>(dim));
    return f.make<onnx::BroadcastOp>(f.make<onnx::ReshapeOp>(x, own), shape, dims);
  }

  // For every factor of the op, the factor of the product that splits the same: batch and heads.
  DenseI64ArrayAttr decidedFactors(OpBuilder &builder, onnx::ScaledAttentionOp op) const {
    dist::FactorRule from = product.getFactorRule(), to = op.getFactorRule();
    SmallVector<int64_t> known(to.factors.size(), -1);
    known[to.results[0][0][0]] = from.results[0][scorePlaces[0]][0];
    if (batchDims == 2) known[to.results[0][2][0]] = from.results[0][scorePlaces[1]][0];
    return builder.getDenseI64ArrayAttr(known);
  }

  const Softmax &softmax;
  LibraryAttention limits;
  int64_t headWays;
  const DenseSet<Value> &trained;
  mutable onnx::ContractOp product, final;
  Value query, key, value;
  Places queryPlaces{}, keyPlaces{}, valuePlaces{}; // batch, positions, heads, features
  Places scorePlaces{};                             // batch, heads, queries, keys
  SmallVector<int64_t> outPlaces;                   // of the op's dimensions in the product with the values
  size_t batchDims = 0;
  double scale = 1;
  std::optional<double> softCap;
  SmallVector<Mask> masks, bands; // those that are a band of positions, and what a query sees of all
  runtime::AttentionBand band;
};

struct RaiseAttention : impl::RaiseAttentionBase<RaiseAttention> {
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp model = modelOf(getOperation());
    if (!model) return signalPassFailure();
    const LibraryAttention limits{keyMultiple, featureMultiple, maxFeatures, anyBand, softCap, parts};
    DenseSet<Value> trained;
    SymbolTable symbols(getOperation());
    for (auto read : model.getOps<onnx::ReadOp>())
      if (auto param = symbols.lookup<onnx::ParamOp>(read.getParam()); param && param.getTrainable())
        trained.insert(read.getValue());
    for (auto exp : llvm::make_early_inc_range(model.getOps<onnx::ExpOp>())) {
      auto softmax = matchSoftmax(exp);
      if (!softmax) continue;
      NameCandidate candidate(*softmax, limits, headWays, trained);
      if (candidate.match()) candidate.build();
    }
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(model.getBody().front())))
      if (isOpTriviallyDead(&op)) op.erase();
  }
};

} // namespace

bool LibraryAttention::takes(int64_t queries, int64_t keys, int64_t features, int64_t valueFeatures) const {
  auto isSize = [&](int64_t size) { return size % featureMultiple == 0 && size <= maxFeatures; };
  // From 9.11 to 9.12 the gradient wants both sizes of DeepSeek-V2 where one is above 128.
  const bool isPair = features == valueFeatures || std::max(features, valueFeatures) <= 128 ||
                      (features == 192 && valueFeatures == 128);
  const bool isCut = parts == 1 || (queries == keys && keys % parts == 0 && keys > parts);
  return isSize(features) && isSize(valueFeatures) && isPair && isCut && keys / parts % keyMultiple == 0 &&
         (queries > 1 || keys > 1);
}

bool LibraryAttention::takesSoftCap(const runtime::AttentionBand &band, bool isBiased) const {
  return softCap && (anyBand || (!band.isBounded() && !isBiased));
}

bool LibraryAttention::takesBand(const runtime::AttentionBand &band, int64_t queries, int64_t keys,
                                 bool isBiased) const {
  if (!band.isBounded() || band.isCausal()) return true;
  return !isBiased && band.fits(queries, keys) && (anyBand || band.right == 0 || band.right == keys - queries);
}

std::optional<RaiseAttentionOptions> libraryAttention(StringRef gpu, bool everyVersion, bool deterministic,
                                                      int64_t blocks, int64_t headWays) {
  if (!gpu.consume_front("sm_")) return std::nullopt;
  const bool isHopper = gpu == "90", isOlder = gpu.starts_with("8");
  if (deterministic && !isHopper && !isOlder) return std::nullopt;
  return RaiseAttentionOptions{.keyMultiple = everyVersion ? keysOfEveryVersion : 1,
                               .maxFeatures = isHopper ? 256 : LibraryAttention().maxFeatures,
                               .anyBand = !everyVersion,
                               .softCap = isHopper,
                               .parts = blocks > 1 ? 2 * blocks : 1,
                               .headWays = headWays};
}

} // namespace cleave::attention
