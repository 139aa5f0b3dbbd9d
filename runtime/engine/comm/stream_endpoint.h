// An endpoint over streams of bytes (link.h), one to each peer that the lane needs. Before each message goes a header
// with the run, the lane, the message's number on the link, its tag and its bytes; the receiver compares all of them.
//
//   StreamEndpoint endpoint({.rank = 0, .size = 4, .lane = 1, .run = 0x5f0c}, moved);
//   endpoint.setLink(2, std::make_unique<SocketLink>(socket));
#pragma once
#include "runtime/engine/comm/endpoint.h"
#include "runtime/engine/comm/link.h"
#include "runtime/engine/comm/shared_memory.h"
#include <atomic>
#include <memory>
#include <mutex>
#include <poll.h>
#include <vector>

namespace cleave::runtime {

class StreamEndpoint final : public Endpoint {
public:
  struct Place {
    int rank = 0, size = 1, lane = 0;
    uint32_t run = 0;         // the same on all ranks, and of no other run
    bool isAnnounced = false; // endpoint.h
  };
  // `moved`: counts the bytes that all lanes move.
  StreamEndpoint(Place place, std::atomic<int64_t> &moved);
  ~StreamEndpoint() override;
  void setLink(int peer, std::unique_ptr<Link> link);
  bool isLinked(int peer) const { return peers[static_cast<size_t>(peer)].link != nullptr; }
  // Takes the links to these peers, sockets so far, over to shared memory where both ends can; they do so at once. Gives
  // why one stays a socket: "rank 2: memfd_create: Too many open files"; empty: none does.
  Result<std::string> shareMemory(const std::vector<int> &with, const Deadline &deadline);

  int rank() const override { return place.rank; }
  int size() const override { return place.size; }
  void isend(Message &message) override;
  void irecv(Message &message) override;
  bool progress() override;
  void wait(int64_t idle) override;
  void notify() override;
  void cancel(Message &message) override;
  // A peer whose link has ended, without waiting; -1: none. From any thread.
  int lostPeer() const;
  // To poll, where something else is waited for too.
  void addTo(std::vector<pollfd> &polls) const;
  void shutdown(); // from any thread: all links end

private:
  struct Header {
    uint32_t run = 0;
    uint16_t lane = 0, kind = 0;
    uint32_t number = 0, tag = 0;
    int64_t bytes = 0;
  };
  enum Kind : uint16_t { Data, Ready }; // ready: the sender of the header has room for a message of the tag
  struct Peer {
    std::unique_ptr<Link> link;
    std::vector<Message *> sends, receives; // not done, the oldest first
    std::vector<uint32_t> toAnnounce;       // tags
    std::vector<uint32_t> announced;        // by the peer: a tag for each message that it has room for
    Header out, in;
    int64_t outDone = 0, inDone = 0; // bytes, header and message
    bool isSending = false;
    Message *sending = nullptr, *receiving = nullptr; // of the headers
    uint32_t sent = 0, received = 0;                  // messages
    Status failure;
  };
  bool isOpenFor(Message &message);
  bool sendTo(int number, Peer &peer);
  bool receiveFrom(int number, Peer &peer);
  bool beginNext(Peer &peer);
  bool takeHeader(int number, Peer &peer);
  bool expects(const Peer &peer) const { return place.isAnnounced || !peer.receives.empty(); }
  void fail(Peer &peer, const std::string &why);
  void failEnded(int number, Peer &peer);

  const Place place;
  std::atomic<int64_t> &moved;
  mutable std::mutex linking; // over which links there are: others end them, and look whether they have ended
  std::vector<Peer> peers;    // by rank
  std::vector<int> linked;    // peers that have a link
  std::shared_ptr<SharedRegion> region;
  uint32_t epoch = 0; // of the region's signal, before the last progress
  int wakeFile;       // eventfd
  std::vector<pollfd> polls;
};

} // namespace cleave::runtime
