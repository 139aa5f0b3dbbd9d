#include "runtime/engine/comm/local.h"
#include "runtime/base/strided_copy.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/comm/all_to_all.h"
#include "runtime/engine/comm/reduce.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

// One member's end of one collective: wait until all inputs are written, do the own share, wait until all are done.
// Members of several programs have the same shapes at other offsets: each shows its parts while they meet.
class LocalCollective final : public PreparedCommand {
public:
  struct Part : CollectivePart {
    int64_t element = 0;
    ReduceFunction reduce = nullptr;
    StridedCopy piece;                        // ALL_TO_ALL: from the sender's input to its block of the output
    int64_t pieceSource = 0, pieceTarget = 0; // bytes between the pieces of consecutive members
  };
  plan::Collective::Op op = plan::Collective::ALL_REDUCE;
  std::vector<Part> parts;
  std::vector<std::byte *> arenas;   // of the members, in their order
  std::vector<WakeSignal *> signals; // the same
  int64_t self = 0;
  LocalFabric::Meeting *meeting = nullptr;
  const AbortFlag *abort = nullptr;

  Status run() override {
    for (WakeSignal &signal = *signals[static_cast<size_t>(self)];;) {
      uint32_t heard = signal.epoch();
      Result<bool> done = issue();
      if (!done || *done) return done.status();
      if (!signal.wait(heard, *abort)) return runError("the run was aborted");
    }
  }

  Result<bool> issue() override {
    switch (stage) {
    case Stage::Outside:
      meeting->present[static_cast<size_t>(self)] = this;
      arrive();
      stage = Stage::Meeting;
      [[fallthrough]];
    case Stage::Meeting:
      if (!meeting->barrier.passed(ticket)) return false;
      for (const Part &part : parts) share(part);
      arrive();
      stage = Stage::Leaving;
      [[fallthrough]];
    case Stage::Leaving:
      if (!meeting->barrier.passed(ticket)) return false;
      stage = Stage::Outside;
    }
    return true;
  }

private:
  enum class Stage { Outside, Meeting, Leaving };
  Stage stage = Stage::Outside;
  uint32_t ticket = 0;

  void arrive() {
    bool isLast = false;
    ticket = meeting->barrier.arrive(isLast);
    for (size_t m = 0; isLast && m < signals.size(); ++m)
      if (m != static_cast<size_t>(self)) signals[m]->notify();
  }
  int64_t members() const { return static_cast<int64_t>(arenas.size()); }
  // Only between the two barriers.
  const Part &theirs(const Part &part, int64_t member) const {
    const auto *other = static_cast<const LocalCollective *>(meeting->present[static_cast<size_t>(member)]);
    return other->parts[static_cast<size_t>(&part - parts.data())];
  }
  std::byte *in(const Part &part, int64_t member) const {
    return arenas[static_cast<size_t>(member)] + theirs(part, member).inputOffset;
  }
  std::byte *out(const Part &part, int64_t member) const {
    return arenas[static_cast<size_t>(member)] + theirs(part, member).outputOffset;
  }

  void share(const Part &part) const {
    switch (op) {
    case plan::Collective::ALL_REDUCE:
      return allReduce(part);
    case plan::Collective::REDUCE_SCATTER:
      return reduceScatter(part);
    case plan::Collective::ALL_GATHER:
      return allGather(part);
    case plan::Collective::ALL_TO_ALL:
      for (int64_t m = 0; m < members(); ++m)
        part.piece.run(in(part, m) + self * part.pieceSource, out(part, self) + m * part.pieceTarget);
      return;
    case plan::Collective::SHIFT: {
      const std::byte *source = in(part, (self + members() - part.distance) % members());
      std::memmove(out(part, self), source, static_cast<size_t>(part.elements() * part.element));
      return;
    }
    default: // BROADCAST from the first member
      if (out(part, self) != in(part, 0))
        std::memmove(out(part, self), in(part, 0), static_cast<size_t>(part.elements() * part.element));
    }
  }

  // Every member reduces one piece of all inputs and writes it to all outputs.
  void allReduce(const Part &part) const {
    auto [first, count] = ownPiece(part, members(), self);
    parallelFor(count, 4096, [&, first = first](int64_t from, int64_t to) {
      const std::byte *inputs[maxMembers];
      int64_t offset = (first + from) * part.element;
      for (int64_t m = 0; m < members(); ++m) inputs[m] = in(part, m) + offset;
      std::byte *mine = out(part, self) + offset;
      part.reduce(mine, inputs, members(), to - from);
      for (int64_t m = 0; m < members(); ++m)
        if (m != self) std::memcpy(out(part, m) + offset, mine, static_cast<size_t>((to - from) * part.element));
    });
  }

