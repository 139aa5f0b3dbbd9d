// Collectives and transfers: the same term, at other coordinates.
//
//   all-reduce over dp     sum over c < dp of x(dp := c)
//   all-gather along 0     x(dp := d0 / n, d0 := d0 % n)        n: the rows of a device
#include "runtime/check/proof/machine.h"
#include "runtime/plan/routine.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::proof {

bool Machine::collective(Rank &rank, const plan::Collective &collective) {
  const std::string group = fmt::format("{}", fmt::join(collective.axes(), ","));
  for (int i = 0; i < collective.inputs_size(); ++i)
    for (int o = 0; o < collective.outputs_size(); ++o)
      if (i != o || collective.inputs(i).offset() != collective.outputs(o).offset() ||
          collective.inputs(i).in_slot() != collective.outputs(o).in_slot())
        keepApart(collective.inputs(i), collective.outputs(o));
  auto inputs = [&] {
    std::vector<Tensor> tensors;
    for (const plan::Buffer &buffer : collective.inputs()) tensors.push_back(tensor(rank, buffer));
    return tensors;
  };
  const bool isOfStages = ranks.size() > 1 && std::ranges::any_of(collective.axes(), dist::isPipelineAxis);
  std::map<int, std::vector<Tensor>> from;
  if (!isOfStages) {
    from[rank.number] = inputs();
  } else {
    stopRecording(rank);
    const int64_t number = met[{rank.number, group}];
    Meeting &meeting = meetings[{group, number}];
    if (!meeting.inputs.count(rank.number)) meeting.inputs[rank.number] = inputs();
    if (meeting.inputs.size() < ranks.size()) return false;
    from = meeting.inputs;
    ++met[{rank.number, group}];
  }
  std::vector<Term> values;
  for (int part = 0; part < collective.inputs_size(); ++part) {
    std::map<int, Tensor> ofPart;
    for (auto &[program, tensors] : from) {
      if (part >= static_cast<int>(tensors.size()) ||
          tensors[static_cast<size_t>(part)].shape != from[rank.number][static_cast<size_t>(part)].shape)
        throw Unproved{"programs that meet in it have other tensors"};
      ofPart[program] = tensors[static_cast<size_t>(part)];
    }
    values.push_back(exchanged(rank, collective, part, ofPart).value);
  }
  for (int part = 0; part < collective.outputs_size(); ++part)
    store_(rank, collective.outputs(part), values[static_cast<size_t>(part)]);
  return true;
}

