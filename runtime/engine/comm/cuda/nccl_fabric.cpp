#include "runtime/engine/comm/cuda/nccl_fabric.h"
#include "runtime/base/boxes.h"
#include "runtime/engine/comm/all_to_all.h"
#include "runtime/engine/comm/cuda/strided_pieces.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <condition_variable>
#include <fmt/format.h>
#include <mutex>
#include <set>
#include <thread>

namespace cleave::runtime::cuda {
namespace {

int ncclType(plan::DType dtype) {
  switch (dtype) {
  case plan::F32:
    return ncclFloat32;
  case plan::F64:
    return ncclFloat64;
  case plan::F16:
    return ncclFloat16;
  case plan::BF16:
    return ncclBfloat16;
  case plan::I32:
    return ncclInt32;
  case plan::U32:
    return ncclUint32;
  case plan::I64:
    return ncclInt64;
  case plan::U64:
    return ncclUint64;
  case plan::I8:
    return ncclInt8;
  case plan::U8:
  case plan::BOOL:
  case plan::F8E4M3: // only moved
  case plan::F8E5M2:
    return ncclUint8;
  default:
    return -1;
  }
}

void *pointer(Address address) { return reinterpret_cast<void *>(address); }

class NcclCollective final : public PreparedCommand {
public:
  struct Part : CollectivePart {
    int64_t element = 0;
    int type = 0;
    std::vector<Rectangle> piece; // ALL_TO_ALL: from the input, where a member's piece begins, to the packed piece
    std::vector<Rectangle> unpack;
    int64_t pieceSource = 0, pieceTarget = 0, pieceBytes = 0;
    bool packed = false; // goes through scratch
  };
  NcclCollective(NcclFabric &fabric, NcclComm comm, int lane, int64_t members, int64_t self)
      : fabric(fabric), comm(comm), lane(lane), members(members), self(self), stream(fabric.device().stream(lane)) {}

  Status run() override {
    for (const Part &part : parts) CLEAVE_RETURN_IF_ERROR(share(part));
    return Status::ok();
  }

  plan::Collective::Op op = plan::Collective::ALL_REDUCE;
  int reduce = ncclSum;
  std::vector<Part> parts;

private:
  Status check(int error) const { return ncclStatus(fabric.api(), error, "the exchange does not start"); }
  Status rectangle(const Rectangle &r, Address source, Address target) const {
    return copyRectangle(fabric.device().gpu(), r, source, target, stream);
  }

  Status share(const Part &part) const {
    const Nccl &nccl = fabric.api();
    Address in = fabric.device().address(part.inputOffset), out = fabric.device().address(part.outputOffset);
    auto elements = static_cast<size_t>(part.elements());
    int64_t row = part.length * part.inner * part.element; // bytes a step of the outer dimension
    switch (op) {
    case plan::Collective::ALL_REDUCE:
      return check(nccl.allReduce(pointer(in), pointer(out), elements, part.type, reduce, comm, stream));
    case plan::Collective::REDUCE_SCATTER: {
      Address source = in;
      if (part.packed) { // member by member, as NCCL has them
        source = fabric.scratch(lane);
        for (int64_t m = 0; m < members; ++m)
          CLEAVE_RETURN_IF_ERROR(
              rectangle({m * row, m * row * part.outer, row, part.outer, row * members, row}, in, source));
      }
      return check(nccl.reduceScatter(pointer(source), pointer(out), elements, part.type, reduce, comm, stream));
    }
    case plan::Collective::ALL_GATHER: {
      Address target = part.packed ? fabric.scratch(lane) : out;
      CLEAVE_RETURN_IF_ERROR(check(nccl.allGather(pointer(in), pointer(target), elements, part.type, comm, stream)));
      for (int64_t m = 0; part.packed && m < members; ++m)
        CLEAVE_RETURN_IF_ERROR(
            rectangle({m * row * part.outer, m * row, row, part.outer, row, row * members}, target, out));
      return Status::ok();
    }
    case plan::Collective::ALL_TO_ALL: {
      Address packed = fabric.scratch(lane), received = packed + static_cast<Address>(members * part.pieceBytes);
      for (int64_t m = 0; m < members; ++m)
        for (const Rectangle &r : part.piece)
          CLEAVE_RETURN_IF_ERROR(rectangle(r, in + static_cast<Address>(m * part.pieceSource),
                                           packed + static_cast<Address>(m * part.pieceBytes)));
      CLEAVE_RETURN_IF_ERROR(check(nccl.groupStart()));
      int error = 0;
      for (int64_t m = 0; m < members && !error; ++m) {
        auto offset = static_cast<Address>(m * part.pieceBytes);
        auto bytes = static_cast<size_t>(part.pieceBytes);
        error = nccl.send(pointer(packed + offset), bytes, ncclUint8, static_cast<int>(m), comm, stream);
        if (!error)
          error = nccl.receive(pointer(received + offset), bytes, ncclUint8, static_cast<int>(m), comm, stream);
      }
      int ended = nccl.groupEnd();
      CLEAVE_RETURN_IF_ERROR(check(error ? error : ended));
      for (int64_t m = 0; m < members; ++m)
        for (const Rectangle &r : part.unpack)
          CLEAVE_RETURN_IF_ERROR(rectangle(r, received + static_cast<Address>(m * part.pieceBytes),
                                           out + static_cast<Address>(m * part.pieceTarget)));
      return Status::ok();
    }
    case plan::Collective::SHIFT: {
      auto bytes = static_cast<size_t>(part.elements() * part.element);
      auto to = static_cast<int>((self + part.distance) % members),
           from = static_cast<int>((self + members - part.distance) % members);
      CLEAVE_RETURN_IF_ERROR(check(nccl.groupStart()));
      int error = nccl.send(pointer(in), bytes, ncclUint8, to, comm, stream);
      if (!error) error = nccl.receive(pointer(out), bytes, ncclUint8, from, comm, stream);
      int ended = nccl.groupEnd();
      return check(error ? error : ended);
    }
    default: // BROADCAST from the first member
      return check(nccl.broadcast(pointer(in), pointer(out), elements, part.type, 0, comm, stream));
    }
  }

