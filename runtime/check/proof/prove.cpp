#include "runtime/check/proof/prove.h"
#include "runtime/check/proof/padding.h"
#include "runtime/check/proof/reference.h"
#include "runtime/check/proof/term_comparison.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/graph_form.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/step_shapes.h"
#include "runtime/plan/verify/verify.h"
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

namespace cleave::proof {
namespace {

// One routine of the plan beside the unsplit step's functions.
class Comparison {
public:
  // `stops`: at the first gap, which another comparison will tell of.
  Comparison(const plan::Plan &plan, const dist::Mesh &mesh, const plan::Graph &graph, Proof &proof, size_t most,
             bool stops)
      : plan(plan), mesh(mesh), proof(proof), store(!proof.roundsElsewhere, most), terms(store, proof, "the plan"),
        machine(plan, mesh, store), reference(graph, store), operations(store) {
    terms.stops = stops;
  }

  // `name`: "step" or "evaluate"; `suffix`: of the routine's shape (step_shapes.h).
  void compare(const std::string &name, const std::string &suffix, int64_t microbatches) {
    const bool isStep = name == "step";
    const std::string routine = name + suffix;
    const std::string when = routine == "step" ? "after the step" : fmt::format("after '{}'", routine);
    std::map<std::string, Tensor> outputs;
    try {
      for (const plan::Parameter &parameter : plan.parameters())
        reference.state[parameter.name()] = {parameter.dtype(), listOf(runtime::paddedShape(parameter)),
                                             initial(parameter)};
      outputs = isStep ? reference.step(microbatches) : reference.run(name, 0);
    } catch (const Unproved &gap) {
      const plan::GraphNode *node = reference.node;
      proof.gaps.push_back({node ? node->op() : "reference graph", node ? node->name() : "", gap.why});
      return;
    }
    for (size_t d = 0; d < store.definitionCount(); ++d) ofReference.insert(static_cast<Definition>(d));
    try {
      machine.load([this](const plan::Parameter &parameter) { return initial(parameter); });
      machine.run(routine);
    } catch (const Unproved &gap) {
      Gap where = machine.where();
      where.why = gap.why;
      proof.gaps.push_back(where);
      return;
    }
    try {
      for (const plan::Parameter &parameter : plan.parameters()) compareParameter(parameter, when);
      for (int p = 0; p < machine.programs(); ++p) {
        compareOutputs(p, routine, outputs);
        compareConstants(p);
      }
    } catch (const Unproved &gap) {
      proof.gaps.push_back({"comparison", routine, gap.why});
    }
    proof.definitions += static_cast<int64_t>(store.definitionCount());
  }

private:
  // At the beginning of every step; an accumulator is what the one before left, which must be what it began with.
  Term initial(const plan::Parameter &parameter) {
    if (parameter.role() == plan::Parameter::ACCUMULATOR) return store.number(parameter.fill());
    return store.leaf(parameter.name(), operations.dimensions(listOf(runtime::paddedShape(parameter))));
  }

  void compareParameter(const plan::Parameter &parameter, const std::string &when) {
    const Tensor &expected = reference.state.at(parameter.name());
    if (expected.shape != listOf(runtime::paddedShape(parameter)) || expected.dtype != parameter.dtype()) {
      proof.gaps.push_back({"Write", parameter.name(), "the reference graph gives it another type"});
      return;
    }
    if (parameter.role() == plan::Parameter::ACCUMULATOR && expected.value != store.number(parameter.fill())) {
      proof.gaps.push_back({"Write", parameter.name(), "the accumulator does not end as it begins"});
      return;
    }
    for (int p = 0; p < machine.programs(); ++p) {
      const std::optional<int64_t> place = runtime::offsetIn(parameter, p);
      if (!place) continue;
      plan::Buffer buffer;
      buffer.set_on_host(*place >= runtime::hostMemory);
      buffer.set_offset(*place % runtime::hostMemory);
      buffer.set_dtype(parameter.dtype());
      const std::vector<int64_t> block = *runtime::blockOf(parameter, mesh);
      for (int64_t size : block) buffer.add_shape(size);
      same(parameter.name() + " " + when, p, buffer, [&] { return machine.block(p, parameter, expected); });
    }
  }

