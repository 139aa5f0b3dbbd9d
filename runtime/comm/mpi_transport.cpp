// MPI by way of the plugin libcleave_comm_mpi.so.
#include "runtime/comm/mpi/plugin.h"
#include "runtime/comm/transport.h"
#include "runtime/plan/printable.h"
#include <algorithm>
#include <array>
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

constexpr int mailTag = 30000; // and above, by channel: beyond those of collectives, below the 32767 of every MPI
constexpr int watchTag = 29999;

int isOver(const void *patience) { return static_cast<const Patience *>(patience)->isOver(); }

// The watch line (watch_line.h): of each peer one word on its way, each way.
class MpiWatchLine final : public WatchLine {
public:
  explicit MpiWatchLine(const CleaveMpiTransport &plugin) : plugin(plugin), links(static_cast<size_t>(plugin.size)) {
    for (int peer = 0; peer < plugin.size; ++peer)
      if (peer != plugin.rank && (peer == 0 || plugin.rank == 0)) expect(peer);
  }
  ~MpiWatchLine() override {
    for (Link &link : links) { // nothing of MPI's may point into `links` from here on
      if (link.receiving) plugin.cancel(link.receiving);
      if (link.sending && !isDone(link.sending)) plugin.cancel(link.sending);
    }
  }
  int rank() const override { return plugin.rank; }
  int size() const override { return plugin.size; }
  void send(int peer, const WatchWord &word) override {
    Link &link = links[static_cast<size_t>(peer)];
    if (link.sending && !isDone(link.sending)) return;
    link.out = word;
    char error[256] = "";
    link.sending = plugin.start(1, watchTag, {peer, &link.out, sizeof link.out}, error, sizeof error);
  }
  bool receive(int &peer, WatchWord &word) override {
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
  int64_t movedBytes() const override { return 0; } // MPI tells of whole exchanges only

private:
  struct Link {
    WatchWord in, out;
    void *receiving = nullptr, *sending = nullptr;
  };
  void expect(int peer) {
    Link &link = links[static_cast<size_t>(peer)];
    char error[256] = "";
    link.receiving = plugin.start(0, watchTag, {peer, &link.in, sizeof link.in}, error, sizeof error);
  }
  bool isDone(void *&request) {
    int64_t bytes = 0;
    char error[256] = "";
    if (plugin.test(request, &bytes, error, sizeof error) == 0) return false;
    request = nullptr;
    return true;
  }
  const CleaveMpiTransport &plugin;
  std::vector<Link> links; // by peer
};

class MpiTransport final : public Transport {
public:
  explicit MpiTransport(const CleaveMpiTransport &plugin)
      : plugin(plugin), watch(std::make_unique<MpiWatchLine>(plugin)) {}
  ~MpiTransport() override {
    watch.reset();
    plugin.finish();
  }
  WatchLine &watchLine() override { return *watch; }
  int rank() const override { return plugin.rank; }
  int size() const override { return plugin.size; }
  Status exchange(int, int channel, std::span<const Piece> sends, std::span<const Piece> receives,
                  const Patience &patience) override {
    static_assert(sizeof(Piece) == sizeof(CleaveMpiPiece));
    char error[256] = "";
    int result =
        plugin.exchange(channel, reinterpret_cast<const CleaveMpiPiece *>(sends.data()), static_cast<int>(sends.size()),
                        reinterpret_cast<const CleaveMpiPiece *>(receives.data()), static_cast<int>(receives.size()),
                        isOver, &patience, error, sizeof error);
    if (result == 0) return Status::ok();
    if (result == 1) return runError(patience.isAborted() ? "the run was aborted" : "another rank does not answer");
    return runError(fmt::format("MPI: {}", error));
  }
  bool carry(std::span<MailRoute> routes) override {
    bool moved = false;
    char error[256] = "";
    for (MailRoute &route : routes) {
      auto fail = [&] { route.failure = runError(fmt::format("MPI, rank {}: {}", route.peer, error)); };
      while (route.failure) {
        if (!route.request) {
          route.data = route.outgoing ? route.ring->tryTake(route.bytes) : route.ring->tryClaim();
          if (!route.data) break;
          if (!route.outgoing) route.bytes = route.ring->bytesOfBuffer();
          route.request = plugin.start(route.outgoing, mailTag + route.channel, {route.peer, route.data, route.bytes},
                                       error, sizeof error);
          if (!route.request) fail();
          continue;
        }
        int64_t bytes = 0;
        int done = plugin.test(route.request, &bytes, error, sizeof error);
        if (done < 0) fail();
        if (done <= 0) break;
        route.request = nullptr;
        if (route.outgoing)
          route.ring->release();
        else
          route.ring->publish(bytes);
        moved = true;
      }
    }
    return moved;
  }
  // MPI has no sleep of its own: naps that grow while nothing comes, up to 0.2 ms.
  void rest(std::span<const MailRoute>, int64_t idle) override {
    if (idle < 100) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(std::min<int64_t>(20 + idle / 10, 200)));
  }
  void notify() override {}
  void endMail(std::span<MailRoute> routes) override {
    for (MailRoute &route : routes)
      if (route.request && !route.outgoing) plugin.cancel(std::exchange(route.request, nullptr));
  }
  void abort(const std::string &message, int exitStatus) override {
    std::fprintf(stderr, "cleave: error: %s\n", printable(message).c_str()); // nobody else can: this process ends here
    std::fflush(stderr);
    plugin.abort(exitStatus);
  }

private:
  const CleaveMpiTransport &plugin;
  std::unique_ptr<MpiWatchLine> watch;
};

