// Programs, their actions and their commands but for those between devices (exchange.cpp).
#include "runtime/check/proof/machine.h"
#include "runtime/plan/attention_form.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/graph_form.h"
#include "runtime/plan/routine.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <limits>

namespace cleave::proof {
namespace {

using runtime::overlap;

bool isSame(const plan::Buffer &a, const plan::Buffer &b) {
  return a.in_slot() == b.in_slot() && a.on_host() == b.on_host() && a.offset() == b.offset() &&
         runtime::byteSize(a) == runtime::byteSize(b);
}

// Each element is read for one element of the result only, and `isOrdered`: these stand in the same order. The index is
// of dimensions, then in their order, and of what is reduced between, each in steps as large as all behind it reach.
bool isOwnPlace(Store &store, Index linear, bool isOrdered) {
  std::vector<std::pair<int64_t, const AtomNode *>> steps;
  for (auto [atom, factor] : store.node(linear).terms) steps.emplace_back(factor, &store.atom(atom));
  std::ranges::sort(steps, std::ranges::greater(), [](const auto &step) { return step.first; });
  int64_t reach = 0, last = std::numeric_limits<int64_t>::max();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const auto &[factor, stands] = *step;
    const AtomNode *atom = stands;
    int64_t size = atom->size;
    if (atom->kind == AtomNode::Quotient) { // groups of neighbours along a dimension
      const IndexNode &inner = store.node(atom->of);
      if (inner.constant != 0 || inner.terms.size() != 1 || inner.terms.begin()->second != 1) return false;
      atom = &store.atom(inner.terms.begin()->first);
      size = (atom->size + size - 1) / size;
    }
    if (atom->kind != AtomNode::Var || atom->size <= 0 || factor <= reach) return false;
    reach += factor * (size - 1);
    if (atom->variable == Variable::Fresh) continue;
    if (atom->variable != Variable::Dimension || (isOrdered && atom->number >= last)) return false;
    last = atom->number;
  }
  return true;
}

// Every element of the leaf stands where the result's element does, or is reduced: so a kernel may write the result
// over it. Not `isOrdered`: it may stand elsewhere, for a result beside the one that is written over it.
bool readsInPlace(Store &store, Term t, const std::string &leaf, const std::vector<int64_t> &shape, bool isOrdered,
                  std::map<Definition, bool> &holds) {
  auto contains = [&](auto &self, Definition d) -> bool {
    auto [found, isNew] = holds.try_emplace(d, false);
    if (!isNew) return found->second;
    const DefinitionNode &made = store.definition(d);
    bool any = made.kind == Kind::Leaf && made.name == leaf;
    for (Term child : made.children) any = self(self, store.term(child).definition) || any;
    return holds[d] = any;
  };
  if (!contains(contains, store.term(t).definition)) return true;
  if (store.kindOf(t) == Kind::Leaf) {
    const std::vector<Index> arguments = store.term(t).arguments;
    const std::vector<int64_t> strides = rowMajorStrides(shape);
    Index linear = store.constant(0);
    for (size_t d = 0; d < arguments.size(); ++d) {
      bool isReduced = true;
      for (Atom v : store.node(arguments[d]).variables)
        isReduced = isReduced && store.atom(v).variable == Variable::Fresh;
      if (!isReduced) linear = store.add(linear, store.scale(arguments[d], strides[d]));
    }
    return isOwnPlace(store, linear, isOrdered);
  }
  std::vector<Atom> over;
  for (Term child : store.open(t, &over))
    if (!readsInPlace(store, child, leaf, shape, isOrdered, holds)) return false;
  return true;
}

} // namespace

Machine::Machine(const plan::Plan &plan, const dist::Mesh &mesh, Store &store)
    : plan(plan), mesh(mesh), store(store), operations(store) {
  for (int p = 0; p < plan.programs_size(); ++p)
    ranks.push_back(Rank{.number = p, .program = &plan.programs(p), .memory = Memory(store)});
}

