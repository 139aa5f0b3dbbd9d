#include "runtime/engine/comm/cuda/local_fabric.h"
#include "runtime/engine/comm/all_to_all.h"
#include "runtime/engine/comm/cuda/reduction_kernels.h"
#include "runtime/engine/comm/cuda/strided_pieces.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace cleave::runtime::cuda {

// One member's end of one collective. The last member to arrive enqueues it for all.
class LocalCollective final : public PreparedCommand {
public:
  struct Part : CollectivePart {
    int64_t element = 0;
    std::vector<Rectangle> piece;             // ALL_TO_ALL: from the sender's input to its block of the output
    int64_t pieceSource = 0, pieceTarget = 0; // bytes between the pieces of consecutive members
    Function reduce = nullptr;
  };
  LocalCollective(LocalStreamFabric &fabric, CudaDevice &device, int64_t id, int lane)
      : fabric(fabric), device(device), id(id), stream(device.stream(lane)) {}

  Status run() override { return runError("a collective is issued, not run"); }
  Result<bool> issue() override {
    if (int64_t run = fabric.currentRun(); announced != run) {
      announced = run, enqueued = false;
      if (std::exchange(meeting->run, run) != run) meeting->arrived = 0; // the run before was given up
      CLEAVE_RETURN_IF_ERROR(ready.record(stream, run));
      meeting->present[static_cast<size_t>(self)] = this;
      if (++meeting->arrived == meeting->present.size()) CLEAVE_RETURN_IF_ERROR(enqueue());
    }
    if (!enqueued) return false;
    announced = noRun;
    return true;
  }

  plan::Collective::Op op = plan::Collective::ALL_REDUCE;
  std::vector<Part> parts;
  int64_t self = 0;
  LocalStreamFabric::Meeting *meeting = nullptr;
  StreamEvent ready, done;
  LocalStreamFabric &fabric;
  CudaDevice &device;
  int64_t id;
  Stream stream;

private:
  int64_t members() const { return static_cast<int64_t>(meeting->present.size()); }
  const LocalCollective &member(int64_t m) const { return *meeting->present[static_cast<size_t>(m)]; }
  const Part &theirs(const Part &part, int64_t m) const {
    return member(m).parts[static_cast<size_t>(&part - parts.data())];
  }
  Address in(const Part &part, int64_t m) const { return member(m).device.address(theirs(part, m).inputOffset); }
  Address out(const Part &part, int64_t m) const { return member(m).device.address(theirs(part, m).outputOffset); }

  Status enqueue() {
    int64_t run = fabric.currentRun();
    for (LocalCollective *each : meeting->present) {
      CLEAVE_RETURN_IF_ERROR(each->device.gpu().enter());
      for (LocalCollective *other : meeting->present)
        if (other != each) CLEAVE_RETURN_IF_ERROR(other->ready.waitOn(each->stream, run));
      for (const Part &part : each->parts) CLEAVE_RETURN_IF_ERROR(each->share(part));
      CLEAVE_RETURN_IF_ERROR(each->done.record(each->stream, run));
    }
    for (LocalCollective *each : meeting->present) {
      CLEAVE_RETURN_IF_ERROR(each->device.gpu().enter());
      for (LocalCollective *other : meeting->present)
        if (other != each) CLEAVE_RETURN_IF_ERROR(other->done.waitOn(each->stream, run));
      each->enqueued = true;
    }
    std::fill(meeting->present.begin(), meeting->present.end(), nullptr);
    meeting->arrived = 0;
    return device.gpu().enter();
  }

  Status copy(Address source, Address target, int64_t bytes) const {
    return copyRectangle(device.gpu(), {0, 0, bytes, 1, bytes, bytes}, source, target, stream);
  }