  NcclFabric &fabric;
  NcclComm comm;
  int lane;
  int64_t members, self;
  Stream stream;
};

class NcclTransfer final : public PreparedCommand {
public:
  NcclTransfer(NcclFabric &fabric, NcclFabric::Route &route, Stream stream, Address data, int64_t bytes, bool receives)
      : fabric(fabric), route(route), stream(stream), data(data), bytes(bytes), receives(receives) {}
  Status run() override {
    const Nccl &nccl = fabric.api();
    auto count = static_cast<size_t>(bytes);
    if (receives)
      return ncclStatus(nccl, nccl.receive(pointer(data), count, ncclUint8, 0, route.comm, stream),
                        "the receive does not start");
    int64_t number = fabric.currentRun();
    size_t slot = static_cast<size_t>(route.sent++) % route.written.size();
    Address place = route.memory.address() + static_cast<Address>(static_cast<int64_t>(slot) * route.stride);
    CLEAVE_RETURN_IF_ERROR(route.gone[slot].waitOn(stream, number));
    CLEAVE_RETURN_IF_ERROR(copyRectangle(fabric.device().gpu(), {0, 0, bytes, 1, bytes, bytes}, data, place, stream));
    CLEAVE_RETURN_IF_ERROR(route.written[slot].record(stream, number));
    CLEAVE_RETURN_IF_ERROR(route.written[slot].waitOn(route.stream, number));
    CLEAVE_RETURN_IF_ERROR(ncclStatus(nccl, nccl.send(pointer(place), count, ncclUint8, 1, route.comm, route.stream),
                                      "the send does not start"));
    CLEAVE_RETURN_IF_ERROR(route.gone[slot].record(route.stream, number));
    return route.idle.record(route.stream, number);
  }

private:
  NcclFabric &fabric;
  NcclFabric::Route &route;
  Stream stream;
  Address data;
  int64_t bytes;
  bool receives;
};

} // namespace

// A communicator is destroyed by all its members together. Before the first run another rank may have given up, and
// this one may be about to: they would wait for each other.
NcclFabric::~NcclFabric() {
  if (run == 0) (void)stop();
  if (!devices.empty()) (void)device().gpu().enter();
  for (auto &[key, route] : routes)
    if (route.stream) device().gpu().driver.streamDestroy(route.stream);
  for (auto comm = made.rbegin(); comm != made.rend(); ++comm) nccl->destroy(*comm);
}

Result<NcclComm> NcclFabric::split(int color, int64_t key, const std::string &what) {
  NcclComm comm = nullptr;
  CLEAVE_RETURN_IF_ERROR(ncclStatus(*nccl, nccl->split(world, color, static_cast<int>(key), &comm, nullptr),
                                    fmt::format("cannot connect {}", what).c_str()));
  if (comm) made.push_back(comm);
  return comm;
}

namespace {
// Who sends messages to whom, in rounds in which no rank is twice: a split is of the whole world, and one a pair would
// be as many as there are devices.
using Pair = std::tuple<int64_t, int64_t, int>; // sender, receiver, channel
std::vector<std::vector<Pair>> roundsOf(const plan::Plan &plan, const dist::Mesh &mesh) {
  std::set<Pair> pairs;
  for (int64_t device = 0; device < mesh.numDevices(); ++device)
    for (const MessageRoute &route : routesOf(plan, mesh, device))
      if (route.from != route.to) pairs.insert({route.from, route.to, route.channel});
  std::vector<std::vector<Pair>> rounds;
  std::vector<std::set<size_t>> busy(static_cast<size_t>(mesh.numDevices())); // by device: its rounds
  for (const Pair &pair : pairs) {
    std::set<size_t> &sender = busy[static_cast<size_t>(std::get<0>(pair))];
    std::set<size_t> &receiver = busy[static_cast<size_t>(std::get<1>(pair))];
    size_t round = 0;
    while (sender.contains(round) || receiver.contains(round)) ++round;
    sender.insert(round), receiver.insert(round);
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(pair);
  }
  return rounds;
}

// How far along the group its members send each other messages.
std::set<int64_t> distancesOf(const plan::Collective &collective, int64_t members) {
  std::set<int64_t> distances;
  for (int64_t d = 0; d < members && collective.op() == plan::Collective::ALL_TO_ALL; ++d) distances.insert(d);
  for (int i = 0; i < collective.dims_size() && collective.op() == plan::Collective::SHIFT; ++i)
    distances.insert((collective.dims(i) % members + members) % members);
  return distances;
}
} // namespace

Status NcclFabric::open(const plan::Plan &plan, TimeLimit limit) {
  CLEAVE_ASSIGN_OR_RETURN(const Nccl *opened, openNccl());
  nccl = opened;
  if (devices.size() != 1) return inputError("between processes, each has one rank");
  int64_t self = devices.begin()->first;
  // Steps that can fail on this rank alone come first: a rank that gives up between two common calls keeps the others
  // waiting.
  Gpu &gpu = device().gpu();
  CLEAVE_RETURN_IF_ERROR(gpu.enter());
  CLEAVE_RETURN_IF_ERROR(greetings.allocate(gpu, 2 * mesh.numDevices(), device().copies()));
  CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.streamSynchronize(device().copies()), "the GPU stopped"));
  std::vector<std::vector<Pair>> rounds = roundsOf(plan, mesh);
  for (const std::vector<Pair> &round : rounds)
    for (const Pair &pair : round)
      if (std::get<0>(pair) == self)
        CLEAVE_RETURN_IF_ERROR(
            gpu.check(gpu.driver.streamCreate(&routes[pair].stream, streamNonBlocking), "cannot make a stream"));
  std::map<std::pair<std::vector<std::string>, int>, std::set<int64_t>> wanted; // the distances of messages
  for (const plan::Program &program : plan.programs())
    for (const plan::Fragment &fragment : program.fragments())
      for (const plan::Command &command : fragment.commands()) {
        if (!command.has_collective()) continue;
        const plan::Collective &collective = command.collective();
        dist::Axes axes = axesOf(collective.axes());
        wanted[{axes, laneOf(command)}].merge(distancesOf(collective, mesh.groupSize(axes)));
      }
  NcclId id{};
  if (self == 0) CLEAVE_RETURN_IF_ERROR(ncclStatus(*nccl, nccl->getUniqueId(&id), "cannot begin to connect the ranks"));
  CLEAVE_RETURN_IF_ERROR(host->control().broadcast({reinterpret_cast<std::byte *>(id.bytes), sizeof id.bytes}, limit));
  CLEAVE_RETURN_IF_ERROR(ncclStatus(
      *nccl, nccl->initRank(&world, static_cast<int>(mesh.numDevices()), id, static_cast<int>(self), nullptr),
      "cannot connect the ranks"));
  made.push_back(world);
  // All processes make the same splits in one order: what any program of the plan exchanges.
  for (const auto &[key, distances] : wanted) {
    const auto &[axes, lane] = key;
    std::vector<int64_t> members = mesh.group(self, axes);
    auto count = static_cast<int64_t>(members.size());
    auto place = std::find(members.begin(), members.end(), self) - members.begin();
    CLEAVE_ASSIGN_OR_RETURN(NcclComm comm, split(static_cast<int>(members.front()), place,
                                                 fmt::format("the ranks along {}", fmt::join(axes, ", "))));
    groups[{axes, lane}] = comm;
    if (distances.empty()) continue;
    std::vector<int> to, from;
    for (int64_t distance : distances) {
      to.push_back(static_cast<int>((place + distance) % count));
      from.push_back(static_cast<int>((place + count - distance) % count));
    }
    CLEAVE_RETURN_IF_ERROR(connectPair(comm, device().stream(lane), static_cast<int>(place), to, from));
  }
  for (const std::vector<Pair> &round : rounds) {
    auto mine = std::find_if(round.begin(), round.end(),
                             [&](const Pair &pair) { return std::get<0>(pair) == self || std::get<1>(pair) == self; });
    bool takesPart = mine != round.end(), receives = takesPart && std::get<1>(*mine) == self;
    constexpr int noColor = -1; // NCCL_SPLIT_NOCOLOR
    CLEAVE_ASSIGN_OR_RETURN(NcclComm comm, split(takesPart ? static_cast<int>(std::get<0>(*mine)) : noColor, receives,
                                                 "ranks of which one sends the other messages"));
    if (!takesPart) continue;
    Route &route = routes[*mine];
    route.comm = comm;
    CLEAVE_RETURN_IF_ERROR(receives ? connectPair(comm, device().stream(receiveLane), 1, {}, {0})
                                    : connectPair(comm, route.stream, 0, {1}, {}));
  }
  return Status::ok();
}

