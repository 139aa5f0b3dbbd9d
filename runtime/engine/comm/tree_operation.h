// One operation of all ranks on a binary tree: each gives bytes, ranks combine theirs with those of their children on
// the way up, and what rank 0 has then goes down to all. Up and down again are 2 log2(n) messages long.
//
//   rank 0 is the root; the children of rank r are 2r + 1 and 2r + 2
//
//   TreeOperation operation(endpoint, "mine", concatenate);
//   while (!operation.advance()) endpoint.progress() || ...;
//   use(operation.failure(), operation.result());
//
// A rank that fails, or whose child does, gives the reason in place of its bytes, and all ranks end with it.
#pragma once
#include "runtime/engine/comm/endpoint.h"
#include <array>
#include <deque>
#include <optional>
#include <vector>

namespace cleave::runtime {

int parentOf(int rank); // of rank 0: -1
std::vector<int> childrenOf(int rank, int size);
std::vector<int> neighboursOf(int rank, int size); // parent and children
int heightOf(int rank, int size);                  // links down to the farthest rank below

class TreeOperation {
public:
  // Own bytes first, then those of the children in order.
  using Combine = std::function<std::string(const std::vector<std::string> &)>;
  TreeOperation(Endpoint &endpoint, std::string mine, Combine combine);
  ~TreeOperation();
  TreeOperation(const TreeOperation &) = delete;
  // Goes on with what has arrived, without waiting. True: it is over.
  bool advance();
  // Ranks whose bytes this one still waits for.
  std::vector<int> awaited() const;
  bool isGoingUp() const { return stage == Stage::Up; }
  // Gives up those awaited: the others are told why.
  void giveUp(const std::string &why);
  const Status &failure() const { return failed; }
  const std::string &result() const { return bytes; }

private:
  // Short bytes travel within the head.
  struct Head {
    int64_t bytes = 0;
    int32_t isFailure = 0;
    std::array<char, 52> inlined{};
  };
  struct Parcel {
    Message head, body;
    Head content;
    std::string bytes;
    bool hasBody = false, isOver = false;
  };
  Parcel &receive(int peer);
  void send(int peer);
  bool advance(Parcel &parcel, bool isReceived); // true: it is over
  void finishUp();
  void sendDown();

  enum class Stage { Up, SendingUp, Down, SendingDown, Over };
  Endpoint &endpoint;
  const Combine combine;
  const std::vector<int> children;
  Stage stage = Stage::Up;
  std::string bytes; // own, then combined, then the result
  Status failed;
  std::deque<Parcel> in, out;
};

} // namespace cleave::runtime
