#include "runtime/engine/comm/tree_operation.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {
constexpr uint32_t headTag = 1, bodyTag = 2;
constexpr int64_t maxBytes = int64_t(1) << 28;
} // namespace

int parentOf(int rank) { return rank == 0 ? -1 : (rank - 1) / 2; }

std::vector<int> childrenOf(int rank, int size) {
  std::vector<int> children;
  for (int64_t child : {2 * int64_t(rank) + 1, 2 * int64_t(rank) + 2})
    if (child < size) children.push_back(static_cast<int>(child));
  return children;
}

std::vector<int> neighboursOf(int rank, int size) {
  std::vector<int> all = childrenOf(rank, size);
  if (rank > 0) all.insert(all.begin(), parentOf(rank));
  return all;
}

int heightOf(int rank, int size) {
  int height = 0;
  for (int64_t below = 2 * int64_t(rank) + 1; below < size; below = 2 * below + 1) ++height;
  return height;
}

TreeOperation::TreeOperation(Endpoint &endpoint, std::string mine, Combine combine)
    : endpoint(endpoint), combine(std::move(combine)), children(childrenOf(endpoint.rank(), endpoint.size())),
      bytes(std::move(mine)) {
  for (int child : children) receive(child);
}

TreeOperation::~TreeOperation() {
  for (std::deque<Parcel> *parcels : {&in, &out})
    for (Parcel &parcel : *parcels) {
      if (!parcel.head.isDone) endpoint.cancel(parcel.head);
      if (parcel.hasBody && !parcel.body.isDone) endpoint.cancel(parcel.body);
    }
}

TreeOperation::Parcel &TreeOperation::receive(int peer) {
  Parcel &parcel = in.emplace_back();
  parcel.head = {peer, headTag, reinterpret_cast<std::byte *>(&parcel.content), sizeof parcel.content};
  endpoint.irecv(parcel.head);
  return parcel;
}

void TreeOperation::send(int peer) {
  Parcel &parcel = out.emplace_back();
  parcel.bytes = failed ? bytes : failed.message();
  parcel.content.bytes = static_cast<int64_t>(parcel.bytes.size());
  parcel.content.isFailure = failed ? 0 : failed.exitStatus();
  parcel.hasBody = parcel.bytes.size() > parcel.content.inlined.size();
  if (!parcel.hasBody) std::memcpy(parcel.content.inlined.data(), parcel.bytes.data(), parcel.bytes.size());
  parcel.head = {peer, headTag, reinterpret_cast<std::byte *>(&parcel.content), sizeof parcel.content};
  endpoint.isend(parcel.head);
  if (!parcel.hasBody) return;
  parcel.body = {peer, bodyTag, reinterpret_cast<std::byte *>(parcel.bytes.data()), parcel.content.bytes};
  endpoint.isend(parcel.body);
}

bool TreeOperation::advance(Parcel &parcel, bool isReceived) {
  if (parcel.isOver) return true;
  if (!parcel.head.isDone) return false;
  Status status = parcel.head.failure;
  if (status && isReceived && !parcel.hasBody) {
    const auto count = static_cast<size_t>(parcel.content.bytes);
    if (parcel.content.bytes < 0 || parcel.content.bytes > maxBytes)
      status = runError(fmt::format("rank {} sends {} bytes of control", parcel.head.peer, parcel.content.bytes));
    else if (count <= parcel.content.inlined.size())
      parcel.bytes.assign(parcel.content.inlined.data(), count);
    else {
      parcel.hasBody = true;
      parcel.bytes.resize(count);
      parcel.body = {parcel.head.peer, bodyTag, reinterpret_cast<std::byte *>(parcel.bytes.data()),
                     parcel.content.bytes};
      endpoint.irecv(parcel.body);
    }
  }
  if (status && parcel.hasBody) {
    if (!parcel.body.isDone) return false;
    status = parcel.body.failure;
  }
  parcel.isOver = true;
  if (status && isReceived && parcel.content.isFailure)
    status = Status(static_cast<ErrorKind>(parcel.content.isFailure), parcel.bytes);
  if (failed && !status) failed = status;
  return true;
}

bool TreeOperation::advance() {
  auto areOver = [this](std::deque<Parcel> &parcels, bool isReceived) {
    bool all = true;
    for (Parcel &parcel : parcels) all &= advance(parcel, isReceived);
    return all;
  };
  if (stage == Stage::Up && areOver(in, true)) finishUp();
  if (stage == Stage::SendingUp && areOver(out, false)) {
    if (!out.front().head.failure) { // the parent is gone: those below are told
      sendDown();
    } else {
      stage = Stage::Down;
      receive(parentOf(endpoint.rank()));
    }
  }
  if (stage == Stage::Down && areOver(in, true)) {
    bytes = std::move(in.front().bytes);
    sendDown();
  }
  if (stage == Stage::SendingDown && areOver(out, false)) stage = Stage::Over;
  return stage == Stage::Over;
}

void TreeOperation::finishUp() {
  if (failed) {
    std::vector<std::string> all{std::move(bytes)};
    for (Parcel &parcel : in) all.push_back(std::move(parcel.bytes));
    bytes = combine(all);
  }
  in.clear();
  if (endpoint.rank() == 0) return sendDown();
  stage = Stage::SendingUp;
  send(parentOf(endpoint.rank()));
}

void TreeOperation::sendDown() {
  out.clear();
  stage = Stage::SendingDown;
  for (int child : children) send(child);
}

std::vector<int> TreeOperation::awaited() const {
  std::vector<int> ranks;
  for (const std::deque<Parcel> *parcels : {&in, &out})
    for (const Parcel &parcel : *parcels)
      if (!parcel.isOver) ranks.push_back(parcel.head.peer);
  return ranks;
}

void TreeOperation::giveUp(const std::string &why) {
  if (failed) failed = runError(why);
  for (std::deque<Parcel> *parcels : {&in, &out})
    for (Parcel &parcel : *parcels) {
      if (parcel.isOver) continue;
      if (!parcel.head.isDone) endpoint.cancel(parcel.head);
      if (parcel.hasBody && !parcel.body.isDone) endpoint.cancel(parcel.body);
      parcel.head.isDone = parcel.body.isDone = parcel.isOver = true;
    }
  if (stage == Stage::Up) return finishUp();
  if (stage == Stage::SendingUp || stage == Stage::Down) return in.clear(), sendDown();
  stage = Stage::Over;
}

} // namespace cleave::runtime