// Two ranks connect when they first send each other something, and both wait for that on their hosts. Within a step
// each comes to its exchanges in an order of its own, and two could wait for each other; so they do it here, where all
// have one order. The messages have no use.
Status NcclFabric::connectPair(NcclComm comm, Stream stream, int self, const std::vector<int> &to,
                               const std::vector<int> &from) {
  CLEAVE_RETURN_IF_ERROR(device().gpu().enter());
  int error = nccl->groupStart();
  Address sent = greetings.address(), received = sent + static_cast<Address>(mesh.numDevices());
  for (int peer : to)
    if (!error) error = nccl->send(pointer(sent + static_cast<Address>(self)), 1, ncclUint8, peer, comm, stream);
  for (int peer : from)
    if (!error) error = nccl->receive(pointer(received + static_cast<Address>(peer)), 1, ncclUint8, peer, comm, stream);
  int ended = nccl->groupEnd();
  return ncclStatus(*nccl, error ? error : ended, "cannot connect the ranks");
}

Result<Prepared> NcclFabric::prepare(int64_t id, int lane, const plan::Collective &collective) {
  CLEAVE_ASSIGN_OR_RETURN(CollectiveGroup group, groupOf(collective, mesh, id));
  const int64_t count = group.count();
  auto command =
      std::make_unique<NcclCollective>(*this, groups.at({axesOf(collective.axes()), lane}), lane, count, group.self);
  command->op = collective.op();
  command->reduce = collective.reduce() == plan::Collective::MAX   ? ncclMax
                    : collective.reduce() == plan::Collective::MIN ? ncclMin
                                                                   : ncclSum;
  for (CollectivePart &geometry : group.parts) {
    NcclCollective::Part part{std::move(geometry)};
    part.element = byteSize(part.dtype);
    part.type = ncclType(part.dtype);
    if (part.type < 0) return inputError(fmt::format("NCCL has no {}", plan::DType_Name(part.dtype)));
    if (part.dtype == plan::BOOL && collective.reduce() == plan::Collective::SUM) command->reduce = ncclMax; // any
    int64_t whole = part.elements() * part.element;
    part.packed = part.outer > 1 &&
                  (command->op == plan::Collective::ALL_GATHER || command->op == plan::Collective::REDUCE_SCATTER);
    if (part.packed) needScratch(lane, whole * count);
    if (command->op == plan::Collective::ALL_TO_ALL) {
      AllToAllPiece piece = pieceOf(part, count);
      part.pieceSource = piece.sourceStep, part.pieceTarget = piece.targetStep;
      std::vector<int64_t> packed = rowMajorStrides(piece.sizes);
      part.pieceBytes = whole / count;
      part.piece = rectanglesOf(piece.sizes, piece.sourceStrides, packed, part.element);
      part.unpack = rectanglesOf(piece.sizes, packed, piece.targetStrides, part.element);
      needScratch(lane, 2 * whole);
    }
    command->parts.push_back(std::move(part));
  }
  return Prepared(std::move(command));
}