  // The executor reads those of the last action.
  void compareOutputs(int p, const std::string &routine, const std::map<std::string, Tensor> &outputs) {
    const plan::Program &program = plan.programs(p);
    const plan::Routine *own = runtime::findRoutine(program, routine);
    if (!own || own->actions_size() == 0) return;
    const plan::Fragment &last = program.fragments(own->actions(own->actions_size() - 1).fragment());
    for (const plan::OutputBinding &output : last.outputs()) {
      auto expected = outputs.find(output.name());
      if (expected == outputs.end()) {
        proof.gaps.push_back({"output", output.name(), "the reference graph does not have it"});
        continue;
      }
      same(fmt::format("{} of '{}'", output.name(), routine), p, output.buffer(),
           [&] { return expected->second.value; });
    }
  }

  // They are loaded once, so each step must leave them.
  void compareConstants(int p) {
    for (const plan::Fragment &fragment : plan.programs(p).fragments())
      for (const plan::ConstantData &constant : fragment.constants()) {
        const plan::Buffer &buffer = constant.buffer();
        same(fmt::format("a constant of '{}'", fragment.name()), p, buffer, [&] {
          return operations.constant(constant.data(), {buffer.dtype(), {buffer.shape().begin(), buffer.shape().end()}})
              .value;
        });
      }
  }

  void same(const std::string &tensor, int p, const plan::Buffer &buffer, const std::function<Term()> &expected) {
    if (terms.stops && !proof.gaps.empty()) return;
    if (runtime::elementCount(buffer.shape()) == 0) return terms.isProved(tensor);
    Term found{}, wanted{};
    try {
      wanted = expected();
      found = machine.read(p, buffer);
    } catch (const Unproved &gap) {
      proof.gaps.push_back({"memory", tensor, gap.why});
      return;
    }
    terms.same(tensor, machine.programs() > 1 ? fmt::format("program {}", p) : "", found, wanted,
               [this](Term t) { return parting(t); });
  }

  // The first command that computed what the unsplit step never has, of what has gone into a term.
  std::string parting(Term t) {
    std::set<Definition> seen;
    auto visit = [&](auto &self, Definition d) -> std::string {
      if (ofReference.count(d) || !seen.insert(d).second) return {};
      for (Term child : store.definition(d).children)
        if (std::string found = self(self, store.term(child).definition); !found.empty()) return found;
      return machine.firstCommand(d);
    };
    return visit(visit, store.term(t).definition);
  }

