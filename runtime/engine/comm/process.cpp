#include "runtime/engine/comm/process.h"
#include "runtime/base/strided_copy.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/comm/all_to_all.h"
#include "runtime/engine/comm/reduce.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <cctype>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::runtime {
namespace {

constexpr uint32_t numOps = 8; // a tag is the set of a group's axes and the collective: below 2^15, as MPI wants
constexpr size_t maxAxes = 12;

uint32_t tagOf(const dist::Mesh &mesh, const plan::Collective &collective) {
  uint32_t axes = 0;
  for (const std::string &axis : collective.axes())
    for (size_t a = 0; a < mesh.axes.size(); ++a)
      if (mesh.axes[a].name == axis) axes |= 1u << a;
  return axes * numOps + static_cast<uint32_t>(collective.op());
}

// Adds a message to or from a peer, in parts where it is long.
void add(std::vector<Message> &messages, int peer, uint32_t tag, const std::byte *data, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += maxMessageBytes)
    messages.push_back(
        {peer, tag, const_cast<std::byte *>(data) + at, std::min(maxMessageBytes, bytes - at)}); // sent ones are read
}

// What others send to be reduced lies here until it is: one area a lane, so that it stays in the cache.
constexpr int64_t batchBytes = 1 << 18, minBatchBytes = 1 << 14; // of a peer; twice, for the batch that is under way

// A collective as batches of two rounds of messages, with a reduction between, and with local work before and after
// all. Two batches are under way: while one is reduced, the next one arrives. Everything is laid out here once.
class ProcessCollective final : public PreparedCommand {
public:
  struct Round {
    std::vector<Message> sends, receives;
  };
  struct Move { // a piece into or out of the staging memory
    StridedCopy copy;
    const std::byte *source;
    std::byte *target;
  };
  struct Reduction {
    ReduceFunction reduce;
    std::vector<const std::byte *> inputs;
    std::byte *output;
    int64_t count, element;
  };
  struct Batch {
    Round first, second;
    std::vector<Reduction> reductions;
  };

  ProcessCollective(Endpoint &endpoint, const AbortFlag &abort, uint32_t tag)
      : endpoint(endpoint), abort(abort), tag(tag) {}

  Status run() override {
    for (const Move &move : before) move.copy.run(move.source, move.target);
    if (Status status = runBatches(); !status) {
      for (Batch &batch : batches)
        for (Round *round : {&batch.first, &batch.second})
          cancel(endpoint, round->sends), cancel(endpoint, round->receives);
      return status;
    }
    for (const Move &move : after) move.copy.run(move.source, move.target);
    return Status::ok();
  }

  static constexpr int64_t maxMembers = 4096;
  std::vector<Move> before, after;
  std::vector<Batch> batches{1};
  std::vector<std::unique_ptr<std::byte[]>> staging;

  std::byte *stage(int64_t bytes) {
    staging.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(std::max<int64_t>(1, bytes))));
    return staging.back().get();
  }

  void send(Round &round, int peer, const std::byte *data, int64_t bytes) { add(round.sends, peer, tag, data, bytes); }
  void receive(Round &round, int peer, std::byte *data, int64_t bytes) { add(round.receives, peer, tag, data, bytes); }

private:
  static constexpr size_t ahead = 2;

  // All ranks hand over their messages in the same order: an endpoint compares them.
  Status runBatches() {
    const Deadline deadline(abort);
    auto start = [&](Round &round) { begin(endpoint, round.sends, round.receives); };
    for (size_t b = 0; b < std::min(ahead, batches.size()); ++b) start(batches[b].first);
    for (size_t b = 0; b < batches.size(); ++b) {
      Batch &batch = batches[b];
      CLEAVE_RETURN_IF_ERROR(finish(endpoint, {}, batch.first.receives, deadline));
      for (const Reduction &part : batch.reductions) run(part);
      start(batch.second);
      if (b + ahead < batches.size()) start(batches[b + ahead].first);
    }
    for (const Batch &batch : batches) {
      CLEAVE_RETURN_IF_ERROR(finish(endpoint, batch.first.sends, {}, deadline));
      CLEAVE_RETURN_IF_ERROR(finish(endpoint, batch.second.sends, batch.second.receives, deadline));
    }
    return Status::ok();
  }
  static void run(const Reduction &part) {
    parallelFor(part.count, 4096, [&](int64_t from, int64_t to) {
      const std::byte *inputs[maxMembers];
      for (size_t m = 0; m < part.inputs.size(); ++m) inputs[m] = part.inputs[m] + from * part.element;
      part.reduce(part.output + from * part.element, inputs, static_cast<int64_t>(part.inputs.size()), to - from);
    });
  }
  Endpoint &endpoint;
  const AbortFlag &abort;
  const uint32_t tag;
};

