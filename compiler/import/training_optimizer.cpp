#include "compiler/import/training_optimizer.h"
#include "compiler/import/tensor_values.h"
#include "compiler/recipe/glob.h"
#include "compiler/recipe/ranges.h"
#include <fmt/format.h>

namespace cleave::import_ {
namespace {

using ::onnx::NodeProto;
using recipe::Optimizer;
using recipe::OptimizerKind;

class OptimizerReader {
public:
  OptimizerReader(TrainingGraph &graph, recipe::ModelTraining &training) : graph(graph), training(training) {}

  Status run() {
    for (const NodeProto *node : graph.nodes) CLEAVE_RETURN_IF_ERROR(readNode(*node));
    if (parameters.empty()) return inputError(graph.model.path + ": training_info: no node updates a parameter");
    CLEAVE_RETURN_IF_ERROR(checkBindings());
    Optimizer &optimizer = training.optimizer.emplace(*common);
    double decayOfAll = 0;
    // Parameters may differ in whether they decay: none of those that do not is then named.
    bool some = false;
    for (const auto &[name, decay] : parameters) some |= decay != 0;
    for (const auto &[name, decay] : parameters) {
      training.trained.push_back(name);
      if (some && decay == 0) optimizer.noDecay.push_back(recipe::exactly(name));
      if (decay == 0) continue;
      if (decayOfAll != 0 && decayOfAll != decay)
        return inputError(fmt::format("{}: training_info: parameters decay by {} and by {}, one number is possible",
                                      graph.model.path, decayOfAll, decay));
      decayOfAll = decay;
    }
    // (1 - norm_coefficient_post) is AdamW's (1 - lr weight_decay), whatever the rate.
    (optimizer.kind == OptimizerKind::AdamW ? training.stepDecay : optimizer.weightDecay) = decayOfAll;
    return Status::ok();
  }

private:
  Status fault(const NodeProto &node, const std::string &why) const {
    std::string name = node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
    return inputError(fmt::format("{}: training_info: node '{}' ({}) {}", graph.model.path, name, node.op_type(), why));
  }

  Status readNode(const NodeProto &node) {
    bool ours = node.domain() == trainingDomain;
    if (ours && node.op_type() == "Adam") return readOperator(node, OptimizerKind::Adam, 2);
    if (ours && node.op_type() == "Adagrad") return readOperator(node, OptimizerKind::Adagrad, 1);
    if (ours && node.op_type() == "Momentum") return readOperator(node, OptimizerKind::Sgd, 1);
    if (node.op_type() == "Sub" && node.input_size() == 2 && node.output_size() == 1) return readDescent(node);
    return Status::ok();
  }

  // x - R g, as TrainingInfoProto's own example has it.
  Status readDescent(const NodeProto &node) {
    auto bound = graph.updates.find(node.input(0));
    if (bound == graph.updates.end() || graph.source(bound->second) != node.output(0)) return Status::ok();
    const NodeProto *product = graph.producer(graph.source(node.input(1)));
    if (!product || product->op_type() != "Mul" || product->input_size() != 2)
      return fault(node, "subtracts something else than a learning rate times a gradient");
    int gradient = graph.gradients.count(product->input(1)) ? 1 : 0;
    Optimizer optimizer;
    optimizer.kind = OptimizerKind::Sgd;
    CLEAVE_RETURN_IF_ERROR(checkGradient(node, node.input(0), product->input(gradient)));
    CLEAVE_RETURN_IF_ERROR(readRate(node, product->input(1 - gradient), optimizer));
    return add(node, node.input(0), optimizer, 0);
  }

  // Inputs R, T, then parameters, gradients, and so many states of each; outputs the new parameters and states.
  Status readOperator(const NodeProto &node, OptimizerKind kind, int states) {
    int groups = 2 + states, count = (node.input_size() - 2) / groups;
    if (count < 1 || node.input_size() != 2 + count * groups || node.output_size() != count * (1 + states))
      return fault(node, "has another number of inputs or outputs than its operator");
    Optimizer optimizer;
    optimizer.kind = kind;
    CLEAVE_RETURN_IF_ERROR(readRate(node, node.input(0), optimizer));
    double accumulated = 0;
    for (int i = 0; i < count; ++i) {
      const std::string &parameter = node.input(2 + i);
      CLEAVE_RETURN_IF_ERROR(checkGradient(node, parameter, node.input(2 + count + i)));
      CLEAVE_RETURN_IF_ERROR(checkBound(node, parameter, node.output(i)));
      for (int s = 0; s < states; ++s) {
        const std::string &state = node.input(2 + count * (2 + s) + i);
        CLEAVE_RETURN_IF_ERROR(checkBound(node, state, node.output(count * (1 + s) + i)));
        std::optional<double> begins = graph.initialNumberOf(state);
        bool same = begins && (kind == OptimizerKind::Adagrad ? i == 0 || *begins == accumulated : *begins == 0);
        if (!same)
          return fault(node, fmt::format("begins with a state '{}' other than {}", state,
                                         kind == OptimizerKind::Adagrad ? "one number for all" : "zeros"));
        accumulated = *begins;
        used.insert(state);
      }
    }
    optimizer.initialAccumulator = accumulated;
    double decay = 0;
    CLEAVE_RETURN_IF_ERROR(readNumbers(node, optimizer, decay));
    for (int i = 0; i < count; ++i) CLEAVE_RETURN_IF_ERROR(add(node, node.input(2 + i), optimizer, decay));
    return Status::ok();
  }