  Status share(const Part &part) {
    int64_t whole = part.elements() * part.element, row = part.length * part.inner * part.element;
    if (members() == 1 && (op == plan::Collective::ALL_REDUCE || op == plan::Collective::REDUCE_SCATTER))
      return copy(in(part, 0), out(part, 0), whole);
    switch (op) {
    case plan::Collective::ALL_REDUCE: {
      auto [begin, count] = ownPiece(part, members(), self);
      Address offset = static_cast<Address>(begin * part.element), mine = out(part, self) + offset;
      CLEAVE_RETURN_IF_ERROR(reduce(part, static_cast<int64_t>(offset), mine, count, count, count));
      for (int64_t m = 0; m < members(); ++m)
        if (m != self) CLEAVE_RETURN_IF_ERROR(copy(mine, out(part, m) + offset, count * part.element));
      return Status::ok();
    }
    case plan::Collective::REDUCE_SCATTER: {
      int64_t elements = part.length * part.inner;
      return reduce(part, self * row, out(part, self), elements, elements * members(), part.outer * elements);
    }
    case plan::Collective::ALL_GATHER:
      for (int64_t m = 0; m < members(); ++m) {
        Rectangle rows{0, m * row, row, part.outer, row, row * members()};
        if (part.outer > 1 || in(part, m) != out(part, self) + static_cast<Address>(m * row))
          CLEAVE_RETURN_IF_ERROR(copyRectangle(device.gpu(), rows, in(part, m), out(part, self), stream));
      }
      return Status::ok();
    case plan::Collective::ALL_TO_ALL:
      for (int64_t m = 0; m < members(); ++m)
        for (const Rectangle &rectangle : part.piece)
          CLEAVE_RETURN_IF_ERROR(copyRectangle(device.gpu(), rectangle,
                                               in(part, m) + static_cast<Address>(self * part.pieceSource),
                                               out(part, self) + static_cast<Address>(m * part.pieceTarget), stream));
      return Status::ok();
    case plan::Collective::SHIFT:
      return copy(in(part, (self + members() - part.distance) % members()), out(part, self), whole);
    default: // BROADCAST from the first member
      return copy(in(part, 0), out(part, self), whole);
    }
  }

  // Every member reduces one piece of all inputs and writes it to all outputs.
  // out[i] = sum over members of their input's element at `offset` bytes + i / row * pitch + i % row
  Status reduce(const Part &part, int64_t offset, Address target, int64_t row, int64_t pitch, int64_t count) {
    if (count == 0) return Status::ok();
    std::vector<Address> inputs;
    for (int64_t m = 0; m < members(); ++m) inputs.push_back(in(part, m) + static_cast<Address>(offset));
    CLEAVE_ASSIGN_OR_RETURN(Address table, fabric.table(id, inputs));
    uint64_t values[] = {target,
                         table,
                         static_cast<uint64_t>(members()),
                         static_cast<uint64_t>(row),
                         static_cast<uint64_t>(pitch),
                         static_cast<uint64_t>(count)};
    void *parameters[6];
    for (size_t i = 0; i < 6; ++i) parameters[i] = &values[i];
    auto blocks = static_cast<unsigned>(std::min<int64_t>((count + 255) / 256, 4096));
    return device.gpu().check(
        device.gpu().driver.launchKernel(part.reduce, blocks, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr),
        "a reduction does not start");
  }

  static constexpr int64_t noRun = -1;
  int64_t announced = noRun; // in this run, not yet done
  bool enqueued = false;
};

LocalStreamFabric::LocalStreamFabric(dist::Mesh mesh, std::unique_ptr<Fabric> host, CudaDevices devices)
    : StreamFabric(std::move(mesh), std::move(host), std::move(devices)) {}
LocalStreamFabric::~LocalStreamFabric() = default;

Status LocalStreamFabric::needReduction(Gpu &gpu, const std::string &name) {
  auto [module, added] = modules.try_emplace(&gpu);
  if (added) {
    CLEAVE_ASSIGN_OR_RETURN(Module loaded, gpu.load(reductionPtx().c_str(), "the kernels of reductions"));
    module->second = loaded;
  }
  Function &function = reductions[&gpu][name];
  if (function) return Status::ok();
  return gpu.check(gpu.driver.moduleGetFunction(&function, module->second, name.c_str()), "a reduction is missing");
}

