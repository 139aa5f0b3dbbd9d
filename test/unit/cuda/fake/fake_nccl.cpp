// NCCL between processes of one machine, through files of a folder that the identifier names: a member's part of an
// exchange is a file, which the others read when it is there. Sums go around a ring: each member's part of a tensor has
// an order of its own, and every hop rounds to the type. As in the library, a send ends when it was received, so that an order of
// calls that would hang there hangs here, operations of a group begin together, and work is only enqueued: what a graph
// runs again is exchanged again. The first message between two waits on the host for the other's call, as it connects
// them. Members that do not call the same thing, with as many elements, fail, and so do those of whom one is captured
// and another is not. A communicator is destroyed by its members together; it ends, aborted too, when what was enqueued
// is done and no graph is left that has a call of it. Two ranks on one GPU are refused unless
// NCCL_MULTI_RANK_GPU_ENABLE=1, and always before 2.30 (FAKE_NCCL_VERSION, 23102 for 2.31.2, is the version).
#include "test/unit/cuda/fake/fake_streams.h"
#include "test/unit/cuda/fake/numbers.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <thread>

namespace {

enum : int { ok = 0, internalError = 3, invalidArgument = 4, invalidUsage = 5, busy = 7 };
enum Kind : int { AllReduce, ReduceScatter, AllGather, Broadcast, Init, Split };
int bytesOf(int type) {
  return type <= 1 ? 1 : type == 6 || type == 9 ? 2 : type == 2 || type == 3 || type == 7 ? 4 : 8;
}

struct Comm {
  std::string folder;
  int ranks = 0, rank = 0, splits = 0;
  int64_t exchanges = 0;                   // so far, of all members
  std::vector<int64_t> sent, received;     // messages, by peer
  std::set<std::pair<int, int>> connected; // from, to
  std::atomic<bool> aborted{false};
  std::atomic<int> failure{ok};
  fake::Stream *stream = nullptr;                       // all that this communicator does is on it
  std::shared_ptr<int> calls = std::make_shared<int>(); // held by every call that is enqueued or in a graph
};

struct Message {
  Comm *comm;
  std::shared_ptr<int> call;
  bool isCaptured;
  bool receives;
  char *data;
  size_t bytes;
  int peer;
  fake::Stream *stream;
};
thread_local int depth = 0;
thread_local std::vector<Message> grouped;

std::string complaint;

int fail(Comm *comm, int error, const std::string &what) {
  std::fprintf(stderr, "fake NCCL: rank %d of %s: %s\n", comm->rank, comm->folder.c_str(), what.c_str());
  complaint = what;
  return comm->failure = error;
}

// Until it is so. False: aborted.
template <typename Condition> bool await(Comm *comm, Condition isSo) {
  for (int turn = 0; !isSo(); ++turn) {
    if (comm->aborted) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(20 + turn, 500)));
  }
  return true;
}