  Status checkGradient(const NodeProto &node, const std::string &parameter, const std::string &gradient) const {
    auto of = graph.gradients.find(graph.source(gradient));
    if (of != graph.gradients.end() && of->second == parameter) return Status::ok();
    const NodeProto *by = graph.producer(gradient);
    return fault(node, fmt::format("updates '{}' by '{}', which is not its gradient{}", parameter, gradient,
                                   by ? fmt::format(" but node '{}' ({})'s", by->name(), by->op_type()) : ""));
  }

  Status checkBound(const NodeProto &node, const std::string &old, const std::string &now) const {
    auto bound = graph.updates.find(old);
    if (bound != graph.updates.end() && graph.source(bound->second) == now) return Status::ok();
    return fault(node, fmt::format("makes a new '{}' of '{}', which no update_binding puts there", now, old));
  }

  Status readRate(const NodeProto &node, const std::string &value, Optimizer &optimizer) {
    std::string rate = graph.source(value);
    if (graph.inputs.count(rate) && !graph.initializers.count(rate)) return Status::ok(); // whoever trains gives it
    std::optional<double> number = graph.initialNumberOf(rate);
    if (!number || *number < 0 || graph.updates.count(rate))
      return fault(node, fmt::format("has a learning rate '{}' that is no constant", value));
    optimizer.lr.peak = *number;
    training.givesRate = true;
    return Status::ok();
  }

  // The update count T in the first step, and whether it counts.
  struct Count {
    double first = 0;
    bool counts = false;
  };
  Status readCount(const NodeProto &node, const std::string &value, Count &count) {
    std::string name = graph.source(value);
    const NodeProto *by = graph.producer(name);
    bool increased = by && by->op_type() == "Add" && by->input_size() == 2;
    if (increased) { // T + 1, which is T in the next step
      name = graph.source(by->input(0));
      if (graph.initialNumberOf(graph.source(by->input(1))) != 1.0)
        return fault(node, fmt::format("has an update count '{}' that does not count by 1", value));
    }
    std::optional<double> begins = graph.initialNumberOf(name);
    if (!begins)
      return fault(node, fmt::format("has an update count '{}' that is neither constant nor counted", value));
    auto bound = graph.updates.find(name);
    if (bound != graph.updates.end()) {
      const NodeProto *next = graph.producer(graph.source(bound->second));
      bool byOne = next && next->op_type() == "Add" && next->input_size() == 2 &&
                   graph.source(next->input(0)) == name && graph.initialNumberOf(graph.source(next->input(1))) == 1.0;
      if (!byOne) return fault(node, fmt::format("has an update count '{}' that does not count by 1", name));
      used.insert(name);
    }
    count = {*begins + (increased ? 1 : 0), bound != graph.updates.end()};
    return Status::ok();
  }

  // The attributes, by the operators' defaults, and T.
  Status readNumbers(const NodeProto &node, Optimizer &optimizer, double &decay) {
    Count count;
    CLEAVE_RETURN_IF_ERROR(readCount(node, node.input(1), count));
    auto countFault = [&] {
      return fault(node, fmt::format("has an update count that begins at {}, which is not known for it", count.first));
    };
    decay = number(node, "norm_coefficient", 0);
    switch (optimizer.kind) {
    case OptimizerKind::Adam: {
      optimizer.beta1 = number(node, "alpha", 0.9);
      optimizer.beta2 = number(node, "beta", 0.999);
      optimizer.eps = number(node, "epsilon", 1e-6);
      optimizer.form = recipe::AdamForm::Onnx;
      if (count.first != 0 && !(count.counts && count.first == 1)) return countFault();
      optimizer.biasCorrection = !count.counts      ? recipe::BiasCorrection::None
                                 : count.first == 0 ? recipe::BiasCorrection::FromZero
                                                    : recipe::BiasCorrection::FromOne;
      double after = number(node, "norm_coefficient_post", 0);
      if (after == 0) return Status::ok();
      if (decay != 0) return fault(node, "has both norm_coefficient and norm_coefficient_post; one is possible");
      optimizer.kind = OptimizerKind::AdamW;
      decay = after;
      return Status::ok();
    }
    case OptimizerKind::Adagrad:
      optimizer.eps = number(node, "epsilon", 1e-6);
      if (count.counts) optimizer.lrDecay = number(node, "decay_factor", 0);
      if (count.first != 0 && number(node, "decay_factor", 0) != 0) return countFault();
      return Status::ok();
    default:
      return readMomentum(node, optimizer, count);
    }
  }

