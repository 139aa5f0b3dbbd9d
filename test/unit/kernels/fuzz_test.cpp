// Random programs of elementwise ops, broadcasts, reductions, reshapes and transposes: whatever is clustered must
// compute what the evaluator computes, with any cut of the ranges and with shared buffers.
#include "test/unit/kernels/kernel_machine.h"
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

namespace cleave::test {
namespace {

using Shape = std::vector<int64_t>;

std::string numbers(const Shape &values) {
  return fmt::format("array<i64{}{}>", values.empty() ? "" : ": ", fmt::join(values, ", "));
}
std::string tensor(const Shape &shape, const char *element = "f32") {
  std::string text = "tensor<";
  for (int64_t size : shape) text += std::to_string(size) + "x";
  return text + element + ">";
}

class RandomProgram {
public:
  explicit RandomProgram(unsigned seed) : generator(seed) {
    const Shape shapes[] = {{6, 4, 20}, {3, 50}, {130}, {2, 3, 5, 16}, {17, 3}};
    Shape base = shapes[pick(5)];
    for (int i = 0; i < 3; ++i) add(base, "");
    for (size_t d = 0; d < base.size(); ++d) add({base[d]}, ""); // vectors that can be broadcast
    inputs = values.size();
    int length = 6 + pick(18);
    for (int i = 0; i < length; ++i) step();
  }
  std::string text() {
    std::string arguments, results, names;
    std::vector<bool> isResult(values.size());
    for (size_t i = inputs; i < values.size(); ++i) isResult[i] = pick(4) == 0;
    isResult.back() = true;
    for (size_t i = 0; i < values.size(); ++i) {
      std::string type = tensor(values[i]);
      if (i < inputs)
        arguments += fmt::format("{}%{}: {}", arguments.empty() ? "" : ", ", "v" + std::to_string(i), type);
      if (!isResult[i]) continue;
      results += (results.empty() ? "" : ", ") + type;
      names += fmt::format("{}%v{}", names.empty() ? "" : ", ", i);
    }
    return fmt::format("func.func @f({}) -> ({}) {{\n{}  return {} : {}\n}}\n", arguments, results, body, names,
                       results);
  }

private:
  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(generator); }
  size_t add(const Shape &shape, const std::string &operation) {
    if (!operation.empty()) body += fmt::format("  %v{} = {}\n", values.size(), operation);
    values.push_back(shape);
    return values.size() - 1;
  }
  size_t unary(const char *op, size_t x) {
    return add(values[x], fmt::format("onnx.{} %v{} : ({}) -> {}", op, x, tensor(values[x]), tensor(values[x])));
  }
  size_t reshape(size_t x, const Shape &to) {
    return add(to, fmt::format("onnx.Reshape %v{} {{shape = {}}} : ({}) -> {}", x, numbers(to), tensor(values[x]),
                               tensor(to)));
  }

  void step() {
    size_t x = pick(3) == 0 ? pick(values.size()) : values.size() - 1 - pick(std::min<int>(3, values.size()));
    Shape shape = values[x];
    switch (pick(9)) {
    case 0:
    case 1: {
      const char *ops[] = {"Tanh", "Sigmoid", "Neg", "Abs", "Erf", "Relu"};
      unary(ops[pick(6)], x);
      return;
    }
    case 2:
    case 3:
    case 4: { // with another value of the shape, or with one that is broadcast
      size_t y = x;
      for (int attempt = 0; attempt < 20; ++attempt) {
        y = pick(values.size());
        if (values[y] == shape) break;
        if (values[y].size() == 1 && shape.size() > 1) {
          for (size_t d = 0; d < shape.size(); ++d)
            if (shape[d] == values[y][0]) {
              y = add(shape, fmt::format("onnx.Broadcast %v{} {{shape = {}, dims = {}}} : ({}) -> {}", y,
                                         numbers(shape), numbers({int64_t(d)}), tensor(values[y]), tensor(shape)));
              break;
            }
          if (values[y] == shape) break;
        }
        y = x;
      }
      const char *ops[] = {"Add", "Sub", "Mul", "Max", "Min"};
      std::string type = tensor(shape);
      add(shape, fmt::format("onnx.{} %v{}, %v{} : ({}, {}) -> {}", ops[pick(5)], x, y, type, type, type));
      return;
    }
    case 5:
    case 6: { // reduce, then often spread again
      if (shape.empty()) return;
      Shape axes, kept, keptDims;
      for (size_t d = 0; d < shape.size(); ++d)
        if (pick(2)) {
          axes.push_back(d);
        } else {
          kept.push_back(shape[d]);
          keptDims.push_back(d);
        }
      if (axes.empty()) return;
      const char *ops[] = {"ReduceSum", "ReduceMax", "ReduceMin"};
      size_t r = add(kept, fmt::format("onnx.{} %v{} {{axes = {}}} : ({}) -> {}", ops[pick(3)], x, numbers(axes),
                                       tensor(shape), tensor(kept)));
      r = unary("Tanh", r);
      if (pick(4))
        add(shape, fmt::format("onnx.Broadcast %v{} {{shape = {}, dims = {}}} : ({}) -> {}", r, numbers(shape),
                               numbers(keptDims), tensor(kept), tensor(shape)));
      return;
    }
    case 7: { // join two dimensions or cut one
      if (shape.size() > 1 && pick(2)) {
        size_t d = pick(shape.size() - 1);
        Shape to = shape;
        to[d] *= to[d + 1];
        to.erase(to.begin() + d + 1);
        reshape(x, to);
      } else if (!shape.empty() && shape.size() < 4) {
        size_t d = pick(shape.size());
        for (int64_t part : {2, 5, 3})
          if (shape[d] % part == 0) {
            Shape to = shape;
            to[d] = part;
            to.insert(to.begin() + d + 1, shape[d] / part);
            reshape(x, to);
            return;
          }
      }
      return;
    }
    default: {
      if (shape.size() < 2) return;
      Shape permutation(shape.size()), to;
      for (size_t d = 0; d < shape.size(); ++d) permutation[d] = d;
      std::shuffle(permutation.begin(), permutation.end() - pick(2), generator);
      for (int64_t from : permutation) to.push_back(shape[from]);
      add(to, fmt::format("onnx.Transpose %v{} {{perm = {}}} : ({}) -> {}", x, numbers(permutation), tensor(shape),
                          tensor(to)));
      return;
    }
    }
  }

  std::mt19937 generator;
  std::vector<Shape> values;
  size_t inputs = 0;
  std::string body;
};

void matchTheEvaluator(KernelMachine::Device device) {
  const char *first = std::getenv("KERNEL_FUZZ_FIRST"), *count = std::getenv("KERNEL_FUZZ_COUNT");
  unsigned begin = first ? std::atoi(first) : 1, end = begin + (count ? std::atoi(count) : 40);
  for (unsigned seed = begin; seed < end; ++seed) {
    std::string text = RandomProgram(seed).text();
    KernelMachine machine(text);
    ASSERT_TRUE(machine.compile(device)) << "seed " << seed << "\n" << text;
    machine.expectSame(machine.randomInputs(seed), 1e-4);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << "\n" << text;
  }
}
TEST(KernelFuzz, RandomProgramsMatchTheEvaluator) { matchTheEvaluator(KernelMachine::Device::Cpu); }
TEST(KernelFuzz, RandomProgramsOnAnEmulatedGridMatchTheEvaluator) { matchTheEvaluator(KernelMachine::Device::Gpu); }

} // namespace
} // namespace cleave::test