Term Machine::input(Store &store, const std::string &name, int64_t microbatch, const std::vector<Index> &at) {
  std::vector<Index> all{store.of(store.microbatch(microbatch))};
  all.insert(all.end(), at.begin(), at.end());
  return store.leaf(name + " of microbatch", std::move(all));
}
Term Machine::hostScalar(Store &store, const plan::HostScalar &scalar, int64_t microbatch,
                         const std::vector<Index> &at) {
  const plan::HostScalar::Kind kind = scalar.kind();
  std::string name = plan::HostScalar::Kind_Name(kind);
  if (kind == plan::HostScalar::ONE_MINUS_POWER)
    name += fmt::format(" of {:a} since {}", scalar.base(), scalar.since());
  return kind == plan::HostScalar::STEP ? input(store, name, microbatch, at) : store.leaf(name, {});
}

Index Machine::coordinate(const Rank &rank, const std::string &axis) {
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    if (mesh.axes[a].name != axis) continue;
    if (dist::isPipelineAxis(axis) && ranks.size() > 1) return store.constant(rank.number);
    return store.of(store.variable(Variable::Coordinate, static_cast<int64_t>(a), mesh.axes[a].size));
  }
  throw Unproved{fmt::format("the mesh has no axis '{}'", axis)};
}
Index Machine::memberNumber(const Rank &rank, const google::protobuf::RepeatedPtrField<std::string> &axes) {
  Index number = store.constant(0);
  for (const std::string &axis : axes)
    number = store.add(store.scale(number, mesh.axisSize(axis)), coordinate(rank, axis));
  return number;
}
Index Machine::affine(Rank &rank, const plan::AffineOfCoordinate &affine) {
  Index sum = store.constant(affine.base());
  for (const auto &term : affine.terms())
    sum = store.add(sum, store.scale(memberNumber(rank, term.axes()), term.stride()));
  return sum;
}

std::vector<int64_t> Machine::localShape(const std::vector<int64_t> &shape,
                                         const google::protobuf::RepeatedPtrField<plan::DimSharding> &dims) const {
  std::vector<int64_t> local = shape;
  for (int d = 0; d < dims.size() && d < static_cast<int>(shape.size()); ++d)
    for (const std::string &axis : dims[d].axes()) local[static_cast<size_t>(d)] /= mesh.axisSize(axis);
  return local;
}
std::vector<Index> Machine::begin(int program, const google::protobuf::RepeatedPtrField<plan::DimSharding> &dims,
                                  const std::vector<int64_t> &local) {
  std::vector<Index> index;
  for (size_t d = 0; d < local.size(); ++d) {
    Index start = store.constant(0);
    if (static_cast<int>(d) < dims.size())
      start = memberNumber(ranks[static_cast<size_t>(program)], dims[static_cast<int>(d)].axes());
    index.push_back(store.add(store.scale(start, local[d]), store.dimension(static_cast<int64_t>(d), local[d])));
  }
  return index;
}

Term Machine::block(int program, const plan::Parameter &parameter, const Tensor &whole) {
  return operations.at(whole, begin(program, parameter.dims(), *runtime::blockOf(parameter, mesh)));
}

void Machine::load(const std::function<Term(const plan::Parameter &)> &initial) {
  for (Rank &rank : ranks) {
    for (const plan::Parameter &parameter : plan.parameters()) {
      const std::optional<int64_t> place = runtime::offsetIn(parameter, rank.number);
      if (!place) continue;
      const Tensor whole{parameter.dtype(), listOf(runtime::paddedShape(parameter)), initial(parameter)};
      rank.memory.write({*place >= runtime::hostMemory, *place % runtime::hostMemory, parameter.dtype()},
                        *runtime::blockOf(parameter, mesh), block(rank.number, parameter, whole));
    }
    for (const plan::Fragment &fragment : rank.program->fragments())
      for (const plan::ConstantData &constant : fragment.constants()) {
        if (constant.dims_size() > 0) throw Unproved{"a constant is split over the mesh"};
        const plan::Buffer &buffer = constant.buffer();
        const TensorType type{buffer.dtype(), listOf(buffer.shape())};
        rank.memory.write(placeOf(rank, buffer), type.shape, operations.constant(constant.data(), type).value);
      }
  }
}

Gap Machine::where() const {
  if (!nowCommand) return {"inputs", "", ""};
  return {runtime::kindName(*nowCommand), nowCommand->name(), ""};
}