Status NcclFabric::beginRun(int64_t number) {
  for (int lane = 0; lane < numLanes; ++lane) {
    auto l = static_cast<size_t>(lane);
    if (scratches[l].bytes() >= scratchBytes[l]) continue;
    CLEAVE_RETURN_IF_ERROR(scratches[l].allocate(device().gpu(), scratchBytes[l], device().stream(lane)));
  }
  for (auto &[channel, route] : toItself) route.beginRun();
  return StreamFabric::beginRun(number);
}
void NcclFabric::giveUpRun() {
  for (auto &[channel, route] : toItself) route.giveUpRun();
}

Status NcclFabric::openRoutes(int64_t id, std::span<const MessageRoute> opened) {
  const Gpu &gpu = device().gpu();
  for (const MessageRoute &message : opened) {
    if (message.from != id) continue;
    if (message.to == id) { // a tied parameter whose stages lie on one rank
      CLEAVE_RETURN_IF_ERROR(toItself[message.channel].open(device(), device(), message));
      continue;
    }
    Route &route = routes[{message.from, message.to, message.channel}];
    route.stride = (message.bytes + 255) / 256 * 256;
    CLEAVE_RETURN_IF_ERROR(gpu.enter());
    CLEAVE_RETURN_IF_ERROR(route.memory.allocate(gpu, route.stride * message.buffers, route.stream));
    CLEAVE_RETURN_IF_ERROR(route.idle.make(gpu));
    for (int i = 0; i < message.buffers; ++i) {
      CLEAVE_RETURN_IF_ERROR(route.written.emplace_back().make(gpu));
      CLEAVE_RETURN_IF_ERROR(route.gone.emplace_back().make(gpu));
    }
    CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.streamSynchronize(route.stream), "the GPU stopped"));
  }
  return Status::ok();
}