Tensor Machine::exchanged(Rank &rank, const plan::Collective &collective, int part, const std::map<int, Tensor> &from) {
  const Tensor &own = from.at(rank.number);
  const int64_t members = mesh.groupSize({collective.axes().begin(), collective.axes().end()});
  const Index number = memberNumber(rank, collective.axes());
  // The value of a member of the group, at an index.
  auto ofMember = [&](Index member, const std::vector<Index> &at) {
    if (from.size() > 1) throw Unproved{"a collective of this kind between stages"};
    Replacement by;
    for (size_t d = 0; d < own.shape.size(); ++d)
      if (own.shape[d] != 1) by.add(store.variable(Variable::Dimension, static_cast<int64_t>(d), own.shape[d]), at[d]);
    for (int a = collective.axes_size(); a-- > 0;) {
      const int64_t size = mesh.axisSize(collective.axes(a));
      const Index where = coordinate(rank, collective.axes(a));
      if (size > 1) by.add(store.node(where).terms.at(0).first, a > 0 ? store.remainder(member, size) : member);
      member = store.quotient(member, size);
    }
    return store.replace(own.value, by);
  };
  auto reduced = [&] {
    const Reduce kinds[] = {Reduce::Sum, Reduce::Max, Reduce::Min};
    const Reduce kind = kinds[collective.reduce()];
    std::vector<Term> values;
    for (auto &[program, tensor] : from) {
      Replacement by;
      std::vector<Atom> over;
      for (const std::string &axis : collective.axes()) {
        const Index where = coordinate(ranks[static_cast<size_t>(program)], axis);
        if (store.isConstant(where)) continue;
        over.push_back(store.fresh(over, mesh.axisSize(axis)));
        by.add(store.node(where).terms[0].first, store.of(over.back()));
      }
      const Term value = store.reduce(kind, over, store.replace(tensor.value, by));
      if (values.empty() || kind == Reduce::Sum)
        values.push_back(value);
      else
        values[0] = store.function(kind == Reduce::Max ? "Max" : "Min", {values[0], value});
    }
    std::vector<std::pair<double, Term>> sum;
    for (Term value : values) sum.emplace_back(1.0, value);
    return store.sum(sum);
  };
  const auto dim = part < collective.dims_size() ? static_cast<size_t>(std::max<int64_t>(0, collective.dims(part))) : 0;
  Tensor result{own.dtype, own.shape, {}};
  switch (collective.op()) {
  case plan::Collective::ALL_REDUCE:
    result.value = reduced();
    return result;
  case plan::Collective::REDUCE_SCATTER: {
    result.shape.at(dim) /= members;
    const Tensor whole{own.dtype, own.shape, reduced()};
    std::vector<Index> at = operations.dimensions(result.shape);
    at[dim] = store.add(store.scale(number, result.shape[dim]), at[dim]);
    result.value = operations.at(whole, at);
    return result;
  }
  case plan::Collective::ALL_GATHER: {
    result.shape.at(dim) *= members;
    std::vector<Index> at = operations.dimensions(result.shape);
    const Index member = store.quotient(at[dim], own.shape[dim]);
    at[dim] = store.remainder(at[dim], own.shape[dim]);
    result.value = ofMember(member, at);
    return result;
  }
  case plan::Collective::ALL_TO_ALL: {
    const auto splitDim = static_cast<size_t>(collective.split_dims(part));
    const int64_t piece = own.shape.at(splitDim) / members;
    result.shape[splitDim] /= members;
    result.shape.at(dim) *= members;
    std::vector<Index> at = operations.dimensions(result.shape);
    const int64_t joined = splitDim == dim ? piece : own.shape[dim];
    const Index member = store.quotient(at[dim], joined);
    at[dim] = store.remainder(at[dim], joined);
    at[splitDim] = store.add(at[splitDim], store.scale(number, piece));
    result.value = ofMember(member, at);
    return result;
  }
  case plan::Collective::BROADCAST:
    result.value = ofMember(store.constant(0), operations.dimensions(own.shape));
    return result;
  case plan::Collective::SHIFT: {
    const int64_t distance = (collective.dims(part) % members + members) % members;
    const Index member = store.remainder(store.add(number, store.constant(members - distance)), members);
    result.value = ofMember(member, operations.dimensions(own.shape));
    return result;
  }
  default:
    throw Unproved{"a collective that is not known"};
  }
}

bool Machine::transfer(Rank &rank, const plan::Transfer &transfer) {
  // The peer differs along pp alone: then what it sends has the same coordinates. A device with two stages may be its
  // own.
  Index self = store.constant(0);
  int64_t stride = 1, ofStages = 0;
  for (size_t a = mesh.axes.size(); a-- > 0; stride *= mesh.axes[a].size) {
    self = store.add(self, store.scale(coordinate(rank, mesh.axes[a].name), stride));
    if (dist::isPipelineAxis(mesh.axes[a].name)) ofStages = stride;
  }
  const Index apart = store.subtract(affine(rank, transfer.peer()), self);
  if (!store.isConstant(apart) || ofStages == 0 || store.node(apart).constant % ofStages != 0)
    throw Unproved{"its peer is no device with the same coordinates but along pp"};
  const int64_t peer = rank.number + store.node(apart).constant / ofStages;
  if (peer < 0 || peer >= programs()) throw Unproved{"its peer is no device"};
  const plan::Buffer &buffer = transfer.buffer();
  if (transfer.direction() == plan::Transfer::SEND) {
    const Tensor sent = tensor(rank, buffer);
    send(rank, {static_cast<int>(peer), transfer.channel(), {sent.dtype, sent.shape, sent.value, transfer.tag()}});
    return true;
  }
  auto &queue = messages[{static_cast<int>(peer), rank.number}][transfer.channel()];
  if (queue.empty()) return false;
  const Message message = queue.front();
  queue.pop_front();
  if (message.dtype != buffer.dtype() || message.tag != transfer.tag() ||
      message.shape != std::vector<int64_t>(buffer.shape().begin(), buffer.shape().end()))
    throw Unproved{"it receives another tensor than it is sent"};
  if (rank.recording && !store.isOf(message.value, rank.recording->microbatch)) stopRecording(rank);
  if (rank.recording) rank.recording->received.push_back({static_cast<int>(peer), transfer.channel(), message});
  store_(rank, buffer, message.value);
  return true;
}

} // namespace cleave::proof