// Beside this library or executable, in ../lib of it, or where the loader looks.
std::vector<std::string> pluginPlaces() {
  const std::string file = "libcleave_comm_mpi.so";
  std::vector<std::string> places;
  Dl_info info;
  if (::dladdr(reinterpret_cast<void *>(&isOver), &info) && info.dli_fname) {
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
  for (const std::string &place : pluginPlaces()) {
    if (place.find('/') != std::string::npos && !std::filesystem::exists(place)) continue;
    // MPI's own plugins look for its symbols.
    if (void *handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL)) return handle;
    const char *why = ::dlerror();
    reasons.push_back(why ? why : place);
  }
  return inputError(
      fmt::format("this process was started by MPI, but the MPI plugin does not load: {}; is Open MPI installed?",
                  fmt::join(reasons, "; ")));
}

} // namespace

Result<std::string> mpiVersion() {
  auto handle = openPlugin();
  if (!handle) return handle.status();
  auto *version = reinterpret_cast<int (*)(char *, int *)>(::dlsym(*handle, "MPI_Get_library_version"));
  if (!version) return inputError("the MPI library is older than MPI 3");
  std::array<char, 8192> text = {}; // no library has a longer MPI_MAX_LIBRARY_VERSION_STRING
  int length = 0;
  version(text.data(), &length);
  std::string name(text.data());
  return name.substr(0, name.find_first_of(",\n"));
}

Result<std::unique_ptr<Transport>> openMpiTransport() {
  auto handle = openPlugin();
  if (!handle) return handle.status();
  auto *open = reinterpret_cast<decltype(&cleave_open_mpi)>(::dlsym(*handle, "cleave_open_mpi"));
  if (!open) return inputError("libcleave_comm_mpi.so is not a plugin of Cleave");
  char error[256] = "no reason given";
  const CleaveMpiTransport *plugin = open(error, sizeof error);
  if (!plugin) return inputError(fmt::format("MPI does not start: {}", error));
  if (plugin->version != CLEAVE_MPI_PLUGIN_VERSION)
    return inputError(fmt::format("libcleave_comm_mpi.so has version {}, {} is needed: install both from one build",
                                  plugin->version, CLEAVE_MPI_PLUGIN_VERSION));
  return std::unique_ptr<Transport>(std::make_unique<MpiTransport>(*plugin));
}

} // namespace cleave::runtime
