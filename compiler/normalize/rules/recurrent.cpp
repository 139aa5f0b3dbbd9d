// LSTM, GRU and RNN: the input's share of all gates is one product over the whole sequence, the recurrence is unrolled.
// Weights: W [directions, gates * hidden, input], R [directions, gates * hidden, hidden], B [directions, 2 * gates *
// hidden].
#include "compiler/normalize/node.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

constexpr int64_t longestSequence = 1024; // unrolled steps; beyond it the program would be too large

struct Recurrence {
  Value x;                              // [seq, batch, input]
  Value w, r, inputBias, recurrentBias; // of one direction: [gates * hidden, ...]; biases may be null
  Value h, c, peephole;                 // [batch, hidden]; c and peephole may be null
  int64_t hidden;
  bool isRelu = false; // RNN: instead of tanh
};

// Rows [gate * hidden, (gate + 1) * hidden) along the last dimension.
Value gate(Node &n, Value all, int64_t which, int64_t hidden) {
  return n.b.slice(all, rankOf(all) - 1, which * hidden, hidden);
}
Value sigmoid(Node &n, Value x) { return n.b.unary<onnx::SigmoidOp>(x); }
Value tanh(Node &n, Value x) { return n.b.unary<onnx::TanhOp>(x); }
Value product(Node &n, Value h, Value weights) { return n.b.contract(h, weights, {0, 1}, {2, 1}, {0, 2}); }
Value plus(Node &n, Value a, Value b) { return b ? n.b.add(a, b) : a; }

// One step: `input` is the input's share of the gates. Updates r.h and r.c.
void stepLstm(Node &n, Recurrence &r, Value input) { // gates: input, output, forget, cell
  Value gates = plus(n, n.b.add(input, product(n, r.h, r.r)), r.recurrentBias);
  auto peep = [&](Value x, int64_t which, Value cell) {
    return r.peephole ? n.b.add(x, n.b.mul(gate(n, r.peephole, which, r.hidden), cell)) : x;
  };
  Value in = sigmoid(n, peep(gate(n, gates, 0, r.hidden), 0, r.c));
  Value forget = sigmoid(n, peep(gate(n, gates, 2, r.hidden), 2, r.c));
  Value c = n.b.add(n.b.mul(forget, r.c), n.b.mul(in, tanh(n, gate(n, gates, 3, r.hidden))));
  Value out = sigmoid(n, peep(gate(n, gates, 1, r.hidden), 1, c));
  r.c = c;
  r.h = n.b.mul(out, tanh(n, c));
}
void stepGru(Node &n, Recurrence &r, Value input) { // gates: update, reset, hidden
  int64_t size = r.hidden;
  auto rows = [&](Value weights, int64_t first, int64_t count) {
    return n.b.slice(weights, 0, first * size, count * size);
  };
  Value z, reset, candidate;
  if (n.integer("linear_before_reset", 0)) {
    Value recurrent = plus(n, product(n, r.h, r.r), r.recurrentBias);
    z = sigmoid(n, n.b.add(gate(n, input, 0, size), gate(n, recurrent, 0, size)));
    reset = sigmoid(n, n.b.add(gate(n, input, 1, size), gate(n, recurrent, 1, size)));
    candidate = n.b.add(gate(n, input, 2, size), n.b.mul(reset, gate(n, recurrent, 2, size)));
  } else {
    Value first = product(n, r.h, rows(r.r, 0, 2));
    if (r.recurrentBias) first = n.b.add(first, rows(r.recurrentBias, 0, 2));
    z = sigmoid(n, n.b.add(gate(n, input, 0, size), gate(n, first, 0, size)));
    reset = sigmoid(n, n.b.add(gate(n, input, 1, size), gate(n, first, 1, size)));
    candidate = n.b.add(gate(n, input, 2, size), product(n, n.b.mul(reset, r.h), rows(r.r, 2, 1)));
    if (r.recurrentBias) candidate = n.b.add(candidate, rows(r.recurrentBias, 2, 1));
  }
  Value fresh = tanh(n, candidate); // h = (1 - z) fresh + z h
  r.h = n.b.add(fresh, n.b.mul(z, n.b.sub(r.h, fresh)));
}
void stepRnn(Node &n, Recurrence &r, Value input) {
  Value sum = plus(n, n.b.add(input, product(n, r.h, r.r)), r.recurrentBias);
  r.h = r.isRelu ? n.b.unary<onnx::ReluOp>(sum) : tanh(n, sum);
}

// Are activations told, for each direction, and are they these, in whatever case they are written?
bool areActivations(Node &n, std::initializer_list<StringRef> names) {
  auto told = dyn_cast_or_null<ArrayAttr>(n.attribute("activations"));
  if (!told || told.empty() || told.size() % names.size() != 0) return false;
  for (auto [i, name] : llvm::enumerate(told.getAsRange<StringAttr>()))
    if (!name.getValue().equals_insensitive(names.begin()[i % names.size()])) return false;
  return true;
}

// Row `direction` of a tensor whose first dimension counts directions.
Value ofDirection(Node &n, Value all, int64_t direction) {
  return n.b.reshape(n.b.slice(all, 0, direction, 1), shapeOf(all).drop_front());
}