std::string Machine::firstCommand(Definition definition) const {
  auto found = firstBy.find(definition);
  return found == firstBy.end() ? "" : found->second;
}

void Machine::note(Term value) {
  if (!nowCommand) return;
  auto [found, isNew] = firstBy.try_emplace(store.term(value).definition);
  if (isNew)
    found->second = fmt::format("'{}' ({}), fragment '{}'", nowCommand->name(), runtime::kindName(*nowCommand),
                                nowFragment->name());
}

Place Machine::placeOf(Rank &rank, const plan::Buffer &buffer) const {
  int64_t place = buffer.offset() + (buffer.on_host() ? runtime::hostMemory : 0);
  if (buffer.in_slot()) place = runtime::placeOf(buffer, *rank.program, *nowFragment, nowSlot);
  return {place >= runtime::hostMemory, place % runtime::hostMemory, buffer.dtype()};
}
Tensor Machine::tensor(Rank &rank, const plan::Buffer &buffer) {
  const std::vector<int64_t> shape = listOf(buffer.shape());
  return {buffer.dtype(), shape, rank.memory.read(placeOf(rank, buffer), shape)};
}
Tensor Machine::tensor(Rank &rank, const plan::Buffer &buffer, const std::vector<int64_t> &shape,
                       const std::vector<int64_t> &strides) {
  return {buffer.dtype(), shape, rank.memory.read(placeOf(rank, buffer), store.constant(0), shape, strides)};
}
void Machine::store_(Rank &rank, const plan::Buffer &buffer, Term value) {
  note(value);
  rank.memory.write(placeOf(rank, buffer), listOf(buffer.shape()), value);
}
void Machine::write(Rank &rank, const plan::Buffer &buffer, const runtime::ImageShape &shape, Term value) {
  note(value);
  rank.memory.write(placeOf(rank, buffer), shape.sizes, shape.strides, value);
}
Term Machine::read(int program, const plan::Buffer &buffer) {
  return tensor(ranks[static_cast<size_t>(program)], buffer).value;
}

void Machine::keepApart(const plan::Buffer &input, const plan::Buffer &output) {
  if (overlap(input, output))
    throw Unproved{
        fmt::format("its result {} lies over its operand {}", runtime::describe(output), runtime::describe(input))};
}
void Machine::keepApart(const plan::Command &command) {
  const std::vector<runtime::Access> accesses = runtime::accessesOf(command, &plan);
  for (const runtime::Access &written : accesses)
    for (const runtime::Access &other : accesses) // the gradients of an attention may be parts of one packed tensor
      if (written.write && other.buffer != written.buffer && !(other.write && command.has_attention()))
        keepApart(*other.buffer, *written.buffer);
}

void Machine::run(const std::string &name) {
  for (Rank &rank : ranks) {
    rank.routine = runtime::findRoutine(*rank.program, name);
    rank.action = 0;
    rank.isFilled = false;
    if (!rank.routine) throw Unproved{fmt::format("a program has no routine '{}'", name)};
  }
  auto isDone = [](const Rank &rank) { return rank.action == rank.routine->actions_size(); };
  for (bool moved = true; moved;) {
    moved = false;
    for (Rank &rank : ranks)
      while (!isDone(rank) && advance(rank)) moved = true;
    isPatient = false;
    for (auto rank = ranks.begin(); rank != ranks.end() && !moved; ++rank) moved = !isDone(*rank) && advance(*rank);
    isPatient = true;
  }
  for (Rank &rank : ranks)
    if (!isDone(rank)) throw Unproved{"it waits for another device, which sends nothing"};
  for (auto &[pair, channels] : messages)
    for (auto &[channel, queue] : channels)
      if (!queue.empty()) throw Unproved{"a message is sent that nobody receives"};
  nowCommand = nullptr;
}