Result<Prepared> LocalStreamFabric::prepare(int64_t device, int lane, const plan::Collective &collective) {
  CLEAVE_ASSIGN_OR_RETURN(CollectiveGroup group, groupOf(collective, mesh, device));
  CudaDevice &own = *devices.at(device);
  CLEAVE_RETURN_IF_ERROR(own.gpu().enter());
  auto command = std::make_unique<LocalCollective>(*this, own, device, lane);
  command->op = collective.op();
  command->self = group.self;
  bool reduces = collective.op() == plan::Collective::ALL_REDUCE || collective.op() == plan::Collective::REDUCE_SCATTER;
  for (CollectivePart &geometry : group.parts) {
    LocalCollective::Part part{std::move(geometry)};
    part.element = byteSize(part.dtype);
    if (reduces) {
      std::string name = reductionName(part.dtype, collective.reduce());
      if (name.empty()) return inputError(fmt::format("no reduction of {}", plan::DType_Name(part.dtype)));
      CLEAVE_RETURN_IF_ERROR(needReduction(own.gpu(), name));
      part.reduce = reductions[&own.gpu()][name];
    }
    if (collective.op() == plan::Collective::ALL_TO_ALL) {
      AllToAllPiece piece = pieceOf(part, group.count());
      part.pieceSource = piece.sourceStep, part.pieceTarget = piece.targetStep;
      part.piece = rectanglesOf(piece.sizes, piece.sourceStrides, piece.targetStrides, part.element);
    }
    command->parts.push_back(std::move(part));
  }
  CLEAVE_RETURN_IF_ERROR(command->ready.make(own.gpu()));
  CLEAVE_RETURN_IF_ERROR(command->done.make(own.gpu()));
  Meeting &meeting = meetings[{group.members, lane}];
  meeting.present.resize(group.members.size());
  command->meeting = &meeting;
  return Prepared(std::move(command));
}

Result<Address> LocalStreamFabric::table(int64_t device, const std::vector<Address> &addresses) {
  constexpr int64_t chunkBytes = 1 << 20;
  Tables &own = tables[device];
  auto known = own.known.find(addresses);
  if (known != own.known.end()) return known->second;
  CudaDevice &owner = *devices.at(device);
  auto bytes = static_cast<int64_t>(addresses.size() * sizeof(Address));
  if (own.chunks.empty() || own.used + bytes > chunkBytes) {
    CLEAVE_RETURN_IF_ERROR(
        own.chunks.emplace_back().allocate(owner.gpu(), std::max(chunkBytes, bytes), owner.copies()));
    own.used = 0;
  }
  Address place = own.chunks.back().address() + static_cast<Address>(own.used);
  CLEAVE_RETURN_IF_ERROR(owner.upload(place, addresses.data(), bytes));
  own.used += bytes;
  own.known.emplace(addresses, place);
  return place;
}

Status LocalStreamFabric::openRoutes(int64_t device, std::span<const MessageRoute> opened) {
  CudaDevice &own = *devices.at(device);
  for (const MessageRoute &message : opened) { // both ends name it, the sender says how many buffers it needs
    if (message.from != device) continue;
    MessageBuffers &route = routes[{message.from, message.to, message.channel}];
    CLEAVE_RETURN_IF_ERROR(route.open(own, *devices.at(message.to), message));
  }
  return Status::ok();
}

Status LocalStreamFabric::beginRun(int64_t number) {
  for (auto &[key, route] : routes) route.beginRun();
  return StreamFabric::beginRun(number);
}
void LocalStreamFabric::giveUpRun() {
  for (auto &[key, route] : routes) route.giveUpRun();
}

Result<Prepared> LocalStreamFabric::prepareTransfer(int64_t device, int lane, const plan::Transfer &transfer) {
  int64_t peer = evaluate(transfer.peer(), mesh, device);
  bool receives = transfer.direction() == plan::Transfer::RECEIVE;
  int channel = transfer.channel();
  auto found = routes.find(receives ? std::tuple{peer, device, channel} : std::tuple{device, peer, channel});
  if (found == routes.end()) return inputError(fmt::format("no route to device {}", peer));
  return bufferedTransfer(*this, found->second, *devices.at(device), lane, transfer);
}

int64_t LocalStreamFabric::messageBytes(int64_t device) const {
  int64_t bytes = 0;
  for (const auto &[key, route] : routes)
    if (std::get<0>(key) == device) bytes += route.memory.bytes();
  return bytes;
}

} // namespace cleave::runtime::cuda
