// Elementwise operators: doubles for floats, 64-bit integers for the rest.
#include "runtime/base/philox.h"
#include "runtime/check/reference/evaluation.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace cleave::runtime {
namespace {

struct UnaryMeaning {
  double (*real)(double);
  int64_t (*integer)(int64_t);
};
const std::map<std::string, UnaryMeaning> &unaryMeanings() {
  static const std::map<std::string, UnaryMeaning> meanings = {
      {"Neg", {[](double x) { return -x; }, [](int64_t x) { return int64_t(0 - uint64_t(x)); }}},
      {"Abs", {[](double x) { return std::fabs(x); }, [](int64_t x) { return x < 0 ? int64_t(0 - uint64_t(x)) : x; }}},
      {"Sign",
       {[](double x) { return std::isnan(x) ? x : double((x > 0) - (x < 0)); },
        [](int64_t x) { return int64_t((x > 0) - (x < 0)); }}},
      {"Exp", {[](double x) { return std::exp(x); }, nullptr}},
      {"Log", {[](double x) { return std::log(x); }, nullptr}},
      {"Log1p", {[](double x) { return std::log1p(x); }, nullptr}},
      {"Sqrt", {[](double x) { return std::sqrt(x); }, nullptr}},
      {"Rsqrt", {[](double x) { return 1 / std::sqrt(x); }, nullptr}},
      {"Reciprocal", {[](double x) { return 1 / x; }, nullptr}},
      {"Tanh", {[](double x) { return std::tanh(x); }, nullptr}},
      {"Sigmoid",
       {[](double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }, nullptr}},
      {"Erf", {[](double x) { return std::erf(x); }, nullptr}},
      {"Sin", {[](double x) { return std::sin(x); }, nullptr}},
      {"Cos", {[](double x) { return std::cos(x); }, nullptr}},
      {"Floor", {[](double x) { return std::floor(x); }, [](int64_t x) { return x; }}},
      {"Ceil", {[](double x) { return std::ceil(x); }, [](int64_t x) { return x; }}},
      {"Round", {[](double x) { return std::nearbyint(x); }, [](int64_t x) { return x; }}},
      {"Relu", {[](double x) { return x < 0 ? 0 : x; }, [](int64_t x) { return x < 0 ? 0 : x; }}},
      {"StopGradient", {[](double x) { return x; }, [](int64_t x) { return x; }}},
      {"Not", {nullptr, [](int64_t x) { return ~x; }}},
      {"IsNaN", {[](double x) { return double(std::isnan(x)); }, [](int64_t) { return int64_t(0); }}},
      {"IsInf", {[](double x) { return double(std::isinf(x)); }, [](int64_t) { return int64_t(0); }}},
  };
  return meanings;
}

void checkShapes(const Evaluation &e, size_t operands) {
  e.check(e.operands.size() == operands || operands == 0, "has the wrong number of operands");
  for (const HostTensor *operand : e.operands)
    e.check(operand->shape == e.type.shape, "needs operands of the result's shape");
}

HostTensor unary(const Evaluation &e) {
  checkShapes(e, 1);
  const UnaryMeaning &meaning = unaryMeanings().at(e.op);
  const HostTensor &x = e.operand(0);
  int64_t count = x.elements();
  if (isFloat(x.dtype)) {
    e.check(meaning.real, "is not defined for floating point");
    Reals values(x);
    RealResult result(e.type);
    double *out = result.data();
    forEachElement(count, [&](int64_t i) { out[i] = meaning.real(values[i]); });
    return result.finish();
  }
  e.check(meaning.integer, "is not defined for integers");
  std::vector<int64_t> values = x.integers();
  bool logical = x.dtype == plan::BOOL && e.op == "Not";
  for (int64_t &value : values) value = logical ? !value : meaning.integer(value);
  return HostTensor::ofIntegers(e.type.dtype, e.type.shape, values);
}

int64_t integerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, factor = uint64_t(base);
  for (; exponent; exponent >>= 1, factor *= factor)
    if (exponent & 1) result *= factor;
  return int64_t(result);
}
// INT64_MIN / -1 wraps instead of trapping; divisors are checked by the caller.
int64_t quotient(int64_t a, int64_t b) { return b == -1 ? int64_t(0 - uint64_t(a)) : a / b; }
int64_t remainderOfSignB(int64_t a, int64_t b) {
  int64_t r = b == -1 ? 0 : a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

struct BinaryMeaning {
  double (*real)(double, double);
  int64_t (*integer)(int64_t, int64_t);
};
const std::map<std::string, BinaryMeaning> &binaryMeanings() {
  using D = double;
  using I = int64_t;
  static const std::map<std::string, BinaryMeaning> meanings = {
      {"Add", {[](D a, D b) { return a + b; }, [](I a, I b) { return I(uint64_t(a) + uint64_t(b)); }}},
      {"Sub", {[](D a, D b) { return a - b; }, [](I a, I b) { return I(uint64_t(a) - uint64_t(b)); }}},
      {"Mul", {[](D a, D b) { return a * b; }, [](I a, I b) { return I(uint64_t(a) * uint64_t(b)); }}},
      {"Div", {[](D a, D b) { return a / b; }, quotient}},
      {"Mod", {[](D a, D b) { return std::fmod(a, b); }, remainderOfSignB}},
      {"Pow", {[](D a, D b) { return std::pow(a, b); }, integerPower}},
      {"Max",
       {[](D a, D b) { return std::isnan(a)   ? a
                              : std::isnan(b) ? b
                              : a > b         ? a
                                              : b; },
        [](I a, I b) { return a > b ? a : b; }}},
      {"Min",
       {[](D a, D b) { return std::isnan(a)   ? a
                              : std::isnan(b) ? b
                              : a < b         ? a
                                              : b; },
        [](I a, I b) { return a < b ? a : b; }}},
      {"And", {nullptr, [](I a, I b) { return a & b; }}},
      {"Or", {nullptr, [](I a, I b) { return a | b; }}},
      {"Xor", {nullptr, [](I a, I b) { return a ^ b; }}},
      {"Equal", {[](D a, D b) { return D(a == b); }, [](I a, I b) { return I(a == b); }}},
      {"Less", {[](D a, D b) { return D(a < b); }, [](I a, I b) { return I(a < b); }}},
      {"LessOrEqual", {[](D a, D b) { return D(a <= b); }, [](I a, I b) { return I(a <= b); }}},
      {"Greater", {[](D a, D b) { return D(a > b); }, [](I a, I b) { return I(a > b); }}},
      {"GreaterOrEqual", {[](D a, D b) { return D(a >= b); }, [](I a, I b) { return I(a >= b); }}},
  };
  return meanings;
}

// u64 values above 2^63 order and divide as unsigned.
int64_t unsignedMeaning(const std::string &op, int64_t a, int64_t b, const BinaryMeaning &meaning) {
  uint64_t x = uint64_t(a), y = uint64_t(b);
  if (op == "Div") return int64_t(x / y);
  if (op == "Mod") return int64_t(x % y);
  if (op == "Max") return int64_t(x > y ? x : y);
  if (op == "Min") return int64_t(x < y ? x : y);
  if (op == "Less") return x < y;
  if (op == "LessOrEqual") return x <= y;
  if (op == "Greater") return x > y;
  if (op == "GreaterOrEqual") return x >= y;
  return meaning.integer(a, b);
}

HostTensor binary(const Evaluation &e) {
  checkShapes(e, 2);
  const BinaryMeaning &meaning = binaryMeanings().at(e.op);
  const HostTensor &a = e.operand(0), &b = e.operand(1);
  int64_t count = a.elements();
  if (isFloat(a.dtype)) {
    e.check(meaning.real && isFloat(b.dtype), "does not take these element types");
    Reals left(a), right(b);
    RealResult result(e.type);
    double *out = result.data();
    forEachElement(count, [&](int64_t i) { out[i] = meaning.real(left[i], right[i]); });
    return result.finish();
  }
  e.check(meaning.integer && !isFloat(b.dtype), "does not take these element types");
  std::vector<int64_t> left = a.integers(), right = b.integers();
  bool divides = e.op == "Div" || e.op == "Mod";
  e.check(!divides || std::find(right.begin(), right.end(), 0) == right.end(), "divides an integer by zero");
  forEachElement(count, [&](int64_t i) {
    left[i] =
        a.dtype == plan::U64 ? unsignedMeaning(e.op, left[i], right[i], meaning) : meaning.integer(left[i], right[i]);
  });
  return HostTensor::ofIntegers(e.type.dtype, e.type.shape, left);
}

HostTensor sum(const Evaluation &e) {
  checkShapes(e, 0);
  e.check(!e.operands.empty(), "needs an operand");
  int64_t count = elementCount(e.type.shape);
  if (isFloat(e.type.dtype)) {
    RealResult result(e.type, 0);
    double *out = result.data();
    for (const HostTensor *operand : e.operands) {
      Reals values(*operand);
      forEachElement(count, [&](int64_t i) { out[i] += values[i]; });
    }
    return result.finish();
  }
  std::vector<int64_t> total(count);
  for (const HostTensor *operand : e.operands) {
    std::vector<int64_t> values = operand->integers();
    for (int64_t i = 0; i < count; ++i) total[i] += values[i];
  }
  return HostTensor::ofIntegers(e.type.dtype, e.type.shape, total);
}

HostTensor where(const Evaluation &e) {
  checkShapes(e, 3);
  const AsType condition(e.operand(0), plan::BOOL), yes(e.operand(1), e.type.dtype), no(e.operand(2), e.type.dtype);
  HostTensor result = HostTensor::unset(e.type.dtype, e.type.shape);
  const auto *isTrue = condition->as<uint8_t>();
  const int64_t bytes = byteSize(e.type.dtype);
  forEachElement(result.elements(), [&](int64_t i) {
    std::memcpy(&result.data[i * bytes], &(isTrue[i] ? yes : no)->data[i * bytes], bytes);
  });
  return result;
}

HostTensor cast(const Evaluation &e) {
  checkShapes(e, 1);
  return e.operand(0).converted(e.type.dtype);
}

HostTensor constant(const Evaluation &e) {
  auto found = e.attributes.find("value");
  e.check(found != e.attributes.end() && std::holds_alternative<HostTensor>(found->second), "needs the tensor 'value'");
  HostTensor value = std::get<HostTensor>(found->second).converted(e.type.dtype);
  if (value.shape == e.type.shape) return value;
  e.check(value.elements() == 1, "has a value that is neither of the result's shape nor a splat");
  HostTensor result = HostTensor::unset(e.type.dtype, e.type.shape);
  copyStrided(value.data.data(), 0, Ints(e.type.shape.size(), 0), e.type.shape, byteSize(e.type.dtype),
              result.data.data());
  return result;
}

HostTensor iota(const Evaluation &e) {
  int64_t dim = e.integer("dim");
  e.check(dim >= 0 && dim < int64_t(e.type.shape.size()), "counts along a dimension that does not exist");
  int64_t stride = rowMajorStrides(e.type.shape)[dim], size = e.type.shape[dim], count = elementCount(e.type.shape);
  std::vector<int64_t> values(count);
  forEachElement(count, [&](int64_t i) { values[i] = i / stride % size; });
  HostTensor result = HostTensor::unset(e.type.dtype, e.type.shape);
  result.setIntegers(values.data());
  return result;
}

HostTensor randomUniform(const Evaluation &e) {
  std::vector<int64_t> key = e.operand(0).integers();
  e.check(key.size() == 2, "needs a key of two integers: seed and step");
  int64_t stream = e.integer("stream");
  RealResult result(e.type);
  double *out = result.data();
  forEachElement(elementCount(e.type.shape), [&](int64_t i) { out[i] = philoxUniform(key[0], key[1], stream, i); });
  return result.finish();
}

} // namespace

size_t elementOperands(const std::string &op) {
  return unaryMeanings().contains(op) ? 1 : binaryMeanings().contains(op) ? 2 : 0;
}

void addElementwise(EvaluatorTable &table) {
  for (const auto &[name, meaning] : unaryMeanings()) table[name] = unary;
  for (const auto &[name, meaning] : binaryMeanings()) table[name] = binary;
  table["Sum"] = sum;
  table["Where"] = where;
  table["Cast"] = cast;
  table["Constant"] = constant;
  table["Iota"] = iota;
  table["RandomUniform"] = randomUniform;
}

} // namespace cleave::runtime