bool Machine::advance(Rank &rank) {
  const plan::Action &action = rank.routine->actions(rank.action);
  const plan::Fragment &fragment = rank.program->fragments(action.fragment());
  if (action.ahead()) throw Unproved{"steps run into each other (pipedream-2bw)"};
  nowFragment = &fragment;
  nowSlot = action.slot();
  if (!rank.isFilled) {
    nowCommand = nullptr;
    switch (replay(rank)) {
    case Replay::Done:
      ++rank.action;
      return true;
    case Replay::Waits:
      return false;
    case Replay::Unknown:
      startRecording(rank);
    }
    fillInputs(rank, fragment, action);
    rank.isFilled = true;
    rank.lanes = runtime::laneCommandsOf(fragment);
    rank.done = {};
  }
  // The command issued first of those that may run.
  std::vector<std::pair<int, size_t>> ready;
  for (size_t lane = 0; lane < rank.lanes.size(); ++lane) {
    if (rank.done[lane] == rank.lanes[lane].size()) continue;
    const runtime::LaneCommand &next = rank.lanes[lane][rank.done[lane]];
    auto isDone = [&](std::pair<int, int> at) {
      return rank.done[static_cast<size_t>(at.first)] > static_cast<size_t>(at.second);
    };
    if (std::ranges::all_of(next.waits, isDone)) ready.emplace_back(next.command, lane);
  }
  std::sort(ready.begin(), ready.end());
  bool moved = false;
  for (auto [number, lane] : ready) {
    nowCommand = &fragment.commands(number);
    if (!execute(rank, *nowCommand)) continue;
    ++rank.done[lane];
    moved = true;
    break;
  }
  for (size_t lane = 0; lane < rank.lanes.size(); ++lane)
    if (rank.done[lane] < rank.lanes[lane].size()) return moved;
  finishRecording(rank);
  ++rank.action;
  rank.isFilled = false;
  return true;
}

void Machine::fillInputs(Rank &rank, const plan::Fragment &fragment, const plan::Action &action) {
  for (const plan::HostScalar &scalar : rank.program->host_scalars()) {
    if (!runtime::isSetBefore(scalar, static_cast<size_t>(rank.action))) continue;
    store_(rank, scalar.buffer(),
           hostScalar(store, scalar, action.microbatch(), operations.dimensions(listOf(scalar.buffer().shape()))));
  }
  for (const plan::InputBinding &input_ : fragment.inputs()) {
    const std::vector<int64_t> local = listOf(input_.buffer().shape());
    if (localShape(listOf(input_.global_shape()), input_.dims()) != local)
      throw Unproved{fmt::format("input '{}' is no part of its tensor", input_.name())};
    store_(rank, input_.buffer(),
           input(store, input_.name(), action.microbatch(), begin(rank.number, input_.dims(), local)));
  }
}

bool Machine::execute(Rank &rank, const plan::Command &command) {
  switch (command.kind_case()) {
  case plan::Command::kLaunch:
    launch(rank, command.launch());
    return true;
  case plan::Command::kLaunchGroup:
    for (const plan::Launch &part : command.launch_group().parts()) launch(rank, part);
    return true;
  case plan::Command::kContract:
    keepApart(command);
    contract(rank, command.contract());
    return true;
  case plan::Command::kGroupedContract:
    keepApart(command);
    groupedContract(rank, command.grouped_contract());
    return true;
  case plan::Command::kConvolution:
    keepApart(command);
    convolution(rank, command.convolution());
    return true;
  case plan::Command::kPool:
    keepApart(command);
    pool(rank, command.pool());
    return true;
  case plan::Command::kAttention:
    keepApart(command);
    attention(rank, command.attention());
    return true;
  case plan::Command::kCopy:
    copy(rank, command.copy());
    return true;
  case plan::Command::kGather: {
    const plan::Gather &gather = command.gather();
    keepApart(command);
    store_(rank, gather.out(),
           operations
               .gather(tensor(rank, gather.table()), tensor(rank, gather.indices()), gather.outer(), gather.rows(),
                       gather.inner(), affine(rank, gather.start()), gather.global_rows(), listOf(gather.out().shape()))
               .value);
    return true;
  }
  case plan::Command::kScatterAdd: {
    const plan::ScatterAdd &scatter = command.scatter_add();
    keepApart(command);
    store_(rank, scatter.out(),
           operations
               .scatterAdd(tensor(rank, scatter.indices()), tensor(rank, scatter.updates()), scatter.outer(),
                           scatter.rows(), scatter.inner(), affine(rank, scatter.start()), scatter.global_rows(),
                           listOf(scatter.out().shape()))
               .value);
    return true;
  }
  case plan::Command::kCumsum: {
    const plan::CumSum &sum = command.cumsum();
    keepApart(command);
    const std::vector<int64_t> view{sum.outer(), sum.length(), sum.inner()};
    const Tensor x{sum.input().dtype(), view, rank.memory.read(placeOf(rank, sum.input()), view)};
    const Term value = operations.cumSum(x, 1, sum.exclusive(), sum.reverse()).value;
    note(value);
    rank.memory.write(placeOf(rank, sum.output()), view, value);
    return true;
  }
  case plan::Command::kFill: {
    const plan::Buffer &target = command.fill().target();
    store_(rank, target, operations.constant(command.fill().value(), {target.dtype(), listOf(target.shape())}).value);
    return true;
  }
  case plan::Command::kCollective:
    return collective(rank, command.collective());
  case plan::Command::kTransfer:
    return transfer(rank, command.transfer());
  case plan::Command::kCheckFinite:
    return true;
  default:
    throw Unproved{"the prover does not know this command"};
  }
}

