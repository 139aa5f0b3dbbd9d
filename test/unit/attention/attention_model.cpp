#include "test/unit/attention/attention_model.h"
#include <fmt/format.h>

namespace cleave::attention::testing {
namespace {

// Writes operations one by one; every value is a name with a shape.
struct Writer {
  std::string text;
  int count = 0;

  static std::string type(const std::string &shape, const std::string &element = "f32") {
    return "tensor<" + shape + (shape.empty() ? "" : "x") + element + ">";
  }
  std::string add(const std::string &op, const std::string &operands, const std::string &attributes,
                  const std::string &types, const std::string &result) {
    std::string name = "%t" + std::to_string(count++);
    text += fmt::format("  {} = onnx.{} {} {} : ({}) -> {}\n", name, op, operands, attributes, types, result);
    return name;
  }
  std::string constant(const std::string &value, const std::string &type) {
    std::string name = "%t" + std::to_string(count++);
    text += fmt::format("  {} = onnx.Constant dense<{}> : {}\n", name, value, type);
    return name;
  }
  std::string read(const std::string &parameter, const std::string &type) {
    std::string name = "%t" + std::to_string(count++);
    text += fmt::format("  {} = onnx.read @{} : {}\n", name, parameter, type);
    return name;
  }
  std::string contract(const std::string &a, const std::string &ta, const std::string &ia, const std::string &b,
                       const std::string &tb, const std::string &ib, const std::string &result, const std::string &ir) {
    return add(
        "Contract", a + ", " + b,
        fmt::format("{{lhs_indices = array<i64: {}>, rhs_indices = array<i64: {}>, result_indices = array<i64: {}>}}",
                    ia, ib, ir),
        ta + ", " + tb, result);
  }
  std::string binary(const std::string &op, const std::string &a, const std::string &b, const std::string &t,
                     const std::string &result = "") {
    return add(op, a + ", " + b, "", t + ", " + t, result.empty() ? t : result);
  }
  std::string unary(const std::string &op, const std::string &a, const std::string &t, const std::string &result = "") {
    return add(op, a, "", t, result.empty() ? t : result);
  }
  std::string broadcast(const std::string &a, const std::string &from, const std::string &dims,
                        const std::string &shape, const std::string &to) {
    return add("Broadcast", a, fmt::format("{{dims = array<i64: {}>, shape = array<i64: {}>}}", dims, shape), from, to);
  }
};

const std::string scores = "tensor<2x4x8x8xf32>", pairs = "2, 4, 8, 8", rows = "tensor<2x4x8xf32>";

std::string causalTable(const std::string &low) {
  std::string text = "[";
  for (int row = 0; row < 8; ++row) {
    text += row ? ", [" : "[";
    for (int column = 0; column < 8; ++column)
      text += (column ? ", " : "") + (column <= row ? std::string("0.0") : low);
    text += "]";
  }
  return text + "]";
}

std::string addPadding(Writer &w, const std::string &x, const std::string &low) {
  std::string seen = w.add("Cast", "%seen", "{to = i1}", "tensor<2x8xi64>", "tensor<2x8xi1>");
  std::string row =
      w.add("Where", seen + ", " + w.constant("0.0", "tensor<2x8xf32>") + ", " + w.constant(low, "tensor<2x8xf32>"), "",
            "tensor<2x8xi1>, tensor<2x8xf32>, tensor<2x8xf32>", "tensor<2x8xf32>");
  return w.binary("Add", x, w.broadcast(row, "tensor<2x8xf32>", "0, 3", pairs, scores), scores);
}

std::string masked(Writer &w, const Form &form, std::string x) {
  if (form.mask == Mask::CausalTable || form.mask == Mask::CausalPadding) {
    std::string table = w.constant(causalTable("0xFF800000"), "tensor<8x8xf32>");
    x = w.binary("Add", x, w.broadcast(table, "tensor<8x8xf32>", "2, 3", pairs, scores), scores);
  }
  if (form.mask == Mask::CausalWhere || form.mask == Mask::Window) {
    auto index = [&](int dim) {
      return w.add("Iota", "", fmt::format("{{type = tensor<8x8xi64>, dim = {} : i64}}", dim), "", "tensor<8x8xi64>");
    };
    std::string row = index(0), column = index(1);
    std::string past = w.binary("LessOrEqual", column, row, "tensor<8x8xi64>", "tensor<8x8xi1>");
    if (form.mask == Mask::Window) {
      std::string begin = w.binary("Sub", row, w.constant("3", "tensor<8x8xi64>"), "tensor<8x8xi64>");
      std::string near = w.binary("Greater", column, begin, "tensor<8x8xi64>", "tensor<8x8xi1>");
      past = w.binary("And", near, past, "tensor<8x8xi1>");
    }
    std::string all = w.broadcast(past, "tensor<8x8xi1>", "2, 3", pairs, "tensor<2x4x8x8xi1>");
    x = w.add("Where", all + ", " + x + ", " + w.constant("-1.0e9", scores), "",
              "tensor<2x4x8x8xi1>, " + scores + ", " + scores, scores);
  }
  if (form.mask == Mask::Padding || form.mask == Mask::CausalPadding) x = addPadding(w, x, "0xFF800000");
  if (form.mask == Mask::PaddingFinite) x = addPadding(w, x, "-3.40282347E+38");
  if (form.mask == Mask::TrainedBias) {
    std::string bias = w.read("bias", "tensor<4x8x8xf32>");
    x = w.binary("Add", x, w.broadcast(bias, "tensor<4x8x8xf32>", "1, 2, 3", pairs, scores), scores);
  }
  return x;
}

std::string softmax(Writer &w, const Form &form, const std::string &x) {
  std::string max = w.unary("StopGradient", w.add("ReduceMax", x, "{axes = array<i64: 3>}", scores, rows), rows);
  std::string e = w.unary("Exp", w.binary("Sub", x, w.broadcast(max, rows, "0, 1, 2", pairs, scores), scores), scores);
  std::string sum = w.add("ReduceSum", e, "{axes = array<i64: 3>}", scores, rows);
  std::string p = w.binary("Div", e, w.broadcast(sum, rows, "0, 1, 2", pairs, scores), scores);
  if (!form.guard) return p;
  std::string nan = w.unary("IsNaN", p, scores, "tensor<2x4x8x8xi1>");
  return w.add("Where", nan + ", " + w.constant("0.0", scores) + ", " + p, "",
               "tensor<2x4x8x8xi1>, " + scores + ", " + scores, scores);
}

std::string dropped(Writer &w, const std::string &p) {
  std::string draw =
      w.add("RandomUniform", "%key", "{type = tensor<2x4x8x8xf32>, stream = 3 : i64}", "tensor<2xi64>", scores);
  std::string kept = w.binary("Less", draw, w.constant("0.75", scores), scores, "tensor<2x4x8x8xi1>");
  std::string factor = w.add("Where", kept + ", " + w.constant("1.333333", scores) + ", " + w.constant("0.0", scores),
                             "", "tensor<2x4x8x8xi1>, " + scores + ", " + scores, scores);
  return w.add("Mul", p + ", " + factor, "{onnx.dropout}", scores + ", " + scores, scores);
}

} // namespace

std::string attentionModel(const Form &form) {
  Writer w;
  int64_t groups = form.groups;
  std::string grouped = fmt::format("{}x4", groups);
  // Queries [b,s,h,d] or [s,b,h,d]; keys and values the same with their groups, then repeated for the heads.
  std::string first = form.sequenceFirst ? "8x2" : "2x8", order = form.sequenceFirst ? "1, 0" : "0, 1";
  std::string x = "tensor<2x8x6xf32>", queries = fmt::format("tensor<{}x4x4xf32>", first);
  std::string q = w.contract("%x", x, "0, 1, 2", "%wq", "tensor<6x4x4xf32>", "2, 3, 4", queries, order + ", 3, 4");
  auto keys = [&](const std::string &weight) {
    std::string few = fmt::format("tensor<2x{}x8x4xf32>", groups), wt = fmt::format("tensor<6x{}xf32>", grouped);
    if (groups == 4) return w.contract("%x", x, "0, 1, 2", weight, wt, "2, 3, 4", queries, order + ", 3, 4");
    std::string k = w.contract("%x", x, "0, 1, 2", weight, wt, "2, 3, 4", few, "0, 3, 1, 4");
    std::string wide = fmt::format("tensor<2x{}x{}x8x4xf32>", groups, 4 / groups);
    k = w.broadcast(k, few, "0, 1, 3, 4", fmt::format("2, {}, {}, 8, 4", groups, 4 / groups), wide);
    return w.add("Reshape", k, "{shape = array<i64: 2, 4, 8, 4>}", wide, "tensor<2x4x8x4xf32>");
  };
  std::string k = keys("%wk"), v = keys("%wv");
  std::string kt = groups == 4 ? queries : "tensor<2x4x8x4xf32>";
  std::string qi = form.sequenceFirst ? "2, 0, 1, 4" : "0, 2, 1, 4";
  std::string ki = groups != 4 ? "0, 1, 3, 4" : form.sequenceFirst ? "3, 0, 1, 4" : "0, 3, 1, 4";
  if (!form.scaleAfter) q = w.binary("Mul", q, w.constant("0.5", queries), queries);
  std::string s = w.contract(q, queries, qi, k, kt, ki, scores, "0, 1, 2, 3");
  if (form.scaleAfter) s = w.binary("Div", s, w.constant("2.0", scores), scores);
  if (form.capped) {
    std::string cap = w.constant("0.5", scores);
    s = w.binary("Mul", w.unary("Tanh", w.binary("Div", s, cap, scores), scores), cap, scores);
  }
  std::string p = softmax(w, form, masked(w, form, s));
  if (form.dropout) p = dropped(w, p);
  std::string out = w.contract(p, scores, "0, 1, 2, 3", v, kt, ki, queries, qi);
  std::string y =
      w.contract(out, queries, order + ", 2, 3", "%wo", "tensor<4x4x5xf32>", "2, 3, 4", "tensor<2x8x5xf32>", "0, 1, 4");
  std::string head = R"(onnx.param @wq : tensor<6x4x4xf32> "parameter" {{trainable = true}}
onnx.param @wk : tensor<6x{0}xf32> "parameter" {{trainable = true}}
onnx.param @wv : tensor<6x{0}xf32> "parameter" {{trainable = true}}
onnx.param @wo : tensor<4x4x5xf32> "parameter" {{trainable = true}}
{1}func.func @model(%x: tensor<2x8x6xf32> {{onnx.name = "x"}}, %seen: tensor<2x8xi64> {{onnx.name = "seen"}}, %key: tensor<2xi64> {{onnx.name = "cleave.step", onnx.host = "step"}}) -> (tensor<2x8x5xf32> {{onnx.name = "logits"}}) {{
  %wq = onnx.read @wq : tensor<6x4x4xf32>
  %wk = onnx.read @wk : tensor<6x{0}xf32>
  %wv = onnx.read @wv : tensor<6x{0}xf32>
  %wo = onnx.read @wo : tensor<4x4x5xf32>
{2}  return {3} : tensor<2x8x5xf32>
}}
)";
  std::string bias =
      form.mask == Mask::TrainedBias ? "onnx.param @bias : tensor<4x8x8xf32> \"parameter\" {trainable = true}\n" : "";
  return fmt::format(fmt::runtime(head), grouped, bias, w.text, y);
}

} // namespace cleave::attention::testing
