#include "runtime/check/proof/evaluate.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <optional>

namespace cleave::proof {
namespace {

constexpr int64_t mostSteps = 100'000; // of the evaluations of a comparison

uint64_t mixed(uint64_t hash, uint64_t more) {
  hash ^= more + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccd;
  return hash ^ (hash >> 33);
}

class Evaluation {
public:
  Evaluation(Store &store, int64_t &steps) : store(store), steps(steps) {}
  std::map<Atom, int64_t> variables;

  // Nothing: too much work, or an operation without a meaning here.
  std::optional<double> value(Term t) { return value(t, variables); }

private:
  using Values = std::map<Atom, int64_t>;

  std::optional<int64_t> value(Index i, const Values &values) {
    int64_t sum = store.node(i).constant;
    for (auto [part, factor] : store.node(i).terms) {
      const AtomNode &atom = store.atom(part);
      int64_t own = 0;
      if (atom.kind == AtomNode::Var) {
        auto found = values.find(part);
        if (found == values.end()) return std::nullopt;
        own = found->second;
      } else if (atom.kind == AtomNode::Row) {
        std::optional<double> number = value(atom.term, values);
        if (!number) return std::nullopt;
        // n + rows * entry names the entry's row n in all rows, also where the data's n is no whole number here.
        own = ((static_cast<int64_t>(std::floor(*number)) % atom.size) + atom.size) % atom.size;
      } else {
        std::optional<int64_t> inner = value(atom.of, values);
        if (!inner) return std::nullopt;
        const int64_t rest = ((*inner % atom.size) + atom.size) % atom.size;
        own = atom.kind == AtomNode::Remainder ? rest : (*inner - rest) / atom.size;
      }
      sum += factor * own;
    }
    return sum;
  }
  std::optional<double> value(Term t, const Values &values) {
    std::vector<int64_t> at;
    for (Index argument : store.term(t).arguments) {
      std::optional<int64_t> index = value(argument, values);
      if (!index) return std::nullopt;
      at.push_back(*index);
    }
    return value(store.term(t).definition, at);
  }

  // In [0.25, 1.25): far from zero, so that quotients are harmless.
  double random(const std::string &name, const std::vector<int64_t> &at) {
    uint64_t hash = std::hash<std::string>()(name);
    for (int64_t i : at) hash = mixed(hash, static_cast<uint64_t>(i));
    return 0.25 + static_cast<double>(mixed(hash, 1) >> 11) * 0x1p-53;
  }

  std::optional<double> value(Definition d, const std::vector<int64_t> &at) {
    auto known = results.find({d, at});
    if (known != results.end()) return known->second;
    if (++steps > mostSteps) return std::nullopt;
    std::optional<double> made = compute(d, at);
    if (made) results.emplace(std::pair(d, at), *made);
    return made;
  }

  std::optional<double> compute(Definition d, const std::vector<int64_t> &at) {
    const DefinitionNode &made = store.definition(d); // no term is made meanwhile
    Values values;
    for (size_t i = 0; i < at.size(); ++i) values[store.parameter(static_cast<int64_t>(i))] = at[i];
    std::vector<double> children;
    if (made.kind != Kind::Reduction && made.kind != Kind::Opaque && made.kind != Kind::Microbatches) {
      for (Term child : made.children) {
        std::optional<double> one = value(child, values);
        if (!one) return std::nullopt;
        children.push_back(*one);
      }
    }
    switch (made.kind) {
    case Kind::Leaf:
      return made.name.ends_with("infinity")    ? (made.name[0] == '-' ? -1e30 : 1e30)
             : made.name.starts_with("number ") ? std::strtod(made.name.c_str() + 7, nullptr)
                                                : random(made.name, at);
    case Kind::Number:
      return made.number;
    case Kind::Index:
      return static_cast<double>(at[0]);
    case Kind::Table:
      return at[0] < 0 || at[0] >= std::ssize(made.numbers)
                 ? std::nullopt
                 : std::optional(static_cast<double>(made.numbers[static_cast<size_t>(at[0])]));
    case Kind::Inside:
      return made.low <= at[0] && at[0] < made.high ? 1.0 : 0.0;
    case Kind::Sum: {
      double sum = 0;
      for (size_t i = 0; i < children.size(); ++i) sum += made.factors[i] * children[i];
      return sum;
    }
    case Kind::Product: {
      double product = 1;
      for (double child : children) product *= child;
      return product;
    }
    case Kind::Function:
      return function(made.name, children);
    case Kind::Reduction:
      return reduction(made, values);
    case Kind::Microbatches: {
      double sum = 0;
      for (int64_t m = made.low; m < made.high; ++m) {
        values[store.variable(Variable::Bound, 0, 0)] = m;
        const std::optional<double> one = value(made.children[0], values);
        if (!one) return std::nullopt;
        sum += *one;
      }
      return sum;
    }
    default:
      return std::nullopt;
    }
  }

