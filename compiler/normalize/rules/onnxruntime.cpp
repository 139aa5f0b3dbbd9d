// Operators of onnxruntime's own domain that its optimizers and exporters of language models write: attention, rotary
// positions, products with weights of a few bits, experts. Their caches of earlier tokens are not supported: training has none.
#include "compiler/normalize/node.h"
#include <cmath>

using namespace mlir;
namespace cleave::normalize {
namespace {

// [batch, length, heads * size] -> [batch, length, heads, size]
Value asHeads(Node &n, Value x, int64_t heads) {
  if (rankOf(x) != 3 || heads < 1 || shapeOf(x)[2] % heads)
    n.fail("needs operands [batch, length, width] whose width divides into " + Twine(heads) + " heads");
  return n.b.reshape(x, {shapeOf(x)[0], shapeOf(x)[1], heads, shapeOf(x)[2] / heads});
}

void needsNo(Node &n, size_t i, StringRef what) {
  if (n.has(i) && typeOf(n.in(i)).getNumElements() > 0)
    n.fail(("its input " + Twine(i) + " ('" + what + "') is not supported").str());
}

struct Scores {
  double scale, cap = 0;
  bool isCausal = false;
  int64_t window = -1; // how many keys back a query sees; -1: all
  Value bias{};        // added to [batch, heads, queries, keys]; null: none
};

// q [batch, queries, heads, size], k and v [batch, keys, fewer heads, size] -> [batch, queries, heads * size of v].
Value attention(Node &n, Value q, Value k, Value v, const Scores &s) {
  const int64_t batch = shapeOf(q)[0], queries = shapeOf(q)[1], heads = shapeOf(q)[2], size = shapeOf(q)[3];
  const int64_t keys = shapeOf(k)[1], groups = shapeOf(k)[2], each = groups ? heads / groups : 0;
  if (groups < 1 || heads % groups || shapeOf(k)[0] != batch || shapeOf(k)[3] != size || shapeOf(v)[0] != batch ||
      shapeOf(v)[1] != keys || shapeOf(v)[2] != groups)
    n.fail("its query, key and value do not fit each other");
  Value wide = n.b.reshape(q, {batch, queries, groups, each, size});
  // batch 0, query 1, group 2, head of the group 3, size 4, key 5
  Value scores = n.b.contract(wide, k, {0, 1, 2, 3, 4}, {0, 5, 2, 4}, {0, 2, 3, 1, 5});
  scores = n.b.mul(n.b.reshape(scores, {batch, heads, queries, keys}), s.scale);
  if (s.cap > 0) scores = n.b.mul(n.b.unary<onnx::TanhOp>(n.b.div(scores, s.cap)), s.cap);
  if (s.bias) scores = n.b.add(scores, n.b.cast(s.bias, elementOf(scores)));
  if (s.isCausal) {
    const Dims plane{queries, keys};
    Value row = n.b.add(n.b.indexAlong(plane, 0), double(keys - queries)), column = n.b.indexAlong(plane, 1);
    Value seen = n.b.binary<onnx::LessOrEqualOp>(column, row);
    if (s.window >= 0)
      seen = n.b.binary<onnx::AndOp>(seen, n.b.binary<onnx::GreaterOp>(column, n.b.sub(row, double(s.window))));
    scores = n.b.where(seen, scores, n.b.scalar(scores, -INFINITY));
  }
  Type element = elementOf(scores);
  if (element.getIntOrFloatBitWidth() < 32) scores = n.b.cast(scores, n.b.builder.getF32Type());
  Value top = n.b.unary<onnx::StopGradientOp>(n.b.reduceMax(scores, {3}, true));
  Value e = n.b.unary<onnx::ExpOp>(n.b.sub(scores, top));
  Value p = n.b.cast(n.b.div(e, n.b.reduceSum(e, {3}, true)), element);
  Value split = n.b.reshape(p, {batch, groups, each, queries, keys});
  Value out = n.b.contract(split, v, {0, 2, 3, 1, 5}, {0, 5, 2, 4}, {0, 1, 2, 3, 4});
  return n.b.reshape(out, {batch, queries, heads * shapeOf(v)[3]});
}

double scaleOf(Node &n, int64_t size) {
  const double given = n.real("scale", 0);
  return given != 0 ? given : 1 / std::sqrt(double(size));
}
Value headsFirst(Node &n, Value x) { return n.b.transpose(x, {0, 2, 1, 3}); }

// Inputs: query, key, value, bias, key_padding_mask, attention_bias, then caches.
Values multiHeadAttention(Node &n) {
  const int64_t heads = n.integer("num_heads", 1);
  static constexpr StringRef caches[] = {"past_key", "past_value", "past_sequence_length", "cache_indirection"};
  for (size_t i = 0; i < std::size(caches); ++i) needsNo(n, 6 + i, caches[i]);
  Value query = n.in(0), q, k, v;
  auto part = [&](Value packed, int64_t i) { // [batch, length, heads, parts, size]
    Dims shape(shapeOf(packed));
    shape.erase(shape.begin() + 3);
    return n.b.reshape(n.b.slice(packed, 3, i, 1), shape);
  };
  auto isPacked = [&](Value x, int64_t parts) {
    return rankOf(x) == 5 && shapeOf(x)[2] == heads && shapeOf(x)[3] == parts;
  };
  if (!n.has(1)) {
    if (!isPacked(query, 3)) n.fail("needs its key, or a query [batch, length, heads, 3, size]");
    q = part(query, 0), k = part(query, 1), v = part(query, 2);
  } else {
    q = asHeads(n, query, heads);
    if (!n.has(2)) {
      if (!isPacked(n.in(1), 2)) n.fail("needs its value, or a key [batch, length, heads, 2, size]");
      k = part(n.in(1), 0), v = part(n.in(1), 1);
    } else {
      k = rankOf(n.in(1)) == 4 ? headsFirst(n, n.in(1)) : asHeads(n, n.in(1), heads);
      v = rankOf(n.in(2)) == 4 ? headsFirst(n, n.in(2)) : asHeads(n, n.in(2), heads);
    }
  }
  if (n.has(3)) { // of query, key and value, one after the other
    const int64_t of = heads * shapeOf(q)[3], last = heads * shapeOf(v)[3];
    n.needsShape(3, {2 * of + last});
    int64_t start = 0;
    for (auto [x, width] : {std::pair(&q, of), std::pair(&k, of), std::pair(&v, last)}) {
      *x = n.b.add(*x, n.b.reshape(n.b.slice(n.in(3), 0, start, width), {heads, width / heads}));
      start += width;
    }
  }
  Scores s{scaleOf(n, shapeOf(q)[3])};
  s.isCausal = n.integer("unidirectional", 0) != 0;
  if (n.has(5)) s.bias = n.in(5);
  if (n.has(4)) {
    const int64_t batch = shapeOf(q)[0], keys = shapeOf(k)[1];
    n.needsShape(4, {batch, keys});
    Value seen = n.b.binary<onnx::GreaterOp>(n.in(4), n.b.scalar(n.in(4), 0));
    Value hidden = n.b.where(seen, n.b.scalar(q, 0), n.b.scalar(q, n.real("mask_filter_value", -10000)));
    hidden = n.b.reshape(hidden, {batch, 1, 1, keys});
    s.bias = s.bias ? n.b.add(n.b.cast(s.bias, elementOf(hidden)), hidden) : hidden;
  }
  Values results{attention(n, q, k, v, s), headsFirst(n, k), headsFirst(n, v)};
  results.resize(n.outputs());
  return results;
}

// x [batch, length, heads, size], the first `rotated` of each head turned by its position's angles.
// cosines, sines: [batch or 1, length, rotated / 2]
Value rotated(Node &n, Value x, Value cosines, Value sines, bool interleaved) {
  const int64_t batch = shapeOf(x)[0], length = shapeOf(x)[1], heads = shapeOf(x)[2], size = shapeOf(x)[3];
  const int64_t half = shapeOf(cosines)[2], turned = 2 * half;
  Value head = n.b.slice(x, 3, 0, turned);
  Dims pairs = interleaved ? Dims{batch, length, heads, half, 2} : Dims{batch, length, heads, 2, half};
  const int64_t axis = interleaved ? 4 : 3;
  Dims side = interleaved ? Dims{batch, length, heads, half, 1} : Dims{batch, length, heads, 1, half};
  Value both = n.b.reshape(head, pairs);
  Dims angle{shapeOf(cosines)[0], length, 1, interleaved ? half : 1, interleaved ? 1 : half};
  Value c = n.b.reshape(n.b.cast(cosines, elementOf(x)), angle), s = n.b.reshape(n.b.cast(sines, elementOf(x)), angle);
  Value a = n.b.slice(both, axis, 0, 1), b = n.b.slice(both, axis, 1, 1);
  Value first = n.b.sub(n.b.mul(a, c), n.b.mul(b, s)), second = n.b.add(n.b.mul(a, s), n.b.mul(b, c));
  Value y = n.b.reshape(n.b.concat({first, second}, axis), {batch, length, heads, turned});
  return turned == size ? y : n.b.concat({y, n.b.slice(x, 3, turned, size - turned)}, 3);
}

// Inputs: x, position_ids ([batch, length], or where the first token stands), the caches of cosines and sines.
Values rotaryEmbedding(Node &n) {
  Value x = n.in(0), positions = n.in(1);
  const bool isFlat = rankOf(x) == 3;
  if (!isFlat && rankOf(x) != 4) n.fail("needs an operand [batch, length, width] or [batch, heads, length, size]");
  if (n.integer("is_packed_batching", 0)) n.fail("its attribute 'is_packed_batching' is not supported");
  if (n.real("scale", 1) != 1) n.fail("its attribute 'scale' is not 1, which is not supported");
  if (rankOf(n.in(2)) != 2) n.fail("needs a table of cosines [positions, size / 2]");
  const int64_t half = shapeOf(n.in(2))[1], given = n.integer("num_heads", 0);
  n.needsShape(3, shapeOf(n.in(2)));
  if (half < 1) n.fail("its tables of cosines and sines have no angles");
  const int64_t heads = !isFlat ? shapeOf(x)[1] : given ? given : shapeOf(x)[2] / (2 * half);
  Value split = isFlat ? asHeads(n, x, heads) : headsFirst(n, x);
  const int64_t batch = shapeOf(split)[0], length = shapeOf(split)[1];
  if (2 * half > shapeOf(split)[3]) n.fail("its tables of cosines and sines are wider than its heads");
  Value at = typeOf(positions).getNumElements() == 1 && (batch != 1 || length != 1)
                 ? n.b.add(n.b.indexAlong({1, length}, 1), n.b.reshape(positions, {}))
                 : positions;
  if (rankOf(at) != 2 || shapeOf(at)[1] != length || (shapeOf(at)[0] != 1 && shapeOf(at)[0] != batch))
    n.fail("its position_ids do not fit its operand");
  Value y = rotated(n, split, n.b.gather(n.in(2), at, 0), n.b.gather(n.in(3), at, 0), n.integer("interleaved", 0) != 0);
  return {isFlat ? n.b.reshape(y, shapeOf(x)) : headsFirst(n, y)};
}

// Inputs: query (with key and value behind it where they are absent), key, value, caches, the lengths of the sequences
// and the longest, the caches of cosines and sines. Causal, so that padding at the end of a sequence is seen by none of
// its tokens: the lengths change no token's result.
Values groupQueryAttention(Node &n) {
  needsNo(n, 3, "past_key");
  needsNo(n, 4, "past_value");
  for (auto [i, name] : {std::pair(9, "position_ids"), std::pair(10, "attention_bias"), std::pair(11, "head_sink")})
    needsNo(n, size_t(i), name);
  if (n.integer("smooth_softmax", -1) > 0) n.fail("its attribute 'smooth_softmax' is not supported");
  for (StringRef kind : {"k_quant_type", "v_quant_type"})
    if (n.text(kind, "NONE") != "NONE") n.fail(("its attribute '" + kind + "' is not supported").str());
  const int64_t heads = n.integer("num_heads", 1), groups = n.integer("kv_num_heads", 1);
  Value q, k, v;
  if (n.has(1)) {
    q = asHeads(n, n.in(0), heads), k = asHeads(n, n.in(1), groups), v = asHeads(n, n.in(2), groups);
  } else {
    Value all = asHeads(n, n.in(0), heads + 2 * groups);
    q = n.b.slice(all, 2, 0, heads), k = n.b.slice(all, 2, heads, groups);
    v = n.b.slice(all, 2, heads + groups, groups);
  }
  if (n.integer("do_rotary", 0)) {
    const int64_t length = shapeOf(q)[1];
    if (rankOf(n.in(7)) != 2 || shapeOf(n.in(7))[0] < length || 2 * shapeOf(n.in(7))[1] > shapeOf(q)[3])
      n.fail("its tables of cosines and sines do not fit its query");
    n.needsShape(8, shapeOf(n.in(7)));
    auto table = [&](size_t i) { return n.b.insertOnes(n.b.slice(n.in(i), 0, 0, length), {0}); };
    for (Value *x : {&q, &k}) *x = rotated(n, *x, table(7), table(8), n.integer("rotary_interleaved", 0) != 0);
  }
  Scores s{scaleOf(n, shapeOf(q)[3]), n.real("softcap", 0), true, n.integer("local_window_size", -1)};
  Values results{attention(n, q, k, v, s), headsFirst(n, k), headsFirst(n, v)};
  results.resize(n.outputs());
  return results;
}

// The numbers of `bits` each that bytes hold along the last dimension, the first in the lowest bits.
Value unpackedNumbers(Node &n, Value bytes, int64_t bits, Type to) {
  const int64_t each = 8 / bits;
  Dims shape(shapeOf(bytes));
  shape.back() *= each;
  Values parts;
  for (int64_t i = 0; i < each; ++i) {
    Value shifted = n.b.div(bytes, double(int64_t(1) << (i * bits)));
    Value part = bits == 8 ? shifted : n.b.binary<onnx::AndOp>(shifted, n.b.scalar(bytes, double((1 << bits) - 1)));
    parts.push_back(n.b.insertOnes(n.b.cast(part, to), {rankOf(bytes)}));
  }
  return n.b.reshape(n.b.concat(parts, rankOf(bytes)), shape);
}

// a times the transpose of B [N, K], which blocks of `block_size` along K hold: numbers of `bits` bits, a scale and a
// zero point for each block. The weight takes no gradient, a does.
Values matMulNBits(Node &n) {
  Value a = n.in(0);
  const int64_t k = n.integer("K", 0), rows = n.integer("N", 0), bits = n.integer("bits", 4);
  const int64_t block = n.integer("block_size", 0);
  if (bits != 2 && bits != 4 && bits != 8) n.fail("its attribute 'bits' must be 2, 4 or 8");
  if (k < 1 || rows < 1 || block < 16 || block % (8 / bits)) n.fail("its K, N and block_size must be sizes");
  needsNo(n, 4, "g_idx");
  const int64_t blocks = (k + block - 1) / block, bytes = block * bits / 8;
  if (rankOf(a) < 1 || shapeOf(a).back() != k) n.fail("its operand does not have K = " + Twine(k) + " columns");
  if (typeOf(n.in(1)).getNumElements() != rows * blocks * bytes)
    n.fail("its weight does not have " + Twine(rows * blocks * bytes) + " bytes");
  if (typeOf(n.in(2)).getNumElements() != rows * blocks)
    n.fail("does not have one scale for each of its " + Twine(rows * blocks) + " blocks");
  Type type = elementOf(a);
  Value numbers = unpackedNumbers(n, n.b.reshape(n.in(1), {rows, blocks, bytes}), bits, type);
  Value zero = n.b.scalar(a, std::ldexp(1, int(bits) - 1));
  if (n.has(3)) {
    zero = n.in(3);
    if (!isFloatTensor(zero)) { // packed, each row in whole bytes
      const int64_t packed = (blocks * bits + 7) / 8;
      if (typeOf(zero).getNumElements() != rows * packed)
        n.fail("does not have " + Twine(rows * packed) + " bytes of zero points");
      zero = unpackedNumbers(n, n.b.reshape(zero, {rows, packed}), bits, type);
      zero = n.b.slice(zero, 1, 0, blocks);
    }
    if (typeOf(zero).getNumElements() != rows * blocks) n.fail("does not have one zero point for each block");
    zero = n.b.reshape(n.b.cast(zero, type), {rows, blocks, 1});
  }
  Value scale = n.b.reshape(n.b.cast(n.in(2), type), {rows, blocks, 1});
  Value weight = n.b.reshape(n.b.mul(n.b.sub(numbers, zero), scale), {rows, blocks * block});
  weight = n.b.slice(weight, 1, 0, k);
  Dims left = countUp(rankOf(a)), result(left);
  result.back() = rankOf(a);
  Value y = n.b.contract(a, weight, left, {rankOf(a), rankOf(a) - 1}, result);
  if (!n.has(5)) return {y};
  n.needsShape(5, {rows});
  return {n.b.add(y, n.in(5))};
}

// alpha op(A) op(B), op a transpose of the last two dimensions.
Values fusedMatMul(Node &n) {
  for (StringRef name : {"transBatchA", "transBatchB"})
    if (n.integer(name, 0)) n.fail(("its attribute '" + name + "' is not supported").str());
  auto operand = [&](size_t i, StringRef transposes) {
    Value x = n.in(i);
    if (!n.integer(transposes, 0) || rankOf(x) < 2) return x;
    Dims perm = countUp(rankOf(x));
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return n.b.transpose(x, perm);
  };
  return {n.b.mul(matrixProduct(n, operand(0, "transA"), operand(1, "transB")), n.real("alpha", 1))};
}

// a [tokens, choices, 2 * width], a gate and a linear part in turns -> [tokens, choices, width]
Value gatedInTurns(Node &n, Value a) {
  const Dims whole(shapeOf(a));
  if (whole.back() % 2) n.fail("its fc1 does not have a gate for each of its columns");
  const Dims pairs{whole[0], whole[1], whole[2] / 2, 2}, half{whole[0], whole[1], whole[2] / 2};
  auto part = [&](int64_t i) { return n.b.reshape(n.b.slice(n.b.reshape(a, pairs), 3, i, 1), half); };
  Value gate = part(0), linear = part(1);
  if (n.attribute("swiglu_limit")) {
    auto limit = [&](Value x, double by) { return n.b.broadcastTo(n.b.scalar(x, by), shapeOf(x)); };
    const double most = n.real("swiglu_limit", 0);
    gate = n.b.binary<onnx::MinOp>(gate, limit(gate, most));
    linear = n.b.binary<onnx::MaxOp>(n.b.binary<onnx::MinOp>(linear, limit(linear, most)), limit(linear, -most));
  }
  Value swish = n.b.mul(gate, n.b.unary<onnx::SigmoidOp>(n.b.mul(gate, n.real("activation_alpha", 1))));
  return n.b.mul(swish, n.b.add(linear, n.real("activation_beta", 0)));
}

// Inputs: tokens, the router's scores [tokens, experts], and [experts, out, in] and [experts, out] of fc1, fc2 and fc3.
// Each token takes the sum of its k best experts, by the softmax of its scores. Where two are equal, the first is
// better; onnxruntime does not say.
Values mixtureOfExperts(Node &n) {
  Value x = n.in(0), scores = n.in(1);
  if (rankOf(x) != 2 && rankOf(x) != 3) n.fail("needs an operand [tokens, width] or [batch, length, width]");
  if (n.integer("use_sparse_mixer", 0)) n.fail("its attribute 'use_sparse_mixer' is not supported");
  const int64_t width = shapeOf(x).back(), tokens = width ? typeOf(x).getNumElements() / width : 0;
  if (rankOf(scores) != 2 || tokens < 1) n.fail("needs scores [tokens, experts]");
  const int64_t experts = shapeOf(scores)[1], k = n.integer("k", 1);
  n.needsShape(1, {tokens, experts});
  if (k < 1 || k > experts) n.fail("its attribute 'k' is " + Twine(k) + ", of " + Twine(experts) + " experts");
  for (size_t i : {2, 4, 6})
    if (n.has(i) && rankOf(n.in(i)) != 3) n.fail("needs weights [experts, out, in]");
  const int64_t inner = shapeOf(n.in(4))[2];
  const std::string activation = n.text("activation_type", "relu");
  const bool isFused = activation == "swiglu";
  if (isFused && (n.integer("swiglu_fusion", 0) != 1 || n.has(6)))
    n.fail("its activation 'swiglu' is supported with swiglu_fusion=1 and without fc3: gate and linear part in turns");
  if (activation == "gelu") n.fail("its activation 'gelu' is not supported: onnxruntime's kernels compute two kinds");
  const int64_t first = isFused ? 2 * inner : inner;
  for (auto [i, out, in] : {std::tuple(2, first, width), std::tuple(4, width, inner), std::tuple(6, inner, width)}) {
    n.needsShape(size_t(i), {experts, out, in});
    n.needsShape(size_t(i) + 1, {experts, out});
  }

  Value top = n.b.unary<onnx::StopGradientOp>(n.b.reduceMax(scores, {1}, true));
  Value e = n.b.unary<onnx::ExpOp>(n.b.sub(scores, top));
  const Values best = topAlong(n, n.b.div(e, n.b.reduceSum(e, {1}, true)), 1, k);
  Value weights = best[0], chosen = best[1];
  if (n.integer("normalize_routing_weights", 0)) weights = n.b.div(weights, n.b.reduceSum(weights, {1}, true));
  // rows [tokens, choices, in] (or [tokens, in]) times the weights of each one's expert
  auto product = [&](Value rows, size_t i) {
    const Dims own = rankOf(rows) == 2 ? Dims{0, 3} : Dims{0, 1, 3};
    Value y = n.b.contract(rows, n.b.gather(n.in(i), chosen, 0), own, {0, 1, 2, 3}, {0, 1, 2});
    return n.has(i + 1) ? n.b.add(y, n.b.gather(n.in(i + 1), chosen, 0)) : y;
  };
  Value rows = n.b.reshape(x, {tokens, width}), y = product(rows, 2);
  if (isFused) y = gatedInTurns(n, y);
  if (activation == "relu") y = n.b.unary<onnx::ReluOp>(y);
  if (activation == "silu") y = n.b.mul(y, n.b.unary<onnx::SigmoidOp>(y));
  if (n.has(6)) y = n.b.mul(y, product(rows, 6));
  y = n.b.mul(product(y, 4), n.b.insertOnes(weights, {2}));
  return {n.b.reshape(n.b.reduceSum(y, {1}, false), shapeOf(x))};
}

} // namespace

void addOnnxruntime(Rules &rules) {
  const StringRef domain = "com.microsoft";
  rules.add("MultiHeadAttention", multiHeadAttention, domain);
  rules.add("GroupQueryAttention", groupQueryAttention, domain);
  rules.add("RotaryEmbedding", rotaryEmbedding, domain);
  rules.add("MatMulNBits", matMulNBits, domain);
  rules.add("FusedMatMul", fusedMatMul, domain);
  rules.add("MoE", mixtureOfExperts, domain);
}

} // namespace cleave::normalize