// sequence_lens [batch]; null: all sequences have the whole length. Behind its end a sequence's outputs are zeros and
// its state stays as it is, so that the reverse direction begins at the sequence's last element.
Value lengthsOf(Node &n, int64_t whole) {
  if (!n.has(4)) return {};
  if (!constantOf(n.in(4))) return n.in(4);
  const Dims known = n.constantInts(4);
  for (int64_t given : known)
    if (given < 0 || given > whole)
      n.fail("its sequence_lens has a length of " + Twine(given) + ", its sequences have " + Twine(whole) + " steps");
  return llvm::all_of(known, [&](int64_t given) { return given == whole; }) ? Value() : n.in(4);
}

template <void (*step)(Node &, Recurrence &, Value), int64_t gates> Values recurrent(Node &n) {
  bool batchFirst = n.integer("layout", 0), hasCell = gates == 4;
  Value x = batchFirst ? n.b.transpose(n.in(0), {1, 0, 2}) : n.in(0);
  int64_t length = shapeOf(x)[0], batch = shapeOf(x)[1];
  if (length > longestSequence)
    n.fail("unrolls " + Twine(length) + " steps; at most " + Twine(longestSequence) + " are supported");
  const bool isRelu = gates == 1 && areActivations(n, {"Relu"});
  const bool isDefault = gates == 4   ? areActivations(n, {"Sigmoid", "Tanh", "Tanh"})
                         : gates == 3 ? areActivations(n, {"Sigmoid", "Tanh"})
                                      : areActivations(n, {"Tanh"});
  if (n.attribute("activations") && !isDefault && !isRelu)
    n.fail("only the default activations, and Relu of an RNN, are supported");
  if (n.attribute("clip") || n.integer("input_forget", 0)) n.fail("clip and input_forget are not supported");
  std::string direction = n.text("direction", "forward");
  int64_t directions = direction == "bidirectional" ? 2 : 1, hidden = shapeOf(n.in(2))[2];
  if (n.integer("hidden_size", hidden) != hidden)
    n.fail("its hidden_size is " + Twine(n.integer("hidden_size", hidden)) + ", its weights are for " + Twine(hidden));
  n.needsShape(1, {directions, gates * hidden, shapeOf(x)[2]});
  n.needsShape(2, {directions, gates * hidden, hidden});
  n.needsShape(3, {directions, 2 * gates * hidden});
  n.needsShape(4, {batch});
  for (size_t state : {5, 6})
    n.needsShape(state, batchFirst ? Dims{batch, directions, hidden} : Dims{directions, batch, hidden});
  n.needsShape(7, {directions, 3 * hidden});
  n.writeOut(length * directions);
  const Value lengths = lengthsOf(n, length);
  auto initial = [&](size_t i, int64_t d) -> Value {
    if (!n.has(i)) return n.b.splat(RankedTensorType::get({batch, hidden}, elementOf(x)), 0);
    return ofDirection(n, batchFirst ? n.b.transpose(n.in(i), {1, 0, 2}) : n.in(i), d);
  };
  Values outputs, lastH, lastC; // per direction
  for (int64_t d = 0; d < directions; ++d) {
    Recurrence r{x, ofDirection(n, n.in(1), d), ofDirection(n, n.in(2), d), {}, {}, initial(5, d), {}, {}, hidden};
    r.isRelu = isRelu;
    if (n.has(3)) {
      Value both = ofDirection(n, n.in(3), d);
      r.inputBias = n.b.slice(both, 0, 0, gates * hidden);
      r.recurrentBias = n.b.slice(both, 0, gates * hidden, gates * hidden);
    }
    if (hasCell) r.c = initial(6, d);
    if (hasCell && n.has(7)) r.peephole = ofDirection(n, n.in(7), d);
    Value input = plus(n, n.b.contract(x, r.w, {0, 1, 2}, {3, 2}, {0, 1, 3}), r.inputBias);
    bool backward = direction == "reverse" || d == 1;
    Values states(length);
    for (int64_t i = 0; i < length; ++i) {
      int64_t t = backward ? length - 1 - i : i;
      const Value h = r.h, c = r.c;
      step(n, r, n.b.reshape(n.b.slice(input, 0, t, 1), {batch, gates * hidden}));
      Value output = r.h;
      if (lengths) {
        Value runs = n.b.reshape(n.b.binary<onnx::GreaterOp>(lengths, n.b.scalar(lengths, double(t))), {batch, 1});
        output = n.b.where(runs, r.h, n.b.scalar(r.h, 0));
        r.h = n.b.where(runs, r.h, h);
        if (hasCell) r.c = n.b.where(runs, r.c, c);
      }
      states[t] = n.b.reshape(output, {1, 1, batch, hidden});
    }
    outputs.push_back(n.b.concat(states, 0)); // [seq, 1, batch, hidden]
    lastH.push_back(n.b.reshape(r.h, {1, batch, hidden}));
    if (hasCell) lastC.push_back(n.b.reshape(r.c, {1, batch, hidden}));
  }
  Value y = n.b.concat(outputs, 1), h = n.b.concat(lastH, 0), c = hasCell ? n.b.concat(lastC, 0) : Value();
  if (batchFirst) {
    y = n.b.transpose(y, {2, 0, 1, 3});
    h = n.b.transpose(h, {1, 0, 2});
    if (c) c = n.b.transpose(c, {1, 0, 2});
  }
  Values results{y, h, c};
  results.resize(n.outputs());
  return results;
}

} // namespace

void addRecurrences(Rules &rules) {
  rules.add("LSTM", recurrent<stepLstm, 4>);
  rules.add("GRU", recurrent<stepGru, 3>);
  rules.add("RNN", recurrent<stepRnn, 1>);
}

} // namespace cleave::normalize