// Lays out the parts of a collective for the member `self` of `members`.
struct Layout {
  ProcessCollective &command;
  const std::vector<int64_t> &members;
  int64_t self;
  std::byte *arena;
  std::byte *shared = nullptr; // what stagingBytes() says, where the collective reduces
  int64_t filled = 0;          // bytes of a peer in the last batch

  int64_t count() const { return static_cast<int64_t>(members.size()); }
  int peer(int64_t member) const { return static_cast<int>(members[static_cast<size_t>(member)]); }
  ProcessCollective::Round &round() const { return command.batches.front().first; } // of what needs no batches

  static int64_t bytesOfBatch(int64_t members) {
    return std::clamp(2 * batchBytes / members / 64 * 64, minBatchBytes, batchBytes);
  }
  static int64_t stagingBytes(int64_t members) { return 2 * members * bytesOfBatch(members); }

  // Calls each(batch, from, count, staging) for ranges of a piece's elements. staging(member): where that member's lie.
  template <typename Each> void inBatches(int64_t elements, int64_t element, Each each) {
    const int64_t most = bytesOfBatch(count()), aligned = 16 * element;
    for (int64_t from = 0; from < elements;) {
      if (most - filled < aligned) command.batches.emplace_back(), filled = 0;
      const int64_t taken = std::min(elements - from, (most - filled) / aligned * 16);
      std::byte *place = shared + static_cast<int64_t>(command.batches.size() % 2) * count() * most + filled;
      each(command.batches.back(), from, taken, [place, most](int64_t member) { return place + member * most; });
      from += taken, filled += (taken * element + 63) / 64 * 64;
    }
  }

  void allReduce(const CollectivePart &part, ReduceFunction reduce) {
    int64_t element = byteSize(part.dtype);
    std::byte *in = arena + part.inputOffset, *out = arena + part.outputOffset;
    inBatches(ownPiece(part, count(), 0).count, element, [&](auto &batch, int64_t from, int64_t taken, auto staging) {
      auto begin = [&](int64_t m) { return (ownPiece(part, count(), m).begin + from) * element; };
      auto bytes = [&](int64_t m) {
        return std::clamp<int64_t>(ownPiece(part, count(), m).count - from, 0, taken) * element;
      };
      ProcessCollective::Reduction mine{reduce, {}, out + begin(self), bytes(self) / element, element};
      for (int64_t m = 0; m < count(); ++m) {
        if (m == self) {
          mine.inputs.push_back(in + begin(self));
          continue;
        }
        command.send(batch.first, peer(m), in + begin(m), bytes(m));
        command.receive(batch.first, peer(m), staging(m), bytes(self));
        mine.inputs.push_back(staging(m));
        command.send(batch.second, peer(m), out + begin(self), bytes(self));
        command.receive(batch.second, peer(m), out + begin(m), bytes(m));
      }
      batch.reductions.push_back(std::move(mine));
    });
  }

  // The member's piece of the input, packed: what reduce-scatter and all-to-all send.
  struct Pieces {
    StridedCopy pack;
    int64_t stride, bytes; // bytes between pieces in the input; of one piece
  };
  Pieces piecesOf(const std::vector<int64_t> &shape, size_t dim, int64_t element) const {
    std::vector<int64_t> piece = shape, strides = rowMajorStrides(shape);
    piece[dim] /= count();
    StridedCopy pack(piece, strides, rowMajorStrides(piece), element);
    return {pack, piece[dim] * strides[dim] * element, pack.bytes()};
  }

  void reduceScatter(const CollectivePart &part, ReduceFunction reduce) {
    int64_t element = byteSize(part.dtype);
    Pieces pieces = piecesOf(part.inputShape, static_cast<size_t>(part.dim), element);
    std::vector<const std::byte *> packed;
    for (int64_t m = 0; m < count(); ++m) {
      const std::byte *piece = arena + part.inputOffset + m * pieces.stride;
      if (part.outer > 1) { // it lies apart
        std::byte *whole = command.stage(pieces.bytes);
        command.before.push_back({pieces.pack, piece, whole});
        piece = whole;
      }
      packed.push_back(piece);
    }
    inBatches(pieces.bytes / element, element, [&](auto &batch, int64_t from, int64_t taken, auto staging) {
      const int64_t begin = from * element, bytes = taken * element;
      ProcessCollective::Reduction mine{reduce, {}, arena + part.outputOffset + begin, taken, element};
      for (int64_t m = 0; m < count(); ++m) {
        if (m == self) {
          mine.inputs.push_back(packed[static_cast<size_t>(m)] + begin);
          continue;
        }
        command.send(batch.first, peer(m), packed[static_cast<size_t>(m)] + begin, bytes);
        command.receive(batch.first, peer(m), staging(m), bytes);
        mine.inputs.push_back(staging(m));
      }
      batch.reductions.push_back(std::move(mine));
    });
  }