const plan::Graph &Machine::graphOf(const std::string &operations, const std::string &what) {
  auto [found, isNew] = graphs.try_emplace(&operations);
  if (isNew &&
      (operations.empty() || !found->second.ParseFromString(operations) || found->second.functions_size() != 1))
    throw Unproved{fmt::format("the plan does not say what {} computes: compile it again", what)};
  if (Status form = isNew ? runtime::checkGraph(found->second) : Status::ok(); !form) throw Unproved{form.message()};
  return found->second;
}

std::vector<Tensor> Machine::compute(const plan::Graph &graph, const std::function<TensorType(int32_t)> &typeOf,
                                     std::map<int32_t, Tensor> values, const std::vector<Index> &scalars) {
  const plan::GraphFunction &function = graph.functions(0);
  for (int32_t number : function.nodes()) {
    const plan::GraphNode &node = graph.nodes(number);
    std::vector<Tensor> operands;
    for (int32_t operand : node.operands()) operands.push_back(values.at(operand));
    values[node.results(0)] = operations.apply(node, operands, typeOf(node.results(0)), scalars);
  }
  std::vector<Tensor> outputs;
  for (const plan::GraphOutput &output : function.outputs()) outputs.push_back(values.at(output.value()));
  return outputs;
}

void Machine::launch(Rank &rank, const plan::Launch &launch) {
  const plan::Kernel &kernel = plan.kernels(launch.kernel());
  const plan::Graph &graph = graphOf(kernel.operations(), fmt::format("the kernel '{}'", kernel.symbol()));
  const plan::GraphFunction &function = graph.functions(0);
  if (launch.buffers_size() != function.inputs_size() + function.outputs_size() ||
      kernel.num_outputs() != function.outputs_size())
    throw Unproved{"the launch has not the buffers of its kernel's operations"};
  // A flat kernel's operands are of any shape: of the one in which an operand was written, so that indices stay whole.
  std::vector<int64_t> flat{launch.extent()};
  for (int i = 0; i < function.inputs_size() && kernel.flat() && flat.size() == 1; ++i)
    flat = rank.memory.shapeOf(placeOf(rank, launch.buffers(i)), launch.extent());
  auto typeOf = [&](int32_t value) {
    TensorType type{graph.values(value).dtype(), listOf(graph.values(value).shape())};
    if (kernel.flat() && !type.shape.empty()) type.shape = flat;
    return type;
  };
  std::vector<Index> scalars;
  for (const auto &scalar : launch.scalars()) scalars.push_back(affine(rank, scalar));
  std::map<int32_t, Tensor> values;
  for (int i = 0; i < function.inputs_size(); ++i) {
    const TensorType type = typeOf(function.inputs(i).value());
    const plan::Buffer &buffer = launch.buffers(i);
    if (buffer.dtype() != type.dtype || elementCount(buffer.shape()) != elementCount(type.shape))
      throw Unproved{fmt::format("input {} of its kernel has another type", i)};
    values[function.inputs(i).value()] = {type.dtype, type.shape, rank.memory.read(placeOf(rank, buffer), type.shape)};
  }
  const std::vector<Tensor> outputs = compute(graph, typeOf, values, scalars);
  // Whether result o may be written over operand i: asked of the kernel, whatever its operands are.
  auto mayLieOver = [&](int o, int i) {
    auto [known, isNew] = inPlace.try_emplace({launch.kernel(), launch.extent(), o, i, scalars}, true);
    if (!isNew) return known->second;
    std::map<int32_t, Tensor> named = values;
    for (int operand = 0; operand < function.inputs_size(); ++operand) {
      Tensor &input = named[function.inputs(operand).value()];
      input.value = store.leaf(operand == i ? "in place" : fmt::format("operand {}", operand),
                               operations.dimensions(input.shape));
    }
    const std::vector<int64_t> shape = named[function.inputs(i).value()].shape;
    std::map<Definition, bool> holds;
    const std::vector<Tensor> results = compute(graph, typeOf, named, scalars);
    for (size_t r = 0; r < results.size(); ++r)
      known->second = known->second && readsInPlace(store, results[r].value, "in place", shape,
                                                    /*isOrdered=*/r == static_cast<size_t>(o), holds);
    return known->second;
  };
  for (int o = 0; o < function.outputs_size(); ++o) {
    const plan::Buffer &target = launch.buffers(function.inputs_size() + o);
    const Tensor &value = outputs[static_cast<size_t>(o)];
    if (target.dtype() != value.dtype || elementCount(target.shape()) != elementCount(value.shape))
      throw Unproved{fmt::format("output {} of its kernel has another type", o)};
    for (int p = 0; p < o; ++p)
      if (overlap(launch.buffers(function.inputs_size() + p), target)) throw Unproved{"two of its results overlap"};
    for (int i = 0; i < function.inputs_size(); ++i) {
      if (!overlap(launch.buffers(i), target)) continue;
      if (!isSame(launch.buffers(i), target) || !mayLieOver(o, i)) keepApart(launch.buffers(i), target);
    }
  }
  for (int o = 0; o < function.outputs_size(); ++o) {
    const Tensor &value = outputs[static_cast<size_t>(o)];
    note(value.value);
    rank.memory.write(placeOf(rank, launch.buffers(function.inputs_size() + o)), value.shape, value.value);
  }
}

