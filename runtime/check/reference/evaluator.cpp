#include "runtime/check/reference/evaluation.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::runtime {

const HostTensor &Evaluation::operand(size_t i) const {
  check(i < operands.size(), fmt::format("has {} operands, needs at least {}", operands.size(), i + 1));
  return *operands[i];
}
const Ints &Evaluation::ints(const std::string &name) const {
  auto found = attributes.find(name);
  check(found != attributes.end() && std::holds_alternative<Ints>(found->second),
        fmt::format("needs the integer attribute '{}'", name));
  return std::get<Ints>(found->second);
}
int64_t Evaluation::integer(const std::string &name) const {
  const Ints &values = ints(name);
  check(values.size() == 1, fmt::format("attribute '{}' must be one integer", name));
  return values[0];
}
double Evaluation::real(const std::string &name) const {
  auto found = attributes.find(name);
  check(found != attributes.end(), fmt::format("needs the attribute '{}'", name));
  if (auto *value = std::get_if<double>(&found->second)) return *value;
  return static_cast<double>(integer(name));
}
bool Evaluation::flag(const std::string &name) const {
  auto found = attributes.find(name);
  if (found == attributes.end()) return false;
  auto *values = std::get_if<Ints>(&found->second);
  return !values || values->empty() || values->front() != 0;
}
void Evaluation::check(bool holds, const std::string &what) const {
  if (!holds) throw EvaluationError(op + " " + what);
}

static const EvaluatorTable &evaluators() {
  static const EvaluatorTable table = [] {
    EvaluatorTable table;
    addElementwise(table);
    addMovement(table);
    addReductions(table);
    addContract(table);
    addConvolutions(table);
    return table;
  }();
  return table;
}

plan::DType heldAs(plan::DType dtype, Precision precision) {
  return precision == Precision::Double && dtype == plan::F32 ? plan::F64 : dtype;
}

bool canEvaluate(const std::string &op) { return evaluators().contains(op); }

Result<std::vector<HostTensor>> evaluate(const std::string &op, std::span<const HostTensor *const> operands,
                                         const Attributes &attributes, std::span<const TensorType> resultTypes,
                                         Precision precision) {
  auto found = evaluators().find(op);
  if (found == evaluators().end()) return inputError(fmt::format("the reference evaluator does not know '{}'", op));
  if (resultTypes.size() != 1) return inputError(fmt::format("{} has one result, not {}", op, resultTypes.size()));
  if (attributes.contains("shard_axes"))
    return inputError(op + " is partitioned (shard_axes); the reference evaluator knows one device");
  Evaluation evaluation{op, operands, attributes, resultTypes[0]};
  evaluation.type.dtype = heldAs(evaluation.type.dtype, precision);
  try {
    HostTensor result = found->second(evaluation);
    evaluation.check(result.shape == resultTypes[0].shape,
                     fmt::format("gives shape [{}], its type says [{}]", fmt::join(result.shape, ","),
                                 fmt::join(resultTypes[0].shape, ",")));
    std::vector<HostTensor> results;
    results.push_back(std::move(result));
    return results;
  } catch (const EvaluationError &error) {
    return inputError(error.what());
  }
}

} // namespace cleave::runtime