  std::optional<double> reduction(const DefinitionNode &made, Values values) {
    std::vector<Atom> over;
    int64_t count = 1;
    for (size_t i = 0; i < made.sizes.size(); ++i) {
      over.push_back(store.variable(Variable::Bound, static_cast<int64_t>(i), made.sizes[i]));
      if (__builtin_mul_overflow(count, made.sizes[i], &count) || count > mostSteps - steps) return std::nullopt;
    }
    double result = made.reduce == Reduce::Sum ? 0 : made.reduce == Reduce::Max ? -INFINITY : INFINITY;
    for (int64_t n = 0; n < count; ++n) {
      int64_t rest = n;
      for (size_t i = over.size(); i-- > 0; rest /= made.sizes[i]) values[over[i]] = rest % made.sizes[i];
      std::optional<double> one = value(made.children[0], values);
      if (!one) return std::nullopt;
      result = made.reduce == Reduce::Sum   ? result + *one
               : made.reduce == Reduce::Max ? std::max(result, *one)
                                            : std::min(result, *one);
    }
    return result;
  }

  std::optional<double> function(const std::string &name, const std::vector<double> &x) {
    if (name == "Abs") return std::fabs(x[0]);
    if (name == "Sign") return double((x[0] > 0) - (x[0] < 0));
    if (name == "Exp") return std::exp(std::min(x[0], 50.0));
    if (name == "Log") return std::log(std::fabs(x[0]) + 1e-9);
    if (name == "Log1p") return std::log1p(std::fabs(x[0]));
    if (name == "Sqrt") return std::sqrt(std::fabs(x[0]));
    if (name == "Rsqrt") return 1 / std::sqrt(std::fabs(x[0]) + 1e-9);
    if (name == "Reciprocal") return 1 / (x[0] + (x[0] < 0 ? -1e-9 : 1e-9));
    if (name == "Tanh") return std::tanh(x[0]);
    if (name == "Sigmoid") return 1 / (1 + std::exp(-x[0]));
    if (name == "Erf") return std::erf(x[0]);
    if (name == "Sin") return std::sin(x[0]);
    if (name == "Cos") return std::cos(x[0]);
    if (name == "Relu") return std::max(x[0], 0.0);
    if (name == "Max") return *std::ranges::max_element(x);
    if (name == "Min") return *std::ranges::min_element(x);
    if (name == "Less") return double(x[0] < x[1]);
    if (name == "LessOrEqual") return double(x[0] <= x[1]);
    if (name == "And") return double(x[0] != 0 && x[1] != 0);
    if (name == "Or") return double(x[0] != 0 || x[1] != 0);
    if (name == "Xor") return double((x[0] != 0) != (x[1] != 0));
    if (name == "Where") return x[0] != 0 ? x[1] : x[2];
    if (name.starts_with("Cast")) return x[0];
    uint64_t hash = std::hash<std::string>()(name); // another function: any value, of its operands alone
    for (double one : x) hash = mixed(hash, std::bit_cast<uint64_t>(std::round(one * 1e6) / 1e6));
    return 0.25 + static_cast<double>(mixed(hash, 1) >> 11) * 0x1p-53;
  }

  Store &store;
  std::map<std::pair<Definition, std::vector<int64_t>>, double> results;
  int64_t &steps;
};

} // namespace

std::string differ(Store &store, Term a, Term b) {
  std::vector<Atom> variables = store.term(a).variables;
  const std::vector<Atom> &others = store.term(b).variables;
  variables.insert(variables.end(), others.begin(), others.end());
  std::sort(variables.begin(), variables.end());
  variables.erase(std::unique(variables.begin(), variables.end()), variables.end());
  auto hasNoValue = [&](Atom v) { return store.atom(v).size <= 0 && store.atom(v).variable != Variable::Microbatch; };
  if (std::ranges::any_of(variables, hasNoValue)) return {}; // no element differs
  int64_t steps = 0;
  for (uint64_t attempt = 0; attempt < 4; ++attempt) {
    Evaluation evaluation(store, steps);
    std::string where;
    for (Atom v : variables) {
      const AtomNode &atom = store.atom(v);
      if (atom.variable == Variable::Microbatch) {
        evaluation.variables[v] = atom.number;
        continue;
      }
      const auto size = static_cast<uint64_t>(atom.size);
      const int64_t at = attempt == 0   ? 0
                         : attempt == 1 ? atom.size - 1
                                        : static_cast<int64_t>(mixed(attempt, static_cast<uint64_t>(v)) % size);
      evaluation.variables[v] = at;
      where += fmt::format("{}{} = {}", where.empty() ? "" : ", ", store.show(store.of(v)), at);
    }
    const std::optional<double> x = evaluation.value(a), y = evaluation.value(b);
    if (!x || !y || !std::isfinite(*x) || !std::isfinite(*y)) continue;
    if (std::fabs(*x - *y) > 1e-6 * std::max({1e-3, std::fabs(*x), std::fabs(*y)}))
      return fmt::format("at {}: the plan gives {}, the unsplit step {}, for tensors of some random numbers",
                         where.empty() ? "its one element" : where, *x, *y);
  }
  return {};
}

} // namespace cleave::proof