void Machine::copy(Rank &rank, const plan::Copy &copy) {
  const std::vector<int64_t> sizes = listOf(copy.sizes());
  if (elementCount(sizes) == 0) return;
  const Index to = affine(rank, copy.target_offset());
  if (!store.isConstant(to)) throw Unproved{"where it writes depends on the device"};
  if (!isSame(copy.source(), copy.target())) keepApart(copy.source(), copy.target());
  const Term value = rank.memory.read(placeOf(rank, copy.source()), affine(rank, copy.source_offset()), sizes,
                                      listOf(copy.source_strides()));
  Place target = placeOf(rank, copy.target());
  target.byte += store.node(to).constant * runtime::byteSize(copy.target().dtype());
  if (overlap(copy.source(), copy.target())) { // nothing may change
    const Term before = rank.memory.read(target, store.constant(0), sizes, listOf(copy.target_strides()));
    if (before != value) keepApart(copy.source(), copy.target());
  }
  note(value);
  rank.memory.write(target, sizes, listOf(copy.target_strides()), value);
}

void Machine::convolution(Rank &rank, const plan::Convolution &convolution) {
  const Window window{.kernel = {},
                      .strides = listOf(convolution.strides()),
                      .padsBegin = listOf(convolution.pads_begin()),
                      .dilations = listOf(convolution.dilations()),
                      .groups = convolution.groups()};
  using runtime::ImageShape;
  struct Operand {
    const plan::Buffer &buffer;
    ImageShape shape;
  };
  const Operand input{convolution.input(), runtime::imageShape(convolution.input(), convolution.channels_last())},
      weight{convolution.weight(), runtime::imageShape(convolution.weight(), convolution.weight_channels_last())},
      output{convolution.output(), runtime::imageShape(convolution.output(), convolution.channels_last())};
  auto make = [&](const Operand &a, const Operand &b, const Operand &out, auto pass) {
    if (runtime::byteSize(out.buffer.dtype()) < 4) throw Unproved{"a convolution in 16 bits"};
    write(rank, out.buffer, out.shape,
          (operations.*pass)(tensor(rank, a.buffer, a.shape.sizes, a.shape.strides),
                             tensor(rank, b.buffer, b.shape.sizes, b.shape.strides), window,
                             {out.buffer.dtype(), out.shape.sizes})
              .value);
  };
  switch (convolution.pass()) {
  case plan::Convolution::FORWARD:
    return make(input, weight, output, &Operations::convolution);
  case plan::Convolution::GRAD_INPUT:
    return make(output, weight, input, &Operations::convolutionInput);
  case plan::Convolution::GRAD_WEIGHT:
    return make(input, output, weight, &Operations::convolutionWeight);
  default:
    throw Unproved{"a pass of a convolution that is not known"};
  }
}