  void allGather(const CollectivePart &part) const {
    int64_t element = byteSize(part.dtype), bytes = part.elements() * element,
            width = part.length * part.inner * element;
    StridedCopy unpack({part.outer, width}, {width, 1}, {width * count(), 1}, 1);
    std::byte *in = arena + part.inputOffset, *out = arena + part.outputOffset;
    for (int64_t m = 0; m < count(); ++m) {
      if (m == self) {
        command.before.push_back({unpack, in, out + m * width});
        continue;
      }
      std::byte *theirs = part.outer == 1 ? out + m * width : command.stage(bytes);
      command.send(round(), peer(m), in, bytes);
      command.receive(round(), peer(m), theirs, bytes);
      if (part.outer != 1) command.after.push_back({unpack, theirs, out + m * width});
    }
  }

  void allToAll(const CollectivePart &part) const {
    int64_t element = byteSize(part.dtype);
    Pieces pieces = piecesOf(part.inputShape, static_cast<size_t>(part.splitDim), element);
    AllToAllPiece piece = pieceOf(part, count());
    StridedCopy unpack(piece.sizes, rowMajorStrides(piece.sizes), piece.targetStrides, element);
    for (int64_t m = 0; m < count(); ++m) {
      std::byte *packed = command.stage(pieces.bytes), *theirs = m == self ? packed : command.stage(pieces.bytes);
      command.before.push_back({pieces.pack, arena + part.inputOffset + m * pieces.stride, packed});
      command.after.push_back({unpack, theirs, arena + part.outputOffset + m * piece.targetStep});
      if (m == self) continue;
      command.send(round(), peer(m), packed, pieces.bytes);
      command.receive(round(), peer(m), theirs, pieces.bytes);
    }
  }

  void shift(const CollectivePart &part) const {
    int64_t bytes = part.elements() * byteSize(part.dtype);
    std::byte *in = arena + part.inputOffset, *out = arena + part.outputOffset;
    if (part.distance == 0) {
      if (in != out) command.after.push_back({StridedCopy({bytes}, {1}, {1}, 1), in, out});
      return;
    }
    command.send(round(), peer((self + part.distance) % count()), in, bytes);
    command.receive(round(), peer((self + count() - part.distance) % count()), out, bytes);
  }

  void broadcast(const CollectivePart &part) const {
    int64_t bytes = part.elements() * byteSize(part.dtype);
    std::byte *in = arena + part.inputOffset, *out = arena + part.outputOffset;
    if (self != 0) {
      command.receive(round(), peer(0), out, bytes);
      return;
    }
    for (int64_t m = 1; m < count(); ++m) command.send(round(), peer(m), in, bytes);
    if (in != out) command.after.push_back({StridedCopy({bytes}, {1}, {1}, 1), in, out});
  }
};

} // namespace

Result<Prepared> ProcessFabric::prepare(int64_t device, int lane, const plan::Collective &collective) {
  CLEAVE_ASSIGN_OR_RETURN(CollectiveGroup group, groupOf(collective, mesh, device));
  if (group.count() > ProcessCollective::maxMembers)
    return inputError(fmt::format("a group of {} processes", group.count()));
  if (mesh.axes.size() > maxAxes)
    return inputError(fmt::format("a mesh of {} axes; at most {} are allowed", mesh.axes.size(), maxAxes));
  if (lane > Transport::communicationLane) return inputError(fmt::format("a collective in lane {}", lane));
  const auto on = static_cast<Transport::Lane>(lane);
  for (int64_t member : group.members) transport->need(on, static_cast<int>(member));
  auto command = std::make_unique<ProcessCollective>(transport->endpoint(on), flag, tagOf(mesh, collective));
  Layout layout{*command, group.members, group.self, arena};
  const bool reduces =
      collective.op() == plan::Collective::ALL_REDUCE || collective.op() == plan::Collective::REDUCE_SCATTER;
  if (reduces) layout.shared = stagingOf(lane, Layout::stagingBytes(group.count()));
  for (const CollectivePart &part : group.parts) {
    ReduceFunction reduce = reduceFunction(part.dtype, collective.reduce());
    switch (collective.op()) {
    case plan::Collective::ALL_REDUCE:
      layout.allReduce(part, reduce);
      break;
    case plan::Collective::REDUCE_SCATTER:
      layout.reduceScatter(part, reduce);
      break;
    case plan::Collective::ALL_GATHER:
      layout.allGather(part);
      break;
    case plan::Collective::ALL_TO_ALL:
      layout.allToAll(part);
      break;
    case plan::Collective::SHIFT:
      layout.shift(part);
      break;
    default:
      layout.broadcast(part);
      break;
    }
  }
  return Prepared(std::move(command));
}