void put(const std::string &path, const std::string &bytes) {
  std::string hidden = path + ".new";
  std::ofstream(hidden, std::ios::binary) << bytes;
  std::error_code gone; // the folder: another rank has aborted
  std::filesystem::rename(hidden, path, gone);
}
bool exists(const std::string &path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}
std::string get(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The content of the file once it is there; a file has one byte at least. Empty: aborted. That another member aborts,
// and the folder is gone, is nothing that a member sees by itself.
std::string arrived(Comm *comm, const std::string &path) {
  std::string bytes;
  return await(comm, [&] { return !(bytes = get(path)).empty(); }) ? bytes : "";
}

// Every member's contribution, by rank; empty: aborted, or they do not do the same.
std::vector<std::string> exchange(Comm *comm, Kind kind, int type, int operation, size_t count, const std::string &own,
                                  bool isCaptured = false) {
  auto path = [&](int64_t number, int rank) {
    return comm->folder + "/" + std::to_string(number) + "." + std::to_string(rank);
  };
  int64_t number = comm->exchanges++;
  char header[80] = {};
  std::snprintf(header, sizeof header, "kind %d type %d operation %d count %zu %s", kind, type, operation, count,
                isCaptured ? "captured" : "not captured");
  put(path(number, comm->rank), std::string(header, sizeof header) + own);
  std::vector<std::string> all;
  for (int r = 0; r < comm->ranks; ++r) {
    std::string bytes = arrived(comm, path(number, r));
    if (bytes.empty()) return {};
    if (std::strncmp(bytes.c_str(), header, sizeof header) != 0) {
      fail(comm, invalidUsage, std::string(header) + " here, " + bytes.c_str() + " by rank " + std::to_string(r));
      return {};
    }
    all.push_back(bytes.substr(sizeof header));
  }
  // All have begun this one, so all have read what came before.
  if (number > 0) std::remove(path(number - 1, comm->rank).c_str());
  return all;
}

template <typename T> void combine(int operation, T &into, T value) {
  into = operation == 0 ? static_cast<T>(into + value) : operation == 2 ? std::max(into, value) : std::min(into, value);
}
// The member whose value an element's sum begins with: a ring cuts a tensor into a part for each member, and the sum of
// a part ends at that member.
size_t firstOf(const std::vector<std::string> &all, size_t element, size_t width) {
  return (element * all.size() * width / all[0].size() + 1) % all.size();
}
template <typename T>
void reduceAs(int operation, const std::vector<std::string> &all, size_t begin, size_t count, void *out) {
  for (size_t i = 0; i < count; ++i) {
    T sum, value;
    size_t first = firstOf(all, begin + i, sizeof(T));
    std::memcpy(&sum, all[first].data() + (begin + i) * sizeof(T), sizeof(T));
    for (size_t hop = 1; hop < all.size(); ++hop) {
      std::memcpy(&value, all[(first + hop) % all.size()].data() + (begin + i) * sizeof(T), sizeof(T));
      combine(operation, sum, value);
    }
    std::memcpy(static_cast<char *>(out) + i * sizeof(T), &sum, sizeof(T));
  }
}
void reduceNumbers(fake::Number type, int operation, const std::vector<std::string> &all, size_t begin, size_t count,
                   void *out) {
  for (size_t i = 0; i < count; ++i) {
    auto at = static_cast<int64_t>(begin + i), to = static_cast<int64_t>(i);
    size_t first = firstOf(all, begin + i, 2);
    fake::store(type, out, to, fake::load(type, all[first].data(), at));
    for (size_t hop = 1; hop < all.size(); ++hop) {
      double sum = fake::load(type, out, to), value = fake::load(type, all[(first + hop) % all.size()].data(), at);
      combine(operation, sum, value);
      fake::store(type, out, to, sum); // each hop rounds
    }
  }
}
void reduce(int type, int operation, const std::vector<std::string> &all, size_t begin, size_t count, void *out) {
  switch (type) {
  case 0:
    return reduceAs<int8_t>(operation, all, begin, count, out);
  case 1:
    return reduceAs<uint8_t>(operation, all, begin, count, out);
  case 2:
    return reduceAs<int32_t>(operation, all, begin, count, out);
  case 3:
    return reduceAs<uint32_t>(operation, all, begin, count, out);
  case 4:
    return reduceAs<int64_t>(operation, all, begin, count, out);
  case 5:
    return reduceAs<uint64_t>(operation, all, begin, count, out);
  case 6:
    return reduceNumbers(fake::Number::F16, operation, all, begin, count, out);
  case 7:
    return reduceAs<float>(operation, all, begin, count, out);
  case 8:
    return reduceAs<double>(operation, all, begin, count, out);
  default:
    return reduceNumbers(fake::Number::Bf16, operation, all, begin, count, out);
  }
}

int useStream(Comm *comm, fake::Stream *stream) {
  if (!comm || comm->aborted) return invalidArgument;
  if (!comm->stream) comm->stream = stream;
  return comm->stream == stream ? ok : fail(comm, invalidUsage, "a communicator on two streams");
}

template <typename Work> int enqueue(Comm *comm, fake::Stream *stream, Work work) {
  if (int error = useStream(comm, stream)) return error;
  if (depth) return fail(comm, invalidUsage, "the fake groups sends and receives only");
  bool isCaptured = fake::isCapturing(stream);
  return fake::enqueue(stream, [work, isCaptured, call = comm->calls] { work(isCaptured); }) ? internalError : ok;
}

// Sends of a group are there before one of them waits.
void deliver(const std::vector<Message> &messages) {
  auto path = [](Comm *comm, int from, int to, int64_t number) {
    return comm->folder + "/" + std::to_string(from) + "to" + std::to_string(to) + "." + std::to_string(number);
  };
  std::vector<std::pair<Comm *, std::string>> sent;
  for (const Message &m : messages) {
    if (m.receives) continue;
    sent.push_back({m.comm, path(m.comm, m.comm->rank, m.peer, m.comm->sent[static_cast<size_t>(m.peer)]++)});
    put(sent.back().second, std::string(1, m.isCaptured ? 'c' : 'n') + std::string(m.data, m.bytes));
  }
  for (const Message &m : messages) {
    if (!m.receives) continue;
    std::string file = path(m.comm, m.peer, m.comm->rank, m.comm->received[static_cast<size_t>(m.peer)]++);
    std::string bytes = arrived(m.comm, file);
    if (bytes.empty()) return;
    if (bytes.size() != m.bytes + 1) {
      fail(m.comm, invalidUsage, std::to_string(bytes.size()) + " bytes for " + std::to_string(m.bytes));
      return;
    }
    if ((bytes[0] == 'c') != m.isCaptured) {
      fail(m.comm, invalidUsage, "a message that is captured at one end only");
      return;
    }
    std::memcpy(m.data, bytes.data() + 1, m.bytes);
    std::remove(file.c_str());
  }
  for (const auto &[comm, file] : sent)
    if (!await(comm, [&, file = file] { return !exists(file); })) return;
}

// Each end says that it is there, then waits for the other.
int connectAll(const std::vector<Message> &messages) {
  auto path = [](const Comm *comm, const char *end, std::pair<int, int> way) {
    return comm->folder + "/" + end + std::to_string(way.first) + "with" + std::to_string(way.second);
  };
  std::vector<std::pair<Comm *, std::string>> others;
  for (const Message &m : messages) {
    std::pair<int, int> way = m.receives ? std::pair{m.peer, m.comm->rank} : std::pair{m.comm->rank, m.peer};
    if (m.peer == m.comm->rank || !m.comm->connected.insert(way).second) continue;
    put(path(m.comm, m.receives ? "to" : "from", way), "");
    others.push_back({m.comm, path(m.comm, m.receives ? "from" : "to", way)});
  }
  for (const auto &[comm, file] : others)
    if (!await(comm, [&, file = file] { return exists(file); })) return internalError;
  return ok;
}

int addMessage(Message message) {
  if (!message.comm || message.comm->aborted || message.peer < 0 || message.peer >= message.comm->ranks)
    return invalidArgument;
  if (int error = useStream(message.comm, message.stream)) return error;
  message.call = message.comm->calls;
  message.isCaptured = fake::isCapturing(message.stream);
  if (depth) return grouped.push_back(message), ok;
  if (message.peer == message.comm->rank)
    return fail(message.comm, invalidUsage, "a message to itself without a group");
  if (int error = connectAll({message})) return error;
  return fake::enqueue(message.stream, [message] { deliver({message}); }) ? internalError : ok;
}

Comm *make(const std::string &folder, int ranks, int rank) {
  auto *comm = new Comm;
  comm->folder = folder, comm->ranks = ranks, comm->rank = rank;
  comm->sent.resize(static_cast<size_t>(ranks)), comm->received.resize(static_cast<size_t>(ranks));
  std::filesystem::create_directories(folder);
  return comm;
}

void awaitCalls(const Comm *comm) {
  for (int turn = 1; comm->calls.use_count() > 1; ++turn) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (turn == 20'000) // of a millisecond, or more where the machine is shared
      std::fprintf(stderr, "fake NCCL: rank %d of %s waits for calls that do not end or are in a graph\n", comm->rank,
                   comm->folder.c_str());
  }
}

int libraryVersion() {
  const char *given = std::getenv("FAKE_NCCL_VERSION");
  return given ? std::atoi(given) : 23102;
}

// The GPU of each rank is another's only where the library can do that and is told to.
int refuseSharedGpus(Comm *comm, const std::vector<std::string> &gpus) {
  const char *allowed = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  bool canShare = libraryVersion() >= 23000;
  if (canShare && allowed && std::string(allowed) == "1") return ok;
  for (int r = 0; r < comm->ranks; ++r)
    for (int other = 0; other < r; ++other)
      if (gpus[static_cast<size_t>(r)] == gpus[static_cast<size_t>(other)])
        return fail(comm, invalidUsage,
                    canShare ? "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to "
                               "enable this configuration."
                             : "Duplicate GPU detected : rank " + std::to_string(r) + " and rank " +
                                   std::to_string(other) + " both on CUDA device c000");
  return ok;
}

struct Id {
  char bytes[128];
};
} // namespace