void Machine::pool(Rank &rank, const plan::Pool &pool) {
  const bool isGradient = pool.has_grad_input();
  const bool isMax = pool.kind() == plan::Pool::MAX || pool.kind() == plan::Pool::MAX_GRAD;
  const bool countsPadding =
      pool.kind() == plan::Pool::AVERAGE_INCLUDE_PAD || pool.kind() == plan::Pool::AVERAGE_INCLUDE_PAD_GRAD;
  std::string name = std::string(isMax ? "MaxPool" : "AveragePool") + (isGradient ? "Grad" : "");
  if (countsPadding) name += " with padding";
  for (const auto *values : {&pool.kernel(), &pool.strides(), &pool.pads_begin(), &pool.pads_end(), &pool.dilations()})
    for (int64_t value : *values) name += fmt::format(" {}", value);
  std::vector<const plan::Buffer *> from;
  if (!isGradient || isMax) from.push_back(&pool.input());
  if (isGradient) from.push_back(&pool.output());
  const plan::Buffer &out = isGradient ? pool.grad_input() : pool.output();
  std::vector<Tensor> operands;
  for (const plan::Buffer *buffer : from) {
    const runtime::ImageShape shape = runtime::imageShape(*buffer, pool.channels_last());
    operands.push_back(tensor(rank, *buffer, shape.sizes, shape.strides));
  }
  const runtime::ImageShape shape = runtime::imageShape(out, pool.channels_last());
  write(rank, out, shape, operations.pool(name, operands, {out.dtype(), shape.sizes}).value);
}

void Machine::attention(Rank &rank, const plan::Attention &attention) {
  Result<runtime::AttentionForm> form = runtime::attentionForm(attention);
  if (!form) throw Unproved{form.status().message()};
  auto read = [&](const plan::Buffer &buffer, const runtime::AttentionStrides &strides) {
    return tensor(rank, buffer, listOf(buffer.shape()), listOf(strides));
  };
  Operations::AttentionOperands of{read(attention.query(), form->query),
                                   read(attention.key(), form->key),
                                   read(attention.value(), form->value),
                                   {},
                                   attention.scale(),
                                   form->band,
                                   attention.soft_cap()};
  if (attention.has_bias()) of.bias = read(attention.bias(), form->bias);
  auto write = [&](const plan::Buffer &buffer, const runtime::AttentionStrides &strides, Term value) {
    note(value);
    rank.memory.write(placeOf(rank, buffer), listOf(buffer.shape()), listOf(strides), value);
  };
  const std::vector<int64_t> rows{form->batch, form->heads, form->queries};
  if (attention.pass() == plan::Attention::FORWARD) {
    const Operations::AttentionForward made = operations.attention(of);
    write(attention.output(), form->output, made.output);
    if (attention.has_stats()) rank.memory.write(placeOf(rank, attention.stats()), rows, made.stats);
    return;
  }
  const Tensor stats{plan::F32, rows, rank.memory.read(placeOf(rank, attention.stats()), rows)};
  const Operations::AttentionBackward made = operations.attentionGradient(
      of, read(attention.output(), form->output), stats, read(attention.output_gradient(), form->output));
  write(attention.query_gradient(), form->queryGradient, made.query);
  write(attention.key_gradient(), form->keyGradient, made.key);
  write(attention.value_gradient(), form->valueGradient, made.value);
}

} // namespace cleave::proof