// A lane's commands run one after the other, and share it.
std::byte *ProcessFabric::stagingOf(int lane, int64_t bytes) {
  std::vector<Staging> &all = staging[static_cast<size_t>(lane)];
  if (all.empty() || all.back().bytes < bytes)
    all.push_back({std::make_unique<std::byte[]>(static_cast<size_t>(bytes)), bytes});
  return all.back().memory.get();
}

void ProcessFabric::open(std::unique_ptr<Transport> opened) {
  transport = std::move(opened);
  for (Transport::Lane lane : {Transport::computeLane, Transport::communicationLane})
    transport->endpoint(lane).nameOf = [this](uint32_t tag) { return nameOf(tag); };
  transfers = std::make_unique<TransferThread>(transport->endpoint(Transport::transferLane));
}

// "all_reduce over dp, tp": of a tag.
std::string ProcessFabric::nameOf(uint32_t tag) const {
  std::vector<std::string> axes;
  for (size_t a = 0; a < mesh.axes.size(); ++a)
    if (tag / numOps >> a & 1) axes.push_back(mesh.axes[a].name);
  std::string name = plan::Collective::Op_Name(static_cast<int>(tag % numOps));
  std::ranges::transform(name, name.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return fmt::format("{} over {}", name, fmt::join(axes, ", "));
}

Status ProcessFabric::openRoutes(int64_t, std::span<const MessageRoute> opened) {
  for (const MessageRoute &route : opened) transfers->open(route);
  for (int peer : transfers->peers()) transport->need(Transport::transferLane, peer);
  return Status::ok();
}

Status ProcessFabric::connect(TimeLimit limit) {
  CLEAVE_RETURN_IF_ERROR(transport->connect(limit));
  transfers->start();
  return Status::ok();
}

Result<Prepared> ProcessFabric::prepareTransfer(int64_t device, int, const plan::Transfer &transfer) {
  return transfers->prepare(static_cast<int>(evaluate(transfer.peer(), mesh, device)), transfer.channel(),
                            transfer.direction() == plan::Transfer::RECEIVE, arena + transfer.buffer().offset(),
                            byteSize(transfer.buffer()));
}

int64_t ProcessFabric::messageBytes(int64_t) const { return transfers->allocatedBytes(); }

Result<ControlPlane *> ProcessFabric::openControl(TimeLimit limit) {
  constexpr double grace = 2; // seconds: to end a snapshot that all have written
  for (int peer : neighboursOf(transport->rank(), transport->size()))
    transport->need(Transport::secondControlLane, peer);
  CLEAVE_RETURN_IF_ERROR(transport->connect(limit));
  second = std::make_unique<ControlPlane>(transport->endpoint(Transport::secondControlLane), flag, grace);
  return second.get();
}

Result<std::vector<std::string>> ProcessFabric::exchange(std::span<const Blob> blobs, std::span<const int> from,
                                                         TimeLimit limit) {
  for (const Blob &blob : blobs) transport->need(Transport::exchangeLane, blob.to);
  for (int peer : from) transport->need(Transport::exchangeLane, peer);
  CLEAVE_RETURN_IF_ERROR(transport->connect(limit));
  Endpoint &endpoint = transport->endpoint(Transport::exchangeLane);
  const Deadline deadline(flag, limit);
  constexpr uint32_t sizeTag = 1, bytesTag = 2;
  std::vector<int64_t> sizes, theirs(from.size());
  for (const Blob &blob : blobs) sizes.push_back(static_cast<int64_t>(blob.bytes.size()));
  std::vector<Message> sends, receives;
  for (size_t i = 0; i < blobs.size(); ++i)
    add(sends, blobs[i].to, sizeTag, reinterpret_cast<std::byte *>(&sizes[i]), sizeof sizes[i]);
  for (size_t i = 0; i < from.size(); ++i)
    add(receives, from[i], sizeTag, reinterpret_cast<std::byte *>(&theirs[i]), sizeof theirs[i]);
  CLEAVE_RETURN_IF_ERROR(runtime::exchange(endpoint, sends, receives, deadline));
  std::vector<std::string> received(from.size());
  sends.clear(), receives.clear();
  for (const Blob &blob : blobs)
    add(sends, blob.to, bytesTag, reinterpret_cast<const std::byte *>(blob.bytes.data()), std::ssize(blob.bytes));
  for (size_t i = 0; i < from.size(); ++i) {
    received[i].resize(static_cast<size_t>(theirs[i]));
    add(receives, from[i], bytesTag, reinterpret_cast<std::byte *>(received[i].data()), theirs[i]);
  }
  CLEAVE_RETURN_IF_ERROR(runtime::exchange(endpoint, sends, receives, deadline));
  return received;
}

void ProcessFabric::abort(const std::string &message, int exitStatus) {
  if (flag.raised()) return;
  flag.raise();
  transfers->close();
  transport->abort(message, exitStatus);
}

} // namespace cleave::runtime
