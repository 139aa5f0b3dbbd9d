#include "runtime/comm/process.h"
#include "runtime/comm/all_to_all.h"
#include "runtime/comm/reduce.h"
#include "runtime/device/strided_copy.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/threads/parallel.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

// A collective as two rounds of messages with local work before, between and after; everything is laid out here once.
class ProcessCollective final : public PreparedCommand {
public:
  struct Round {
    std::vector<Piece> sends, receives;
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

  ProcessCollective(Transport &transport, const AbortFlag &abort, int lane, int channel)
      : transport(transport), abort(abort), lane(lane), channel(channel) {}

  Status run() override {
    for (const Move &move : before) move.copy.run(move.source, move.target);
    if (Status status = exchange(first); !status) return status;
    for (const Reduction &part : reductions)
      parallelFor(part.count, 4096, [&](int64_t from, int64_t to) {
        const std::byte *inputs[maxMembers];
        for (size_t m = 0; m < part.inputs.size(); ++m) inputs[m] = part.inputs[m] + from * part.element;
        part.reduce(part.output + from * part.element, inputs, static_cast<int64_t>(part.inputs.size()), to - from);
      });
    if (Status status = exchange(second); !status) return status;
    for (const Move &move : after) move.copy.run(move.source, move.target);
    return Status::ok();
  }

  int64_t sentBytes() const override {
    int64_t bytes = 0;
    for (const Round *round : {&first, &second})
      for (const Piece &piece : round->sends) bytes += piece.bytes;
    return bytes;
  }

  static constexpr int64_t maxMembers = 4096;
  std::vector<Move> before, after;
  Round first, second;
  std::vector<Reduction> reductions;
  std::vector<std::unique_ptr<std::byte[]>> staging;

  std::byte *stage(int64_t bytes) {
    staging.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(std::max<int64_t>(1, bytes))));
    return staging.back().get();
  }

private:
  Status exchange(const Round &round) {
    if (round.sends.empty() && round.receives.empty()) return Status::ok();
    return transport.exchange(lane, channel, round.sends, round.receives, Patience(abort));
  }
  Transport &transport;
  const AbortFlag &abort;
  int lane, channel;
};

// Lays out one part of a collective for the member `self` of `members`.
struct Layout {
  ProcessCollective &command;
  const std::vector<int64_t> &members;
  int64_t self;
  std::byte *arena;

  int64_t count() const { return static_cast<int64_t>(members.size()); }
  int peer(int64_t member) const { return static_cast<int>(members[static_cast<size_t>(member)]); }

  void allReduce(const CollectivePart &part, ReduceFunction reduce) const {
    int64_t element = byteSize(part.dtype), total = part.elements(),
            piece = ((total + count() - 1) / count() + 15) / 16 * 16;
    auto begin = [&](int64_t m) { return std::min(total, m * piece) * element; };
    auto bytes = [&](int64_t m) { return begin(m + 1) - begin(m); };
    std::byte *in = arena + part.inputOffset, *out = arena + part.outputOffset;
    ProcessCollective::Reduction mine{reduce, {}, out + begin(self), bytes(self) / element, element};
    for (int64_t m = 0; m < count(); ++m) {
      if (m == self) {
        mine.inputs.push_back(in + begin(self));
        continue;
      }
      std::byte *theirs = command.stage(bytes(self));
      command.first.sends.push_back({peer(m), in + begin(m), bytes(m)});
      command.first.receives.push_back({peer(m), theirs, bytes(self)});
      mine.inputs.push_back(theirs);
      command.second.sends.push_back({peer(m), out + begin(self), bytes(self)});
      command.second.receives.push_back({peer(m), out + begin(m), bytes(m)});
    }
    command.reductions.push_back(std::move(mine));
  }

  // The member's piece of the input, packed: what reduce-scatter and all-to-all send.
  struct Pieces {
    StridedCopy pack;
    int64_t stride, bytes; // bytes between pieces in the input; of one piece
  };
  Pieces piecesOf(const std::vector<int64_t> &shape, size_t dim, int64_t element) const {
    std::vector<int64_t> piece = shape, strides = denseStrides(shape);
    piece[dim] /= count();
    StridedCopy pack(piece, strides, denseStrides(piece), element);
    return {pack, piece[dim] * strides[dim] * element, pack.bytes()};
  }