  // T > 0 ? beta : 1 weighs the gradient: PyTorch's 1 - dampening, which leaves the first step alone.
  Status readMomentum(const NodeProto &node, Optimizer &optimizer, const Count &count) {
    optimizer.momentum = number(node, "alpha", 0);
    double beta = number(node, "beta", 1);
    for (const ::onnx::AttributeProto &attribute : node.attribute())
      if (attribute.name() == "mode") optimizer.nesterov = attribute.s() == "nesterov";
    bool weighs = beta != 1 && (count.counts || count.first > 0);
    if (weighs) optimizer.dampening = 1 - beta;
    if (weighs && count.first != 0)
      return fault(node, fmt::format("has an update count that begins at {}: the first gradient would be weighed by "
                                     "beta, too",
                                     count.first));
    if (weighs && (optimizer.momentum == 0 || optimizer.nesterov))
      return fault(node, fmt::format("has alpha {} and beta {} in mode {}, which no optimizer here has",
                                     optimizer.momentum, beta, optimizer.nesterov ? "nesterov" : "standard"));
    if (optimizer.momentum == 0) optimizer.nesterov = false; // the same then
    return Status::ok();
  }

  Status add(const NodeProto &node, const std::string &parameter, const Optimizer &optimizer, double decay) {
    std::string wrong = faultOf(optimizer);
    if (wrong.empty()) wrong = recipe::faultOf("norm_coefficient", decay, {.min = 0});
    if (!wrong.empty()) return fault(node, "has a number that cannot be: " + wrong);
    auto says = [](Optimizer as, OptimizerKind kind) {
      as.kind = kind;
      return describe(as);
    };
    // Adam and AdamW treat a parameter without decay alike.
    if (common && optimizer.kind == OptimizerKind::AdamW && common->kind == OptimizerKind::Adam && !someDecay)
      common->kind = OptimizerKind::AdamW;
    OptimizerKind as = common && common->kind == OptimizerKind::AdamW && decay == 0 ? common->kind : optimizer.kind;
    someDecay |= decay != 0;
    if (common &&
        (common->kind != as || common->lr.peak != optimizer.lr.peak || describe(*common) != says(optimizer, as)))
      return fault(node,
                   fmt::format("updates '{}' otherwise than the others: {} with lr {}, not {} with lr {}", parameter,
                               describe(optimizer), optimizer.lr.peak, describe(*common), common->lr.peak));
    if (!common) common = optimizer;
    if (!parameters.emplace(parameter, decay).second) return fault(node, "updates '" + parameter + "' a second time");
    return Status::ok();
  }

  // Every binding belongs to a parameter, a state, the count, or a BatchNormalization's running statistics.
  Status checkBindings() {
    for (const auto &[old, now] : graph.updates) {
      if (parameters.count(old) || used.count(old)) continue;
      const NodeProto *by = graph.producer(graph.source(now));
      if (by && by->op_type() == "BatchNormalization") continue;
      if (isCount(old, by)) continue; // of nobody
      return by ? fault(*by, fmt::format("updates '{}', which is none that is known of an optimizer", old))
                : inputError(
                      fmt::format("{}: training_info: an update_binding puts '{}' into '{}', which no node makes",
                                  graph.model.path, now, old));
    }
    return Status::ok();
  }
  bool isCount(const std::string &old, const NodeProto *by) {
    return by && by->op_type() == "Add" && by->input_size() == 2 && graph.source(by->input(0)) == old &&
           graph.initialNumberOf(graph.source(by->input(1))) == 1.0;
  }

  TrainingGraph &graph;
  recipe::ModelTraining &training;
  std::optional<Optimizer> common;
  bool someDecay = false;
  std::map<std::string, double> parameters; // their weight decay
  std::set<std::string> used;               // states and counts
};

} // namespace

Status readOptimizerNodes(TrainingGraph &graph, recipe::ModelTraining &training) {
  return OptimizerReader(graph, training).run();
}

} // namespace cleave::import_