  void reduceScatter(const Part &part) const {
    int64_t row = part.length * part.inner; // elements of the output a step of the outer dimension
    parallelFor(part.outer, std::max<int64_t>(1, 4096 / std::max<int64_t>(1, row)), [&](int64_t from, int64_t to) {
      const std::byte *inputs[maxMembers];
      for (int64_t o = from; o < to; ++o) {
        for (int64_t m = 0; m < members(); ++m) inputs[m] = in(part, m) + (o * members() + self) * row * part.element;
        part.reduce(out(part, self) + o * row * part.element, inputs, members(), row);
      }
    });
  }

  void allGather(const Part &part) const {
    auto row = static_cast<size_t>(part.length * part.inner * part.element);
    parallelFor(part.outer * members(),
                std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(1, static_cast<int64_t>(row))),
                [&](int64_t from, int64_t to) {
                  for (int64_t i = from; i < to; ++i) {
                    const std::byte *source = in(part, i % members()) + static_cast<size_t>(i / members()) * row;
                    std::byte *target = out(part, self) + static_cast<size_t>(i) * row;
                    if (source != target) std::memcpy(target, source, row);
                  }
                });
  }

public:
  static constexpr int64_t maxMembers = 1024;
};

} // namespace

LocalFabric::LocalFabric(dist::Mesh mesh)
    : mesh(std::move(mesh)), arenas(static_cast<size_t>(this->mesh.numDevices())), signals(arenas.size()) {}

std::vector<int64_t> LocalFabric::localDevices() const {
  std::vector<int64_t> devices(arenas.size());
  for (size_t i = 0; i < devices.size(); ++i) devices[i] = static_cast<int64_t>(i);
  return devices;
}

Result<Prepared> LocalFabric::prepare(int64_t device, int lane, const plan::Collective &collective) {
  CLEAVE_ASSIGN_OR_RETURN(CollectiveGroup group, groupOf(collective, mesh, device));
  if (group.count() > LocalCollective::maxMembers)
    return inputError(fmt::format("a group of {} devices in one process", group.count()));
  auto command = std::make_unique<LocalCollective>();
  command->op = collective.op();
  command->self = group.self;
  command->abort = &flag;
  for (int64_t member : group.members) {
    command->arenas.push_back(arenas[static_cast<size_t>(member)]);
    command->signals.push_back(signal(member));
  }
  for (CollectivePart &geometry : group.parts) {
    LocalCollective::Part part{std::move(geometry)};
    part.element = byteSize(part.dtype);
    part.reduce = reduceFunction(part.dtype, collective.reduce());
    if (collective.op() == plan::Collective::ALL_TO_ALL) {
      AllToAllPiece piece = pieceOf(part, group.count());
      part.pieceSource = piece.sourceStep, part.pieceTarget = piece.targetStep;
      part.piece = StridedCopy(piece.sizes, piece.sourceStrides, piece.targetStrides, part.element);
    }
    command->parts.push_back(std::move(part));
  }
  std::lock_guard guard(lock);
  std::unique_ptr<Meeting> &meeting = channels[{group.members, lane}];
  if (!meeting) meeting = std::make_unique<Meeting>(static_cast<int>(group.count()));
  command->meeting = meeting.get();
  return Prepared(std::move(command));
}

void LocalFabric::abort(const std::string &, int) {
  flag.raise();
  for (WakeSignal &signal : signals) signal.notify();
}

Status LocalFabric::openRoutes(int64_t device, std::span<const MessageRoute> opened) {
  for (const MessageRoute &route : opened) { // both ends name it, the sender says how many buffers it needs
    if (route.from != device) continue;
    auto ring = std::make_unique<MessageRing>(route.bytes, route.buffers, flag);
    ring->onPublish = [to = signal(route.to)] { to->notify(); };
    ring->onRelease = [from = signal(route.from)] { from->notify(); };
    routes[{route.from, route.to, route.channel}] = std::move(ring);
  }
  return Status::ok();
}

Result<Prepared> LocalFabric::prepareTransfer(int64_t device, int, const plan::Transfer &transfer) {
  int64_t peer = evaluate(transfer.peer(), mesh, device);
  bool receives = transfer.direction() == plan::Transfer::RECEIVE;
  int channel = transfer.channel();
  auto found = routes.find(receives ? std::tuple{peer, device, channel} : std::tuple{device, peer, channel});
  if (found == routes.end()) return inputError(fmt::format("no route to device {}", peer));
  std::byte *data = arenas[static_cast<size_t>(device)] + transfer.buffer().offset();
  return prepareMessage(*found->second, data, byteSize(transfer.buffer()), receives);
}

int64_t LocalFabric::messageBytes(int64_t device) const {
  int64_t bytes = 0;
  for (const auto &[key, ring] : routes)
    if (std::get<0>(key) == device) bytes += ring->allocatedBytes();
  return bytes;
}

} // namespace cleave::runtime