  void reduceScatter(const CollectivePart &part, ReduceFunction reduce) const {
    int64_t element = byteSize(part.dtype);
    Pieces pieces = piecesOf(part.inputShape, static_cast<size_t>(part.dim), element);
    ProcessCollective::Reduction mine{reduce, {}, arena + part.outputOffset, pieces.bytes / element, element};
    for (int64_t m = 0; m < count(); ++m) {
      std::byte *packed = command.stage(pieces.bytes);
      command.before.push_back({pieces.pack, arena + part.inputOffset + m * pieces.stride, packed});
      if (m == self) {
        mine.inputs.push_back(packed);
        continue;
      }
      std::byte *theirs = command.stage(pieces.bytes);
      command.first.sends.push_back({peer(m), packed, pieces.bytes});
      command.first.receives.push_back({peer(m), theirs, pieces.bytes});
      mine.inputs.push_back(theirs);
    }
    command.reductions.push_back(std::move(mine));
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
      command.first.sends.push_back({peer(m), in, bytes});
      command.first.receives.push_back({peer(m), theirs, bytes});
      if (part.outer != 1) command.after.push_back({unpack, theirs, out + m * width});
    }
  }

  void allToAll(const CollectivePart &part) const {
    int64_t element = byteSize(part.dtype);
    Pieces pieces = piecesOf(part.inputShape, static_cast<size_t>(part.splitDim), element);
    AllToAllPiece piece = pieceOf(part, count());
    StridedCopy unpack(piece.sizes, denseStrides(piece.sizes), piece.targetStrides, element);
    for (int64_t m = 0; m < count(); ++m) {
      std::byte *packed = command.stage(pieces.bytes), *theirs = m == self ? packed : command.stage(pieces.bytes);
      command.before.push_back({pieces.pack, arena + part.inputOffset + m * pieces.stride, packed});
      command.after.push_back({unpack, theirs, arena + part.outputOffset + m * piece.targetStep});
      if (m == self) continue;
      command.first.sends.push_back({peer(m), packed, pieces.bytes});
      command.first.receives.push_back({peer(m), theirs, pieces.bytes});
    }
  }

  void shift(const CollectivePart &part) const {
    int64_t bytes = part.elements() * byteSize(part.dtype);
    std::byte *in = arena + part.inputOffset, *out = arena + part.outputOffset;
    if (part.distance == 0) {
      if (in != out) command.after.push_back({StridedCopy({bytes}, {1}, {1}, 1), in, out});
      return;
    }
    command.first.sends.push_back({peer((self + part.distance) % count()), in, bytes});
    command.first.receives.push_back({peer((self + count() - part.distance) % count()), out, bytes});
  }

  void broadcast(const CollectivePart &part) const {
    int64_t bytes = part.elements() * byteSize(part.dtype);
    std::byte *in = arena + part.inputOffset, *out = arena + part.outputOffset;
    if (self != 0) {
      command.first.receives.push_back({peer(0), out, bytes});
      return;
    }
    for (int64_t m = 1; m < count(); ++m) command.first.sends.push_back({peer(m), in, bytes});
    if (in != out) command.after.push_back({StridedCopy({bytes}, {1}, {1}, 1), in, out});
  }
};

} // namespace