extern "C" {
const char *ncclGetErrorString(int) { return "not as the fake library wants it"; }
const char *ncclGetLastError(Comm *) { return complaint.c_str(); }
int ncclGetVersion(int *version) { return *version = libraryVersion(), ok; }
int ncclGetUniqueId(Id *id) {
  std::random_device random;
  std::filesystem::path memory = "/dev/shm";
  std::string base = std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
  std::snprintf(id->bytes, sizeof id->bytes, "%s/fake-nccl-%08x%08x", base.c_str(), random(), random());
  return ok;
}
int ncclCommInitRankConfig(Comm **comm, int ranks, Id id, int rank, void *) {
  if (rank < 0 || rank >= ranks) return invalidArgument;
  *comm = make(id.bytes, ranks, rank);
  std::vector<std::string> gpus = exchange(*comm, Init, 0, 0, 0, std::to_string(fake::currentDevice));
  return gpus.empty() ? internalError : refuseSharedGpus(*comm, gpus);
}
int ncclCommSplit(Comm *comm, int color, int key, Comm **made, void *) {
  *made = nullptr;
  if (color < -1) return invalidArgument;
  int own[2] = {color, key}, number = comm->splits++;
  std::vector<std::string> all =
      exchange(comm, Split, 0, 0, 0, std::string(reinterpret_cast<const char *>(own), sizeof own));
  if (all.empty()) return internalError;
  std::vector<std::pair<int, int>> members; // key, rank in the parent
  for (int r = 0; r < comm->ranks; ++r) {
    int theirs[2];
    std::memcpy(theirs, all[static_cast<size_t>(r)].data(), sizeof theirs);
    if (theirs[0] == color) members.push_back({theirs[1], r});
  }
  if (color < 0) return ok;
  std::sort(members.begin(), members.end());
  auto self = std::find_if(members.begin(), members.end(), [&](auto member) { return member.second == comm->rank; });
  *made = make(comm->folder + "/" + std::to_string(number) + "-" + std::to_string(color),
               static_cast<int>(members.size()), static_cast<int>(self - members.begin()));
  return ok;
}
int ncclCommDestroy(Comm *comm) {
  if (!comm) return invalidArgument;
  awaitCalls(comm);
  std::error_code ignored;
  auto done = [&](int rank) { return comm->folder + "/done." + std::to_string(rank); };
  put(done(comm->rank), "");
  for (int r = 0; r < comm->ranks; ++r)
    while (!exists(done(r)) && exists(comm->folder)) std::this_thread::sleep_for(std::chrono::microseconds(100));
  // Who comes last removes what is left of the folder.
  put(comm->folder + "/gone." + std::to_string(comm->rank), "");
  int gone = 0;
  for (int r = 0; r < comm->ranks; ++r) gone += exists(comm->folder + "/gone." + std::to_string(r));
  if (gone == comm->ranks) std::filesystem::remove_all(comm->folder, ignored);
  delete comm;
  return ok;
}
// Ends what is enqueued; the communicator's memory stays, as work on its streams may still look at it, and is named
// here for who looks for leaks.
int ncclCommAbort(Comm *comm) {
  if (!comm || comm->aborted) return invalidArgument;
  comm->aborted = true;
  static std::mutex lock;
  static auto &kept = *new std::vector<Comm *>;
  {
    std::lock_guard guard(lock);
    kept.push_back(comm);
  }
  std::error_code ignored;
  std::filesystem::remove_all(comm->folder, ignored);
  awaitCalls(comm);
  return ok;
}
int ncclCommGetAsyncError(Comm *comm, int *error) { return *error = comm->failure, ok; }

int ncclAllReduce(const void *send, void *receive, size_t count, int type, int operation, Comm *comm,
                  fake::Stream *stream) {
  return enqueue(comm, stream, [=](bool isCaptured) {
    std::string own(static_cast<const char *>(send), count * static_cast<size_t>(bytesOf(type)));
    std::vector<std::string> all = exchange(comm, AllReduce, type, operation, count, own, isCaptured);
    if (!all.empty()) reduce(type, operation, all, 0, count, receive);
  });
}
int ncclReduceScatter(const void *send, void *receive, size_t count, int type, int operation, Comm *comm,
                      fake::Stream *stream) {
  return enqueue(comm, stream, [=](bool isCaptured) {
    auto ranks = static_cast<size_t>(comm->ranks);
    std::string own(static_cast<const char *>(send), ranks * count * static_cast<size_t>(bytesOf(type)));
    std::vector<std::string> all = exchange(comm, ReduceScatter, type, operation, count, own, isCaptured);
    if (!all.empty()) reduce(type, operation, all, static_cast<size_t>(comm->rank) * count, count, receive);
  });
}
int ncclAllGather(const void *send, void *receive, size_t count, int type, Comm *comm, fake::Stream *stream) {
  return enqueue(comm, stream, [=](bool isCaptured) {
    size_t bytes = count * static_cast<size_t>(bytesOf(type));
    std::vector<std::string> all =
        exchange(comm, AllGather, type, 0, count, std::string(static_cast<const char *>(send), bytes), isCaptured);
    for (size_t r = 0; r < all.size(); ++r) std::memcpy(static_cast<char *>(receive) + r * bytes, all[r].data(), bytes);
  });
}
int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, Comm *comm, fake::Stream *stream) {
  return enqueue(comm, stream, [=](bool isCaptured) {
    size_t bytes = comm->rank == root ? count * static_cast<size_t>(bytesOf(type)) : 0;
    std::vector<std::string> all =
        exchange(comm, Broadcast, type, root, count, std::string(static_cast<const char *>(send), bytes), isCaptured);
    if (!all.empty())
      std::memcpy(receive, all[static_cast<size_t>(root)].data(), all[static_cast<size_t>(root)].size());
  });
}
int ncclSend(const void *data, size_t count, int type, int peer, Comm *comm, fake::Stream *stream) {
  return addMessage({comm, nullptr, false, false, static_cast<char *>(const_cast<void *>(data)),
                     count * static_cast<size_t>(bytesOf(type)), peer, stream});
}
int ncclRecv(void *data, size_t count, int type, int peer, Comm *comm, fake::Stream *stream) {
  return addMessage({comm, nullptr, false, true, static_cast<char *>(data), count * static_cast<size_t>(bytesOf(type)),
                     peer, stream});
}
int ncclGroupStart() { return ++depth, ok; }
int ncclGroupEnd() {
  if (depth == 0) return invalidUsage;
  if (--depth) return ok;
  std::vector<Message> messages = std::move(grouped);
  grouped.clear();
  std::set<fake::Stream *> streams;
  for (const Message &m : messages) streams.insert(m.stream);
  if (streams.size() > 1) return invalidUsage;
  if (int error = connectAll(messages)) return error;
  return messages.empty() || !fake::enqueue(*streams.begin(), [messages] { deliver(messages); }) ? ok : internalError;
}
}