  const plan::Plan &plan;
  const dist::Mesh &mesh;
  Proof &proof;
  Store store;
  TermComparison terms;
  Machine machine;
  Reference reference;
  Operations operations;
  std::set<Definition> ofReference;
};

Result<plan::Graph> graphOf(const std::string &bytes) {
  plan::Graph graph;
  if (bytes.empty() || !graph.ParseFromString(bytes)) return inputError("the plan has no reference graph");
  if (Status form = runtime::checkGraph(graph); !form) return inputError("reference " + form.message());
  return graph;
}

// `roundsElsewhere`: casts to a narrower float are taken as the numbers they are made of.
Result<Proof> prove(const plan::Plan &plan, size_t most, bool roundsElsewhere, bool stops = false) {
  CLEAVE_ASSIGN_OR_RETURN(auto mesh, runtime::meshOf(plan.mesh()));
  Proof proof;
  proof.roundsElsewhere = roundsElsewhere;
  if (runtime::stepsOverlap(plan))
    proof.gaps.push_back({"routine", "step", "steps run into each other (pipedream-2bw)"});
  if (proof.gaps.empty()) {
    const int64_t microbatches = std::max<int64_t>(1, runtime::microbatchesOf(plan, "step"));
    if (microbatches != std::max<int64_t>(1, plan.training().microbatches()))
      proof.gaps.push_back({"routine", "step", "it has not the microbatches of the training"});
    for (size_t shape = runtime::shapesOf(plan); shape-- > 0;) {
      const std::string &bytes = runtime::referenceOf(plan, shape), suffix = runtime::suffixOf(plan, shape);
      CLEAVE_ASSIGN_OR_RETURN(const plan::Graph graph, graphOf(bytes));
      plan::Graph padded; // as the devices have it
      const bool isPadded = !plan.padded_graph().empty();
      if (isPadded) {
        CLEAVE_ASSIGN_OR_RETURN(padded, graphOf(plan.padded_graph()));
      }
      auto compare = [&](const std::string &name, int64_t times) {
        if (isPadded) comparePadding(plan, padded, graph, proof, most, stops, name, times);
        Comparison(plan, mesh, isPadded ? padded : graph, proof, most, stops).compare(name, suffix, times);
      };
      compare("step", microbatches);
      if (runtime::findRoutine(plan.programs(0), "evaluate" + suffix)) compare("evaluate", 1);
    }
  }
  proof.outcome = !proof.differences.empty() ? Proof::Refuted : proof.gaps.empty() ? Proof::Proved : Proof::Unknown;
  return proof;
}

bool is16Bits(plan::DType dtype) { return dtype == plan::BF16 || dtype == plan::F16; }

bool roundsTo16Bits(const plan::Plan &plan) {
  return std::ranges::any_of(plan.parameters(),
                             [](const plan::Parameter &parameter) { return is16Bits(parameter.dtype()); });
}

// Devices add what each of them has rounded.
bool addsRounded(const plan::Plan &plan) {
  for (const plan::Program &program : plan.programs())
    for (const plan::Fragment &fragment : program.fragments())
      for (const plan::Command &command : fragment.commands()) {
        if (!command.has_collective()) continue;
        const plan::Collective &collective = command.collective();
        const bool isSum =
            collective.op() == plan::Collective::ALL_REDUCE || collective.op() == plan::Collective::REDUCE_SCATTER;
        if (isSum && collective.reduce() == plan::Collective::SUM && collective.inputs_size() > 0 &&
            is16Bits(collective.inputs(0).dtype()))
          return true;
      }
  return false;
}

std::string told(const Gap &gap) { return fmt::format("{} {}: {}", gap.op, gap.tensor, gap.why); }

} // namespace

Result<Proof> prove(const plan::Plan &plan, size_t most) {
  CLEAVE_RETURN_IF_ERROR(runtime::verifyPlan(plan));
  if (!roundsTo16Bits(plan)) return prove(plan, most, false);
  if (addsRounded(plan)) return prove(plan, most, true);
  Result<Proof> exact = prove(plan, most, false, /*stops=*/true);
  return !exact || exact->outcome == Proof::Proved ? exact : prove(plan, most, true);
}

std::string Proof::firstGap() const { return gaps.empty() ? "" : told(gaps[0]); }

std::string Proof::text(bool hasDetails) const {
  std::string out;
  for (const Difference &d : differences) {
    out += fmt::format("REFUTED: {}{}\n  {}\n  plan:          {}\n  unsplit step:  {}\n", d.tensor,
                       d.program.empty() ? "" : " on devices of " + d.program, d.numbers, d.plan, d.reference);
    if (!d.command.empty()) out += fmt::format("  they part at:  {}\n", d.command);
  }
  constexpr size_t shown = 160; // a gap may have a long formula
  for (const Gap &gap : gaps) {
    const std::string text = told(gap);
    out += fmt::format("not proved: {}\n",
                       hasDetails || text.size() <= shown ? text : text.substr(0, shown) + " ... (--details)");
  }
  switch (outcome) {
  case Proved:
    out +=
        fmt::format("proved: all devices compute what the unsplit step computes, {} tensors and outputs, over {} "
                    "expressions{}\n",
                    proved.size(), definitions, roundsElsewhere ? "; sums are rounded to 16 bits in other places" : "");
    break;
  case Refuted:
    out += "refuted: the plan does not compute what the unsplit step computes\n";
    break;
  case Unknown:
    out += "the proof is not complete: nothing is known to be wrong\n";
    break;
  }
  return out;
}

std::string Proof::json() const {
  static const char *const names[] = {"proved", "refuted", "not proved"};
  nlohmann::json all{{"outcome", names[outcome]},
                     {"proved", proved},
                     {"expressions", definitions},
                     {"rounds_elsewhere", roundsElsewhere}};
  all["gaps"] = nlohmann::json::array();
  for (const Gap &gap : gaps) all["gaps"].push_back({{"op", gap.op}, {"tensor", gap.tensor}, {"why", gap.why}});
  all["differences"] = nlohmann::json::array();
  for (const Difference &d : differences)
    all["differences"].push_back({{"tensor", d.tensor},
                                  {"program", d.program},
                                  {"plan", d.plan},
                                  {"reference", d.reference},
                                  {"command", d.command},
                                  {"counterexample", d.numbers}});
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

} // namespace cleave::proof
