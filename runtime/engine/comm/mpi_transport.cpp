// MPI by way of the plugin libcleave_comm_mpi.so.
#include "runtime/base/printable.h"
#include "runtime/engine/comm/mpi/plugin.h"
#include "runtime/engine/comm/transport.h"
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cleave::runtime {
namespace {

constexpr int watchTag = 0;

// The watch line (health_link.h): of each peer one word on its way, each way.
class MpiHealthLink final : public HealthLink {
public:
  MpiHealthLink(const CleaveMpiTransport &plugin, const std::atomic<int64_t> &moved)
      : plugin(plugin), moved(moved), links(static_cast<size_t>(plugin.size)) {
    for (int peer : neighboursOf(plugin.rank, plugin.size)) expect(peer);
  }
  ~MpiHealthLink() override {
    for (Link &link : links) { // nothing of MPI's may point into `links` from here on
      if (link.receiving) plugin.cancel(link.receiving);
      if (link.sending && !isDone(link.sending)) plugin.cancel(link.sending);
    }
  }
  int rank() const override { return plugin.rank; }
  int size() const override { return plugin.size; }
  bool send(int peer, const HealthMessage &word) override {
    Link &link = links[static_cast<size_t>(peer)];
    if (link.sending && !isDone(link.sending)) return false;
    link.out = word;
    char error[256] = "";
    link.sending =
        plugin.start(1, Transport::healthLane, peer, watchTag, &link.out, sizeof link.out, error, sizeof error);
    return true;
  }
  bool receive(int &peer, HealthMessage &word) override {
    for (int from = 0; from < size(); ++from) {
      Link &link = links[static_cast<size_t>(from)];
      if (!link.receiving || !isDone(link.receiving)) continue;
      peer = from, word = link.in;
      word.host[sizeof word.host - 1] = word.text[sizeof word.text - 1] = 0;
      expect(from);
      return true;
    }
    return false;
  }
  bool hasEnded(int) const override { return false; } // MPI ends all processes then
  void rest(std::chrono::milliseconds most) override { std::this_thread::sleep_for(most); }
  int64_t movedBytes() const override { return moved.load(std::memory_order_relaxed); } // of whole messages

private:
  struct Link {
    HealthMessage in, out;
    void *receiving = nullptr, *sending = nullptr;
  };
  void expect(int peer) {
    Link &link = links[static_cast<size_t>(peer)];
    char error[256] = "";
    link.receiving =
        plugin.start(0, Transport::healthLane, peer, watchTag, &link.in, sizeof link.in, error, sizeof error);
  }
  bool isDone(void *&request) {
    int64_t bytes = 0;
    int tag = 0;
    char error[256] = "";
    if (plugin.test(request, &bytes, &tag, error, sizeof error) == 0) return false;
    request = nullptr;
    return true;
  }
  const CleaveMpiTransport &plugin;
  const std::atomic<int64_t> &moved;
  std::vector<Link> links; // by peer
};

// A lane's messages as MPI's. On an ordered lane the peer's next message is received whatever its tag, and compared.
class MpiEndpoint final : public Endpoint {
public:
  MpiEndpoint(const CleaveMpiTransport &plugin, int lane, bool isAnnounced, std::atomic<int64_t> &moved)
      : plugin(plugin), lane(lane), isAnnounced(isAnnounced), moved(moved) {}
  int rank() const override { return plugin.rank; }
  int size() const override { return plugin.size; }
  void isend(Message &message) override { start(message, true); }
  void irecv(Message &message) override { start(message, false); }
  bool progress() override {
    bool any = false;
    for (Way &way : underWay) any |= test(way);
    std::erase_if(underWay, [](const Way &way) { return way.message->isDone; });
    return any;
  }
  // MPI has no sleep of its own: others have the core first, then come naps that grow, up to 0.2 ms.
  void wait(int64_t idle) override {
    if (idle < 200) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(std::min<int64_t>(20 + idle / 20, 200)));
  }
  void cancel(Message &message) override {
    if (message.request) plugin.cancel(std::exchange(message.request, nullptr));
    std::erase_if(underWay, [&](const Way &way) { return way.message == &message; });
  }

private:
  struct Way {
    Message *message;
    bool isSent;
  };
  void start(Message &message, bool isSent) {
    char error[256] = "";
    const int tag = isSent || isAnnounced ? static_cast<int>(message.tag) : -1;
    message.request = plugin.start(isSent, lane, message.peer, tag, message.data, message.bytes, error, sizeof error);
    if (!message.request) return fail(message, error);
    underWay.push_back({&message, isSent});
  }
  void fail(Message &message, const char *error) {
    message.failure = runError(fmt::format("MPI, rank {}: {}", message.peer, error));
    message.isDone = true;
  }
  bool test(Way &way) {
    Message &message = *way.message;
    char error[256] = "";
    int tag = 0;
    int64_t bytes = 0;
    const int done = plugin.test(message.request, &bytes, &tag, error, sizeof error);
    if (done == 0) return false;
    message.request = nullptr;
    if (done < 0) {
      fail(message, error);
      return true;
    }
    moved.fetch_add(message.bytes, std::memory_order_relaxed);
    message.isDone = true;
    if (way.isSent) return true;
    message.arrived = bytes;
    if (done == 2 || tag != static_cast<int>(message.tag))
      message.failure = runError(fmt::format("rank {} sends {} of {} bytes, where {} of {} bytes is expected: the "
                                             "ranks do not do the same",
                                             message.peer, nameOf(static_cast<uint32_t>(tag)), bytes,
                                             nameOf(message.tag), message.bytes));
    return true;
  }

  const CleaveMpiTransport &plugin;
  const int lane;
  const bool isAnnounced;
  std::atomic<int64_t> &moved;
  std::vector<Way> underWay;
};

class MpiTransport final : public Transport {
public:
  MpiTransport(const CleaveMpiTransport &plugin, const AbortFlag &abort) : plugin(plugin) {
    for (int lane = 0; lane < healthLane; ++lane)
      endpoints.push_back(std::make_unique<MpiEndpoint>(plugin, lane, lane == transferLane, moved));
    controlPlane = std::make_unique<ControlPlane>(*endpoints[controlLane], abort);
    watch = std::make_unique<MpiHealthLink>(plugin, moved);
  }
  ~MpiTransport() override {
    watch.reset();
    plugin.finish();
  }
  int rank() const override { return plugin.rank; }
  int size() const override { return plugin.size; }
  Endpoint &endpoint(Lane lane) override { return *endpoints[lane]; }
  ControlPlane &control() override { return *controlPlane; }
  void need(Lane, int) override {} // MPI connects by itself
  Status connect(TimeLimit) override { return Status::ok(); }
  HealthLink &healthLink() override { return *watch; }
  void abort(const std::string &message, int exitStatus) override {
    std::fprintf(stderr, "cleave: error: %s\n", printable(message).c_str()); // nobody else can: this process ends here
    std::fflush(stderr);
    plugin.abort(exitStatus);
  }

private:
  const CleaveMpiTransport &plugin;
  std::atomic<int64_t> moved{0};
  std::vector<std::unique_ptr<MpiEndpoint>> endpoints; // by lane
  std::unique_ptr<ControlPlane> controlPlane;
  std::unique_ptr<MpiHealthLink> watch;
};

// Beside this library or executable, in ../lib of it, or where the loader looks.
std::vector<std::string> pluginPlaces() {
  const std::string file = "libcleave_comm_mpi.so";
  std::vector<std::string> places;
  Dl_info info;
  if (::dladdr(reinterpret_cast<void *>(&mpiVersion), &info) && info.dli_fname) {
    std::error_code failure;
    std::filesystem::path self = std::filesystem::canonical(info.dli_fname, failure);
    if (failure) self = std::filesystem::canonical("/proc/self/exe", failure);
    for (const char *place : {".", "../lib", "lib"}) places.push_back((self.parent_path() / place / file).string());
  }
  places.push_back(file);
  return places;
}

Result<void *> openPlugin() {
  std::vector<std::string> reasons;
  bool isThere = false;
  for (const std::string &place : pluginPlaces()) {
    const bool isFile = place.find('/') != std::string::npos;
    if (isFile && !std::filesystem::exists(place)) continue;
    isThere |= isFile;
    // MPI's own plugins look for its symbols.
    if (void *handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL)) return handle;
    const char *why = ::dlerror();
    reasons.push_back(why ? why : place);
  }
  return inputError(
      fmt::format("this process was started by MPI, but the MPI plugin does not load: {}; {}", fmt::join(reasons, "; "),
                  isThere ? "is Open MPI 4 installed?"
                          : "it is not beside this program: `./dev build` makes it, and packages have it"));
}

} // namespace