Result<Prepared> ProcessFabric::prepare(int64_t device, int lane, const plan::Collective &collective) {
  std::vector<int64_t> members = mesh.group(device, axesOf(collective.axes()));
  auto count = static_cast<int64_t>(members.size());
  if (count > ProcessCollective::maxMembers) return inputError(fmt::format("a group of {} processes", count));
  Result<std::vector<CollectivePart>> parts = partsOf(collective, count);
  if (!parts) return parts.status();
  // The same number on all processes, whatever else their programs do: stages of a pipeline prepare other groups.
  if (mesh.axes.size() > 12) return inputError(fmt::format("a mesh of {} axes; 12 are the most", mesh.axes.size()));
  int channel = 0; // below mailTag of mpi_transport.cpp
  for (const std::string &axis : collective.axes())
    for (size_t a = 0; a < mesh.axes.size(); ++a)
      if (mesh.axes[a].name == axis) channel |= 1 << a;
  channel = channel * Transport::lanes + lane + 1;
  auto command = std::make_unique<ProcessCollective>(*transport, flag, lane, channel);
  Layout layout{*command, members, std::find(members.begin(), members.end(), device) - members.begin(), arena};
  for (const CollectivePart &part : *parts) {
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

Status ProcessFabric::openRoutes(int64_t device, std::span<const MessageRoute> opened) {
  for (const MessageRoute &route : opened) courier.open(route, static_cast<int>(device));
  courier.start();
  return Status::ok();
}

Result<Prepared> ProcessFabric::prepareTransfer(int64_t device, int, const plan::Transfer &transfer) {
  return courier.prepare(static_cast<int>(evaluate(transfer.peer(), mesh, device)), transfer.channel(),
                         transfer.direction() == plan::Transfer::RECEIVE, arena + transfer.buffer().offset(),
                         byteSize(transfer.buffer()));
}

int64_t ProcessFabric::messageBytes(int64_t) const { return courier.allocatedBytes(); }

Status ProcessFabric::barrier(double seconds) {
  Result<bool> met = agree(0, seconds);
  return met ? Status::ok() : met.status();
}

// Why an exchange failed, with the time limit where that was it.
Status ProcessFabric::silent(const Status &failure, const Patience &patience, double seconds) const {
  if (failure || !patience.isOver() || patience.isAborted()) return failure;
  return runError(fmt::format("{} for {:.1f} s (--step-timeout)", failure.message(), seconds));
}

Result<bool> ProcessFabric::agree(uint64_t digest, double seconds) {
  const Patience patience(flag, seconds);
  auto count = static_cast<size_t>(transport->size());
  std::vector<uint64_t> all(count, digest);
  std::vector<Piece> sends, receives;
  for (int peer = 0; peer < transport->size(); ++peer) {
    if (peer == transport->rank()) continue;
    sends.push_back({peer, reinterpret_cast<std::byte *>(&digest), sizeof digest});
    receives.push_back({peer, reinterpret_cast<std::byte *>(&all[static_cast<size_t>(peer)]), sizeof digest});
  }
  const Status exchanged = transport->exchange(Transport::controlLane, 0, sends, receives, patience);
  CLEAVE_RETURN_IF_ERROR(silent(exchanged, patience, seconds));
  return std::all_of(all.begin(), all.end(), [&](uint64_t other) { return other == digest; });
}

// Each round doubles how many ranks' numbers a rank has seen.
Result<uint64_t> ProcessFabric::largest(uint64_t mine, double seconds) {
  const int rank = transport->rank(), size = transport->size();
  const Patience patience(flag, seconds);
  for (int distance = 1; distance < size; distance *= 2) {
    uint64_t theirs = 0;
    const Piece send{(rank + distance) % size, reinterpret_cast<std::byte *>(&mine), sizeof mine};
    const Piece receive{(rank - distance + size) % size, reinterpret_cast<std::byte *>(&theirs), sizeof theirs};
    CLEAVE_RETURN_IF_ERROR(transport->exchange(Transport::controlLane, 0, {&send, 1}, {&receive, 1}, patience));
    mine = std::max(mine, theirs);
  }
  return mine;
}

Result<std::vector<std::string>> ProcessFabric::swap(std::span<const Letter> letters, std::span<const int> from,
                                                     double seconds) {
  const Patience patience(flag, seconds);
  std::vector<int64_t> sizes, theirs(from.size());
  for (const Letter &letter : letters) sizes.push_back(static_cast<int64_t>(letter.bytes.size()));
  std::vector<Piece> sends, receives;
  for (size_t i = 0; i < letters.size(); ++i)
    sends.push_back({letters[i].to, reinterpret_cast<std::byte *>(&sizes[i]), sizeof sizes[i]});
  for (size_t i = 0; i < from.size(); ++i)
    receives.push_back({from[i], reinterpret_cast<std::byte *>(&theirs[i]), sizeof theirs[i]});
  CLEAVE_RETURN_IF_ERROR(transport->exchange(Transport::controlLane, 0, sends, receives, patience));
  std::vector<std::string> received(from.size());
  sends.clear(), receives.clear();
  for (const Letter &letter : letters) // a sent piece is only read
    if (!letter.bytes.empty())
      sends.push_back({letter.to, reinterpret_cast<std::byte *>(const_cast<char *>(letter.bytes.data())),
                       static_cast<int64_t>(letter.bytes.size())});
  for (size_t i = 0; i < from.size(); ++i) {
    received[i].resize(static_cast<size_t>(theirs[i]));
    if (theirs[i] > 0) receives.push_back({from[i], reinterpret_cast<std::byte *>(received[i].data()), theirs[i]});
  }
  CLEAVE_RETURN_IF_ERROR(transport->exchange(Transport::controlLane, 0, sends, receives, patience));
  return received;
}

Status ProcessFabric::share(std::span<std::byte> bytes, double seconds) {
  const Patience patience(flag, seconds);
  std::vector<Piece> sends, receives;
  auto count = static_cast<int64_t>(bytes.size());
  if (transport->rank() != 0) receives.push_back({0, bytes.data(), count});
  for (int peer = 1; transport->rank() == 0 && peer < transport->size(); ++peer)
    sends.push_back({peer, bytes.data(), count});
  return silent(transport->exchange(Transport::controlLane, 0, sends, receives, patience), patience, seconds);
}

void ProcessFabric::abort(const std::string &message, int exitStatus) {
  if (flag.raised()) return;
  flag.raise();
  courier.close();
  transport->abort(message, exitStatus);
}

} // namespace cleave::runtime