Result<Prepared> NcclFabric::prepareTransfer(int64_t id, int lane, const plan::Transfer &transfer) {
  int64_t peer = evaluate(transfer.peer(), mesh, id);
  bool receives = transfer.direction() == plan::Transfer::RECEIVE;
  if (peer == id) {
    auto own = toItself.find(transfer.channel());
    if (own == toItself.end()) return inputError(fmt::format("no route from device {} to itself", id));
    return bufferedTransfer(*this, own->second, device(), lane, transfer);
  }
  auto found =
      routes.find(receives ? std::tuple{peer, id, transfer.channel()} : std::tuple{id, peer, transfer.channel()});
  if (found == routes.end()) return inputError(fmt::format("no route to device {}", peer));
  return Prepared(std::make_unique<NcclTransfer>(*this, found->second, device().stream(lane),
                                                 device().address(transfer.buffer().offset()),
                                                 byteSize(transfer.buffer()), receives));
}

int64_t NcclFabric::messageBytes(int64_t) const {
  int64_t bytes = 0;
  for (const auto &[key, route] : routes) bytes += route.memory.bytes();
  for (const auto &[channel, route] : toItself) bytes += route.memory.bytes();
  for (const DeviceMemory &memory : scratches) bytes += memory.bytes();
  return bytes;
}

Status NcclFabric::endRun(Stream last) {
  for (auto &[key, route] : routes)
    if (route.stream) CLEAVE_RETURN_IF_ERROR(route.idle.waitOn(last, run));
  return Status::ok();
}

Status NcclFabric::health() {
  for (NcclComm comm : made) {
    int error = ncclOk;
    nccl->asyncError(comm, &error);
    if (error != ncclOk && error != ncclBusy)
      return ncclStatus(*nccl, error, "another rank is gone or the network failed");
  }
  // A rank that is done with its last step may be gone before this one is: it has sent what this one waits for.
  constexpr std::chrono::seconds deadline{5};
  int64_t lost = host->lostProcess();
  if (lost < 0) return Status::ok();
  auto now = std::chrono::steady_clock::now();
  if (!lostSince) lostSince = now;
  if (now - *lostSince > deadline) return runError(fmt::format("rank {} is gone", lost));
  return Status::ok();
}

// Ends the work that is stuck on the GPU, so that the process can end. Each communicator by itself: ncclCommAbort waits
// for kernels and graphs that use it, and those may wait for another one.
bool NcclFabric::stop() {
  struct Ends {
    std::mutex mutex;
    std::condition_variable changed;
    size_t left;
  };
  auto ends = std::make_shared<Ends>();
  ends->left = made.size();
  for (NcclComm comm : made)
    std::thread([ends, comm, abort = nccl->abort] {
      abort(comm);
      std::lock_guard lock(ends->mutex);
      --ends->left;
      ends->changed.notify_all();
    }).detach();
  made.clear();
  constexpr std::chrono::seconds deadline{10};
  std::unique_lock lock(ends->mutex);
  return ends->changed.wait_for(lock, deadline, [&] { return ends->left == 0; });
}

} // namespace cleave::runtime::cuda
