#include "runtime/check/proof/padding.h"
#include "runtime/check/proof/reference.h"
#include "runtime/check/proof/term_comparison.h"
#include "runtime/plan/coordinate.h"

namespace cleave::proof {
namespace {

class PaddingComparison {
public:
  PaddingComparison(const plan::Plan &plan, const plan::Graph &padded, const plan::Graph &graph, Proof &proof,
                    size_t most, bool stops)
      : plan(plan), proof(proof), store(!proof.roundsElsewhere, most, /*hasPadding=*/true),
        terms(store, proof, "the padded step"), padded(padded, store), plain(graph, store), operations(store) {
    terms.stops = stops;
  }

  void compare(const std::string &name, int64_t microbatches) {
    for (const plan::Parameter &parameter : plan.parameters()) {
      const std::vector<int64_t> shape = listOf(parameter.shape());
      const bool isAccumulator = parameter.role() == plan::Parameter::ACCUMULATOR;
      const Term value =
          isAccumulator ? store.number(parameter.fill()) : store.leaf(parameter.name(), operations.dimensions(shape));
      plain.state[parameter.name()] = {parameter.dtype(), shape, value};
      padded.state[parameter.name()] = {parameter.dtype(), listOf(runtime::paddedShape(parameter)),
                                        withZeros(plain.state[parameter.name()], parameter)};
    }
    try {
      const bool isStep = name == "step";
      const auto wanted = isStep ? plain.step(microbatches) : plain.run(name, 0);
      const auto found = isStep ? padded.step(microbatches) : padded.run(name, 0);
      for (const plan::Parameter &parameter : plan.parameters()) compareParameter(parameter);
      for (const auto &[output, tensor] : found) compareOutput(output, tensor, wanted);
    } catch (const Unproved &gap) {
      const plan::GraphNode *node = plain.node ? plain.node : padded.node;
      proof.gaps.push_back({node ? node->op() : "padding", node ? node->name() : name, gap.why});
    }
    proof.definitions += static_cast<int64_t>(store.definitionCount());
  }

private:
  // The tensor of the padded shape, in which the entries beyond its own are zeros.
  Term withZeros(const Tensor &whole, const plan::Parameter &parameter) {
    const std::vector<Index> index = operations.dimensions(listOf(runtime::paddedShape(parameter)));
    std::vector<Term> factors{operations.at(whole, index)};
    for (size_t d = 0; d < index.size(); ++d) factors.push_back(store.inside(index[d], 0, whole.shape[d]));
    return store.product(factors);
  }
  Index dimension(size_t d, int64_t size) { return store.dimension(static_cast<int64_t>(d), size); }
  void compareParameter(const plan::Parameter &parameter) {
    const std::string &name = parameter.name();
    const Tensor &wanted = plain.state.at(name), &found = padded.state.at(name);
    if (wanted.shape != listOf(parameter.shape()) || found.shape != listOf(runtime::paddedShape(parameter)) ||
        wanted.dtype != parameter.dtype() || found.dtype != parameter.dtype()) {
      proof.gaps.push_back({"Write", name, "a reference graph gives it another type"});
      return;
    }
    std::vector<Index> own;
    for (size_t d = 0; d < found.shape.size(); ++d) own.push_back(dimension(d, wanted.shape[d]));
    same(name, store.settled(operations.at(found, own)), wanted.value);
    for (size_t d = 0; d < found.shape.size(); ++d) {
      const int64_t size = wanted.shape[d], more = found.shape[d] - size;
      if (more == 0) continue;
      std::vector<Index> beyond = operations.dimensions(found.shape);
      beyond[d] = store.add(dimension(d, more), store.constant(size));
      same(name, store.settled(operations.at(found, beyond)), store.number(0));
    }
  }
  void compareOutput(const std::string &name, const Tensor &found, const std::map<std::string, Tensor> &all) {
    const auto wanted = all.find(name);
    if (wanted == all.end() || wanted->second.shape != found.shape || wanted->second.dtype != found.dtype)
      proof.gaps.push_back({"output", name, "the reference graph without padding has another one"});
    else
      same(name, found.value, wanted->second.value);
  }
  void same(const std::string &tensor, Term found, Term wanted) {
    if (terms.stops && !proof.gaps.empty()) return;
    terms.same(tensor + " with padding", "", found, wanted, [](Term) { return std::string(); });
  }

  const plan::Plan &plan;
  Proof &proof;
  Store store;
  TermComparison terms;
  Reference padded, plain;
  Operations operations;
};

} // namespace

void comparePadding(const plan::Plan &plan, const plan::Graph &padded, const plan::Graph &graph, Proof &proof,
                    size_t most, bool stops, const std::string &name, int64_t microbatches) {
  PaddingComparison(plan, padded, graph, proof, most, stops).compare(name, microbatches);
}

} // namespace cleave::proof