Result<std::string> mpiVersion() {
  CLEAVE_ASSIGN_OR_RETURN(auto handle, openPlugin());
  auto *version = reinterpret_cast<int (*)(char *, int *)>(::dlsym(handle, "MPI_Get_library_version"));
  if (!version) return inputError("the MPI library is older than MPI 3");
  std::array<char, 8192> text = {}; // no library has a longer MPI_MAX_LIBRARY_VERSION_STRING
  int length = 0;
  version(text.data(), &length);
  std::string name(text.data());
  return name.substr(0, name.find_first_of(",\n"));
}

Result<std::unique_ptr<Transport>> openMpiTransport(const AbortFlag &abort) {
  CLEAVE_ASSIGN_OR_RETURN(auto handle, openPlugin());
  auto *open = reinterpret_cast<decltype(&cleave_open_mpi)>(::dlsym(handle, "cleave_open_mpi"));
  if (!open) return inputError("libcleave_comm_mpi.so is not a plugin of Cleave");
  char error[256] = "no reason given";
  const CleaveMpiTransport *plugin = open(Transport::healthLane + 1, error, sizeof error);
  if (!plugin) return inputError(fmt::format("MPI does not start: {}", error));
  if (plugin->version != CLEAVE_MPI_PLUGIN_VERSION)
    return inputError(fmt::format("libcleave_comm_mpi.so has version {}, {} is needed: install both from one build",
                                  plugin->version, CLEAVE_MPI_PLUGIN_VERSION));
  return std::unique_ptr<Transport>(std::make_unique<MpiTransport>(*plugin, abort));
}

} // namespace cleave::runtime
