#include "test/unit/planner/problem_builder.h"
#include <algorithm>
#include <map>

namespace cleave::planner::testing {
namespace {

using dist::ElementWork;
using dist::Form;

// As the core operators of these names say; of all others elementwise arithmetic.
const std::map<std::string, dist::OperationKind> kinds = {
    {"Contract", {Form::Product}},
    {"Conv", {Form::Convolution}},
    {"Add", {Form::Accumulation}},
    {"Sum", {Form::Accumulation}},
    {"Cast", {Form::Cast}},
    {"Reshape", {Form::Reshape}},
    {"Broadcast", {Form::Broadcast}},
    {"Iota", {Form::Iota}},
    {"StopGradient", {Form::Identity}},
    {"Transpose", {Form::Transpose}},
    {"Slice", {Form::Slice}},
    {"Concat", {Form::Concat}},
    {"Gather", {Form::Gather}},
    {"MaxPool", {Form::Pool, ElementWork::Window}},
    {"AveragePool", {Form::Pool, ElementWork::Window}},
    {"ReduceSum", {Form::Elementwise, ElementWork::Reduction}},
    {"ReduceMax", {Form::Elementwise, ElementWork::Reduction}},
    {"Exp", {Form::Elementwise, ElementWork::Function}},
    {"Log", {Form::Elementwise, ElementWork::Function}},
    {"Tanh", {Form::Elementwise, ElementWork::Function}},
    {"Sigmoid", {Form::Elementwise, ElementWork::Function}},
    {"Erf", {Form::Elementwise, ElementWork::Function}},
    {"Div", {Form::Elementwise, ElementWork::Division}},
    {"Sqrt", {Form::Elementwise, ElementWork::Division}},
    {"Rsqrt", {Form::Elementwise, ElementWork::Division}},
};

} // namespace

ProblemBuilder::ProblemBuilder(std::string name, int64_t batch) {
  problem.name = std::move(name);
  problem.batch = problem.samples = batch;
}

int ProblemBuilder::input(const std::string &name, std::vector<int64_t> dims, TensorKind kind, int64_t bytes) {
  Tensor tensor{name, kind, std::move(dims), bytes};
  tensor.batchDim = 0;
  problem.tensors.push_back(tensor);
  return int(problem.tensors.size()) - 1;
}

int ProblemBuilder::parameter(const std::string &name, std::vector<int64_t> dims) {
  Tensor tensor{name, TensorKind::Parameter, std::move(dims)};
  tensor.trainable = true;
  tensor.optimizerBytes = 8;
  problem.tensors.push_back(tensor);
  return int(problem.tensors.size()) - 1;
}

int ProblemBuilder::op(const std::string &name, const std::string &op, const std::string &subscripts,
                       const std::vector<int> &operands) {
  Node node;
  node.name = name;
  node.op = op;
  if (auto known = kinds.find(op); known != kinds.end()) node.kind = known->second;
  node.operands = operands;
  bool isProduct = op == "Contract";
  node.cheap = !isProduct && op != "Gather";
  size_t arrow = subscripts.find("->");
  std::map<char, int64_t> factors;
  std::string result = subscripts.substr(arrow + 2);
  auto factorsOf = [&](const std::string &letters, const std::vector<int64_t> *dims) {
    dist::TensorFactors tensor;
    for (size_t i = 0; i < letters.size(); ++i) {
      auto [found, isNew] = factors.try_emplace(letters[i], int64_t(node.rule.factors.size()));
      if (isNew) {
        bool reduced = result.find(letters[i]) == std::string::npos;
        node.rule.add((*dims)[i], reduced ? dist::Factor::Reduced : dist::Factor::Parallel,
                      op == "Max" ? dist::Reduction::Max : dist::Reduction::Sum);
      }
      tensor.push_back({found->second});
    }
    return tensor;
  };
  size_t begin = 0;
  for (int operand : operands) {
    size_t end = std::min(subscripts.find(',', begin), arrow);
    node.rule.operands.push_back(
        factorsOf(subscripts.substr(begin, end - begin), &problem.tensors[size_t(operand)].dims));
    begin = end + 1;
  }
  Tensor out{name + ":0", TensorKind::Activation, {}};
  node.rule.results.push_back(factorsOf(result, nullptr));
  for (const auto &dim : node.rule.results[0]) out.dims.push_back(node.rule.factors[size_t(dim[0])].size);
  double work = 1;
  for (const dist::Factor &factor : node.rule.factors) work *= double(factor.size);
  if (op == "Gather") work = double(out.elements());
  node.flops = isProduct ? 2 * work : work;
  node.backwardFlops = 2 * node.flops;
  if (op == "Add" || op == "Sub") {
    node.rule.linearity = dist::FactorRule::LinearJointly;
    node.rule.linearOperands.assign(operands.size(), true);
  } else if (isProduct || op == "Mul") {
    node.rule.linearity = dist::FactorRule::LinearInOne;
    node.rule.linearOperands.assign(operands.size(), true);
  }
  if (isProduct || op == "Mul" || op == "Log")
    for (int operand : operands)
      problem.tensors[size_t(operand)].saved = problem.tensors[size_t(operand)].kind == TensorKind::Activation;
  if (op == "Exp" || op == "Relu" || op == "Rsqrt") out.saved = true;
  node.stopsGradient = op == "Max";
  problem.tensors.push_back(out);
  node.results = {int(problem.tensors.size()) - 1};
  problem.nodes.push_back(std::move(node));
  return int(problem.tensors.size()) - 1;
}

Problem mlp(int64_t batch, int64_t in, int64_t hidden, int64_t out) {
  ProblemBuilder b("mlp", batch);
  int x = b.input("x", {batch, in}), t = b.input("t", {batch, out}, TensorKind::Label);
  int y = b.op("up", "Contract", "bk,kn->bn", {x, b.parameter("up.weight", {in, hidden})});
  y = b.op("up/bias", "Add", "bn,n->bn", {y, b.parameter("up.bias", {hidden})});
  y = b.op("relu", "Relu", "bn->bn", {y});
  y = b.op("down", "Contract", "bn,nm->bm", {y, b.parameter("down.weight", {hidden, out})});
  y = b.op("down/bias", "Add", "bm,m->bm", {y, b.parameter("down.bias", {out})});
  y = b.op("error", "Sub", "bm,bm->bm", {y, t});
  y = b.op("square", "Mul", "bm,bm->bm", {y, y});
  b.op("loss", "Sum", "bm->", {y});
  return b.problem;
}

namespace {

int layerNorm(ProblemBuilder &b, const std::string &at, int x, int64_t hidden) {
  int mean = b.op(at + "/mean", "Sum", "bsh->bs", {x});
  int centred = b.op(at + "/sub", "Sub", "bsh,bs->bsh", {x, mean});
  int square = b.op(at + "/square", "Mul", "bsh,bsh->bsh", {centred, centred});
  int variance = b.op(at + "/variance", "Sum", "bsh->bs", {square});
  int scale = b.op(at + "/rsqrt", "Rsqrt", "bs->bs", {variance});
  int y = b.op(at + "/normalise", "Mul", "bsh,bs->bsh", {centred, scale});
  y = b.op(at + "/scale", "Mul", "bsh,h->bsh", {y, b.parameter(at + ".weight", {hidden})});
  return b.op(at + "/shift", "Add", "bsh,h->bsh", {y, b.parameter(at + ".bias", {hidden})});
}

} // namespace

Problem gpt(const GptShape &shape) {
  ProblemBuilder b("gpt", shape.batch);
  int64_t h = shape.hidden, d = h / shape.heads, n = shape.heads;
  int tokens = b.input("tokens", {shape.batch, shape.sequence}, TensorKind::Input, 8);
  int labels = b.input("labels", {shape.batch, shape.sequence}, TensorKind::Label, 8);
  int table = b.parameter("tok_emb.weight", {shape.vocabulary, h});
  int x = b.op("tok_emb", "Gather", "vh,bs->bsh", {table, tokens});
  x = b.op("pos_emb", "Add", "bsh,sh->bsh", {x, b.parameter("pos_emb.weight", {shape.sequence, h})});
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    std::string at = "layers." + std::to_string(layer);
    int y = layerNorm(b, at + "/ln1", x, h);
    int parts[3];
    for (int c = 0; c < 3; ++c) {
      std::string name = at + "/" + "qkv"[c];
      parts[c] = b.op(name, "Contract", "bsh,hnd->bsnd", {y, b.parameter(name + ".weight", {h, n, d})});
      parts[c] = b.op(name + "/bias", "Add", "bsnd,nd->bsnd", {parts[c], b.parameter(name + ".bias", {n, d})});
    }
    int scores = b.op(at + "/scores", "Contract", "bsnd,btnd->bnst", {parts[0], parts[1]});
    int top = b.op(at + "/max", "Max", "bnst->bns", {scores});
    int weights = b.op(at + "/exp", "Exp", "bnst->bnst", {b.op(at + "/minus", "Sub", "bnst,bns->bnst", {scores, top})});
    int sum = b.op(at + "/sum", "Sum", "bnst->bns", {weights});
    weights = b.op(at + "/softmax", "Mul", "bnst,bns->bnst", {weights, sum});
    y = b.op(at + "/values", "Contract", "bnst,btnd->bsnd", {weights, parts[2]});
    y = b.op(at + "/proj", "Contract", "bsnd,ndh->bsh", {y, b.parameter(at + "/proj.weight", {n, d, h})});
    y = b.op(at + "/proj/bias", "Add", "bsh,h->bsh", {y, b.parameter(at + "/proj.bias", {h})});
    x = b.op(at + "/attention/residual", "Add", "bsh,bsh->bsh", {x, y});
    y = layerNorm(b, at + "/ln2", x, h);
    y = b.op(at + "/up", "Contract", "bsh,hf->bsf", {y, b.parameter(at + "/up.weight", {h, 4 * h})});
    y = b.op(at + "/up/bias", "Add", "bsf,f->bsf", {y, b.parameter(at + "/up.bias", {4 * h})});
    y = b.op(at + "/gelu", "Exp", "bsf->bsf", {y});
    y = b.op(at + "/down", "Contract", "bsf,fh->bsh", {y, b.parameter(at + "/down.weight", {4 * h, h})});
    y = b.op(at + "/down/bias", "Add", "bsh,h->bsh", {y, b.parameter(at + "/down.bias", {h})});
    x = b.op(at + "/mlp/residual", "Add", "bsh,bsh->bsh", {x, y});
  }
  x = layerNorm(b, "ln_f", x, h);
  int logits = b.op("head", "Contract", "bsh,vh->bsv", {x, table});
  int top = b.op("loss/max", "Max", "bsv->bs", {logits});
  int shifted = b.op("loss/minus", "Sub", "bsv,bs->bsv", {logits, top});
  int sum = b.op("loss/sum", "Sum", "bsv->bs", {b.op("loss/exp", "Exp", "bsv->bsv", {shifted})});
  int picked = b.op("loss/pick", "Pick", "bsv,bs->bs", {shifted, labels});
  int loss = b.op("loss/difference", "Sub", "bs,bs->bs", {b.op("loss/log", "Log", "bs->bs", {sum}), picked});
  b.op("loss", "Sum", "bs->", {loss});
  return b.problem;
}

const NodeDecision *findNode(const Decision &decision, const std::string &node) {
  auto found = std::ranges::find(decision.nodes, node, &NodeDecision::node);
  return found == decision.nodes.end() ? nullptr : &*found;
}

const ParameterDecision *findParameter(const Decision &decision, const std::string &parameter) {
  auto found = std::ranges::find(decision.parameters, parameter, &ParameterDecision::name);
  return found == decision.parameters.end() ? nullptr : &*found;
}

} // namespace cleave::planner::testing
